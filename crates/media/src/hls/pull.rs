//! Client of an HLS origin: schedules requests and converts segments into FLV tags.
//!
//! RFC 8216, section 6.3. One variant of a master playlist is pulled, without alternative
//! renditions (EXT-X-MEDIA): audio must be in the variant. Live streams start three segments from
//! the end (section 6.3.3: "SHOULD NOT choose a segment that starts less than three target
//! durations from the end"), other streams at the beginning. The caller performs the requests.

mod items;

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use units::Timestamp;
pub use url::Url;

pub use super::error::Error;
use super::manifest::{self, MAX_PLAYLIST, Manifest, Media, SegmentEntry, SegmentLocation};
pub use super::variant::Choice;
use super::{flv_tags, follow, variant};
use crate::deviation::{Deviation, Deviations};
use crate::flv::{Kind, Tag};
use crate::fmp4::read::{CodecConfig, Movie};
use crate::{Timeline, ts};
use items::{ItemContent, mp4_items, ts_items};

/// Maximum size of a segment, in bytes: a minute at 8 Mbit/s.
const MAX_SEGMENT: usize = 64 << 20;
/// Maximum size of an initialisation segment, in bytes.
const MAX_INIT: usize = 1 << 20;
/// Distance from the end at which live streams start, in segments.
const START_SEGMENTS: usize = 3;
/// Attempts after which a segment is skipped.
const SEGMENT_TRIES: u32 = 3;
/// Consecutive failures after which a playlist is reported as unreachable.
const PLAYLIST_TRIES: u32 = 4;
/// Wait after the first failure, doubled after each further one, up to [`MAX_DOUBLINGS`] times. A
/// segment is thus skipped before three segments of 2 s have been played.
const RETRY: Duration = Duration::from_millis(250);
const MAX_DOUBLINGS: u32 = 4;
/// Wait after an unreadable playlist.
const RELOAD: Duration = Duration::from_secs(1);
/// An origin has restarted if its playlist ends this many segments before the newest known one.
const RESTART_SEGMENTS: u64 = 3;
/// Maximum number of reported unsupported codecs.
const MAX_CODECS: usize = 16;

/// Type of the requested resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A playlist.
    Playlist,
    /// An initialisation segment (EXT-X-MAP).
    Map,
    /// A media segment.
    Segment,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Playlist => "playlist",
            Self::Map => "initialisation segment",
            Self::Segment => "segment",
        })
    }
}

/// A request to the origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginRequest {
    /// An `http` or `https` URL.
    pub url: Url,
    /// First byte and number of bytes of the requested range.
    pub range: Option<(u64, u64)>,
    /// Size limit of the response. Larger responses are rejected and need not be read completely.
    pub max_bytes: usize,
    /// Type of the requested resource.
    pub kind: Subject,
}

/// Consequence of a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureOutcome {
    /// The request will be repeated after a wait.
    Retry,
    /// The segment is skipped.
    Skipped,
}

/// Next step of a pull.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Perform this request, then call [`Pull::on_response`] or [`Pull::on_failure`].
    Fetch(OriginRequest),
    /// Call [`Pull::next`] again after this time.
    Wait(Duration),
    /// The stream has ended and was pulled completely.
    End,
}

/// URL and byte range of a resource.
type Location = (Url, Option<(u64, u64)>);

/// A segment in the queue.
#[derive(Debug)]
struct QueuedSegment {
    location: Location,
    map: Option<Location>,
    discontinuity: bool,
    gap: bool,
}

impl QueuedSegment {
    fn new(base: &Url, entry: SegmentEntry) -> Result<Self, Error> {
        let location = |resource: &SegmentLocation| {
            let url = follow(base, &resource.uri).ok_or(Error::Reference)?;
            Ok((url, resource.range))
        };
        let (discontinuity, gap) = (entry.discontinuity, entry.gap);
        let map = entry.map.as_deref().map(location).transpose()?;
        Ok(Self { location: location(&entry.resource)?, map, discontinuity, gap })
    }
}

