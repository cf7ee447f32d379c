//! HLS of a ladder: the master playlist `LADDER/index.m3u8`, and media below
//! `LADDER/RENDITION/~PASS/`. The pass is one of the ladder, so viewers may switch.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use delivery::RenditionChoice;
use media::hls::segmenter::{MEDIA_PLAYLIST, TrackSelection};
use media::hls::{AudioRendition, Rendition, Segmenter, master};
use relay::{Status, Stream};
use units::Rate;

use super::hls::{self, HlsRequest, HlsTarget, Place, Resource, admit, is_shared};
use super::viewing::{VIEWER, denied, enter_by, full, late};
use crate::bans::Refused;
use crate::config::Config;
use crate::http::{Answer, RequestHead, Response};
use crate::ingest::pull::{self, Via};
use crate::ladder::{self, Member, Playable};
use crate::live::{Missing, Outlet, Packagers};
use crate::play::{ask_hook, find, reserve};
use crate::state::State;

/// Maximum wait for the first segments of any rendition.
const MAX_WAIT: Duration = Duration::from_secs(12);
/// Maximum wait for the first segments of further renditions. Players load the master playlist
/// once, and would never use one that is left out.
const MAX_WAIT_FOR_OTHERS: Duration = Duration::from_secs(3);

/// A ladder, or one of its renditions.
#[derive(Clone, Debug)]
pub(super) struct Target {
    ladder: String,
    rendition: Option<Member>,
}

impl Target {
    /// Returns the target of a name in a URL; `None` for a name of a stream. `file` is the HLS
    /// resource, if any.
    pub(super) fn find(config: &Config, name: &str, file: Option<&HlsTarget<'_>>) -> Option<Self> {
        if let Some(ladder) = ladder::get(config, name) {
            return Some(Self { ladder: ladder.name.clone(), rendition: None });
        }
        // The master playlist of one rendition has a URL of its own.
        let file = file.filter(|file| file.resource != Resource::Master);
        let (ladder, rendition) = file.and_then(|_| ladder::split(config, name))?;
        Some(Self { ladder: ladder.name.clone(), rendition: Some(rendition) })
    }
}

pub(super) fn respond(
    state: &Arc<State>,
    head: &RequestHead<'_>,
    Target { ladder, rendition }: Target,
    HlsTarget { pass, resource }: HlsTarget<'_>,
    (via, now): (Via, SystemTime),
) -> Answer {
    let request = HlsRequest::new(head, resource, now);
    let Some(rendition) = rendition else {
        return match (pass, resource) {
            (None, Resource::Master) => enter(state, head, ladder, via, request),
            _ => Response::plain(404, now).into(),
        };
    };
    let opening = match pass {
        Some(pass) => {
            let admitted = admit(state, head, &ladder, pass, now);
            let Some(opening) = admitted else { return Response::plain(403, now).into() };
            Some(opening)
        }
        None => {
            let is_free = resource != Resource::Playlist && is_shared(state, &rendition.stream);
            if !is_free || state.bans.refuse(Refused::Play, head.remote.ip()) {
                return Response::plain(403, now).into();
            }
            None
        }
    };
    let state = state.clone();
    Answer::Later(Box::pin(async move {
        let viewed = state.live.ladders.get(&ladder);
        let Some(outlet) = outlet(&state, &ladder, &rendition, resource) else {
            let name = rendition.name();
            let text = format!("{name} is not live: play another rendition of {ladder}");
            return Response::text(404, &text, now);
        };
        let shared = is_shared(&state, &rendition.stream);
        let place = Place { outlet: &outlet, viewers: viewed.viewers(), shared };
        let mut answer = pin!(request.answer(&state, place, opening));
        // Woken at least once per second.
        poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Pending if is_gone(&state, &ladder, outlet.stream()) => {
                Poll::Ready(Response::plain(404, now))
            }
            other => other,
        })
        .await
    }))
}

/// Returns the running renditions of a ladder that the configuration still has.
fn running(state: &State, ladder: &str) -> Vec<Arc<Stream>> {
    let (config, streams) = (&state.config, &state.live.streams);
    let ladder = ladder::get(config, ladder);
    ladder.map_or_else(Vec::new, |ladder| ladder::running(config, streams, ladder))
}

