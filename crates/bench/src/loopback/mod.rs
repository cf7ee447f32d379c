//! Servers over loopback sockets: CPU time of the server's process per bit delivered.
//!
//! Every server has its own process and answers `GET /chunk` on ALPN `hq-interop` with 1 MiB from
//! memory. The same client process makes all downloads (`quinn`, TLS_AES_128_GCM, datagrams of
//! 1,200 bytes, GRO). The floor has no transport: it copies, seals and sends packets of 1,200
//! bytes, and a receiver with GRO reports how much has arrived.

mod fetch;
mod floor;
mod pacing;
mod quinn_server;
mod tap;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use cpu_time::ThreadTime;

use crate::Failure;
use crate::client::MTU;
use crate::edge::process_cpu;
use crate::identity;
use crate::report::{BenchReport, PeerTarget};

pub(crate) use fetch::Fetch;
pub(crate) use pacing::Pacing;

/// Size of an answer in bytes.
const ANSWER: usize = 1 << 20;
/// Concurrent requests.
const PARALLEL: usize = 4;

/// Returns the answer of every server.
fn answer() -> Vec<u8> {
    vec![0x5a; ANSWER]
}

/// Runs a server of this benchmark until killed.
///
/// # Errors
/// The name is unknown, or the server cannot start.
pub(crate) fn serve(name: &str, dir: &Path) -> Result<(), Failure> {
    match name {
        "quinn" => quinn_server::run(dir, answer().into()),
        "floor" => floor::serve(&answer()),
        other => Err(format!("no server `{other}`").into()),
    }
}

/// A contestant's process, killed on drop.
struct ServerProcess {
    child: Child,
    address: SocketAddr,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServerProcess {
    /// Starts `command`, which prints `listening ADDRESS`.
    fn start(mut command: Command) -> Result<Self, Failure> {
        let text = format!("{command:?}");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{text}: {e}"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // An error shows as a line without an address.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        let address = line.trim().strip_prefix("listening ").and_then(|a| a.parse().ok());
        let mut server = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        server.address = address.ok_or_else(|| format!("{text} did not start: {line}"))?;
        Ok(server)
    }

    /// Returns the CPU time of its threads.
    fn cpu(&self) -> Result<Duration, Failure> {
        process_cpu(self.child.id())
    }
}

/// Returns the number of datagrams dropped by full sockets, on the whole machine.
pub(crate) fn receive_errors() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(name, _)| *name == "RcvbufErrors").and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
}

/// Returns the CPU time to seal a packet of 1,200 bytes, in nanoseconds: the machine's current
/// speed.
pub(crate) fn calibration() -> f64 {
    const PACKETS: u32 = 100_000;
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("a key has 16 bytes");
    let key = LessSafeKey::new(key);
    let mut packet = vec![0; usize::from(MTU) - 16];
    let start = ThreadTime::now();
    for number in 0..PACKETS {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&number.to_le_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut packet);
        let _ = std::hint::black_box(tag.expect("the packet is short"));
    }
    start.elapsed().as_nanos() as f64 / f64::from(PACKETS)
}

/// Program of a contestant.
enum ServerProgram<'a> {
    /// The product, with a congestion controller.
    Edge(&'a Path, &'a str),
    Own,
    Peer(&'a Path),
}

fn start(kind: &ServerProgram<'_>, name: &str, dir: &Path) -> Result<ServerProcess, Failure> {
    match kind {
        ServerProgram::Edge(program, congestion) => edge(program, dir, congestion),
        ServerProgram::Own => {
            let own = std::env::current_exe()?;
            let mut command = Command::new(own.with_file_name("mendcast-bench-peer"));
            command.arg(name).arg(dir);
            ServerProcess::start(command)
        }
        ServerProgram::Peer(program) => {
            let mut command = Command::new(program);
            command.arg(name).arg(dir);
            ServerProcess::start(command)
        }
    }
}

/// Creates a directory with a certificate and key for the contestants.
fn identity_dir() -> Result<tempfile::TempDir, Failure> {
    let dir = tempfile::tempdir()?;
    identity::write(dir.path())?;
    Ok(dir)
}

