//! Thread that writes the recordings of a directory. Tasks never wait for it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::directory::Directory;
use super::retention::remove_old;
use super::segment::{Gap, Settings, WrittenSegment};
use super::take::Take;
use crate::Error;
use crate::config;

/// Interval of log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Message {
    Segment(Box<WrittenSegment>),
    /// The stream ended.
    End(String),
    /// Removes old recordings.
    Tidy(Settings),
}

/// Reason of a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GapReason {
    /// The queue was full, because the disk is slow.
    Queue,
    /// The segment could not be written.
    Disk,
}

/// Counts of a directory, for metrics.
#[derive(Debug, Default)]
pub(crate) struct RecordCounts {
    /// Written segments, and their bytes.
    pub segments: AtomicU64,
    pub bytes: AtomicU64,
    /// Gaps because of a full queue, and because of failures of the disk.
    pub queue_gaps: AtomicU64,
    pub disk_gaps: AtomicU64,
    /// Bytes that wait.
    pub queued: AtomicU64,
    /// Recordings removed because of their age or the total size.
    pub removed: AtomicU64,
    /// Messages that wait.
    pending: AtomicU64,
}

/// Handle of the thread, which ends with it.
#[derive(Debug)]
pub(crate) struct Writer {
    sender: Sender<Message>,
    counts: Arc<RecordCounts>,
}

impl Writer {
    /// Starts the thread of a directory, which is created when the first segment arrives.
    ///
    /// # Errors
    /// If it cannot be started. One line.
    pub(super) fn start(directory: &Path) -> Result<Self, Error> {
        let (sender, receiver) = channel();
        let counts = Arc::new(RecordCounts::default());
        let thread = WriterThread {
            directory: Directory::new(directory),
            counts: counts.clone(),
            takes: HashMap::new(),
            logged: None,
        };
        Builder::new()
            .name("recordings".to_owned())
            .spawn(move || thread.run(&receiver))
            .map_err(|e| Error::new(format!("cannot start the thread of the recordings: {e}")))?;
        Ok(Self { sender, counts })
    }

    /// Queues a segment.
    ///
    /// # Errors
    /// With it, the queue would have more than `limit` bytes. Returns the segment.
    pub(super) fn write(
        &self,
        segment: WrittenSegment,
        limit: u64,
    ) -> Result<(), Box<WrittenSegment>> {
        let (size, segment) = (segment.size(), Box::new(segment));
        let queued = self.counts.queued.fetch_add(size, Ordering::Relaxed);
        if queued > 0 && queued + size > limit {
            self.counts.queued.fetch_sub(size, Ordering::Relaxed);
            return Err(segment);
        }
        self.send(Message::Segment(segment));
        Ok(())
    }

    /// Ends the recording of a stream after its queued segments.
    pub(super) fn end(&self, stream: &str) {
        self.send(Message::End(stream.to_owned()));
    }

    /// Removes old recordings after the queued segments.
    pub(super) fn tidy(&self, rule: &config::Recording) {
        self.send(Message::Tidy(Settings::of(rule)));
    }

    fn send(&self, message: Message) {
        self.counts.pending.fetch_add(1, Ordering::Relaxed);
        // The thread lives as long as the sender, unless it panicked.
        if self.sender.send(message).is_err() {
            self.counts.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_gap(&self, reason: GapReason) {
        self.counts.count_gap(reason);
    }

    /// Returns true if everything is written.
    pub(super) fn is_idle(&self) -> bool {
        self.counts.pending.load(Ordering::Relaxed) == 0
    }

    pub(super) fn counts(&self) -> &Arc<RecordCounts> {
        &self.counts
    }
}

impl RecordCounts {
    fn count_gap(&self, reason: GapReason) {
        let count = match reason {
            GapReason::Queue => &self.queue_gaps,
            GapReason::Disk => &self.disk_gaps,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

struct WriterThread {
    directory: Directory,
    counts: Arc<RecordCounts>,
    /// Running recordings by stream, and gaps that their playlists do not name yet.
    takes: HashMap<String, (Option<Take>, Vec<Gap>)>,
    logged: Option<Instant>,
}

impl WriterThread {
    fn run(mut self, messages: &Receiver<Message>) {
        for message in messages {
            match message {
                Message::Segment(segment) => {
                    let size = segment.size();
                    self.write(*segment);
                    self.counts.queued.fetch_sub(size, Ordering::Relaxed);
                }
                Message::Tidy(settings) => self.tidy(settings),
                Message::End(stream) => {
                    if let Some((Some(take), _)) = self.takes.remove(&stream)
                        && let Err(error) = take.end()
                    {
                        self.warn(&stream, &error);
                    }
                }
            }
            self.counts.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Writes a segment, or makes it a gap of the next one.
    fn write(&mut self, segment: WrittenSegment) {
        let stream = segment.stream.clone();
        let (take, mut gaps) = self.takes.remove(&stream).unwrap_or_default();
        gaps.extend(&segment.gaps);
        let own = Gap { wall_ms: segment.wall_ms, duration_ms: segment.duration_ms };
        let size = segment.size();
        let mut take = take;
        match self.append(&mut take, &gaps, segment) {
            Ok(()) => {
                self.counts.segments.fetch_add(1, Ordering::Relaxed);
                self.counts.bytes.fetch_add(size, Ordering::Relaxed);
                gaps.clear();
            }
            Err(error) => {
                self.counts.count_gap(GapReason::Disk);
                self.warn(&stream, &error);
                // A disk that stays full for days must not fill the memory.
                if gaps.len() < 1_000 {
                    gaps.push(own);
                }
            }
        }
        self.takes.insert(stream, (take, gaps));
    }

    fn append(
        &mut self,
        take: &mut Option<Take>,
        gaps: &[Gap],
        segment: WrittenSegment,
    ) -> std::io::Result<()> {
        if take.as_ref().is_some_and(|take| take.is_full(&segment))
            && let Some(full) = take.take()
        {
            let position = full.position().next(segment.discontinuity || !gaps.is_empty());
            full.end()?;
            *take = Some(self.directory.create(&segment, position)?);
        }
        let running = match take {
            Some(running) => running,
            None => take.insert(self.directory.open(&segment)?),
        };
        running.append(gaps, &segment)
    }

    /// Removes old recordings.
    fn tidy(&mut self, settings: Settings) {
        let takes = self.takes.values().filter_map(|(take, _)| take.as_ref());
        let running: Vec<PathBuf> = takes.map(|take| take.path().to_owned()).collect();
        let removed = remove_old(self.directory.path(), settings, &running);
        self.counts.removed.fetch_add(removed, Ordering::Relaxed);
    }

    fn warn(&mut self, stream: &str, error: &std::io::Error) {
        if self.logged.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        self.logged = Some(Instant::now());
        let directory = self.directory.path().display();
        tracing::warn!("{stream}: a segment is missing from the recording in {directory}: {error}");
    }
}
