//! Selection of upstreams, and the lifetime of a pull.
//!
//! Upstreams are tried in order. When the last one fails, the next round starts after a growing
//! delay while there are viewers. While a later upstream serves, the first is probed in the
//! background, and the pull fails back when it gives a key frame. If no upstream ever gave a frame,
//! the pull ends after one round, and the name is rejected for a while.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use media::{Role, Tag};
use relay::Stream;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::report::{PullError, Reason, Reporter};
use super::selection::selection;
use super::source::PullSource;
use super::via::Via;
use crate::config;
use crate::entropy::jitter;
use crate::ingest::PublisherInput;
use crate::live::settings;
use crate::redacted::Redacted;
use crate::state::State;

/// Minimum and maximum delay between rounds of all upstreams, doubling.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];
/// Minimum and maximum delay between probes of the first upstream, doubling.
const FAIL_BACK: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(300)];
/// Leading audio tags after which a stream counts as audio only.
const MAX_LEADING_AUDIO_TAGS: usize = 100;
/// Time for the first viewer to arrive after the pull began.
const VIEWER_GRACE: Duration = Duration::from_secs(2);

/// The task that pulls one stream.
pub(super) struct Puller {
    state: Arc<State>,
    rule: config::Pull,
    stream: Arc<Stream>,
    reporter: Reporter,
    /// Servers that the first viewer's request passed.
    via: Via,
}

/// Reason why an attempt ended.
enum AttemptEnd {
    /// The upstream failed, or its stream is over.
    Failed(PullError),
    /// A publisher of this server took the stream over.
    Replaced,
    /// The first upstream serves again.
    FailBack(OpenUpstream),
}

/// A serving upstream.
struct OpenUpstream {
    source: PullSource,
    /// Tags already received.
    tags: Vec<Tag>,
}

impl Puller {
    pub(super) fn new(
        state: Arc<State>,
        rule: config::Pull,
        stream: Arc<Stream>,
        via: Via,
    ) -> Self {
        let reporter = Reporter::new(state.live.clone(), stream.name());
        Self { state, rule, stream, reporter, via }
    }

    pub(super) async fn run(self) {
        let name = self.stream.name().to_owned();
        tracing::info!("{name}: pull started");
        self.state.live.events.count("pull_started");
        {
            let mut unwatched = pin!(self.unwatched());
            let mut pulled = pin!(self.pull());
            let mut cancelled = pin!(self.cancelled());
            tokio::select! {
                () = &mut cancelled => {
                    tracing::info!("{name}: pull stopped: ended by the operator");
                    self.state.live.pulls.gave_frames(&name);
                }
                () = &mut unwatched => {
                    tracing::info!("{name}: pull stopped: no viewers");
                    self.state.live.pulls.gave_frames(&name);
                }
                () = &mut pulled => {}
            }
        };
        // Before the stream ends, so that no request finds a stream without a pull.
        self.state.live.pulls.end(&name);
        // A publisher of this server that took over keeps the stream.
        self.state.live.streams.end_after(&self.stream, self.stream.stats().publishers);
    }

    /// Waits until the operator ends the pull.
    async fn cancelled(&self) {
        match self.state.live.pulls.cancelled(self.stream.name()) {
            Some(end) => end.notified().await,
            None => pending().await,
        }
    }

    /// Waits until the stream has had no viewers for the rule's idle time.
    async fn unwatched(&self) {
        sleep(VIEWER_GRACE).await;
        let mut watched = Instant::now();
        loop {
            let stats = self.stream.stats();
            // Before the first frame, an abandoned pull must soon release the rule's budget.
            let idle = match stats.publishers {
                0 => self.rule.idle.min(VIEWER_GRACE),
                _ => self.rule.idle,
            };
            if stats.viewers > 0 {
                watched = Instant::now();
            } else if watched.elapsed() >= idle {
                return;
            }
            sleep(Duration::from_millis(500).min(idle)).await;
        }
    }

    /// Pulls until all upstreams failed or a publisher took over.
    async fn pull(&self) {
        let live = &self.state.live;
        let (mut had_frames, mut wait, mut index) = (false, BACK_OFF[0], 0);
        let mut opened = None;
        let mut last_frames_at = Instant::now();
        while let Some(url) = self.url(index) {
            let shown = Redacted(&url).to_string();
            live.pulls.turn_to(self.stream.name(), shown.clone());
            let mut frames = 0;
            let end = self.attempt(index, opened.take(), &mut frames).await;
            if frames > 0 {
                (had_frames, wait, last_frames_at) = (true, BACK_OFF[0], Instant::now());
            }
            match end {
                AttemptEnd::Replaced => return live.pulls.gave_frames(self.stream.name()),
                AttemptEnd::FailBack(first) => {
                    tracing::info!("{}: pull returned to the first upstream", self.stream.name());
                    live.events.count("pull_failback");
                    (index, opened) = (0, Some(first));
                    continue;
                }
                AttemptEnd::Failed(error) => self.reporter.failed(&shown, error),
            }
            index += 1;
            if index < self.rule.upstream.len() {
                live.events.count("pull_failover");
                continue;
            }
            // As after the loss of a publisher, the stream then ends for its viewers.
            let linger = self.state.config.live.linger;
            let left = linger.saturating_sub(last_frames_at.elapsed());
            if !had_frames || left.is_zero() {
                if had_frames {
                    let name = self.stream.name();
                    tracing::info!("{name}: pull stopped: all upstreams failed for {linger:?}");
                }
                return;
            }
            sleep(wait.min(left)).await;
            (index, wait) = (0, (wait * 2).min(BACK_OFF[1]));
        }
    }

