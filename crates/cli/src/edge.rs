//! `mendcast edge`: the server, or a look at its configuration.

use std::io::{IsTerminal as _, stderr};
use std::path::PathBuf;

use clap::Args;
use edge::Error;
use edge::config::{Config, Level};
use edge::server::{self, State};
use tracing::level_filters::LevelFilter;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The configuration file (TOML).
    #[arg(long, value_name = "FILE", required_unless_present = "print_defaults")]
    config: Option<PathBuf>,
    /// Check the file and all that it names, then exit.
    #[arg(long)]
    check: bool,
    /// Print a configuration file with every key, its meaning and its default, then exit.
    #[arg(long, conflicts_with_all = ["config", "check"])]
    print_defaults: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        let Some(path) = self.config else {
            print!("{}", Config::documented());
            return Ok(());
        };
        let config = Config::load(&path)?;
        if self.check {
            State::new(config, None)?;
            println!("{}: ok", path.display());
            return Ok(());
        }
        tracing_subscriber::fmt()
            .with_max_level(match config.log.level {
                Level::Error => LevelFilter::ERROR,
                Level::Warn => LevelFilter::WARN,
                Level::Info => LevelFilter::INFO,
                Level::Debug => LevelFilter::DEBUG,
                Level::Trace => LevelFilter::TRACE,
            })
            .with_writer(stderr)
            .with_ansi(stderr().is_terminal())
            .with_target(false)
            .init();
        server::run(&path, config)
    }
}
