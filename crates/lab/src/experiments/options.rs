//! Options of an experiment run.

/// Options of an experiment run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions<'a> {
    /// Text of a specification that replaces the built-in one.
    pub spec: Option<&'a str>,
    /// Keys and values that override all runs.
    pub set: &'a [(String, String)],
    /// Runs per point, with consecutive seeds. `None` for the number in the specification.
    pub runs: Option<u64>,
    /// Number of threads.
    pub jobs: usize,
    /// First seed.
    pub seed: u64,
}
