//! `mendcast lab ab` and `mendcast lab viewers`: experience of a viewer population under each
//! scheme.

use std::path::PathBuf;

use ::lab::platform::{self, AbOptions};
use clap::Args;

/// Run the sessions of a population of viewers under recovery schemes, in virtual time.
#[derive(Debug, Args)]
pub(super) struct Ab {
    /// Sessions to run, 1 to 1000000; paired, each runs once for every scheme. Records are written
    /// as sessions end; each run keeps half a kilobyte of memory for the report.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    sessions: u32,
    /// Population: a specification (*.toml, see experiments/populations/), or a directory of your
    /// own session records, to replay their round-trip times, loss, bit rates and durations.
    /// Default: the papers' fleets.
    #[arg(long, value_name = "FILE|RECORDS")]
    population: Option<PathBuf>,
    /// Schemes to compare: names of the catalogue, with keys of the configuration as in
    /// autorec+latency=50ms+when_idle=true, or autorec-fleet, autorec-mm24-fleet, clairvoyant,
    /// clairvoyant-from-start.
    #[arg(long, value_delimiter = ',', value_name = "SCHEME,…")]
    schemes: Vec<String>,
    /// A cohort of viewers, its scheme and its share; may be repeated. arq and deadline, half each,
    /// by default.
    #[arg(long, value_name = "NAME=SCHEME:WEIGHT")]
    cohort: Vec<String>,
    /// Run each session under every scheme, with the same draws of path and stream, which no
    /// production can do: differences are then far surer, and dominance and the way to a
    /// clairvoyant sender are known.
    #[arg(long)]
    paired: bool,
    /// Of everything that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads; 0 for one per core. Results are the same for any number.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Where results go: summary.json, report.md, plots, and records/ in the schema of the server, which
    /// `mendcast edge ab` reads too.
    #[arg(long, default_value = "out/ab", value_name = "DIR")]
    out: PathBuf,
}

impl Ab {
    pub(super) fn run(self) -> Result<(), String> {
        let jobs = match self.jobs {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            jobs => jobs,
        };
        platform::ab(&AbOptions {
            sessions: self.sessions,
            population: self.population.as_deref(),
            schemes: &self.schemes,
            cohorts: &self.cohort,
            paired: self.paired,
            seed: self.seed,
            jobs,
            out: &self.out,
        })?;
        eprintln!("{}", self.out.join("report.md").display());
        Ok(())
    }
}

/// Print the results of `mendcast lab ab --paired` as a page of Markdown: docs/viewers.md.
#[derive(Debug, Args)]
pub(super) struct Viewers {
    /// The results' directory.
    dir: PathBuf,
    /// Directory that the page's plots are written to; links in the page are relative to its
    /// parent.
    #[arg(long, default_value = "docs/pictures", value_name = "DIR")]
    pictures: PathBuf,
}

impl Viewers {
    pub(super) fn run(self) -> Result<(), String> {
        let name = self.pictures.file_name().unwrap_or_default().to_string_lossy().into_owned();
        crate::say::text(platform::viewers(&self.dir, &self.pictures, &format!("{name}/"))?);
        Ok(())
    }
}
