//! `mendcast lab rtc` as a reader of the papers sees it: tables out, and one line for a wrong
//! specification or trace.

#![cfg(feature = "lab")]

use std::path::Path;
use std::process::{Command, Output};

const SPEC: &str = r#"
name = "small"
title = "A small conference"
about = "Two schemes."
runs = 2
platform = "call"

[setup]
duration = "2s"

[[conditions]]
label = "5 %"
set = { loss = "5%" }

[[schemes]]
label = "RTX"
set = { scheme = "arq" }

[[schemes]]
label = "Hairpin"
changes = "client"
set = { scheme = "hairpin" }

[[claims]]
text = "RTX sends no repair packets."
scheme = "RTX"
metric = "redundancy"
is = { at-most = 0.0 }
"#;

fn mendcast(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(["lab", "rtc"]).args(arguments).current_dir(directory);
    command.output().expect("run")
}

fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).expect("text")
}

#[test]
fn a_specification_becomes_tables_and_a_page_whatever_the_number_of_threads() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("written");
    };
    write("small.toml", SPEC);
    let row = |n: u32| format!("{} 5.0 20.0ms 0.1\n", f64::from(n) * 0.015);
    write("rows.log", &(0..200).map(row).collect::<String>());
    let arguments = ["--spec", "small.toml", "--trace", "rows.log", "--page", "page.md", "--jobs"];
    let [one, two] =
        ["1", "2"].map(|jobs| mendcast(directory.path(), &[&arguments[..], &[jobs]].concat()));
    assert!(one.status.success(), "{}", text(&one.stderr));
    assert_eq!(text(&one.stdout), text(&two.stdout));
    for part in ["| RTX |", "trace rows.log", "RTX sends no repair packets. | 5 % | holds |"] {
        assert!(text(&one.stdout).contains(part), "{part} in {}", text(&one.stdout));
    }
    let page = std::fs::read_to_string(directory.path().join("page.md")).expect("a page");
    for part in ["(pictures/page.svg)", "| trace rows.log | RTX |", "--trace rows.log --seed 1`"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(directory.path().join("pictures/page.svg").exists());
    let failed = SPEC.replace("{ at-most = 0.0 }", "{ at-least = 1.0 }");
    write("failed.toml", &failed);
    let output = mendcast(directory.path(), &["--spec", "failed.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("claims that do not hold: RTX sends no repair"));
}

#[test]
fn wrong_input_is_one_line_with_key_and_value() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("written");
    };
    write(
        "tau.toml",
        &SPEC
            .replace("\"call\"", "\"conference\"")
            .replace("scheme = \"hairpin\"", "scheme = \"tambur\", tau = 0"),
    );
    write("hole.log", "0.0 5 20ms 0\n0.015 5 20ms 0\n0.03 5 20ms 0\n9.0 5 20ms 0\n");
    write("past.log", "-0.1 5 20ms 0\n0.015 5 20ms 0\n");
    write("empty.log", "");
    let file = |name: &str| std::fs::File::create(directory.path().join(name)).expect("created");
    file("huge.log").set_len(1 << 40).expect("a sparse file");
    std::fs::write(directory.path().join("binary.log"), [0xff, 0xfe, 0]).expect("written");
    write("small.toml", SPEC);
    for (arguments, part) in [
        (&["--spec", "tau.toml"][..], "tau = 0: expected 1 to 16 frames"),
        (&["--spec", "nowhere.toml"], "nowhere.toml"),
        (&["--spec", "small.toml", "--trace", "hole.log"], "trace hole.log = no row from 30ms"),
        (&["--spec", "small.toml", "--trace", "past.log"], "trace past.log"),
        (&["--spec", "small.toml", "--set", "fps=0"], "fps = 0: expected 1 to 240"),
        (&["--spec", "small.toml", "--set", "runs=9"], "unknown field `runs`"),
        (&["--spec", "small.toml", "--trace", "."], "Is a directory"),
        (&["--spec", ".", "--runs", "1"], "Is a directory"),
        (&["--spec", "small.toml", "--trace", "empty.log"], "trace empty.log = empty"),
        (&["--spec", "small.toml", "--trace", "huge.log"], "huge.log: above 32 MB"),
        (&["--spec", "small.toml", "--trace", "binary.log"], "binary.log: "),
        (&["block-fig22", "--trace", "hole.log"], "--trace: expected an experiment with calls"),
        (&["rtc-fig21"], "no experiment `rtc-fig21`; known: rtc-fig19"),
    ] {
        let output = mendcast(directory.path(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(error.contains(part) && error.lines().count() == 1, "{arguments:?}: {error}");
    }
}

/// The pages of the papers read the results of `lab rtc` next to others.
#[test]
fn results_in_a_directory_become_lines_of_the_papers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["block-fig22", "--runs", "2", "--set", "file=200", "--out", "out"];
    // Claims may fail with so few packets.
    let output = mendcast(directory.path(), &arguments);
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name));
    let tables = read("out/block-fig22/tables.md").unwrap_or_else(|why| {
        panic!("{why}: {}", text(&output.stderr));
    });
    assert!(tables.contains("| FEC 9 + 1 |") && tables.contains("Commit "), "{tables}");
    assert!(read("out/block-fig22/1-tradeoff.svg").is_ok_and(|plot| plot.contains("sender-only<")));
    let mut report = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    report.args(["lab", "report", "out", "--papers", "pages"]).current_dir(directory.path());
    let report = report.output().expect("run");
    assert!(report.status.success(), "{}", text(&report.stderr));
    let page = read("pages/papers/art.md").expect("a page");
    let row = page.lines().find(|line| line.starts_with("| cost of FEC, 100 packets | 11.1 % |"));
    assert!(row.is_some_and(|row| row.contains(" ± ") && row.contains("within")), "{row:?}");
    let papers = read("pages/papers.md").expect("a page");
    let row = papers.lines().find(|line| line.starts_with("| Figure 22 | Block FEC against ART"));
    assert!(row.is_some_and(|row| !row.contains("not measured")), "{row:?}");
    let row = papers.lines().find(|line| line.starts_with("| Figure 19a |"));
    assert!(row.is_some_and(|row| row.contains("no results given")), "{row:?}");
}
