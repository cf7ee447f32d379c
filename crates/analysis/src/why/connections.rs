//! The line of the session's connection in the connection log (`[log] connections`).
//!
//! The log has no times. The smallest round-trip time, known to a microsecond, and the network
//! identify the line.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;

use records::{Column, Error, prefix};
use serde::Deserialize;

use super::facts::{Facts, plain};

/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 64 * 1024;

/// Line of a closed connection.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConnectionLine {
    event: String,
    remote: String,
    min_rtt_ms: Option<f64>,
    pub migrations: u64,
    pub pto_count: u64,
    pub closed_by: String,
    pub code: u64,
    pub reason: String,
}

/// Finds the line of the session's connection; the last one if several match. Adds a note if there
/// is none.
///
/// # Errors
/// The file cannot be read.
pub(super) fn of(
    path: &Path,
    facts: &Facts,
    notes: &mut Vec<String>,
) -> Result<Option<ConnectionLine>, Error> {
    let failed = |why: &dyn core::fmt::Display| Error::new(format!("{}: {why}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|e| failed(&e))?;
    if !metadata.is_file() {
        return Err(failed(&"not a regular file"));
    }
    let mut input = BufReader::new(File::open(path).map_err(|e| failed(&e))?);
    let (mut found, mut line) = (None, Vec::new());
    loop {
        line.clear();
        let read = (&mut input).take(MAX_LINE).read_until(b'\n', &mut line);
        if read.map_err(|e| failed(&e))? == 0 {
            break;
        }
        if let Ok(entry) = serde_json::from_slice::<ConnectionLine>(&line)
            && is_of(&entry, facts)
        {
            found = Some(entry);
        }
    }
    if let Some(entry) = &mut found {
        entry.reason = plain(&entry.reason);
        entry.closed_by = plain(&entry.closed_by);
    } else {
        notes.push(format!(
            "{}: no line has the record's network and round-trip time; the connection may be open",
            path.display()
        ));
    }
    Ok(found)
}

fn is_of(line: &ConnectionLine, facts: &Facts) -> bool {
    let network = line.remote.parse::<SocketAddr>().map(|remote| prefix(remote.ip()));
    let is_near = |(logged, recorded): (f64, f64)| (logged - recorded).abs() <= 0.002;
    line.event == "connection_closed"
        && network.is_ok_and(|network| network == facts.raw(Column::prefix))
        && line.min_rtt_ms.zip(facts[Column::rtt_min_ms]).is_some_and(is_near)
}
