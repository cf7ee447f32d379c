//! The process: listeners, threads, signals, reload and drain.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::Error;
use crate::acme;
use crate::admin;
use crate::certificates::watch;
use crate::check;
use crate::config::Config;
use crate::entropy::random;
use crate::fronts::{Turns, rtmp, threads};
use crate::hooks::Hook;
use crate::io::socket::UdpSocket;
use crate::io::{self, Listener, descriptors};
use crate::limits::LossReport;
use crate::live::memory;
use crate::logging;
use crate::loops::event_loop::{EventLoop, LoopPlan};
use crate::loops::log::ConnectionLog;
use crate::loops::mailbox::{Sender, mailbox};
use crate::loops::pulse::Pulse;
use crate::loops::supervisor::{self, End};
use crate::plan;
use crate::reload::{follow_key_sets, follow_table, reload};
use crate::service;
use crate::state::{Shared, State};

/// Default address of the admin listener.
const DEFAULT_ADMIN: ([u8; 4], u16) = ([127, 0, 0, 1], 9433);

/// Minimum interval of log lines about connections rejected or closed by limits.
const LOSS_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of pending hook notifications at exit.
const FINAL_HOOKS_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of recordings at exit, if the disk is slow.
const FINAL_RECORDINGS_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of the main runtime's heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// A server with its sockets bound.
#[derive(Debug)]
pub struct Edge {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    rtmp: Vec<TcpListener>,
    rtmps: Vec<TcpListener>,
    admin: Option<TcpListener>,
}

