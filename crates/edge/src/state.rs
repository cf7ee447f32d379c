//! What follows from a configuration, and what all threads of the process share.

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
use crate::check;
use crate::client::Clients;
use crate::cohorts::Cohorts;
use crate::config::{Changes, Config, Secret};
use crate::files::Files;
use crate::hooks::Hooks;
use crate::identity::Identity;
use crate::limits::{Limits, machine};
use crate::live::{Live, memory};
use crate::logging;
use crate::loops::QuicState;
use crate::loops::log::ConnectionLog;
use crate::loops::pulse::Pulse;
use crate::loops::report::Report;
use crate::loops::supervisor;
use crate::passes::Passes;
use crate::plan::{Contents, Plan, Running};
use crate::saved_paths::SavedPaths;
use crate::sessions::Sessions;
use crate::sync::lock;

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
    /// Who watches them.
    pub sessions: Arc<Sessions>,
    /// Whom the operator keeps out.
    pub bans: Arc<Bans>,
    /// What is known of paths and of who jumped.
    pub(crate) saved_paths: Arc<SavedPaths>,
    /// User groups and what their sessions may send.
    pub(crate) autoplex: Arc<AutoPlex>,
    /// What may be held of the server.
    pub(crate) limits: Arc<Limits>,
    /// The operator's servers that are asked and told.
    pub hooks: Arc<Hooks>,
    /// Who asks upstreams.
    pub clients: Clients,
    /// Where tasks run that a request on another thread asks for.
    pub runtime: Arc<OnceLock<Handle>>,
    /// How viewers are divided.
    pub cohorts: Cohorts,
    /// How viewers show who they are.
    pub passes: Passes,
    /// What those bring along who control the server.
    pub tokens: Vec<Secret>,
    /// What the QUIC loops take from it.
    pub quic: QuicState,
    /// The files that the configuration names, as they were.
    pub(crate) contents: Contents,
}

impl State {
    /// Reads what `config` names, and opens what is written for it, in place of `previous` or for
    /// the first time.
    ///
    /// # Errors
    /// As [`Plan::new`] and [`State::open`].
    pub fn new(config: Config, previous: Option<&Self>) -> Result<Self, Error> {
        Self::open(Plan::beside(config, previous.map(Self::running))?, previous)
    }

    fn running(&self) -> Running<'_> {
        Running { identity: &self.identity, quic: &self.quic, contents: &self.contents }
    }

    /// Opens what is written for the `plan`, the qlog directory and the records' files, and puts it
    /// in the place of `previous`.
    ///
    /// # Errors
    /// One line: a directory that cannot be made or written to.
    pub fn open(plan: Plan, previous: Option<&Self>) -> Result<Self, Error> {
        let Plan { config, mut quic, .. } = plan;
        quic.log(&config.quic)?;
        // These outlive every configuration.
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
        // Nothing fails from here on: running connections ask hooks as well.
        hooks.follow(&config.hooks);
        live.streams.memory().set_limit(memory::limit(&config.live, machine::memory()));
        Ok(Self {
            config,
            identity: plan.identity,
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
            quic,
            contents: plan.contents,
        })
    }
}

/// The writer of records, if the configuration names a directory for them.
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
    /// Signs of life: QUIC's event loops, as many runtimes of TCP, and the main runtime.
    pulses: Vec<Arc<Pulse>>,
    /// What may be held of the server.
    limits: Arc<Limits>,
    /// The log of closed connections, if there is one.
    log: Option<Arc<ConnectionLog>>,
    /// The configuration file, if it came from one.
    file: OnceLock<PathBuf>,
}

/// Where the process is in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Life {
    Serving,
    Draining,
    Finished,
}

impl Shared {
    /// A process that begins to serve with this state, with `loops` event loops and as many threads
    /// for TCP.
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

    /// The state of the moment. A connection takes it once and keeps it.
    pub fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Puts `config` in force: most of it for new connections and streams, some of it at once. What takes
    /// effect at the next start only stays as it is. Returns which keys have other values, by when they
    /// take effect.
    ///
    /// # Errors
    /// As [`State::new`]; the old state stays.
    pub fn reload(&self, mut config: Config) -> Result<Changes, Error> {
        let old = self.state();
        let mut changes = config.replace(&old.config);
        let plan = Plan::beside(config, Some(old.running()))?;
        let findings = check::standing(&plan);
        let state = State::open(plan, Some(&old))?;
        changes.compare_files(&state.contents, &old.contents);
        findings.iter().for_each(|finding| tracing::warn!("{}", finding.text()));
        logging::set_level(state.config.log.level);
        self.state.store(Arc::new(state));
        Ok(changes)
    }

    /// The configuration file, if it came from one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.get().map(PathBuf::as_path)
    }

    /// The configuration came from this file. Only the first one counts.
    pub(crate) fn set_file(&self, path: &Path) {
        let _ = self.file.set(path.to_owned());
    }

    /// Starts the drain: no new connections, and the running ones end with their open requests. Returns whether it
    /// had not started before.
    pub fn drain(&self) -> bool {
        self.life.send_if_modified(|life| {
            let begins = *life == Life::Serving;
            if begins {
                *life = Life::Draining;
            }
            begins
        })
    }

    /// The drain is over.
    pub(crate) fn finish(&self) {
        self.life.send_replace(Life::Finished);
    }

    /// The log of closed connections, if there is one.
    pub(crate) fn log(&self) -> Option<&Arc<ConnectionLog>> {
        self.log.as_ref()
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

    /// Stores an event loop's report.
    pub(crate) fn report(&self, core: u8, report: Report) {
        let mut loops = lock(&self.loops);
        let core = usize::from(core);
        if loops.len() <= core {
            loops.resize(core + 1, Report::default());
        }
        loops[core] = report;
    }

    /// Signs of life of all threads that must not hang.
    pub(crate) fn pulses(&self) -> &[Arc<Pulse>] {
        &self.pulses
    }

    /// Signs of life of QUIC's event loops, of TCP's runtimes, and of the main runtime, which has everything else.
    pub(crate) fn pulses_by_kind(&self) -> [&[Arc<Pulse>]; 3] {
        let loops = self.pulses.len() / 2;
        let (quic, others) = self.pulses.split_at(loops);
        let (tcp, main) = others.split_at(loops);
        [quic, tcp, main]
    }

    /// What may be held of the server.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Lines of the log of closed connections that were lost.
    pub(crate) fn log_lines_lost(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.lost())
    }

    /// What keeps the process from living on, as one line each: it will end itself soon.
    pub(crate) fn ailments(&self) -> Vec<String> {
        let silences = self.pulses.iter().map(|pulse| (pulse.name(), pulse.silence()));
        let silent = silences.filter(|(_, silence)| *silence >= supervisor::UNHEALTHY_AFTER);
        silent
            .map(|(name, silence)| format!("{name}: no turn for {:.1} s", silence.as_secs_f64()))
            .collect()
    }

    /// Why no further viewers should come, as one line each.
    pub(crate) fn obstacles(&self) -> Vec<String> {
        let draining = self.is_draining().then(|| "draining".to_owned());
        self.ailments().into_iter().chain(draining).collect()
    }

    /// All event loops together, about a second ago.
    pub(crate) fn loops(&self) -> Report {
        let mut sum = Report::default();
        lock(&self.loops).iter().for_each(|report| sum.add(report));
        sum
    }
}
