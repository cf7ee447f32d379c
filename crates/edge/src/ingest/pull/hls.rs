//! An upstream that is an HLS origin. Fetching stands beside handing out: a task fetches, one
//! resource ahead, and a [`Pacer`] hands out what has come.
//!
//! One segment that is broken or missing is left out, and a playlist that fails is asked for again:
//! the pull ends when there was nothing to hand out for too long.

use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use media::hls::pull::{Action, Choice, FailureOutcome, Pull, Request, Subject};
use media::{Deviation, Tag};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use units::Timestamp;
use url::Url;

use super::http::{Upstream, body, check, is_whole};
use super::pacer::Pacer;
use super::trouble::{Notes, Reason, Trouble};
use crate::client::no_answer;
use crate::redacted::Redacted;

/// So many target durations may pass without media, whatever the rule's time-out is: a segment is
/// announced when it is complete, and may take as long as it lasts to come.
const PATIENCE: u32 = 3;
/// Wait after what was of no use, so that a playlist of thousands of such segments costs no storm.
const AFTER_BROKEN: Duration = Duration::from_millis(100);

/// What a fetch gave.
struct Batch {
    tags: Vec<Tag>,
    /// Segments that are known beyond it; `None` if the stream has ended.
    behind: Option<usize>,
    target: Duration,
}

pub(super) struct HlsSource {
    batches: mpsc::Receiver<Result<Batch, Trouble>>,
    pacer: Pacer,
    limit: Duration,
    /// Longest time without anything to hand out.
    patience: Duration,
    /// When there was something last.
    fed: Instant,
    /// How the fetches ended.
    end: Option<Result<(), Trouble>>,
    /// The task that fetches, which ends with this.
    _fetcher: JoinSet<()>,
}

impl HlsSource {
    /// Starts to fetch. `first` is the response to the GET of the upstream's URL.
    pub(super) fn start(
        upstream: Upstream,
        first: (Url, Response<Incoming>),
        choice: Choice,
        limit: Duration,
        notes: Notes,
    ) -> Self {
        let pull = Pull::new(upstream.url().clone(), choice);
        let start = Instant::now();
        let first = Some(first);
        let fetcher = Fetcher { pull, upstream, first, loaded: false, start, limit, notes };
        // One fetch waits here while the next one is under way.
        let (sender, batches) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(fetcher.run(sender));
        let (patience, pacer) = (limit, Pacer::default());
        Self { batches, pacer, limit, patience, fed: start, end: None, _fetcher: tasks }
    }

    /// The next tag, in its time; `None` at the end. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Result<Option<Tag>, Trouble> {
        loop {
            let due = self.pacer.due(Instant::now());
            if let (None, Some(end)) = (due, &self.end) {
                return end.clone().map(|()| None);
            }
            let until = due.unwrap_or(self.fed + self.patience);
            let takes = self.end.is_none() && self.pacer.has_room();
            tokio::select! {
                batch = self.batches.recv(), if takes => match batch {
                    Some(Ok(batch)) => self.take(batch),
                    Some(Err(trouble)) => self.end = Some(Err(trouble)),
                    None => self.end = Some(Ok(())),
                },
                () = sleep_until(until) => {
                    if due.is_none() {
                        return Err(Trouble::silence(self.patience));
                    }
                    self.fed = Instant::now();
                    return Ok(self.pacer.pop(self.fed));
                }
            }
        }
    }

    fn take(&mut self, batch: Batch) {
        let Batch { tags, behind, target } = batch;
        self.patience = self.limit.max(target * PATIENCE);
        if !tags.is_empty() {
            self.fed = Instant::now();
        }
        let behind = behind.map(|segments| target * u32::try_from(segments).unwrap_or(u32::MAX));
        self.pacer.push(tags, behind.map(|behind| (behind, target)));
    }
}

struct Fetcher {
    pull: Pull,
    upstream: Upstream,
    /// The response to the first request.
    first: Option<(Url, Response<Incoming>)>,
    /// Whether there was a playlist of segments.
    loaded: bool,
    start: Instant,
    limit: Duration,
    notes: Notes,
}

