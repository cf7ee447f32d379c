//! `mendcast records why`: cause of a viewer's freezes.

use std::path::PathBuf;

use clap::Args;

use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast records why 0123456789abcdef /var/lib/mendcast/records
  mendcast records why 0123456789abcdef records --qlog /var/log/mendcast/qlog
  mendcast records why sessions-20251128T090000Z:17 records --json | jq '.causes[0]'";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Why {
    /// Viewer ID or its first digits, session number, or FILE:ROW.
    ///
    /// If a viewer has several sessions, the one with the most frozen time is explained.
    #[arg(value_name = "SESSION")]
    session: String,
    /// Session records (.jsonl, .parquet), or directories of them.
    ///
    /// Two forms of one file count once. Other sessions at the same time are compared.
    #[arg(required = true, value_name = "PATH")]
    files: Vec<PathBuf>,
    /// qlog of the connection, or the directory of qlogs ([quic] qlog_dir).
    ///
    /// Shows the times of losses, outages, queues and stalls.
    #[arg(long, value_name = "PATH")]
    qlog: Option<PathBuf>,
    /// Connection log (`[log] connections`).
    #[arg(long, value_name = "FILE")]
    connections: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

impl Why {
    pub(super) fn run(self) -> Result<(), Error> {
        let explanation = analysis::why::why(&analysis::why::WhyOptions {
            session: self.session,
            records: self.files,
            qlog: self.qlog,
            connections: self.connections,
        })?;
        if self.json {
            print_line!("{}", explanation.json());
        } else {
            crate::output::print(explanation.text());
        }
        Ok(())
    }
}
