//! Commands and configurations in README.md, CONTRIBUTING.md and docs/: all are parsed by the
//! program itself, and the short ones run. Blocks with commands of other programs are marked.

#![cfg(all(feature = "edge", feature = "tools", feature = "lab"))]

#[path = "docs/pages.rs"]
mod pages;

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

use edge::config::{Config, Sections as _};

use pages::{Block, Call};

/// Commands that do not run here, by their first words, and why. All others must end with success.
const NOT_RUN: [(&str, &str); 15] = [
    ("edge --c", "serves until a signal, or checks files that only an installed server has"),
    ("demo", "plays in real time"),
    ("watch", "needs a server"),
    ("link", "relays until a signal"),
    ("records", "needs records; tests/ab.rs, study.rs, why.rs and output.rs run these"),
    ("autoplex", "needs records, and the program of autoplex/"),
    ("keys rotate", "needs a key file; tests/output.rs runs it"),
    ("keys sign", "needs a configuration; tests/output.rs runs it"),
    ("keys jwt", "needs a configuration; tests/live/tokens.rs runs it"),
    ("keys new --out", "writes to /etc; tests/output.rs runs it"),
    ("man --out", "writes to /usr; tests/output.rs runs it"),
    ("lab run", "simulates for minutes; tests/lab.rs runs these with few sessions"),
    ("lab population", "as lab run"),
    ("lab visits", "as lab run"),
    ("lab ", "as lab run"),
];

/// Documented commands that are run although a longer pattern above would match.
const RUN: [&str; 1] = ["lab list"];

fn mendcast(arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(arguments).current_dir(directory.path()).stdin(Stdio::null());
    command.output().expect("run")
}

/// Returns why the program does not accept this call.
fn rejection(call: &Call) -> Option<String> {
    let words: Vec<&str> = call.words.iter().map(String::as_str).collect();
    let output = mendcast(&[&["parse", "--"], &words[..]].concat());
    if output.status.success() {
        return None;
    }
    let error = String::from_utf8_lossy(&output.stderr);
    let error = error.strip_prefix("mendcast: ").unwrap_or(&error).to_owned();
    // Text names commands without all of their arguments.
    let is_partial = ["MissingRequiredArgument", "MissingSubcommand", "DisplayHelpOnMissing"]
        .iter()
        .any(|kind| error.starts_with(kind));
    let names_placeholder = call.placeholders().any(|word| error.contains(word));
    let is_fine = (call.is_inline && is_partial) || names_placeholder;
    (!is_fine).then_some(error)
}