impl Fetcher {
    async fn run(mut self, batches: mpsc::Sender<Result<Batch, Trouble>>) {
        // Nothing is fetched before there is room for it.
        while let Ok(room) = batches.reserve().await {
            match self.batch().await {
                Ok(Some(batch)) => room.send(Ok(batch)),
                Ok(None) => return,
                Err(trouble) => return room.send(Err(trouble)),
            }
        }
    }

    /// What is fetched next; `None` at the end of the stream.
    async fn batch(&mut self) -> Result<Option<Batch>, Trouble> {
        loop {
            let now = Timestamp::ZERO + self.start.elapsed();
            let request = match self.pull.next(now) {
                Action::Wait(time) => {
                    sleep(time.max(Duration::from_millis(1))).await;
                    continue;
                }
                Action::End => return Ok(None),
                Action::Fetch(request) => request,
            };
            let taken = match self.fetch(&request).await {
                Ok(body) => self.on_body(&request, &body)?,
                Err(trouble) => self.on_failure(&request, trouble).map(|()| None)?,
            };
            let Some(tags) = taken else {
                sleep(AFTER_BROKEN).await;
                continue;
            };
            let target = self.pull.target();
            self.loaded |= !target.is_zero();
            while let Some(codec) = self.pull.poll_unsupported() {
                let text = format!("codec {codec} is not supported and left out");
                self.notes.note(Trouble::new(Reason::Codec, text));
            }
            if self.loaded && (request.kind == Subject::Playlist || !tags.is_empty()) {
                return Ok(Some(Batch { tags, behind: self.pull.pending_segments(), target }));
            }
        }
    }

    /// The tags in what came; `None` if it was of no use, and the pull goes on.
    fn on_body(&mut self, request: &Request, body: &Bytes) -> Result<Option<Vec<Tag>>, Trouble> {
        let taken = self.pull.on_response(body);
        self.notes.tolerate(self.pull.deviations());
        let error = match taken {
            Ok(tags) => return Ok(Some(tags)),
            Err(error) => error,
        };
        let trouble = Trouble::from(error);
        if error.is_final() || !self.loaded {
            return Err(trouble);
        }
        let trouble = trouble.of(named(request));
        match request.kind {
            Subject::Playlist => self.notes.note(trouble),
            Subject::Map | Subject::Segment => self.notes.left_out(trouble),
        }
        Ok(None)
    }

    fn on_failure(&mut self, request: &Request, trouble: Trouble) -> Result<(), Trouble> {
        let trouble = trouble.of(named(request));
        let now = Timestamp::ZERO + self.start.elapsed();
        match self.pull.on_failure(now) {
            Ok(FailureOutcome::Retry) => tracing::debug!("{}", trouble.text),
            Ok(FailureOutcome::Skipped) => self.notes.left_out(trouble),
            Err(_) if self.loaded => self.notes.note(trouble),
            Err(_) => return Err(trouble),
        }
        Ok(())
    }

    /// The body that a request asks for. A connection that stays silent is given up early enough to
    /// try another.
    async fn fetch(&mut self, request: &Request) -> Result<Bytes, Trouble> {
        let pause = self.limit / 2;
        let limit = self.limit.max(self.pull.target() * 2);
        let first = self.first.take();
        let answered = async {
            let (from, response) = match first {
                Some(first) => first,
                None => {
                    let got = self.upstream.get(&request.url, request.range);
                    timeout(pause, got).await.map_err(|_| no_answer(pause))??
                }
            };
            check(&response)?;
            if is_whole(&response, request.range) {
                self.notes.tolerate([(Deviation::HttpRange, 1)].into_iter());
            }
            self.pull.on_redirect(from);
            body(response, request.range, request.max_bytes, pause).await
        };
        timeout(limit, answered).await.map_err(|_| no_answer(limit))?
    }
}

/// What a request was for, without secrets.
fn named(request: &Request) -> String {
    format!("{} {}", request.kind, Redacted(&request.url))
}

#[cfg(test)]
mod tests;
