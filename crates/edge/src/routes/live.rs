//! Requests for live streams.
//!
//! `/live/demo.flv` is the stream `live/demo` as FLV, in one response that lasts as long as the
//! stream. `/live/demo/index.m3u8` is its HLS master playlist, with media below
//! `/live/demo/~PASS/`. A `[[ladder]]` has a master playlist of several streams; as FLV, the
//! rendition follows the delivery rate. An unpublished stream is pulled if a `[[pull]]` rule
//! matches.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::SystemTime;

use relay::Status;

use super::viewing::{VIEWER, denied, enter, full, missing, preflight, with_cors};
use super::{hls, ladder, shift};
use crate::config::Cors;
use crate::http::{Answer, Body, RequestHead, Response};
use crate::ingest::pull::Via;
use crate::live::{FlvBody, Missing, RenditionFollower};
use crate::play::{ask_hook, begin, find, is_known, reserve, watch};
use crate::sessions::Opening;
use crate::state::State;

/// Answers a request for a live stream; `None` for any other request.
pub fn respond(state: &Arc<State>, head: &RequestHead<'_>, now: SystemTime) -> Option<Answer> {
    let path = head.path().strip_prefix('/')?;
    let (name, file) = match path.strip_suffix(".flv") {
        Some(name) => (name, None),
        None => {
            let (name, file) = hls::HlsTarget::parse(path)?;
            (name, Some(file))
        }
    };
    let has_ended = || file.is_some() && state.live.outlets.ended(name).is_some();
    if head.method == "OPTIONS" {
        return (state.config.live.cors != Cors::SameOrigin)
            .then(|| with_cors(state, preflight(head, "GET, HEAD", "range", now)).into());
    }
    if let Some(answer) =
        file.as_ref().and_then(|file| shift::respond(state, head, name, file, now))
    {
        return Some(answered(state, answer));
    }
    let ladder = ladder::Target::find(&state.config, name, file.as_ref());
    if ladder.is_none() && !is_known(state, name) && !has_ended() {
        return None;
    }
    // RFC 5842, section 7.2: 508 Loop Detected.
    let Some(via) = Via::of(head.values("cdn-loop")) else {
        return Some(Response::plain(508, now).into());
    };
    let answer = match (head.method, file, ladder) {
        ("GET" | "HEAD", file, Some(ladder)) => match file {
            Some(file) => ladder::respond(state, head, ladder, file, (via, now)),
            None => flv(state, head, name, true, (via, now)),
        },
        ("GET" | "HEAD", None, None) => flv(state, head, name, false, (via, now)),
        ("GET" | "HEAD", Some(file), None) => hls::respond(state, head, name, file, via, now),
        // RFC 9110, section 15.5.6: a 405 MUST carry Allow.
        _ => Response::plain(405, now).with("allow", "GET, HEAD").into(),
    };
    Some(answered(state, answer))
}

/// Adds the CORS fields.
fn answered(state: &Arc<State>, answer: Answer) -> Answer {
    match answer {
        Answer::Now(response) => with_cors(state, response).into(),
        Answer::Later(response) => {
            let state = state.clone();
            Answer::Later(Box::pin(async move { with_cors(&state, response.await) }))
        }
    }
}

/// Answers with a stream, or with the renditions of a ladder in turn.
fn flv(
    state: &Arc<State>,
    head: &RequestHead<'_>,
    name: &str,
    is_ladder: bool,
    (via, now): (Via, SystemTime),
) -> Answer {
    let opening = match enter(state, head, name, "flv", now) {
        Ok(opening) => opening,
        Err(refusal) => return Answer::Now(*refusal),
    };
    let headers = vec![
        ("date", httpdate::fmt_http_date(now)),
        ("content-type", "video/x-flv".into()),
        ("cache-control", "no-store".into()),
        (VIEWER, state.passes.page(opening.viewer, now)),
    ];
    if head.method == "HEAD" {
        return Response { status: 200, headers, body: Body::Empty }.into();
    }
    let Ok(permits) = reserve(state, &opening) else { return full(now).into() };
    let state = state.clone();
    let respond = move |state: &State, viewer, opening: Opening, permits| {
        let requested = is_ladder.then(|| state.live.ladders.get(&opening.stream));
        let follower = requested
            .map(|known| RenditionFollower::new(known.running().clone(), opening.tcp.clone()));
        let Some(session) = begin(state, opening, permits) else {
            return Response::plain(403, now);
        };
        let frames = delivery::video_frames(&state.config.startup);
        let body = FlvBody::new(viewer, session, frames);
        let body = match follower {
            Some(follower) => body.following(follower),
            None => body,
        };
        let body = Body::Flv(Box::new(body));
        Response { status: 200, headers, body }
    };
    let live = state.live.streams.get(name).filter(|stream| stream.status() == Status::Live);
    if let Some(stream) = live.filter(|_| !is_ladder)
        && state.config.hooks.on_play.is_none()
    {
        let Some(viewer) = watch(&state, stream) else { return full(now).into() };
        return respond(&state, viewer, opening, permits).into();
    }
    let (query, path_rate) = (head.query().to_owned(), head.path_rate);
    Answer::Later(Box::pin(async move {
        let lookup = match ask_hook(state.clone(), opening.clone(), query).await {
            Ok(lookup) => lookup,
            Err(why) => return denied(why, now),
        };
        let found = match is_ladder {
            true => ladder::first(&state, &opening.stream, path_rate, (opening.remote, &via)),
            false => find(&state, &opening.stream, opening.remote, via),
        };
        let stream = match found {
            Ok(stream) => stream,
            Err(Missing::Unknown) if is_ladder => return ladder::absent(&opening.stream, now),
            Err(why) => return missing(why, now),
        };
        drop(lookup);
        let Some(mut viewer) = watch(&state, stream) else { return full(now) };
        // Send status 200 only after the upstream has given media.
        if poll_fn(|context| viewer.poll_kinds(context)).await.is_none() {
            return Response::plain(502, now);
        }
        respond(&state, viewer, opening, permits)
    }))
}
