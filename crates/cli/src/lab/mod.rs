//! `mendcast lab`: experiments in virtual time.

mod deploy;
mod execution;
mod groups;
mod population;
mod report;
mod rtc;
mod run;
mod train;
mod visits;

use clap::{Args, Subcommand};

use crate::error::Error;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the experiments.
    List,
    /// Run experiments; exit code 1 if a claim does not hold.
    Run(run::Run),
    /// Print a scheme of an experiment as a server's configuration.
    Deploy(deploy::Deploy),
    /// Run the sessions of a population of viewers under recovery schemes.
    Population(population::Population),
    /// Run the visits of returning viewers under every startup mode.
    Visits(visits::Visits),
    /// Run days of viewers in user groups, and compare caps.
    Groups(groups::Groups),
    /// Run calls, conferences and files under schemes that change the client.
    Rtc(rtc::Rtc),
    /// Train the network of the scheme art-dqn.
    Train(train::Train),
    /// Rewrite reports from stored results, and print their summary.
    Report(report::Report),
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self.command {
            Command::List => {
                for (name, title) in ::lab::experiments::list() {
                    print_line!("{name:20} {title}");
                }
                Ok(())
            }
            Command::Run(run) => run.run(),
            Command::Deploy(deploy) => deploy.run(),
            Command::Population(population) => population.run(),
            Command::Visits(visits) => visits.run(),
            Command::Groups(groups) => groups.run(),
            Command::Rtc(rtc) => rtc.run(),
            Command::Train(train) => train.run(),
            Command::Report(report) => report.run(),
        }
    }
}
