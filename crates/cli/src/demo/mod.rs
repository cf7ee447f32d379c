//! `mendcast demo`: everything in one process. The server, a publisher of the built-in clip over
//! real RTMP, and one lossy link with an unmodified viewer per cohort. A table shows the viewers
//! each second, and the differences at the end. Dashboard and side-by-side players are at the
//! printed URLs.
//!
//! The links have the same settings and the same seed, so the n-th packet of each has the same
//! fate. Each viewer comes from a network of its own, because that is what divides viewers who
//! bring no token.

mod choice;
mod outcome;
mod publisher;
mod table;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use clap::Args;
use edge::Unit;
use edge::config::{Config, Level, LogFormat};
use edge::passes::ViewerId;
use edge::{Edge, Shared};
use links::{LinkConfig, Loss, PathConfig, Queue, parse_duration, parse_rate};
use qoe::Policy;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use units::Rate;

use crate::error::Error;
use crate::link::{ClientAccess, Relay};
use crate::watch::{self, Trust};
use outcome::{DemoOutcome, Difference};
use table::LiveTable;

/// The stream's name.
const STREAM: &str = "live/demo";
/// Additional buffer of the page's players in Chromium. Chromium itself needs some 250 ms: without
/// loss, 220 ms freezes and 300 ms does not. The page's players only catch up when their delay is
/// 1.5 times the target.
const CHROMIUM_EXTRA_BUFFER: Duration = Duration::from_millis(100);
/// Largest buffer that the page accepts.
const MAX_BUFFER: Duration = Duration::from_secs(10);
/// Networks that are tried for a viewer of each cohort: 127.0.N.0/24.
const NETWORKS: core::ops::Range<u8> = 1..255;

const EXAMPLES: &str = "\
Examples:
  mendcast demo
  mendcast demo --seconds 60 --json
  mendcast demo --loss independent --rtt 150ms --player low-latency

Ctrl-C ends the demo. It prints the URLs of the dashboard and of players side by side.";
const LINK: &str = "Link";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Duration, in seconds, up to 86400 [default: until Ctrl-C].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Player: low-latency, mobile, cautious, or buffer:TIME.
    ///
    /// buffer:300ms keeps a buffer of that length, from 100 ms to 10 s.
    #[arg(long, default_value = choice::PLAYER, value_name = "PLAYER")]
    player: Policy,
    /// Print the outcome as one JSON object at the end, and no table.
    #[arg(long)]
    json: bool,
    /// Loss towards each viewer.
    ///
    /// Such as calls:rate=5%, or independent: 5 % of the packets. docs/reproduce/links.md has all
    /// models.
    #[arg(
        long,
        default_value = choice::LOSS,
        value_name = "LOSS",
        value_parser = choice::loss,
        help_heading = LINK
    )]
    loss: String,
    /// Round-trip propagation time.
    #[arg(
        long,
        default_value = choice::RTT,
        value_name = "TIME",
        value_parser = parse_duration,
        help_heading = LINK
    )]
    rtt: Duration,
    /// Rate of the bottleneck.
    #[arg(long, default_value = choice::RATE, value_parser = parse_rate, help_heading = LINK)]
    rate: Rate,
    /// Queue of the bottleneck.
    #[arg(long, default_value = "128kB", value_name = "SIZE", help_heading = LINK)]
    queue: String,
    /// Random seed; the same for all links.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = LINK)]
    seed: u64,
}

/// The cohorts and their schemes: plain retransmission, the default, and the papers' schemes.
const COHORTS: [(&str, &str); 4] =
    [(PLAIN, "arq"), (DEFAULT, "deadline"), ("autorec", "autorec"), ("art", "art-paper")];
const PLAIN: &str = "arq";
const DEFAULT: &str = "deadline";

