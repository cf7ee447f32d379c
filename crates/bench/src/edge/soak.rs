//! The soak: many viewers come and go behind a lossy link for a long time. Memory has to stay flat,
//! and nothing may be left of those who went.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use tokio::time::{sleep, timeout};

use super::publisher::Publisher;
use super::servers::{self, Process};
use super::watch::endpoints;
use crate::client;
use crate::identity::NAME;

/// How often the server is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// How long the server has to forget everybody.
const FORGETTING: Duration = Duration::from_secs(60);
/// Resident memory may grow by this per hour over the second half: what an allocator does.
const DRIFT: f64 = 8e6;

/// Viewers come and go for a long time.
#[derive(Debug, clap::Args)]
pub(crate) struct Soak {
    /// Viewers at the same time.
    #[arg(long, default_value_t = 200)]
    viewers: u64,
    /// Minutes.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Loss towards the viewers.
    #[arg(long, default_value = "3%")]
    loss: String,
    /// The longest that one stays, in seconds.
    #[arg(long, default_value_t = 60)]
    stay: u64,
}

/// What the viewers did.
#[derive(Default)]
struct Tally {
    came: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

/// What a look at the server showed.
struct Look {
    at: Duration,
    resident: u64,
    viewers: f64,
    sessions: f64,
    connections: f64,
}

impl Soak {
    pub(crate) fn run(self, mendcast: PathBuf) -> Result<(), String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        super::identity(dir.path())?;
        let settings = "[records]\ndirectory = \"records\"\nperiod = \"10m\"\n";
        let (server, admin) = servers::inspected_edge(&mendcast, dir.path(), settings)?;
        let admin = admin.ok_or("the edge has no admin listener")?;
        let (_link, address) = link(&mendcast, server.address, &self.loss)?;
        let publisher = Publisher::start(server.ingest.clone())?;
        std::thread::sleep(super::LEAD);

        let crowd = Crowd::start(&self, address, dir.path());
        let observed = Observed { admin, pid: server.process.0.id(), start: Instant::now() };
        println!("{} viewers for {} min, {} loss, 40 ms", self.viewers, self.minutes, self.loss);
        let looks = observed.look_for(Duration::from_secs(self.minutes * 60))?;
        let tally = crowd.leave()?;
        let last = observed.look_until_empty()?;
        publisher.stop()?;
        drop(server);
        let records = records(&dir.path().join("records"))?;
        judge(&tally, &looks, &last, records)
    }
}

/// The viewers, in threads of their own.
struct Crowd {
    threads: Vec<JoinHandle<Result<(), String>>>,
    tally: Arc<Tally>,
    ends: Arc<AtomicBool>,
}

impl Crowd {
    fn start(soak: &Soak, address: SocketAddr, dir: &Path) -> Self {
        let (tally, ends) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
        let threads = (0..2u64)
            .map(|thread| {
                let (tally, ends, dir) = (tally.clone(), ends.clone(), dir.to_owned());
                let (slots, stay) = (soak.viewers.div_ceil(2), soak.stay);
                std::thread::spawn(move || view(thread, slots, stay, address, &dir, &tally, &ends))
            })
            .collect();
        Self { threads, tally, ends }
    }

    /// Ends all views; returns what they were.
    fn leave(self) -> Result<Arc<Tally>, String> {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| "a viewers' thread panicked")??;
        }
        Ok(self.tally)
    }
}

/// The server, seen from outside.
struct Observed {
    admin: SocketAddr,
    pid: u32,
    start: Instant,
}

