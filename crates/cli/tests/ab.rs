//! `mendcast records ab` as an operator sees it: files in, a table, JSON or a page out.

#![cfg(feature = "edge")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

fn ab(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(["records", "ab"]).args(arguments).current_dir(directory);
    command.output().expect("run")
}

fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).expect("text")
}

/// 100 viewers of two sessions in each cohort; the treatment's first frames take 80 ms less.
fn records(directory: &Path) {
    let mut lines = String::new();
    for unit in 0..200 {
        let (cohort, shift) = if unit % 2 == 0 { ("control", 80) } else { ("treatment", 0) };
        for session in 0..2 {
            let (time, started) = (100 + unit / 2 + shift, unit * 1_000_000 + session);
            writeln!(
                lines,
                r#"{{"cohort":"{cohort}","unit":"{unit:016x}","protocol":"h3","scheme":"arq","duration_s":{},"started_ms":{started},"first_frame_ms":{time}}}"#,
                10 * session + 1
            )
            .expect("text grows");
        }
    }
    lines += "{\"cohort\":\"con";
    std::fs::create_dir(directory.join("records")).expect("made");
    std::fs::write(directory.join("records/sessions-1.jsonl"), lines).expect("written");
}

#[test]
fn a_directory_of_records_becomes_a_table_json_and_a_page() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    records(directory.path());
    let weights = ["--weights", "control=50,treatment=50"];
    let output = ab(directory.path(), &[&["records"][..], &weights].concat());
    let table = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{table}");
    for part in [
        "sessions: 400, viewers: 200, cohorts: 2, days: 2.3, files: 1\n",
        "excluded: 1 broken lines\n",
        "Sample ratio: as configured, p 1.0000.",
        "DIFFERS: mean of first_frame_ms, treatment: -80 ms (-34.9 %), Holm p < 0.0001",
        "No data: player_first_frame_ms, ",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }

    let more = ["records", "--json", "--html", "out.html", "--metric", "first_frame_ms,duration_s"];
    let output = ab(directory.path(), &[&more[..], &["--min-duration", "5s"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["read"]["too_short"], 200);
    assert_eq!((&json["seed"], &json["resamples"]), (&1.into(), &2_000.into()));
    let metric = &json["metrics"][0];
    assert_eq!((&metric["name"], &metric["unit"]), (&"first_frame_ms".into(), &"ms".into()));
    assert_eq!(metric["cohorts"][0]["cohort"], "control");
    assert_eq!(metric["cohorts"][0]["p50"], 229.5);
    let mean = &metric["comparisons"][0]["differences"][0];
    assert_eq!((&mean["statistic"], &mean["estimate"]), (&"mean".into(), &(-80.0).into()));
    assert_eq!(mean["differs"], true);
    let page = std::fs::read_to_string(directory.path().join("out.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.matches("<svg").count() == 2);

    let again = ab(directory.path(), &[&more[..], &["--min-duration", "5s"]].concat());
    assert_eq!(again.stdout, output.stdout, "the same seed, the same report");
    let other = ab(directory.path(), &["records", "--json", "--seed", "2"]);
    assert_ne!(other.stdout, output.stdout);
}

#[test]
fn an_empty_set_fails_in_one_line_and_wrong_arguments_as_everywhere() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = ab(directory.path(), &["."]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "mendcast: no session to compare (files: 0)\n");
    assert!(output.stdout.is_empty());
    for wrong in [
        &[][..],
        &[".", "--weights", "control"],
        &[".", "--min-duration", "5"],
        &[".", "--resamples", "1"],
        &[".", "--protocol", "quic"],
    ] {
        assert_eq!(ab(directory.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
}
