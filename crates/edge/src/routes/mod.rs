//! What a request is answered with, the same for HTTP/1.1, HTTP/2 and HTTP/3: live streams first, then the
//! player's reports and passes, its page, and files.

pub mod hls;
mod live;
pub(crate) mod pages;
mod viewing;

use viewing::{preflight, with_cors};

use std::sync::Arc;
use std::time::SystemTime;

use crate::config::Cors;
use crate::http::{Answer, BEACON, Body, RequestHead, Response};
use crate::passes::ViewerId;
use crate::sessions::Beacon;
use crate::state::State;

/// Answers a request, whatever the HTTP version: live streams first, then the player, then files.
pub fn respond(state: &Arc<State>, head: &RequestHead<'_>, now: SystemTime) -> Answer {
    if let Some(answer) = live::respond(state, head, now) {
        return answer;
    }
    match head.path() {
        BEACON => return beacon(state, head, now).into(),
        "/viewer" => return viewer(state, head, now).into(),
        _ => {}
    }
    let page = head.path().strip_prefix('/').filter(|name| name.starts_with("player"));
    if let Some(page) = page.and_then(|name| pages::player(state, name, head, now)) {
        return page.into();
    }
    let is_home = head.path() == "/" && state.files.as_ref().is_none_or(|files| !files.has_index());
    if is_home && let Some(page) = pages::home(state, head, now) {
        return page.into();
    }
    let is_media = is_media(head.path());
    let answer = match &state.files {
        Some(files) => files.answer(head, now),
        None => Response::plain(404, now).into(),
    };
    // A page of another origin that asks for a stream that is not there is to read so.
    if is_media { with_cors_on_errors(state, answer) } else { answer }
}

/// Whether a path looks like that of a live stream.
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

/// A player's report, or a browser's question whether a page of another origin may send one.
fn beacon(state: &State, head: &RequestHead<'_>, now: SystemTime) -> Response {
    let is_for_others = state.config.live.cors != Cors::SameOrigin;
    let response = match head.method {
        "OPTIONS" if is_for_others => preflight(head, "POST", "content-type", now),
        "POST" => match Beacon::parse(head.body) {
            Some(beacon) => {
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
        _ if is_for_others => Response::plain(405, now).with("allow", "OPTIONS, POST"),
        _ => Response::plain(405, now).with("allow", "POST"),
    };
    with_cors(state, response)
}

/// A page pass, for players on pages that are not ours.
fn viewer(state: &State, head: &RequestHead<'_>, now: SystemTime) -> Response {
    let response = match head.method {
        "GET" => pages::text(state.passes.page(ViewerId::random(), now), now),
        _ => Response::plain(405, now).with("allow", "GET"),
    };
    with_cors(state, response)
}
