//! `mendcast records study` as an operator sees it: a directory in, tables, JSON or a page out.

#![cfg(any(feature = "edge", feature = "lab"))]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

fn study(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(["records", "study"]).args(arguments).current_dir(directory);
    command.output().expect("run")
}

fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).expect("text")
}

#[test]
fn a_directory_of_records_becomes_tables_json_and_a_page() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut lines = String::new();
    for session in 0..40 {
        let (late, loss) = (session % 2, 0.01 * f64::from(session % 4));
        writeln!(
            lines,
            r#"{{"protocol":"h3","duration_s":60,"rtt_ms":80,"loss_rate":{loss},"units_late":{late},"units_finished":2}}"#
        )
        .expect("text grows");
    }
    lines += "{\"rtt_ms\":-1}\n{\"rtt_ms\":";
    std::fs::create_dir(directory.path().join("records")).expect("made");
    std::fs::write(directory.path().join("records/sessions-1.jsonl"), lines).expect("written");

    let output = study(directory.path(), &["records"]);
    let table = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{table}");
    for part in [
        "records: 41, files: 1\n",
        "excluded: 1 broken lines\n",
        "sessions-1.jsonl:41: rtt_ms = -1\n",
        "Recovery deterioration rate",
        "25 (40)     23",
        "missing in all 41 records: ",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }

    let output = study(directory.path(), &["records", "--json", "--html", "study.html"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&json["records"], &json["impossible"]["columns"]["rtt_ms"]),
        (&41.into(), &1.into())
    );
    let page = std::fs::read_to_string(directory.path().join("study.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg"), "{page}");
}

#[test]
fn errors_are_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (arguments, why) in [
        (&["nowhere"][..], "nowhere"),
        (&["."], "no record (files: 0, unreadable: 0, broken lines: 0)"),
    ] {
        let output = study(directory.path(), arguments);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.starts_with("mendcast: ") && line.contains(why), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
