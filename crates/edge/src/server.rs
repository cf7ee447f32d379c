//! The process: state from a configuration, listeners, signals, reload and drain.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::Error;
use crate::admin;
use crate::cohorts::Cohorts;
use crate::config::Config;
use crate::files::Files;
use crate::front::tcp;
use crate::hooks::Hook;
use crate::identity::Identity;
use crate::ingest;
use crate::io::socket::UdpSocket;
use crate::io::{self, Listener};
use crate::live::{Live, hls};
use crate::quic::QuicState;
use crate::quic::event_loop::{EventLoop, Plan};
use crate::quic::log::ConnectionLog;
use crate::quic::mailbox::{Sender, mailbox};
use crate::quic::pulse::Pulse;
use crate::quic::report::Report;
use crate::quic::settings::random;
use crate::quic::supervisor::{self, End};
use crate::sync::lock;

/// Where operators look if the configuration says nothing.
const ADMIN: ([u8; 4], u16) = ([127, 0, 0, 1], 9433);

/// Everything that follows from one configuration; replaced as a whole by a reload.
#[derive(Debug)]
pub struct State {
    /// The configuration.
    pub config: Config,
    /// Certificate and key.
    pub identity: Arc<Identity>,
    /// TLS of the TCP front.
    pub tcp_tls: Arc<rustls::ServerConfig>,
    /// The static files, if there are any.
    pub files: Option<Arc<Files>>,
    /// The live streams.
    pub live: Arc<Live>,
    /// How viewers are divided.
    pub cohorts: Cohorts,
    /// What the QUIC loops take from it.
    pub quic: QuicState,
}

impl State {
    /// Reads what `config` names. Where `previous` has a development certificate and `config`
    /// names none, that one stays: browsers were told its hash.
    ///
    /// # Errors
    /// One line: a file or directory that cannot be read or is not what it should be.
    pub fn new(config: Config, previous: Option<&Self>) -> Result<Self, Error> {
        let server = &config.server;
        let identity = match (&server.certificate, &server.key) {
            (Some(certificate), Some(key)) => Arc::new(Identity::load(certificate, key)?),
            _ => match previous.map(|state| &state.identity) {
                Some(identity) if identity.development.is_some() => identity.clone(),
                _ => Arc::new(Identity::development()?),
            },
        };
        let read = |what: &str, path: &Path, e: std::io::Error| {
            Error::new(format!("{what} {}: {e}", path.display()))
        };
        let files = match &server.root {
            Some(root) => {
                let memory = config.files.memory.as_usize();
                let files = Files::new(root, &config.files.cache_control, memory);
                Some(Arc::new(files.map_err(|e| read("root", root, e))?))
            }
            None => None,
        };
        let secrets = match &server.key_file {
            Some(path) => {
                Some(std::fs::read_to_string(path).map_err(|e| read("key file", path, e))?)
            }
            None => None,
        };
        let live = match previous {
            Some(previous) => previous.live.clone(),
            None => Arc::new(Live::new(&config)?),
        };
        let previous = previous.map(|state| &state.quic);
        let quic = QuicState::new(&config, &identity, secrets.as_deref(), previous)?;
        let cohorts = Cohorts::new(&config)?;
        Ok(Self { tcp_tls: identity.tcp()?, config, identity, files, live, cohorts, quic })
    }
}

/// What all threads of the process share.
#[derive(Debug)]
pub struct Shared {
    state: ArcSwap<State>,
    life: watch::Sender<Life>,
    started: Instant,
    /// The UDP ports.
    ports: Vec<u16>,
    /// What each event loop last told of itself.
    loops: Mutex<Vec<Report>>,
    /// The signs of life of the event loops.
    pulses: Vec<Arc<Pulse>>,
    /// The log of closed connections, if there is one.
    log: Option<Arc<ConnectionLog>>,
}

/// Where the process is in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Life {
    Serving,
    Draining,
    Finished,
}

impl Shared {
    /// The state of the moment. A connection takes it once and keeps it.
    pub fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Gives new connections the values of `config`; running ones keep theirs.
    ///
    /// # Errors
    /// As [`State::new`]; the old state stays.
    pub fn reload(&self, config: Config) -> Result<(), Error> {
        let old = self.state();
        let fixed = |c: &Config| (c.server.listen.clone(), c.server.cores, c.tcp.max_connections);
        if fixed(&config) != fixed(&old.config) {
            tracing::warn!("listen, cores and [tcp] max_connections change at the next start");
        }
        self.state.store(Arc::new(State::new(config, Some(&old))?));
        Ok(())
    }

    /// Starts the drain: no new connections, and the running ones end with their open requests.
    pub fn drain(&self) {
        self.life.send_replace(Life::Draining);
    }

    /// Waits until the drain starts.
    pub async fn drained(&self) {
        self.reaches(Life::Draining).await;
    }

