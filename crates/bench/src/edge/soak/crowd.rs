//! The healthy viewers: each comes, watches for a while, goes, and comes again. When follows from seeds, which
//! differ from phase to phase: two phases are independent samples of the same viewers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Buf as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::media::clock;
use super::super::watch::endpoints;
use super::view::{Meter, View};
use crate::client;
use crate::identity::NAME;

/// Threads, each with a runtime.
const THREADS: u32 = 2;
/// They come one after the other, this far apart.
const APART: Duration = Duration::from_millis(10);
/// The first view of each viewer ends after this and does not count: all come at once in it, which is
/// how a soak begins and not how viewers come and go.
pub(super) const WARM_UP: Duration = Duration::from_secs(5);
/// Who has no picture by then gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest stay.
const LEAST: Duration = Duration::from_millis(500);
/// Failures that are printed for each thread.
const TOLD: usize = 5;

/// How the viewers come and go.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    /// The number of the first: seeds and clusters go by it.
    pub first: u32,
    /// Viewers at the same time.
    pub viewers: u32,
    /// The longest that one stays.
    pub stay: Duration,
    /// Where they connect.
    pub address: SocketAddr,
    /// Holds the certificate.
    pub dir: PathBuf,
}

/// The views of a phase.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// Those that count.
    pub counted: Vec<View>,
    /// Views in all, the first of each viewer included.
    pub came: u64,
    /// Those of them that had media.
    pub had_media: u64,
}

/// The viewers, in threads of their own.
pub(super) struct Crowd {
    threads: Vec<JoinHandle<Result<Views, String>>>,
    ends: watch::Sender<bool>,
}

impl Crowd {
    pub(super) fn start(manner: &Manner) -> Self {
        let (ends, ended) = watch::channel(false);
        let threads = (0..THREADS)
            .map(|thread| {
                let (manner, ended) = (manner.clone(), ended.clone());
                std::thread::spawn(move || view(thread, &manner, &ended))
            })
            .collect();
        Self { threads, ends }
    }

    /// Ends all views; returns what they had.
    pub(super) fn leave(self) -> Result<Views, String> {
        // Threads that have failed do not listen.
        let _ = self.ends.send(true);
        let mut all = Views::default();
        for thread in self.threads {
            let views = thread.join().map_err(|_| "a viewers' thread panicked")??;
            all.counted.extend(views.counted);
            all.came += views.came;
            all.had_media += views.had_media;
        }
        Ok(all)
    }
}

/// One thread's viewers, until the end.
fn view(thread: u32, manner: &Manner, ended: &watch::Receiver<bool>) -> Result<Views, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let tls = client::tls(Path::new(&manner.dir), "h3")?;
    runtime.block_on(async {
        let endpoints = endpoints(&tls)?;
        let mut viewers = tokio::task::JoinSet::new();
        let slots = (thread..manner.viewers).step_by(THREADS as usize);
        for (slot, endpoint) in slots.zip(endpoints.iter().cycle()) {
            let viewer = Viewer {
                number: manner.first + slot,
                comes: APART * slot,
                stay: manner.stay,
                address: manner.address,
                endpoint: endpoint.clone(),
                ended: ended.clone(),
            };
            viewers.spawn(viewer.come_and_go());
        }
        let (mut all, mut told) = (Views::default(), 0);
        while let Some(views) = viewers.join_next().await {
            let mut views = views.map_err(|e| format!("a viewer: {e}"))?;
            for why in views.iter().filter_map(|view| view.failure.as_ref()) {
                told += 1;
                if told <= TOLD {
                    println!("      a view failed: {why}");
                }
            }
            all.came += views.len() as u64;
            all.had_media += views.iter().filter(|view| view.first.is_some()).count() as u64;
            all.counted.extend(views.drain(1.min(views.len())..));
        }
        for endpoint in endpoints {
            endpoint.close(0u8.into(), b"");
            // Its last packets may be lost as well.
            let _ = timeout(Duration::from_secs(3), endpoint.wait_idle()).await;
        }
        Ok(all)
    })
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// One viewer, who comes again as soon as it has gone.
struct Viewer {
    number: u32,
    /// Its first view begins this long after the phase.
    comes: Duration,
    stay: Duration,
    address: SocketAddr,
    endpoint: quinn::Endpoint,
    ended: watch::Receiver<bool>,
}

impl Viewer {
    async fn come_and_go(mut self) -> Vec<View> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.number.into());
        let mut views = Vec::new();
        sleep(self.comes).await;
        let mut stays = WARM_UP;
        // A phase that fails lets go of its viewers without a word.
        while !*self.ended.borrow() && self.ended.has_changed().is_ok() {
            views.push(self.once(stays).await);
            let millis = (self.stay.as_millis() as u64).max(1);
            stays = LEAST + Duration::from_millis(rng.next_u64() % millis);
        }
        views
    }

    /// One view. It ends in the middle of what is under way. Who fails has nothing for the rest of the stay,
    /// and comes again when it would have: all come and go the same way whatever they get.
    async fn once(&mut self, stays: Duration) -> View {
        let mut meter = Meter::new(clock());
        let (mut connection, mut failure) = (None, None);
        let view = async {
            let Err(e) = self.watch(&mut meter, &mut connection).await;
            failure = Some(e.to_string());
            leave(&mut connection);
            std::future::pending::<()>().await;
        };
        let mut ended = self.ended.clone();
        tokio::select! {
            _ = timeout(stays, view) => {}
            _ = ended.wait_for(|&ends| ends) => {}
        }
        leave(&mut connection);
        meter.end(clock(), self.number, failure)
    }

    /// Watches until something fails.
    async fn watch(
        &self,
        meter: &mut Meter,
        connected: &mut Option<quinn::Connection>,
    ) -> Result<Infallible, Failure> {
        let end_of_patience = tokio::time::Instant::now() + PATIENCE;
        let mut stream = tokio::time::timeout_at(end_of_patience, async {
            let connection = self.endpoint.connect(self.address, NAME)?.await?;
            *connected = Some(connection.clone());
            let transport = h3_quinn::Connection::new(connection);
            let (mut driver, mut requests) = h3::client::new(transport).await?;
            // It ends with the connection.
            tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
            let uri = format!("https://{NAME}/live/bench.flv");
            let mut stream = requests.send_request(http::Request::get(uri).body(())?).await?;
            stream.finish().await?;
            let response = stream.recv_response().await?;
            if response.status() != 200 {
                return Err(Failure::from(format!("status {}", response.status())));
            }
            // The connection stays open as long as somebody may send requests.
            Ok((stream, requests))
        })
        .await
        .map_err(|_| "no response in time")??;
        loop {
            let next = stream.0.recv_data();
            let data = match meter.has_media() {
                true => next.await?,
                false => tokio::time::timeout_at(end_of_patience, next)
                    .await
                    .map_err(|_| "no picture in time")??,
            };
            let Some(mut data) = data else { return Err("the stream ended".into()) };
            while data.has_remaining() {
                let length = data.chunk().len();
                meter.read(clock(), data.chunk())?;
                data.advance(length);
            }
        }
    }
}

/// Ends the connection, if there is one, so that the server knows.
fn leave(connection: &mut Option<quinn::Connection>) {
    if let Some(connection) = connection.take() {
        connection.close(0x100u16.into(), b"");
    }
}
