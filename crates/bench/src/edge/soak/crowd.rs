//! Healthy viewers. Each one joins, watches for a while, leaves, and joins again. The times follow
//! from seeds that differ between phases, so two phases are independent samples of the same
//! viewers.

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
use crate::Failure;
use crate::client;
use crate::identity::NAME;

/// Threads, each with a runtime.
const THREADS: u32 = 2;
/// Interval between joins.
const JOIN_INTERVAL: Duration = Duration::from_millis(10);
/// Duration of each viewer's first view, which does not count: all viewers join at once, unlike in
/// the rest of the soak.
pub(super) const WARM_UP: Duration = Duration::from_secs(5);
/// Time without a picture after which a viewer gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Minimum duration of a view.
const MIN_STAY: Duration = Duration::from_millis(500);
/// Failures printed per thread.
const MAX_PRINTED: usize = 5;

/// Parameters of the viewers.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    /// Number of the first viewer. Seeds and clusters depend on it.
    pub first: u32,
    /// Concurrent viewers.
    pub viewers: u32,
    /// Maximum duration of a view.
    pub stay: Duration,
    /// Address of the server.
    pub address: SocketAddr,
    /// Directory with the certificate.
    pub dir: PathBuf,
}

/// Views of a phase.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// Views that count.
    pub counted: Vec<View>,
    /// All views, including each viewer's first one.
    pub came: u64,
    /// Views that received media.
    pub had_media: u64,
}

/// The viewers, in their own threads.
pub(super) struct Crowd {
    threads: Vec<JoinHandle<Result<Views, Failure>>>,
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

    /// Ends all views and returns their results.
    pub(super) fn leave(self) -> Result<Views, Failure> {
        // Fails for threads that have already failed.
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

/// Runs one thread's viewers until the end.
fn view(thread: u32, manner: &Manner, ended: &watch::Receiver<bool>) -> Result<Views, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tls = client::tls(Path::new(&manner.dir), "h3")?;
    runtime.block_on(async {
        let endpoints = endpoints(&tls)?;
        let mut viewers = tokio::task::JoinSet::new();
        let slots = (thread..manner.viewers).step_by(THREADS as usize);
        for (slot, endpoint) in slots.zip(endpoints.iter().cycle()) {
            let viewer = CrowdViewer {
                number: manner.first + slot,
                comes: JOIN_INTERVAL * slot,
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
                if told <= MAX_PRINTED {
                    println!("      a view failed: {why}");
                }
            }
            all.came += views.len() as u64;
            all.had_media += views.iter().filter(|view| view.first.is_some()).count() as u64;
            all.counted.extend(views.drain(1.min(views.len())..));
        }
        for endpoint in endpoints {
            endpoint.close(0u8.into(), b"");
            // The last packets may be lost as well.
            let _ = timeout(Duration::from_secs(3), endpoint.wait_idle()).await;
        }
        Ok(all)
    })
}

/// A viewer that joins again as soon as it has left.
struct CrowdViewer {
    number: u32,
    /// Start of its first view, after the start of the phase.
    comes: Duration,
    stay: Duration,
    address: SocketAddr,
    endpoint: quinn::Endpoint,
    ended: watch::Receiver<bool>,
}

impl CrowdViewer {
    async fn come_and_go(mut self) -> Vec<View> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.number.into());
        let mut views = Vec::new();
        sleep(self.comes).await;
        let mut stays = WARM_UP;
        // If a phase fails, the sender is dropped.
        while !*self.ended.borrow() && self.ended.has_changed().is_ok() {
            views.push(self.once(stays).await);
            let millis = (self.stay.as_millis() as u64).max(1);
            stays = MIN_STAY + Duration::from_millis(rng.next_u64() % millis);
        }
        views
    }

    /// Runs one view, which ends mid-transfer. A viewer that fails waits for the rest of its stay
    /// before it joins again, so the schedule does not depend on the results.
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

    /// Watches until an error.
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
            // The task ends with the connection.
            tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
            let uri = format!("https://{NAME}/live/bench.flv");
            let mut stream = requests.send_request(http::Request::get(uri).body(())?).await?;
            stream.finish().await?;
            let response = stream.recv_response().await?;
            if response.status() != 200 {
                return Err(Failure::from(format!("status {}", response.status())));
            }
            // The connection stays open as long as a request sender exists.
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

/// Closes the connection, if any, to inform the server.
fn leave(connection: &mut Option<quinn::Connection>) {
    if let Some(connection) = connection.take() {
        connection.close(0x100u16.into(), b"");
    }
}
