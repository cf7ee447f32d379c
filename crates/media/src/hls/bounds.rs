//! Memory limits and eviction of a [`Segmenter`].

use super::segmenter::Segmenter;

/// Segments that [`Segmenter::shed`] keeps, including the growing one. A playlist has at least
/// three target durations (RFC 8216, section 6.2.2).
const MIN_SEGMENTS: usize = 4;

impl Segmenter {
    /// Evicts the oldest segments until `excess` bytes are free, or only the segments needed for
    /// startup are left.
    pub fn shed(&mut self, excess: usize) {
        let enough = self.bytes().saturating_sub(excess);
        while self.bytes() > enough && self.retained.segments.len() > MIN_SEGMENTS {
            self.drop_oldest();
        }
        self.render();
    }

    /// Evicts the oldest segments until at most `most` bytes are retained. The growing segment is
    /// evicted last; this is an [overflow](Segmenter::overflows).
    pub fn shrink_to(&mut self, most: usize) {
        self.cut(most);
        self.render();
    }

    pub(super) fn cut(&mut self, most: usize) {
        while self.retained.bytes + self.pending_bytes > most {
            if self.retained.segments.front().is_some_and(|segment| segment.complete) {
                self.drop_oldest();
                continue;
            }
            self.overflows += 1;
            self.frames.clear();
            self.audio_before.clear();
            self.audio_frames.clear();
            self.pending_bytes = 0;
            self.discontinuity = true;
            if self.open.take().is_some_and(|open| open.has_parts) {
                self.drop_oldest();
                self.msn += 1;
            }
        }
    }

    pub(super) fn drop_oldest(&mut self) {
        self.retained.drop_oldest();
        self.dirty = true;
    }

    /// Retained media, in bytes.
    pub fn bytes(&self) -> usize {
        self.retained.bytes + self.pending_bytes
    }

    /// Number of times that a single group of pictures exceeded the limit and was dropped.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }
}
