//! `mendcast records ab`: comparison of cohorts.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast records ab /var/lib/mendcast/records
  mendcast records ab records --min-duration 5s --weights control=50,treatment=50
  mendcast records ab records --metric first_frame_ms,player_freeze_s --json";
const SESSIONS: &str = "Sessions";
const STATISTICS: &str = "Statistics";
const OUTPUT: &str = "Output";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Ab {
    /// Session records (.jsonl, .parquet), or directories of them.
    ///
    /// Two forms of one file count once.
    #[arg(required = true, value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Leave out shorter sessions.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = units::parse_duration,
        help_heading = SESSIONS
    )]
    min_duration: Duration,
    /// Only sessions over this protocol.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = ["h3", "h2", "h1", "rtmp"],
        help_heading = SESSIONS
    )]
    protocol: Option<String>,
    /// Metrics instead of the usual ones: names, or numeric columns.
    #[arg(long = "metric", value_name = "NAME,…", value_delimiter = ',', help_heading = STATISTICS)]
    metrics: Vec<String>,
    /// Baseline cohort [default: control, or the first by name].
    #[arg(long, value_name = "COHORT", help_heading = STATISTICS)]
    baseline: Option<String>,
    /// Configured weights, to check the sample ratio: control=50,treatment=50.
    #[arg(
        long,
        value_name = "COHORT=N,…",
        value_delimiter = ',',
        value_parser = weight,
        help_heading = STATISTICS
    )]
    weights: Vec<(String, u32)>,
    /// Resamples of the bootstrap, 100 to 100000.
    #[arg(
        long,
        value_name = "N",
        default_value = "2000",
        value_parser = clap::value_parser!(u32).range(100..=100_000),
        help_heading = STATISTICS
    )]
    resamples: u32,
    /// Random seed of the bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = STATISTICS)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// Also write a page with tables and distributions.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    html: Option<PathBuf>,
}

impl Ab {
    pub(super) fn run(self) -> Result<(), Error> {
        let report = analysis::compare(&analysis::CompareOptions {
            files: self.files,
            metrics: self.metrics,
            baseline: self.baseline,
            seed: self.seed,
            resamples: self.resamples as usize,
            min_duration: self.min_duration,
            protocol: self.protocol,
            weights: self.weights,
        })?;
        if let Some(path) = self.html {
            std::fs::write(&path, report.html()).map_err(Error::at(path.display()))?;
        }
        if self.json {
            print_line!("{}", report.json());
        } else {
            crate::output::print(report.text());
        }
        Ok(())
    }
}

fn weight(text: &str) -> Result<(String, u32), &'static str> {
    text.rsplit_once('=')
        .and_then(|(name, weight)| Some((name.to_owned(), weight.parse().ok()?)))
        .filter(|(name, weight)| !name.is_empty() && *weight > 0)
        .ok_or("expected a cohort and its weight, such as control=50")
}
