//! `mendcast lab`: experiments in virtual time.

mod ab;
mod autoplex;
mod visits;

use std::path::{Path, PathBuf};

use ::lab::experiments::{self, Options};
use ::lab::training::{self, Options as Training};
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the experiments.
    List,
    /// Run experiments; exits non-zero if a claim does not hold.
    Run {
        /// Names of experiments, with `*` for any text, or `all`.
        #[arg(required_unless_present = "config")]
        names: Vec<String>,
        /// Simulate this server's configuration instead of the experiment's schemes, beside its
        /// baseline; in live-default if no experiment is named.
        #[arg(long, value_name = "FILE", conflicts_with = "spec")]
        config: Option<PathBuf>,
        /// Runs per point; by default as the experiment has it for a quick look.
        #[arg(long)]
        runs: Option<u64>,
        /// Threads; 0 for one per core.
        #[arg(long, default_value_t = 0)]
        jobs: usize,
        /// The first run's seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where results go, a directory per experiment.
        #[arg(long, default_value = "out", value_name = "DIR")]
        out: PathBuf,
        /// A specification (see experiments/) in place of the built-in one.
        #[arg(long, value_name = "FILE")]
        spec: Option<PathBuf>,
        /// A key of all runs, as specifications have it: `trace=FILE`, `source.duration=10s`.
        #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
        set: Vec<(String, String)>,
    },
    /// Print a scheme of an experiment as a server's configuration.
    Deploy {
        /// Name of the experiment.
        experiment: String,
        /// Label of the scheme.
        scheme: String,
    },
    Ab(ab::Ab),
    Viewers(ab::Viewers),
    Visits(visits::Visits),
    #[command(name = "autoplex")]
    AutoPlex(autoplex::AutoPlex),
    /// Train the network of art-dqn: weights, a learning curve, and a comparison with ART.
    Train(Train),
    /// Write the report again from the results in a directory.
    Report {
        /// The experiment's directory.
        dir: PathBuf,
    },
    /// Print results as one page of Markdown: docs/results.md.
    Results {
        /// Directories of experiments, or their parent.
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Train {
    /// File that the weights go into.
    #[arg(long, default_value = "art-dqn.mdqn", value_name = "FILE")]
    weights: PathBuf,
    /// Where curve and comparison go.
    #[arg(long, default_value = "out/training", value_name = "DIR")]
    out: PathBuf,
    /// Of paths, first weights and draws.
    #[arg(long, default_value_t = Training::default().seed)]
    seed: u64,
    /// γ: cost of a lost round relative to the gain of an arrived one.
    #[arg(long, default_value_t = Training::default().gamma)]
    gamma: f64,
    /// The penalty grows with rounds and copies, as in ART's code, and does not shrink, as in its
    /// paper.
    #[arg(long)]
    product: bool,
    /// R counts the retransmission too.
    #[arg(long)]
    copies: bool,
    /// Downloads that are recorded while chance decides.
    #[arg(long, default_value_t = Training::default().record)]
    record: u64,
    /// Steps of learning from the records.
    #[arg(long, default_value_t = Training::default().steps)]
    steps: u64,
    /// Downloads of learning while the network decides.
    #[arg(long, default_value_t = Training::default().online)]
    online: u64,
    /// Downloads of the comparison.
    #[arg(long, default_value_t = Training::default().compare)]
    compare: u64,
}

impl Train {
    fn run(self) -> Result<(), String> {
        let Self { weights, out, seed, gamma, product, copies, record, steps, online, compare } =
            self;
        let options = Training { seed, gamma, product, copies, record, steps, online, compare };
        training::run(&options, &weights, &out, &mut |line| say!("{line}"))
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), String> {
        match self.command {
            Command::List => {
                for (name, title) in experiments::list() {
                    say!("{name:20} {title}");
                }
                Ok(())
            }
            Command::Deploy { experiment, scheme } => {
                crate::say::text(experiments::deployment(&experiment, &scheme)?);
                Ok(())
            }
            Command::Ab(ab) => ab.run(),
            Command::Viewers(viewers) => viewers.run(),
            Command::Visits(visits) => visits.run(),
            Command::AutoPlex(autoplex) => autoplex.run(),
            Command::Train(train) => train.run(),
            Command::Report { dir } => experiments::report(&dir),
            Command::Results { dirs } => {
                let dirs: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
                crate::say::text(experiments::results(&dirs)?);
                Ok(())
            }
            Command::Run { mut names, config, runs, jobs, seed, out, spec, set } => {
                if names.is_empty() {
                    names.push(experiments::DEPLOYMENT_EXPERIMENT.to_owned());
                }
                let spec = spec
                    .map(|path| {
                        std::fs::read_to_string(&path)
                            .map_err(|e| format!("{}: {e}", path.display()))
                    })
                    .transpose()?;
                let jobs = match jobs {
                    0 => std::thread::available_parallelism().map_or(1, usize::from),
                    jobs => jobs,
                };
                let known = experiments::list();
                let mut failed = Vec::new();
                for wanted in &names {
                    let matching: Vec<&str> = known
                        .iter()
                        .map(|(name, _)| *name)
                        .filter(|name| wanted == "all" || matches(wanted, name))
                        .collect();
                    if matching.is_empty() {
                        return Err(format!("no experiment `{wanted}`; see `mendcast lab list`"));
                    }
                    for name in matching {
                        let folder = out.join(name);
                        let deployed = config.as_deref();
                        let deployed =
                            deployed.map(|path| experiments::with_deployment(name, path));
                        let deployed = deployed.transpose()?;
                        let spec = deployed.as_deref().or(spec.as_deref());
                        let options = Options { spec, set: &set, runs, jobs, seed };
                        if !experiments::run(name, &options, &folder)? {
                            failed.push(name);
                        }
                        eprintln!("{name}: {}", folder.join("report.html").display());
                    }
                }
                if failed.is_empty() {
                    Ok(())
                } else {
                    Err(format!("claims that do not hold: {}", failed.join(", ")))
                }
            }
        }
    }
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Whether `name` is what `pattern`, with `*` for any text, describes.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|&at| rest.is_char_boundary(at))
                .any(|at| matches(tail, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("transport", "transport") && matches("autorec-*", "autorec-fig13"));
        assert!(matches("*fig*3", "autorec-fig13") && matches("*", "x"));
        assert!(!matches("autorec-*", "art-fig12") && !matches("tran", "transport"));
    }
}
