//! Decides before each frame whether a segment or a part ends there, by the [`Pace`].

use bytes::Bytes;

use super::pace::{First, Pace, part_limit_ms};
use super::segmenter::{Open, Segmenter};

/// How long a picture may stand still for the next one to be expected as late.
const MAX_FRAME_MS: i64 = 500;

/// The first segment is at most this many times as long as segments should be, and with it all others:
/// players wait for three of them.
const MAX_FIRST: i64 = 6;

impl Segmenter {
    /// Whether the segment ends before the video frame at `at`.
    pub(super) fn ends_before(&mut self, open: Open, at: i64, sync: bool) -> bool {
        let length = at - open.start_ms;
        let Some(pace) = self.pace else {
            // A tenth earlier will do: a group of pictures of just the wanted length may seem
            // shorter in milliseconds.
            let target = self.config.segment.as_millis() as i64 * 9 / 10;
            let is_long =
                length + self.frame_ms > MAX_FIRST * self.config.segment.as_millis() as i64;
            let ends = sync && (length >= target || self.changed) || is_long;
            if ends {
                self.settle(length);
            }
            return ends;
        };
        let begins_slot = pace.slot(self.clock.stream_ms(at)) > self.msn || pace.is_whole(length);
        // A picture that stood still says nothing of those that follow.
        let frame_ms = self.frame_ms.min(MAX_FRAME_MS);
        sync && (begins_slot || self.changed) || length + frame_ms > pace.max_segment_ms()
    }

    /// The first segment, which is `length_ms` long, settles the lengths and numbers of all.
    pub(super) fn settle(&mut self, length_ms: i64) {
        let Some(open) = self.open else { return };
        let parts = self.kept.segments.back().map_or(&[][..], |segment| &segment.parts);
        let parts_ms = parts.iter().map(|part| part.duration_ms).collect();
        let pace = Pace::new(&self.config, &First { length_ms, parts_ms, frames: open.frames });
        self.pace = Some(pace);
        self.msn = pace.slot(self.clock.stream_ms(open.start_ms));
        if let Some(segment) = self.kept.segments.back_mut() {
            segment.name.msn = self.msn;
        }
    }

    /// Where no segment has the number before that of the slot that begins at `at`, what waits becomes
    /// one.
    pub(super) fn catch_up(&mut self, open: Open, at: i64, wall_ms: i64) {
        let slot = self.pace.map_or(0, |pace| pace.slot(self.clock.stream_ms(at)));
        if let Some(first) = self.frames.first()
            && slot > self.msn + 1
            && open.has_parts
        {
            let (first, frames) = (first.data.clone(), core::mem::take(&mut self.frames));
            let (sounds, waiting) =
                (core::mem::take(&mut self.sounds), core::mem::take(&mut self.waiting));
            self.close_segment(open.part_start_ms);
            self.open(open.part_start_ms, wall_ms - (at - open.part_start_ms), &first);
            (self.frames, self.sounds, self.waiting) = (frames, sounds, waiting);
        }
    }

    /// Ends the part before the frame at `at`, which lasts `frame_ms`, if it would be too long with
    /// it.
    pub(super) fn cut_part(&mut self, open: Open, at: i64, frame_ms: i64) {
        let limit = part_limit_ms(&self.config);
        let limit = self.pace.map_or(limit, |pace| limit.min(pace.part_ms));
        if at > open.part_start_ms && at + frame_ms - open.part_start_ms > limit {
            self.close_part(at);
        }
    }

    /// Cuts a stream of sound alone before the frame at `at`: into slots of the wanted length.
    pub(super) fn cut_sound(
        &mut self,
        open: Open,
        at: i64,
        frame_ms: i64,
        wall_ms: i64,
        data: &Bytes,
    ) {
        if self.pace.is_none() && open.has_parts {
            self.settle(0);
        }
        let slot = self.pace.map(|pace| pace.slot(self.clock.stream_ms(at)));
        let whole = self.pace.is_some_and(|pace| pace.is_whole(at - open.start_ms));
        if open.has_parts && (slot > Some(self.msn) || whole && self.is_ahead(open)) {
            self.close_segment(at);
            self.open(at, wall_ms, data);
        } else {
            self.cut_part(open, at, frame_ms);
        }
    }

    /// Whether the number of the open segment is above that of the slot in which it began.
    fn is_ahead(&self, open: Open) -> bool {
        self.pace.is_some_and(|pace| pace.slot(self.clock.stream_ms(open.start_ms)) < self.msn)
    }
}
