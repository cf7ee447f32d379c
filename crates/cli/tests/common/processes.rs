//! `mendcast edge` and `mendcast link` in processes of their own, on ephemeral ports of loopback.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::mendcast;

pub struct Edge {
    child: Child,
    pub address: SocketAddr,
    rtmp: Option<SocketAddr>,
}

impl Edge {
    /// Where publishers connect.
    pub fn rtmp(&self) -> SocketAddr {
        self.rtmp.expect("RTMP is configured")
    }

    /// Ends the server as an operator does.
    pub fn terminate(&mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &id]).status().expect("kill").success());
        assert!(self.child.wait().expect("ended").success());
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn edge(dir: &Path, more: &str) -> Edge {
    edge_at(dir, SocketAddr::from(([127, 0, 0, 1], 0)), more)
}

pub fn edge_at(dir: &Path, listen: SocketAddr, more: &str) -> Edge {
    let config = dir.join("edge.toml");
    let text = format!("[server]\nlisten = \"{listen}\"\nroot = \"www\"\n{more}");
    std::fs::write(&config, text).expect("written");
    let mut child = mendcast(&["edge", "--config"])
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut listening = || {
        let mut line = String::new();
        while !line.contains("listening on ") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).expect("readable"), 0, "the server ended");
        }
        let (_, address) = line.trim_end().rsplit_once("listening on ").expect("found");
        address.trim_end_matches(" for RTMP").parse().expect("an address")
    };
    let address = listening();
    let rtmp = more.contains("[rtmp]").then(listening);
    // Drains the log: a full pipe would block the server.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    Edge { child, address, rtmp }
}

/// `mendcast link`.
pub struct Relay {
    child: Child,
    pub address: String,
}

impl Relay {
    pub fn start(command: &mut Command) -> Self {
        let mut child =
            command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
        let mut line = String::new();
        let stderr = child.stderr.take().expect("piped");
        BufReader::new(stderr).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        Self { child, address }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
