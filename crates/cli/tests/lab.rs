//! `mendcast lab population` as an operator sees it: viewers of a population in, records for the
//! tools of production, a report and a page out.

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
    let ab =
        ["lab", "population", "--population", "short.toml", "--sessions", "24", "--out", "out"];
    let cohorts = ["--cohort", "control=arq:1", "--cohort", "treatment=spare+copies=2:1"];
    let output = mendcast(directory.path(), &[&ab[..], &cohorts].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = mendcast(directory.path(), &["records", "ab", "out/records", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["read"]["records"], &report["read"]["broken_lines"]),
        (&24.into(), &0.into())
    );
    let cohorts = report["cohorts"].as_array().expect("cohorts");
    let names: Vec<&str> = cohorts.iter().filter_map(|cohort| cohort["name"].as_str()).collect();
    assert_eq!(names, ["control", "treatment"]);
    let output = mendcast(directory.path(), &["records", "study", "--json", "out/records"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let study: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(study["impossible"]["named"], serde_json::json!([]), "{study}");
    assert_eq!(study["records"], 24);
}

#[test]
fn paired_results_become_a_page_with_pictures_and_wrong_arguments_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    population(directory.path());
    let ab = ["lab", "population", "--population", "short.toml", "--sessions", "6", "--paired"];
    let schemes = ["--schemes", "arq,spare+copies=2,clairvoyant", "--out", "out"];
    let output = mendcast(directory.path(), &[&ab[..], &schemes].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = directory.path().join("out");
    for name in ["summary.json", "report.md", "pictures/viewers-cost.svg", "records/spare_copies_2"]
    {
        assert!(out.join(name).exists(), "{name}");
    }
    let page = std::fs::read_to_string(out.join("viewers.md")).expect("a page");
    assert!(page.starts_with("# What viewers gain"), "{page}");
    assert!(page.contains("(pictures/viewers-cost.svg)"), "{page}");
    // The same page from the stored results.
    std::fs::remove_file(out.join("viewers.md")).expect("removed");
    let output = mendcast(directory.path(), &["lab", "report", "out"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(out.join("viewers.md")).expect("a page"), page);
    for (arguments, part) in [
        (&["--schemes", "fec"][..], "unknown scheme `fec`"),
        (&["--cohort", "a=arq"], "NAME=SCHEME:WEIGHT"),
        (&["--population", "nowhere.toml"], "nowhere.toml"),
        (&["--population", "."], "at least 50"),
        (&["--sessions", "0"], "`--sessions` is 0"),
    ] {
        let output = mendcast(
            directory.path(),
            &[&["lab", "population", "--out", "other"], arguments].concat(),
        );
        let line = text(&output.stderr);
        assert!(!output.status.success() && line.contains(part), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
