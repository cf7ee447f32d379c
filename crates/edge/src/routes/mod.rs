//! What a request is answered with, the same for HTTP/1.1, HTTP/2 and HTTP/3: live streams first, then the
//! player's reports, its page, and files.

mod hls;
mod live;
pub(crate) mod pages;
mod viewing;

use viewing::with_cors;

use std::sync::Arc;
use std::time::SystemTime;

use crate::http::{Answer, BEACON, Body, RequestHead, Response};
use crate::sessions::Beacon;
use crate::state::State;

/// Answers a request, whatever the HTTP version: live streams first, then the player, then files.
pub fn respond(state: &Arc<State>, head: &RequestHead<'_>, now: SystemTime) -> Answer {
    if let Some(answer) = live::respond(state, head, now) {
        return answer;
    }
    if head.path() == BEACON {
        return beacon(state, head, now).into();
    }
    let page = head.path().strip_prefix('/').filter(|name| name.starts_with("player"));
    if let Some(page) = page.and_then(|name| pages::respond(name, head, now)) {
        return page.into();
    }
    match &state.files {
        Some(files) => files.answer(head, now),
        None => Response::plain(404, now).into(),
    }
}

/// A player's report.
fn beacon(state: &State, head: &RequestHead<'_>, now: SystemTime) -> Response {
    let response = match head.method {
        "POST" => match Beacon::parse(head.body) {
            Some(beacon) => {
                state.sessions.report(beacon);
                let headers = vec![("date", httpdate::fmt_http_date(now))];
                Response { status: 204, headers, body: Body::Empty }
            }
            None => Response::plain(400, now),
        },
        _ => Response::plain(405, now).with("allow", "POST"),
    };
    with_cors(state, response)
}
