//! `mendcast lab deploy`: a scheme of an experiment as a server's configuration.

use ::lab::experiments;
use clap::Args;

/// Print a scheme of an experiment as a server's configuration
#[derive(Debug, Args)]
pub(super) struct Deploy {
    /// Name of the experiment
    experiment: String,
    /// Label of the scheme
    scheme: String,
}

impl Deploy {
    pub(super) fn run(self) -> Result<(), String> {
        crate::say::text(experiments::deployment(&self.experiment, &self.scheme)?);
        Ok(())
    }
}
