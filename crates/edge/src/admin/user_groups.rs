//! `/api/autoplex`: AutoPlex state of this edge, and the report of the last decision, stored beside
//! the table. The report is created elsewhere and passed through unchanged. An unreadable report is
//! reported and does not affect viewers.

use core::fmt;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use groups::Times;
use serde_json::{Value, json};

use crate::clock::unix_now;
use crate::state::State;

/// File name of the report, in the folder of the table.
const REPORT: &str = "report.json";
/// Maximum size in bytes: twice the largest expected report.
const MAX_REPORT: u64 = 4 << 20;

/// Returns the whole response. Reads a file, so must not run on an event loop.
pub(super) fn describe(state: &State) -> Value {
    let (config, all) = (&state.config.autoplex, &state.autoplex);
    let report = config.table.as_ref().map(|table| report(&table.with_file_name(REPORT)));
    let (report, fault) = match report {
        None => (None, None),
        Some(Ok(report)) => (Some(report), None),
        Some(Err(why)) => (None, Some(format!("{REPORT}: {why}"))),
    };
    let table = all.table().map(|table| {
        let Times { issued, lifetime } = table.times();
        json!({
            "decided": issued,
            "age_s": unix_now().saturating_sub(issued),
            "lifetime_s": lifetime.as_secs(),
            "groups": table.groups().len(),
        })
    });
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "time_ms": now.as_millis() as u64,
        "mode": config.mode.name(),
        "shares": {
            "explorers": config.explorers,
            "holdout": config.holdout,
            "control": config.control,
        },
        "limits": { "floor": config.floor, "ceiling": config.ceiling, "behind": config.behind },
        "table": table,
        "sessions": counts(all.sessions()),
        "absent": counts(all.absent()),
        "tables": counts(all.tables()),
        "report": report,
        "report_fault": fault,
    })
}

fn counts(named: impl IntoIterator<Item = (&'static str, u64)>) -> Value {
    json!(named.into_iter().collect::<BTreeMap<_, _>>())
}

/// Reason why there is no report. It lacks the path, which viewers of the dashboard need not know.
#[derive(Debug)]
enum ReportError {
    Io(io::Error),
    NotAFile,
    TooLarge,
    Json(serde_json::Error),
    NotAnObject,
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) if e.kind() == io::ErrorKind::NotFound => f.write_str(
                "no report beside the table: deploy the one that `decide` writes with the table",
            ),
            Self::Io(e) => e.fmt(f),
            Self::NotAFile => f.write_str("not a regular file"),
            Self::TooLarge => write!(f, "larger than {} MiB", MAX_REPORT >> 20),
            Self::Json(e) => write!(f, "damaged: {e}"),
            Self::NotAnObject => f.write_str("damaged: not a JSON object"),
        }
    }
}

impl From<io::Error> for ReportError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Returns the report as written.
fn report(path: &Path) -> Result<Value, ReportError> {
    // Opening a pipe could block.
    if !fs::metadata(path)?.is_file() {
        return Err(ReportError::NotAFile);
    }
    let mut text = Vec::new();
    File::open(path)?.take(MAX_REPORT + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_REPORT {
        return Err(ReportError::TooLarge);
    }
    match serde_json::from_slice(&text) {
        Ok(report @ Value::Object(_)) => Ok(report),
        Ok(_) => Err(ReportError::NotAnObject),
        Err(e) => Err(ReportError::Json(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_passed_through_or_its_fault_is_stated() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(REPORT);
        let fault = |text: &[u8]| {
            fs::write(&path, text).expect("written");
            report(&path).expect_err("no report").to_string()
        };
        let missing = report(&path).expect_err("missing").to_string();
        assert!(missing.starts_with("no report"), "{missing}");
        let folder = report(folder.path()).expect_err("a folder");
        assert!(matches!(folder, ReportError::NotAFile), "{folder}");
        for bad in ["", "{", "{\"end\":1}}", "\u{0}", "{\"end\":01}"] {
            let fault = fault(bad.as_bytes());
            assert!(fault.starts_with("damaged: ") && !fault.contains('\n'), "{fault}");
        }
        assert!(fault(b"{\"name\":\"\xff\"}").starts_with("damaged: "));
        assert_eq!(fault(b"[1]"), "damaged: not a JSON object");
        assert!(fault("[".repeat(100_000).as_bytes()).starts_with("damaged: "));
        let long = vec![b' '; MAX_REPORT as usize + 1];
        assert_eq!(fault(&long), "larger than 4 MiB");
        let whole = [&long[3..], b"{}"].concat();
        fs::write(&path, whole).expect("written");
        assert_eq!(report(&path).expect("a report"), json!({}));
        let good = json!({ "end": 1_800_000_000, "shown": [{ "name": "</script>\u{2028}" }] });
        fs::write(&path, good.to_string()).expect("written");
        assert_eq!(report(&path).expect("a report"), good);
    }
}