/// A viewer of one cohort behind its link.
struct CohortViewer {
    cohort: &'static str,
    id: ViewerId,
    pass: String,
    link: SocketAddr,
    /// Another such link, for the player in the browser: on one link they would be in each other's
    /// way.
    page: SocketAddr,
    /// Latest report of the viewer.
    seen: Arc<Mutex<Option<watch::WatchReport>>>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        edge::logging::start(Level::Warn, LogFormat::Text).map_err(Error::new)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::at("runtime"))?;
        runtime.block_on(self.show())
    }

    async fn show(self) -> Result<(), Error> {
        let path = self.path()?;
        let edge = Edge::open(config()?).map_err(Error::new)?;
        let shared = edge.shared().clone();
        let server = edge.listeners().first().ok_or("no listener")?.address;
        let rtmp = *edge.rtmp().first().ok_or("no RTMP listener")?;
        let admin = edge.admin();
        let server_thread = serve(edge)?;

        let mut links = Vec::new();
        let mut viewers = Vec::new();
        for (cohort, _) in COHORTS {
            let network = network_of(&shared, cohort)?;
            let mut link = || {
                let listen = ([127, 0, 0, 1], 0).into();
                let access = ClientAccess { from: vec![network], ..ClientAccess::default() };
                let relay = Relay::open(listen, server, &path, access, self.seed)?;
                let link = DemoLink::start(relay)?;
                let address = link.address;
                links.push(link);
                Ok::<_, Error>(address)
            };
            let id = ViewerId::random();
            let pass = shared.state().passes.page(id, SystemTime::now());
            let (link, page) = (link()?, link()?);
            viewers.push(CohortViewer { cohort, id, pass, link, page, seen: Arc::default() });
        }

        let mut publishing = tokio::spawn(publisher::publish(rtmp, STREAM));
        wait_for_stream(&shared, &mut publishing).await?;
        for viewer in &viewers {
            viewer.start(server, self.player)?;
        }
        if !self.json {
            self.introduce(&shared, server, rtmp, admin, &viewers);
        }

        let begun = Instant::now();
        let end = self.seconds.map(|seconds| begun + Duration::from_secs(seconds));
        let mut table = LiveTable::new();
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                failed = &mut publishing => return Err(ended(failed)),
                _ = tokio::signal::ctrl_c() => break,
                () = sleep_until(end.unwrap_or(begun)), if end.is_some() => break,
                _ = ticks.tick() => if !self.json {
                    table.show(begun.elapsed(), &self.outcomes(&shared, &viewers));
                },
            }
        }
        let outcomes = self.outcomes(&shared, &viewers);
        let seconds = begun.elapsed().as_secs_f64();
        let difference = Difference::between(PLAIN, DEFAULT, &outcomes, seconds);
        if self.json {
            print_line!("{}", self.result(seconds, &outcomes, difference));
        } else {
            table.end(begun.elapsed(), &outcomes);
            if let Some(difference) = difference {
                print_line!("\n{difference}");
            }
        }
        publishing.abort();
        shared.drain();
        drop(links);
        // The viewers are cut off with it; a thread that panicked has said so.
        let _ = tokio::task::spawn_blocking(move || server_thread.join()).await;
        Ok(())
    }

    fn path(&self) -> Result<PathConfig, Error> {
        let loss: Loss =
            self.loss.parse().map_err(Error::at(format_args!("--loss {}", self.loss)))?;
        let queue: Queue =
            self.queue.parse().map_err(Error::at(format_args!("--queue {}", self.queue)))?;
        let (rate, delay) = (Some(self.rate), Some(self.rtt / 2));
        let link = LinkConfig { rate, delay, queue, ..LinkConfig::default() };
        let mut path = PathConfig::both(link);
        path.down.loss = Some(loss);
        Ok(path)
    }

    fn result(
        &self,
        seconds: f64,
        outcomes: &[DemoOutcome],
        difference: Option<Difference>,
    ) -> Value {
        let viewers: Vec<Value> = outcomes.iter().map(DemoOutcome::json).collect();
        json!({
            "seconds": (seconds * 10.0).round() / 10.0,
            "link": self.link_json(),
            "player": self.player.to_string(),
            "viewers": viewers,
            "difference": difference.map(|difference| difference.json()),
        })
    }

    fn link_json(&self) -> Value {
        json!({
            "rate": self.rate.to_string(),
            "rtt_ms": self.rtt.as_secs_f64() * 1e3,
            "queue": self.queue,
            "loss": self.loss,
            "seed": self.seed,
        })
    }

    fn introduce(
        &self,
        shared: &Shared,
        server: SocketAddr,
        rtmp: SocketAddr,
        admin: Option<SocketAddr>,
        viewers: &[CohortViewer],
    ) {
        print_line!(
            "A publisher sends the built-in clip to rtmp://{rtmp}/{STREAM}; unmodified QUIC clients"
        );
        print_line!(
            "watch it over HTTP/3, each through {}, {:?} RTT and {} loss, with the player {}.",
            self.rate,
            self.rtt,
            self.loss,
            self.player
        );
        print_line!("{}", choice::explain(&self.loss, self.rtt, self.rate, self.player));
        print_line!();
        print_line!("directly      https://{server}/{STREAM}.flv");
        if let Some(admin) = admin {
            print_line!("dashboard     http://{admin}/");
            print_line!("side by side, each player through a link of the same kind, in Chromium:");
            let origins: Vec<String> = viewers.iter().map(|v| v.page.to_string()).collect();
            let chromium = shared.state().identity().chromium(&origins);
            if let Some(chromium) = chromium {
                print_line!("  {chromium} \"{}\"", self.side_by_side(admin, viewers));
            }
        }
        print_line!();
    }

    /// The page with a player for each viewer.
    fn side_by_side(&self, admin: SocketAddr, viewers: &[CohortViewer]) -> String {
        let buffer = (self.player.buffer() + CHROMIUM_EXTRA_BUFFER).min(MAX_BUFFER).as_millis();
        let mut url =
            format!("http://{admin}/side-by-side.html?stream={STREAM}&buffer_ms={buffer}");
        for viewer in viewers {
            url += &format!("&player={}=https://{}", viewer.cohort, viewer.page);
        }
        url
    }

    fn outcomes(&self, shared: &Shared, viewers: &[CohortViewer]) -> Vec<DemoOutcome> {
        let sessions = shared.state().sessions.all();
        let outcome = |viewer: &CohortViewer| {
            let mine = |s: &&Arc<edge::sessions::Session>| s.opening().viewer == viewer.id;
            DemoOutcome {
                cohort: viewer.cohort,
                policy: self.player,
                seen: viewer.seen.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                record: sessions.iter().rev().find(mine).map(|session| session.record()),
            }
        };
        viewers.iter().map(outcome).collect()
    }
}