/// Pull of one stream.
#[derive(Debug)]
pub struct Pull {
    /// URL of the playlist: first the master playlist, then the media playlist.
    url: Url,
    choice: Choice,
    has_variant: bool,
    /// The pending request.
    current: Option<OriginRequest>,
    /// URL to which the pending request was redirected.
    redirected: Option<Url>,
    failures: u32,
    /// Earliest time of the next request.
    not_before: Timestamp,
    /// Earliest time of the next reload, and time of the last load.
    reload_at: Timestamp,
    loaded_at: Timestamp,
    /// Sequence number of the next segment to enqueue.
    next: Option<u64>,
    /// URL of the newest enqueued segment.
    newest: Option<Url>,
    queue: VecDeque<QueuedSegment>,
    target: Duration,
    ended: bool,
    movie: Option<(Location, Movie)>,
    ts: ts::SegmentReader,
    /// Whether the next segment does not continue the times of the previous one.
    discontinuity: bool,
    /// The newest configurations of video and audio.
    configs: [Option<CodecConfig>; 2],
    timeline: Timeline,
    /// Omitted codecs, and the number of them that were reported.
    unsupported: Vec<String>,
    reported: usize,
    deviations: Deviations,
}

impl Pull {
    /// Creates a pull of the playlist at this `http` or `https` URL.
    pub fn new(url: Url, choice: Choice) -> Self {
        let start = Timestamp::from_nanos(0);
        Self {
            url,
            choice,
            has_variant: false,
            current: None,
            redirected: None,
            failures: 0,
            not_before: start,
            reload_at: start,
            loaded_at: start,
            next: None,
            newest: None,
            queue: VecDeque::new(),
            target: Duration::ZERO,
            ended: false,
            movie: None,
            ts: ts::SegmentReader::default(),
            discontinuity: false,
            configs: [None, None],
            timeline: Timeline::default(),
            unsupported: Vec::new(),
            reported: 0,
            deviations: Deviations::default(),
        }
    }

    /// Returns the target duration of segments; zero before the first playlist has been loaded.
    pub fn target(&self) -> Duration {
        self.target
    }

    /// Returns the number of known segments that have not been fetched. `None` if the stream has
    /// ended, because all of it may then be pending.
    pub fn pending_segments(&self) -> Option<usize> {
        (!self.ended).then_some(self.queue.len())
    }

    /// Returns the next unreported codec that is omitted because FLV cannot carry it.
    pub fn poll_unsupported(&mut self) -> Option<&str> {
        let codec = self.unsupported.get(self.reported)?;
        self.reported += 1;
        Some(codec)
    }

    /// Returns the next step. A request without a response is returned again.
    pub fn next(&mut self, now: Timestamp) -> Action {
        if let Some(request) = self.current.as_ref().filter(|_| now >= self.not_before) {
            return Action::Fetch(request.clone());
        }
        if now < self.not_before {
            return Action::Wait(self.not_before.since(now));
        }
        while self.queue.front().is_some_and(|segment| segment.gap) {
            self.skip_segment();
        }
        let loaded = self.movie.as_ref().map(|(location, _)| location);
        let ((url, range), kind, max_bytes) = match self.queue.front() {
            Some(QueuedSegment { map: Some(map), .. }) if loaded != Some(map) => {
                (map.clone(), Subject::Map, MAX_INIT)
            }
            Some(segment) => (segment.location.clone(), Subject::Segment, MAX_SEGMENT),
            None if self.ended => return Action::End,
            None if now < self.reload_at => return Action::Wait(self.reload_at.since(now)),
            None => {
                self.loaded_at = now;
                ((self.url.clone(), None), Subject::Playlist, MAX_PLAYLIST)
            }
        };
        let request = OriginRequest { url, range, max_bytes, kind };
        self.current = Some(request.clone());
        Action::Fetch(request)
    }

