//! `mendcast edge`: the server, and the check of its configuration.

use std::path::{Path, PathBuf};

use ::edge::config::Config;
use clap::Args;

use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast edge --print-defaults > edge.toml
  mendcast edge --config edge.toml --check
  mendcast edge --config edge.toml

Signals: SIGHUP reloads the file, SIGTERM drains and ends, SIGUSR1 switches the log to debug and
back.";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE", required_unless_present = "print_defaults")]
    config: Option<PathBuf>,
    /// Check the file, all that it names, ports and paths; then exit.
    ///
    /// Changes nothing. Errors lead to exit code 1, warnings do not.
    #[arg(long, help_heading = "Instead of serving")]
    check: bool,
    /// Print a configuration with every key, its meaning and default; then exit.
    #[arg(long, help_heading = "Instead of serving", conflicts_with_all = ["config", "check"])]
    print_defaults: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        let Some(path) = self.config else {
            crate::output::print(Config::documented());
            return Ok(());
        };
        let config = Config::load(&path)?;
        if self.check {
            return check(&path, config);
        }
        ::edge::logging::start(config.log.level, config.log.format)?;
        Ok(::edge::run(&path, config)?)
    }
}

/// Prints the problems that a start with this configuration would meet. Changes nothing.
///
/// # Errors
/// One line: the number of problems that keep the server from starting or serving.
fn check(path: &Path, config: Config) -> Result<(), Error> {
    let checked = ::edge::check(path, config)?;
    let errors = checked.findings.iter().filter(|finding| finding.is_error).count();
    if errors == 0 {
        print_line!("{}: ok", path.display());
    }
    checked.findings.iter().for_each(|finding| print_line!("{finding}"));
    match errors {
        0 => {
            checked.advice.iter().for_each(|advice| print_line!("{advice}"));
            Ok(())
        }
        1 => Err(Error::new(format_args!("{}: 1 error", path.display()))),
        count => Err(Error::new(format_args!("{}: {count} errors", path.display()))),
    }
}
