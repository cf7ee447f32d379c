//! `mendcast edge`: the server, a look at its configuration, a key file, a signed URL, or the
//! evaluation of an experiment.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use edge::Error;
use edge::config::{self, Config};
use edge::keyfile;
use edge::matches;
use edge::signing;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    /// The configuration file (TOML).
    #[arg(long, value_name = "FILE", required_unless_present = "print_defaults")]
    config: Option<PathBuf>,
    /// Check the file, all that it names, and this machine's ports and paths, then exit. Nothing is
    /// changed; errors are exit code 1, warnings are not.
    #[arg(long)]
    check: bool,
    /// Print a configuration file with every key, its meaning and its default, then exit.
    #[arg(long, conflicts_with_all = ["config", "check"])]
    print_defaults: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare cohorts from session records.
    Ab(Ab),
    /// Make a key file for `[server] key_file`, or add a key to one.
    ///
    /// Nodes with the same file take each other's TLS tickets, address tokens and passes. To
    /// rotate: add a key with --rotate and --after, copy the file to every node and reload them
    /// before it is due, and delete the line of the oldest key a month later.
    Keygen(Keygen),
    /// Print the signed query that permits playing a stream for a limited time.
    Sign(Sign),
}

#[derive(Debug, Args)]
struct Ab {
    /// Session records (.jsonl, .parquet), or directories of them; both forms of one file count
    /// once.
    #[arg(required = true, value_name = "FILES")]
    files: Vec<PathBuf>,
    /// What to compare, instead of the usual metrics: their names or any numeric column.
    #[arg(long = "metric", value_name = "NAME", value_delimiter = ',')]
    metrics: Vec<String>,
    /// The cohort that others are compared with [default: control, or the first by name].
    #[arg(long, value_name = "COHORT")]
    baseline: Option<String>,
    /// Where the bootstrap's random draws begin.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many draws of the bootstrap.
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u32).range(100..=100_000))]
    resamples: u32,
    /// Leave out shorter sessions.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    min_duration: Duration,
    /// Only sessions of this protocol.
    #[arg(long, value_name = "NAME", value_parser = ["h3", "h2", "h1", "rtmp"])]
    protocol: Option<String>,
    /// The configured weights, to check the sample ratio: control=50,treatment=50.
    #[arg(long, value_name = "COHORT=WEIGHT", value_delimiter = ',', value_parser = weight)]
    weights: Vec<(String, u32)>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Also write a page with tables and distributions.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Keygen {
    /// Path of the new file, created with mode 0600. Existing files are not overwritten [default:
    /// stdout].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Add a rotating key to this file instead; its other keys, owner and mode stay.
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    rotate: Option<PathBuf>,
    /// Use the added key only after this time, such as 1h, so that every node has it by then
    /// [default: at once].
    #[arg(long, value_name = "DURATION", requires = "rotate", conflicts_with = "out", value_parser = duration)]
    after: Option<Duration>,
}

impl Keygen {
    fn run(self) -> Result<(), Error> {
        let now = SystemTime::now();
        match (self.rotate, self.out) {
            (Some(path), _) => {
                let due = now.checked_add(self.after.unwrap_or_default());
                keyfile::rotate(&path, due.ok_or_else(|| Error::new("--after is too long"))?)
            }
            (None, Some(path)) => keyfile::create(&path, now),
            (None, None) => {
                crate::say::text(keyfile::generate(now)?);
                Ok(())
            }
        }
    }
}

#[derive(Debug, Args)]
struct Sign {
    /// Configuration file with the keys in its `[[play]]` rules.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The stream, such as live/demo.
    #[arg(value_name = "STREAM")]
    stream: String,
    /// How long the query holds.
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = duration)]
    lifetime: Duration,
}

impl Sign {
    fn run(self) -> Result<(), Error> {
        let (config, stream) = (Config::load(&self.config)?, &self.stream);
        let rule = config.play.iter().find(|rule| matches(&rule.stream, stream));
        let rule = rule.ok_or_else(|| {
            Error::new(format!("{}: no [[play]] rule names {stream}", self.config.display()))
        })?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let expires = now.map_or(0, |now| now.as_secs()).saturating_add(self.lifetime.as_secs());
        say!("{}", signing::sign(&rule.key, stream, expires));
        Ok(())
    }
}

impl Ab {
    fn run(self) -> Result<(), Error> {
        let report = analysis::compare(&analysis::Options {
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
            std::fs::write(&path, report.html())
                .map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
        }
        if self.json {
            say!("{}", report.json());
        } else {
            crate::say::text(report.text());
        }
        Ok(())
    }
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    config::duration(text).ok_or("expected a duration such as 5s or 200ms")
}

fn weight(text: &str) -> Result<(String, u32), &'static str> {
    text.rsplit_once('=')
        .and_then(|(name, weight)| Some((name.to_owned(), weight.parse().ok()?)))
        .filter(|(name, weight)| !name.is_empty() && *weight > 0)
        .ok_or("expected a cohort and its weight, such as control=50")
}

/// Prints the problems that a start with this configuration would meet. Changes nothing.
///
/// # Errors
/// One line: what keeps the server from starting, or from serving anybody.
fn check(path: &Path, config: Config) -> Result<(), Error> {
    let checked = edge::check(path, config)?;
    let errors = checked.findings.iter().filter(|finding| finding.is_error).count();
    if errors == 0 {
        say!("{}: ok", path.display());
    }
    checked.findings.iter().for_each(|finding| say!("{finding}"));
    match errors {
        0 => {
            checked.advice.iter().for_each(|line| say!("{line}"));
            Ok(())
        }
        1 => Err(Error::new(format!("{}: 1 error", path.display()))),
        count => Err(Error::new(format!("{}: {count} errors", path.display()))),
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self.command {
            Some(Command::Ab(ab)) => return ab.run(),
            Some(Command::Keygen(keygen)) => return keygen.run(),
            Some(Command::Sign(sign)) => return sign.run(),
            None => {}
        }
        let Some(path) = self.config else {
            crate::say::text(Config::documented());
            return Ok(());
        };
        let config = Config::load(&path)?;
        if self.check {
            return check(&path, config);
        }
        edge::logging::start(config.log.level)?;
        edge::run(&path, config)
    }
}
