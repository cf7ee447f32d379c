//! `mendcast lab visits`: first-frame time of returning viewers.

use std::path::PathBuf;

use ::lab::platform::{self, VisitOptions};
use clap::Args;

use super::execution::Execution;
use super::run::key_and_value;
use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast lab visits --visits 200
  mendcast lab visits --visits 3000 --population experiments/populations/fleet.toml
  mendcast lab visits --visits 500 --set video_frames=3";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Visits {
    /// Visits, 1 to 1000000, each under every startup mode.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    visits: u32,
    /// Viewers and paths: a specification (*.toml).
    ///
    /// Default: paths fitted to Wira's production, experiments/populations/wira.toml.
    ///
    /// Beside them the unfitted fleet.toml, and the same paths with BBR's draft and RFC 9002's
    /// detection.
    #[arg(long, value_name = "FILE")]
    population: Option<PathBuf>,
    /// Key of all visits, such as video_frames=3; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    execution: Execution,
    /// Directory of the results: first-frame.md, a plot, and summary.json.
    #[arg(long, default_value = "out/visits", value_name = "DIR", help_heading = "Output")]
    out: PathBuf,
}

impl Visits {
    pub(super) fn run(self) -> Result<(), Error> {
        platform::visits(&VisitOptions {
            visits: self.visits,
            population: self.population.as_deref(),
            set: &self.set,
            seed: self.execution.seed,
            jobs: self.execution.jobs(),
            out: &self.out,
        })?;
        log_line!("{}", self.out.join("first-frame.md").display());
        Ok(())
    }
}
