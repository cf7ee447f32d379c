//! Decides before each frame whether a segment or part ends there, according to the [`Pace`].
//!
//! The first segment is buffered completely: playlists start when it is complete, and its duration
//! determines the boundaries of all segments.

use bytes::Bytes;

use super::pace::{First, Pace};
use super::parts::{Forecast, MAX_FRAME_MS, mean_frame_us};
use super::segmenter::{Open, Segmenter};
use crate::fmp4::Sample;

/// Maximum duration of the first segment, and thereby of all segments, as a multiple of the target
/// duration. Players wait for three segments.
const MAX_FIRST: i64 = 6;

impl Segmenter {
    /// Whether the segment ends before the video frame at `at`.
    pub(super) fn ends_before(&self, open: Open, at: i64, sync: bool) -> bool {
        let length = at - open.start_ms;
        let Some(pace) = self.pace else {
            // Rounded to milliseconds, a group of pictures of exactly the target duration may seem
            // shorter.
            let target = self.config.segment.as_millis() as i64 * 9 / 10;
            let is_long =
                length + self.frame_ms > MAX_FIRST * self.config.segment.as_millis() as i64;
            return sync && (length >= target || self.changed) || is_long;
        };
        let begins_slot = pace.slot(self.clock.stream_ms(at)) > self.msn || pace.is_whole(length);
        // A still picture does not predict the duration of later frames.
        let frame_ms = self.frame_ms.min(MAX_FRAME_MS);
        sync && (begins_slot || self.changed) || length + frame_ms > pace.max_segment_ms()
    }

    /// Derives the durations and numbers of all segments from the first segment, which ends at
    /// `end_ms`, and divides it into parts.
    pub(super) fn set_pace(&mut self, end_ms: i64) {
        let Some(open) = self.open.filter(|_| self.pace.is_none()) else { return };
        let audio_frame = self.tracks.audio.as_ref().filter(|_| self.frames.is_empty());
        let frame_us = match audio_frame.zip(self.audio_frames.first()) {
            Some((audio, audio_frame)) => {
                let samples = i64::from(audio.samples(&audio_frame.data));
                Some(samples * 1_000_000 / i64::from(audio.sample_rate))
            }
            None => mean_frame_us(self.frames.iter().map(|frame| frame.dts), end_ms),
        };
        let first = First {
            // The slots of an audio-only stream do not depend on the first segment.
            length_ms: if audio_frame.is_some() { 0 } else { end_ms - open.start_ms },
            frame_us: frame_us.unwrap_or(self.frame_ms * 1_000).max(1),
        };
        let pace = Pace::new(&self.config, &first);
        self.pace = Some(pace);
        self.msn = pace.slot(self.clock.stream_ms(open.start_ms));
        // No segment precedes it.
        self.discontinuity = false;
        self.divide(pace.part_ms, Forecast { end_ms, frame_us: first.frame_us });
    }

    /// Splits the pending frames into parts, except for the last part.
    fn divide(&mut self, part_ms: i64, forecast: Forecast) {
        // Number of pending frames examined since the last part.
        let mut looked_at = 1;
        while let Some(at) = self.pending_ms(looked_at) {
            let Some(open) = self.open else { return };
            if at - open.part_start_ms > part_ms && looked_at > 1 && !self.frames.is_empty() {
                self.close_part_before(looked_at - 1);
                looked_at = 1;
            } else if forecast.ends_part(part_ms, open.part_start_ms, at) {
                self.close_part_before(looked_at);
                looked_at = 1;
            } else {
                looked_at += 1;
            }
        }
    }

    /// Returns the time of a pending video frame, or of a pending audio frame without video.
    fn pending_ms(&self, number: usize) -> Option<i64> {
        if !self.frames.is_empty() {
            return self.frames.get(number).map(|frame| frame.dts);
        }
        let rate = i64::from(self.tracks.audio.as_ref()?.sample_rate);
        self.audio_frames.get(number).map(|audio_frame| audio_frame.dts * 1_000 / rate)
    }

    /// Closes a part before the pending frame with this number: a video frame, or an audio frame
    /// without video. PendingSamples frames stay pending.
    fn close_part_before(&mut self, number: usize) {
        let Some(at) = self.pending_ms(number) else { return };
        let later = self.take_from(number);
        self.close_part(at);
        self.put_back(later);
    }

    /// Removes the pending frames from this number on, and the audio that arrived after the first
    /// of them. Without video, `number` counts audio frames.
    fn take_from(&mut self, number: usize) -> PendingSamples {
        if self.frames.is_empty() {
            return PendingSamples {
                audio_frames: self.audio_frames.split_off(number),
                ..PendingSamples::default()
            };
        }
        let audio_before = self.audio_before.split_off(number);
        let count = audio_before.first().copied().unwrap_or(0).min(self.audio_frames.len());
        let audio_before = audio_before.iter().map(|before| before - count.min(*before));
        PendingSamples {
            audio_before: audio_before.collect(),
            frames: self.frames.split_off(number),
            audio_frames: self.audio_frames.split_off(count),
        }
    }

    fn put_back(&mut self, later: PendingSamples) {
        let frames = later.frames.iter().map(|frame| self.cost(frame)).sum::<usize>();
        self.pending_bytes = frames
            + later.audio_frames.iter().map(|audio_frame| self.cost(audio_frame)).sum::<usize>();
        (self.frames, self.audio_frames) = (later.frames, later.audio_frames);
        self.audio_before = later.audio_before;
    }

