//! Cost of connections without requests: memory, CPU time and wake-ups of the server. The clients
//! are unmodified `quinn` connections in this process, over loopback.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::Resumption;
use tokio::sync::oneshot;

use super::{identity, servers, watch};
use crate::Failure;
use crate::client;
use crate::identity::NAME;

/// Client threads, each with a runtime.
const THREADS: usize = 2;
/// Concurrent handshakes per thread.
const HANDSHAKES: usize = 32;
/// Time after the last handshake before the measurement.
const SETTLE: Duration = Duration::from_secs(3);

/// Measure what connections without requests cost
#[derive(Debug, clap::Args)]
pub(crate) struct Idle {
    /// Number of connections; may be repeated [default: 1000, 10000 and 100000; 200 with --quick]
    #[arg(long)]
    connections: Vec<u32>,
    /// Seconds to measure
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Interval of the clients' PINGs in seconds; 0 for silent clients
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600))]
    ping: u64,
}

impl Idle {
    pub(crate) fn run(self, quick: bool, mendcast: PathBuf) -> Result<(), Failure> {
        println!("machine: {}", crate::report::machine());
        let defaults: &[u32] = if quick { &[200] } else { &[1_000, 10_000, 100_000] };
        let counts = if self.connections.is_empty() { defaults } else { &self.connections };
        println!(
            "| connections | PING every | KB each | CPU | wake-ups per s | handshake, server |"
        );
        println!("|---|---|---|---|---|---|");
        for &count in counts {
            println!("{}", self.measure(&mendcast, count as usize)?);
        }
        Ok(())
    }

    /// Measures one number of connections. Returns the row of the table.
    fn measure(&self, mendcast: &Path, count: usize) -> Result<String, Failure> {
        let dir = tempfile::tempdir()?;
        identity(dir.path())?;
        // Some places are for handshakes only. The address is exempt from its own limit.
        let room = 2 * count;
        let settings = format!(
            "cores = 1\n[quic]\nidle_timeout = \"10m\"\nunused_timeout = \"1h\"\n\
             keep_alive = \"0s\"\nmax_connections = {room}\n",
        );
        let (server, _) = servers::inspected_edge(mendcast, dir.path(), &settings)?;
        let pid = server.process.0.id();
        let (resident, cpu) = (servers::resident(pid)?, servers::cpu(pid)?);
        let mut tls = client::tls(dir.path(), "h3")?;
        tls.resumption = Resumption::disabled();
        let mut transport = quinn::TransportConfig::default();
        let ping = Duration::from_secs(self.ping);
        transport.max_idle_timeout(None).keep_alive_interval(Some(ping).filter(|p| !p.is_zero()));
        let mut config =
            quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls.clone())?));
        config.transport_config(Arc::new(transport));

        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let share = (thread..count).step_by(THREADS).len();
            let connect = connect(tls.clone(), config.clone(), server.address, share);
            threads.push(ClientThread::start(connect)?);
        }
        let mut connections = Vec::new();
        for thread in &threads {
            connections.extend(thread.connected.recv()??);
        }
        std::thread::sleep(SETTLE);
        let handshakes = servers::cpu(pid)?.saturating_sub(cpu);
        let each = servers::resident(pid)?.saturating_sub(resident) as f64 / count as f64;
        let (cpu, woken, start) = (servers::cpu(pid)?, servers::wakes(pid)?, Instant::now());
        std::thread::sleep(Duration::from_secs(self.seconds));
        let wall = start.elapsed();
        let (busy, wakes) = (servers::cpu(pid)?.saturating_sub(cpu), servers::wakes(pid)? - woken);
        let gone = connections.iter().find_map(quinn::Connection::close_reason);
        if let Some(reason) = gone {
            return Err(format!("a connection ended: {reason}").into());
        }
        Ok(format!(
            "| {count} | {} | {:.1} | {:.2} % | {:.0} | {:.2} ms |",
            if self.ping == 0 { "–".to_owned() } else { format!("{} s", self.ping) },
            each / 1e3,
            busy.as_secs_f64() / wall.as_secs_f64() * 100.0,
            wakes as f64 / wall.as_secs_f64(),
            handshakes.as_secs_f64() * 1e3 / count as f64
        ))
    }
}

/// A thread that keeps connections until it is dropped.
struct ClientThread {
    connected: mpsc::Receiver<Result<Vec<quinn::Connection>, Failure>>,
    /// Ends the thread when dropped.
    _running: oneshot::Sender<()>,
}

impl ClientThread {
    fn start(
        connect: impl Future<Output = Result<Vec<quinn::Connection>, Failure>> + Send + 'static,
    ) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ((sender, connected), (running, ended)) = (mpsc::channel(), oneshot::channel::<()>());
        std::thread::spawn(move || {
            runtime.block_on(async {
                // Without a receiver, the measurement has failed.
                let _ = sender.send(connect.await);
                let _ = ended.await;
            });
        });
        Ok(Self { connected, _running: running })
    }
}

/// Opens `count` connections.
async fn connect(
    tls: rustls::ClientConfig,
    config: quinn::ClientConfig,
    address: std::net::SocketAddr,
    count: usize,
) -> Result<Vec<quinn::Connection>, Failure> {
    let endpoints = watch::endpoints(&tls)?;
    let mut under_way = tokio::task::JoinSet::new();
    let mut connections = Vec::with_capacity(count);
    for number in 0..count {
        if under_way.len() == HANDSHAKES
            && let Some(connection) = under_way.join_next().await
        {
            connections.push(connection??);
        }
        let (endpoint, config) = (endpoints[number % endpoints.len()].clone(), config.clone());
        under_way.spawn(async move {
            let connecting = endpoint.connect_with(config, address, NAME);
            let connecting = connecting.map_err(|e| Failure::from(e.to_string()))?;
            connecting.await.map_err(|e| Failure::from(format!("connection {number}: {e}")))
        });
    }
    while let Some(connection) = under_way.join_next().await {
        connections.push(connection??);
    }
    Ok(connections)
}
