//! Decides before each frame whether a segment or a part ends there, by the [`Pace`].
//!
//! The first segment is buffered as a whole: playlists start when it is complete, and its length
//! decides how all segments are divided.

use bytes::Bytes;

use super::pace::{First, Pace};
use super::parts::{MAX_FRAME_MS, Outlook, mean_frame_us};
use super::segmenter::{Open, Segmenter};
use crate::fmp4::Sample;

/// The first segment is at most this many times as long as segments should be, and with it all
/// others: players wait for three of them.
const MAX_FIRST: i64 = 6;

impl Segmenter {
    /// Whether the segment ends before the video frame at `at`.
    pub(super) fn ends_before(&self, open: Open, at: i64, sync: bool) -> bool {
        let length = at - open.start_ms;
        let Some(pace) = self.pace else {
            // A tenth earlier will do: a group of pictures of just the wanted length may seem
            // shorter in milliseconds.
            let target = self.config.segment.as_millis() as i64 * 9 / 10;
            let is_long =
                length + self.frame_ms > MAX_FIRST * self.config.segment.as_millis() as i64;
            return sync && (length >= target || self.changed) || is_long;
        };
        let begins_slot = pace.slot(self.clock.stream_ms(at)) > self.msn || pace.is_whole(length);
        // A still picture does not predict the duration of later ones.
        let frame_ms = self.frame_ms.min(MAX_FRAME_MS);
        sync && (begins_slot || self.changed) || length + frame_ms > pace.max_segment_ms()
    }

    /// The first segment, which ends at `end_ms`, settles the lengths and numbers of all, and is
    /// divided into parts.
    pub(super) fn settle(&mut self, end_ms: i64) {
        let Some(open) = self.open.filter(|_| self.pace.is_none()) else { return };
        let sound = self.tracks.audio.as_ref().filter(|_| self.frames.is_empty());
        let frame_us = match sound.zip(self.sounds.first()) {
            Some((audio, sound)) => {
                let samples = i64::from(audio.samples(&sound.data));
                Some(samples * 1_000_000 / i64::from(audio.sample_rate))
            }
            None => mean_frame_us(self.frames.iter().map(|frame| frame.dts), end_ms),
        };
        let first = First {
            // Slots of sound do not depend on it.
            length_ms: if sound.is_some() { 0 } else { end_ms - open.start_ms },
            frame_us: frame_us.unwrap_or(self.frame_ms * 1_000).max(1),
        };
        let pace = Pace::new(&self.config, &first);
        self.pace = Some(pace);
        self.msn = pace.slot(self.clock.stream_ms(open.start_ms));
        // Nothing is before it.
        self.discontinuity = false;
        self.divide(pace.part_ms, Outlook { end_ms, frame_us: first.frame_us });
    }

    /// Makes parts of the frames that wait, without the last part.
    fn divide(&mut self, part_ms: i64, outlook: Outlook) {
        // Frames or sounds that wait, as many as were looked at since the last part.
        let mut looked_at = 1;
        while let Some(at) = self.waiting_ms(looked_at) {
            let Some(open) = self.open else { return };
            if at - open.part_start_ms > part_ms && looked_at > 1 && !self.frames.is_empty() {
                self.close_part_before(looked_at - 1);
                looked_at = 1;
            } else if outlook.ends_part(part_ms, open.part_start_ms, at) {
                self.close_part_before(looked_at);
                looked_at = 1;
            } else {
                looked_at += 1;
            }
        }
    }

    /// The time of a waiting frame, or of a waiting sound if there is no video.
    fn waiting_ms(&self, number: usize) -> Option<i64> {
        if !self.frames.is_empty() {
            return self.frames.get(number).map(|frame| frame.dts);
        }
        let rate = i64::from(self.tracks.audio.as_ref()?.sample_rate);
        self.sounds.get(number).map(|sound| sound.dts * 1_000 / rate)
    }

    /// Closes a part before the waiting frame of this number, or before the sound if there is no
    /// video. Later frames keep waiting.
    fn close_part_before(&mut self, number: usize) {
        let Some(at) = self.waiting_ms(number) else { return };
        let later = self.take_from(number);
        self.close_part(at);
        self.put_back(later);
    }

    /// Takes the frames from this number on, and the sounds that arrived after the first of them;
    /// without video, the sounds from this number on.
    fn take_from(&mut self, number: usize) -> Later {
        if self.frames.is_empty() {
            return Later { sounds: self.sounds.split_off(number), ..Later::default() };
        }
        let sounds_before = self.sounds_before.split_off(number);
        let heard = sounds_before.first().copied().unwrap_or(0).min(self.sounds.len());
        let sounds_before = sounds_before.iter().map(|before| before - heard.min(*before));
        Later {
            sounds_before: sounds_before.collect(),
            frames: self.frames.split_off(number),
            sounds: self.sounds.split_off(heard),
        }
    }