/// Starts the product on a free port. It answers from its cache of small files.
fn edge(program: &Path, dir: &Path, congestion: &str) -> Result<ServerProcess, Failure> {
    let root = dir.join("www");
    std::fs::create_dir_all(&root)
        .and_then(|()| std::fs::write(root.join("chunk"), answer()))
        .map_err(|e| format!("{}: {e}", root.display()))?;
    let config = dir.join("edge.toml");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ncertificate = \"chain.pem\"\nkey = \"key.pem\"\n\
         root = \"www\"\ncores = 1\n[quic]\ncongestion = \"{congestion}\"\ninitial_mtu = {MTU}\n\
         max_mtu = {MTU}\nhq_interop = true\n"
    );
    std::fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
    let mut child = Command::new(program)
        .args(["edge", "--config"])
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let stderr = child.stderr.take();
    let mut server = ServerProcess { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
    let mut lines = stderr.map(BufReader::new);
    while let Some(log) = &mut lines {
        let mut line = String::new();
        if log.read_line(&mut line).map_or(true, |read| read == 0) {
            return Err(format!("{} did not start", program.display()).into());
        }
        if let Some((_, address)) = line.trim_end().rsplit_once("listening on ") {
            server.address = address.parse().map_err(|e| format!("{address}: {e}"))?;
            break;
        }
    }
    // Drain the log, or the pipe blocks the server.
    std::thread::spawn(move || lines.map(|mut log| std::io::copy(&mut log, &mut std::io::sink())));
    Ok(server)
}

/// Server cost of a download.
struct Cost {
    gbit_per_cpu_second: f64,
    /// Share of the time that server and client were on a CPU.
    busy: (f64, f64),
    datagram: f64,
    receive_errors: u64,
}

/// Downloads `answers` megabytes in a process of its own. Returns its output.
fn fetch(what: &str, from: SocketAddr, dir: &Path, answers: usize) -> Result<String, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .args(["fetch", what, &from.to_string()])
        .arg(dir)
        .arg(answers.to_string())
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("the download failed: {text}").into())
    }
}

/// Downloads `answers` megabytes and reads the CPU time of both processes.
fn download(
    name: &str,
    server: &ServerProcess,
    dir: &Path,
    answers: usize,
) -> Result<Cost, Failure> {
    let fetch = |answers: usize| {
        let what = if name == "floor" { "floor" } else { "quic" };
        fetch(what, server.address, dir, answers).map_err(|e| Failure::from(format!("{name}: {e}")))
    };
    // The first download fills caches and tables.
    fetch(16)?;
    let (cpu, errors, start) = (server.cpu()?, receive_errors(), Instant::now());
    let text = fetch(answers)?;
    let (wall, cpu) = (start.elapsed().as_secs_f64(), (server.cpu()? - cpu).as_secs_f64());
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    let client_cpu = numbers.next().unwrap_or(f64::NAN);
    let datagram = numbers.next().unwrap_or(f64::NAN);
    let gbit = (answers * ANSWER) as f64 * 8.0 / 1e9;
    Ok(Cost {
        gbit_per_cpu_second: gbit / cpu,
        busy: (cpu / wall, client_cpu / wall),
        datagram,
        receive_errors: receive_errors() - errors,
    })
}

/// Measures `rounds` rounds of `megabytes` from each contestant.
pub(crate) fn measure(
    report: &mut BenchReport,
    rounds: usize,
    megabytes: usize,
    mendcast: &Path,
    peers: Option<&Path>,
) -> Result<(), Failure> {
    let dir = identity_dir()?;
    let mut contestants = vec![
        ("mendcast", ServerProgram::Edge(mendcast, "cubic"), Vec::new()),
        ("quinn", ServerProgram::Own, Vec::new()),
        ("floor", ServerProgram::Own, Vec::new()),
    ];
    match peers.filter(|program| program.exists()) {
        Some(program) => {
            for name in ["quiche", "s2n-quic"] {
                contestants.push((name, ServerProgram::Peer(program), Vec::new()));
            }
        }
        None => println!("skipped: quiche and s2n-quic (no program at --peers)"),
    }
    for round in 0..rounds {
        println!("      round {}: sealing takes {:.0} ns per packet", round + 1, calibration());
        for (name, kind, samples) in &mut contestants {
            let server = start(kind, name, dir.path())?;
            let cost = download(name, &server, dir.path(), megabytes)?;
            println!(
                "      {name}: {:.3} s/Gbit, server {:.0} % and client {:.0} % of a CPU, {:.0} B \
                 per datagram, {} receive errors{}",
                1.0 / cost.gbit_per_cpu_second,
                cost.busy.0 * 100.0,
                cost.busy.1 * 100.0,
                cost.datagram,
                cost.receive_errors,
                if cost.busy.1 > 0.95 { "; the client is the limit" } else { "" }
            );
            samples.push(cost.gbit_per_cpu_second);
        }
    }
    let Some(((_, _, ours), others)) = contestants.split_first() else { return Ok(()) };
    for (name, _, samples) in others {
        let target = match *name {
            "quinn" => PeerTarget::RatioAtLeast(2.0),
            "floor" => PeerTarget::RatioAtLeast(1.0 / 1.5),
            _ => PeerTarget::None,
        };
        let what = ("loopback_gbit_per_cpu_second", "Gbit per server CPU-second");
        let rounds: Vec<_> = ours.iter().copied().zip(samples.iter().copied()).collect();
        report.add_pairs(what, name, &rounds, target);
    }
    Ok(())
}
