//! Publisher and viewers of Media over QUIC for `mendcast-bench products`, on the product's own
//! client crates.
//!
//!     mendcast-moq publish RELAY NAME CERTIFICATE STREAMS
//!     mendcast-moq watch RELAY NAME CERTIFICATE STREAMS VIEWERS
//!
//! A stream is a broadcast `live/benchN` with one track. Its groups are groups of pictures, and its
//! frames are FLV tags. The publisher prints `publishing` once the relay has accepted it. The
//! viewers report like the viewers of all products.

// All products share streams and counters, and so these source files. The benchmark's crate would
// bring the dependencies of the whole product into this workspace.
#[path = "../../../crates/bench/src/edge/media.rs"]
#[allow(dead_code)]
mod streams;
#[path = "../../../crates/bench/src/edge/tally.rs"]
#[allow(dead_code)]
mod tally;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use media::Tag;
use media::flv::{Kind, HEADER_LEN};
use moq_net::track::{self, Subscription};
use moq_net::{Timestamp, broadcast, group};
use moq_tokio::connect::{Addr, Config};

use streams::{Streams, TagSource, clock, published_in};
use tally::{CountedViewer, JOIN_INTERVAL};

/// An error, printed as one line.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str =
    "usage: mendcast-moq publish|watch RELAY NAME CERTIFICATE STREAMS [VIEWERS, of watch]";
/// Name of the track.
const TRACK: &str = "flv";
/// Threads of the viewers, each with a runtime, as for the other products.
const THREADS: usize = 2;
/// Maximum time to connect.
const PATIENCE: Duration = Duration::from_secs(15);
/// Lag of a group after which a viewer skips it: as with the other products, no media is skipped.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The relay and its certificate.
#[derive(Clone)]
struct Relay {
    address: SocketAddr,
    name: String,
    certificate: PathBuf,
}

impl Relay {
    /// Returns a client with a socket of its own.
    fn client(&self) -> Result<moq_tokio::Client, Failure> {
        let mut config = Config::default();
        config.bind = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.tls.root = vec![self.certificate.clone()];
        Ok(config.init(Default::default())?.with_reconnect(false))
    }

    fn location(&self) -> Result<Addr, Failure> {
        let url = format!("moql://{}/", self.name).parse()?;
        Ok(Addr::pinned(url, [self.address])?)
    }
}

/// Returns the path of a stream.
fn path(stream: usize) -> String {
    format!("live/bench{stream}")
}

/// Publishes until killed.
async fn publish(relay: Relay, streams: usize) -> Result<(), Failure> {
    let origin = moq_tokio::origin::spawn();
    let mut broadcasts = Vec::new();
    let mut tracks = Vec::new();
    for stream in 0..streams {
        let broadcast = origin.create_broadcast(path(stream))?;
        let track = track::Info::default().with_max_age(MAX_AGE);
        tracks.push(PublishedTrack { track: broadcast.create_track(TRACK, track)?, group: None });
        broadcast.announce(Default::default())?;
        broadcasts.push(broadcast);
    }
    // The relay may not listen yet.
    let client = relay.client()?.with_reconnect(true).with_publisher(&origin);
    let connection = client.connect(relay.location()?);
    let connection = tokio::time::timeout(PATIENCE, connection.established()).await??;
    println!("publishing");
    // The runtime's timers are too coarse for the streams.
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || ended.send(feed(tracks, streams)));
    tokio::select! {
        result = end => result?,
        result = connection.closed() => Ok(result?),
    }
}

/// Writes frames at their times.
fn feed(mut tracks: Vec<PublishedTrack>, count: usize) -> Result<(), Failure> {
    let (start, mut streams) = (Instant::now(), Streams::new(count));
    loop {
        let (stream, due) = streams.due();
        std::thread::sleep((start + due).saturating_duration_since(Instant::now()));
        let (tag, is_key) = streams.next(stream);
        tracks[stream].put(&tag, is_key)?;
    }
}

struct PublishedTrack {
    track: track::Producer,
    group: Option<group::Producer>,
}

