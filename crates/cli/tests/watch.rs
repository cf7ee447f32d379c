//! `mendcast watch` against `mendcast edge`: two processes on loopback, HTTP/3 between them.

#![cfg(all(feature = "edge", feature = "lab"))]

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

struct Edge {
    child: Child,
    address: SocketAddr,
}

impl Drop for Edge {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mendcast(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(arguments);
    command
}

fn edge(dir: &Path, more: &str) -> Edge {
    let config = dir.join("edge.toml");
    let text = format!("[server]\nlisten = \"127.0.0.1:0\"\nroot = \"www\"\n{more}");
    std::fs::write(&config, text).expect("written");
    let mut child = mendcast(&["edge", "--config"])
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("listening on ") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).expect("readable"), 0, "the server ended");
    }
    let address = line.trim_end().rsplit_once(' ').expect("an address at the end").1;
    let address = address.parse().expect("an address");
    // Nobody reads on: what the server says later must not block it.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    Edge { child, address }
}

fn content(dir: &Path, bytes: usize) {
    let www = dir.join("www");
    std::fs::create_dir_all(&www).expect("made");
    std::fs::write(www.join("a.bin"), vec![7; bytes]).expect("written");
}

fn watch(url: &str, more: &[&str]) -> Output {
    mendcast(&["watch", url]).args(more).output().expect("run")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_response_is_watched_to_its_end() {
    let dir = tempfile::tempdir().expect("a directory");
    content(dir.path(), 3_000_000);
    let edge = edge(dir.path(), "");
    let url = format!("https://{}/a.bin", edge.address);
    let output = watch(&url, &["--insecure", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&seen["status"], &seen["bytes"]), (&200.into(), &3_000_000.into()), "{seen}");
    assert_eq!((&seen["complete"], &seen["protocol"]), (&true.into(), &"h3".into()), "{seen}");
    let order: Vec<f64> = ["connect_ms", "first_byte_ms", "duration_ms"]
        .iter()
        .map(|name| seen[name].as_f64().expect("a number"))
        .collect();
    assert!(order[0] > 0.0 && order.is_sorted(), "{seen}");
    let text = watch(&url, &["--insecure"]);
    let line = String::from_utf8(text.stdout).expect("text");
    assert!(line.contains("3000000 bytes") && line.lines().count() == 1, "{line}");
}

#[test]
fn a_view_ends_when_its_time_is_up() {
    let dir = tempfile::tempdir().expect("a directory");
    content(dir.path(), 30_000_000);
    let edge = edge(dir.path(), "");
    let mut link = mendcast(&["link", "--listen", "127.0.0.1:0", "--rate", "8mbps", "--to"])
        .arg(edge.address.to_string())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let mut line = String::new();
    let link_stderr = link.stderr.take().expect("piped");
    BufReader::new(link_stderr).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
    let output =
        watch(&format!("https://{address}/a.bin"), &["--insecure", "--json", "--seconds", "1.5"]);
    // It may have ended by itself.
    let _ = link.kill();
    let _ = link.wait();
    assert!(output.status.success(), "{}", stderr(&output));
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(seen["complete"], false, "{seen}");
    // 1.5 s at 8 Mbps.
    let bytes = seen["bytes"].as_u64().expect("a number");
    assert!(bytes > 100_000 && bytes < 1_600_000, "{seen}");
}

#[test]
fn what_goes_wrong_is_one_line_and_exit_code_1() {
    let dir = tempfile::tempdir().expect("a directory");
    content(dir.path(), 10);
    let edge = edge(dir.path(), "");
    let here = format!("https://{}", edge.address);
    // A port on which nobody answers, and which nobody else takes meanwhile.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let silent = format!("https://{}/", silent.local_addr().expect("bound"));
    let ca = dir.path().join("none.pem");
    let ca = ca.to_str().expect("text");
    for (url, more, expected) in [
        (format!("{here}/none"), &["--insecure"][..], "HTTP status 404"),
        (format!("{here}/a.bin"), &[], "trust it with --ca FILE"),
        (format!("{here}/a.bin"), &["--ca", ca], "none.pem"),
        ("http://127.0.0.1/".to_owned(), &[], "https://"),
        (silent, &["--insecure"], "no answer within 10 s"),
    ] {
        let output = watch(&url, more);
        assert_eq!(output.status.code(), Some(1), "{url} {more:?}");
        let text = stderr(&output);
        assert!(text.contains(expected) && text.lines().count() == 1, "{url} {more:?}: {text}");
    }
    assert_eq!(watch("https://a/", &["--seconds", "0"]).status.code(), Some(2));
}
