//! `mendcast lab visits`: first-frame time of returning viewers.

use std::path::PathBuf;

use ::lab::platform::{self, VisitOptions};
use clap::Args;

use super::execution::Execution;
use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast lab visits --visits 200
  mendcast lab visits --visits 3000 --population experiments/populations/wira.toml";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Visits {
    /// Visits, 1 to 1000000, each under every startup mode.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    visits: u32,
    /// Viewers and paths: a specification (*.toml).
    ///
    /// Default: the published paths of Wira's production, experiments/populations/wira.toml.
    #[arg(long, value_name = "FILE")]
    population: Option<PathBuf>,
    #[command(flatten)]
    execution: Execution,
    /// Directory of the results: first-frame.md, and a plot.
    #[arg(long, default_value = "out/visits", value_name = "DIR", help_heading = "Output")]
    out: PathBuf,
}

impl Visits {
    pub(super) fn run(self) -> Result<(), Error> {
        platform::visits(&VisitOptions {
            visits: self.visits,
            population: self.population.as_deref(),
            seed: self.execution.seed,
            jobs: self.execution.jobs(),
            out: &self.out,
        })?;
        log_line!("{}", self.out.join("first-frame.md").display());
        Ok(())
    }
}
