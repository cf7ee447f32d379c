//! The client of an HLS origin: which resource next, and FLV tags out of segments.
//!
//! RFC 8216, section 6.3. A master playlist leads to one variant; alternative renditions
//! (EXT-X-MEDIA) are not pulled, so that audio has to be in the variant. Live streams start three
//! segments from the end (section 6.3.3: "SHOULD NOT choose a segment that starts less than three
//! target durations from the end"), others at their start. The caller fetches, this decides.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use units::Timestamp;

pub use super::error::Error;
use super::manifest::{self, Entry, MAX_PLAYLIST, Manifest, Media, Resource, Variant};
use super::{flv_tags, url};
use crate::flv::{Kind, Tag};
use crate::fmp4::read::{Config, Movie};
use crate::fmp4::{self, Sample};
use crate::{Timeline, ts};

/// Bytes of a segment: a minute at 8 Mbit/s.
const MAX_SEGMENT: usize = 64 << 20;
/// Bytes of an initialisation segment.
const MAX_INIT: usize = 1 << 20;
/// Live streams start this many segments from the end.
const START_SEGMENTS: usize = 3;
/// A segment that fails as often is left out, a playlist ends the pull.
const MAX_FAILURES: u32 = 4;
/// After a failure, times the number of failures.
const RETRY: Duration = Duration::from_millis(500);
/// An origin whose playlist ends this many segments before what was seen has started again.
const RESTART_SEGMENTS: u64 = 3;

/// Which variant of a master playlist to pull.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Choice {
    /// The one with the highest bandwidth.
    #[default]
    Highest,
    /// The first one, which is the author's proposal.
    First,
}

/// A request to the origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The absolute URL.
    pub url: String,
    /// First byte, and number of bytes, of the part wanted.
    pub range: Option<(u64, u64)>,
    /// A response with more bytes is refused, so there is no need to read on.
    pub max_bytes: usize,
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

#[derive(Clone, PartialEq, Debug)]
enum Target {
    Playlist,
    Map(Arc<Resource>),
    Segment(Entry),
}

/// The pull of one stream.
#[derive(Debug)]
pub struct Pull {
    /// Of the playlist, the master's first.
    url: String,
    choice: Choice,
    has_variant: bool,
    /// What is being fetched.
    current: Option<(Target, Request)>,
    failures: u32,
    /// Nothing is fetched before.
    not_before: Timestamp,
    /// When the playlist may be loaded again, and when it was loaded.
    reload_at: Timestamp,
    loaded_at: Timestamp,
    /// The number of the next segment to put into the queue.
    next: Option<u64>,
    queue: VecDeque<Entry>,
    ended: bool,
    movie: Option<(Arc<Resource>, Movie)>,
    ts: ts::Reader,
    /// The next segment does not continue the times of the last one.
    discontinuity: bool,
    /// The newest configuration of video and audio.
    configs: [Option<Config>; 2],
    timeline: Timeline,
}

impl Pull {
    /// A pull from the playlist at this absolute URL.
    pub fn new(url: String, choice: Choice) -> Self {
        let start = Timestamp::from_nanos(0);
        Self {
            url,
            choice,
            has_variant: false,
            current: None,
            failures: 0,
            not_before: start,
            reload_at: start,
            loaded_at: start,
            next: None,
            queue: VecDeque::new(),
            ended: false,
            movie: None,
            ts: ts::Reader::default(),
            discontinuity: false,
            configs: [None, None],
            timeline: Timeline::default(),
        }
    }