    fn put_back(&mut self, later: Later) {
        let frames = later.frames.iter().map(|frame| self.cost(frame)).sum::<usize>();
        self.waiting = frames + later.sounds.iter().map(|sound| self.cost(sound)).sum::<usize>();
        (self.frames, self.sounds) = (later.frames, later.sounds);
        self.sounds_before = later.sounds_before;
    }

    /// Makes a segment of the waiting frames if the slot before `at` would have none.
    pub(super) fn catch_up(&mut self, open: Open, at: i64, wall_ms: i64) {
        let slot = self.pace.map_or(0, |pace| pace.slot(self.clock.stream_ms(at)));
        if slot > self.msn + 1 && open.has_parts {
            self.end_segment_before(0, open.part_start_ms, wall_ms - (at - open.part_start_ms));
        }
    }

    /// Ends the segment at `cut_ms`, before the waiting frame with this number, which starts the
    /// next one.
    fn end_segment_before(&mut self, number: usize, cut_ms: i64, wall_ms: i64) {
        let Some(first) = self.frames.get(number).map(|frame| frame.data.clone()) else { return };
        let later = self.take_from(number);
        self.close_segment(cut_ms);
        self.open(cut_ms, wall_ms, &first);
        self.put_back(later);
    }

    /// The video frame at `at` shows how long the one before lasts: longer than expected, it ends
    /// what would become too long with it, and longer than a segment may be, it is a pause.
    pub(super) fn on_last_frame(&mut self, at: i64, wall_ms: i64) {
        let (Some(open), Some(last)) = (self.open, self.frames.len().checked_sub(1)) else {
            return;
        };
        let last_ms = self.frames[last].dts;
        let Some(pace) = self.pace else {
            // A stream of few frames is no stream that pauses.
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

    /// Makes two parts of one that would be too long up to `end_ms`: the last frame was longer than
    /// expected.
    pub(super) fn split_long_part(&mut self, end_ms: i64) {
        let (Some(open), Some(pace)) = (self.open, self.pace) else { return };
        if end_ms - open.part_start_ms > pace.part_ms && self.frames.len() > 1 {
            self.close_part_before(self.frames.len() - 1);
        }
    }

    /// Ends the segment with its last frame. The next one is not continuous with it.
    fn pause(&mut self) {
        self.close_segment(self.pending_end());
        self.discontinuity = true;
        self.groups.interrupt();
    }

    /// Ends the part before the video frame at `at` if that is nearest to an even division of the
    /// segment.
    pub(super) fn cut_part(&mut self, open: Open, at: i64) {
        let Some(pace) = self.pace else { return };
        let frame_us = self.groups.frame_us().unwrap_or(self.frame_ms * 1_000);
        let latest_ms = open.start_ms + pace.max_segment_ms();
        let earliest_ms = self.earliest_end_ms(&pace, open, true).max(at + frame_us / 2_000);
        let end_ms = self.groups.next_key_ms(earliest_ms).unwrap_or(earliest_ms).min(latest_ms);
        if (Outlook { end_ms, frame_us }).ends_part(pace.part_ms, open.part_start_ms, at) {
            self.close_part(at);
        }
    }

    /// The earliest time at which the segment may end.
    fn earliest_end_ms(&self, pace: &Pace, open: Open, if_whole: bool) -> i64 {
        let next_slot_ms = pace.slot_start_ms(self.msn + 1) - self.clock.stream_ms(0);
        let whole_ms = if if_whole { open.start_ms + pace.whole_ms() } else { i64::MAX };
        next_slot_ms.min(whole_ms)
    }

    /// Cuts a stream of sound alone before the frame at `at`: into slots of the wanted length.
    pub(super) fn cut_sound(
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
            // A video header may come a little late.
            None => slot > first_slot && at - open.start_ms >= part_ms,
            Some(_) => slot > self.msn || is_ahead && pace.is_whole(at - open.start_ms),
        };
        if !self.sounds.is_empty() && at - last_end > part_ms {
            self.close_segment(last_end);
            self.discontinuity = true;
            self.open(at, wall_ms, data);
        } else if ends {
            self.close_segment(at);
            self.open(at, wall_ms, data);
        } else if self.pace.is_some() {
            let end_ms = self.earliest_end_ms(&pace, open, is_ahead);
            if (Outlook { end_ms, frame_us }).ends_part(part_ms, open.part_start_ms, at) {
                // The next part includes a short gap of sound.
                self.close_part(at.min(open.part_start_ms + part_ms));
            }
        }
    }
}

/// Frames and sounds of a later part.
#[derive(Default)]
struct Later {
    frames: Vec<Sample>,
    sounds_before: Vec<usize>,
    sounds: Vec<Sample>,
}
