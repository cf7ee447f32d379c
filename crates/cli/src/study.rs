//! `mendcast study`: statistics of networks and viewers from session records.

use std::path::PathBuf;

use analysis::study;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Session records (.jsonl, .parquet), or directories of them; both forms of one file count
    /// once.
    #[arg(required = true, value_name = "DIR")]
    files: Vec<PathBuf>,
    /// Also write a page with tables and plots.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), String> {
        let study = study::read(&self.files).map_err(|e| e.to_string())?;
        if let Some(path) = self.out {
            std::fs::write(&path, study.html()).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        if self.json {
            say!("{}", study.json());
        } else {
            crate::say::text(study.text());
        }
        Ok(())
    }
}
