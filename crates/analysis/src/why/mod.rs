//! Cause of a viewer's freezes, from the session's record, the qlog of its connection and the
//! connection log.
//!
//! Each source gives findings with evidence. Findings of one cause are merged and ranked: causes
//! seen in the qlog come first, by their share of the time without media; then causes that follow
//! from columns of the record, by how far a value exceeds its threshold. Thresholds are rules of
//! thumb.

mod connections;
mod event;
mod facts;
mod find;
mod finding;
mod gap;
mod neighbours;
mod progress;
mod qlog;
mod rules;
mod shown;
mod text;
mod trace;
mod verdict;

use std::path::PathBuf;

use records::Error;

pub use finding::{Cause, Certainty, Evidence, Finding, Source};
pub use neighbours::Neighbours;
pub use trace::Stall;
pub use verdict::{Explanation, Outcome, SessionSummary, Sources};

use find::Found;

/// Options of [`why`].
#[derive(Clone, Debug, Default)]
pub struct WhyOptions {
    /// Viewer ID or its first four or more digits, session number, or `FILE:ROW`.
    pub session: String,
    /// Session records (.jsonl, .parquet), or directories of them.
    pub records: Vec<PathBuf>,
    /// qlog of the connection, or a directory of qlogs.
    pub qlog: Option<PathBuf>,
    /// Connection log (`[log] connections`).
    pub connections: Option<PathBuf>,
}

/// Explains the freezes of a session.
///
/// # Errors
/// One line: a path does not exist or cannot be read, no record has this session (with the nearest
/// ones), or records of several viewers have it.
pub fn why(options: &WhyOptions) -> Result<Explanation, Error> {
    let Found { facts, others, records } = find::session(&options.session, &options.records)?;
    let neighbours = neighbours::of(&facts, &options.records)?;
    let mut notes = Vec::new();
    let qlog =
        options.qlog.as_deref().map(|path| qlog::of(path, &facts, &mut notes)).transpose()?;
    let line = options
        .connections
        .as_deref()
        .map(|path| connections::of(path, &facts, &mut notes))
        .transpose()?
        .flatten();
    let evidence = verdict::Input { facts, others, records, neighbours, qlog, line, notes };
    Ok(verdict::explain(evidence))
}

#[cfg(test)]
mod tests;
