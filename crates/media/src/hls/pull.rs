//! Client of an HLS origin: schedules requests and converts segments into FLV tags.
//!
//! RFC 8216, section 6.3. One variant of a master playlist is pulled, with one audio rendition,
//! which may have a playlist of its own (EXT-X-MEDIA). Live streams start three segments from the
//! end (section 6.3.3: "SHOULD NOT choose a segment that starts less than three target durations
//! from the end"), other streams at the beginning. The caller performs the requests, one at a time.

mod feed;
mod items;
mod merge;
mod notes;
mod request;

use core::time::Duration;

use bytes::Bytes;
use units::Timestamp;
pub use url::Url;

pub use super::error::Error;
use super::manifest::Master;
pub use super::variant::{Choice, Selection};
use super::{flv_tags, follow};
use crate::deviation::Deviation;
use crate::flv::{Kind, Tag};
use crate::fmp4::read::CodecConfig;
use crate::{Timeline, fmp4};
use feed::{Content, Feed};
use items::{ItemContent, PullItem};
use merge::{Entry, Merge};
use notes::Notes;
pub use request::{Action, FailureOutcome, OriginRequest, Subject};

/// Media that waits for the other playlist, in target durations. Afterwards, the stream continues
/// without it.
const MAX_HELD_TARGETS: u32 = 3;
/// The feeds: of the variant, and of the audio rendition.
const MAIN: usize = 0;
const AUDIO: usize = 1;

/// Pull of one stream.
#[derive(Debug)]
pub struct Pull {
    selection: Selection,
    main: Feed,
    /// The audio rendition, if it has a playlist of its own.
    audio: Option<Feed>,
    /// The feed whose request has no response.
    pending: Option<usize>,
    merge: Merge,
    /// The newest configurations of video and audio.
    configs: [Option<CodecConfig>; 2],
    timeline: Timeline,
    notes: Notes,
}

impl Pull {
    /// Creates a pull of the playlist at this `http` or `https` URL.
    pub fn new(url: Url, selection: Selection) -> Self {
        Self {
            selection,
            main: Feed::of_master(url),
            audio: None,
            pending: None,
            merge: Merge::default(),
            configs: [None, None],
            timeline: Timeline::default(),
            notes: Notes::default(),
        }
    }

    /// Returns the target duration of segments; zero before the first media playlist has been
    /// loaded.
    pub fn target(&self) -> Duration {
        self.main.target()
    }

    /// Returns the number of known segments that have not been fetched. `None` if the stream has
    /// ended, because all of it may then be pending.
    pub fn pending_segments(&self) -> Option<usize> {
        self.main.pending_segments()
    }

    /// Returns the next unreported codec that is omitted because FLV cannot carry it.
    pub fn poll_unsupported(&mut self) -> Option<&str> {
        self.notes.poll_unsupported()
    }

    fn feed(&mut self, index: usize) -> Option<&mut Feed> {
        if index == MAIN { Some(&mut self.main) } else { self.audio.as_mut() }
    }

    /// Returns the next step. A request without a response is returned again.
    pub fn next(&mut self, now: Timestamp) -> Action {
        let mut wait: Option<Duration> = None;
        let is_over = self.main.is_over();
        for index in self.order() {
            // The end of the variant is the end of the stream.
            let is_needed = |feed: &&mut Feed| !is_over || feed.may_have_segments();
            let Some(feed) = self.feed(index).filter(is_needed) else { continue };
            match feed.next(now) {
                Action::Fetch(request) => {
                    self.pending = Some(index);
                    return Action::Fetch(request);
                }
                Action::Wait(time) => wait = Some(wait.map_or(time, |other| other.min(time))),
                Action::End => {}
            }
        }
        wait.map_or(Action::End, Action::Wait)
    }

    /// Returns the feeds by urgency: with a pending request, without a playlist, with less media.
    fn order(&self) -> [usize; 2] {
        let audio_is_first = match (&self.audio, self.pending) {
            (None, _) | (_, Some(MAIN)) => false,
            (_, Some(_)) => true,
            (Some(audio), None) => audio.progress() < self.main.progress(),
        };
        if audio_is_first { [AUDIO, MAIN] } else { [MAIN, AUDIO] }
    }

    /// Handles a redirect: URIs in the response are relative to `url`. Reloads still use the
    /// original URL.
    pub fn on_redirect(&mut self, url: Url) {
        if let Some(feed) = self.pending.and_then(|index| self.feed(index)) {
            feed.on_redirect(url);
        }
    }

