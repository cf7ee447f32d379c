//! What requests for media have in common: who asks, whether the URL allows it, and which pages may read
//! the answer.

use std::time::SystemTime;

use crate::config::Cors;
use crate::http::{Body, RequestHead, Response};
use crate::io::SincePath;
use crate::live::Missing;
use crate::passes::{Grant, ViewerId};
use crate::play::Denied;
use crate::sessions::Opening;
use crate::signing;
use crate::state::State;

/// The header that tells a player its page pass.
pub(super) const VIEWER: &str = "mendcast-viewer";

/// What is known of a viewer who asks for the stream `name` from `now` on. A viewer without a page pass is new.
pub(super) fn opening(
    state: &State,
    head: &RequestHead<'_>,
    name: &str,
    format: &'static str,
    now: SystemTime,
) -> Opening {
    let known = head.parameter("viewer").and_then(|pass| state.passes.of_page(pass, now));
    Opening {
        stream: name.to_owned(),
        protocol: head.protocol,
        format,
        remote: head.remote.ip(),
        viewer: known.unwrap_or_else(ViewerId::random),
        granted: now,
        until: None,
        unit: head.cohort.map(|(unit, _)| unit),
        cohort: head.cohort.map_or_else(String::new, |(_, cohort)| cohort.name.clone()),
        scheme: head.cohort.map_or("", |(_, cohort)| cohort.scheme.name()),
        tcp: head.tcp.map(SincePath::new),
    }
}

/// A viewer who may play the stream, as far as its URL and the operator's bans say.
///
/// # Errors
/// The refusal.
pub(super) fn enter(
    state: &State,
    head: &RequestHead<'_>,
    name: &str,
    format: &'static str,
    now: SystemTime,
) -> Result<Opening, Box<Response>> {
    enter_by(state, head, name, format, now).map(|(opening, _)| opening)
}

/// The same, with the rule that lets the viewer in.
///
/// # Errors
/// The refusal.
pub(super) fn enter_by(
    state: &State,
    head: &RequestHead<'_>,
    name: &str,
    format: &'static str,
    now: SystemTime,
) -> Result<(Opening, Grant), Box<Response>> {
    let (expires, signature) = (head.parameter("expires"), head.parameter("sig"));
    let permission = signing::may_play(&state.config, name, expires, signature, now);
    let grant = permission.map_or(Grant::FREE, |permission| permission.grant);
    let let_in = permission.map(|permission| Opening {
        until: permission.until,
        ..opening(state, head, name, format, now)
    });
    // A pass of the second in which the viewer was sent away would hold no more.
    if let_in.as_ref().is_some_and(|opening| state.bans.is_dismissed(opening)) {
        return Err(Box::new(late(now)));
    }
    let let_in = let_in.filter(|opening| !state.bans.refuse_player(opening));
    let let_in = let_in.map(|opening| (opening, grant));
    let_in.ok_or_else(|| Box::new(Response::plain(403, now)))
}

/// The answer to a request for a stream that is not there.
pub(super) fn missing(why: Missing, now: SystemTime) -> Response {
    match why {
        Missing::Unknown => Response::plain(404, now),
        Missing::Full | Missing::NoMemory => full(now),
        // RFC 6585, section 4.
        Missing::Often => Response::plain(429, now).with("retry-after", "1"),
    }
}

/// The answer to a viewer who is not admitted.
pub(super) fn denied(why: Denied, now: SystemTime) -> Response {
    match why {
        Denied::Refused => Response::plain(403, now),
        Denied::Busy => late(now),
        Denied::Missing(why) => missing(why, now),
    }
}

/// The answer to what will be granted in a moment.
pub(super) fn late(now: SystemTime) -> Response {
    Response::plain(503, now).with("retry-after", "1")
}

/// The answer where there is no room: in a while there may be.
pub(super) fn full(now: SystemTime) -> Response {
    Response::plain(503, now).with("retry-after", "5")
}

/// How long browsers may remember the answer to a preflight request: a day. They cut it down to hours.
const PREFLIGHT_SECONDS: &str = "86400";
/// Bytes of Access-Control-Request-Headers that are answered.
const MAX_REQUESTED: usize = 1_024;

/// The answer to a CORS preflight request (Fetch standard, section 3.3.2): players send fields of their own,
/// and reports are JSON, which pages may not send elsewhere unasked. The fields that are asked for are
/// allowed by name, because `*` leaves Authorization out; `usual` where none can be read.
pub(super) fn preflight(
    head: &RequestHead<'_>,
    methods: &'static str,
    usual: &'static str,
    now: SystemTime,
) -> Response {
    let is_field = |byte: u8| byte.is_ascii_alphanumeric() || b"-_, ".contains(&byte);
    let asked = head.value("access-control-request-headers");
    let asked = asked.filter(|text| text.len() <= MAX_REQUESTED && text.bytes().all(is_field));
    let headers = vec![("date", httpdate::fmt_http_date(now))];
    Response { status: 204, headers, body: Body::Empty }
        .with("access-control-allow-methods", methods)
        .with("access-control-allow-headers", asked.unwrap_or(usual))
        .with("access-control-max-age", PREFLIGHT_SECONDS)
}

/// The response, which depends on this field of the request too.
fn vary(mut response: Response, field: &str) -> Response {
    match response.headers.iter_mut().find(|(name, _)| *name == "vary") {
        Some((_, fields)) => *fields = format!("{fields}, {field}"),
        None => response.headers.push(("vary", field.to_owned())),
    }
    response
}

/// The response, for pages of other origins too if the configuration says so.
pub(super) fn with_cors(state: &State, response: Response) -> Response {
    let response = match &state.config.live.cors {
        Cors::SameOrigin => return response,
        Cors::Any => response.with("access-control-allow-origin", "*"),
        // What a cache in between got for a page of one origin is not for pages of another.
        Cors::Origin(origin) => {
            let response = response.with("access-control-allow-origin", origin);
            vary(response, "origin")
        }
    };
    response.with("access-control-expose-headers", VIEWER)
}