    /// What to do next. A request that has no answer yet is given again.
    pub fn next(&mut self, now: Timestamp) -> Action {
        if let Some((_, request)) = self.current.as_ref().filter(|_| now >= self.not_before) {
            return Action::Fetch(request.clone());
        }
        if now < self.not_before {
            return Action::Wait(self.not_before.since(now));
        }
        while self.queue.front().is_some_and(|entry| entry.gap) {
            self.leave_out();
        }
        let target = if let Some(entry) = self.queue.front() {
            let loaded = self.movie.as_ref().map(|(map, _)| map);
            match &entry.map {
                Some(map) if loaded != Some(map) => Target::Map(map.clone()),
                _ => Target::Segment(entry.clone()),
            }
        } else if self.ended {
            return Action::End;
        } else if now < self.reload_at {
            return Action::Wait(self.reload_at.since(now));
        } else {
            self.loaded_at = now;
            Target::Playlist
        };
        let (resource, max_bytes) = match &target {
            Target::Playlist => (None, MAX_PLAYLIST),
            Target::Map(map) => (Some(&**map), MAX_INIT),
            Target::Segment(entry) => (Some(&entry.resource), MAX_SEGMENT),
        };
        let request = Request {
            url: resource.map_or_else(|| self.url.clone(), |r| url::resolve(&self.url, &r.uri)),
            range: resource.and_then(|resource| resource.range),
            max_bytes,
        };
        self.current = Some((target, request.clone()));
        Action::Fetch(request)
    }

    /// Takes the body that was fetched; gives the tags that it holds, sequence headers included,
    /// their times going on from those before.
    ///
    /// # Errors
    /// The body is of no use. A segment is then left out; the caller decides whether to go on.
    pub fn on_response(&mut self, body: &Bytes) -> Result<Vec<Tag>, Error> {
        let (target, request) = self.current.take().ok_or(Error::Unasked)?;
        self.failures = 0;
        if body.len() > request.max_bytes {
            self.give_up(&target);
            return Err(Error::TooLarge);
        }
        let result = match &target {
            Target::Playlist => self.on_playlist(body).map(|()| Vec::new()),
            Target::Map(map) => Movie::new(body).map_err(Error::Mp4).map(|movie| {
                self.movie = Some((map.clone(), movie));
                Vec::new()
            }),
            Target::Segment(entry) => {
                self.queue.pop_front();
                self.on_segment(entry, body)
            }
        };
        if result.is_err() && !matches!(target, Target::Segment(_)) {
            self.give_up(&target);
        }
        result
    }

    /// The request failed, for example with 404. It is given again for some times; a segment that
    /// cannot be had is then left out.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: the playlist cannot be had either.
    pub fn on_failure(&mut self, now: Timestamp) -> Result<(), Error> {
        self.failures += 1;
        self.not_before = now + RETRY * self.failures;
        if self.failures < MAX_FAILURES {
            return Ok(());
        }
        self.failures = 0;
        let (target, _) = self.current.take().ok_or(Error::Unasked)?;
        self.give_up(&target);
        if target == Target::Playlist { Err(Error::Unreachable) } else { Ok(()) }
    }

    /// Goes on without what was asked for.
    fn give_up(&mut self, target: &Target) {
        match target {
            Target::Playlist => self.reload_at = self.loaded_at + RETRY * 2,
            Target::Map(_) | Target::Segment(_) => self.leave_out(),
        }
    }

    /// Goes on without the next segment; a discontinuity before it is one before the segment after.
    fn leave_out(&mut self) {
        self.discontinuity |= self.queue.pop_front().is_some_and(|entry| entry.discontinuity);
    }

    fn on_playlist(&mut self, body: &[u8]) -> Result<(), Error> {
        match manifest::parse(body)? {
            Manifest::Master(_) if self.has_variant => Err(Error::Playlist),
            Manifest::Master(variants) => {
                let highest = |best: Variant, other: Variant| {
                    if other.bandwidth > best.bandwidth { other } else { best }
                };
                let variant = match self.choice {
                    Choice::Highest => variants.into_iter().reduce(highest),
                    Choice::First => variants.into_iter().next(),
                };
                self.url = url::resolve(&self.url, &variant.ok_or(Error::Playlist)?.uri);
                self.has_variant = true;
                Ok(())
            }
            Manifest::Media(media) => {
                self.has_variant = true;
                self.on_media(media);
                Ok(())
            }
        }
    }