/// As [`running`], with the audio renditions.
fn playable(state: &State, ladder: &str) -> Playable {
    let (config, streams) = (&state.config, &state.live.streams);
    let ladder = ladder::get(config, ladder);
    ladder.map_or_else(Playable::default, |ladder| ladder::playable(config, streams, ladder))
}

/// Whether the rendition has no publisher while another one has. Players must then switch.
fn is_gone(state: &State, ladder: &str, rendition: &Arc<Stream>) -> bool {
    rendition.status() != Status::Live
        && running(state, ladder)
            .iter()
            .any(|stream| !Arc::ptr_eq(stream, rendition) && stream.status() == Status::Live)
}

/// Returns the packager of a rendition for a media request; `None` if players must switch.
fn outlet(
    state: &State,
    ladder: &str,
    Member { stream, tracks }: &Member,
    resource: Resource,
) -> Option<Arc<Outlet>> {
    let known = state.live.outlets.get(&state.live.streams, stream, *tracks);
    let is_current = || !state.live.ladders.get(ladder).is_due();
    if resource != Resource::Playlist || known.is_some() && is_current() {
        return known.filter(|outlet| !is_gone(state, ladder, outlet.stream()));
    }
    let Packagers { renditions, audio } = open(state, ladder, &playable(state, ladder))?;
    let opened = if *tracks == TrackSelection::Audio { audio } else { renditions };
    let found = opened.into_iter().find(|outlet| outlet.stream().name() == stream);
    // An ended ladder still has the end of its playlists.
    let ended = known.filter(|outlet| !is_gone(state, ladder, outlet.stream()));
    found.or(ended)
}

/// Packages these streams. `None` before the start of the server is complete.
fn open(state: &State, ladder: &str, streams: &Playable) -> Option<Packagers> {
    let live = &state.live;
    let shared = |name: &str| is_shared(state, name);
    let runtime = state.runtime.get()?;
    let ladder = live.ladders.get(ladder);
    Some(ladder.open(streams, &live.outlets, &state.config.hls, shared, runtime))
}

/// Answers a viewer's first request: the master playlist with a new pass.
fn enter(
    state: &Arc<State>,
    head: &RequestHead<'_>,
    ladder: String,
    via: Via,
    request: HlsRequest,
) -> Answer {
    let now = request.now;
    let (opening, grant) = match enter_by(state, head, &ladder, "hls", now) {
        Ok(entered) => entered,
        Err(refusal) => return Answer::Now(*refusal),
    };
    let Ok(permits) = reserve(state, &opening) else { return full(now).into() };
    let (state, query, remote) = (state.clone(), head.query().to_owned(), head.remote.ip());
    Answer::Later(Box::pin(async move {
        // Held until the response. The session starts with the first media.
        let _permits = permits;
        let lookup = match ask_hook(state.clone(), opening.clone(), query).await {
            Ok(lookup) => lookup,
            Err(why) => return denied(why, now),
        };
        pull_absent(&state, &ladder, remote, &via);
        drop(lookup);
        let streams = playable(&state, &ladder);
        if streams.renditions.is_empty() {
            return absent(&ladder, now);
        }
        let found = wait(&state, &ladder, &streams).await;
        if found.renditions.is_empty() {
            return unplayable(&state, &ladder, &streams, now);
        }
        let (viewer, until) = (opening.viewer, opening.until);
        let pass = state.passes.stream(viewer, &ladder, grant, now, until);
        let text = found.master(&state.config, &ladder, &pass);
        let page = state.passes.page(viewer, now);
        request.master(text).with(VIEWER, page)
    }))
}

/// Returns the first rendition of a viewer whose player cannot choose, on a path of this rate.
///
/// # Errors
/// No rendition runs.
pub(super) fn first(
    state: &Arc<State>,
    ladder: &str,
    path_rate: Option<Rate>,
    (remote, via): (IpAddr, &Via),
) -> Result<Arc<Stream>, Missing> {
    pull_absent(state, ladder, remote, via);
    let all = running(state, ladder);
    state.live.ladders.get(ladder).running().set(all.clone());
    let live: Vec<_> = all.iter().filter(|stream| stream.status() == Status::Live).collect();
    let bitrates: Vec<_> = live.iter().map(|stream| stream.bitrate()).collect();
    let first = live.get(RenditionChoice::first(&bitrates, path_rate)).copied();
    first.or(all.first()).cloned().ok_or(Missing::Unknown)
}

