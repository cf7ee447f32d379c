//! Options of a comparison.

use std::path::PathBuf;
use std::time::Duration;

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Files or directories of session records.
    pub files: Vec<PathBuf>,
    /// Names of metrics; empty for the default ones.
    pub metrics: Vec<String>,
    /// Baseline cohort. `None` for `control`, or else the first by name.
    pub baseline: Option<String>,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Number of resamples.
    pub resamples: usize,
    /// Minimum duration of a session.
    pub min_duration: Duration,
    /// Restricts sessions to this protocol, for example "h3".
    pub protocol: Option<String>,
    /// Cohorts with their configured weights for the sample-ratio check; may be empty.
    pub weights: Vec<(String, u32)>,
}
