//! The command line.

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
use mendcast_autoplex::decide::{Deciding, Rows};
use mendcast_autoplex::engine::Engine;
use mendcast_autoplex::geo::Geo;
use mendcast_autoplex::measure::Measuring;
use mendcast_autoplex::query::{self, Plan};
use mendcast_autoplex::store::Store;
use mendcast_autoplex::sync::{Place, Sync};
use units::parse_duration;

/// Exit code after the reader of stdout is gone: 128 + SIGPIPE.
const CLOSED_STDOUT: i32 = 141;

/// Decides what the next sessions of each user group may send at most.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures new records, decides, and writes OUT/table.groups.
    Decide(Decide),
    /// Measures new records only.
    Measure(Measure),
    /// Measures new records and writes what this point of presence saw into OUT/histograms.
    Histogram(Histogram),
    /// Prints a query as any engine runs it.
    Sql(Sql),
    /// Copies what is new from one folder or object store to another: records to where decisions are made, tables back.
    Sync(Copying),
}

#[derive(Debug, Args)]
struct Measure {
    /// A folder of session records, whose closed files (.parquet) are read however deep they lie; or one file
    #[arg(long, value_name = "PATH")]
    records: Vec<PathBuf>,
    /// The folder that measurements and decisions go to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A database of addresses in MaxMind's format (city, ASN); without one records name their groups
    #[arg(long, value_name = "FILE")]
    geo: Vec<PathBuf>,
    /// How long measured sessions and old decisions are kept
    #[arg(long, default_value = "48h", value_parser = parse_duration)]
    keep: Duration,
    /// The time in Unix seconds, for tests
    #[arg(long, value_name = "SECONDS", hide = true)]
    now: Option<u64>,
}

#[derive(Debug, Args)]
struct Which {
    /// lower-retransmission, goodput-per-rtt or open-rate
    #[arg(long, default_value = "open-rate", value_parser = policy)]
    policy: Policy,
    /// Another metric to put sessions in order by: SQL for an integer from 0
    #[arg(long, value_name = "SQL")]
    metric: Option<String>,
    /// Another condition on the sessions that count, as SQL
    #[arg(long, value_name = "SQL")]
    filter: Option<String>,
    /// Other percentiles to choose between, as 5..20
    #[arg(long, value_name = "FROM..TO", value_parser = band)]
    band: Option<Range<i64>>,
}

#[derive(Debug, Args)]
struct When {
    /// Decisions are made at multiples of this
    #[arg(long, default_value = "30m", value_parser = parse_duration)]
    period: Duration,
    /// Sessions that ended within this time before teach; twice the period, so that records which come late count
    #[arg(long, value_parser = parse_duration)]
    window: Option<Duration>,
}

#[derive(Debug, Args)]
struct Decide {
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    when: When,
    /// Choose exactly rather than by histograms
    #[arg(long)]
    exact: bool,
    /// Choose from histograms of several points of presence: DIR/<end>/<pop>.parquet
    #[arg(long, value_name = "DIR", conflicts_with = "exact")]
    histograms: Option<PathBuf>,
    /// Take the rows that another engine chose
    #[arg(long, value_name = "FILE", conflicts_with_all = ["exact", "histograms"])]
    rows: Option<PathBuf>,
    /// A country of fewer sessions that teach is left as it is; a group of so many is half itself, half the wider one
    #[arg(long, default_value_t = Rules::default().min_sessions, value_parser = clap::value_parser!(u64).range(1..))]
    least: u64,
    /// How long a decision holds
    #[arg(long, default_value = "2h", value_parser = parse_duration)]
    lifetime: Duration,
    /// Stay, and decide this often
    #[arg(long, value_parser = parse_duration)]
    every: Option<Duration>,
}

#[derive(Debug, Args)]
struct Histogram {
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    when: When,
    /// What this point of presence is called
    #[arg(long, value_parser = pop)]
    pop: String,
}

#[derive(Debug, Args)]
struct Sql {
    #[command(flatten)]
    which: Which,
    /// The exact query rather than the histogram's
    #[arg(long)]
    exact: bool,
    /// The query over histograms
    #[arg(long, conflicts_with = "exact")]
    merge: bool,
    /// The guard's query
    #[arg(long, conflicts_with_all = ["exact", "merge"])]
    outcomes: bool,
    /// The window's begin, in Unix seconds
    #[arg(long, value_name = "SECONDS")]
    begin: u64,
    /// The window's end, in Unix seconds
    #[arg(long, value_name = "SECONDS")]
    end: u64,
}

#[derive(Debug, Args)]
struct Copying {
    /// A folder, or the URL of a place in an object store: s3, gs, az, http, https, file
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// The same
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Keep this file as it is at the source: what is gone there is removed. Without any, all files are copied and none is removed
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Stay, and look this often
    #[arg(long, value_parser = parse_duration)]
    every: Option<Duration>,
}

impl Cli {
    /// Does what the command says.
    pub fn run(self) -> Result<(), Error> {
        match self.command {
            Command::Decide(decide) => decide.run(),
            Command::Measure(measure) => measure.run(&measure.geo()?),
            Command::Histogram(histogram) => histogram.run(),
            Command::Sql(sql) => print(&sql.text()),
            Command::Sync(copying) => copying.run(),
        }
    }
}

