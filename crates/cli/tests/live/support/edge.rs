//! `mendcast edge` in a process of its own, and what an operator sees of it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::{eventually, http, until};
use crate::common::mendcast;

/// What every configuration here starts with.
const BASE: &str = "server.listen = \"127.0.0.1:0\"\nrtmp.listen = [\"127.0.0.1:0\"]\n\
                    admin.listen = \"127.0.0.1:0\"\n";

pub struct Edge {
    child: Child,
    directory: TempDir,
    log: Arc<Mutex<Vec<String>>>,
    /// HTTP.
    pub address: SocketAddr,
    /// Where publishers and RTMP players connect.
    pub rtmp: SocketAddr,
    admin: SocketAddr,
}

impl Edge {
    /// Starts with these keys beside the addresses.
    pub fn start(more: &str) -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary directory"), more, None)
    }

    /// The same in this directory, which relative paths start from; `authorities` is a file of
    /// certificates that it trusts.
    pub fn start_in(directory: TempDir, more: &str, authorities: Option<&Path>) -> Self {
        std::fs::write(directory.path().join("edge.toml"), format!("{BASE}{more}"))
            .expect("written");
        let mut command = mendcast(&["edge", "--config", "edge.toml"]);
        if let Some(file) = authorities {
            command.env("SSL_CERT_FILE", file);
        }
        let mut child =
            command.current_dir(directory.path()).stderr(Stdio::piped()).spawn().expect("started");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let writer = log.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                writer.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let nowhere = SocketAddr::from(([0; 4], 0));
        let mut edge =
            Self { child, directory, log, address: nowhere, rtmp: nowhere, admin: nowhere };
        let address = |line: String, start: &str| {
            let (_, rest) = line.split_once(start).expect("found");
            let end = rest.find(['/', ' ']).unwrap_or(rest.len());
            rest[..end].parse().expect("an address")
        };
        edge.rtmp = address(edge.says("for RTMP"), "listening on ");
        edge.admin = address(edge.says("dashboard on "), "http://");
        edge.address = address(edge.says("listening on "), "listening on ");
        edge
    }

    /// The directory of its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where operators look.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.directory().join("edge.toml")
    }

    /// Lines of its log.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lines of its log that contain this.
    pub fn said(&self, part: &str) -> Vec<String> {
        self.log().into_iter().filter(|line| line.contains(part)).collect()
    }

    /// Waits for a log line that contains this, and returns it.
    pub fn says(&self, part: &str) -> String {
        eventually(&format!("the log says `{part}`: {:?}", self.log()), || {
            self.said(part).into_iter().next()
        })
    }

    /// Value of the metric with this line prefix; 0 if there is none.
    pub fn metric(&self, start: &str) -> f64 {
        let text = http::get_plain(self.admin, "/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(start));
        line.map_or(0.0, |value| value.trim().parse().expect("a number"))
    }

    /// How often this happened to publishers and upstreams.
    pub fn events(&self, event: &str) -> f64 {
        self.metric(&format!("mendcast_ingest_events_total{{event=\"{event}\"}}"))
    }

    /// The dashboard's data.
    pub fn state(&self) -> Value {
        let text = http::get_plain(self.admin, "/api/state").text();
        serde_json::from_str(&text).expect("JSON")
    }

    /// Status and text of `/healthz`.
    pub fn health(&self) -> (u16, String) {
        self.probe("/healthz")
    }

    /// Status and text of `/readyz`.
    pub fn readiness(&self) -> (u16, String) {
        self.probe("/readyz")
    }

    fn probe(&self, path: &str) -> (u16, String) {
        let answer = http::get_plain(self.admin, path);
        (answer.status, answer.text())
    }

    /// Puts other keys in force.
    pub fn reload(&self, more: &str) {
        let times = self.said("edge.toml reloaded").len();
        std::fs::write(self.config(), format!("{BASE}{more}")).expect("written");
        self.signal(Signal::SIGHUP);
        until("the reload", || self.said("edge.toml reloaded").len() > times);
    }

    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(id), signal).expect("sent");
    }

    /// Its exit code, when it has ended.
    pub fn exit_code(&mut self) -> Option<i32> {
        let status = eventually("the end of the server", || self.child.try_wait().expect("waited"));
        status.code()
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("waited").is_none()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let start = self.log().len().saturating_sub(40);
            eprintln!("log of {}: {:#?}", self.address, &self.log()[start..]);
        }
    }
}
