//! Processes of the contestants.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::publisher::Ingest;
use crate::Failure;
use crate::client::MTU;

/// A child that is killed on drop.
pub(crate) struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // nginx needs SIGTERM to stop its worker. A process that drains too long is killed.
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let end = Instant::now() + Duration::from_secs(2);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running contestant.
pub(super) struct RunningServer {
    pub process: Process,
    /// Address for viewers.
    pub address: SocketAddr,
    pub ingest: Ingest,
}

/// Programs and directories of the contestants.
pub(super) struct Programs {
    /// Path of `mendcast`.
    pub mendcast: PathBuf,
    /// Path of `mendcast-bench-peer`.
    pub peer: PathBuf,
    /// Directory with `chain.pem` and `key.pem`.
    pub dir: PathBuf,
    /// Directory in memory, if available.
    pub memory: PathBuf,
}

impl Programs {
    /// Returns the programs, with the peer beside this one.
    pub(super) fn new(mendcast: PathBuf, dir: &Path, memory: &Path) -> Result<Self, Failure> {
        let peer = std::env::current_exe()?.with_file_name("mendcast-bench-peer");
        Ok(Self { mendcast, peer, dir: dir.to_owned(), memory: memory.to_owned() })
    }
}

/// Protocol of the viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ViewTransport {
    /// FLV over HTTP/3.
    H3,
    /// FLV over HTTP/2, one connection per viewer, as in browsers.
    H2,
    /// HLS over HTTP/1.1.
    Hls,
    /// RTMP over TCP.
    Rtmp,
    /// RTMP over TLS over TCP.
    Rtmps,
    /// Media over QUIC, by `peers/moq`.
    #[value(skip)]
    Moq,
}

/// A server and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    Edge,
    Relay,
    EdgeHls,
    Nginx,
    /// FLV over HTTP/2, with this number of threads.
    EdgeH2(u16),
}

impl Contestant {
    pub(super) const ALL: [Self; 6] =
        [Self::Edge, Self::Relay, Self::EdgeHls, Self::Nginx, Self::EdgeH2(1), Self::EdgeH2(2)];

    pub(super) fn name(self) -> String {
        match self {
            Self::Edge => "mendcast".to_owned(),
            Self::Relay => "quinn + h3".to_owned(),
            Self::EdgeHls => "mendcast HLS".to_owned(),
            Self::Nginx => "nginx HLS".to_owned(),
            Self::EdgeH2(1) => "mendcast HTTP/2, 1 thread".to_owned(),
            Self::EdgeH2(threads) => format!("mendcast HTTP/2, {threads} threads"),
        }
    }

    /// Returns the path of the stream.
    pub(super) fn path(self) -> &'static str {
        match self.transport() {
            ViewTransport::Hls => "/live/bench/index.m3u8",
            _ => "/live/bench.flv",
        }
    }

    pub(super) fn transport(self) -> ViewTransport {
        match self {
            Self::Edge | Self::Relay => ViewTransport::H3,
            Self::EdgeH2(_) => ViewTransport::H2,
            Self::EdgeHls | Self::Nginx => ViewTransport::Hls,
        }
    }

    pub(super) fn start(self, programs: &Programs) -> Result<RunningServer, Failure> {
        match self {
            Self::Edge | Self::EdgeHls => edge(programs, 1),
            Self::EdgeH2(threads) => edge(programs, threads),
            Self::Relay => relay(programs),
            Self::Nginx => nginx(programs),
        }
    }
}

/// Writes the edge's configuration to `dir`.
pub(super) fn edge_config(dir: &Path, cores: u16) -> Result<PathBuf, Failure> {
    write_config(dir, "", &edge_settings(cores))
}

/// Returns the edge's settings for [`write_config`].
pub(super) fn edge_settings(cores: u16) -> String {
    format!(
        "cores = {cores}\n[quic]\ncongestion = \"cubic\"\ninitial_mtu = {MTU}\n\
         max_mtu = {MTU}\n"
    )
}

