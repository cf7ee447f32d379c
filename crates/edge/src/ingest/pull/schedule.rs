//! Which upstream a stream is pulled from, and for how long.
//!
//! Upstreams are tried in order; the next one when one fails, and all of them again after a
//! growing wait while there are viewers. While a later one serves, the first is tried again in the
//! background, and the pull moves back when it gives a key frame. A stream none of whose upstreams
//! ever gave a frame ends at once, and is not asked for again for a while.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use media::{Role, Tag};
use relay::Stream;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::source::Source;
use super::trouble::{Notes, Reason, Trouble};
use super::via::Via;
use crate::config;
use crate::entropy::random;
use crate::ingest::Entry;
use crate::live::settings;
use crate::redacted::Redacted;
use crate::state::State;

/// Waits between rounds of all upstreams, doubling from the first to the last.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];
/// Waits before the first upstream is tried again while another serves.
const FAIL_BACK: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(300)];
/// Tags without a key frame after which a stream counts as one without pictures, if none came.
const MAX_SOUND: usize = 100;
/// A viewer is given this long to arrive after the pull began.
const GRACE: Duration = Duration::from_secs(2);

/// The pull of one stream.
pub(super) struct Puller {
    state: Arc<State>,
    rule: config::Pull,
    stream: Arc<Stream>,
    notes: Notes,
    /// Through whom the first viewer came.
    via: Via,
}

/// Why an attempt ended.
enum End {
    /// The upstream failed, or its stream is over.
    Failed(Trouble),
    /// Somebody publishes the stream here.
    Replaced,
    /// The first upstream serves again.
    Back(Opened),
}

/// An upstream that serves.
struct Opened {
    source: Source,
    /// What it gave so far.
    tags: Vec<Tag>,
}

impl Puller {
    pub(super) fn new(
        state: Arc<State>,
        rule: config::Pull,
        stream: Arc<Stream>,
        via: Via,
    ) -> Self {
        let notes = Notes::new(state.live.clone(), stream.name());
        Self { state, rule, stream, notes, via }
    }

    pub(super) async fn run(self) {
        let name = self.stream.name().to_owned();
        tracing::info!("{name}: pulled");
        self.state.live.events.count("pull_started");
        {
            let mut unwatched = pin!(self.unwatched());
            let mut pulled = pin!(self.pull());
            let mut cancelled = pin!(self.cancelled());
            tokio::select! {
                () = &mut cancelled => {
                    tracing::info!("{name}: ended by the operator, pulled no more");
                    self.state.live.pulls.gave_frames(&name);
                }
                () = &mut unwatched => {
                    tracing::info!("{name}: nobody watches, pulled no more");
                    self.state.live.pulls.gave_frames(&name);
                }
                () = &mut pulled => {}
            }
        };
        // Before the stream's end, so that nobody finds a stream that has no pull.
        self.state.live.pulls.end(&name);
        // A publisher of our own who took over keeps it.
        self.state.live.streams.end_after(&self.stream, self.stream.stats().publishers);
    }

    /// Waits until the operator ends the pull.
    async fn cancelled(&self) {
        match self.state.live.pulls.cancelled(self.stream.name()) {
            Some(end) => end.notified().await,
            None => pending().await,
        }
    }

    /// Waits until nobody has watched for a while.
    async fn unwatched(&self) {
        sleep(GRACE).await;
        let mut watched = Instant::now();
        loop {
            let stats = self.stream.stats();
            // Who asks for what nobody waits for holds a place of the rule's few.
            let idle =
                if stats.publishers > 0 { self.rule.idle } else { self.rule.idle.min(GRACE) };
            if stats.viewers > 0 {
                watched = Instant::now();
            } else if watched.elapsed() >= idle {
                return;
            }
            sleep(Duration::from_millis(500).min(idle)).await;
        }
    }

    /// Pulls until it makes no sense any more.
    async fn pull(&self) {
        let live = &self.state.live;
        let (mut lived, mut wait, mut index) = (false, BACK_OFF[0], 0);
        let mut opened = None;
        let mut lived_until = Instant::now();
        while let Some(url) = self.url(index) {
            let shown = Redacted(&url).to_string();
            live.pulls.turn_to(self.stream.name(), shown.clone());
            let mut frames = 0;
            let end = self.attempt(index, opened.take(), &mut frames).await;
            if frames > 0 {
                (lived, wait, lived_until) = (true, BACK_OFF[0], Instant::now());
            }
            match end {
                End::Replaced => return live.pulls.gave_frames(self.stream.name()),
                End::Back(first) => {
                    tracing::info!("{}: back at the first upstream", self.stream.name());
                    live.events.count("pull_failback");
                    (index, opened) = (0, Some(first));
                    continue;
                }
                End::Failed(trouble) => self.notes.failed(&shown, trouble),
            }
            index += 1;
            if index < self.rule.upstream.len() {
                live.events.count("pull_failover");
                continue;
            }
            // As for a publisher who is gone: viewers are told that the stream is over.
            let linger = self.state.config.live.linger;
            let left = linger.saturating_sub(lived_until.elapsed());
            if !lived || left.is_zero() {
                if lived {
                    let name = self.stream.name();
                    tracing::info!("{name}: over, no upstream has had it for {linger:?}");
                }
                return;
            }
            sleep(wait.min(left)).await;
            (index, wait) = (0, (wait * 2).min(BACK_OFF[1]));
        }
    }

