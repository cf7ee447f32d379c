//! Soak test: healthy viewers come and go on a lossy link for a long time, while hostile neighbours
//! attack the same server.
//!
//! It has two phases on one server: without neighbours for [`ALONE_SHARE`] of the time, then with
//! neighbours. In each phase the viewers join at its start and leave by its end, with durations
//! from the same distribution and different seeds. Results are compared per second of view
//! ([`judge`]). A broken rule fails the soak.
//!
//! Besides the neighbours, honest newcomers publish over RTMP and view over TCP, where places are
//! scarce. The server must admit them.
//!
//! The neighbours ([`neighbours`]) have their own addresses, 127.0.1.x and up, while the viewers
//! share 127.0.0.2. Limits apply per address, so by design a viewer with an attacker's address
//! shares its quota. Neighbours bypass the link, at rates stated in each file. All processes share
//! the server's machine; their CPU times are printed.

mod crowd;
mod hook;
mod judge;
mod log;
mod neighbours;
mod outcome;
mod records;
mod server;
mod view;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::link;
use super::publisher::{Ingest, Publisher};
use super::servers;
use crate::Failure;
use crate::loopback::receive_errors;
use crowd::{Crowd, Manner, Views};
use hook::HookServer;

use log::LogMeter;
use neighbours::{Neighbours, Target};
use outcome::{Beside, RuleVerdict, SoakOutcome};
use records::Records;
use server::{Look, Observed, Servants};

/// Share of the time without neighbours.
const ALONE_SHARE: f64 = 0.2;
/// Minimum duration of that phase, for smoke tests.
const MIN_ALONE: Duration = Duration::from_secs(30);
/// Descriptors for the neighbours' several thousand connections.
const DESCRIPTORS: u64 = 16_384;

/// Value of `--neighbours` that disables them.
const NO_NEIGHBOURS: &str = "off";

/// Run viewers for a long time, with and without hostile neighbours
#[derive(Debug, clap::Args)]
pub(crate) struct Soak {
    /// Concurrent viewers
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..))]
    viewers: u32,
    /// Total minutes; below 30 only a smoke test, with too few freezes to compare
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Loss towards the viewers
    #[arg(long, default_value = "3%")]
    loss: String,
    /// Maximum duration of a view in seconds
    #[arg(long, default_value_t = 60)]
    stay: u64,
    /// Only neighbours with this in their names; `off` for none at all
    #[arg(long, default_value = "", value_name = "TEXT")]
    neighbours: String,
    /// Further sections of the server's configuration, for example to make the soak fail: `[quic]`
    /// with `max_connections = 50`, as one argument with line breaks
    #[arg(long, default_value = "", value_name = "TOML")]
    settings: String,
}

/// CPU times since the start of the soak.
#[derive(Clone, Copy)]
struct Time {
    at: Instant,
    server: Duration,
    link: Duration,
    /// This process: viewers, publisher and neighbours.
    own: Duration,
    machine: Option<(u64, u64)>,
    /// Datagrams dropped on this machine because of full receive buffers.
    overflows: u64,
}

/// Everything that runs for the whole soak.
struct SoakStage {
    observed: Observed,
    link: servers::Process,
    manner: Manner,
}

impl Soak {
    pub(crate) fn run(self, mendcast: PathBuf) -> Result<(), Failure> {
        raise_descriptors()?;
        let dir = tempfile::tempdir()?;
        super::identity(dir.path())?;
        let upstream = server::silent_upstream()?;
        let hook = HookServer::start()?;
        let servants = Servants { upstream: upstream.local_addr()?, hook: hook.address };
        let log = LogMeter::default();
        let (server, admin) =
            server::start(&mendcast, dir.path(), &servants, &self.settings, log.clone())?;
        let flags = ["--from", server::VIEWERS_ADDRESS, "--rtt", "40ms", "--loss-down", &self.loss];
        let (link, address) = link::start(&mendcast, server.address, &flags)?;
        let publisher = Publisher::start(&server.ingest)?;
        std::thread::sleep(super::turn::LEAD);
        let Ingest::Rtmp(rtmp) = server.ingest else { return Err("no RTMP".into()) };
        let mut stage = SoakStage {
            observed: Observed { admin, pid: server.process.0.id(), start: Instant::now() },
            link,
            manner: Manner {
                first: 0,
                viewers: self.viewers,
                stay: Duration::from_secs(self.stay),
                address,
                dir: dir.path().to_owned(),
            },
        };
        let all = Duration::from_secs(self.minutes * 60);
        let is_alone = self.neighbours == NO_NEIGHBOURS;
        let alone = if is_alone { all } else { all.mul_f64(ALONE_SHARE).max(MIN_ALONE) };
        println!("{} viewers, {} loss, 40 ms", self.viewers, self.loss);
        let (views, mut looks) = stage.phase("without neighbours", alone)?;
        stage.manner.first += self.viewers;
        let empty = stage.observed.look_until_empty()?;
        let (mut beside, mut last) = (None, empty.clone());
        if !is_alone {
            let target = Target { web: server.address, rtmp, dir: dir.path().to_owned() };
            let neighbours = Neighbours::start(target.clone(), &self.neighbours)?;
            let newcomers = Neighbours::newcomers(target)?;
            let (views, with) = stage.phase("with neighbours", all.saturating_sub(alone))?;
            let (newcomers, _) = newcomers.leave()?;
            let (neighbours, cpu) = neighbours.leave()?;
            println!("      of this process, neighbours took {:.0} s", cpu.as_secs_f64());
            beside = Some(Beside { views, neighbours, newcomers });
            looks = with;
            last = stage.observed.look_until_empty()?;
        }
        println!("      limits rejected or ended {} connections", last.limited);
        publisher.stop()?;
        // The server writes the remaining records at its end.
        super::wake::end(server.process)?;
        let records = Records::read(&dir.path().join("records"))?;
        let log = log.size();
        tell(&SoakOutcome { alone: (views, empty), beside, looks, last, records, log }.verdicts())
    }
}