/// The server's configuration.
fn config() -> Result<Config, Error> {
    // The papers' schemes as they are: the default bound is for the default scheme.
    let mut text = String::from(
        "server.listen = \"127.0.0.1:0\"\nrtmp.listen = \"127.0.0.1:0\"\n\
         admin.listen = \"127.0.0.1:0\"\ndrain.timeout = \"100ms\"\n\
         recovery.max_redundancy = 0.5\nrecovery.max_redundancy_of_all = 0.25\n",
    );
    for (name, scheme) in COHORTS {
        text += &format!("[[cohort]]\nname = \"{name}\"\nscheme = \"{scheme}\"\n");
    }
    Config::parse("demo", &text).map_err(Error::new)
}

/// Runs the server on a thread of its own.
fn serve(edge: Edge) -> Result<JoinHandle<()>, Error> {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let served = runtime.map(|runtime| runtime.block_on(edge.serve()));
        if let Ok(Err(e)) = served {
            tracing::error!("server: {e}");
        }
    };
    std::thread::Builder::new().name("edge".into()).spawn(run).map_err(Error::new)
}

/// An address of this machine in the cohort's network.
fn network_of(shared: &Shared, cohort: &str) -> Result<IpAddr, Error> {
    let state = shared.state();
    NETWORKS
        .map(|n| IpAddr::from([127, 0, n, 1]))
        .find(|&address| state.cohorts.of(Unit::of_network(address)).name == cohort)
        .ok_or_else(|| {
            Error::new(format_args!("no network of this machine is in the cohort {cohort}"))
        })
}

/// A lossy link on a thread of its own, which ends when it is dropped.
struct DemoLink {
    address: SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl DemoLink {
    fn start(mut relay: Relay) -> Result<Self, Error> {
        let address = relay.address()?;
        let (stop, stopped) = UnixStream::pair().map_err(Error::new)?;
        let run = move || {
            if let Err(e) = relay.serve(stopped.as_fd()) {
                tracing::error!("link: {e}");
            }
        };
        let thread = std::thread::Builder::new().name("link".into()).spawn(run);
        let thread = thread.map_err(Error::new)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for DemoLink {
    fn drop(&mut self) {
        // The other end becomes readable.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Why the publisher ended, which it does not by itself.
fn ended(result: Result<Result<(), Error>, tokio::task::JoinError>) -> Error {
    match result {
        Ok(Err(why)) => why,
        _ => "the publisher ended".into(),
    }
}

/// Waits until there is something to watch.
async fn wait_for_stream(
    shared: &Shared,
    publishing: &mut tokio::task::JoinHandle<Result<(), Error>>,
) -> Result<(), Error> {
    let live = || {
        let stream = shared.state().live.streams.get(STREAM);
        stream.is_some_and(|stream| stream.with_cache(|cache| cache.groups().next().is_some()))
    };
    while !live() {
        tokio::select! {
            failed = &mut *publishing => return Err(ended(failed)),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
    Ok(())
}

impl CohortViewer {
    /// Watches until the process ends, and reconnects when needed.
    fn start(&self, server: SocketAddr, player: Policy) -> Result<(), Error> {
        let mut viewer = watch::WatchViewer::new(watch::WatchOptions {
            url: format!("https://{server}/{STREAM}.flv"),
            connect: Some(self.link),
            trust: Trust::Anyone,
            limit: None,
            reports: true,
            pass: Some(self.pass.clone()),
            player,
        })?;
        let (seen, cohort) = (self.seen.clone(), self.cohort);
        tokio::spawn(async move {
            loop {
                let note = |report: &watch::WatchReport| {
                    *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
                };
                if let Err(why) = viewer.view(note).await {
                    tracing::warn!("viewer of {cohort}: {why}");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        Ok(())
    }
}
