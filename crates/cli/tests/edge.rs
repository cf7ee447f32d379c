//! `mendcast edge` as an operator sees it: exit codes, one-line errors, signals.

#![cfg(feature = "edge")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn mendcast(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(arguments);
    command
}

fn edge(dir: &Path, config: &str, more: &[&str]) -> Command {
    let path = dir.join("edge.toml");
    std::fs::write(&path, config).expect("written");
    let mut command = mendcast(&["edge", "--config", "edge.toml"]);
    command.args(more).current_dir(dir);
    command
}

/// The one line on stderr of a run that failed with exit code 1.
fn failure(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(output.stdout.is_empty());
    text.trim_end().to_owned()
}

#[test]
fn what_keeps_the_server_from_starting_is_one_line_and_exit_code_1() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let busy = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = busy.local_addr().expect("bound");
    std::fs::write(dir.path().join("text"), "hello").expect("written");
    let cases = [
        (
            "\n[quic]\nretry = \"fast\"".to_owned(),
            "mendcast: edge.toml:3: [quic] retry: expected \"never\", \"auto\" or \"always\", got \
             \"fast\""
                .to_owned(),
        ),
        (
            format!("[server]\nlisten = \"{address}\""),
            format!("mendcast: cannot listen on {address}: Address already in use (os error 98)"),
        ),
        (
            "[server]\ncertificate = \"none.pem\"\nkey = \"text\"".to_owned(),
            "mendcast: certificate none.pem: No such file or directory (os error 2)".to_owned(),
        ),
        (
            "[server]\ncertificate = \"text\"\nkey = \"text\"".to_owned(),
            "mendcast: certificate text: not PEM, or of another kind".to_owned(),
        ),
        (
            "[server]\nroot = \"none\"".to_owned(),
            "mendcast: root none: No such file or directory (os error 2)".to_owned(),
        ),
    ];
    for (config, expected) in cases {
        let output = edge(dir.path(), &config, &[]).output().expect("run");
        assert_eq!(failure(&output), expected);
    }
    let output = mendcast(&["edge", "--config", "/nonexistent"]).output().expect("run");
    assert!(failure(&output).starts_with("mendcast: /nonexistent: No such file"));
}

#[test]
fn check_reads_the_file_and_the_files_it_names() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = "[server]\nlisten = \"127.0.0.1:0\"\nroot = \".\"";
    let output = edge(dir.path(), config, &["--check"]).output().expect("run");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("edge.toml: ok\nHTTP/3: "), "{text}");
    let output = edge(dir.path(), "[server]\nroot = \"x\"", &["--check"]).output().expect("run");
    assert!(failure(&output).contains("root x"));
}

#[test]
fn the_printed_defaults_pass_the_check() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let output = mendcast(&["edge", "--print-defaults"]).output().expect("run");
    assert!(output.status.success() && output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(edge(dir.path(), &text, &["--check"]).status().expect("run").success());
}

#[test]
fn wrong_arguments_are_exit_code_2() {
    for arguments in [&["edge"][..], &["edge", "--print-defaults", "--check"], &["nonsense"]] {
        assert_eq!(mendcast(arguments).output().expect("run").status.code(), Some(2));
    }
}

struct Running {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only matters when a test fails before the server has ended.
        let _ = self.child.kill();
    }
}

impl Running {
    /// The first line on stderr that contains `part`.
    fn line(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line).expect("readable");
            assert_ne!(read, 0, "the server ended before it said `{part}`");
            if line.contains(part) {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().expect("kill").success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().expect("waited") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server did not end");
    }
}

fn start(dir: &Path, config: &str) -> (Running, SocketAddr) {
    spawn(edge(dir, config, &[]))
}

fn spawn(mut command: Command) -> (Running, SocketAddr) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("started");
    let stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut running = Running { child, stderr };
    let line = running.line("listening on ");
    let (_, address) = line.trim_end().rsplit_once(' ').expect("an address at the end");
    let address = address.parse().expect("an address");
    (running, address)
}

const ANY_PORT: &str = "[server]\nlisten = \"127.0.0.1:0\"\n";

#[test]
fn the_chromium_command_is_printed_for_the_development_certificate() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut running, address) = start(dir.path(), ANY_PORT);
    let line = running.line("chromium ");
    assert!(line.contains("--ignore-certificate-errors-spki-list="), "{line}");
    assert!(line.contains(&format!("https://mendcast.test:{}/", address.port())), "{line}");
}

#[test]
fn sigterm_drains_and_ends_with_exit_code_0() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for signal in ["TERM", "INT"] {
        let (mut running, address) = start(dir.path(), ANY_PORT);
        TcpStream::connect(address).expect("connected");
        running.signal(signal);
        assert_eq!(running.exit_code(), Some(0));
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn a_second_signal_ends_a_drain_at_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut running, address) = start(dir.path(), ANY_PORT);
    // Silence before the handshake holds the drain up for 15 s.
    let mut silent = TcpStream::connect(address).expect("connected");
    std::thread::sleep(Duration::from_millis(200));
    running.signal("TERM");
    running.line("draining");
    running.signal("TERM");
    assert_eq!(running.exit_code(), Some(0));
    assert!(matches!(silent.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn sighup_reads_the_file_again_and_a_bad_one_changes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut running, _) = start(dir.path(), ANY_PORT);
    std::fs::write(dir.path().join("edge.toml"), "[quic]\nretry = 1").expect("written");
    running.signal("HUP");
    let line = running.line("not reloaded");
    assert!(line.contains("edge.toml:2: [quic] retry: expected \"never\", "), "{line}");
    std::fs::write(dir.path().join("edge.toml"), ANY_PORT).expect("written");
    running.signal("HUP");
    running.line("edge.toml reloaded");
    running.signal("TERM");
    assert_eq!(running.exit_code(), Some(0));
}

