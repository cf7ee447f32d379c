//! State derived from a configuration, and state shared by all threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use records::{RecordWriter, Retention};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::Error;
use crate::autoplex::AutoPlex;
use crate::bans::Bans;
use crate::certificates::Certificates;
use crate::check;
use crate::client::Clients;
use crate::cohorts::Cohorts;
use crate::config::{Changes, Config, Secret};
use crate::files::Files;
use crate::hooks::Hooks;
use crate::identity::Identity;
use crate::limits::{ProcessLimits, machine};
use crate::live::{Live, memory};
use crate::logging;
use crate::loops::QuicState;
use crate::loops::log::ConnectionLog;
use crate::loops::pulse::Pulse;
use crate::loops::report::LoopReport;
use crate::loops::supervisor;
use crate::passes::Passes;
use crate::plan::{Contents, Plan, Running};
use crate::saved_paths::SavedPaths;
use crate::sessions::Sessions;
use crate::sync::lock;
use crate::tokens::KeySets;

/// State derived from a configuration. A reload replaces it as a whole.
#[derive(Debug)]
pub struct State {
    /// The configuration.
    pub config: Config,
    /// Certificates in force.
    pub(crate) certificates: Arc<Certificates>,
    /// TLS configuration of HTTP/1.1 and HTTP/2.
    pub tcp_tls: Arc<rustls::ServerConfig>,
    /// Static files, if configured.
    pub files: Option<Arc<Files>>,
    /// Live streams.
    pub live: Arc<Live>,
    /// Sessions of viewers.
    pub sessions: Arc<Sessions>,
    /// Bans set by the operator.
    pub bans: Arc<Bans>,
    /// Saved path state, and claims of jumps.
    pub(crate) saved_paths: Arc<SavedPaths>,
    /// User groups and their caps.
    pub(crate) autoplex: Arc<AutoPlex>,
    /// Limits per address and in total.
    pub(crate) limits: Arc<ProcessLimits>,
    /// HTTP hooks.
    pub hooks: Arc<Hooks>,
    /// HTTP clients of pulls.
    pub clients: Clients,
    /// Runtime for tasks that requests on other threads start.
    pub runtime: Arc<OnceLock<Handle>>,
    /// Cohorts of viewers.
    pub cohorts: Cohorts,
    /// Passes that identify viewers.
    pub passes: Passes,
    /// Tokens of the control API.
    pub tokens: Vec<Secret>,
    /// Public keys of viewers' and publishers' tokens.
    pub(crate) key_sets: Arc<KeySets>,
    /// State of the QUIC event loops.
    pub quic: QuicState,
    /// Hashes of the configured files.
    pub(crate) contents: Contents,
}

impl State {
    /// Reads the files of `config` and opens its output files, in place of `previous` if given.
    ///
    /// # Errors
    /// As [`Plan::new`] and [`State::open`].
    pub fn new(config: Config, previous: Option<&Self>) -> Result<Self, Error> {
        Self::open(Plan::replacing(config, previous.map(Self::running))?, previous)
    }

