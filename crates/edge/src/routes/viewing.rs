//! What requests for media have in common: who asks, whether the URL allows it, and which pages may read
//! the answer.

use std::time::SystemTime;

use crate::http::{RequestHead, Response};
use crate::sessions::Opening;
use crate::signing;
use crate::state::State;
use crate::viewer::viewer_name;

/// What is known of a viewer who asks for the stream `name`.
pub(super) fn opening(head: &RequestHead<'_>, name: &str, format: &'static str) -> Opening {
    Opening {
        stream: name.to_owned(),
        protocol: head.protocol,
        format,
        remote: head.remote.ip(),
        viewer: viewer_name(head.parameter("viewer")),
        unit: head.cohort.map(|(unit, _)| unit),
        cohort: head.cohort.map_or_else(String::new, |(_, cohort)| cohort.name.clone()),
        scheme: head.cohort.map_or("", |(_, cohort)| cohort.scheme.name()),
    }
}

/// Whether the request may play the stream at all, as far as its URL tells.
///
/// # Errors
/// The refusal.
pub(super) fn check(
    state: &State,
    head: &RequestHead<'_>,
    name: &str,
    now: SystemTime,
) -> Result<(), Box<Response>> {
    let (expires, signature) = (head.parameter("expires"), head.parameter("sig"));
    match signing::may_play(&state.config, name, expires, signature, now) {
        true => Ok(()),
        false => Err(Box::new(Response::plain(403, now))),
    }
}

/// The response, for pages of other origins too if the configuration says so.
pub(super) fn with_cors(state: &State, response: Response) -> Response {
    match &state.config.live.cors {
        cors if cors.is_empty() => response,
        cors => response.with("access-control-allow-origin", cors),
    }
}