impl PublishedTrack {
    /// Writes a tag. A key frame starts a group, after the sequence headers.
    fn put(&mut self, tag: &Tag, is_key: bool) -> Result<(), Failure> {
        let time = Timestamp::from_millis(tag.timestamp().into())?;
        if is_key {
            if let Some(group) = self.group.take() {
                group.finish()?;
            }
            let mut group = self.track.append_group()?;
            for header in TagSource::headers() {
                group.write_frame(time, header.bytes().clone())?;
            }
            self.group = Some(group);
        }
        match &mut self.group {
            Some(group) => Ok(group.write_frame(time, tag.bytes().clone())?),
            // Sound before the first picture.
            None => Ok(()),
        }
    }
}

/// Watches the streams, each with an equal share of the viewers.
fn watch(relay: &Relay, streams: usize, viewers: usize) -> Result<(), Failure> {
    tally::raise_file_limit();
    let counts = Arc::new(AtomicBool::new(false));
    let viewers: Vec<Arc<CountedViewer>> = (0..viewers).map(|_| Arc::default()).collect();
    for thread in 0..THREADS {
        let (relay, counts, viewers) = (relay.clone(), counts.clone(), viewers.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                let own = viewers.into_iter().enumerate().skip(thread).step_by(THREADS);
                for (index, viewer) in own {
                    let (relay, counts) = (relay.clone(), counts.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(JOIN_INTERVAL * index as u32).await;
                        let result = view(&relay, index % streams.max(1), &viewer, &counts).await;
                        let failure = result.map_or_else(|e| e.to_string(), |()| "ended".into());
                        viewer.tally().failure = Some(failure);
                    });
                }
                // The process ends with its main thread.
                std::future::pending::<()>().await;
            });
        });
    }
    tally::report(&viewers, &counts)
}

/// Views a stream until it ends.
async fn view(
    relay: &Relay,
    stream: usize,
    viewer: &CountedViewer,
    counts: &AtomicBool,
) -> Result<(), Failure> {
    let origin = moq_tokio::origin::spawn();
    let connection = relay.client()?.with_subscriber(origin.clone()).connect(relay.location()?);
    let _connection = tokio::time::timeout(PATIENCE, connection.established()).await??;
    let broadcast = origin.consume().routed_broadcast(path(stream)).await?;
    let mut track = subscribe(&broadcast).await?;
    while let Some(mut group) = track.next_group().await? {
        while let Some(frame) = group.read_frame().await? {
            take(&frame.payload, viewer, counts.load(Ordering::Relaxed));
        }
    }
    Ok(())
}

async fn subscribe(broadcast: &broadcast::Consumer) -> Result<track::Ordered, Failure> {
    let subscription = Subscription::default().with_max_age(MAX_AGE);
    Ok(broadcast.track(TRACK)?.subscribe(subscription).await?.ordered())
}

/// Counts an FLV tag with its header and its trailing size.
fn take(tag: &[u8], viewer: &CountedViewer, counts: bool) {
    let now = clock();
    let mut tally = viewer.tally();
    tally.has_joined = true;
    if !counts {
        return;
    }
    tally.bytes += tag.len() as u64;
    let kind = match tag.first() {
        Some(8) => Kind::Audio,
        Some(9) => Kind::Video,
        _ => return,
    };
    if let Some(then) = tag.get(HEADER_LEN..).and_then(|rest| published_in(kind, rest)) {
        tally.arrived(kind, then, now);
    }
}

fn run() -> Result<(), Failure> {
    // As all viewers of the benchmark: a client that offers a single cipher forces it on the server.
    let mut provider = Arc::unwrap_or_clone(moq_tokio::crypto::provider());
    provider
        .cipher_suites
        .retain(|suite| suite.suite().as_str() == Some("TLS13_AES_128_GCM_SHA256"));
    provider.install_default().map_err(|_| "TLS has another provider")?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, address, name, certificate, numbers @ ..] = &words[..] else {
        return Err(USAGE.into());
    };
    let relay = Relay {
        address: address.parse()?,
        name: name.clone(),
        certificate: PathBuf::from(certificate),
    };
    match (role.as_str(), numbers) {
        ("publish", [streams]) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(publish(relay, streams.parse()?))
        }
        ("watch", [streams, viewers]) => watch(&relay, streams.parse()?, viewers.parse()?),
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mendcast-moq: {error}");
            ExitCode::FAILURE
        }
    }
}
