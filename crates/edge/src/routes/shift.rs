//! Time shift: `NAME/index.m3u8?start=-SECONDS` leads to a playlist of the stream's recordings, and
//! below the viewer's pass to their files.
//!
//! The first response is a master playlist, like that of the live stream, with a new pass. Its
//! media playlist `shift-TIME.m3u8` starts at that time or at the start of the window, and grows
//! until the stream ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::hls::{HlsRequest, HlsTarget, Resource, authorize, is_shared, session};
use super::viewing::{VIEWER, denied, enter_by, full};
use crate::config::Recording;
use crate::files::{OwnedHead, respond_with};
use crate::http::{Answer, Body, RequestHead, Response};
use crate::ladder;
use crate::play::{ask_hook, is_known, reserve};
use crate::record::{NoTimeShift, RecordedFile, RenderedPlaylist, ShiftedStream, rule_of};
use crate::sessions::{Opening, Session};
use crate::state::State;

/// Maximum length of the parameter `start`.
const MAX_START_LEN: usize = 16;
/// Recorded files keep their content, except after a power failure.
const CACHE_CONTROL: &str = "public, max-age=86400";

/// Answers a request for the past of a stream; `None` for any other request.
pub(super) fn respond(
    state: &Arc<State>,
    head: &RequestHead<'_>,
    name: &str,
    target: &HlsTarget<'_>,
    now: SystemTime,
) -> Option<Answer> {
    let start = head.parameter("start");
    let HlsTarget { pass, resource } = *target;
    let is_asked = match resource {
        Resource::Master => pass.is_none() && start.is_some(),
        Resource::Shifted(_) | Resource::Recorded(_) => true,
        _ => false,
    };
    if !is_asked {
        return None;
    }
    if let Some(ladder) = ladder::get(&state.config, name) {
        let text = format!("{} is a ladder: time shift is of its renditions", ladder.name);
        return Some(Response::text(404, &text, now).into());
    }
    let Some(rule) = rule_of(&state.config, name) else {
        let text = format!("{name} has no time shift");
        return is_known(state, name).then(|| Response::text(404, &text, now).into());
    };
    if !matches!(head.method, "GET" | "HEAD") {
        return Some(Response::plain(405, now).with("allow", "GET, HEAD").into());
    }
    let shift = Shift { state: state.clone(), rule: rule.clone(), name: name.to_owned(), now };
    Some(match resource {
        Resource::Shifted(start_s) => shift.media_playlist(head, pass, (resource, start_s)),
        Resource::Recorded(file) => shift.file(head, pass, (resource, file)),
        _ => match start.and_then(parse_start) {
            Some(ago) => shift.master(head, ago),
            None => {
                let text = "start: expected a negative number of seconds, such as start=-3600";
                Response::text(400, text, now).into()
            }
        },
    })
}

/// Parses the time before the present: `-` and a positive decimal number of seconds.
fn parse_start(text: &str) -> Option<Duration> {
    let number = text.strip_prefix('-').filter(|_| text.len() <= MAX_START_LEN)?;
    let is_decimal = number.starts_with(|c: char| c.is_ascii_digit())
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds: f64 = number.parse().ok().filter(|_| is_decimal)?;
    (seconds > 0.0).then(|| Duration::try_from_secs_f64(seconds).ok())?
}

/// A request for the past of a stream.
struct Shift {
    state: Arc<State>,
    rule: Recording,
    name: String,
    now: SystemTime,
}

/// Runs `work` on the threads that read recordings.
///
/// # Errors
/// The error response.
async fn on_disk<T: Send + 'static>(
    shift: Arc<Shift>,
    work: impl FnOnce(&Shift, &Arc<ShiftedStream>) -> T + Send + 'static,
) -> Result<(T, Arc<ShiftedStream>), Box<Response>> {
    let now = shift.now;
    let Some(pool) = shift.state.live.time_shifts.pool().cloned() else {
        return Err(Box::new(full(now)));
    };
    let result = pool.run(move || {
        let stream = shift.state.live.time_shifts.open(&shift.rule, &shift.name, now)?;
        Ok((work(&shift, &stream), stream))
    });
    match result.await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(NoTimeShift::Empty)) => {
            Err(Box::new(Response::text(404, "nothing is recorded in the time-shift window", now)))
        }
        Ok(Err(NoTimeShift::Full)) => Err(Box::new(full(now))),
        Err(_) => Err(Box::new(Response::plain(500, now))),
    }
}

impl Shift {
    /// Whether further segments are to be expected.
    fn is_live(&self) -> bool {
        let live = &self.state.live;
        let directory = self.rule.directory.as_deref();
        live.streams.get(&self.name).is_some()
            || directory.is_some_and(|path| live.recordings.is_running(&self.name, path))
    }