    /// Waits until the drain is over.
    pub async fn finished(&self) {
        self.reaches(Life::Finished).await;
    }

    async fn reaches(&self, life: Life) {
        // The sender lives in `self`, so the only outcome is the value.
        let _ = self.life.subscribe().wait_for(|now| *now >= life).await;
    }

    /// Whether the drain has started.
    pub fn is_draining(&self) -> bool {
        *self.life.borrow() >= Life::Draining
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The UDP ports that QUIC is served on.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// An event loop tells of itself.
    pub(crate) fn report(&self, core: u8, report: Report) {
        let mut loops = lock(&self.loops);
        let core = usize::from(core);
        if loops.len() <= core {
            loops.resize(core + 1, Report::default());
        }
        loops[core] = report;
    }

    /// The signs of life of the event loops.
    pub(crate) fn pulses(&self) -> &[Arc<Pulse>] {
        &self.pulses
    }

    /// Lines of the log of closed connections that were lost.
    pub(crate) fn log_lines_lost(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.lost())
    }

    /// What keeps the process from serving as it should, as one line each.
    pub(crate) fn ailments(&self) -> Vec<String> {
        let silences = self.pulses.iter().map(|pulse| pulse.silence()).enumerate();
        let silent = silences.filter(|(_, silence)| *silence >= supervisor::UNHEALTHY);
        let hangs = silent.map(|(core, silence)| {
            format!("event loop {core}: no turn for {:.1} s", silence.as_secs_f64())
        });
        hangs.chain(self.is_draining().then(|| "draining".to_owned())).collect()
    }

    /// All event loops together, about a second ago.
    pub(crate) fn loops(&self) -> Report {
        let mut sum = Report::default();
        lock(&self.loops).iter().for_each(|report| sum.add(report));
        sum
    }
}

/// A server with its sockets bound.
#[derive(Debug)]
pub struct Edge {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    rtmp: Vec<TcpListener>,
    admin: Option<TcpListener>,
}

impl Edge {
    /// Reads what `config` names and binds its addresses; from here on the kernel queues viewers.
    ///
    /// # Errors
    /// One line: as [`State::new`], or an address that cannot be bound.
    pub fn open(config: Config) -> Result<Self, Error> {
        let cores = match config.server.cores {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cores => cores.into(),
        };
        let state = State::new(config, None)?;
        let listeners = io::listen(&state.config, cores)?;
        let rtmp =
            state.config.rtmp.listen.iter().flatten().map(|&address| io::listen_tcp(address));
        let rtmp = rtmp.collect::<Result<_, _>>()?;
        let admin = match state.config.admin.listen {
            Some(address) => Some(io::listen_tcp(address)?),
            // Nobody asked for it: another server may have the place.
            None => match io::listen_tcp(ADMIN.into()) {
                Ok(listener) => Some(listener),
                Err(e) => {
                    tracing::warn!("no admin listener: {e}");
                    None
                }
            },
        };
        let log = match &state.config.log.connections {
            Some(path) => Some(Arc::new(ConnectionLog::open(path)?)),
            None => None,
        };
        let (life, _) = watch::channel(Life::Serving);
        let shared = Arc::new(Shared {
            state: ArcSwap::from_pointee(state),
            life,
            started: Instant::now(),
            ports: listeners.iter().map(|listener| listener.address.port()).collect(),
            loops: Mutex::default(),
            pulses: (0..cores).map(|_| Arc::new(Pulse::new())).collect(),
            log,
        });
        Ok(Self { shared, listeners, rtmp, admin })
    }

