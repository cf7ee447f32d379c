//! `mendcast lab run`: experiments with claims.

use std::path::PathBuf;

use ::lab::experiments::{self, RunOptions};
use clap::Args;

use super::execution::Execution;
use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast lab run transport --runs 5
  mendcast lab run 'deadline-*' --runs 40 --out out
  mendcast lab run transport --set path.bunches=320ms,awake=10ms --set source.duration=10s
  mendcast lab run --config /etc/mendcast/edge.toml
  mendcast lab run transport --spec my.toml";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Run {
    /// Names of experiments, with `*` for any text, or `all`.
    #[arg(required_unless_present = "config", value_name = "NAME")]
    names: Vec<String>,
    /// Server configuration to simulate, in place of the experiment's schemes.
    ///
    /// Runs beside the experiment's baseline; in live-default if no experiment is named.
    #[arg(long, value_name = "FILE", conflicts_with = "spec")]
    config: Option<PathBuf>,
    /// Runs per point [default: as the experiment states].
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// Specification in place of the built-in one (see experiments/).
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Key of all runs, such as source.duration=10s; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    execution: Execution,
    /// Directory of the results, with a directory per experiment.
    #[arg(long, default_value = "out", value_name = "DIR", help_heading = "Output")]
    out: PathBuf,
}

impl Run {
    pub(super) fn run(mut self) -> Result<(), Error> {
        if self.names.is_empty() {
            self.names.push(experiments::DEPLOYMENT_EXPERIMENT.to_owned());
        }
        let text = self
            .spec
            .as_ref()
            .map(|path| std::fs::read_to_string(path).map_err(Error::at(path.display())));
        let spec = text.transpose()?;
        let mut failed = Vec::new();
        for name in self.chosen()? {
            let folder = self.out.join(name);
            let deployed = self.config.as_deref();
            let deployed = deployed.map(|path| experiments::with_deployment(name, path));
            let deployed = deployed.transpose()?;
            let options = RunOptions {
                spec: deployed.as_deref().or(spec.as_deref()),
                set: &self.set,
                runs: self.runs,
                jobs: self.execution.jobs(),
                seed: self.execution.seed,
            };
            if !experiments::run(name, &options, &folder)? {
                failed.push(name);
            }
            log_line!("{name}: {}", folder.join("report.html").display());
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Error::new(format_args!("claims that do not hold: {}", failed.join(", "))))
    }

    /// The experiments with the given names.
    ///
    /// # Errors
    /// A name matches none.
    fn chosen(&self) -> Result<Vec<&'static str>, Error> {
        let known = experiments::list();
        let mut chosen = Vec::new();
        for wanted in &self.names {
            let names = known.iter().map(|(name, _)| *name);
            let before = chosen.len();
            chosen.extend(names.filter(|name| wanted == "all" || matches(wanted, name)));
            if chosen.len() == before {
                return Err(Error::new(format_args!(
                    "no experiment `{wanted}`; expected a name of `mendcast lab list`, or `all`"
                )));
            }
        }
        Ok(chosen)
    }
}

pub(super) fn key_and_value(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) =
        text.split_once('=').ok_or("expected KEY=VALUE, such as source.duration=10s")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Returns whether `pattern`, with `*` for any text, matches `name`.
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
    fn a_star_matches_any_text() {
        assert!(matches("transport", "transport") && matches("autorec-*", "autorec-fig13"));
        assert!(matches("*fig*3", "autorec-fig13") && matches("*", "x"));
        assert!(!matches("autorec-*", "art-fig12") && !matches("tran", "transport"));
    }
}