    /// Returns the stream's URL at this upstream.
    fn url(&self, index: usize) -> Option<Url> {
        let (name, _) = selection(&self.rule, self.stream.name());
        let start = self.rule.stream.strip_suffix('*').unwrap_or(&self.rule.stream);
        let tail = name.strip_prefix(start).unwrap_or(name);
        self.rule.upstream.get(index)?.url(name, tail)
    }

    async fn open(&self, index: usize) -> Result<PullSource, PullError> {
        let url = self.url(index).ok_or_else(|| PullError::new(Reason::Content, "no URL"))?;
        let client = self.state.clients.of(self.rule.ca_file.as_deref());
        let live = &self.state.config.live;
        PullSource::open(client, url, &self.rule, live, self.reporter.clone(), &self.via).await
    }

    /// Pulls from one upstream, which may already be open.
    async fn attempt(
        &self,
        index: usize,
        opened: Option<OpenUpstream>,
        frames: &mut u64,
    ) -> AttemptEnd {
        let opened = match opened {
            Some(opened) => Ok(opened),
            None => self.open(index).await.map(|source| OpenUpstream { source, tags: Vec::new() }),
        };
        let OpenUpstream { mut source, tags } = match opened {
            Ok(opened) => opened,
            Err(error) => return AttemptEnd::Failed(error),
        };
        let mut publisher = None;
        for tag in tags {
            if let Err(end) = self.push(&mut publisher, tag, frames) {
                return end;
            }
        }
        let mut first = pin!(self.probe_first());
        loop {
            let next = tokio::select! {
                opened = &mut first, if index > 0 => return AttemptEnd::FailBack(opened),
                next = source.next() => next,
            };
            let pushed = match next {
                Ok(Some(tag)) => self.push(&mut publisher, tag, frames),
                Ok(None) => {
                    Err(AttemptEnd::Failed(PullError::new(Reason::Over, "the stream is over")))
                }
                Err(error) => Err(AttemptEnd::Failed(error)),
            };
            if let Err(end) = pushed {
                return end;
            }
        }
    }

    fn push(
        &self,
        publisher: &mut Option<PublisherInput>,
        tag: Tag,
        frames: &mut u64,
    ) -> Result<(), AttemptEnd> {
        let live = &self.state.live;
        let publisher = match publisher {
            Some(publisher) => publisher,
            none => {
                let settings = settings(&self.state.config.live);
                let new = live.streams.publish(self.stream.name(), settings);
                live.pulls.set_error(self.stream.name(), None);
                none.insert(PublisherInput::new(new.map_err(|refusal| match refusal {
                    relay::Refusal::Busy => AttemptEnd::Replaced,
                    refusal => AttemptEnd::Failed(PullError::new(Reason::Status, refusal)),
                })?))
            }
        };
        if !tag.role().is_header() {
            *frames += 1;
            if *frames == 1 {
                live.pulls.gave_frames(self.stream.name());
            }
        }
        if publisher.push(tag, &live.repairs) { Ok(()) } else { Err(AttemptEnd::Replaced) }
    }

    /// Probes the first upstream until it gives a key frame.
    async fn probe_first(&self) -> OpenUpstream {
        let mut wait = FAIL_BACK[0];
        loop {
            sleep(jittered(wait)).await;
            match self.open_at_key_frame().await {
                Ok(opened) => return opened,
                Err(error) => {
                    tracing::debug!("{}: first upstream: {}", self.stream.name(), error.text);
                }
            }
            wait = (wait * 2).min(FAIL_BACK[1]);
        }
    }

    /// Opens the first upstream at its first key frame, with the sequence headers before it.
    async fn open_at_key_frame(&self) -> Result<OpenUpstream, PullError> {
        let limit = self.rule.timeout * 4;
        let opened = async {
            let mut source = self.open(0).await?;
            let (mut tags, mut leading_audio, mut has_video) = (Vec::<Tag>::new(), 0, false);
            loop {
                let next = source.next().await?;
                let tag = next.ok_or_else(|| PullError::new(Reason::Over, "the stream is over"))?;
                has_video |= tag.kind() == media::Kind::Video;
                leading_audio += usize::from(!has_video);
                if tag.role().is_header() {
                    tags.retain(|known| known.kind() != tag.kind());
                    tags.push(tag);
                } else if tag.role() == Role::KeyFrame || leading_audio > MAX_LEADING_AUDIO_TAGS {
                    tags.push(tag);
                    return Ok(OpenUpstream { source, tags });
                }
            }
        };
        timeout(limit, opened).await.unwrap_or_else(|_| Err(PullError::silence(limit)))
    }
}

/// Returns 0.75 to 1.25 of `wait`, so that pulls from one failed upstream do not return together.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.75 + jitter() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_spread_by_a_quarter() {
        for _ in 0..100 {
            let wait = jittered(FAIL_BACK[0]).as_secs_f64();
            assert!((7.5..12.5).contains(&wait), "{wait}");
        }
    }
}
