//! Command line.

use core::ops::Range;
use core::time::Duration;
use std::io::{ErrorKind, Write as _, stdout};
use std::path::PathBuf;
use std::process::exit;
use std::time::SystemTime;

use clap::{Args, Parser, Subcommand};
use groups::decide::Rules;
use groups::select::Policy;
use mendcast_autoplex::Error;
use mendcast_autoplex::decide::{Decision, Rows};
use mendcast_autoplex::engine::Engine;
use mendcast_autoplex::geo::Geo;
use mendcast_autoplex::measure::Measurement;
use mendcast_autoplex::query::{self, Plan};
use mendcast_autoplex::store::Store;
use mendcast_autoplex::sync::{self, Place};
use units::parse_duration;

/// Exit code after the reader of stdout is gone: 128 + SIGPIPE.
const CLOSED_STDOUT: i32 = 141;

/// Decide the send limits of user groups.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure new records, decide, and write OUT/table.groups.
    Decide(Decide),
    /// Measure new records.
    Measure(Measure),
    /// Measure new records and write this point of presence's histograms to OUT/histograms.
    Histogram(Histogram),
    /// Print a query for any engine.
    Sql(Sql),
    /// Copy new files between directories or object stores, such as records and tables.
    Sync(SyncArgs),
}

#[derive(Debug, Args)]
struct Measure {
    /// Directory that is searched for closed record files (.parquet), or one record file.
    #[arg(long, value_name = "PATH")]
    records: Vec<PathBuf>,
    /// Directory of measurements and decisions.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Address database in MaxMind's format (city, ASN). Without one, records name their groups.
    #[arg(long, value_name = "FILE")]
    geo: Vec<PathBuf>,
    /// Retention period of measured sessions and old decisions.
    #[arg(long, default_value = "48h", value_parser = parse_duration)]
    keep: Duration,
    /// Current time in Unix seconds, for tests.
    #[arg(long, value_name = "SECONDS", hide = true)]
    now: Option<u64>,
}

#[derive(Debug, Args)]
struct SelectionArgs {
    /// Policy: lower-retransmission, goodput-per-rtt or open-rate.
    #[arg(long, default_value = "open-rate", value_parser = policy)]
    policy: Policy,
    /// Sort key instead of the policy's: SQL expression for an integer from 0.
    #[arg(long, value_name = "SQL")]
    metric: Option<String>,
    /// Condition for eligible sessions instead of the policy's, as SQL.
    #[arg(long, value_name = "SQL")]
    filter: Option<String>,
    /// Percentiles instead of the policy's, such as 5..20.
    #[arg(long, value_name = "FROM..TO", value_parser = band)]
    band: Option<Range<i64>>,
}

#[derive(Debug, Args)]
struct WindowArgs {
    /// Time between decisions, which are made at its multiples.
    #[arg(long, default_value = "30m", value_parser = parse_duration)]
    period: Duration,
    /// Maximum age of sessions, by their end. Default: twice --period, for late records.
    #[arg(long, value_parser = parse_duration)]
    window: Option<Duration>,
}

#[derive(Debug, Args)]
struct Decide {
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    window: WindowArgs,
    /// Select exactly instead of by histograms.
    #[arg(long)]
    exact: bool,
    /// Select from histograms of several points of presence: DIR/<end>/<pop>.parquet.
    #[arg(long, value_name = "DIR", conflicts_with = "exact")]
    histograms: Option<PathBuf>,
    /// Selections of another engine, as CSV.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["exact", "histograms"])]
    rows: Option<PathBuf>,
    /// Minimum sessions of a country to decide. A group with as many weighs as much as its parent.
    #[arg(long, default_value_t = Rules::default().min_sessions)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    least: u64,
    /// Lifetime of a decision.
    #[arg(long, default_value = "2h", value_parser = parse_duration)]
    lifetime: Duration,
    /// Keep running, and decide at multiples of this.
    #[arg(long, value_parser = parse_duration)]
    every: Option<Duration>,
}