#[test]
fn documented_commands_parse() {
    let calls = pages::calls();
    let placeholders = calls.iter().filter(|call| call.placeholders().next().is_some()).count();
    println!("{} commands, {placeholders} with placeholders", calls.len());
    assert!(calls.len() > 150, "only {} commands found", calls.len());
    let wrong: Vec<String> = calls
        .iter()
        .filter_map(|call| Some(format!("{call}: {}", rejection(call)?.replace('\n', " "))))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documented_experiments_exist() {
    let list = String::from_utf8(mendcast(&["lab", "list"]).stdout).expect("text");
    let known: BTreeSet<&str> =
        list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let exists = |name: &str| match name.strip_suffix('*') {
        Some(prefix) => known.iter().any(|known| known.starts_with(prefix)),
        None => known.contains(name),
    };
    let mut count = 0;
    for call in pages::calls() {
        let names = call.words.iter().skip(2).take_while(|word| !word.starts_with('-'));
        if !call.words.iter().take(2).eq(["lab", "run"]) {
            continue;
        }
        for name in names.filter(|name| !pages::is_placeholder(name)) {
            count += 1;
            assert!(exists(name), "{call}: unknown experiment {name}");
        }
    }
    assert!(count > 20, "only {count} experiments found");
}

#[test]
fn short_documented_commands_run() {
    let (mut run, mut unused) = (BTreeSet::new(), NOT_RUN.map(|(words, _)| words).to_vec());
    for call in pages::calls() {
        let line = call.words.join(" ");
        if call.placeholders().next().is_some() {
            continue;
        }
        let is_short = RUN.iter().any(|words| line.starts_with(words));
        match NOT_RUN.iter().find(|(words, _)| !is_short && line.starts_with(words)) {
            Some((words, _)) => unused.retain(|unused| unused != words),
            // A name such as `mendcast edge` in text.
            None if call.is_inline && rejection_is_partial(&call) => {}
            None => drop(run.insert((line, call.words.clone()))),
        }
    }
    assert!(unused.is_empty(), "no page has these commands: {unused:?}");
    for words in [&["--help"][..], &["lab", "run", "--help"], &["--version"]] {
        run.insert((words.join(" "), words.iter().map(|&word| word.to_owned()).collect()));
    }
    for (line, words) in &run {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = mendcast(&words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !output.stdout.is_empty(), "{line}: {error}");
    }
    let lines: Vec<_> = run.iter().map(|(line, _)| line.as_str()).collect();
    for expected in ["edge --print-defaults", "lab list", "reference", "keys new"] {
        assert!(lines.contains(&expected), "not run: {expected}; run: {lines:?}");
    }
}

fn rejection_is_partial(call: &Call) -> bool {
    let whole = Call { is_inline: false, ..call.clone() };
    rejection(&whole).is_some()
}

#[test]
fn documented_configurations_are_valid() {
    let blocks = pages::configurations();
    assert!(blocks.len() > 12, "only {} configurations found", blocks.len());
    for Block { place, text } in &blocks {
        if let Err(error) = Config::parse(place, text) {
            panic!("{error}\n{text}");
        }
    }
}

#[test]
fn configurations_without_files_pass_the_check() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("edge.toml");
    let mut count = 0;
    for Block { place, text } in pages::configurations() {
        // Paths, ports and names belong to the reader's machine.
        if ["\"/", "[server]", "listen", ".example"].iter().any(|word| text.contains(word)) {
            continue;
        }
        count += 1;
        let whole = format!("[server]\nlisten = \"127.0.0.1:0\"\n{text}");
        std::fs::write(&file, whole).expect("written");
        let output = mendcast(&["edge", "--config", file.to_str().expect("a path"), "--check"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let found = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{place}: {said}{found}");
    }
    assert!(count > 2, "only {count} configurations checked");
}

#[test]
fn keys_named_in_text_exist() {
    let mut config = Config::default();
    let (mut count, mut wrong) = (0, Vec::new());
    for (place, section, key) in pages::named_keys() {
        // Experiments have sections of their own.
        let Some(known) = config.section(&section) else { continue };
        count += 1;
        if !known.keys().iter().any(|(name, _)| *name == key) {
            wrong.push(format!("{place}: [{section}] has no key {key}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "only {count} keys found");
}

#[test]
fn blocks_of_other_programs_are_marked() {
    let wrong = pages::unmarked_blocks();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documented_make_targets_and_files_exist() {
    let makefile = std::fs::read_to_string(pages::root().join("Makefile")).expect("a Makefile");
    let targets = pages::programs("make");
    assert!(targets.len() > 5, "{targets:?}");
    for (place, words) in targets {
        let target = words.iter().find(|word| !word.contains('=') && !word.starts_with('-'));
        let Some(target) = target.filter(|name| !pages::is_placeholder(name)) else { continue };
        let rule = format!("\n{target}:");
        assert!(makefile.contains(&rule), "{place}: no target {target}");
    }
    let paths = pages::paths();
    assert!(paths.len() > 50, "only {} paths found", paths.len());
    for (place, path) in paths {
        let is_example = path.split('/').any(pages::is_placeholder);
        assert!(is_example || pages::root().join(&path).exists(), "{place}: no file {path}");
    }
}