    /// Handles a redirect: URIs in the response are relative to `url`. Reloads still use the
    /// original URL.
    pub fn on_redirect(&mut self, url: Url) {
        self.redirected = Some(url);
    }

    /// Handles the body of a response. Returns its tags, including sequence headers, with
    /// timestamps that continue the previous ones.
    ///
    /// # Errors
    /// The body cannot be used. A segment is then skipped; the caller decides whether to continue.
    pub fn on_response(&mut self, body: &Bytes) -> Result<Vec<Tag>, Error> {
        let request = self.current.take().ok_or(Error::Unsolicited)?;
        let base = self.redirected.take().unwrap_or_else(|| request.url.clone());
        self.failures = 0;
        let result = match request.kind {
            _ if body.len() > request.max_bytes => Err(Error::TooLarge),
            Subject::Playlist => self.on_playlist(&base, body).map(|()| Vec::new()),
            Subject::Map => Movie::new(body).map_err(Error::Mp4).map(|movie| {
                movie.unsupported.iter().for_each(|codec| self.record_unsupported(codec));
                self.movie = Some(((request.url, request.range), movie));
                Vec::new()
            }),
            Subject::Segment => self.on_segment(body),
        };
        match (request.kind, &result) {
            (Subject::Playlist, Err(_)) => self.reload_at = self.loaded_at + RELOAD,
            (Subject::Map | Subject::Segment, Err(_)) => self.skip_segment(),
            (Subject::Segment, Ok(_)) => drop(self.queue.pop_front()),
            _ => {}
        }
        result
    }

    /// Handles a failed request, for example a response of 404. The request is repeated a few times
    /// with growing waits; then a segment is skipped.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the playlist has failed at least four times in a row. The caller
    /// may continue; the playlist is then requested again.
    pub fn on_failure(&mut self, now: Timestamp) -> Result<FailureOutcome, Error> {
        let request = self.current.as_ref().ok_or(Error::Unsolicited)?;
        let is_playlist = request.kind == Subject::Playlist;
        self.failures += 1;
        self.not_before = now + RETRY * (1 << (self.failures - 1).min(MAX_DOUBLINGS));
        if self.failures < if is_playlist { PLAYLIST_TRIES } else { SEGMENT_TRIES } {
            return Ok(FailureOutcome::Retry);
        }
        if is_playlist {
            return Err(Error::Unreachable);
        }
        (self.failures, self.not_before, self.current) = (0, now, None);
        self.skip_segment();
        Ok(FailureOutcome::Skipped)
    }

    /// Skips the next segment. Its discontinuity moves to the segment after it.
    fn skip_segment(&mut self) {
        self.discontinuity |= self.queue.pop_front().is_some_and(|segment| segment.discontinuity);
    }

    fn on_playlist(&mut self, base: &Url, body: &[u8]) -> Result<(), Error> {
        match manifest::parse(body, &mut self.deviations)? {
            Manifest::Master(_) if self.has_variant => Err(Error::Playlist),
            Manifest::Master(variants) => {
                let variant = variant::choose(self.choice, variants)?;
                self.url = follow(base, &variant.uri).ok_or(Error::Reference)?;
                variant.unsupported_codecs().for_each(|codec| self.record_unsupported(codec));
                self.has_variant = true;
                Ok(())
            }
            Manifest::Media(media) => {
                self.has_variant = true;
                self.on_media(base, media)
            }
        }
    }

    fn record_unsupported(&mut self, codec: &str) {
        let is_known = self.unsupported.iter().any(|known| known == codec);
        if !is_known && self.unsupported.len() < MAX_CODECS {
            self.unsupported.push(codec.to_owned());
        }
    }

