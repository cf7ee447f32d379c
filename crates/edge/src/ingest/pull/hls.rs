//! An upstream over HLS. A task fetches one resource ahead, and a [`Pacer`] releases the tags.
//!
//! A broken or missing segment is skipped, and a failed playlist is requested again. The pull ends
//! after too long without output.

use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use media::hls::pull::{Action, FailureOutcome, OriginRequest, Pull, Selection, Subject};
use media::{Deviation, Tag};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use units::Timestamp;
use url::Url;

use super::http::{Upstream, body, check, is_whole};
use super::pacer::Pacer;
use super::report::{PullError, Reason, Reporter};
use crate::client::no_answer;
use crate::redacted::Redacted;

/// Minimum silence that ends a pull, in target durations, even if the rule's timeout is shorter: a
/// segment is listed when complete, and its download may take up to its duration.
const MIN_SILENCE_TARGETS: u32 = 3;
/// Delay after a failure, so that thousands of broken segments cause no burst of requests.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Result of a fetch.
struct Batch {
    tags: Vec<Tag>,
    /// Further listed segments; `None` if the stream has ended.
    further: Option<usize>,
    target: Duration,
}

pub(super) struct HlsSource {
    batches: mpsc::Receiver<Result<Batch, PullError>>,
    pacer: Pacer,
    limit: Duration,
    /// Maximum time without tags.
    max_silence: Duration,
    /// Time of the last tag or batch.
    last_media: Instant,
    /// Result of the fetcher.
    end: Option<Result<(), PullError>>,
    /// The fetcher's task, aborted on drop.
    _fetcher: JoinSet<()>,
}

impl HlsSource {
    /// Starts the fetcher. `first` is the response to the GET of the upstream's URL.
    pub(super) fn start(
        upstream: Upstream,
        first: (Url, Response<Incoming>),
        selection: Selection,
        limit: Duration,
        reporter: Reporter,
    ) -> Self {
        let pull = Pull::new(upstream.url().clone(), selection);
        let start = Instant::now();
        let first = Some(first);
        let fetcher = Fetcher { pull, upstream, first, loaded: false, start, limit, reporter };
        // Holds one batch while the next is fetched.
        let (sender, batches) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(fetcher.run(sender));
        Self {
            batches,
            pacer: Pacer::default(),
            limit,
            max_silence: limit,
            last_media: start,
            end: None,
            _fetcher: tasks,
        }
    }

    /// Returns the next tag at its departure time; `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Tag>, PullError> {
        loop {
            let due = self.pacer.due(Instant::now());
            if let (None, Some(end)) = (due, &self.end) {
                return end.clone().map(|()| None);
            }
            let until = due.unwrap_or(self.last_media + self.max_silence);
            let takes = self.end.is_none() && self.pacer.has_room();
            tokio::select! {
                batch = self.batches.recv(), if takes => match batch {
                    Some(Ok(batch)) => self.take(batch),
                    Some(Err(error)) => self.end = Some(Err(error)),
                    None => self.end = Some(Ok(())),
                },
                () = sleep_until(until) => {
                    if due.is_none() {
                        return Err(PullError::silence(self.max_silence));
                    }
                    self.last_media = Instant::now();
                    return Ok(self.pacer.pop(self.last_media));
                }
            }
        }
    }

    fn take(&mut self, batch: Batch) {
        let Batch { tags, further, target } = batch;
        self.max_silence = self.limit.max(target * MIN_SILENCE_TARGETS);
        if !tags.is_empty() {
            self.last_media = Instant::now();
        }
        let further = further.map(|segments| target * u32::try_from(segments).unwrap_or(u32::MAX));
        self.pacer.push(tags, further.map(|further| (further, target)));
    }
}

struct Fetcher {
    pull: Pull,
    upstream: Upstream,
    /// The response to the first request.
    first: Option<(Url, Response<Incoming>)>,
    /// Whether a media playlist was loaded.
    loaded: bool,
    start: Instant,
    limit: Duration,
    reporter: Reporter,
}

