//! The task of a recording: packages a stream and passes its segments to the writer.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use media::hls::segmenter::{Container, SegmenterConfig};
use relay::{Lags, Start, Stream, Viewer};
use tokio::sync::Notify;

use super::segment::{Gap, Settings, WrittenSegment};
use super::writer::{GapReason, Writer};
use crate::config;
use crate::live::AccountedSegmenter;

/// Segments that the packager keeps: the writer takes them at once.
const WINDOW: usize = 1;
/// Maximum number of gaps that wait for a segment that fits into the queue. Further ones are
/// counted only.
const MAX_GAPS: usize = 1_000;

/// Records a stream.
pub(super) struct RecordTask {
    pub stream: Arc<Stream>,
    pub rule: config::Recording,
    pub writer: Arc<Writer>,
    pub is_leaving: Arc<AtomicBool>,
}

/// The packager, and segments passed so far.
struct Packager {
    packed: AccountedSegmenter,
    /// Sequence number of the next segment to pass.
    next: u64,
    /// Dropped segments that the next passed one reports.
    gaps: Vec<Gap>,
}

impl RecordTask {
    /// Runs until the stream ends, or `end` is notified.
    pub(super) async fn run(self, end: Arc<Notify>) {
        let name = self.stream.name();
        let viewer = Viewer::attendant(self.stream.clone(), Start::LatestGop, Lags::ANY);
        let config = SegmenterConfig {
            container: Container::Fmp4,
            segment: self.rule.segment,
            part: self.rule.segment,
            window: WINDOW,
            bytes: self.rule.queue.as_usize(),
            ..SegmenterConfig::default()
        };
        let packed = AccountedSegmenter::new(&self.stream, config);
        let mut packager = Packager { packed, next: 0, gaps: Vec::new() };
        tracing::info!("{name}: recording started");
        let has_ended = tokio::select! {
            () = self.pack(viewer, &mut packager) => true,
            () = end.notified() => false,
        };
        packager.packed.segmenter.end();
        self.pass_on(&mut packager);
        let is_leaving = self.is_leaving.load(Ordering::Relaxed);
        if !is_leaving {
            self.writer.end(name);
        }
        let why = match (has_ended, is_leaving) {
            (_, true) => "the server stops",
            (true, false) => "the stream ended",
            (false, false) => "no rule",
        };
        tracing::info!("{name}: recording stopped: {why}");
    }

    async fn pack(&self, mut viewer: Viewer, packager: &mut Packager) {
        let mut is_logged = false;
        while let Some(tag) = poll_fn(|context| viewer.poll_next(context)).await {
            // A tag from before the start of packaging arrived earlier, by its lag.
            let lag = Duration::from_millis(viewer.lag_ms().into());
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let has_news =
                packager.packed.segmenter.push(&tag, now.saturating_sub(lag).as_millis() as u64);
            if let Some(codec) =
                packager.packed.segmenter.unsupported_codec().filter(|_| !is_logged)
            {
                is_logged = true;
                let name = self.stream.name();
                tracing::warn!("{name}: a recording cannot carry {codec}: track dropped");
            }
            if has_news {
                self.pass_on(packager);
            }
            // After the complete segments were passed on, which it may evict.
            packager.packed.update_account();
        }
    }

    /// Passes new complete segments to the writer.
    fn pass_on(&self, packager: &mut Packager) {
        let segmenter = &packager.packed.segmenter;
        let new: Vec<_> = segmenter
            .whole_segments()
            .filter(|segment| segment.name.msn >= packager.next)
            .collect();
        for segment in new {
            packager.next = segment.name.msn + 1;
            let (Some(parts), Some(init)) =
                (segmenter.segment(segment.name), segmenter.init(segment.init))
            else {
                continue;
            };
            let written = WrittenSegment {
                stream: self.stream.name().to_owned(),
                init: (segment.init, init),
                parts,
                discontinuity: segment.discontinuity,
                wall_ms: segment.wall_ms,
                duration_ms: segment.duration_ms,
                gaps: std::mem::take(&mut packager.gaps),
                settings: Settings::of(&self.rule),
            };
            if let Err(mut back) = self.writer.write(written, self.rule.queue.0) {
                self.writer.count_gap(GapReason::Queue);
                back.gaps.push(Gap { wall_ms: back.wall_ms, duration_ms: back.duration_ms });
                back.gaps.truncate(MAX_GAPS);
                packager.gaps = back.gaps;
            }
        }
    }
}
