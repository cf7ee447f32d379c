//! Reader of a connection's qlog (draft-ietf-quic-qlog-main-schema-02 as JSON text sequences), and
//! the search for the file of a session.
//!
//! A record does not name its connection. The files' names have the start times of connections, and
//! the smallest round-trip time, known to a microsecond, identifies the connection.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::event::Line;
use super::facts::Facts;
use super::trace::Trace;
use records::{Column, Error};

/// Maximum length of an event, in bytes.
const MAX_LINE: u64 = 256 * 1024;
/// Maximum number of files of a directory that are tried, newest first.
const MAX_TRIED: usize = 32;
/// The name of a file has the time before its handshake, and the clock of the record may be read
/// slightly earlier.
const SLACK_MS: f64 = 50.0;

/// Finds and reads the qlog of the session. `path` is a file or a directory.
///
/// Returns `None` with a note if no file of a directory belongs to it.
///
/// # Errors
/// The path does not exist or cannot be read.
pub(super) fn of(
    path: &Path,
    facts: &Facts,
    notes: &mut Vec<String>,
) -> Result<Option<(PathBuf, Trace)>, Error> {
    let failed = |path: &Path, e: io::Error| Error::new(format!("{}: {e}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|e| failed(path, e))?;
    if !metadata.is_dir() {
        if !metadata.is_file() {
            return Err(failed(path, io::Error::other("not a regular file")));
        }
        let trace = read(path, facts).map_err(|e| failed(path, e))?;
        if !is_of(&trace, facts) {
            notes.push(format!(
                "{}: its round-trip time is not the record's: this may be another connection",
                path.display()
            ));
        }
        return Ok(Some((path.to_owned(), trace)));
    }
    let Some((started, _)) = facts.span_ms() else {
        notes.push("qlog: the record has no time, so its file cannot be found".to_owned());
        return Ok(None);
    };
    let mut files: Vec<(f64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| failed(path, e))? {
        let file = entry.map_err(|e| failed(path, e))?.path();
        if let Some(at) = began(&file).filter(|at| *at <= started + SLACK_MS) {
            files.push((at, file));
        }
    }
    files.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, file) in files.iter().take(MAX_TRIED) {
        let Ok(trace) = read(file, facts) else { continue };
        if is_of(&trace, facts) {
            return Ok(Some((file.clone(), trace)));
        }
    }
    notes.push(format!(
        "qlog: none of {} files in {} that began before the session is its connection's; it was \
         not sampled, or the file was removed",
        files.len().min(MAX_TRIED),
        path.display()
    ));
    Ok(None)
}

/// Start of the connection from the file's name, `MILLISECONDS-CONNECTION.sqlog`.
fn began(file: &Path) -> Option<f64> {
    let name = file.file_name()?.to_str()?;
    let (ms, _) = name.strip_suffix(".sqlog")?.split_once('-')?;
    ms.parse::<u64>().ok().map(|ms| ms as f64)
}

/// Returns whether the trace has the record's smallest round-trip time. False if one is unknown.
fn is_of(trace: &Trace, facts: &Facts) -> bool {
    match (trace.min_rtt_ms(), facts[Column::rtt_min_ms]) {
        // qlog rounds to microseconds.
        (Some(traced), Some(recorded)) => (traced - recorded).abs() <= 0.002,
        _ => false,
    }
}

/// Reads a file.
fn read(path: &Path, facts: &Facts) -> io::Result<Trace> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    parse(BufReader::new(File::open(path)?), facts)
}

/// Reads events up to the end of the session. Damaged events are counted and skipped.
pub(super) fn parse(mut input: impl BufRead, facts: &Facts) -> io::Result<Trace> {
    let mut trace = Trace::new(facts);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        let text = line.trim_ascii().strip_prefix(b"\x1e").unwrap_or(line.trim_ascii());
        if text.is_empty() {
            continue;
        }
        match serde_json::from_slice::<Line>(text) {
            Ok(Line { trace: Some(header), .. }) => trace.on_header(header.reference_time()),
            Ok(event) => {
                if !trace.on_event(&event) {
                    break;
                }
            }
            Err(_) => trace.broken += 1,
        }
    }
    trace.finish();
    Ok(trace)
}