    fn on_media(&mut self, media: Media) {
        let Media { target, sequence, ended, entries } = media;
        let end = sequence + entries.len() as u64;
        let start = if ended { 0 } else { entries.len().saturating_sub(START_SEGMENTS) };
        let restarted = self.next.is_some_and(|next| end + RESTART_SEGMENTS < next);
        let next = match self.next {
            Some(next) if !restarted => {
                if next < sequence {
                    // What is missing has left the playlist: times go on with a gap.
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
        self.queue.extend(entries.into_iter().skip(skipped));
        self.next = Some(next.max(end));
        self.ended = ended;
        // Section 6.3.4: after a playlist that has changed "the client MUST wait for at least the
        // target duration before attempting to reload the Playlist file again, measured from the
        // last time the client began loading the Playlist", otherwise "one-half the target
        // duration".
        let changed = self.queue.len() > before;
        self.reload_at = self.loaded_at + if changed { target } else { target / 2 };
    }

    fn on_segment(&mut self, entry: &Entry, body: &Bytes) -> Result<Vec<Tag>, Error> {
        self.discontinuity |= entry.discontinuity;
        let items = match (&entry.map, &self.movie) {
            (Some(_), Some((_, movie))) => mp4_items(movie, body).map_err(Error::Mp4)?,
            _ => ts_items(&mut self.ts, body).map_err(Error::Ts)?,
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

/// What becomes a tag.
struct Item {
    /// 0: video, 1: audio.
    index: usize,
    /// Decoding time.
    ms: i64,
    what: What,
}

enum What {
    Config(Config),
    Sample { data: Bytes, sync: bool, composition_ms: i64 },
}

impl Item {
    fn sample(index: usize, sample: Sample, timescale: u32) -> Self {
        let scale = i128::from(timescale);
        let ms = |time: i64| ((i128::from(time) * 1_000 + scale / 2).div_euclid(scale)) as i64;
        let (dts, pts) = (ms(sample.dts), ms(sample.dts + i64::from(sample.composition)));
        let what = What::Sample { data: sample.data, sync: sample.sync, composition_ms: pts - dts };
        Self { index, ms: dts, what }
    }
}

/// 0 for video, 1 for audio.
fn config_index(config: &Config) -> usize {
    usize::from(!matches!(config, Config::Video(_)))
}

/// The first video and the first audio track of a segment, by time.
fn mp4_items(movie: &Movie, segment: &Bytes) -> Result<Vec<Item>, fmp4::read::Error> {
    let place = |kind| movie.tracks.iter().position(|track| config_index(&track.config) == kind);
    let chosen = [place(0), place(1)];
    let mut items = Vec::new();
    let mut told = [false; 2];
    for (track, sample) in movie.samples(segment)? {
        let Some(kind) = chosen.iter().position(|chosen| *chosen == Some(track)) else { continue };
        let track = &movie.tracks[track];
        let item = Item::sample(kind, sample, track.timescale);
        if !core::mem::replace(&mut told[kind], true) {
            let what = What::Config(track.config.clone());
            items.push(Item { index: kind, ms: item.ms, what });
        }
        items.push(item);
    }
    Ok(by_time(items))
}

fn ts_items(reader: &mut ts::Reader, segment: &[u8]) -> Result<Vec<Item>, ts::read::Error> {
    let mut items: Vec<Item> = Vec::new();
    let mut configs = [None, None];
    for item in reader.read(segment)? {
        let (index, sample) = match item {
            ts::read::Item::Config(config) => {
                let index = config_index(&config);
                configs[index] = Some(config);
                continue;
            }
            ts::read::Item::Video(sample) => (0, sample),
            ts::read::Item::Audio(sample) => (1, sample),
        };
        let item = Item::sample(index, sample, ts::TIMESCALE);
        if let Some(config) = configs[index].take() {
            items.push(Item { index, ms: item.ms, what: What::Config(config) });
        }
        items.push(item);
    }
    Ok(by_time(items))
}

/// The items of a segment by time. What the tracks are comes before all frames: who gets the first
/// frame has to know what other tracks there are.
fn by_time(mut items: Vec<Item>) -> Vec<Item> {
    let first = items.iter().map(|item| item.ms).min().unwrap_or(0);
    for index in 0..2 {
        let start = items.iter_mut().find(|item| item.index == index);
        if let Some(item) = start.filter(|item| matches!(item.what, What::Config(_))) {
            item.ms = first;
        }
    }
    items.sort_by_key(|item| (item.ms, matches!(item.what, What::Sample { .. })));
    items
}

#[cfg(test)]
mod tests;