impl Observed {
    /// Looks at the server until `length` after the start; prints each sixth look.
    fn look_for(&self, length: Duration) -> Result<Vec<Look>, String> {
        println!("    min  viewers  sessions  connections  resident MB  CPU s");
        let mut looks = Vec::new();
        while self.start.elapsed() < length {
            std::thread::sleep(LOOK.min(length.saturating_sub(self.start.elapsed())));
            let look = self.look()?;
            if looks.len() % 6 == 5 {
                println!(
                    "{:>7.1}  {:>7}  {:>8}  {:>11}  {:>11.1}  {:>5.0}",
                    look.at.as_secs_f64() / 60.0,
                    look.viewers,
                    look.sessions,
                    look.connections,
                    look.resident as f64 * 1e-6,
                    servers::cpu(self.pid)?.as_secs_f64()
                );
            }
            looks.push(look);
        }
        Ok(looks)
    }

    /// The first look that shows no viewer, or the last one in the time for forgetting them.
    fn look_until_empty(&self) -> Result<Look, String> {
        let gone = Instant::now();
        loop {
            let look = self.look()?;
            let is_empty = look.viewers == 0.0 && look.connections == 0.0;
            if is_empty || gone.elapsed() > FORGETTING {
                return Ok(look);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Asks the server's admin listener, and the system.
    fn look(&self) -> Result<Look, String> {
        let text = get(self.admin, "/metrics").map_err(|e| format!("{}: {e}", self.admin))?;
        let sum = |name: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        Ok(Look {
            at: self.start.elapsed(),
            resident: servers::resident(self.pid),
            viewers: sum("mendcast_viewers{"),
            sessions: sum("mendcast_sessions_total{"),
            connections: sum("mendcast_quic_connections "),
        })
    }
}

/// Prints what was required and whether it held; an error if something did not.
fn judge(tally: &Tally, looks: &[Look], last: &Look, records: u64) -> Result<(), String> {
    let mut passed = true;
    let mut check = |good: bool, text: String| {
        println!("{}  {text}", if good { "PASS" } else { "FAIL" });
        passed &= good;
    };
    let came = tally.came.load(Ordering::Relaxed);
    let failed = tally.failed.load(Ordering::Relaxed);
    check(failed == 0, format!("{came} views, {failed} failed"));
    let half = &looks[looks.len() / 2..];
    let drift = slope(half);
    let megabytes = half.iter().map(|look| look.resident as f64 * 1e-6);
    let (least, most) = (megabytes.clone().fold(f64::MAX, f64::min), megabytes.fold(0.0, f64::max));
    let bytes = tally.bytes.load(Ordering::Relaxed) as f64 * 1e-9;
    check(
        drift < DRIFT,
        format!(
            "resident memory of the second half: {least:.1} to {most:.1} MB, {:+.2} MB an hour; \
             {bytes:.1} GB were delivered",
            drift * 1e-6
        ),
    );
    let (viewers, connections) = (last.viewers, last.connections);
    check(
        viewers == 0.0 && connections == 0.0,
        format!("left after the last one went: {viewers} sessions, {connections} connections"),
    );
    let sessions = last.sessions;
    check(
        sessions == came as f64 && records == came,
        format!("{came} views, {sessions} sessions, {records} records"),
    );
    if passed { Ok(()) } else { Err("the soak failed".to_owned()) }
}

/// The lossy link, and where viewers connect.
fn link(mendcast: &Path, to: SocketAddr, loss: &str) -> Result<(Process, SocketAddr), String> {
    let mut child = Command::new(mendcast)
        .args(["link", "--listen", "127.0.0.1:0", "--to", &to.to_string()])
        .args(["--rtt", "40ms", "--loss-down", loss])
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let log = child.stderr.take();
    let process = Process(child);
    let mut line = String::new();
    if let Some(log) = log {
        BufReader::new(log).read_line(&mut line).map_err(|e| e.to_string())?;
    }
    let address = line.trim().strip_prefix("listening on ").and_then(|text| text.parse().ok());
    Ok((process, address.ok_or(format!("the link did not start: {line}"))?))
}

/// Half of the viewers, each coming again as soon as it has gone.
fn view(
    thread: u64,
    slots: u64,
    stay: u64,
    address: SocketAddr,
    dir: &Path,
    tally: &Arc<Tally>,
    ends: &Arc<AtomicBool>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let tls = client::tls(dir, "h3")?;
    runtime.block_on(async {
        let endpoints = endpoints(&tls)?;
        let mut tasks = tokio::task::JoinSet::new();
        for slot in 0..slots {
            let endpoint = endpoints[slot as usize % endpoints.len()].clone();
            let (tally, ends) = (tally.clone(), ends.clone());
            let mut rng = ChaCha8Rng::seed_from_u64(thread << 32 | slot);
            tasks.spawn(async move {
                // They do not all come at once.
                sleep(Duration::from_millis(20 * slot)).await;
                while !ends.load(Ordering::Relaxed) {
                    let millis = 500 + rng.next_u64() % (stay * 1_000).max(1);
                    tally.came.fetch_add(1, Ordering::Relaxed);
                    let stays = Duration::from_millis(millis);
                    if let Err(e) = once(&endpoint, address, stays, &tally, &ends).await {
                        tally.failed.fetch_add(1, Ordering::Relaxed);
                        println!("      a view failed: {e}");
                    }
                }
            });
        }
        while tasks.join_next().await.is_some() {}
        for endpoint in endpoints {
            endpoint.close(0u8.into(), b"");
            // Its last packets may be lost as well.
            let _ = timeout(Duration::from_secs(3), endpoint.wait_idle()).await;
        }
        Ok(())
    })
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// One view. It ends in the middle of whatever is under way.
async fn once(
    endpoint: &quinn::Endpoint,
    address: SocketAddr,
    stays: Duration,
    tally: &Tally,
    ends: &AtomicBool,
) -> Result<(), Failure> {
    let connection = endpoint.connect(address, NAME)?.await?;
    let transport = h3_quinn::Connection::new(connection.clone());
    let (mut driver, mut requests) = h3::client::new(transport).await?;
    let driving =
        tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
    let uri = format!("https://{NAME}/live/bench.flv");
    let mut stream = requests.send_request(http::Request::get(uri).body(())?).await?;
    stream.finish().await?;
    let watched = async {
        let response = stream.recv_response().await?;
        if response.status() != 200 {
            return Err(Failure::from(format!("status {}", response.status())));
        }
        while let Some(data) = stream.recv_data().await? {
            tally.bytes.fetch_add(bytes::Buf::remaining(&data) as u64, Ordering::Relaxed);
            if ends.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        Err("the stream ended".into())
    };
    let result = timeout(stays, watched).await;
    connection.close(0x100u16.into(), b"");
    driving.abort();
    result.unwrap_or(Ok(()))
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Rows in all files of JSON lines.
fn records(directory: &Path) -> Result<u64, String> {
    let mut rows = 0;
    for entry in std::fs::read_dir(directory).map_err(|e| e.to_string())?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = std::fs::read_to_string(&path).map_err(|e| e.to_string())?;
            rows += text.lines().count() as u64;
        }
    }
    Ok(rows)
}

/// Bytes per hour, by least squares.
fn slope(looks: &[Look]) -> f64 {
    let n = looks.len() as f64;
    let hours = |look: &Look| look.at.as_secs_f64() / 3_600.0;
    let (mean_x, mean_y) = looks
        .iter()
        .fold((0.0, 0.0), |(x, y), look| (x + hours(look) / n, y + look.resident as f64 / n));
    let (mut above, mut below) = (0.0, f64::MIN_POSITIVE);
    for look in looks {
        let x = hours(look) - mean_x;
        above += x * (look.resident as f64 - mean_y);
        below += x * x;
    }
    above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_line() {
        let looks: Vec<Look> = (0..60)
            .map(|n| Look {
                at: Duration::from_secs(60 * n),
                resident: 50_000_000 + 100_000 * n,
                viewers: 0.0,
                sessions: 0.0,
                connections: 0.0,
            })
            .collect();
        assert!((slope(&looks) - 6e6).abs() < 1.0, "{}", slope(&looks));
    }
}
