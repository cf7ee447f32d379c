//! `mendcast records study`: statistics of networks and viewers.

use std::path::PathBuf;

use analysis::study;
use clap::Args;

use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast records study /var/lib/mendcast/records --html study.html
  mendcast records study /var/lib/mendcast/records --json | jq .records";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Study {
    /// Session records (.jsonl, .parquet), or directories of them.
    ///
    /// Two forms of one file count once.
    #[arg(required = true, value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Also write a page with tables and plots.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
}

impl Study {
    pub(super) fn run(self) -> Result<(), Error> {
        let study = study::read(&self.files)?;
        if let Some(path) = self.html {
            std::fs::write(&path, study.html()).map_err(Error::at(path.display()))?;
        }
        if self.json {
            print_line!("{}", study.json());
        } else {
            crate::output::print(study.text());
        }
        Ok(())
    }
}