    /// Answers a viewer's first request. Permission, hook and limits are those of the live stream.
    fn master(self, head: &RequestHead<'_>, ago: Duration) -> Answer {
        let (state, now) = (self.state.clone(), self.now);
        let (opening, grant) = match enter_by(&state, head, &self.name, "hls", now) {
            Ok(entered) => entered,
            Err(refusal) => return Answer::Now(*refusal),
        };
        let Ok(permits) = reserve(&state, &opening) else { return full(now).into() };
        let request = HlsRequest::new(head, Resource::Master, now);
        let (query, shift) = (head.query().to_owned(), Arc::new(self));
        Answer::Later(Box::pin(async move {
            // Held until the response. The session starts with the first media.
            let _permits = permits;
            let _lookup = match ask_hook(state.clone(), opening.clone(), query).await {
                Ok(lookup) => lookup,
                Err(why) => return denied(why, now),
            };
            let found = on_disk(shift, move |shift, stream| stream.enter(ago, shift.now)).await;
            let entrance = match found {
                Ok((entrance, _)) => entrance,
                Err(refusal) => return *refusal,
            };
            let (viewer, until) = (opening.viewer, opening.until);
            let pass = state.passes.stream(viewer, &opening.stream, grant, now, until);
            let (seconds, ms) = (entrance.offset_ms / 1_000, entrance.offset_ms % 1_000);
            let text = format!(
                "#EXTM3U\n#EXT-X-VERSION:8\n\
                 #EXT-X-START:TIME-OFFSET={seconds}.{ms:03},PRECISE=YES\n\
                 #EXT-X-STREAM-INF:BANDWIDTH={}\n~{pass}/shift-{}.m3u8\n",
                entrance.bandwidth, entrance.start_s
            );
            request.master(text).with(VIEWER, state.passes.page(viewer, now))
        }))
    }

    /// Answers with the media playlist from `start_s` on.
    fn media_playlist(
        self,
        head: &RequestHead<'_>,
        pass: Option<&str>,
        (resource, start_s): (Resource, u64),
    ) -> Answer {
        let opening = match authorize(&self.state, head, &self.name, (pass, resource), self.now) {
            Ok(opening) => opening,
            Err(refusal) => return Answer::Now(*refusal),
        };
        let request = HlsRequest::new(head, resource, self.now);
        let (state, now, is_get) = (self.state.clone(), self.now, head.method == "GET");
        let shared = is_shared(&state, &self.name);
        let shift = Arc::new(self);
        Answer::Later(Box::pin(async move {
            let rendered = on_disk(shift, move |shift, stream| {
                stream.playlist(start_s, shift.now, (shift.is_live(), shared))
            });
            let (rendered, stream) = match rendered.await {
                Ok(found) => found,
                Err(refusal) => return *refusal,
            };
            let Some(RenderedPlaylist { text, packed }) = rendered else {
                return Response::plain(404, now);
            };
            let length = text.len() as u64;
            // With shared media, only playlists identify the viewer.
            if let Some(opening) = opening.filter(|_| is_get) {
                let known = stream.viewers().session(opening.viewer);
                if shared && let Some(session) = known.or_else(|| enter(&state, &stream, opening)) {
                    session.add_media(length);
                }
            }
            request.playlist_text(text, packed)
        }))
    }

    /// Answers with a file of a recording.
    fn file(
        self,
        head: &RequestHead<'_>,
        pass: Option<&str>,
        (resource, file): (Resource, RecordedFile),
    ) -> Answer {
        let opening = match authorize(&self.state, head, &self.name, (pass, resource), self.now) {
            Ok(opening) => opening,
            Err(refusal) => return Answer::Now(*refusal),
        };
        let (state, now, owned) = (self.state.clone(), self.now, OwnedHead::new(head));
        let is_get = head.method == "GET";
        let shift = Arc::new(self);
        Answer::Later(Box::pin(async move {
            let read = on_disk(shift, move |shift, stream| {
                let path = stream.path(&file, shift.now)?;
                let pool = shift.state.live.time_shifts.pool()?;
                Some(respond_with(&path, CACHE_CONTROL, &owned.borrowed(), shift.now, pool))
            });
            let (response, stream) = match read.await {
                Ok((Some(response), stream)) => (response, stream),
                Ok((None, _)) => return Response::plain(404, now),
                Err(refusal) => return *refusal,
            };
            let has_media = matches!(response.status, 200 | 206) && is_get;
            let Some(opening) = opening.filter(|_| has_media) else { return response };
            let Some(session) = enter(&state, &stream, opening) else { return full(now) };
            let Response { status, headers, body } = response;
            let body = match body {
                Body::File(file) => {
                    session.add_media(file.remaining());
                    Body::Recorded { file, session: Some(session) }
                }
                other => other,
            };
            Response { status, headers, body }
        }))
    }
}

/// Returns the viewer's session, started if necessary; `None` if the stream or address is full.
fn enter(state: &State, stream: &ShiftedStream, opening: Opening) -> Option<Arc<Session>> {
    session(state, stream.viewers(), state.config.live.max_viewers.into(), opening)
}

#[cfg(test)]
mod tests;
