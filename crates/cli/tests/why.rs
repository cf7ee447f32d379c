//! `mendcast records why` as an operator sees it: sentences or JSON, and errors of one line.

#![cfg(any(feature = "edge", feature = "lab"))]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const ROW: &str = r#"{"session":7,"viewer":"0123456789abcdef","stream":"live/demo","protocol":"h3",
"format":"flv","scheme":"arq","prefix":"192.0.2.0/24","started_ms":1795859327000,"duration_s":60,
"goodput_mbps":1.1,"stream_mbps":2.0,"open_rate_mbps":1.2,"skips":5,"loss_rate":0.02,"rtt_ms":90,
"rtt_min_ms":40,"player_freezes":4,"player_freeze_s":6.5}"#;

fn why(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(["records", "why"]).args(arguments).current_dir(directory);
    command.output().expect("run")
}

fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).expect("text")
}

#[test]
fn a_session_is_explained_in_words_and_as_json() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let row = ROW.replace('\n', "");
    std::fs::write(directory.path().join("sessions-1.jsonl"), format!("{row}\n{{\"cut"))
        .expect("written");
    let output = why(directory.path(), &["01234567", "."]);
    let words = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    for part in [
        "viewer 0123456789abcdef, live/demo over flv/h3, scheme arq, 2026-11-28T09:48:47Z, 60.0 s",
        "The player froze 4 times, for 6.5 s.",
        "1. path slower than the stream (likely)",
        "a rendition of at most 0.96 Mbps",
        "Note: without a qlog",
    ] {
        assert!(words.contains(part), "{part} in\n{words}");
    }
    let output = why(directory.path(), &["7", "sessions-1.jsonl", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["causes"][0]["cause"], "capacity");
    assert_eq!(json["sources"]["unreadable"], 1);
}

#[test]
fn errors_are_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join("a.jsonl"), ROW.replace('\n', "")).expect("written");
    for (arguments, why_not) in [
        (&["0123456789abcdff", "."][..], "nearest: 0123456789abcdef (live/demo at 2026-11-28"),
        (&["7", "nowhere"], "nowhere"),
        (&["7", ".", "--qlog", "nowhere"], "nowhere"),
        (&["7", ".", "--connections", "/dev/zero"], "not a regular file"),
    ] {
        let output = why(directory.path(), arguments);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.starts_with("mendcast: ") && line.contains(why_not), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
