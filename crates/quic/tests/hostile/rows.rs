//! Rows for the tables of docs/develop/conformance.md: sent packet, expected answer and actual
//! answer.
//! `make h3spec` requests them.

use std::fmt::Write as _;
use std::path::Path;

/// One case as it went.
pub struct Row {
    /// The case's name.
    pub name: &'static str,
    /// The client's packet.
    pub sent: String,
    /// The error that the RFC prescribes, and the section that does.
    pub expected: String,
    /// The server's answer.
    pub got: String,
    /// The answer was as expected.
    pub good: bool,
}

/// Bytes as they stand in a table.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes the rows where `MENDCAST_ROWS` says, if it says something, and fails if a case failed.
pub fn conclude(file: &str, rows: &[Row]) {
    if let Some(folder) = std::env::var_os("MENDCAST_ROWS") {
        let lines = rows
            .iter()
            .map(|row| format!("{}\t{}\t{}\t{}\n", row.name, row.sent, row.expected, row.got));
        let path = Path::new(&folder).join(file);
        std::fs::write(&path, lines.collect::<String>()).expect("a folder to write to");
    }
    let failed: Vec<String> = rows
        .iter()
        .filter(|row| !row.good)
        .map(|row| format!("{}: expected {}, got {}", row.name, row.expected, row.got))
        .collect();
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), rows.len(), failed.join("\n"));
}
