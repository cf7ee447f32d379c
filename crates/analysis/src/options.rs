//! What is compared, and how.

use std::path::PathBuf;
use std::time::Duration;

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Files of session records, and directories of them.
    pub files: Vec<PathBuf>,
    /// Names of metrics; none for the usual ones.
    pub metrics: Vec<String>,
    /// The cohort that others are compared with; absent for `control`, or else the first by name.
    pub baseline: Option<String>,
    /// Where the bootstrap's random draws begin.
    pub seed: u64,
    /// How many draws.
    pub resamples: usize,
    /// Shorter sessions are left out.
    pub min_duration: Duration,
    /// Only sessions of this protocol: "h3", for example.
    pub protocol: Option<String>,
    /// Cohorts with their configured weights, for the check of the sample ratio; may be empty.
    pub weights: Vec<(String, u32)>,
}