    fn running(&self) -> Running<'_> {
        Running { certificates: &self.certificates, quic: &self.quic, key_sets: &self.key_sets }
    }

    /// Returns the default certificate.
    pub fn identity(&self) -> Arc<Identity> {
        self.certificates.current().default().identity.clone()
    }

    /// Opens the output files of `plan` (qlog and records), in place of `previous` if given.
    ///
    /// # Errors
    /// If a directory cannot be created or written to. One line.
    pub fn open(plan: Plan, previous: Option<&Self>) -> Result<Self, Error> {
        let Plan { config, mut quic, .. } = plan;
        quic.log(&config.quic)?;
        // These survive reloads.
        let limits = previous.map_or_else(Arc::default, |state| state.limits.clone());
        let saved_paths = previous.map_or_else(
            || Arc::new(SavedPaths::new(config.startup.networks as usize)),
            |state| state.saved_paths.clone(),
        );
        let autoplex = previous.map_or_else(Arc::default, |state| state.autoplex.clone());
        let (live, sessions, bans, hooks, runtime) = match previous {
            Some(Self { live, sessions, bans, hooks, runtime, .. }) => {
                let (live, sessions) = (live.clone(), sessions.clone());
                (live, sessions, bans.clone(), hooks.clone(), runtime.clone())
            }
            None => {
                let sessions = Arc::new(Sessions::new(records(&config)?));
                let live = Arc::new(Live::new(&config));
                (live, sessions, Arc::default(), Arc::default(), Arc::default())
            }
        };
        // Nothing may fail from here on, since running connections use the hooks, too.
        hooks.follow(&config.hooks);
        plan.store.replace(plan.certificates);
        live.streams.memory().set_limit(memory::limit(&config.live, machine::memory()));
        Ok(Self {
            config,
            certificates: plan.store,
            tcp_tls: plan.tcp_tls,
            files: plan.files,
            live,
            sessions,
            bans,
            saved_paths,
            autoplex,
            limits,
            hooks,
            clients: plan.clients,
            runtime,
            cohorts: plan.cohorts,
            passes: plan.passes,
            tokens: plan.tokens,
            key_sets: plan.key_sets,
            quic,
            contents: plan.contents,
        })
    }
}

/// Starts the writer of records, if configured.
fn records(config: &Config) -> Result<Option<Arc<RecordWriter>>, Error> {
    let records = &config.records;
    match &records.directory {
        Some(directory) => {
            let keep = Retention { age: records.keep, bytes: records.max_size.0 };
            Ok(Some(RecordWriter::start(directory, records.period, keep)?))
        }
        None => Ok(None),
    }
}

/// State shared by all threads of the process.
#[derive(Debug)]
pub struct Shared {
    state: ArcSwap<State>,
    life: watch::Sender<Life>,
    started: Instant,
    /// UDP ports.
    ports: Vec<u16>,
    /// Latest report of each event loop.
    loops: Mutex<Vec<LoopReport>>,
    /// Heartbeats of the QUIC event loops, of as many TCP runtimes, and of the main runtime.
    pulses: Vec<Arc<Pulse>>,
    /// Limits per address and in total.
    limits: Arc<ProcessLimits>,
    /// Log of closed connections, if configured.
    log: Option<Arc<ConnectionLog>>,
    /// Configuration file, if any.
    file: OnceLock<PathBuf>,
}

/// Phase of the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Life {
    Serving,
    Draining,
    Finished,
}

impl Shared {
    /// Creates the shared state of a process with `loops` event loops and as many TCP threads.
    pub(crate) fn new(
        state: State,
        ports: Vec<u16>,
        loops: usize,
        log: Option<Arc<ConnectionLog>>,
    ) -> Self {
        let (life, _) = watch::channel(Life::Serving);
        let names = ["quic", "tcp"].into_iter();
        let names = names.flat_map(|kind| (0..loops).map(move |n| format!("{kind}-{n}")));
        let names = names.chain(["main".to_owned()]);
        Self {
            limits: state.limits.clone(),
            state: ArcSwap::from_pointee(state),
            life,
            started: Instant::now(),
            ports,
            loops: Mutex::default(),
            pulses: names.map(|name| Arc::new(Pulse::new(name))).collect(),
            log,
            file: OnceLock::new(),
        }
    }

    /// Returns the current state. A connection keeps the state it started with.
    pub fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Applies `config`: most keys to new connections and streams, some immediately. Keys that need
    /// a restart keep their values. Returns the keys with new values.
    ///
    /// # Errors
    /// As [`State::new`]. The old state remains.
    pub fn reload(&self, mut config: Config) -> Result<Changes, Error> {
        let old = self.state();
        let mut changes = config.replace(&old.config);
        let plan = Plan::replacing(config, Some(old.running()))?;
        let findings = check::credentials(&plan);
        let state = State::open(plan, Some(&old))?;
        changes.compare_files(&state.contents, &old.contents);
        findings.iter().for_each(|finding| tracing::warn!("{}", finding.text()));
        logging::set_level(state.config.log.level);
        self.state.store(Arc::new(state));
        Ok(changes)
    }

