//! Routing of requests, the same for all HTTP versions: live streams first, then player reports and
//! passes, pages, and files.

pub mod hls;
mod ladder;
mod live;
pub(crate) mod pages;
mod shift;
mod viewing;

use viewing::{preflight, with_cors};

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use crate::config::Cors;
use crate::hosts::Scope;
use crate::http::{Answer, BEACON, Body, RequestHead, Response};
use crate::passes::ViewerId;
use crate::sessions::Beacon;
use crate::state::State;

/// Answers a request of any HTTP version.
pub fn respond(state: &Arc<State>, head: &RequestHead<'_>, now: SystemTime) -> Answer {
    let scope = Scope::of(&state.config.host, head.authority);
    let target = scope.target(head.target);
    let scoped = match &target {
        Cow::Borrowed(_) => Cow::Borrowed(head),
        Cow::Owned(target) => Cow::Owned(RequestHead { target, ..head.clone() }),
    };
    if let Some(answer) = live::respond(state, &scoped, now) {
        return answer;
    }
    match head.path() {
        BEACON => return beacon(state, head, scope, now).into(),
        "/viewer" => return viewer(state, head, now).into(),
        _ => {}
    }
    let page = head.path().strip_prefix('/').filter(|name| name.starts_with("player"));
    if let Some(page) = page.and_then(|name| pages::player(state, name, head, now)) {
        return page.into();
    }
    let has_index = || state.files.as_ref().is_some_and(|files| files.has_index(scoped.path()));
    let is_home = head.path() == "/" && !has_index();
    if is_home && let Some(page) = pages::home(state, head, scope, now) {
        return page.into();
    }
    let is_media = is_media(head.path());
    let answer = match &state.files {
        Some(files) => files.answer(&scoped, now),
        None => Response::plain(404, now).into(),
    };
    // Pages of other origins must be able to read why a stream is unavailable.
    if is_media { with_cors_on_errors(state, answer) } else { answer }
}

/// Returns true if the path has a file extension of live media.
fn is_media(path: &str) -> bool {
    [".flv", ".m3u8", ".m4s", ".ts", ".mp4"].iter().any(|end| path.ends_with(end))
}

fn with_cors_on_errors(state: &Arc<State>, answer: Answer) -> Answer {
    let finish = |state: &State, response: Response| match response.status {
        400.. => with_cors(state, response),
        _ => response,
    };
    match answer {
        Answer::Now(response) => finish(state, response).into(),
        Answer::Later(response) => {
            let state = state.clone();
            Answer::Later(Box::pin(async move { finish(&state, response.await) }))
        }
    }
}

/// Handles a player report, or the CORS preflight request for one.
fn beacon(state: &State, head: &RequestHead<'_>, scope: Scope<'_>, now: SystemTime) -> Response {
    let is_cross_origin = state.config.live.cors != Cors::SameOrigin;
    let response = match head.method {
        "OPTIONS" if is_cross_origin => preflight(head, "POST", "content-type", now),
        "POST" => match Beacon::parse(head.body) {
            Some(mut beacon) => {
                beacon.stream = scope.full(&beacon.stream).into_owned();
                let viewer = state.passes.of_page(&beacon.viewer, now);
                let of_stream = || {
                    let pass = state.passes.of_stream(&beacon.viewer, &beacon.stream, now)?;
                    Some(pass.viewer)
                };
                match viewer.or_else(of_stream) {
                    Some(viewer) => state.sessions.report(viewer, beacon),
                    None => state.sessions.on_unmatched_report(),
                }
                let headers = vec![("date", httpdate::fmt_http_date(now))];
                Response { status: 204, headers, body: Body::Empty }
            }
            None => Response::plain(400, now),
        },
        _ if is_cross_origin => Response::plain(405, now).with("allow", "OPTIONS, POST"),
        _ => Response::plain(405, now).with("allow", "POST"),
    };
    with_cors(state, response)
}

/// Returns a page pass, for players on third-party pages.
fn viewer(state: &State, head: &RequestHead<'_>, now: SystemTime) -> Response {
    let response = match head.method {
        "GET" => pages::text(state.passes.page(ViewerId::random(), now), now),
        _ => Response::plain(405, now).with("allow", "GET"),
    };
    with_cors(state, response)
}
