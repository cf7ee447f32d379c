//! `mendcast lab ab` as an operator sees it: viewers of a population in, records that the tools of
//! production read, a report and a page out.

#![cfg(all(feature = "edge", feature = "lab"))]

use std::path::Path;
use std::process::{Command, Output};

const FLEET: &str = include_str!("../../../experiments/populations/fleet.toml");

fn mendcast(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(arguments).current_dir(directory);
    command.output().expect("run")
}

fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).expect("text")
}

/// The built-in population, with sessions of six seconds.
fn population(directory: &Path) {
    let stay = FLEET.lines().find(|line| line.starts_with("stay = ")).expect("a key");
    let short = FLEET.replace(stay, "stay = '6s'");
    std::fs::write(directory.join("short.toml"), short).expect("written");
}

#[test]
fn records_of_virtual_viewers_go_through_the_tools_of_production() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    population(directory.path());
    let ab = ["lab", "ab", "--population", "short.toml", "--sessions", "24", "--out", "out"];
    let cohorts = ["--cohort", "control=arq:1", "--cohort", "treatment=spare+copies=2:1"];
    let output = mendcast(directory.path(), &[&ab[..], &cohorts].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = mendcast(directory.path(), &["edge", "ab", "out/records", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["read"]["records"], &report["read"]["broken_lines"]),
        (&24.into(), &0.into())
    );
    let cohorts = report["cohorts"].as_array().expect("cohorts");
    let names: Vec<&str> = cohorts.iter().filter_map(|cohort| cohort["name"].as_str()).collect();
    assert_eq!(names, ["control", "treatment"]);
    let output = mendcast(directory.path(), &["study", "--json", "out/records"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let study: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(study["impossible"]["named"], serde_json::json!([]), "{study}");
    assert_eq!(study["records"], 24);
}

#[test]
fn paired_results_become_a_page_with_pictures_and_wrong_arguments_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    population(directory.path());
    let ab = ["lab", "ab", "--population", "short.toml", "--sessions", "6", "--paired"];
    let schemes = ["--schemes", "arq,spare+copies=2,clairvoyant", "--out", "out"];
    let output = mendcast(directory.path(), &[&ab[..], &schemes].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in ["summary.json", "report.md", "viewers-cost.svg", "records/spare_copies_2"] {
        assert!(directory.path().join("out").join(name).exists(), "{name}");
    }
    let output = mendcast(directory.path(), &["lab", "viewers", "out", "--pictures", "pictures"]);
    let page = text(&output.stdout);
    assert!(output.status.success() && page.starts_with("# What viewers gain"), "{page}");
    assert!(page.contains("(pictures/viewers-cost.svg)"), "{page}");
    assert!(directory.path().join("pictures/viewers-cost.svg").is_file());
    for (arguments, part) in [
        (&["--schemes", "fec"][..], "unknown scheme `fec`"),
        (&["--cohort", "a=arq"], "NAME=SCHEME:WEIGHT"),
        (&["--population", "nowhere.toml"], "nowhere.toml"),
        (&["--population", "."], "at least 50"),
        (&["--sessions", "0"], "`--sessions` is 0"),
    ] {
        let output =
            mendcast(directory.path(), &[&["lab", "ab", "--out", "other"], arguments].concat());
        let line = text(&output.stderr);
        assert!(!output.status.success() && line.contains(part), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn a_closed_pipe_ends_it_silently() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    let output = command.args(["lab", "list"]).stdout(writer).output().expect("run");
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(text(&output.stderr), "");
}