    /// Returns the configuration file, if any.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.get().map(PathBuf::as_path)
    }

    /// Sets the configuration file. Later calls have no effect.
    pub(crate) fn set_file(&self, path: &Path) {
        let _ = self.file.set(path.to_owned());
    }

    /// Starts the drain: no new connections, and connections end with their open requests. Returns
    /// false if it had started before.
    pub fn drain(&self) -> bool {
        self.life.send_if_modified(|life| {
            let is_serving = *life == Life::Serving;
            if is_serving {
                *life = Life::Draining;
            }
            is_serving
        })
    }

    /// Ends the drain.
    pub(crate) fn finish(&self) {
        self.life.send_replace(Life::Finished);
    }

    /// Returns the log of closed connections, if configured.
    pub(crate) fn log(&self) -> Option<&Arc<ConnectionLog>> {
        self.log.as_ref()
    }

    /// Waits until the drain starts.
    pub async fn drained(&self) {
        self.wait_for(Life::Draining).await;
    }

    /// Waits until the drain is over.
    pub async fn finished(&self) {
        self.wait_for(Life::Finished).await;
    }

    async fn wait_for(&self, life: Life) {
        // Cannot fail, because `self` has the sender.
        let _ = self.life.subscribe().wait_for(|now| *now >= life).await;
    }

    /// Whether the drain has started.
    pub fn is_draining(&self) -> bool {
        *self.life.borrow() >= Life::Draining
    }

    /// Returns the time since startup.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the UDP ports of QUIC.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Stores an event loop's report.
    pub(crate) fn report(&self, core: u8, report: LoopReport) {
        let mut loops = lock(&self.loops);
        let core = usize::from(core);
        if loops.len() <= core {
            loops.resize(core + 1, LoopReport::default());
        }
        loops[core] = report;
    }

    /// Returns the heartbeats of all monitored threads.
    pub(crate) fn pulses(&self) -> &[Arc<Pulse>] {
        &self.pulses
    }

    /// Returns the heartbeats of the QUIC event loops, the TCP runtimes, and the main runtime.
    pub(crate) fn pulses_by_kind(&self) -> [&[Arc<Pulse>]; 3] {
        let loops = self.pulses.len() / 2;
        let (quic, others) = self.pulses.split_at(loops);
        let (tcp, main) = others.split_at(loops);
        [quic, tcp, main]
    }

    /// Returns the limits per address and in total.
    pub(crate) fn limits(&self) -> &ProcessLimits {
        &self.limits
    }

    /// Returns the number of lines lost by the log of closed connections.
    pub(crate) fn log_lines_lost(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.lost())
    }

    /// Returns the faults for which the process will end itself soon, one line each.
    pub(crate) fn faults(&self) -> Vec<String> {
        let silences = self.pulses.iter().map(|pulse| (pulse.name(), pulse.silence()));
        let silent = silences.filter(|(_, silence)| *silence >= supervisor::UNHEALTHY_AFTER);
        silent
            .map(|(name, silence)| format!("{name}: stuck for {:.1} s", silence.as_secs_f64()))
            .collect()
    }

    /// Returns the reasons not to accept further viewers, one line each.
    pub(crate) fn unready_reasons(&self) -> Vec<String> {
        let draining = self.is_draining().then(|| "draining".to_owned());
        self.faults().into_iter().chain(draining).collect()
    }

    /// Returns the sum of the event loops' reports, about a second old.
    pub(crate) fn loops(&self) -> LoopReport {
        let mut sum = LoopReport::default();
        lock(&self.loops).iter().for_each(|report| sum.add(report));
        sum
    }
}
