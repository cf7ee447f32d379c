//! Queries of a segmenter: playlists, segments, parts, and their availability.
//!
//! URIs are relative to the media playlist. Their format is described in [`super::name`].

use core::time::Duration;

use bytes::Bytes;

use super::name::Name;
use super::retained::RetainedSegment;
use super::segmenter::Segmenter;

/// Availability of a segment or part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Availability {
    /// Evicted, or past the end of an ended stream. Playlist requests are answered at once.
    Past,
    /// Available.
    Present,
    /// Not available yet: block until it is, or until it becomes [`Availability::Past`].
    Pending,
    /// Too far in the future; the response is 400.
    TooFar,
}

/// A complete segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WholeSegment {
    /// Name, for [`Segmenter::segment`].
    pub name: Name,
    /// ID of its initialisation segment, for [`Segmenter::init`].
    pub init: u64,
    /// Whether a discontinuity precedes it.
    pub discontinuity: bool,
    /// Start in milliseconds since 1970.
    pub wall_ms: i64,
    /// Duration in milliseconds.
    pub duration_ms: i64,
}

impl Segmenter {
    /// Returns the media playlist, or its delta update if `skip` is set (`_HLS_skip=YES`). `None`
    /// before the first segment is complete.
    pub fn playlist(&self, skip: bool) -> Option<Bytes> {
        self.playlists.as_ref().map(|playlists| playlists[usize::from(skip)].clone())
    }

    /// Returns the master playlist, with the single variant [`super::segmenter::MEDIA_PLAYLIST`].
    /// `None` before the first segment is complete.
    pub fn master(&self) -> Option<Bytes> {
        self.master.clone()
    }

    /// Returns the names of the complete retained segments, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = Name> {
        self.retained.segments.iter().filter(|segment| segment.complete).map(|segment| segment.name)
    }

    /// Returns the complete retained segments, oldest first.
    pub fn whole_segments(&self) -> impl Iterator<Item = WholeSegment> {
        let complete = self.retained.segments.iter().filter(|segment| segment.complete);
        complete.map(|segment| {
            let mut versions = self.retained.versions.iter();
            let version = versions.find(|version| version.number == segment.version);
            WholeSegment {
                name: segment.name,
                init: version.map_or(0, |version| version.id),
                discontinuity: segment.discontinuity,
                wall_ms: segment.wall_ms,
                duration_ms: segment.duration_ms(),
            }
        })
    }

    /// Returns the IDs of their initialisation segments, oldest first. Empty for transport streams.
    pub fn inits(&self) -> impl Iterator<Item = u64> {
        self.retained
            .versions
            .iter()
            .filter(|retained| !retained.init.is_empty())
            .map(|retained| retained.id)
    }

    /// Returns the initialisation segment `init-ID.mp4`.
    pub fn init(&self, id: u64) -> Option<Bytes> {
        let version = self.retained.versions.iter().find(|known| known.id == id)?;
        Some(version.init.clone()).filter(|init| !init.is_empty())
    }

    /// Returns the parts of a complete segment. Their concatenation is the segment.
    pub fn segment(&self, name: Name) -> Option<Vec<Bytes>> {
        let segment = self.retained.find(name.msn).filter(|segment| segment.complete)?;
        let segment = (segment.name == name).then_some(segment)?;
        Some(segment.parts.iter().map(|part| part.bytes.clone()).collect())
    }

    /// Returns a part of a segment.
    pub fn part(&self, name: Name, part: usize) -> Option<Bytes> {
        let segment = self.retained.find(name.msn).filter(|segment| segment.name == name)?;
        Some(segment.parts.get(part)?.bytes.clone())
    }

    /// Returns a player's slack for an available part, or for a whole segment without `part`.
    /// Players stay at least PART-HOLD-BACK behind the end of the playlist, or three target
    /// durations if they play whole segments (rfc8216bis, section 4.4.3.8). `None` further from the
    /// end: the player is starting, or is late.
    pub fn slack(&self, name: Name, part: Option<usize>) -> Option<Duration> {
        let pace = self.pace?;
        let newer = self.retained.segments.iter().filter(|segment| segment.name.msn > name.msn);
        let own = self.retained.find(name.msn).filter(|segment| segment.name == name)?;
        let own_ms: i64 = own.parts.iter().skip(part.unwrap_or(0)).map(|p| p.duration_ms).sum();
        let from_end_ms = own_ms + newer.map(RetainedSegment::duration_ms).sum::<i64>();
        let hold_back_ms = match part {
            Some(_) => pace.part_hold_back_ms(),
            None => 3_000 * pace.target_s,
        };
        let slack = u64::try_from(hold_back_ms - from_end_ms).ok().filter(|slack| *slack > 0);
        slack.map(Duration::from_millis)
    }

    /// Returns the availability of the named segment, or of one of its parts. Like
    /// [`Segmenter::availability`], but names that the stream never used are
    /// [`Availability::Past`].
    pub fn availability_of(&self, name: Name, part: Option<usize>) -> Availability {
        let retained = self.retained.find(name.msn).map(|segment| segment.name);
        match retained.or(self.growing()) == Some(name) {
            true => self.availability(name.msn, part),
            false => Availability::Past,
        }
    }

    /// Returns the media sequence number of the growing or next segment and the number of its next
    /// part, as in the preload hint.
    pub fn position(&self) -> (u64, usize) {
        let growing = self.retained.segments.back().filter(|segment| !segment.complete);
        (self.msn, growing.map_or(0, |segment| segment.parts.len()))
    }

    /// Returns the availability of a whole segment (without `part`) or of a part. Used for
    /// `_HLS_msn`, `_HLS_part` and requests for media.
    pub fn availability(&self, msn: u64, part: Option<usize>) -> Availability {
        if self.pace.is_none() && !self.ended {
            // The next sequence number is not known yet.
            return Availability::Pending;
        }
        let (next, next_part) = self.position();
        let (msn, part) = match (self.retained.find(msn), part) {
            // A part number past the end of a segment refers to the first part of the next segment
            // (rfc8216bis, section 6.2.5.2).
            (Some(segment), Some(part)) if segment.complete && part >= segment.parts.len() => {
                (msn + 1, Some(0))
            }
            _ => (msn, part),
        };
        if self.retained.segments.front().is_none_or(|first| msn < first.name.msn) && msn < next {
            return Availability::Past;
        }
        if msn < next || msn == next && part.is_some_and(|part| part < next_part) {
            return Availability::Present;
        }
        if self.ended {
            return Availability::Past;
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
            Availability::TooFar
        } else {
            Availability::Pending
        }
    }
}