impl Fetcher {
    async fn run(mut self, batches: mpsc::Sender<Result<Batch, PullError>>) {
        // Fetch only with room for the result.
        while let Ok(room) = batches.reserve().await {
            match self.batch().await {
                Ok(Some(batch)) => room.send(Ok(batch)),
                Ok(None) => return,
                Err(error) => return room.send(Err(error)),
            }
        }
    }

    /// Fetches the next batch; `None` at the end of the stream.
    async fn batch(&mut self) -> Result<Option<Batch>, PullError> {
        loop {
            let now = Timestamp::ZERO + self.start.elapsed();
            let request = match self.pull.next(now) {
                Action::Wait(time) => {
                    sleep(time.max(Duration::from_millis(1))).await;
                    continue;
                }
                Action::End => {
                    let tags = self.pull.finish();
                    let target = self.pull.target();
                    return Ok((!tags.is_empty()).then_some(Batch { tags, further: None, target }));
                }
                Action::Fetch(request) => request,
            };
            let taken = match self.fetch(&request).await {
                Ok(body) => self.on_body(&request, &body)?,
                Err(error) => self.on_failure(&request, error).map(|()| None)?,
            };
            let Some(tags) = taken else {
                sleep(RETRY_DELAY).await;
                continue;
            };
            let target = self.pull.target();
            self.loaded |= !target.is_zero();
            while let Some(codec) = self.pull.poll_unsupported() {
                let text = format!("codec {codec} is not supported: track dropped");
                self.reporter.warn(PullError::new(Reason::Codec, text));
            }
            if self.loaded && (request.kind == Subject::Playlist || !tags.is_empty()) {
                return Ok(Some(Batch { tags, further: self.pull.pending_segments(), target }));
            }
        }
    }

    /// Returns the tags of a body; `None` if it is unusable and the pull continues.
    fn on_body(
        &mut self,
        request: &OriginRequest,
        body: &Bytes,
    ) -> Result<Option<Vec<Tag>>, PullError> {
        let taken = self.pull.on_response(body);
        self.reporter.tolerate(self.pull.deviations());
        let error = match taken {
            Ok(tags) => return Ok(Some(tags)),
            Err(error) => error,
        };
        let is_fatal = error.is_final() || !self.loaded;
        let error = PullError::from(error);
        if is_fatal {
            return Err(error);
        }
        let error = error.context(subject(request));
        match request.kind {
            Subject::Playlist => self.reporter.warn(error),
            Subject::Map | Subject::Segment => self.reporter.skipped_segment(error),
        }
        Ok(None)
    }

    fn on_failure(&mut self, request: &OriginRequest, error: PullError) -> Result<(), PullError> {
        let error = error.context(subject(request));
        let now = Timestamp::ZERO + self.start.elapsed();
        match self.pull.on_failure(now) {
            Ok(FailureOutcome::Retry) => tracing::debug!("{}", error.text),
            Ok(FailureOutcome::Skipped) => self.reporter.skipped_segment(error),
            Err(_) if self.loaded => self.reporter.warn(error),
            Err(_) => return Err(error),
        }
        Ok(())
    }

    /// Fetches the body of a request. A silent connection is abandoned at half the timeout, which
    /// leaves time for another.
    async fn fetch(&mut self, request: &OriginRequest) -> Result<Bytes, PullError> {
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
                self.reporter.tolerate([(Deviation::HttpRange, 1)].into_iter());
            }
            self.pull.on_redirect(from);
            body(response, request.range, request.max_bytes, pause).await
        };
        timeout(limit, answered).await.map_err(|_| no_answer(limit))?
    }
}

/// Returns the kind and URL of a request, without secrets.
fn subject(request: &OriginRequest) -> String {
    format!("{} {}", request.kind, Redacted(&request.url))
}

#[cfg(test)]
mod tests;
