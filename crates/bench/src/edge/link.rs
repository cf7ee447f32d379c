//! Links between clients and a contestant: `mendcast link` in its own process.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::servers::Process;
use crate::Failure;

/// Starts a link to `to` with the given flags. Returns the address for clients.
pub(crate) fn start(
    mendcast: &Path,
    to: SocketAddr,
    flags: &[&str],
) -> Result<(Process, SocketAddr), Failure> {
    let mut child = Command::new(mendcast)
        .args(["link", "--listen", "127.0.0.1:0", "--to", &to.to_string()])
        .args(flags)
        .stderr(Stdio::piped())
        .spawn()?;
    let log = child.stderr.take();
    let process = Process(child);
    let mut line = String::new();
    if let Some(log) = log {
        BufReader::new(log).read_line(&mut line)?;
    }
    let address = line.trim().strip_prefix("listening on ").and_then(|text| text.parse().ok());
    Ok((process, address.ok_or(format!("the link did not start: {line}"))?))
}
