//! Parts common to all media requests: the viewer, its permission, error responses, and CORS.

use std::time::SystemTime;

use crate::config::Cors;
use crate::http::{Body, RequestHead, Response};
use crate::io::SincePath;
use crate::live::Missing;
use crate::passes::{Grant, ViewerId};
use crate::play::ViewerRejection;
use crate::sessions::Opening;
use crate::signing::{self, Proofs, Refusal};
use crate::state::State;
use crate::tokens::Part;

/// Header field with the player's page pass.
pub(super) const VIEWER: &str = "mendcast-viewer";

/// Returns the opening of a viewer who requests the stream `name`. A viewer without a page pass is
/// new.
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

/// Checks the signed URL and bans of a viewer.
///
/// # Errors
/// The error response.
pub(super) fn enter(
    state: &State,
    head: &RequestHead<'_>,
    name: &str,
    format: &'static str,
    now: SystemTime,
) -> Result<Opening, Box<Response>> {
    enter_by(state, head, name, format, now).map(|(opening, _)| opening)
}

/// As [`enter`], and returns the rule that grants the permission.
///
/// # Errors
/// The error response.
pub(super) fn enter_by(
    state: &State,
    head: &RequestHead<'_>,
    name: &str,
    format: &'static str,
    now: SystemTime,
) -> Result<(Opening, Grant), Box<Response>> {
    let proofs = Proofs {
        expires: head.parameter("expires"),
        signature: head.parameter("sig"),
        token: head.parameter("token").or_else(|| bearer(head)),
    };
    let permission = signing::may_play(&state.config, &state.key_sets, name, proofs, now);
    let permission = permission.map_err(|why| Box::new(refused(&why, now)))?;
    let opening = Opening { until: permission.until, ..opening(state, head, name, format, now) };
    // A pass issued in the second of the viewer's dismissal would be invalid.
    if state.bans.is_dismissed(&opening) {
        return Err(Box::new(late(now)));
    }
    if state.bans.refuse_player(&opening) {
        return Err(Box::new(Response::plain(403, now)));
    }
    Ok((opening, permission.grant))
}

/// Returns the token in the header field Authorization (RFC 6750, section 2.1).
fn bearer<'a>(head: &RequestHead<'a>) -> Option<&'a str> {
    let (scheme, token) = head.value("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
}

/// Returns the response to a viewer without permission (RFC 6750, section 3.1).
fn refused(why: &Refusal, now: SystemTime) -> Response {
    match why {
        Refusal::Signature => Response::plain(403, now),
        // The key set is fetched within seconds of the start.
        Refusal::Token(error) if error.part == Part::Keys => {
            Response::text(503, &why.to_string(), now).with("retry-after", "1")
        }
        Refusal::Token(_) => Response::text(401, &why.to_string(), now)
            .with("www-authenticate", "Bearer error=\"invalid_token\""),
    }
}

/// Returns the response for an unavailable stream.
pub(super) fn missing(why: Missing, now: SystemTime) -> Response {
    match why {
        Missing::Unknown => Response::plain(404, now),
        Missing::Full | Missing::NoMemory => full(now),
        // RFC 6585, section 4.
        Missing::RateLimited => Response::plain(429, now).with("retry-after", "1"),
    }
}

/// Returns the response to a rejected viewer.
pub(super) fn denied(why: ViewerRejection, now: SystemTime) -> Response {
    match why {
        ViewerRejection::Refused => Response::plain(403, now),
        ViewerRejection::Busy => late(now),
        ViewerRejection::Missing(why) => missing(why, now),
    }
}

/// Returns the response to a request that is likely to succeed after 1 s.
pub(super) fn late(now: SystemTime) -> Response {
    Response::plain(503, now).with("retry-after", "1")
}

/// Returns the response at a limit, to retry after 5 s.
pub(super) fn full(now: SystemTime) -> Response {
    Response::plain(503, now).with("retry-after", "5")
}

/// Lifetime of preflight responses in browsers: a day, which browsers limit to hours.
const PREFLIGHT_SECONDS: &str = "86400";
/// Maximum bytes of Access-Control-Request-Headers.
const MAX_REQUESTED: usize = 1_024;

/// Returns the response to a CORS preflight request (Fetch standard, section 3.3.2), which custom
/// header fields and JSON reports require. The requested fields are allowed by name, because `*`
/// excludes Authorization; without a valid list, `default` is.
pub(super) fn preflight(
    head: &RequestHead<'_>,
    methods: &'static str,
    default: &'static str,
    now: SystemTime,
) -> Response {
    let is_field = |byte: u8| byte.is_ascii_alphanumeric() || b"-_, ".contains(&byte);
    let asked = head.value("access-control-request-headers");
    let asked = asked.filter(|text| text.len() <= MAX_REQUESTED && text.bytes().all(is_field));
    let headers = vec![("date", httpdate::fmt_http_date(now))];
    Response { status: 204, headers, body: Body::Empty }
        .with("access-control-allow-methods", methods)
        .with("access-control-allow-headers", asked.unwrap_or(default))
        .with("access-control-max-age", PREFLIGHT_SECONDS)
}

/// Adds a field to Vary.
fn vary(mut response: Response, field: &str) -> Response {
    match response.headers.iter_mut().find(|(name, _)| *name == "vary") {
        Some((_, fields)) => *fields = format!("{fields}, {field}"),
        None => response.headers.push(("vary", field.to_owned())),
    }
    response
}

/// Adds the CORS fields of the configuration.
pub(super) fn with_cors(state: &State, response: Response) -> Response {
    let response = match &state.config.live.cors {
        Cors::SameOrigin => return response,
        Cors::Any => response.with("access-control-allow-origin", "*"),
        // A shared cache must keep responses for different origins apart.
        Cors::Origin(origin) => {
            let response = response.with("access-control-allow-origin", origin);
            vary(response, "origin")
        }
    };
    response.with("access-control-expose-headers", VIEWER)
}
