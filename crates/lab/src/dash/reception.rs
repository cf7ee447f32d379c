//! Viewer side: requests of the player, and received segments compared with the expected content.

use bytes::Bytes;
use units::Timestamp;

use super::Dash;
use super::playback::{DashOutcome, Playback};
use super::video::Video;
use crate::client::ResponseReader;
use crate::ends::pattern;

/// Received part of a video.
pub(crate) struct Reception {
    playback: Playback,
    answer: ResponseReader,
    pattern: Bytes,
    /// Received content of the current segment, in bytes.
    received: u64,
    /// Time of the next request, while none is unanswered.
    due: Option<Timestamp>,
}

impl Reception {
    pub(crate) fn new(dash: Dash, begins: Timestamp) -> Self {
        Self {
            playback: Playback::new(dash, begins),
            answer: ResponseReader::default(),
            pattern: pattern(),
            received: 0,
            due: Some(begins),
        }
    }

    /// Returns the path of the next segment, and notes its request.
    pub(crate) fn ask(&mut self, now: Timestamp) -> String {
        self.due = None;
        let asked = self.playback.ask(now);
        Video::path(asked.rung, asked.segment)
    }

    /// Time of the next request, while none is unanswered.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Takes bytes. Returns whether they match the requested segment.
    pub(crate) fn take(&mut self, data: &[u8]) -> bool {
        let Some(asked) = self.playback.asked() else { return false };
        let (pattern, received) = (&self.pattern, &mut self.received);
        let offset = Video::offset(asked.rung, asked.segment);
        let mut intact = true;
        let is_answer = self.answer.take(data, |mut content| {
            while !content.is_empty() {
                let at = ((*received + offset as u64) % pattern.len() as u64) as usize;
                let (part, rest) = content.split_at(content.len().min(pattern.len() - at));
                intact &= part == &pattern[at..at + part.len()];
                *received += part.len() as u64;
                content = rest;
            }
        });
        is_answer && intact
    }

    /// Completes the requested segment. Returns whether it had its size.
    pub(crate) fn complete(&mut self, now: Timestamp) -> bool {
        let Some(asked) = self.playback.asked() else { return false };
        let intact = self.received == self.playback.video().size(asked.rung, asked.segment);
        self.due = self.playback.take(now, self.received);
        (self.received, self.answer) = (0, ResponseReader::default());
        intact
    }

    /// Whether all segments have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.playback.is_complete()
    }

    /// Returns the playback.
    pub(crate) fn outcome(&self) -> &DashOutcome {
        &self.playback.outcome
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::{Adaptation, DashPlayer, Ladder};
    use super::*;
    use units::Rate;

    const SECOND: Duration = Duration::from_secs(1);

    /// A video of two segments of 100,000 B.
    fn reception() -> Reception {
        let ladder = Ladder::new(vec![Rate::from_kbps(800)]).expect("valid");
        let video = Video { ladder, segment: SECOND, segments: 2, variation: 0.0, seed: 1 };
        let player = DashPlayer {
            adaptation: Adaptation::Throughput,
            start_after: SECOND,
            resume_after: SECOND,
            max_buffer: SECOND * 9,
        };
        Reception::new(Dash { video, player }, Timestamp::ZERO)
    }

    /// An answer with this content: status 200, and one DATA frame.
    fn answer(content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1, 3, 0, 0, 0xc0 | 25, 0];
        bytes.extend((content.len() as u32 | 0x8000_0000).to_be_bytes());
        bytes.extend(content);
        bytes
    }

    fn content(segment: u32) -> Vec<u8> {
        let offset = Video::offset(0, segment);
        pattern().repeat(4)[offset..offset + 100_000].to_vec()
    }

    #[test]
    fn segments_arrive_in_order() {
        let mut reception = reception();
        assert_eq!(reception.due(), Some(Timestamp::ZERO));
        for segment in 0..2 {
            let now = Timestamp::from_secs(segment.into());
            assert_eq!(reception.ask(now), format!("/dash/0/{segment}.m4s"));
            assert_eq!(reception.due(), None);
            for part in answer(&content(segment)).chunks(1_234) {
                assert!(reception.take(part));
            }
            assert!(reception.complete(now + SECOND));
        }
        assert!(reception.is_complete());
        assert_eq!((reception.due(), reception.outcome().segments.len()), (None, 2));
    }

    #[test]
    fn wrong_and_missing_bytes_are_seen() {
        let mut other = reception();
        other.ask(Timestamp::ZERO);
        assert!(!other.take(&answer(&content(1))), "another segment");
        let mut short = reception();
        short.ask(Timestamp::ZERO);
        assert!(short.take(&answer(&content(0)[..99_999])));
        assert!(!short.complete(Timestamp::from_secs(1)), "one byte is missing");
        assert!(!reception().take(&answer(&content(0))), "nothing was requested");
    }
}