impl Edge {
    /// Loads the files of `config` and binds its addresses. From then on the kernel queues clients.
    ///
    /// # Errors
    /// One line: as [`State::new`], or an address cannot be bound.
    pub fn open(config: Config) -> Result<Self, Error> {
        let cores = match config.server.cores {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cores => cores.into(),
        };
        descriptors::raise(&config, cores);
        let plan = plan::Plan::new(config)?;
        check::credentials(&plan).iter().for_each(|finding| tracing::warn!("{}", finding.text()));
        let state = State::open(plan, None)?;
        let listeners = io::listen(&state.config, cores)?;
        let listen = |addresses: &Option<Vec<SocketAddr>>| {
            addresses.iter().flatten().map(|&address| io::listen_tcp(address)).collect()
        };
        let rtmp: Result<_, Error> = listen(&state.config.rtmp.listen);
        let rtmps: Result<_, Error> = listen(&state.config.rtmp.tls_listen);
        let (rtmp, rtmps) = (rtmp?, rtmps?);
        let admin = match state.config.admin.listen {
            Some(address) => Some(io::listen_tcp(address)?),
            // Another server may use the default address.
            None => match io::listen_tcp(DEFAULT_ADMIN.into()) {
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
        let ports = listeners.iter().map(|listener| listener.address.port()).collect();
        let shared = Arc::new(Shared::new(state, ports, cores, log));
        Ok(Self { shared, listeners, rtmp, rtmps, admin })
    }

    /// Returns the shared state, for reloads and to start the drain.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the HTTP listeners.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Returns the RTMP addresses.
    pub fn rtmp(&self) -> Vec<SocketAddr> {
        self.rtmp.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Returns the RTMPS addresses.
    pub fn rtmps(&self) -> Vec<SocketAddr> {
        self.rtmps.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Returns the admin address, if there is a listener.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until the end of the drain, on a current-thread runtime.
    ///
    /// # Errors
    /// One line: the runtime rejects a socket.
    pub async fn serve(self) -> Result<(), Error> {
        let Self { shared, listeners, rtmp, rtmps, admin } = self;
        // Requests on other threads spawn tasks here.
        let _ = shared.state().runtime.set(tokio::runtime::Handle::current());
        acme::start(&shared)?;
        let end: End = Arc::new(supervisor::exit);
        let mut loops = start_tcp(&shared, &listeners, &end)?;
        loops.extend(start_quic(&shared, listeners, &end)?);
        supervisor::watch(shared.pulses().to_vec(), end)?;
        let [_, _, main] = shared.pulses_by_kind();
        let heartbeats: Vec<_> =
            main.iter().map(|pulse| tokio::spawn(heartbeat(pulse.clone()))).collect();
        let mut fronts = JoinSet::new();
        // All handshakes on this runtime take turns.
        let turns = Arc::new(Turns::new());
        let plain = rtmp.into_iter().map(|listener| (listener, None));
        for (listener, turns) in
            plain.chain(rtmps.into_iter().map(|listener| (listener, Some(turns.clone()))))
        {
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(|e| Error::new(format!("RTMP: {e}")))?;
            fronts.spawn(rtmp::serve(listener, shared.clone(), turns));
        }
        fronts.spawn(housekeeping(shared.clone()));
        let follower = tokio::spawn(follow_table(shared.clone()));
        let watcher = tokio::spawn(watch::run(shared.state().certificates.clone()));
        let keys_keeper = tokio::spawn(follow_key_sets(shared.clone()));
        let keeper = tokio::spawn(memory::keep_within(shared.state().live.clone()));
        let admin = match admin {
            Some(listener) => {
                let listener = tokio::net::TcpListener::from_std(listener)
                    .map_err(|e| Error::new(format!("admin: {e}")))?;
                Some(tokio::spawn(admin::serve(listener, shared.clone())))
            }
            None => None,
        };
        let notifier = tokio::spawn(service::run(shared.clone()));
        while fronts.join_next().await.is_some() {}
        keeper.abort();
        follower.abort();
        watcher.abort();
        keys_keeper.abort();
        for running in loops {
            // A panic in a loop has already ended the process.
            let _ = tokio::task::spawn_blocking(move || running.join()).await;
        }
        if let Some(log) = shared.log() {
            log.flush();
        }
        shared.finish();
        // Both return soon after the end of the drain.
        let _ = notifier.await;
        if let Some(admin) = admin {
            let _ = admin.await;
        }
        let state = shared.state();
        state.live.outlets.close();
        state.live.recordings.finish(FINAL_RECORDINGS_TIMEOUT).await;
        state.live.ladders.close();
        state.live.time_shifts.close();
        flush_sessions(&state, true);
        state.hooks.finish_notifications(FINAL_HOOKS_TIMEOUT).await;
        heartbeats.iter().for_each(tokio::task::JoinHandle::abort);
        Ok(())
    }
}

/// Writes the records of ended sessions, and notifies the hook.
fn flush_sessions(state: &State, all: bool) {
    for record in state.sessions.flush(all) {
        state.hooks.notify(&state.config.hooks, Hook::Close, record.object().into());
    }
}

/// Beats the main runtime's pulse each second. The turn time is the timer's lateness.
async fn heartbeat(pulse: Arc<Pulse>) {
    /// Marks the pulse as finished, so that a dropped runtime does not count as stuck.
    struct FinishOnDrop(Arc<Pulse>);
    impl Drop for FinishOnDrop {
        fn drop(&mut self) {
            self.0.finish();
        }
    }
    let guard = FinishOnDrop(pulse);
    loop {
        let due = guard.0.now() + HEARTBEAT_INTERVAL;
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        let now = guard.0.now();
        guard.0.begin(now);
        guard.0.end(due.min(now), now);
    }
}

/// Runs periodic tasks each second, until the drain starts.
async fn housekeeping(shared: Arc<Shared>) {
    let (mut losses, mut log_at) = (LossReport::default(), Instant::now());
    let mut drained = core::pin::pin!(shared.drained());
    loop {
        tokio::select! {
            () = &mut drained => return shared.state().live.recordings.leave(),
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                let state = shared.state();
                state.live.outlets.tidy();
                let runtime = tokio::runtime::Handle::current();
                state.live.tend_outputs(&state.config, &state.clients, &runtime);
                state.live.ladders.tidy(&state.config, &state.live.streams);
                state.live.time_shifts.tidy(&state.config);
                if log_at <= Instant::now()
                    && let Some(line) = losses.line(shared.limits())
                {
                    tracing::warn!("{line}");
                    log_at = Instant::now() + LOSS_LOG_INTERVAL;
                }
                flush_sessions(&state, false);
                logging::report();
            }
        }
    }
}

/// Starts the threads of HTTP/1.1 and HTTP/2.
fn start_tcp(
    shared: &Arc<Shared>,
    listeners: &[Listener],
    end: &End,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let listeners: Vec<&TcpListener> = listeners.iter().map(|listener| &listener.tcp).collect();
    let [_, pulses, _] = shared.pulses_by_kind();
    pulses.iter().map(|pulse| threads::start(&listeners, shared, pulse, end)).collect()
}

/// Starts an event loop thread for each core's sockets.
fn start_quic(
    shared: &Arc<Shared>,
    listeners: Vec<Listener>,
    end: &End,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let mut sockets: Vec<Vec<UdpSocket>> = Vec::new();
    for listener in listeners {
        sockets.resize_with(listener.udp.len(), Vec::new);
        for (core, udp) in listener.udp.into_iter().enumerate() {
            sockets[core].push(udp);
        }
    }
    let mut senders = Vec::new();
    let mut mailboxes = Vec::new();
    for _ in &sockets {
        let (sender, mailbox) = mailbox()?;
        senders.push(sender);
        mailboxes.push(mailbox);
    }
    let draining = Arc::new(AtomicBool::new(false));
    let mut loops = Vec::new();
    let parts = sockets.into_iter().zip(mailboxes).zip(shared.pulses());
    for (core, ((sockets, mailbox), pulse)) in parts.enumerate() {
        let plan = LoopPlan {
            core: core as u8,
            seed: random()?,
            sockets,
            shared: shared.clone(),
            mailbox,
            others: senders.clone(),
            log: shared.log().cloned(),
            draining: draining.clone(),
            pulse: pulse.clone(),
        };
        let work = || EventLoop::new(plan).run();
        loops.push(supervisor::start(pulse.clone(), end.clone(), work)?);
    }
    let drained = shared.clone();
    tokio::spawn(async move {
        drained.drained().await;
        draining.store(true, Ordering::Relaxed);
        senders.iter().for_each(Sender::wake);
    });
    Ok(loops)
}

/// Runs the server of the configuration file `path`. SIGTERM and SIGINT drain it, a second one ends
/// it at once, SIGHUP reloads the file, and SIGUSR1 switches the log level.
///
/// # Errors
/// One line: the server cannot start.
pub fn run(path: &Path, config: Config) -> Result<(), Error> {
    let edge = Edge::open(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(format!("runtime: {e}")))?;
    let result = runtime.block_on(async {
        let signals = |kind| signal(kind).map_err(|e| Error::new(format!("signals: {e}")));
        let mut terminate = signals(SignalKind::terminate())?;
        let mut interrupt = signals(SignalKind::interrupt())?;
        let mut hangup = signals(SignalKind::hangup())?;
        let mut user = signals(SignalKind::user_defined1())?;

        for listener in edge.listeners() {
            tracing::info!("listening on {}", listener.address);
        }
        if let Some(address) = edge.admin() {
            tracing::info!("dashboard on http://{address}/");
        }
        for address in edge.rtmp() {
            tracing::info!("listening on {address} for RTMP");
        }
        for address in edge.rtmps() {
            tracing::info!("listening on {address} for RTMPS");
        }
        let shared = edge.shared().clone();
        shared.set_file(path);
        let limit = shared.state().live.streams.memory().limit() >> 20;
        tracing::info!("memory limit of streams: {limit} MiB ([live] max_memory)");
        if let Some(listener) = edge.listeners().first()
            && let Some(command) =
                shared.state().identity().chromium_command(listener.address.port())
        {
            tracing::info!("self-signed development certificate; open with: {command}");
        }

        let mut serving = core::pin::pin!(edge.serve());
        let mut ending = false;
        loop {
            tokio::select! {
                result = &mut serving => return result,
                _ = hangup.recv() => {
                    // The reload logs its result.
                    let _ = reload(&shared);
                    continue;
                }
                _ = user.recv() => {
                    let level = logging::switch(shared.state().config.log.level).word();
                    tracing::warn!("log level changed by SIGUSR1: {level}");
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
    });
    // After a second signal, do not wait for draining threads.
    runtime.shutdown_background();
    logging::flush();
    result
}

#[cfg(test)]
mod tests;