    /// Closes a segment of the pending frames if the slot before `at` would otherwise have none.
    pub(super) fn catch_up(&mut self, open: Open, at: i64, wall_ms: i64) {
        let slot = self.pace.map_or(0, |pace| pace.slot(self.clock.stream_ms(at)));
        if slot > self.msn + 1 && open.has_parts {
            self.end_segment_before(0, open.part_start_ms, wall_ms - (at - open.part_start_ms));
        }
    }

    /// Ends the segment at `cut_ms`, before the pending frame with this number, which starts the
    /// next segment.
    fn end_segment_before(&mut self, number: usize, cut_ms: i64, wall_ms: i64) {
        let Some(first) = self.frames.get(number).map(|frame| frame.data.clone()) else { return };
        let later = self.take_from(number);
        self.close_segment(cut_ms);
        self.open(cut_ms, wall_ms, &first);
        self.put_back(later);
    }

    /// Handles the duration of the last frame, which the video frame at `at` reveals. A frame
    /// longer than expected ends the part or segment that would become too long with it. A frame
    /// longer than a segment is a pause.
    pub(super) fn on_last_frame(&mut self, at: i64, wall_ms: i64) {
        let (Some(open), Some(last)) = (self.open, self.frames.len().checked_sub(1)) else {
            return;
        };
        let last_ms = self.frames[last].dts;
        let Some(pace) = self.pace else {
            // A single frame does not make a pause: the stream may have a very low frame rate.
            if last > 0 && at - last_ms > self.config.segment.as_millis() as i64 {
                self.pause();
            }
            return;
        };
        if at - last_ms > pace.max_segment_ms() {
            self.pause();
        } else if at - open.start_ms > pace.max_segment_ms() && last_ms > open.start_ms {
            self.end_segment_before(last, last_ms, wall_ms - (at - last_ms));
        } else {
            self.split_long_part(at);
        }
    }

    /// Splits the part that ends at `end_ms` if its last frame makes it too long.
    pub(super) fn split_long_part(&mut self, end_ms: i64) {
        let (Some(open), Some(pace)) = (self.open, self.pace) else { return };
        if end_ms - open.part_start_ms > pace.part_ms && self.frames.len() > 1 {
            self.close_part_before(self.frames.len() - 1);
        }
    }

    /// Ends the segment with its last frame. A discontinuity follows.
    fn pause(&mut self) {
        self.close_segment(self.pending_end());
        self.discontinuity = true;
        self.groups.interrupt();
    }

    /// Ends the part before the video frame at `at` if this is nearest to an even division of the
    /// segment.
    pub(super) fn cut_part(&mut self, open: Open, at: i64) {
        let Some(pace) = self.pace else { return };
        let frame_us = self.groups.frame_us().unwrap_or(self.frame_ms * 1_000);
        let latest_ms = open.start_ms + pace.max_segment_ms();
        let earliest_ms = self.earliest_end_ms(&pace, open, true).max(at + frame_us / 2_000);
        let end_ms = self.groups.next_key_ms(earliest_ms).unwrap_or(earliest_ms).min(latest_ms);
        if (Forecast { end_ms, frame_us }).ends_part(pace.part_ms, open.part_start_ms, at) {
            self.close_part(at);
        }
    }

    /// Returns the earliest time at which the segment may end.
    fn earliest_end_ms(&self, pace: &Pace, open: Open, if_whole: bool) -> i64 {
        let next_slot_ms = pace.slot_start_ms(self.msn + 1) - self.clock.stream_ms(0);
        let whole_ms = if if_whole { open.start_ms + pace.whole_ms() } else { i64::MAX };
        next_slot_ms.min(whole_ms)
    }

    /// Cuts an audio-only stream before the frame at `at`, into slots of the target duration.
    pub(super) fn cut_audio_only(
        &mut self,
        open: Open,
        at: i64,
        frame_us: i64,
        wall_ms: i64,
        data: &Bytes,
    ) {
        let pace =
            self.pace.unwrap_or_else(|| Pace::new(&self.config, &First { length_ms: 0, frame_us }));
        let (last_end, part_ms) = (self.pending_end(), pace.part_ms);
        let slot = pace.slot(self.clock.stream_ms(at));
        let first_slot = pace.slot(self.clock.stream_ms(open.start_ms));
        let is_ahead = self.pace.is_some() && first_slot < self.msn;
        let ends = match self.pace {
            // The sequence header of the video may arrive slightly later.
            None => slot > first_slot && at - open.start_ms >= part_ms,
            Some(_) => slot > self.msn || is_ahead && pace.is_whole(at - open.start_ms),
        };
        if !self.audio_frames.is_empty() && at - last_end > part_ms {
            self.close_segment(last_end);
            self.discontinuity = true;
            self.open(at, wall_ms, data);
        } else if ends {
            self.close_segment(at);
            self.open(at, wall_ms, data);
        } else if self.pace.is_some() {
            let end_ms = self.earliest_end_ms(&pace, open, is_ahead);
            if (Forecast { end_ms, frame_us }).ends_part(part_ms, open.part_start_ms, at) {
                // The next part includes a short gap in the audio.
                self.close_part(at.min(open.part_start_ms + part_ms));
            }
        }
    }
}

/// Pending frames of later parts.
#[derive(Default)]
struct PendingSamples {
    frames: Vec<Sample>,
    audio_before: Vec<usize>,
    audio_frames: Vec<Sample>,
}
