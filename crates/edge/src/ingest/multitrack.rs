//! A publisher of a ladder: the video tracks of one connection are the renditions (Enhanced RTMP
//! v2, "Multitrack Streaming via Enhanced RTMP").
//!
//! Track N is published as the stream `LADDER_N`, with audio track 0. The tracks have one clock, so
//! their alignment is exact. They are independent otherwise: a track that is rejected, silent,
//! taken over or ended leaves the others alone. The loss of the ladder's name ends all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use media::tracks::{DEFAULT_TRACK, track_metadata, tracks};
use media::{Deviation, Kind, Role, Tag, flv};
use tokio::time::Instant;

use super::alignment::CommonClock;
use super::publish::{OfLadder, Rejection, end, lose, start};
use super::pull::Via;
use crate::config::MAX_RENDITIONS;
use crate::ladder;
use crate::live::{Admission, Claim, DeviationLog, Dismissal, Publication};
use crate::state::State;

/// Time until a rejected track is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum number of log lines about rejected tracks of a publisher.
const MAX_REPORTS: usize = 16;

/// The right to publish all tracks of a ladder until it is dropped or lost.
pub(crate) struct LadderPublication {
    state: Arc<State>,
    name: String,
    admission: Admission,
    via: Via,
    claim: Claim,
    clock: Arc<CommonClock>,
    tracks: BTreeMap<u8, Track>,
    /// Tracks that are sent, but not published.
    absent: HashMap<u8, Absence>,
    /// Why the last track was lost.
    loss: Option<Dismissal>,
    /// Headers that tracks need which start later.
    metadata: Option<Tag>,
    audio_header: Option<Tag>,
    /// Whether the log has named an audio track that is dropped.
    has_reported_audio: bool,
    deviations: DeviationLog,
}

struct Track {
    publication: Publication,
    /// Arrival of its last video, or its start.
    last_video: Instant,
}

/// Why a track is not published.
#[derive(Clone, Copy)]
enum Absence {
    /// Rejected at this time.
    Rejected(Instant),
    /// Taken over or ended. It does not return before the publisher reconnects.
    Lost,
}

impl LadderPublication {
    /// Starts to publish the ladder `name` with its default track.
    ///
    /// # Errors
    /// If the ladder or its default track has a publisher, if the operator has ended either, or
    /// without room for another stream.
    pub(super) fn start(
        state: &Arc<State>,
        name: &str,
        admission: Admission,
        via: Via,
    ) -> Result<Self, Rejection> {
        let (live, config) = (&state.live, &state.config);
        let claim = live.publishers.claim(name, &admission, config.live.take_over);
        let claim = claim.map_err(Rejection::Refused)?;
        // A ban added meanwhile did not find the publisher.
        if state.bans.refuse_stream(name) {
            return Err(Rejection::Ended);
        }
        // The previous publisher had another clock.
        let ladder = ladder::get(config, name);
        live.ladders.keys().forget_all(name, |stream| ladder::is_track(name, stream));
        let mut publication = Self {
            state: state.clone(),
            name: name.to_owned(),
            admission,
            via,
            claim,
            clock: Arc::new(CommonClock::of_tracks()),
            tracks: BTreeMap::new(),
            absent: HashMap::new(),
            loss: None,
            metadata: None,
            audio_header: None,
            has_reported_audio: false,
            deviations: DeviationLog::default(),
        };
        let stream = ladder.and_then(|ladder| ladder::track(config, ladder, DEFAULT_TRACK));
        publication.start_track(DEFAULT_TRACK, &stream.unwrap_or_default())?;
        Ok(publication)
    }

    /// Returns the name of the ladder.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Appends a tag of the publisher to the tracks that it belongs to.
    ///
    /// # Errors
    /// If the ladder, or all tracks are lost.
    pub(super) fn push(&mut self, tag: Tag) -> Result<(), Dismissal> {
        if let Some(loss) = self.claim.loss() {
            return Err(loss);
        }
        match tag.kind() {
            Kind::Script => {
                if tag.role() == Role::Metadata && flv::time_base(&tag).is_none() {
                    self.metadata = Some(tag.clone());
                }
                self.push_to_all(|id| track_metadata(tag.clone(), id));
            }
            kind => {
                let mut split = tracks(tag);
                for (id, track) in split.by_ref() {
                    match (kind, track) {
                        (_, None) => {}
                        (Kind::Audio, Some(tag)) => self.push_audio(id, tag),
                        (_, Some(tag)) => self.push_video(id, tag),
                    }
                }
                let malformed = split.is_malformed().then_some((Deviation::RtmpTracks, 1));
                let tolerated = &self.state.live.tolerated;
                self.deviations.record(tolerated, &self.name, malformed.into_iter());
            }
        }
        self.loss.filter(|_| self.tracks.is_empty()).map_or(Ok(()), Err)
    }

    fn push_to_all(&mut self, tag: impl Fn(u8) -> Tag) {
        let repairs = &self.state.live.repairs;
        let push = |(id, track): (&u8, &mut Track)| {
            let is_accepted = track.publication.publisher.push(tag(*id), repairs);
            (!is_accepted).then(|| (*id, track.publication.loss()))
        };
        let lost: Vec<_> = self.tracks.iter_mut().filter_map(push).collect();
        lost.into_iter().for_each(|(id, loss)| self.on_lost(id, loss));
    }

    fn push_audio(&mut self, id: u8, tag: Tag) {
        if id != DEFAULT_TRACK {
            self.count_dropped();
            if !core::mem::replace(&mut self.has_reported_audio, true) {
                let name = &self.name;
                tracing::info!("{name}: audio track {id} dropped: renditions have audio track 0");
            }
            return;
        }
        if tag.role() == Role::SequenceHeader {
            self.audio_header = Some(tag.clone());
        }
        self.push_to_all(|_| tag.clone());
    }

