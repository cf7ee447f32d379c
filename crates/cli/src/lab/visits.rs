//! `mendcast lab visits`: first-frame time of returning viewers.

use std::path::PathBuf;

use ::lab::platform::{self, VisitOptions};
use clap::Args;

/// Run visits of returning viewers, in virtual time, under every start mode, with the cookie of
/// the previous visit.
#[derive(Debug, Args)]
pub(super) struct Visits {
    /// Visits to run, 1 to 1000000, each under seven ways to start and on two worlds of paths.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    visits: u32,
    /// Returning viewers and their paths: a specification (see experiments/populations/). Default:
    /// the published paths of Wira's production.
    #[arg(long, value_name = "FILE")]
    population: Option<PathBuf>,
    /// Of everything that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads; 0 for one per core. Results are the same for any number.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Where results go: first-frame.md with tables beside the paper's, and a plot.
    #[arg(long, default_value = "out/visits", value_name = "DIR")]
    out: PathBuf,
}

impl Visits {
    pub(super) fn run(self) -> Result<(), String> {
        let jobs = match self.jobs {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            jobs => jobs,
        };
        let Self { visits, population, seed, out, .. } = self;
        let population = population.as_deref();
        platform::visits(&VisitOptions { visits, population, seed, jobs, out: &out })?;
        eprintln!("{}", out.join("first-frame.md").display());
        Ok(())
    }
}
