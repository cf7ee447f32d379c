//! Client of one playlist: schedules the requests of the playlist and its segments, and converts
//! segments into samples.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use units::Timestamp;
use url::Url;

use super::items::{PullItem, mp4_items, ts_items};
use super::notes::Notes;
use super::request::{Action, FailureOutcome, OriginRequest, Subject};
use crate::deviation::Deviations;
use crate::fmp4::read::Movie;
use crate::hls::error::Error;
use crate::hls::follow;
use crate::hls::manifest::{
    self, MAX_PLAYLIST, Manifest, Master, Media, SegmentEntry, SegmentLocation,
};
use crate::ts;

/// Maximum size of a segment, in bytes: a minute at 8 Mbit/s.
const MAX_SEGMENT: usize = 64 << 20;
/// Maximum size of an initialisation segment, in bytes.
const MAX_INIT: usize = 1 << 20;
/// Distance from the end at which live streams start, in segments.
const START_SEGMENTS: usize = 3;
/// Attempts after which a segment is skipped.
pub(super) const SEGMENT_TRIES: u32 = 3;
/// Consecutive failures after which a playlist is reported as unreachable.
pub(super) const PLAYLIST_TRIES: u32 = 4;
/// Wait after the first failure, doubled after each further one, up to [`MAX_DOUBLINGS`] times. A
/// segment is thus skipped before three segments of 2 s have been played.
pub(super) const RETRY: Duration = Duration::from_millis(250);
const MAX_DOUBLINGS: u32 = 4;
/// Wait after an unreadable playlist.
const RELOAD: Duration = Duration::from_secs(1);
/// An origin has restarted if its playlist ends this many segments before the newest known one.
const RESTART_SEGMENTS: u64 = 3;

/// URL and byte range of a resource.
type Location = (Url, Option<(u64, u64)>);

/// A segment in the queue.
#[derive(Debug)]
struct QueuedSegment {
    location: Location,
    map: Option<Location>,
    duration: Duration,
    discontinuity: bool,
    gap: bool,
}

impl QueuedSegment {
    fn new(base: &Url, entry: SegmentEntry) -> Result<Self, Error> {
        let location = |resource: &SegmentLocation| {
            let url = follow(base, &resource.uri).ok_or(Error::Reference)?;
            Ok((url, resource.range))
        };
        let SegmentEntry { duration, discontinuity, gap, .. } = entry;
        let map = entry.map.as_deref().map(location).transpose()?;
        Ok(Self { location: location(&entry.resource)?, map, duration, discontinuity, gap })
    }
}

/// Content of a response.
#[derive(Debug)]
pub(super) enum Content {
    /// A master playlist, and the URL that its URIs are relative to.
    Master(Url, Master),
    /// A media playlist.
    Playlist,
    /// An initialisation segment.
    Map,
    /// Samples and configurations in time order, and whether their times do not continue those of
    /// the previous segment.
    Segment { items: Vec<PullItem>, is_break: bool },
}

/// Client of one playlist.
#[derive(Debug)]
pub(super) struct Feed {
    url: Url,
    /// Whether a media playlist is required.
    needs_media: bool,
    /// The request without a response.
    current: Option<OriginRequest>,
    /// URL to which it was redirected.
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
    /// Duration of the segments that have left the queue.
    played: Duration,
    movie: Option<(Location, Movie)>,
    ts: ts::SegmentReader,
    /// Whether the next segment does not continue the times of the previous one.
    discontinuity: bool,
}

impl Feed {
    /// Creates a client of a playlist that may be a master playlist.
    pub(super) fn of_master(url: Url) -> Self {
        let start = Timestamp::ZERO;
        Self {
            url,
            needs_media: false,
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
            played: Duration::ZERO,
            movie: None,
            ts: ts::SegmentReader::default(),
            discontinuity: false,
        }
    }

    /// Creates a client of a media playlist.
    pub(super) fn of_media(url: Url) -> Self {
        Self { needs_media: true, ..Self::of_master(url) }
    }

    pub(super) fn target(&self) -> Duration {
        self.target
    }

    /// Returns the number of segments in the queue; `None` if the stream has ended.
    pub(super) fn pending_segments(&self) -> Option<usize> {
        (!self.ended).then_some(self.queue.len())
    }

