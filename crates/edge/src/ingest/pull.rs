//! Streams pulled from an upstream, on the first viewer and while somebody watches: RTMP, HTTP-FLV
//! or HLS. One pull serves any number of viewers.
//!
//! Upstreams are tried in order; the next one when one fails, and all of them again after a
//! growing wait while there are viewers. A stream none of whose upstreams ever gave a frame ends
//! at once, and is not asked for again for a while.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Limited};
use hyper::Response;
use hyper::body::Incoming;
use media::hls::pull::{Action, Choice, Pull as HlsPull};
use media::{Tag, flv, rtmp};
use relay::{Publisher, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use units::Timestamp;

use crate::client;
use crate::config;
use crate::entropy::noise;
use crate::live::{Pull, settings};
use crate::names::{is_name, matches};
use crate::state::State;

/// Waits between rounds of all upstreams, doubling from the first to the last.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];
/// A viewer is given this long to arrive after the pull began.
const GRACE: Duration = Duration::from_secs(2);
/// Media of an HLS upstream that waits for its time.
const AHEAD_MS: u32 = 6_000;

/// The stream, pulled from now on if it is not already; `None` if no rule names it, or it could not be had
/// a moment ago.
pub fn start(state: &Arc<State>, name: &str) -> Option<Arc<Stream>> {
    let rule = rule(state, name)?;
    let runtime = state.runtime.get()?;
    let (live, settings) = (&state.live, settings(&state.config.live));
    let (stream, found) = live.pulls.begin(name, || live.streams.open(name, settings).ok())?;
    if found == Pull::Free {
        let pull = Puller { state: state.clone(), rule: rule.clone(), stream: stream.clone() };
        runtime.spawn(pull.run());
    }
    Some(stream)
}

/// Whether [`start`] would have a stream.
pub fn may_start(state: &State, name: &str) -> bool {
    rule(state, name).is_some() && state.live.pulls.may_begin(name)
}

/// The rule that names the stream.
fn rule<'a>(state: &'a State, name: &str) -> Option<&'a config::Pull> {
    let rules = &mut state.config.pull.iter();
    rules.find(|rule| matches(&rule.stream, name)).filter(|_| is_name(name))
}

struct Puller {
    state: Arc<State>,
    rule: config::Pull,
    stream: Arc<Stream>,
}

/// Why an attempt ended.
enum End {
    /// The upstream failed, or its stream is over.
    Failed(String),
    /// Somebody publishes the stream here.
    Replaced,
}

impl Puller {
    async fn run(self) {
        let name = self.stream.name().to_owned();
        tracing::info!("{name}: pulled");
        self.state.live.events.count("pull_started");
        let lives = {
            let mut unwatched = pin!(self.unwatched());
            let mut pulled = pin!(self.pull());
            tokio::select! {
                () = &mut unwatched => {
                    tracing::info!("{name}: nobody watches, pulled no more");
                    true
                }
                lived = &mut pulled => lived,
            }
        };
        // Before the stream's end, so that nobody finds a stream that has no pull.
        self.state.live.pulls.end(&name, lives);
        // A publisher of our own who took over keeps it.
        self.state.live.streams.end_after(&self.stream, self.stream.stats().publishers);
    }

    /// Waits until nobody has watched for a while.
    async fn unwatched(&self) {
        sleep(GRACE).await;
        let mut watched = Instant::now();
        while watched.elapsed() < self.rule.idle {
            if self.stream.stats().viewers > 0 {
                watched = Instant::now();
            }
            sleep(Duration::from_millis(500).min(self.rule.idle)).await;
        }
    }

    /// Pulls until it makes no sense any more. Returns whether there ever was a frame.
    async fn pull(&self) -> bool {
        let name = self.stream.name();
        let live = &self.state.live;
        let start = self.rule.stream.strip_suffix('*').unwrap_or(&self.rule.stream);
        let tail = name.strip_prefix(start).unwrap_or(name);
        let mut lived = false;
        let mut wait = BACK_OFF[0];
        loop {
            for (index, upstream) in self.rule.upstream.iter().enumerate() {
                let url = upstream.replace("{name}", name).replace("{tail}", tail);
                live.pulls.update(name, |pull| pull.upstream.clone_from(&url));
                if index > 0 {
                    live.events.count("pull_failover");
                }
                let mut frames = 0;
                let end = self.attempt(&url, &mut frames).await;
                if frames > 0 {
                    (lived, wait) = (true, BACK_OFF[0]);
                }
                match end {
                    End::Replaced => return true,
                    End::Failed(why) => {
                        tracing::warn!("{name}: upstream {url}: {why}");
                        live.events.count("pull_failed");
                        live.pulls.update(name, |pull| pull.error = Some(why));
                    }
                }
            }
            if !lived {
                return false;
            }
            sleep(wait).await;
            wait = (wait * 2).min(BACK_OFF[1]);
        }
    }