/// Writes a configuration with free ports for viewers and RTMP. `rtmp` is the rest of `[rtmp]`.
/// `settings` is the rest of `[server]`, and further sections.
pub(super) fn write_config(dir: &Path, rtmp: &str, settings: &str) -> Result<PathBuf, Failure> {
    let path = dir.join("edge.toml");
    let text = format!(
        "[rtmp]\nlisten = \"127.0.0.1:0\"\n{rtmp}[server]\nlisten = \"127.0.0.1:0\"\n\
         certificate = \"chain.pem\"\nkey = \"key.pem\"\n{settings}\n\
         [limits]\ntrusted = \"127.0.0.0/8\"\n"
    );
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// Starts `command`, which prints `listening ADDRESS…`, with an optional pipe to it.
pub(super) fn listening(mut command: Command) -> Result<(RunningServer, Vec<SocketAddr>), Failure> {
    let text = format!("{command:?}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("{text}: {e}"))?;
    let mut line = String::new();
    if let Some(stdout) = &mut child.stdout {
        line = read_line(stdout);
    }
    let process = Process(child);
    let words = line.trim().strip_prefix("listening ").unwrap_or("").split(' ');
    let addresses: Vec<SocketAddr> = words.filter_map(|word| word.parse().ok()).collect();
    match addresses[..] {
        [quic, ingest] => {
            Ok((RunningServer { process, address: quic, ingest: Ingest::Rtmp(ingest) }, addresses))
        }
        _ => Err(format!("{text} did not start: {line}").into()),
    }
}

/// Reads exactly one line, so that the pipe can be read further.
pub(super) fn read_line(from: &mut impl Read) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    // An error shows as a truncated line.
    while from.read(&mut byte).is_ok_and(|read| read == 1) && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// Starts the relay on `quinn` and `h3`.
pub(super) fn relay(programs: &Programs) -> Result<RunningServer, Failure> {
    let mut command = Command::new(&programs.peer);
    command.arg("relay").arg(&programs.dir);
    let server = listening(command)?;
    Ok(RunningServer { ingest: Ingest::Flv(server.1[1]), ..server.0 })
}

fn edge(programs: &Programs, cores: u16) -> Result<RunningServer, Failure> {
    start_edge(&programs.mendcast, &edge_config(&programs.dir, cores)?).map(|(server, _)| server)
}

/// Starts an edge with an admin listener and a drain timeout of one second. `dir` holds its
/// certificate and key; for `settings` see [`write_config`].
pub(super) fn inspected_edge(
    mendcast: &Path,
    dir: &Path,
    settings: &str,
) -> Result<(RunningServer, Option<SocketAddr>), Failure> {
    let inspected = "[admin]\nlisten = \"127.0.0.1:0\"\n[drain]\ntimeout = \"1s\"\n";
    start_edge(mendcast, &write_config(dir, "", &format!("{settings}{inspected}"))?)
}

/// Starts an edge with this configuration, which enables RTMP. Returns the admin address too. The
/// log is discarded.
pub(super) fn start_edge(
    mendcast: &Path,
    config: &Path,
) -> Result<(RunningServer, Option<SocketAddr>), Failure> {
    start_logged_edge(mendcast, config, std::io::sink())
}

/// Like [`start_edge`], with the log after startup written to `log`.
pub(super) fn start_logged_edge(
    mendcast: &Path,
    config: &Path,
    mut log: impl Write + Send + 'static,
) -> Result<(RunningServer, Option<SocketAddr>), Failure> {
    let mut child = Command::new(mendcast)
        .args(["edge", "--config"])
        .arg(config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", mendcast.display()))?;
    let stderr = child.stderr.take();
    let process = Process(child);
    let (mut address, mut rtmp, mut admin, mut text) = (None, None, None, String::new());
    let mut lines = stderr.map(BufReader::new);
    while let Some(lines) = &mut lines {
        let start = text.len();
        if lines.read_line(&mut text).map_or(true, |read| read == 0) {
            return Err(format!("{} did not start: {text}", mendcast.display()).into());
        }
        if let Some((_, place)) = text[start..].trim_end().rsplit_once("dashboard on http://") {
            admin = place.trim_end_matches('/').parse().ok();
        }
        if let Some((_, place)) = text[start..].trim_end().rsplit_once("listening on ") {
            match place.strip_suffix(" for RTMP") {
                Some(place) => rtmp = place.parse().ok(),
                None => address = place.parse().ok(),
            }
        }
        if address.is_some() && rtmp.is_some() {
            break;
        }
    }
    // Drain the log, or the pipe blocks the server.
    std::thread::spawn(move || lines.map(|mut lines| std::io::copy(&mut lines, &mut log)));
    match (address, rtmp) {
        (Some(address), Some(rtmp)) => {
            Ok((RunningServer { process, address, ingest: Ingest::Rtmp(rtmp) }, admin))
        }
        _ => Err("the edge has no log".into()),
    }
}

fn nginx(programs: &Programs) -> Result<RunningServer, Failure> {
    let address = free_address()?;
    let (dir, root) = (programs.dir.display(), programs.memory.display());
    let segments = programs.memory.join("live/bench");
    let config = programs.dir.join("nginx.conf");
    let user = nginx_user();
    let text = format!(
        "{user}daemon off;\nworker_processes 1;\npid {dir}/nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 8192; }}\nhttp {{\n access_log off;\n sendfile on;\n \
         keepalive_requests 1000000;\n types {{ application/vnd.apple.mpegurl m3u8; video/mp2t ts; \
         }}\n client_body_temp_path {dir}/n1;\n proxy_temp_path {dir}/n2;\n fastcgi_temp_path \
         {dir}/n3;\n uwsgi_temp_path {dir}/n4;\n scgi_temp_path {dir}/n5;\n server {{\n  listen \
         {address} ssl backlog=4096;\n  ssl_certificate {dir}/chain.pem;\n  ssl_certificate_key \
         {dir}/key.pem;\n  ssl_protocols TLSv1.3;\n  root {root};\n }}\n}}\n"
    );
    std::fs::create_dir_all(&segments).and_then(|()| std::fs::write(&config, text))?;
    let program = nginx_program().ok_or("nginx is not installed (apt-get install nginx-light)")?;
    let process = start_nginx(program, &config, address)?;
    Ok(RunningServer { process, address, ingest: Ingest::Directory(segments) })
}

/// Returns the path of nginx if it is installed.
pub(super) fn nginx_program() -> Option<&'static Path> {
    ["/usr/sbin/nginx", "/usr/bin/nginx"].map(Path::new).into_iter().find(|path| path.exists())
}

/// Returns the line that lets nginx's worker read the files of root.
pub(super) fn nginx_user() -> &'static str {
    if nix::unistd::geteuid().is_root() { "user root;\n" } else { "" }
}

/// Starts nginx, which listens on `address` by its configuration.
pub(super) fn start_nginx(
    program: &Path,
    config: &Path,
    address: SocketAddr,
) -> Result<Process, Failure> {
    let mut command = Command::new(program);
    command.arg("-c").arg(config).args(["-e", "stderr"]).stderr(Stdio::null());
    start_on(command, address)
}

/// Returns a free TCP address of this machine.
pub(super) fn free_address() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?)
}

