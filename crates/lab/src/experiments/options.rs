//! How experiments are run.

/// What to run of an experiment, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The text of a specification in place of the built-in one.
    pub spec: Option<&'a str>,
    /// Settings (key and value) that win over those that the specification has for all runs.
    pub set: &'a [(String, String)],
    /// Runs per point, with seeds from `seed` on; as many as the experiment is made for if `None`.
    pub runs: Option<u64>,
    /// Threads.
    pub jobs: usize,
    /// The first seed.
    pub seed: u64,
}
