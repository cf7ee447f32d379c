//! `mendcast records`: statistics, comparison, explanation and export of session records.

mod ab;
mod export;
mod study;
mod why;

use clap::{Args, Subcommand};

use crate::error::Error;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Summarise networks and viewers: loss, recovery, freezes, first frames.
    Study(study::Study),
    /// Compare cohorts, with confidence intervals.
    Ab(ab::Ab),
    /// Explain the freezes of one session: loss, outage, queue, publisher, server, player.
    Why(why::Why),
    /// Print records as CSV or JSON lines.
    Export(export::Export),
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self.command {
            Command::Study(study) => study.run(),
            Command::Ab(ab) => ab.run(),
            Command::Why(why) => why.run(),
            Command::Export(export) => export.run(),
        }
    }
}