    /// Handles the body of a response. Returns tags, including sequence headers, with timestamps
    /// that continue the previous ones. Media may be held back until that of the other playlist
    /// has arrived, for at most three target durations.
    ///
    /// # Errors
    /// The body cannot be used. A segment is then skipped; the caller decides whether to continue.
    pub fn on_response(&mut self, body: &Bytes) -> Result<Vec<Tag>, Error> {
        let index = self.pending.take().ok_or(Error::Unsolicited)?;
        let feed = if index == MAIN { Some(&mut self.main) } else { self.audio.as_mut() };
        let content = feed.ok_or(Error::Unsolicited)?.on_response(body, &mut self.notes);
        // Video is of use without its sound.
        let content = content.map_err(|error| match error {
            Error::Mp4(fmp4::read::Error::NoTrack) if index == AUDIO => Error::AudioCodec,
            error => error,
        });
        let result = content.and_then(|content| self.on_content(index, content));
        if result.is_err() || self.feed(index).is_some_and(|feed| feed.is_over()) {
            self.merge.set_absent(index);
        }
        result.map(|()| self.tags())
    }

    fn on_content(&mut self, index: usize, content: Content) -> Result<(), Error> {
        match content {
            Content::Master(base, master) => self.on_master(&base, master)?,
            Content::Playlist | Content::Map => {}
            Content::Segment { mut items, is_break } => {
                if self.audio.is_some() {
                    items.retain(|item| item.index == index);
                }
                self.merge.push(index, items, is_break);
            }
        }
        Ok(())
    }

    fn on_master(&mut self, base: &Url, master: Master) -> Result<(), Error> {
        let selected = self.selection.of(master)?;
        let media = |uri: &str| Ok(Feed::of_media(follow(base, uri).ok_or(Error::Reference)?));
        self.main = media(&selected.uri)?;
        self.audio = selected.audio_uri.as_deref().map(media).transpose()?;
        self.merge = self.audio.as_ref().map_or_else(Merge::default, |_| Merge::of_two());
        selected.unsupported.iter().for_each(|codec| self.notes.record_unsupported(codec));
        Ok(())
    }

    /// Handles a failed request, for example a response of 404. The request is repeated a few times
    /// with growing waits; then a segment is skipped.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if a playlist has failed at least four times in a row. The caller
    /// may continue; the playlist is then requested again, and the stream continues meanwhile with
    /// the media of the other one.
    pub fn on_failure(&mut self, now: Timestamp) -> Result<FailureOutcome, Error> {
        let index = self.pending.take().ok_or(Error::Unsolicited)?;
        let feed = self.feed(index).ok_or(Error::Unsolicited)?;
        let result = feed.on_failure(now);
        // The other playlist does not wait for a skipped segment, nor for an unreachable playlist.
        if result != Ok(FailureOutcome::Retry) {
            self.merge.set_absent(index);
        }
        result
    }

    /// Returns the tags that are still held back at the end of the stream.
    pub fn finish(&mut self) -> Vec<Tag> {
        [MAIN, AUDIO].into_iter().for_each(|index| self.merge.set_absent(index));
        self.tags()
    }

    /// Returns the deviations from standards since the last call.
    pub fn deviations(&mut self) -> impl Iterator<Item = (Deviation, u32)> + use<> {
        for feed in core::iter::once(&mut self.main).chain(&mut self.audio) {
            self.notes.deviations.add(&feed.deviations());
        }
        self.notes.deviations.take()
    }

    /// Returns the tags of all media that need not be held back.
    fn tags(&mut self) -> Vec<Tag> {
        let audio_target = self.audio.as_ref().map_or(Duration::ZERO, Feed::target);
        let max_held = self.target().max(audio_target) * MAX_HELD_TARGETS;
        let mut tags = Vec::new();
        while let Some(entry) = self.merge.pop(max_held) {
            match entry {
                Entry::Break => self.timeline.on_publisher(),
                Entry::Item(item) => tags.extend(self.tag(item)),
            }
        }
        tags
    }

    fn tag(&mut self, item: PullItem) -> Option<Tag> {
        let kind = if item.index == 0 { Kind::Video } else { Kind::Audio };
        let timestamp = self.timeline.map(kind, item.ms as u32);
        let config = &mut self.configs[item.index];
        match item.content {
            ItemContent::Config(new) if config.as_ref() == Some(&new) => None,
            ItemContent::Config(new) => {
                let tag = flv_tags::header(&new, timestamp);
                *config = Some(new);
                tag
            }
            ItemContent::Sample { data, sync, composition_ms } => {
                flv_tags::frame(config.as_ref()?, &data, sync, timestamp, composition_ms)
            }
        }
    }
}

#[cfg(test)]
mod tests;