    /// What the threads share: for reloads, and to start the drain.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What listens where.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Where RTMP is spoken.
    pub fn rtmp(&self) -> Vec<SocketAddr> {
        self.rtmp.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Where operators look, if anywhere.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until the drain is over, on a current-thread runtime.
    ///
    /// # Errors
    /// One line: the runtime refuses a socket.
    pub async fn serve(self) -> Result<(), Error> {
        let Self { shared, listeners, rtmp, admin } = self;
        // Requests on other threads start tasks here.
        let _ = shared.state().live.runtime.set(tokio::runtime::Handle::current());
        let limit = shared.state().config.tcp.max_connections as usize;
        let slots = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        let mut fronts = JoinSet::new();
        let mut sockets: Vec<Vec<UdpSocket>> = Vec::new();
        for listener in listeners {
            let tcp = tokio::net::TcpListener::from_std(listener.tcp)
                .map_err(|e| Error::new(format!("cannot listen on {}: {e}", listener.address)))?;
            let port = listener.address.port();
            fronts.spawn(tcp::serve(tcp, port, shared.clone(), slots.clone()));
            sockets.resize_with(listener.udp.len(), Vec::new);
            for (core, udp) in listener.udp.into_iter().enumerate() {
                sockets[core].push(udp);
            }
        }
        let limit = shared.state().config.rtmp.max_connections as usize;
        let slots = Arc::new(Semaphore::new(limit));
        for listener in rtmp {
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(|e| Error::new(format!("RTMP: {e}")))?;
            fronts.spawn(ingest::rtmp::serve(listener, shared.clone(), slots.clone()));
        }
        fronts.spawn(housekeeping(shared.clone()));
        let admin = match admin {
            Some(listener) => {
                let listener = tokio::net::TcpListener::from_std(listener)
                    .map_err(|e| Error::new(format!("admin: {e}")))?;
                Some(tokio::spawn(admin::serve(listener, shared.clone())))
            }
            None => None,
        };
        let loops = start_loops(&shared, sockets)?;
        while fronts.join_next().await.is_some() {}
        for running in loops {
            // One that panicked has ended the process.
            let _ = tokio::task::spawn_blocking(move || running.join()).await;
        }
        if let Some(log) = &shared.log {
            log.flush();
        }
        shared.life.send_replace(Life::Finished);
        if let Some(admin) = admin {
            // What it still had to say is said or not.
            let _ = admin.await;
        }
        shared.state().live.sessions.flush(true);
        Ok(())
    }
}

/// What has to be done now and then, until the drain starts.
async fn housekeeping(shared: Arc<Shared>) {
    let mut drained = core::pin::pin!(shared.drained());
    loop {
        tokio::select! {
            () = &mut drained => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                let state = shared.state();
                hls::tidy(&state);
                for record in state.live.sessions.flush(false) {
                    let what = record.object().into();
                    state.live.hooks.tell(&state.config.hooks, Hook::Close, what);
                }
            }
        }
    }
}

/// Starts a thread with an event loop for each core's sockets.
fn start_loops(
    shared: &Arc<Shared>,
    sockets: Vec<Vec<UdpSocket>>,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let mut senders = Vec::new();
    let mut mailboxes = Vec::new();
    for _ in &sockets {
        let (sender, mailbox) = mailbox()?;
        senders.push(sender);
        mailboxes.push(mailbox);
    }
    let draining = Arc::new(AtomicBool::new(false));
    let mut loops = Vec::new();
    let end: End = Arc::new(supervisor::exit);
    let parts = sockets.into_iter().zip(mailboxes).zip(shared.pulses());
    for (core, ((sockets, mailbox), pulse)) in parts.enumerate() {
        let plan = Plan {
            core: core as u8,
            seed: random()?,
            sockets,
            shared: shared.clone(),
            mailbox,
            others: senders.clone(),
            log: shared.log.clone(),
            draining: draining.clone(),
            pulse: pulse.clone(),
        };
        let work = || EventLoop::new(plan).run();
        loops.push(supervisor::start(core, pulse.clone(), end.clone(), work)?);
    }
    supervisor::watch(shared.pulses().to_vec(), end)?;
    let drained = shared.clone();
    tokio::spawn(async move {
        drained.drained().await;
        draining.store(true, Ordering::Relaxed);
        senders.iter().for_each(Sender::wake);
    });
    Ok(loops)
}

/// Runs the server of the configuration file `path` until a signal ends it: SIGTERM and SIGINT
/// drain (twice: at once), SIGHUP reads the file again.
///
/// # Errors
/// One line, for anything that keeps it from starting.
pub fn run(path: &Path, config: Config) -> Result<(), Error> {
    let edge = Edge::open(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(format!("runtime: {e}")))?;
    runtime.block_on(async {
        let signals = |kind| signal(kind).map_err(|e| Error::new(format!("signals: {e}")));
        let mut terminate = signals(SignalKind::terminate())?;
        let mut interrupt = signals(SignalKind::interrupt())?;
        let mut hangup = signals(SignalKind::hangup())?;

        for listener in edge.listeners() {
            tracing::info!("listening on {}", listener.address);
        }
        if let Some(address) = edge.admin() {
            tracing::info!("dashboard on http://{address}/");
        }
        for address in edge.rtmp() {
            tracing::info!("listening on {address} for RTMP");
        }
        let shared = edge.shared().clone();
        if let Some(listener) = edge.listeners().first()
            && let Some(command) = shared.state().identity.chromium_command(listener.address.port())
        {
            tracing::info!("self-signed certificate for development; to open it: {command}");
        }

        let mut serving = core::pin::pin!(edge.serve());
        let mut ending = false;
        loop {
            tokio::select! {
                result = &mut serving => return result,
                _ = hangup.recv() => {
                    match Config::load(path).and_then(|config| shared.reload(config)) {
                        Ok(()) => tracing::info!("{} reloaded", path.display()),
                        Err(e) => tracing::error!("not reloaded: {e}"),
                    }
                    continue;
                }
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if ending {
                return Ok(());
            }
            ending = true;
            tracing::info!("draining");
            shared.drain();
        }
    })
}

#[cfg(test)]
mod tests;