    /// Whether segments are known that have not been fetched, or the first playlist may still come.
    pub(super) fn may_have_segments(&self) -> bool {
        let awaits_playlist = self.target.is_zero() && self.failures < PLAYLIST_TRIES;
        !self.queue.is_empty() || awaits_playlist
    }

    /// Whether nothing is left to fetch.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.queue.is_empty()
    }

    /// Returns whether a playlist was loaded, and the duration of the segments that have left the
    /// queue.
    pub(super) fn progress(&self) -> (bool, Duration) {
        (!self.target.is_zero(), self.played)
    }

    /// Returns the deviations in transport streams since the last call.
    pub(super) fn deviations(&mut self) -> Deviations {
        self.ts.deviations()
    }

    /// Returns the next step. A request without a response is returned again.
    pub(super) fn next(&mut self, now: Timestamp) -> Action {
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

    /// Handles a redirect: URIs in the response are relative to `url`.
    pub(super) fn on_redirect(&mut self, url: Url) {
        self.redirected = Some(url);
    }

    /// Handles the body of a response.
    ///
    /// # Errors
    /// The body cannot be used. A segment is then skipped.
    pub(super) fn on_response(
        &mut self,
        body: &Bytes,
        notes: &mut Notes,
    ) -> Result<Content, Error> {
        let request = self.current.take().ok_or(Error::Unsolicited)?;
        let base = self.redirected.take().unwrap_or_else(|| request.url.clone());
        self.failures = 0;
        let result = match request.kind {
            _ if body.len() > request.max_bytes => Err(Error::TooLarge),
            Subject::Playlist => self.on_playlist(base, body, notes),
            Subject::Map => Movie::new(body).map_err(Error::Mp4).map(|movie| {
                movie.unsupported.iter().for_each(|codec| notes.record_unsupported(codec));
                self.movie = Some(((request.url, request.range), movie));
                Content::Map
            }),
            Subject::Segment => self.on_segment(body, notes),
        };
        match (request.kind, &result) {
            (Subject::Playlist, Err(_)) => self.reload_at = self.loaded_at + RELOAD,
            (Subject::Map | Subject::Segment, Err(_)) => self.skip_segment(),
            (Subject::Segment, Ok(_)) => drop(self.take_segment()),
            _ => {}
        }
        result
    }

    /// Handles a failed request, for example a response of 404. The request is repeated a few times
    /// with growing waits; then a segment is skipped.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the playlist has failed at least four times in a row. It is
    /// requested again.
    pub(super) fn on_failure(&mut self, now: Timestamp) -> Result<FailureOutcome, Error> {
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

    /// Removes the next segment from the queue.
    fn take_segment(&mut self) -> Option<QueuedSegment> {
        let segment = self.queue.pop_front()?;
        self.played = self.played.saturating_add(segment.duration);
        Some(segment)
    }

    /// Skips the next segment. Its discontinuity moves to the segment after it.
    fn skip_segment(&mut self) {
        self.discontinuity |= self.take_segment().is_some_and(|segment| segment.discontinuity);
    }

    fn on_playlist(&mut self, base: Url, body: &[u8], notes: &mut Notes) -> Result<Content, Error> {
        match manifest::parse(body, &mut notes.deviations)? {
            Manifest::Master(_) if self.needs_media => Err(Error::Playlist),
            Manifest::Master(master) => Ok(Content::Master(base, master)),
            Manifest::Media(media) => {
                self.needs_media = true;
                self.on_media(&base, media).map(|()| Content::Playlist)
            }
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

    fn on_segment(&mut self, body: &Bytes, notes: &mut Notes) -> Result<Content, Error> {
        let segment = self.queue.front().ok_or(Error::Unsolicited)?;
        let is_break = self.discontinuity || segment.discontinuity;
        let items = match (&segment.map, &self.movie) {
            (Some(_), Some((_, movie))) => mp4_items(movie, body).map_err(Error::Mp4),
            _ => {
                let items = ts_items(&mut self.ts, body).map_err(Error::Ts);
                self.ts.unsupported().iter().for_each(|codec| notes.record_unsupported(codec));
                items
            }
        }?;
        self.discontinuity = false;
        Ok(Content::Segment { items, is_break })
    }
}
