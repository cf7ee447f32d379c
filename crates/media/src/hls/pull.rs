//! The client of an HLS origin: which resource next, and FLV tags out of segments.
//!
//! RFC 8216, section 6.3. One variant of a master playlist is pulled, without alternative
//! renditions (EXT-X-MEDIA): audio must be in the variant. Live streams start three segments from
//! the end (section 6.3.3: "SHOULD NOT choose a segment that starts less than three target
//! durations from the end"), others at their start. The caller does the requests.

mod items;

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use units::Timestamp;
pub use url::Url;

pub use super::error::Error;
use super::manifest::{self, Entry, MAX_PLAYLIST, Manifest, Media, Resource};
pub use super::variant::Choice;
use super::{flv_tags, follow, variant};
use crate::deviation::{Deviation, Deviations};
use crate::flv::{Kind, Tag};
use crate::fmp4::read::{Config, Movie};
use crate::{Timeline, ts};
use items::{What, mp4_items, ts_items};

/// Bytes of a segment: a minute at 8 Mbit/s.
const MAX_SEGMENT: usize = 64 << 20;
/// Bytes of an initialisation segment.
const MAX_INIT: usize = 1 << 20;
/// Live streams start this many segments from the end.
const START_SEGMENTS: usize = 3;
/// A segment that fails as often is left out.
const SEGMENT_TRIES: u32 = 3;
/// A playlist that fails as often one after the other is out of reach.
const PLAYLIST_TRIES: u32 = 4;
/// Wait after a failure, doubled by each further one up to [`MAX_DOUBLINGS`] times: a segment is
/// left out before three of 2 s are played to their end.
const RETRY: Duration = Duration::from_millis(250);
const MAX_DOUBLINGS: u32 = 4;
/// Wait after a playlist that cannot be read.
const RELOAD: Duration = Duration::from_secs(1);
/// An origin has restarted if its playlist ends this many segments before the newest one seen.
const RESTART_SEGMENTS: u64 = 3;
/// Names of unsupported codecs that are remembered.
const MAX_CODECS: usize = 16;

/// Purpose of a request.
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
pub struct Request {
    /// Where it is: an `http` or `https` URL.
    pub url: Url,
    /// First byte, and number of bytes, of the part wanted.
    pub range: Option<(u64, u64)>,
    /// Limit of the response: larger ones are rejected, and need not be read to the end.
    pub max_bytes: usize,
    /// Purpose of the request.
    pub kind: Subject,
}

/// Consequence of a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// It will be given again, after a wait.
    Again,
    /// The segment is skipped.
    LeftOut,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Fetch this, then call [`Pull::on_response`] or [`Pull::on_failure`].
    Fetch(Request),
    /// Ask again after this time.
    Wait(Duration),
    /// The stream has ended and all of it was pulled.
    End,
}

/// Where a part of the stream is, and which bytes of it.
type Place = (Url, Option<(u64, u64)>);

/// A segment that waits to be fetched.
#[derive(Debug)]
struct Segment {
    place: Place,
    map: Option<Place>,
    discontinuity: bool,
    gap: bool,
}

impl Segment {
    fn new(base: &Url, entry: Entry) -> Result<Self, Error> {
        let place = |resource: &Resource| {
            let url = follow(base, &resource.uri).ok_or(Error::Reference)?;
            Ok((url, resource.range))
        };
        let (discontinuity, gap) = (entry.discontinuity, entry.gap);
        let map = entry.map.as_deref().map(place).transpose()?;
        Ok(Self { place: place(&entry.resource)?, map, discontinuity, gap })
    }
}

