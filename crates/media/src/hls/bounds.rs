//! Memory limits of a [`Segmenter`], and eviction.

use super::segmenter::Segmenter;

/// Segments that are never shed, including the growing one. RFC 8216, section 6.2.2: a playlist
/// has at least three target durations.
const MIN_SEGMENTS: usize = 4;

impl Segmenter {
    /// Evicts the oldest segments until `excess` bytes are free, or only the segments needed for
    /// startup are left.
    pub fn shed(&mut self, excess: usize) {
        let enough = self.bytes().saturating_sub(excess);
        while self.bytes() > enough && self.kept.segments.len() > MIN_SEGMENTS {
            self.drop_oldest();
        }
        self.render();
    }

    /// Evicts the oldest segments until at most `most` bytes are kept. Evicts the growing segment
    /// last, which is an [overflow](Segmenter::overflows).
    pub fn shrink_to(&mut self, most: usize) {
        self.cut(most);
        self.render();
    }

    pub(super) fn cut(&mut self, most: usize) {
        while self.kept.bytes + self.waiting > most {
            if self.kept.segments.front().is_some_and(|segment| segment.complete) {
                self.drop_oldest();
                continue;
            }
            self.overflows += 1;
            self.frames.clear();
            self.sounds_before.clear();
            self.sounds.clear();
            self.waiting = 0;
            self.discontinuity = true;
            if self.open.take().is_some_and(|open| open.has_parts) {
                self.drop_oldest();
                self.msn += 1;
            }
        }
    }

    pub(super) fn drop_oldest(&mut self) {
        self.kept.drop_oldest();
        self.dirty = true;
    }

    /// Bytes of media that are kept.
    pub fn bytes(&self) -> usize {
        self.kept.bytes + self.waiting
    }

    /// How often a group of pictures alone was above the limit and was given up.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }
}