    fn push_video(&mut self, id: u8, tag: Tag) {
        let starts = matches!(tag.role(), Role::SequenceHeader | Role::KeyFrame);
        let is_published = self.tracks.contains_key(&id) || starts && self.admit(id);
        if !is_published {
            return self.count_dropped();
        }
        let now = Instant::now();
        if let Some(track) = self.tracks.get_mut(&id) {
            track.last_video = now;
            if !track.publication.publisher.push(tag, &self.state.live.repairs) {
                let loss = track.publication.loss();
                self.on_lost(id, loss);
            }
        }
        self.end_silent(now);
    }

    /// Counts a tag of a track that is not published.
    fn count_dropped(&self) {
        if let Some(track) = self.tracks.values().next() {
            track.publication.publisher.stream().count_other_track();
        }
    }

    /// Starts a track that has sent a header or key frame. Returns whether it has started.
    fn admit(&mut self, id: u8) -> bool {
        match self.absent.get(&id) {
            Some(Absence::Lost) => return false,
            Some(Absence::Rejected(at)) if at.elapsed() < RETRY => return false,
            _ => {}
        }
        let config = &self.state.config;
        let ladder = ladder::get(config, &self.name);
        let stream = ladder.and_then(|ladder| ladder::track(config, ladder, id));
        let why = match stream {
            None => format!("{}_{id} is not among the ladder's renditions", self.name),
            Some(_) if self.tracks.len() >= MAX_RENDITIONS => {
                format!("a ladder has at most {MAX_RENDITIONS} renditions")
            }
            Some(stream) => match self.start_track(id, &stream) {
                Ok(()) => {
                    tracing::info!("{stream}: published as track {id} of {}", self.name);
                    self.send_headers(id);
                    return true;
                }
                Err(why) => why.to_string(),
            },
        };
        self.state.live.events.count("track_refused");
        if self.absent.len() < MAX_REPORTS && !self.absent.contains_key(&id) {
            tracing::warn!("{}: video track {id} dropped: {why}", self.name);
        }
        self.absent.insert(id, Absence::Rejected(Instant::now()));
        false
    }

    fn start_track(&mut self, id: u8, stream: &str) -> Result<(), Rejection> {
        let State { live, bans, config, .. } = &*self.state;
        let Self { name, claim, clock, .. } = self;
        let of = OfLadder { name, claim, clock };
        let publication = start(live, bans, config, stream, &self.admission, Some(of))?;
        live.pushes.set_passed(stream, self.via.clone());
        live.events.count("track_started");
        self.absent.remove(&id);
        self.tracks.insert(id, Track { publication, last_video: Instant::now() });
        Ok(())
    }

    /// Sends the headers of audio and metadata to a track that starts late.
    fn send_headers(&mut self, id: u8) {
        let metadata = self.metadata.clone().map(|tag| track_metadata(tag, id));
        let Some(track) = self.tracks.get_mut(&id) else { return };
        for tag in metadata.into_iter().chain(self.audio_header.clone()) {
            // The video that follows shows a loss.
            track.publication.publisher.push(tag, &self.state.live.repairs);
        }
    }

    /// Ends tracks without video, after video of another track has arrived.
    fn end_silent(&mut self, now: Instant) {
        let config = &self.state.config;
        let limit = config.rtmp.timeout;
        let is_silent = |track: &Track| now.duration_since(track.last_video) >= limit;
        let silent = self.tracks.iter().filter(|(_, track)| is_silent(track));
        for id in silent.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(track) = self.tracks.remove(&id) else { continue };
            let publisher = track.publication.publisher;
            let stream = publisher.stream().name();
            tracing::info!("{stream}: track {id} of {} had no video for {limit:?}", self.name);
            self.state.live.events.count("track_ended");
            lose(&self.state.live, publisher, config.live.linger);
        }
    }

    fn on_lost(&mut self, id: u8, loss: Dismissal) {
        let Some(track) = self.tracks.remove(&id) else { return };
        let (event, how) = match loss {
            Dismissal::TakenOver => ("taken_over", "taken over from"),
            Dismissal::Ended => ("ended_by_operator", "ended for"),
        };
        let stream = track.publication.publisher.stream().name();
        tracing::info!("{stream}: {how} the publisher of {}", self.name);
        self.state.live.events.count(event);
        self.absent.insert(id, Absence::Lost);
        self.loss = Some(loss);
    }

    /// Waits until the ladder, or all tracks are lost.
    pub(super) fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<Dismissal> {
        if let Poll::Ready(loss) = self.claim.poll_lost(context) {
            return Poll::Ready(loss);
        }
        let mut poll = |(id, track): (&u8, &mut Track)| match track.publication.poll_lost(context) {
            Poll::Ready(loss) => Some((*id, loss)),
            Poll::Pending => None,
        };
        let lost: Vec<_> = self.tracks.iter_mut().filter_map(&mut poll).collect();
        lost.into_iter().for_each(|(id, loss)| self.on_lost(id, loss));
        self.loss.filter(|_| self.tracks.is_empty()).map_or(Poll::Pending, Poll::Ready)
    }

    /// Drops the publisher. Its streams end after `[live] linger`, unless a publisher returns.
    pub(super) fn leave(self) {
        for track in self.tracks.into_values() {
            let linger = self.state.config.live.linger;
            lose(&self.state.live, track.publication.publisher, linger);
        }
    }

    /// Ends the publisher and its streams.
    pub(super) fn end(self) {
        for track in self.tracks.into_values() {
            end(&self.state.live, track.publication.publisher);
        }
    }
}

#[cfg(test)]
mod tests;