/// Starts a command and waits until it accepts TCP connections on `address`.
pub(super) fn start_on(mut command: Command, address: SocketAddr) -> Result<Process, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut process = Process(command.spawn().map_err(|e| format!("{name}: {e}"))?);
    let end = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(address).is_err() {
        if let Some(status) = process.0.try_wait()? {
            return Err(format!("{name} did not start: {status}").into());
        }
        if Instant::now() > end {
            return Err(format!("{name} does not listen on {address}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(process)
}

/// Returns a process and its children.
fn family(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    std::iter::once(pid).chain(children).collect()
}

/// A thread and its CPU time since its start.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub id: u32,
    pub name: String,
    pub time: Duration,
}

/// Returns the threads of a process and of its children.
///
/// # Errors
/// The process does not exist, or the kernel has no statistics.
pub(super) fn threads(pid: u32) -> Result<Vec<Thread>, Failure> {
    let mut threads = Vec::new();
    for pid in family(pid) {
        let path = format!("/proc/{pid}/task");
        for task in std::fs::read_dir(&path).map_err(|e| format!("{path}: {e}"))?.flatten() {
            // The thread may have exited.
            let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let time = read("schedstat").split(' ').next().and_then(|nanos| nanos.parse().ok());
            let id = task.file_name().to_str().and_then(|id| id.parse().ok());
            if let (Some(id), Some(nanos)) = (id, time) {
                let name = read("comm").trim_end().to_owned();
                threads.push(Thread { id, name, time: Duration::from_nanos(nanos) });
            }
        }
    }
    match threads.iter().all(|thread| thread.time.is_zero()) {
        true => Err("this kernel has no schedstat".into()),
        false => Ok(threads),
    }
}

/// Returns the CPU time of all threads of a process and of its children.
pub(crate) fn cpu(pid: u32) -> Result<Duration, Failure> {
    Ok(threads(pid)?.iter().map(|thread| thread.time).sum())
}

/// Returns how often the threads of a process have slept and been woken.
///
/// # Errors
/// The process does not exist.
pub(super) fn wakes(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/task");
    let tasks = std::fs::read_dir(&path).map_err(|e| format!("{path}: {e}"))?.flatten();
    let of = |status: String| -> Option<u64> {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
    };
    Ok(tasks.filter_map(|task| of(std::fs::read_to_string(task.path().join("status")).ok()?)).sum())
}

/// Returns the resident memory of a process and its children in bytes.
///
/// # Errors
/// The process does not exist, or the system has no statistics.
pub(super) fn resident(pid: u32) -> Result<u64, Failure> {
    let of = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim();
        Some(line.strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
    };
    let own = of(pid).ok_or(format!("the memory of process {pid} cannot be read"))?;
    // A child may exit at the same time.
    let children = family(pid).into_iter().filter(|child| *child != pid);
    Ok(own + children.filter_map(of).sum::<u64>())
}

/// Returns the machine's busy and total time, in ticks.
pub(super) fn machine() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    busy_of(text.lines().next()?)
}

fn busy_of(line: &str) -> Option<(u64, u64)> {
    let ticks: Vec<u64> = line
        .strip_prefix("cpu ")?
        .split_whitespace()
        .take(8)
        .filter_map(|n| n.parse().ok())
        .collect();
    let all: u64 = ticks.iter().sum();
    // Idle, and waiting for a disk. Time stolen by a hypervisor counts as busy: it is unavailable
    // here.
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::TryRecvError;

    use super::*;

    #[test]
    fn the_time_and_memory_of_this_process_are_read() {
        let (pid, before) = (std::process::id(), cpu(std::process::id()).expect("readable"));
        let end = Instant::now() + Duration::from_secs(5);
        while cpu(pid).expect("readable") == before {
            assert!(Instant::now() < end, "the counter stands still");
        }
        assert!(resident(pid).expect("readable") > 1 << 20);
        assert!(resident(0).is_err());
        assert!(cpu(u32::MAX).is_err());
    }

    #[test]
    fn the_time_of_a_thread_is_read_under_its_name() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let spins = move || while stopped.try_recv() == Err(TryRecvError::Empty) {};
        let spinning = std::thread::Builder::new().name("spins".to_owned()).spawn(spins);
        let time = || {
            let threads = threads(std::process::id()).expect("readable");
            threads.iter().find(|thread| thread.name == "spins").map(|thread| thread.time)
        };
        let end = Instant::now() + Duration::from_secs(5);
        while time().unwrap_or_default() < Duration::from_millis(50) {
            assert!(Instant::now() < end, "the thread is not there, or stands still");
        }
        drop(stop);
        spinning.expect("started").join().expect("no panic");
    }

    #[test]
    fn exactly_one_line_is_read() {
        let mut input = &b"listening here\nrest"[..];
        assert_eq!(read_line(&mut input), "listening here");
        assert_eq!(input, b"rest");
    }

    #[test]
    fn a_machine_is_busy_while_it_is_not_idle() {
        assert_eq!(busy_of("cpu  10 1 5 70 4 1 2 7 0 0"), Some((26, 100)));
        assert_eq!(busy_of("cpu0 1 2 3"), None);
    }
}
