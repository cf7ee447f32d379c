//! Commands that only look: whatever they are pointed at, nothing is made, changed or removed.

#![cfg(feature = "edge")]

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

fn mendcast(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null()).output().expect("run")
}

/// Name, length, inode, time, mode and owner of all that is below a directory.
fn snapshot(dir: &Path) -> Vec<String> {
    let (mut all, mut open) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = open.pop() {
        let found = std::fs::symlink_metadata(&path).expect("there");
        let time = (found.mtime(), found.mtime_nsec(), found.mode(), found.uid());
        all.push(format!("{} {} {} {time:?}", path.display(), found.len(), found.ino()));
        if found.is_dir() {
            let entries = std::fs::read_dir(&path).expect("readable");
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    all.sort();
    all
}

/// Old records, a file that a killed process left, one without rows, a key file, and
/// configurations.
fn scratch(dir: &Path) {
    let at = |name: &str| dir.join(name);
    for folder in ["records", "results", "www"] {
        std::fs::create_dir(at(folder)).expect("made");
    }
    let row = r#"{"cohort":"a","unit":"1","protocol":"h3","duration_s":9.0,"started_ms":1,
        "player_played_s":0.0,"player_freezes":9999999,"player_freeze_s":1e9}"#;
    let row = row.replace('\n', "");
    for n in 1..=4u32 {
        let path = at(&format!("records/sessions-2025112{n}T000000Z.jsonl"));
        std::fs::write(&path, format!("{row}\n{{\"cut")).expect("written");
        let file = std::fs::File::options().write(true).open(&path).expect("opened");
        file.set_modified(SystemTime::now() - DAY * (100 * n)).expect("set");
    }
    std::fs::write(at("records/sessions-20251120T000000Z.parquet.part"), "x").expect("written");
    std::fs::write(at("records/sessions-20251119T000000Z.jsonl"), "").expect("written");
    std::fs::write(at("results/results.csv"), "no results").expect("written");
    let made = mendcast(dir, &["keys", "new", "--out", "secrets"]);
    assert!(made.status.success());
    let all = "[[play]]\nstream = \"live/*\"\nkey = \"one of sixteen or more\"\n";
    for (name, records) in [
        ("same.toml", "records\"\n"),
        ("short.toml", "records\"\nkeep = \"1h\"\n"),
        ("small.toml", "records\"\nmax_size = \"1B\"\n"),
        ("new.toml", "new/and/below\"\n"),
        ("bad.toml", "www/index.html/x\"\n"),
    ] {
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:PORT\"\nroot = \"www\"\nkey_file = \"secrets\"\n\
             [quic]\nqlog_dir = \"qlog/new\"\n[log]\nconnections = \"connections.jsonl\"\n\
             [autoplex]\ntable = \"table.groups\"\n[records]\ndirectory = \"{records}{all}"
        );
        std::fs::write(at(name), text.replace("PORT", "0")).expect("written");
    }
}

const LOOKING: [&[&str]; 19] = [
    &["edge", "--config", "same.toml", "--check"],
    &["edge", "--config", "short.toml", "--check"],
    &["edge", "--config", "small.toml", "--check"],
    &["edge", "--config", "new.toml", "--check"],
    &["edge", "--config", "bad.toml", "--check"],
    &["edge", "--config", "none.toml", "--check"],
    &["edge", "--print-defaults"],
    &["keys", "sign", "--config", "small.toml", "live/a"],
    &["keys", "new"],
    &["records", "ab", "records"],
    &["records", "ab", "records", "--json"],
    &["records", "study", "records"],
    &["records", "study", "records", "--json"],
    &["records", "why", "1", "records", "--qlog", "records"],
    &["records", "export", "records"],
    &["records", "export", "records", "--format", "jsonl"],
    &["lab", "list"],
    &["lab", "report", "results"],
    &["autoplex", "explain", "192.0.2.1"],
];

#[test]
fn a_command_that_only_looks_changes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    scratch(dir.path());
    let before = snapshot(dir.path());
    for arguments in LOOKING {
        mendcast(dir.path(), arguments);
        assert_eq!(snapshot(dir.path()), before, "{arguments:?}");
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_command_that_only_looks_changes_nothing_beside_a_running_server() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    scratch(dir.path());
    std::fs::write(
        dir.path().join("running.toml"),
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [records]\ndirectory = \"records\"\nkeep = \"0s\"\n",
    )
    .expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(["edge", "--config", "running.toml"]).current_dir(dir.path());
    let _running = Running(command.stderr(Stdio::null()).spawn().expect("started"));
    // The server removes unfinished files and creates missing ones; then it is idle.
    let (mut before, end) = (snapshot(dir.path()), Instant::now() + Duration::from_secs(60));
    let is_idle =
        |all: &[String]| all.iter().filter(|line| line.contains(".parquet ")).count() == 4;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = snapshot(dir.path());
        if is_idle(&now) && now == before {
            break;
        }
        before = now;
        assert!(Instant::now() < end, "{before:#?}");
    }
    for arguments in LOOKING {
        mendcast(dir.path(), arguments);
        assert_eq!(snapshot(dir.path()), before, "{arguments:?}");
    }
}

#[test]
fn errors_of_a_check_are_exit_code_1_and_warnings_are_not() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let check = |text: &str| {
        let path = dir.path().join("edge.toml");
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        let output = mendcast(dir.path(), &["edge", "--config", "edge.toml", "--check"]);
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
        (output.status.code(), out, err)
    };
    let (code, out, err) = check("server.listen = \"127.0.0.1:0\"\nlog.connections = \"no/x\"");
    assert_eq!((code, err.as_str()), (Some(1), "mendcast: edge.toml: 1 error\n"));
    assert!(out.starts_with("error: [log] connections = no/x: cannot be created: no: "), "{out}");
    let (code, out, err) = check("server.listen = \"127.0.0.1:0\"\n[hooks]\nsecret = \"word\"");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let start = "edge.toml: ok\nwarning: [hooks] secret = … (of all hooks): 4 characters can be";
    assert!(out.starts_with(start) && !out.contains("word"), "{out}");
}
