//! `mendcast lab deploy`: a scheme of an experiment as a server's configuration.

use ::lab::experiments;
use clap::Args;

use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast lab deploy live-default deadline > edge.toml
  mendcast edge --config edge.toml --check";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Deploy {
    /// Name of the experiment.
    #[arg(value_name = "EXPERIMENT")]
    experiment: String,
    /// Label of the scheme.
    #[arg(value_name = "SCHEME")]
    scheme: String,
}

impl Deploy {
    pub(super) fn run(self) -> Result<(), Error> {
        crate::output::print(experiments::deployment(&self.experiment, &self.scheme)?);
        Ok(())
    }
}