/// Prints a result. A closed stdout ends the process silently, as it ends `mendcast`.
fn print(text: &str) -> Result<(), Error> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => exit(CLOSED_STDOUT),
        Err(e) => Err(Error::new(format!("stdout: {e}"))),
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
        let measuring = Measuring { records: &self.records, store: &store, geo, now, keep };
        eprintln!("mendcast-autoplex: {}", measuring.run()?);
        Ok(())
    }

    /// Measures, and then does `then` with a decision to make.
    fn and<T>(
        &self,
        (which, when, rows): (&Which, &When, Rows),
        then: impl FnOnce(Deciding<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let window = when.window.unwrap_or(2 * when.period);
        if when.period.as_secs() == 0 || window < when.period || self.keep < window + when.period {
            return Err(Error::new(
                "it should be --period <= --window, and both together <= --keep",
            ));
        }
        let (geo, now) = (self.geo()?, self.now());
        self.run(&geo)?;
        let (store, engine) = (Store::new(&self.out), Engine::new(0)?);
        then(Deciding {
            store: &store,
            geo: &geo,
            engine: &engine,
            plan: which.plan(),
            rows,
            rules: Rules::default(),
            period: when.period,
            window,
            lifetime: Duration::ZERO,
            now,
        })
    }
}

impl Which {
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

/// Does it once; or again and again at multiples of `every`, whatever becomes of one of them.
fn repeated(
    every: Option<Duration>,
    what_stays: &str,
    mut once: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(every) = every else { return once() };
    loop {
        if let Err(e) = once() {
            eprintln!("mendcast-autoplex: {e}; {what_stays}");
        }
        let every = every.as_secs().max(1);
        std::thread::sleep(Duration::from_secs(every - unix_now() % every));
    }
}

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Copying {
    fn run(&self) -> Result<(), Error> {
        let mut sync = Sync::new(Place::open(&self.from)?, Place::open(&self.to)?, &self.only)?;
        repeated(self.every, "what was copied stays", || {
            let summary = sync.run()?;
            if self.every.is_none() || summary.copied + summary.removed > 0 {
                eprintln!("mendcast-autoplex: {summary}");
            }
            Ok(())
        })
    }
}

impl Decide {
    fn run(&self) -> Result<(), Error> {
        repeated(self.every, "the last decision stays in force", || self.once())
    }

    fn once(&self) -> Result<(), Error> {
        let rows = match (&self.histograms, &self.rows) {
            (Some(folder), _) => Rows::Histograms(folder.clone()),
            (_, Some(file)) => Rows::File(file.clone()),
            _ if self.exact => Rows::Exact,
            _ => Rows::Sessions,
        };
        self.measure.and((&self.which, &self.when, rows), |deciding| {
            let rules = Rules {
                min_sessions: self.least,
                parent_weight: self.least as f64,
                ..Rules::default()
            };
            let deciding = Deciding { rules, lifetime: self.lifetime, ..deciding };
            match deciding.run()? {
                Some(summary) => eprintln!("mendcast-autoplex: {summary}"),
                None => eprintln!("mendcast-autoplex: decided until {} already", deciding.end()),
            }
            Ok(())
        })
    }
}

impl Histogram {
    fn run(&self) -> Result<(), Error> {
        let decision = (&self.which, &self.when, Rows::Sessions);
        let rows = self.measure.and(decision, |deciding| deciding.write_histograms(&self.pop))?;
        eprintln!("mendcast-autoplex: a histogram of {rows} bins");
        Ok(())
    }
}

impl Sql {
    fn text(&self) -> String {
        let (plan, window) = (self.which.plan(), self.begin..self.end);
        match self {
            Self { exact: true, .. } => plan.band(&window),
            Self { merge: true, .. } => plan.merge(),
            Self { outcomes: true, .. } => query::outcomes(&window),
            _ => plan.histogram(&window),
        }
    }
}

fn policy(name: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(|policy| policy.name).join(", ");
    let found = Policy::ALL.into_iter().find(|policy| policy.name == name);
    found.ok_or_else(|| format!("there are {}", names()))
}

fn band(text: &str) -> Result<Range<i64>, String> {
    let ends =
        text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    let is_band = |band: &Range<i64>| 0 <= band.start && band.start < band.end && band.end <= 100;
    ends.filter(is_band).ok_or_else(|| "two percentiles, such as 5..20".into())
}

fn pop(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let is_name = !name.is_empty() && name.chars().all(is_plain);
    is_name.then(|| name.to_owned()).ok_or_else(|| "letters, digits, - and _".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_what_they_say() {
        assert_eq!(band("5..20"), Ok(5..20));
        for bad in ["5", "20..5", "-1..5", "0..101", "a..b"] {
            assert!(band(bad).is_err(), "{bad}");
        }
        assert!(pop("fra-1").is_ok() && pop("../x").is_err() && pop("").is_err());
        assert!(policy("open-rate").is_ok() && policy("open_rate").is_err());
    }
}