    fn on_media(&mut self, base: &Url, media: Media) -> Result<(), Error> {
        let sequence = media.sequence.unwrap_or_else(|| self.sequence_of(base, &media));
        let Media { target, ended, entries, .. } = media;
        let end = sequence + entries.len() as u64;
        let start = if ended { 0 } else { entries.len().saturating_sub(START_SEGMENTS) };
        let restarted = self.next.is_some_and(|next| end + RESTART_SEGMENTS < next);
        let next = match self.next {
            Some(next) if !restarted => {
                if next < sequence {
                    // Skipped segments have left the playlist: times continue after a gap.
                    self.discontinuity |= entries.iter().take(start).any(|e| e.discontinuity);
                    sequence + start as u64
                } else {
                    next
                }
            }
            _ => {
                self.discontinuity |= restarted;
                sequence + start as u64
            }
        };
        let skipped = usize::try_from(next.saturating_sub(sequence)).unwrap_or(usize::MAX);
        let before = self.queue.len();
        for entry in entries.into_iter().skip(skipped) {
            let segment = QueuedSegment::new(base, entry)?;
            self.newest = Some(segment.location.0.clone());
            self.queue.push_back(segment);
        }
        self.target = target;
        self.next = Some(next.max(end));
        self.ended = ended;
        // Section 6.3.4: after a playlist that has changed "the client MUST wait for at least the
        // target duration before attempting to reload the Playlist file again, measured from the
        // last time the client began loading the Playlist", otherwise "one-half the target
        // duration".
        let changed = self.queue.len() > before;
        self.reload_at = self.loaded_at + if changed { target } else { target / 2 };
        Ok(())
    }

    /// Returns the sequence number of the first segment in a playlist without one, counted from the
    /// newest known segment.
    fn sequence_of(&self, base: &Url, media: &Media) -> u64 {
        let Some((next, newest)) = self.next.zip(self.newest.as_ref()) else { return 0 };
        let is_newest =
            |entry: &SegmentEntry| follow(base, &entry.resource.uri).as_ref() == Some(newest);
        match media.entries.iter().rposition(is_newest) {
            Some(index) => next.saturating_sub(index as u64 + 1),
            None => next,
        }
    }

    /// Returns the deviations from standards since the last call.
    pub fn deviations(&mut self) -> impl Iterator<Item = (Deviation, u32)> + use<> {
        self.deviations.add(&self.ts.deviations());
        self.deviations.take()
    }

    fn on_segment(&mut self, body: &Bytes) -> Result<Vec<Tag>, Error> {
        let segment = self.queue.front().ok_or(Error::Unsolicited)?;
        self.discontinuity |= segment.discontinuity;
        let items = match (&segment.map, &self.movie) {
            (Some(_), Some((_, movie))) => mp4_items(movie, body).map_err(Error::Mp4)?,
            _ => {
                let items = ts_items(&mut self.ts, body);
                let unsupported = self.ts.unsupported().to_vec();
                unsupported.iter().for_each(|codec| self.record_unsupported(codec));
                items.map_err(Error::Ts)?
            }
        };
        if core::mem::take(&mut self.discontinuity) {
            self.timeline.on_publisher();
        }
        let mut tags = Vec::with_capacity(items.len());
        for item in items {
            let kind = if item.index == 0 { Kind::Video } else { Kind::Audio };
            let timestamp = self.timeline.map(kind, item.ms as u32);
            let config = &mut self.configs[item.index];
            match item.content {
                ItemContent::Config(new) => {
                    if config.as_ref() != Some(&new) {
                        tags.extend(flv_tags::header(&new, timestamp));
                        *config = Some(new);
                    }
                }
                ItemContent::Sample { data, sync, composition_ms } => {
                    if let Some(config) = config {
                        let tag = flv_tags::frame(config, &data, sync, timestamp, composition_ms);
                        tags.extend(tag);
                    }
                }
            }
        }
        Ok(tags)
    }
}

#[cfg(test)]
mod tests;
