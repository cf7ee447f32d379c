//! `mendcast lab autoplex`: benefit and cost of path knowledge per user group over a day.

use std::path::PathBuf;

use ::lab::platform::{self, AutoPlexOptions, WAYS};
use clap::Args;

/// Run days of viewers in forty user groups, in virtual time. Compare caps: none, one for all,
/// AutoPlex, the edge's safe mode, and an oracle. Resumes from the results in its directory.
#[derive(Debug, Args)]
pub(super) struct AutoPlex {
    /// Days of 48 periods, 1 to 1000, each with groups, viewers and paths of its own.
    #[arg(long, default_value_t = 20, value_name = "N")]
    seeds: u32,
    /// The first of their seeds, up to 1000000.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Sessions of a day, 100 to 1000000, under each way.
    #[arg(long, default_value_t = 12_000, value_name = "N")]
    sessions: u32,
    /// Ways to hold sessions, with `bbr` among them: bbr, constant-MBPS, demand-TIMES,
    /// paper-retransmission, paper-goodput, safe, safe-SHARE, oracle.
    #[arg(long, default_value = WAYS, value_delimiter = ',')]
    ways: Vec<String>,
    /// Run pairs of sessions of a group behind one bottleneck, with neither, one and both capped:
    /// autoplex-shared.md.
    #[arg(long)]
    shared: bool,
    /// Population and paths: a specification (see experiments/populations/).
    #[arg(long, value_name = "FILE")]
    population: Option<PathBuf>,
    /// Threads; 0 for one per core. Results are the same for any number.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Where results go: autoplex.md with tables beside the paper's, plots, and a row for each
    /// session.
    #[arg(long, default_value = "out/autoplex", value_name = "DIR")]
    out: PathBuf,
}

impl AutoPlex {
    pub(super) fn run(self) -> Result<(), String> {
        let jobs = match self.jobs {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            jobs => jobs,
        };
        let Self { seeds, seed, sessions, ways, shared, population, out, .. } = self;
        let population = population.as_deref();
        let ways = &ways;
        let options =
            AutoPlexOptions { seeds, seed, sessions, ways, shared, population, jobs, out: &out };
        let page = platform::autoplex(&options)?;
        eprintln!("{}", page.display());
        Ok(())
    }
}