/// The pull of one stream.
#[derive(Debug)]
pub struct Pull {
    /// Of the playlist, the master's first.
    url: Url,
    choice: Choice,
    has_variant: bool,
    /// The request under way.
    current: Option<Request>,
    /// Where the answer to it comes from, if it was redirected.
    redirected: Option<Url>,
    failures: u32,
    /// Nothing is fetched before.
    not_before: Timestamp,
    /// When the playlist may be loaded again, and when it was loaded.
    reload_at: Timestamp,
    loaded_at: Timestamp,
    /// The number of the next segment to put into the queue.
    next: Option<u64>,
    /// The newest segment that was put there.
    newest: Option<Url>,
    queue: VecDeque<Segment>,
    target: Duration,
    ended: bool,
    movie: Option<(Place, Movie)>,
    ts: ts::Reader,
    /// The next segment does not continue the times of the last one.
    discontinuity: bool,
    /// The newest configuration of video and audio.
    configs: [Option<Config>; 2],
    timeline: Timeline,
    /// Codecs that are left out, and how many of them were told.
    unsupported: Vec<String>,
    told: usize,
    deviations: Deviations,
}

impl Pull {
    /// A pull from the playlist at this `http` or `https` URL.
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
            ts: ts::Reader::default(),
            discontinuity: false,
            configs: [None, None],
            timeline: Timeline::default(),
            unsupported: Vec::new(),
            told: 0,
            deviations: Deviations::default(),
        }
    }

    /// The target duration of the playlist's segments; zero before the first playlist was loaded.
    pub fn target(&self) -> Duration {
        self.target
    }

    /// How many segments are known and not fetched; `None` if the stream has ended, so that all of
    /// it may be.
    pub fn behind(&self) -> Option<usize> {
        (!self.ended).then_some(self.queue.len())
    }

    /// A codec of the stream that is left out because FLV cannot carry it; each is told once.
    pub fn poll_unsupported(&mut self) -> Option<&str> {
        let codec = self.unsupported.get(self.told)?;
        self.told += 1;
        Some(codec)
    }

    /// What to do next. A request that has no answer yet is given again.
    pub fn next(&mut self, now: Timestamp) -> Action {
        if let Some(request) = self.current.as_ref().filter(|_| now >= self.not_before) {
            return Action::Fetch(request.clone());
        }
        if now < self.not_before {
            return Action::Wait(self.not_before.since(now));
        }
        while self.queue.front().is_some_and(|segment| segment.gap) {
            self.leave_out();
        }
        let loaded = self.movie.as_ref().map(|(place, _)| place);
        let ((url, range), kind, max_bytes) = match self.queue.front() {
            Some(Segment { map: Some(map), .. }) if loaded != Some(map) => {
                (map.clone(), Subject::Map, MAX_INIT)
            }
            Some(segment) => (segment.place.clone(), Subject::Segment, MAX_SEGMENT),
            None if self.ended => return Action::End,
            None if now < self.reload_at => return Action::Wait(self.reload_at.since(now)),
            None => {
                self.loaded_at = now;
                ((self.url.clone(), None), Subject::Playlist, MAX_PLAYLIST)
            }
        };
        let request = Request { url, range, max_bytes, kind };
        self.current = Some(request.clone());
        Action::Fetch(request)
    }

    /// Handles a redirect: URIs in the response are relative to `url`. Reloads still use the
    /// original URL.
    pub fn on_redirect(&mut self, url: Url) {
        self.redirected = Some(url);
    }

    /// Takes the body of a response. Returns its tags, including sequence headers, with times that
    /// continue the previous ones.
    ///
    /// # Errors
    /// The body is of no use. A segment is then left out; the caller decides whether to go on.
    pub fn on_response(&mut self, body: &Bytes) -> Result<Vec<Tag>, Error> {
        let request = self.current.take().ok_or(Error::Unasked)?;
        let base = self.redirected.take().unwrap_or_else(|| request.url.clone());
        self.failures = 0;
        let result = match request.kind {
            _ if body.len() > request.max_bytes => Err(Error::TooLarge),
            Subject::Playlist => self.on_playlist(&base, body).map(|()| Vec::new()),
            Subject::Map => Movie::new(body).map_err(Error::Mp4).map(|movie| {
                movie.unsupported.iter().for_each(|codec| self.leave_out_codec(codec));
                self.movie = Some(((request.url, request.range), movie));
                Vec::new()
            }),
            Subject::Segment => self.on_segment(body),
        };
        match (request.kind, &result) {
            (Subject::Playlist, Err(_)) => self.reload_at = self.loaded_at + RELOAD,
            (Subject::Map | Subject::Segment, Err(_)) => self.leave_out(),
            (Subject::Segment, Ok(_)) => drop(self.queue.pop_front()),
            _ => {}
        }
        result
    }

    /// The request failed, for example with 404. It is given again for some times, after growing
    /// waits; a segment that cannot be had is then left out.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: the playlist has failed four times or more in a row. The caller
    /// may go on; then it is asked for again.
    pub fn on_failure(&mut self, now: Timestamp) -> Result<Failed, Error> {
        let request = self.current.as_ref().ok_or(Error::Unasked)?;
        let is_playlist = request.kind == Subject::Playlist;
        self.failures += 1;
        self.not_before = now + RETRY * (1 << (self.failures - 1).min(MAX_DOUBLINGS));
        if self.failures < if is_playlist { PLAYLIST_TRIES } else { SEGMENT_TRIES } {
            return Ok(Failed::Again);
        }
        if is_playlist {
            return Err(Error::Unreachable);
        }
        (self.failures, self.not_before, self.current) = (0, now, None);
        self.leave_out();
        Ok(Failed::LeftOut)
    }

    /// Skips the next segment; its discontinuity moves to the segment after it.
    fn leave_out(&mut self) {
        self.discontinuity |= self.queue.pop_front().is_some_and(|segment| segment.discontinuity);
    }

    fn on_playlist(&mut self, base: &Url, body: &[u8]) -> Result<(), Error> {
        match manifest::parse(body, &mut self.deviations)? {
            Manifest::Master(_) if self.has_variant => Err(Error::Playlist),
            Manifest::Master(variants) => {
                let variant = variant::choose(self.choice, variants)?;
                self.url = follow(base, &variant.uri).ok_or(Error::Reference)?;
                variant.unknown_codecs().for_each(|codec| self.leave_out_codec(codec));
                self.has_variant = true;
                Ok(())
            }
            Manifest::Media(media) => {
                self.has_variant = true;
                self.on_media(base, media)
            }
        }
    }

    fn leave_out_codec(&mut self, codec: &str) {
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
                    // Missing segments have left the playlist: times continue after a gap.
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
            let segment = Segment::new(base, entry)?;
            self.newest = Some(segment.place.0.clone());
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

    /// Number of the first segment of a playlist without one: it continues after the newest known
    /// one.
    fn sequence_of(&self, base: &Url, media: &Media) -> u64 {
        let Some((next, newest)) = self.next.zip(self.newest.as_ref()) else { return 0 };
        let is_newest = |entry: &Entry| follow(base, &entry.resource.uri).as_ref() == Some(newest);
        match media.entries.iter().rposition(is_newest) {
            Some(place) => next.saturating_sub(place as u64 + 1),
            None => next,
        }
    }

    /// Breaches of rules since this was last asked.
    pub fn deviations(&mut self) -> impl Iterator<Item = (Deviation, u32)> + use<> {
        self.deviations.add(&self.ts.deviations());
        self.deviations.take()
    }

    fn on_segment(&mut self, body: &Bytes) -> Result<Vec<Tag>, Error> {
        let segment = self.queue.front().ok_or(Error::Unasked)?;
        self.discontinuity |= segment.discontinuity;
        let items = match (&segment.map, &self.movie) {
            (Some(_), Some((_, movie))) => mp4_items(movie, body).map_err(Error::Mp4)?,
            _ => {
                let items = ts_items(&mut self.ts, body);
                let unsupported = self.ts.unsupported().to_vec();
                unsupported.iter().for_each(|codec| self.leave_out_codec(codec));
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
            match item.what {
                What::Config(new) => {
                    if config.as_ref() != Some(&new) {
                        tags.extend(flv_tags::header(&new, timestamp));
                        *config = Some(new);
                    }
                }
                What::Sample { data, sync, composition_ms } => {
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
