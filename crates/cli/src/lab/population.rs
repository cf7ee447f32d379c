//! `mendcast lab population`: experience of a population of viewers under each scheme.

use std::path::PathBuf;

use ::lab::platform::{self, AbOptions};
use clap::Args;

use super::execution::Execution;
use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast lab population --sessions 400 --cohort a=arq:1 --cohort b=deadline:1
  mendcast lab population --paired --schemes arq,deadline,spare+copies=2 --seeds 5 --out out/paired
  mendcast lab population --population /var/lib/mendcast/records --paired

Besides the server's schemes, clairvoyant and clairvoyant-from-start know the fate of packets. A
population of records has their round-trip times, losses, bit rates and durations. The results
include records for `mendcast records`.";
const COMPARISON: &str = "Comparison";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Population {
    /// Sessions per seed; with --paired, each runs under every scheme.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    sessions: u32,
    /// Viewers: a specification (*.toml), or a directory of records.
    ///
    /// Default: the fleets of the papers, experiments/populations/fleet.toml.
    #[arg(long, value_name = "PATH")]
    population: Option<PathBuf>,
    /// Schemes, with parameters as in spare+copies=2.
    #[arg(long, value_delimiter = ',', value_name = "SCHEME,…", help_heading = COMPARISON)]
    schemes: Vec<String>,
    /// Cohort, its scheme and its share; may be repeated.
    ///
    /// Default: arq and deadline, half each.
    #[arg(long, value_name = "NAME=SCHEME:WEIGHT", help_heading = COMPARISON)]
    cohort: Vec<String>,
    /// Run each session under every scheme, with the same path and stream.
    ///
    /// Needs far fewer sessions for the same certainty. No production server can do it.
    #[arg(long, help_heading = COMPARISON)]
    paired: bool,
    #[command(flatten)]
    execution: Execution,
    /// Random seeds, from --seed on. Results are pooled, and reported for each seed.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Execution")]
    seeds: u32,
    /// Directory of report.md, viewers.md if paired, plots, records.
    #[arg(long, default_value = "out/population", value_name = "DIR", help_heading = "Output")]
    out: PathBuf,
}

impl Population {
    pub(super) fn run(self) -> Result<(), Error> {
        platform::ab(&AbOptions {
            sessions: self.sessions,
            population: self.population.as_deref(),
            schemes: &self.schemes,
            cohorts: &self.cohort,
            paired: self.paired,
            seed: self.execution.seed,
            seeds: self.seeds,
            jobs: self.execution.jobs(),
            out: &self.out,
        })?;
        log_line!("{}", self.out.join("report.md").display());
        Ok(())
    }
}