#[derive(Debug, Args)]
struct Histogram {
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    window: WindowArgs,
    /// Name of this point of presence.
    #[arg(long, value_parser = pop)]
    pop: String,
}

#[derive(Debug, Args)]
struct Sql {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Exact selection instead of the histogram query.
    #[arg(long)]
    exact: bool,
    /// Selection over histograms.
    #[arg(long, conflicts_with = "exact")]
    merge: bool,
    /// Outcomes, for the guard.
    #[arg(long, conflicts_with_all = ["exact", "merge"])]
    outcomes: bool,
    /// Start of the window, in Unix seconds.
    #[arg(long, value_name = "SECONDS")]
    begin: u64,
    /// End of the window, in Unix seconds.
    #[arg(long, value_name = "SECONDS")]
    end: u64,
}

#[derive(Debug, Args)]
struct SyncArgs {
    /// Source: a directory, or the URL of an object store (s3, gs, az, http, https, file).
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Target: a directory or URL.
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Mirror this file, including its removal; repeatable. Default: copy all files, remove none.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Keep running, and look for changes at multiples of this.
    #[arg(long, value_parser = parse_duration)]
    every: Option<Duration>,
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Decide(decide) => decide.run(),
            Command::Measure(measure) => Ok(measure.run(&measure.geo()?)?),
            Command::Histogram(histogram) => histogram.run(),
            Command::Sql(sql) => print(&sql.text()),
            Command::Sync(sync) => Ok(sync.run()?),
        }
    }
}

/// Prints a result. A closed stdout ends the process silently, as it ends `mendcast`.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => exit(CLOSED_STDOUT),
        Err(e) => Err(Failure::Stdout(e)),
        Ok(()) => Ok(()),
    }
}

impl Measure {
    fn now(&self) -> u64 {
        self.now.unwrap_or_else(unix_now)
    }

    fn geo(&self) -> Result<Geo, Error> {
        Geo::open(&self.geo)
    }

    fn run(&self, geo: &Geo) -> Result<(), Error> {
        let store = Store::new(&self.out);
        let (now, keep) = (self.now(), self.keep);
        let measurement = Measurement { records: &self.records, store: &store, geo, now, keep };
        eprintln!("mendcast-autoplex: {}", measurement.run()?);
        Ok(())
    }

    /// Measures, then calls `then` with the parameters of a decision.
    fn and<T>(
        &self,
        (selection, times, rows): (&SelectionArgs, &WindowArgs, Rows),
        then: impl FnOnce(Decision<'_>) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let (period, window) = (times.period, times.window.unwrap_or(2 * times.period));
        if period.as_secs() == 0 || window < period || self.keep < window + period {
            return Err(Failure::Times);
        }
        let (geo, now) = (self.geo()?, self.now());
        self.run(&geo)?;
        let (store, engine) = (Store::new(&self.out), Engine::new(0)?);
        let decision = Decision {
            store: &store,
            geo: &geo,
            engine: &engine,
            plan: selection.plan(),
            rows,
            rules: Rules::default(),
            period,
            window,
            lifetime: Duration::ZERO,
            now,
        };
        Ok(then(decision)?)
    }
}

impl SelectionArgs {
    fn plan(&self) -> Plan {
        let plan = Plan::of(&self.policy);
        Plan {
            metric: self.metric.clone().unwrap_or(plan.metric),
            filter: self.filter.clone().unwrap_or(plan.filter),
            band: self.band.clone().unwrap_or(plan.band),
            ..plan
        }
    }
}

/// Failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Contradictory times.
    #[error("expected 0 < --period <= --window, and --period + --window <= --keep")]
    Times,
    /// The result cannot be written.
    #[error("stdout: {0}")]
    Stdout(std::io::Error),
    /// Failure of the library.
    #[error(transparent)]
    Library(#[from] Error),
}

/// Invalid value of an option. The message states the accepted values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum Invalid {
    #[error("expected {}", Policy::ALL.map(|policy| policy.name).join(", "))]
    Policy,
    #[error("expected two percentiles, such as 5..20")]
    Band,
    #[error("expected letters, digits, - and _")]
    Pop,
}

