//! Seed and threads of a run.

use clap::Args;

/// Options of every command that runs sessions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Execution")]
pub(super) struct Execution {
    /// Random seed.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,
    /// Threads; 0 is one per core. Results do not depend on it.
    #[arg(long, default_value_t = 0, value_name = "N")]
    jobs: usize,
}

impl Execution {
    /// Number of threads, at least 1.
    pub(super) fn jobs(&self) -> usize {
        match self.jobs {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            jobs => jobs,
        }
    }
}