    async fn attempt(&self, url: &str, frames: &mut u64) -> End {
        let limit = self.rule.timeout;
        let source = if url.starts_with("rtmp://") {
            Source::rtmp(url, &self.state.config.live, limit).await
        } else {
            Source::http(url, &self.state.config.live, limit).await
        };
        let mut source = match source {
            Ok(source) => source,
            Err(why) => return End::Failed(why),
        };
        let mut publisher: Option<Publisher> = None;
        loop {
            let tag = match timeout(limit, source.next()).await {
                Ok(Ok(Some(tag))) => tag,
                Ok(Ok(None)) => return End::Failed("the stream is over".into()),
                Ok(Err(why)) => return End::Failed(why),
                Err(_) => return End::Failed(format!("nothing came for {limit:?}")),
            };
            let publisher = match &mut publisher {
                Some(publisher) => publisher,
                none => {
                    let settings = settings(&self.state.config.live);
                    match self.state.live.streams.publish(self.stream.name(), settings) {
                        Ok(new) => {
                            self.state.live.pulls.update(self.stream.name(), |p| p.error = None);
                            none.insert(new)
                        }
                        Err(_) => return End::Replaced,
                    }
                }
            };
            *frames += u64::from(!tag.role().is_header());
            if !publisher.push(tag) {
                return End::Replaced;
            }
        }
    }
}

/// Where tags come from.
enum Source {
    Rtmp(Box<RtmpSource>),
    Flv(Box<FlvSource>),
    Hls(Box<HlsSource>),
}

impl Source {
    async fn rtmp(url: &str, limits: &config::Live, limit: Duration) -> Result<Self, String> {
        let target = rtmp::Url::parse(url).map_err(|e| e.to_string())?;
        let connect = TcpStream::connect((target.host.as_str(), target.port));
        let stream =
            timeout(limit, connect).await.map_err(|_| format!("no answer within {limit:?}"))?;
        let stream = stream.map_err(|e| e.to_string())?;
        let _ = stream.set_nodelay(true);
        let config =
            rtmp::Config { max_message: limits.max_tag.as_usize(), ..rtmp::Config::default() };
        let client = rtmp::Client::new(target, rtmp::Intent::Play, config, &noise());
        Ok(Self::Rtmp(Box::new(RtmpSource {
            stream,
            client,
            input: BytesMut::new(),
            written: Ok(()),
        })))
    }

    async fn http(url: &str, limits: &config::Live, limit: Duration) -> Result<Self, String> {
        let is_playlist = |path: &str| path.split('?').next().is_some_and(|p| p.ends_with(".m3u8"));
        if is_playlist(url) {
            return Ok(Self::Hls(Box::new(HlsSource::new(url, limit))));
        }
        let response = client::get(url, None, limit).await.map_err(|e| e.to_string())?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("status {status}"));
        }
        let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        if kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("mpegurl")) {
            return Ok(Self::Hls(Box::new(HlsSource::new(url, limit))));
        }
        let reader = flv::Reader::new(limits.max_tag.as_usize());
        Ok(Self::Flv(Box::new(FlvSource { response, reader })))
    }

    /// The next tag; `None` at the end. May be dropped while it waits.
    async fn next(&mut self) -> Result<Option<Tag>, String> {
        match self {
            Self::Rtmp(source) => source.next().await,
            Self::Flv(source) => source.next().await,
            Self::Hls(source) => source.next().await,
        }
    }
}

struct RtmpSource {
    stream: TcpStream,
    client: rtmp::Client,
    input: BytesMut,
    /// Why nothing more can be sent.
    written: Result<(), String>,
}

impl RtmpSource {
    async fn next(&mut self) -> Result<Option<Tag>, String> {
        loop {
            while let Some(event) = self.client.poll_event() {
                match event {
                    rtmp::ClientEvent::Tag(tag) => return Ok(Some(tag)),
                    rtmp::ClientEvent::Refused(why) => return Err(format!("refused: {why}")),
                    rtmp::ClientEvent::Ended => return Ok(None),
                    rtmp::ClientEvent::Playing | rtmp::ClientEvent::Publishing => {}
                }
            }
            while let Some(bytes) = self.client.poll_output() {
                if let Err(e) = self.stream.write_all(&bytes).await {
                    // A server that refuses may have left; what it said is still there to be read.
                    self.written = Err(e.to_string());
                }
            }
            self.input.reserve(65_536);
            let read = self.stream.read_buf(&mut self.input).await;
            if read.map_err(|e| e.to_string())? == 0 {
                return self.written.clone().map(|()| None);
            }
            let handled = self.client.handle(&self.input);
            self.input.clear();
            handled.map_err(|e| e.to_string())?;
        }
    }
}