    /// Where the upstream of this number has the stream.
    fn url(&self, index: usize) -> Option<Url> {
        let name = self.stream.name();
        let start = self.rule.stream.strip_suffix('*').unwrap_or(&self.rule.stream);
        let tail = name.strip_prefix(start).unwrap_or(name);
        self.rule.upstream.get(index)?.url(name, tail)
    }

    async fn open(&self, index: usize) -> Result<Source, Trouble> {
        let url = self.url(index).ok_or_else(|| Trouble::new(Reason::Content, "no URL"))?;
        let client = self.state.clients.of(self.rule.ca_file.as_deref());
        let live = &self.state.config.live;
        Source::open(client, url, &self.rule, live, self.notes.clone(), &self.via).await
    }

    /// Pulls from one upstream, which may be open already.
    async fn attempt(&self, index: usize, opened: Option<Opened>, frames: &mut u64) -> End {
        let opened = match opened {
            Some(opened) => Ok(opened),
            None => self.open(index).await.map(|source| Opened { source, tags: Vec::new() }),
        };
        let Opened { mut source, tags } = match opened {
            Ok(opened) => opened,
            Err(trouble) => return End::Failed(trouble),
        };
        let mut publisher = None;
        for tag in tags {
            if let Err(end) = self.push(&mut publisher, tag, frames) {
                return end;
            }
        }
        let mut first = pin!(self.first_again());
        loop {
            let next = tokio::select! {
                opened = &mut first, if index > 0 => return End::Back(opened),
                next = source.next() => next,
            };
            let pushed = match next {
                Ok(Some(tag)) => self.push(&mut publisher, tag, frames),
                Ok(None) => Err(End::Failed(Trouble::new(Reason::Over, "the stream is over"))),
                Err(trouble) => Err(End::Failed(trouble)),
            };
            if let Err(end) = pushed {
                return end;
            }
        }
    }

    fn push(&self, publisher: &mut Option<Entry>, tag: Tag, frames: &mut u64) -> Result<(), End> {
        let live = &self.state.live;
        let publisher = match publisher {
            Some(publisher) => publisher,
            none => {
                let settings = settings(&self.state.config.live);
                let new = live.streams.publish(self.stream.name(), settings);
                live.pulls.fail(self.stream.name(), None);
                none.insert(Entry::new(new.map_err(|refusal| match refusal {
                    relay::Refusal::Busy => End::Replaced,
                    refusal => End::Failed(Trouble::new(Reason::Status, refusal)),
                })?))
            }
        };
        if !tag.role().is_header() {
            *frames += 1;
            if *frames == 1 {
                live.pulls.gave_frames(self.stream.name());
            }
        }
        if publisher.push(tag, &live.repairs) { Ok(()) } else { Err(End::Replaced) }
    }

    /// Waits until the first upstream gives a key frame.
    async fn first_again(&self) -> Opened {
        let mut wait = FAIL_BACK[0];
        loop {
            sleep(jittered(wait)).await;
            match self.open_at_key_frame().await {
                Ok(opened) => return opened,
                Err(trouble) => {
                    tracing::debug!("{}: first upstream: {}", self.stream.name(), trouble.text);
                }
            }
            wait = (wait * 2).min(FAIL_BACK[1]);
        }
    }

    /// The first upstream from its first key frame on, with the headers before it.
    async fn open_at_key_frame(&self) -> Result<Opened, Trouble> {
        let limit = self.rule.timeout * 4;
        let opened = async {
            let mut source = self.open(0).await?;
            let (mut tags, mut sounds, mut has_pictures) = (Vec::<Tag>::new(), 0, false);
            loop {
                let next = source.next().await?;
                let tag = next.ok_or_else(|| Trouble::new(Reason::Over, "the stream is over"))?;
                has_pictures |= tag.kind() == media::Kind::Video;
                sounds += usize::from(!has_pictures);
                if tag.role().is_header() {
                    tags.retain(|known| known.kind() != tag.kind());
                    tags.push(tag);
                } else if tag.role() == Role::KeyFrame || sounds > MAX_SOUND {
                    tags.push(tag);
                    return Ok(Opened { source, tags });
                }
            }
        };
        timeout(limit, opened).await.unwrap_or_else(|_| Err(Trouble::silence(limit)))
    }
}

/// Between three and five quarters of this, so that pulls of one dead upstream do not come back at
/// the same time.
fn jittered(wait: Duration) -> Duration {
    let byte = random().unwrap_or_default()[0];
    wait.mul_f64(0.75 + f64::from(byte) / 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_by_a_quarter() {
        for _ in 0..100 {
            let wait = jittered(FAIL_BACK[0]).as_secs_f64();
            assert!((7.5..12.5).contains(&wait), "{wait}");
        }
    }
}
