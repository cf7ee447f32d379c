//! Output of every command: a closed stdout ends a command silently, and help fits a screen.

#![cfg(all(feature = "edge", feature = "tools", feature = "lab"))]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Exit code after the reader of stdout is gone: 128 + SIGPIPE.
const CLOSED: Option<i32> = Some(141);

const POPULATION: &str = include_str!("../../../experiments/populations/fleet.toml");

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    command
}

/// Runs the command after the reader of its stdout is gone.
fn closed(directory: &Path, arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command(directory, arguments).stdout(writer).output().expect("run")
}

fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).expect("text")
}

/// Records, a key file, a configuration, results of an experiment, and a population.
fn scratch(directory: &Path) {
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).expect(name);
    std::fs::create_dir(directory.join("records")).expect("made");
    let row = r#"{"cohort":"a","unit":"1","protocol":"h3","duration_s":9.0,"started_ms":1}"#;
    write("records/sessions-20251121T000000Z.jsonl", &format!("{row}\n{row}\n"));
    let play = "[[play]]\nstream = \"live/*\"\nkey = \"one of sixteen or more\"\n";
    write("edge.toml", &format!("[server]\nlisten = \"127.0.0.1:0\"\n{play}"));
    let stay = POPULATION.lines().find(|line| line.starts_with("stay = ")).expect("a key");
    write("short.toml", &POPULATION.replace(stay, "stay = \"6s\""));
    // Claims may fail with a single run.
    command(directory, &["lab", "run", "wira-fig2", "--runs", "1"]).output().expect("run");
    assert!(directory.join("out/wira-fig2/report.html").exists());
}

#[test]
fn every_command_that_prints_ends_silently_when_stdout_is_closed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    scratch(directory.path());
    for arguments in [
        &["edge", "--print-defaults"][..],
        &["edge", "--config", "edge.toml", "--check"],
        &["demo", "--seconds", "1"],
        &["demo", "--seconds", "1", "--json"],
        &["records", "study", "records"],
        &["records", "study", "records", "--json"],
        &["records", "ab", "records"],
        &["records", "ab", "records", "--json"],
        &["records", "export", "records"],
        &["records", "export", "records", "--format", "jsonl"],
        &["keys", "new"],
        &["keys", "sign", "--config", "edge.toml", "live/a"],
        &["lab", "list"],
        &["completions", "bash"],
        &["man"],
        &["reference"],
        &["--version"],
    ] {
        let output = closed(directory.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said), (CLOSED, ""), "{arguments:?}");
    }
    // The progress and the claims are on stderr.
    for arguments in [
        &["lab", "report", "out"][..],
        &["lab", "train", "--record", "1", "--steps", "1", "--online", "1", "--compare", "1"],
    ] {
        let output = closed(directory.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), CLOSED, "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_command_that_prints_no_results_succeeds_with_a_closed_stdout() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    scratch(directory.path());
    let few = ["--population", "short.toml", "--sessions", "2"];
    for arguments in [
        &["keys", "new", "--out", "secrets"][..],
        &["keys", "rotate", "secrets"],
        &[&["lab", "population", "--out", "other"][..], &few].concat(),
        &["lab", "visits", "--visits", "2"],
    ] {
        let output = closed(directory.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_closed_stderr_ends_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    scratch(directory.path());
    for arguments in [
        &["lab", "report", "out"][..],
        &["lab", "visits", "--visits", "2"],
        &["records", "export", "records"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command(directory.path(), arguments).stderr(writer).output().expect("run");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

/// The names of all commands, from the generated page.
fn commands(directory: &Path) -> Vec<Vec<String>> {
    let output = command(directory, &["reference"]).output().expect("run");
    let page = text(&output.stdout).to_owned();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| [mendcast "));
    let names = rows.filter_map(|row| Some(row.split_once(']')?.0.to_owned()));
    names.map(|name| name.split(' ').map(str::to_owned).collect()).collect()
}

#[test]
fn help_fits_a_screen_and_survives_a_closed_stdout() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = command(directory.path(), &["help"]).output().expect("run");
    let help = text(&root.stdout);
    assert!(root.status.success() && help.lines().count() <= 24, "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    let all = commands(directory.path());
    assert!(all.len() >= 14, "{all:?}");
    for name in all {
        let with =
            |flag: &'static str| name.iter().map(String::as_str).chain([flag]).collect::<Vec<_>>();
        let short = command(directory.path(), &with("-h")).output().expect("run");
        let wide = text(&short.stdout).lines().find(|line| line.chars().count() > 110);
        assert_eq!(wide, None, "{name:?}");
        let long = command(directory.path(), &with("--help")).output().expect("run");
        let help = text(&long.stdout);
        assert!(help.contains("\nExample"), "{name:?}: {help}");
        let wide = help.lines().find(|line| line.chars().count() > 110);
        assert_eq!(wide, None, "{name:?}");
        let output = closed(directory.path(), &with("--help"));
        assert_eq!((output.status.code(), text(&output.stderr)), (CLOSED, ""), "{name:?}");
    }
}

#[test]
fn manual_pages_and_completions_have_every_command() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = command(directory.path(), &["man", "--out", "."]).output().expect("run");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect(name);
    assert!(read("mendcast.1").contains("edge(1)"));
    let scripts = ["bash", "zsh", "fish"].map(|shell| {
        let output = command(directory.path(), &["completions", shell]).output().expect("run");
        String::from_utf8(output.stdout).expect("text")
    });
    for name in commands(directory.path()) {
        let page = read(&format!("mendcast-{}.1", name.join("-")));
        assert!(page.contains(".SH SYNOPSIS"), "{name:?}: {page}");
        let last = name.last().expect("a word");
        assert!(scripts.iter().all(|script| script.contains(last.as_str())), "{name:?}");
    }
    assert!(!directory.path().join("mendcast-parse.1").exists());
    assert!(scripts.iter().all(|script| !script.contains("seal-speed")));
    let missing = command(directory.path(), &["man", "--out", "none"]).output().expect("run");
    let said = text(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1), "{said}");
    assert!(said.starts_with("mendcast: none/mendcast.1: "), "{said}");
}

#[test]
fn the_pages_of_the_reference_are_those_that_are_printed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for name in ["commands", "configuration"] {
        let output = command(directory.path(), &["reference", name]).output().expect("run");
        let path = format!("../../docs/reference/{name}.md");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let page = std::fs::read_to_string(path).expect("a page");
        assert!(
            page == text(&output.stdout),
            "docs/reference/{name}.md differs: run `make reference`, and commit the page"
        );
    }
}