struct FlvSource {
    response: Response<Incoming>,
    reader: flv::Reader,
}

impl FlvSource {
    async fn next(&mut self) -> Result<Option<Tag>, String> {
        loop {
            if let Some(tag) = self.reader.next_tag() {
                return Ok(Some(tag));
            }
            match self.response.body_mut().frame().await {
                None => return Ok(None),
                Some(frame) => {
                    let frame = frame.map_err(|e| e.to_string())?;
                    if let Ok(data) = frame.into_data() {
                        self.reader.read(&data).map_err(|e| e.to_string())?;
                    }
                }
            }
        }
    }
}

/// Segments come in bursts; their tags leave in their own time.
struct HlsSource {
    pull: HlsPull,
    origin: Instant,
    limit: Duration,
    tags: VecDeque<Tag>,
    /// When the tag of that media time left or leaves.
    base: Option<(Instant, u32)>,
}

impl HlsSource {
    fn new(url: &str, limit: Duration) -> Self {
        let pull = HlsPull::new(url.to_owned(), Choice::Highest);
        Self { pull, origin: Instant::now(), limit, tags: VecDeque::new(), base: None }
    }

    async fn next(&mut self) -> Result<Option<Tag>, String> {
        loop {
            let due = self.due();
            let ahead = match (self.tags.front(), self.tags.back()) {
                (Some(first), Some(last)) => last.timestamp().wrapping_sub(first.timestamp()),
                _ => 0,
            };
            if let Some(due) = due
                && (due <= Instant::now() || (AHEAD_MS..1 << 31).contains(&ahead))
            {
                tokio::time::sleep_until(due).await;
                return Ok(self.tags.pop_front());
            }
            let now = Timestamp::ZERO + self.origin.elapsed();
            match self.pull.next(now) {
                Action::Fetch(request) => {
                    let range = request.range.map(|(first, count)| {
                        format!("bytes={first}-{}", first + count.max(1) - 1)
                    });
                    let body = fetch(&request.url, range.as_deref(), request.max_bytes, self.limit);
                    match body.await {
                        Ok(body) => {
                            let tags = self.pull.on_response(&body).map_err(|e| e.to_string())?;
                            self.tags.extend(tags);
                        }
                        Err(why) => {
                            tracing::debug!("{}: {why}", request.url);
                            let now = Timestamp::ZERO + self.origin.elapsed();
                            self.pull.on_failure(now).map_err(|e| format!("{e}: {why}"))?;
                        }
                    }
                }
                Action::Wait(wait) => {
                    let until = Instant::now() + wait.max(Duration::from_millis(1));
                    let until = due.map_or(until, |due| due.min(until));
                    tokio::time::sleep_until(until).await;
                }
                Action::End => match self.due() {
                    Some(due) => {
                        tokio::time::sleep_until(due).await;
                        return Ok(self.tags.pop_front());
                    }
                    None => return Ok(None),
                },
            }
        }
    }

    /// When the next tag leaves. Late ones leave at once, and those behind them later by as much.
    fn due(&mut self) -> Option<Instant> {
        let time = self.tags.front()?.timestamp();
        let now = Instant::now();
        let (at, base) = *self.base.get_or_insert((now, time));
        let step = time.wrapping_sub(base) as i32;
        // Audio and video are interleaved, and a stream may begin anew.
        let due = match step {
            -1_000..0 => at,
            0..60_000 => at + Duration::from_millis(step as u64),
            _ => now,
        };
        let due = due.max(now);
        if step >= 0 {
            self.base = Some((due, time));
        } else if step < -1_000 {
            self.base = Some((now, time));
        }
        Some(due)
    }
}

async fn fetch(
    url: &str,
    range: Option<&str>,
    max: usize,
    limit: Duration,
) -> Result<Bytes, String> {
    timeout(limit, async {
        let response = client::get(url, range, limit).await.map_err(|e| e.to_string())?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("status {status}"));
        }
        let body = Limited::new(response.into_body(), max).collect().await;
        Ok(body.map_err(|e| e.to_string())?.to_bytes())
    })
    .await
    .map_err(|_| format!("not within {limit:?}"))?
}