/// Returns the response if no rendition runs.
pub(super) fn absent(ladder: &str, now: SystemTime) -> Response {
    Response::text(404, &format!("no rendition of {ladder} is live"), now)
}

/// Starts to pull the renditions that are not live. Those that cannot be pulled stay absent.
fn pull_absent(state: &Arc<State>, ladder: &str, remote: IpAddr, via: &Via) {
    let Some(ladder) = ladder::get(&state.config, ladder) else { return };
    for name in ladder::fixed(&state.config, ladder) {
        if state.live.streams.get(name).is_none() && pull::may_start(state, name) {
            let _absent = find(state, name, remote, via.clone()).is_err();
        }
    }
}

/// Returns the response if no rendition has segments.
fn unplayable(state: &State, ladder: &str, streams: &Playable, now: SystemTime) -> Response {
    let Packagers { renditions, .. } = open(state, ladder, streams).unwrap_or_default();
    let codec = renditions.iter().find_map(|o| o.look(Segmenter::unsupported_stream));
    match codec {
        Some(codec) => Response::text(415, &hls::unsupported(codec), now),
        None => late(now),
    }
}

/// Streams with segments: names and attributes.
#[derive(Debug, Default)]
struct Packaged {
    renditions: Vec<(String, Rendition)>,
    audio: Vec<(String, Rendition)>,
}

impl Packaged {
    /// Returns the master playlist, whose URIs are relative to `LADDER/`.
    fn master(&self, config: &Config, ladder: &str, pass: &str) -> String {
        let uri = |name: &str| format!("{name}/~{pass}/{MEDIA_PLAYLIST}");
        let renditions: Vec<(String, &Rendition)> =
            self.renditions.iter().map(|(name, rendition)| (uri(name), rendition)).collect();
        let entries = ladder::get(config, ladder).map_or(&[][..], ladder::audio);
        let audio = entries.iter().filter_map(|entry| {
            let (name, media) = self.audio.iter().find(|(name, _)| *name == entry.stream)?;
            let member = Member { stream: name.clone(), tracks: TrackSelection::Audio };
            Some(AudioRendition {
                name: entry.name.clone(),
                language: entry.language.clone(),
                uri: uri(&member.name()),
                media: media.clone(),
            })
        });
        let audio: Vec<AudioRendition> = audio.collect();
        master(renditions.iter().map(|(uri, rendition)| (&uri[..], *rendition)), &audio)
    }
}

/// Waits for the first segments of the streams. Returns those that have segments. Without any of
/// the audio renditions, viewers would never hear anything, so the wait for the first one is as
/// long as for the first rendition.
async fn wait(state: &State, ladder: &str, streams: &Playable) -> Packaged {
    let began = Instant::now();
    let mut first = None;
    poll_fn(|context| {
        // Again each time: a rendition may have to start over, aligned with the others.
        let opened = open(state, ladder, streams).unwrap_or_default();
        let (renditions, has_renditions) = look(&opened.renditions, context);
        let (audio, has_audio) = look(&opened.audio, context);
        if !renditions.is_empty() {
            first.get_or_insert_with(Instant::now);
        }
        let is_silent = audio.is_empty() && !has_audio;
        let is_late = first.is_some_and(|first| first.elapsed() >= MAX_WAIT_FOR_OTHERS)
            && !is_silent
            || began.elapsed() >= MAX_WAIT;
        let is_complete = has_renditions && has_audio;
        if is_complete || is_late {
            Poll::Ready(Packaged { renditions, audio })
        } else {
            Poll::Pending
        }
    })
    .await
}

/// Returns the renditions with segments, and whether no further one is to be expected.
fn look(outlets: &[Arc<Outlet>], context: &Context<'_>) -> (Vec<(String, Rendition)>, bool) {
    let mut found = Vec::new();
    let mut is_complete = true;
    for outlet in outlets {
        match outlet.peek(context, Segmenter::rendition) {
            Some(rendition) => found.push((outlet.stream().name().to_owned(), rendition)),
            None => {
                let codec = outlet.look(Segmenter::unsupported_stream);
                is_complete &= outlet.is_over() || codec.is_some();
            }
        }
    }
    (found, is_complete)
}