/// Runs `once`, or repeats it at multiples of `every`. Errors of a repetition are logged with their
/// `consequence`.
fn repeated<E: core::fmt::Display>(
    every: Option<Duration>,
    consequence: &str,
    mut once: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let Some(every) = every else { return once() };
    loop {
        if let Err(e) = once() {
            eprintln!("mendcast-autoplex: {e}; {consequence}");
        }
        let every = every.as_secs().max(1);
        std::thread::sleep(Duration::from_secs(every - unix_now() % every));
    }
}

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl SyncArgs {
    fn run(&self) -> Result<(), Error> {
        let mut sync =
            sync::Sync::new(Place::open(&self.from)?, Place::open(&self.to)?, &self.only)?;
        repeated(self.every, "completed copies remain", || {
            let summary = sync.run()?;
            if self.every.is_none() || summary.copied + summary.removed > 0 {
                eprintln!("mendcast-autoplex: {summary}");
            }
            Ok(())
        })
    }
}

impl Decide {
    fn run(&self) -> Result<(), Failure> {
        repeated(self.every, "the previous decision stays active", || self.once())
    }

    fn once(&self) -> Result<(), Failure> {
        let rows = match (&self.histograms, &self.rows) {
            (Some(folder), _) => Rows::Histograms(folder.clone()),
            (_, Some(file)) => Rows::File(file.clone()),
            _ if self.exact => Rows::Exact,
            _ => Rows::Sessions,
        };
        self.measure.and((&self.selection, &self.window, rows), |decision| {
            let rules = Rules {
                min_sessions: self.least,
                parent_weight: self.least as f64,
                ..Rules::default()
            };
            let decision = Decision { rules, lifetime: self.lifetime, ..decision };
            match decision.run()? {
                Some(summary) => eprintln!("mendcast-autoplex: {summary}"),
                None => eprintln!("mendcast-autoplex: already decided until {}", decision.end()),
            }
            Ok(())
        })
    }
}

impl Histogram {
    fn run(&self) -> Result<(), Failure> {
        let parameters = (&self.selection, &self.window, Rows::Sessions);
        let rows = self.measure.and(parameters, |decision| decision.write_histograms(&self.pop))?;
        eprintln!("mendcast-autoplex: wrote a histogram with {rows} bins");
        Ok(())
    }
}

impl Sql {
    fn text(&self) -> String {
        let (plan, window) = (self.selection.plan(), self.begin..self.end);
        match self {
            Self { exact: true, .. } => plan.band(&window),
            Self { merge: true, .. } => plan.merge(),
            Self { outcomes: true, .. } => query::outcomes(&window),
            _ => plan.histogram(&window),
        }
    }
}

fn policy(name: &str) -> Result<Policy, Invalid> {
    Policy::ALL.into_iter().find(|policy| policy.name == name).ok_or(Invalid::Policy)
}

fn band(text: &str) -> Result<Range<i64>, Invalid> {
    let ends =
        text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    let is_band = |band: &Range<i64>| 0 <= band.start && band.start < band.end && band.end <= 100;
    ends.filter(is_band).ok_or(Invalid::Band)
}

fn pop(name: &str) -> Result<String, Invalid> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let is_name = !name.is_empty() && name.chars().all(is_plain);
    is_name.then(|| name.to_owned()).ok_or(Invalid::Pop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_values_are_parsed_and_invalid_ones_rejected() {
        assert_eq!(band("5..20"), Ok(5..20));
        for bad in ["5", "20..5", "-1..5", "0..101", "a..b"] {
            assert!(band(bad).is_err(), "{bad}");
        }
        assert!(pop("fra-1").is_ok() && pop("../x").is_err() && pop("").is_err());
        assert!(policy("open-rate").is_ok() && policy("open_rate").is_err());
        let message = Invalid::Policy.to_string();
        assert_eq!(message, "expected lower-retransmission, goodput-per-rtt, open-rate");
    }
}
