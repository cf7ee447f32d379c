//! What an edge asks a segmenter for: playlists, segments, parts, and whether to wait for them.
//!
//! URIs are relative to the media playlist; [`super::name`] has their form.

use core::time::Duration;

use bytes::Bytes;

use super::kept::Segment;
use super::name::Name;
use super::segmenter::Segmenter;

/// Where a segment or part is, seen from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// It is gone, or the stream has ended before it. A playlist request is answered at once.
    Past,
    /// Available.
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

    /// The names of the complete segments that are kept, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = Name> {
        self.kept.segments.iter().filter(|segment| segment.complete).map(|segment| segment.name)
    }

    /// The IDs of their initialisation segments, oldest first; of none for transport streams.
    pub fn inits(&self) -> impl Iterator<Item = u64> {
        self.kept.versions.iter().filter(|kept| !kept.init.is_empty()).map(|kept| kept.id)
    }

    /// The initialisation segment `init-ID.mp4`.
    pub fn init(&self, id: u64) -> Option<Bytes> {
        let version = self.kept.versions.iter().find(|known| known.id == id)?;
        Some(version.init.clone()).filter(|init| !init.is_empty())
    }

    /// The parts of a complete segment, which together are its bytes.
    pub fn segment(&self, name: Name) -> Option<Vec<Bytes>> {
        let segment = self.kept.find(name.msn).filter(|segment| segment.complete)?;
        let segment = (segment.name == name).then_some(segment)?;
        Some(segment.parts.iter().map(|part| part.bytes.clone()).collect())
    }

    /// A part of a segment.
    pub fn part(&self, name: Name, part: usize) -> Option<Bytes> {
        let segment = self.kept.find(name.msn).filter(|segment| segment.name == name)?;
        Some(segment.parts.get(part)?.bytes.clone())
    }

    /// Slack of a player for an available part, or segment without `part`. Players stay at least
    /// PART-HOLD-BACK behind the end of the playlist, or three target durations with whole
    /// segments (rfc8216bis, section 4.4.3.8). `None` further from the end: the player is
    /// starting, or is late.
    pub fn slack(&self, name: Name, part: Option<usize>) -> Option<Duration> {
        let pace = self.pace?;
        let newer = self.kept.segments.iter().filter(|segment| segment.name.msn > name.msn);
        let own = self.kept.find(name.msn).filter(|segment| segment.name == name)?;
        let own_ms: i64 = own.parts.iter().skip(part.unwrap_or(0)).map(|p| p.duration_ms).sum();
        let from_end_ms = own_ms + newer.map(Segment::duration_ms).sum::<i64>();
        let hold_back_ms = match part {
            Some(_) => pace.part_hold_back_ms(),
            None => 3_000 * pace.target_s,
        };
        let slack = u64::try_from(hold_back_ms - from_end_ms).ok().filter(|slack| *slack > 0);
        slack.map(Duration::from_millis)
    }

    /// Availability of the segment (without `part`) or part with this name: as
    /// [`Segmenter::when`], but names that the stream never had count as past.
    pub fn when_named(&self, name: Name, part: Option<usize>) -> When {
        let kept = self.kept.find(name.msn).map(|segment| segment.name);
        match kept.or(self.growing()) == Some(name) {
            true => self.when(name.msn, part),
            false => When::Past,
        }
    }

    /// The media sequence number of the growing or next segment, and the number of its next part,
    /// as in the preload hint.
    pub fn position(&self) -> (u64, usize) {
        let growing = self.kept.segments.back().filter(|segment| !segment.complete);
        (self.msn, growing.map_or(0, |segment| segment.parts.len()))
    }

    /// Where a segment (without `part`, whole) or a part is: for `_HLS_msn` and `_HLS_part`, and
    /// for requests of media.
    pub fn when(&self, msn: u64, part: Option<usize>) -> When {
        if self.pace.is_none() && !self.ended {
            // The next number is not known yet.
            return When::Next;
        }
        let (next, next_part) = self.position();
        let (msn, part) = match (self.kept.find(msn), part) {
            // rfc8216bis, section 6.2.5.2: a part number past the end of a segment means the first
            // part of the next.
            (Some(segment), Some(part)) if segment.complete && part >= segment.parts.len() => {
                (msn + 1, Some(0))
            }
            _ => (msn, part),
        };
        if self.kept.segments.front().is_none_or(|first| msn < first.name.msn) && msn < next {
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