impl SoakStage {
    /// Runs viewers for `length`. Returns their views and the samples of the server.
    fn phase(&self, name: &str, length: Duration) -> Result<(Views, Vec<Look>), Failure> {
        println!("{name}, {:.1} min", length.as_secs_f64() / 60.0);
        let before = self.time()?;
        let crowd = Crowd::start(&self.manner);
        let looks = self.observed.look_for(length)?;
        let views = crowd.leave()?;
        self.time()?.tell_since(&before);
        tell_views(&views);
        Ok((views, looks))
    }

    fn time(&self) -> Result<Time, Failure> {
        Ok(Time {
            at: Instant::now(),
            server: servers::cpu(self.observed.pid)?,
            link: servers::cpu(self.link.0.id())?,
            own: own_cpu(),
            machine: servers::machine(),
            overflows: receive_errors(),
        })
    }
}

/// Time of this process alone. Its children are the server and the link.
fn own_cpu() -> Duration {
    cpu_time::ProcessTime::now().as_duration()
}

impl Time {
    fn tell_since(&self, before: &Self) {
        let wall = self.at.duration_since(before.at).as_secs_f64();
        let part = |now: Duration, then: Duration| {
            let spent = now.saturating_sub(then).as_secs_f64();
            format!("{spent:.0} s ({:.0} %)", spent / wall * 100.0)
        };
        println!(
            "      CPU time: server {}, link {}, this process {}",
            part(self.server, before.server),
            part(self.link, before.link),
            part(self.own, before.own)
        );
        let Some((now, then)) = self.machine.zip(before.machine) else { return };
        let busy = (now.0 - then.0) as f64 / ((now.1 - then.1) as f64).max(1.0);
        println!(
            "      the machine was busy for {:.0} % of its time; {} datagrams dropped by full \
             buffers",
            busy * 100.0,
            self.overflows - before.overflows
        );
        if busy > 0.95 {
            println!("      it is saturated: viewers are affected by more than the server");
        }
    }
}

fn tell_views(views: &Views) {
    let counted = &views.counted;
    let seconds: f64 = counted.iter().map(|view| view.lasted.as_secs_f64()).sum();
    let bytes: u64 = counted.iter().map(|view| view.bytes).sum();
    let first = judge::first_frames(counted, [0.5, 0.95, 0.99]).map(|wait| wait.as_millis());
    println!(
        "      {} views of {:.0} s on average, {:.2} GB; {:.2} % of the published media; first \
         frame after {} ms (median), {} ms (p95), {} ms (p99)",
        counted.len(),
        seconds / counted.len().max(1) as f64,
        bytes as f64 * 1e-9,
        judge::share(counted) * 100.0,
        first[0],
        first[1],
        first[2],
    );
}

/// Prints the rules and whether they hold.
///
/// # Errors
/// A rule is broken.
fn tell(verdicts: &[RuleVerdict]) -> Result<(), Failure> {
    for RuleVerdict { rule, holds, figures } in verdicts {
        println!("{}  {rule}: {figures}", if *holds { "PASS" } else { "FAIL" });
    }
    match verdicts.iter().filter(|verdict| !verdict.holds).count() {
        0 => Ok(()),
        failed => {
            Err(format!("the soak failed: {failed} of {} rules are broken", verdicts.len()).into())
        }
    }
}

/// Raises the descriptor limit up to the number needed, within the system's hard limit.
fn raise_descriptors() -> Result<(), Failure> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let limits = getrlimit(Resource::RLIMIT_NOFILE);
    let (soft, hard) = limits?;
    let wanted = soft.max(DESCRIPTORS).min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map_err(Into::into)
}