#[test]
fn json_logs_are_objects_and_sigusr1_switches_the_level() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = format!("{ANY_PORT}[log]\nformat = \"json\"\n");
    let mut command = edge(dir.path(), &config, &[]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("started");
    let stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut running = Running { child, stderr };
    let line = |running: &mut Running, part: &str| {
        let line = running.line(part);
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert!(value["time"].is_string() && value["message"].is_string(), "{line}");
        value["level"].as_str().expect("a level").to_owned()
    };
    assert_eq!(line(&mut running, "listening on "), "info");
    running.signal("USR1");
    line(&mut running, "log level changed by SIGUSR1: debug");
    running.signal("USR1");
    line(&mut running, "log level changed by SIGUSR1: info");
    running.signal("USR1");
    line(&mut running, "log level changed by SIGUSR1: debug");
    running.signal("HUP");
    line(&mut running, "edge.toml reloaded");
    running.signal("USR1");
    // The reload had reset the level.
    line(&mut running, "log level changed by SIGUSR1: debug");
    running.signal("TERM");
    assert_eq!(running.exit_code(), Some(0));
}

/// The creation times of a key file's rotating keys.
fn created(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).expect("readable");
    text.lines().filter_map(|line| line.split_once(' ')?.0.parse().ok()).collect()
}

#[test]
fn the_server_starts_with_a_generated_key_file_and_takes_a_rotated_key_at_a_reload() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("secrets");
    let keys = |more: &[&str]| {
        let mut command = mendcast(&["keys"]);
        command.args(more).current_dir(dir.path()).output().expect("run")
    };
    let output = keys(&["new", "--out", "secrets"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    let before = std::fs::read_to_string(&path).expect("readable");
    let error = failure(&keys(&["new", "--out", "secrets"]));
    assert_eq!(
        error,
        "mendcast: key file secrets: the file exists already; --rotate adds a key to it"
    );
    assert_eq!(std::fs::read_to_string(&path).expect("readable"), before);

    let config = format!("{ANY_PORT}key_file = \"secrets\"\n");
    let (mut running, address) = start(dir.path(), &config);
    TcpStream::connect(address).expect("connected");
    assert!(keys(&["rotate", "secrets", "--after", "1h"]).status.success());
    let times = created(&path);
    let [first, second] = times[..] else { panic!("{times:?}") };
    assert!((first + 3_600..first + 3_700).contains(&second), "{first} and {second}");
    running.signal("HUP");
    running.line("edge.toml reloaded");
    running.signal("TERM");
    assert_eq!(running.exit_code(), Some(0));
}

#[test]
fn a_printed_key_file_is_another_one_each_time() {
    let print = || {
        let output = mendcast(&["keys", "new"]).output().expect("run");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    };
    let (one, two) = (print(), print());
    assert!(one.starts_with("static ") && one.lines().count() == 2, "two lines");
    assert_ne!(one, two);
    let dir = tempfile::tempdir().expect("a temporary directory");
    for arguments in [&["new", "--out", "a", "--after", "1h"][..], &["rotate", "--after", "1h"]] {
        let mut command = mendcast(&["keys"]);
        let output = command.args(arguments).current_dir(dir.path()).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!dir.path().join("a").exists());
    }
}

/// A service manager's socket.
struct Manager(UnixDatagram);

impl Manager {
    fn next(&self) -> String {
        let mut buffer = [0; 256];
        let length = self.0.recv(&mut buffer).expect("told within 10 s");
        String::from_utf8(buffer[..length].to_vec()).expect("text")
    }

    /// The next notice that is no sign of life.
    fn event(&self) -> String {
        std::iter::repeat_with(|| self.next())
            .find(|notice| notice != "WATCHDOG=1")
            .expect("without end")
    }
}

#[test]
fn a_service_manager_is_told_of_start_life_reload_and_end() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).expect("bound"));
    manager.0.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let mut command = edge(dir.path(), ANY_PORT, &[]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000").env_remove("WATCHDOG_PID");
    let (mut running, address) = spawn(command);
    assert_eq!(manager.next(), "READY=1");
    TcpStream::connect(address).expect("connected");
    assert_eq!(manager.next(), "WATCHDOG=1");
    assert_eq!(manager.next(), "WATCHDOG=1");
    running.signal("HUP");
    assert_eq!([manager.event(), manager.event()], ["RELOADING=1", "READY=1"]);
    running.signal("TERM");
    assert_eq!(manager.event(), "STOPPING=1");
    assert_eq!(running.exit_code(), Some(0));
}
