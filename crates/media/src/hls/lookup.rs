//! What an edge asks a segmenter for: playlists, segments, parts, and whether to wait for them.
//!
//! URIs are relative to the media playlist: `init-VERSION.mp4`, `MSN.m4s` and `MSN.PART.m4s`, with
//! `ts` for transport streams.

use bytes::Bytes;

use super::segmenter::Segmenter;

/// Where a segment or part is, seen from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// It is gone, or the stream has ended before it. A playlist request is answered at once.
    Past,
    /// It is there.
    Present,
    /// It is not there yet: block until it is, or until [`When::Past`].
    Next,
    /// So far in the future that the request makes no sense: 400.
    TooFar,
}

impl Segmenter {
    /// The media playlist; with `skip`, the delta update of `_HLS_skip=YES`. `None` before the
    /// first segment is complete.
    pub fn playlist(&self, skip: bool) -> Option<Bytes> {
        self.playlists.as_ref().map(|playlists| playlists[usize::from(skip)].clone())
    }

    /// The master playlist, with one variant, [`super::segmenter::MEDIA_PLAYLIST`]. `None` before
    /// the first segment is complete.
    pub fn master(&self) -> Option<Bytes> {
        self.master.clone()
    }

    /// The initialisation segment `init-VERSION.mp4`.
    pub fn init(&self, version: u64) -> Option<Bytes> {
        let version = self.kept.versions.iter().find(|known| known.number == version)?;
        Some(version.init.clone()).filter(|init| !init.is_empty())
    }

    /// The parts of a complete segment, which together are its bytes.
    pub fn segment(&self, msn: u64) -> Option<Vec<Bytes>> {
        let segment = self.kept.find(msn).filter(|segment| segment.complete)?;
        Some(segment.parts.iter().map(|part| part.bytes.clone()).collect())
    }

    /// A part of a segment.
    pub fn part(&self, msn: u64, part: usize) -> Option<Bytes> {
        Some(self.kept.find(msn)?.parts.get(part)?.bytes.clone())
    }

    /// The media sequence number of the segment that is growing or next, and the number of its next
    /// part: what the preload hint names.
    pub fn position(&self) -> (u64, usize) {
        let growing = self.kept.segments.back().filter(|segment| !segment.complete);
        (self.msn, growing.map_or(0, |segment| segment.parts.len()))
    }

    /// Where a segment (without `part`, whole) or a part is: for `_HLS_msn` and `_HLS_part`, and for
    /// requests of media.
    pub fn when(&self, msn: u64, part: Option<usize>) -> When {
        let (next, next_part) = self.position();
        let (msn, part) = match (self.kept.find(msn), part) {
            // rfc8216bis, section 6.2.5.2: a part behind the last one of its segment is the first
            // one of the next.
            (Some(segment), Some(part)) if segment.complete && part >= segment.parts.len() => {
                (msn + 1, Some(0))
            }
            _ => (msn, part),
        };
        if self.kept.segments.front().is_none_or(|first| msn < first.msn) && msn < next {
            return When::Past;
        }
        if msn < next || msn == next && part.is_some_and(|part| part < next_part) {
            return When::Present;
        }
        if self.ended {
            return When::Past;
        }
        let last = if next_part > 0 { next } else { next.saturating_sub(1) };
        let ahead =
            part.map_or(0, |part| part.saturating_sub(if msn == next { next_part } else { 0 }));
        let advance_limit = 3_000_usize.div_ceil(self.config.part.as_millis() as usize).max(3);
        // Section 6.2.5.2: "If the _HLS_msn is greater than the Media Sequence Number of the last
        // Media Segment in the current Playlist plus two, or if the _HLS_part exceeds the last
        // Partial Segment in the current Playlist by the Advance Part Limit, then the server SHOULD
        // immediately return Bad Request".
        if msn > last.saturating_add(2) || ahead > advance_limit {
            When::TooFar
        } else {
            When::Next
        }
    }
}
