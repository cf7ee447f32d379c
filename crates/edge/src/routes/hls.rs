//! HLS and Low-Latency HLS: the master playlist `index.m3u8`, and below the viewer's pass
//! `media.m3u8` and its files.
//!
//! A stream is packaged once for all viewers, while clients request it ([`Outlet`]). Requests for
//! the next playlist or part block until it exists (draft-pantos-hls-rfc8216bis, section 6.2.5.2).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use media::Codec;
use media::hls::segmenter::{MEDIA_PLAYLIST, TrackSelection};
use media::hls::{Availability, Name, Segmenter};

use super::viewing::{self, VIEWER, denied, full, late, missing, opening};
use crate::bans::Refused;
use crate::gzip::{self, gzip};
use crate::http::{Answer, Body, RequestHead, Response};
use crate::ingest::pull::Via;
use crate::live::{HlsViewers, Outlet};
use crate::play::{ask_hook, begin, find, is_open, reserve};
use crate::record::RecordedFile;
use crate::sessions::{Opening, Session};
use crate::signing;
use crate::state::State;

/// Content type of playlists (RFC 8216, section 10).
pub const PLAYLIST: &str = "application/vnd.apple.mpegurl";

/// The resource that a URL of a stream names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// `index.m3u8`.
    Master,
    /// `media.m3u8`.
    Playlist,
    /// `init-ID.mp4`.
    Init(u64),
    /// `MSN-ID.m4s` or `MSN-ID.ts`.
    Segment(Name),
    /// `MSN-ID.PART.m4s` or `MSN-ID.PART.ts`.
    Part(Name, usize),
    /// `shift-SECONDS.m3u8`: the media playlist of recordings from this time since 1970 on.
    Shifted(u64),
    /// A file of a recording.
    Recorded(RecordedFile),
}

impl Resource {
    /// Parses the last segment of a path.
    pub fn parse(file: &str) -> Option<Self> {
        match file {
            "index.m3u8" => return Some(Self::Master),
            MEDIA_PLAYLIST => return Some(Self::Playlist),
            _ => {}
        }
        if let Some(time) = file.strip_prefix("shift-").and_then(|f| f.strip_suffix(".m3u8")) {
            let seconds: u64 = time.parse().ok()?;
            return (seconds.to_string() == time).then_some(Self::Shifted(seconds));
        }
        if let Some(recorded) = RecordedFile::parse(file) {
            return Some(Self::Recorded(recorded));
        }
        if let Some(id) = file.strip_prefix("init-").and_then(|f| f.strip_suffix(".mp4")) {
            let number = u64::from_str_radix(id, 16).ok()?;
            return (format!("{number:016x}") == id).then_some(Self::Init(number));
        }
        let name = file.strip_suffix(".m4s").or_else(|| file.strip_suffix(".ts"))?;
        match name.split_once('.') {
            Some((name, part)) => {
                let number: usize = part.parse().ok()?;
                (number.to_string() == part).then_some(Self::Part(name.parse().ok()?, number))
            }
            None => name.parse().ok().map(Self::Segment),
        }
    }
}

/// A resource of a stream, and the pass in its path.
pub(super) struct HlsTarget<'a> {
    pub(super) pass: Option<&'a str>,
    pub(super) resource: Resource,
}

impl<'a> HlsTarget<'a> {
    /// Parses `NAME/index.m3u8`, `NAME/~PASS/media.m3u8` or `NAME/~PASS/FILE` into the stream's
    /// name and the target.
    pub(super) fn parse(path: &'a str) -> Option<(&'a str, Self)> {
        let (folder, file) = path.rsplit_once('/')?;
        let resource = Resource::parse(file)?;
        let with_pass = folder
            .rsplit_once('/')
            .and_then(|(name, last)| Some((name, Some(last.strip_prefix('~')?))));
        let (name, pass) = with_pass.unwrap_or((folder, None));
        Some((name, Self { pass, resource }))
    }
}

pub(super) fn respond(
    state: &Arc<State>,
    head: &RequestHead<'_>,
    name: &str,
    HlsTarget { pass, resource }: HlsTarget<'_>,
    via: Via,
    now: SystemTime,
) -> Answer {
    let request = HlsRequest::new(head, resource, now);
    if pass.is_none() && resource == Resource::Master {
        return enter(state, head, name, via, request);
    }
    let opening = match authorize(state, head, name, (pass, resource), now) {
        Ok(opening) => opening,
        Err(refusal) => return Answer::Now(*refusal),
    };
    let (state, name, remote) = (state.clone(), name.to_owned(), head.remote.ip());
    Answer::Later(Box::pin(async move {
        match outlet(&state, &name, remote, via, now) {
            Ok(outlet) => {
                let shared = is_shared(&state, &name);
                let place = Place { outlet: &outlet, viewers: outlet.viewers(), shared };
                request.answer(&state, place, opening).await
            }
            Err(response) => *response,
        }
    }))
}

/// Checks the pass of a request for media. Returns `None` for shared media, which needs no pass.
///
/// # Errors
/// The error response.
pub(super) fn authorize(
    state: &State,
    head: &RequestHead<'_>,
    name: &str,
    (pass, resource): (Option<&str>, Resource),
    now: SystemTime,
) -> Result<Option<Opening>, Box<Response>> {
    let refused = || Box::new(Response::plain(403, now));
    match (pass, resource) {
        (Some(pass), _) => admit(state, head, name, pass, now).map(Some).ok_or_else(refused),
        // Playlists need the pass that the master playlist issues.
        (None, Resource::Playlist | Resource::Shifted(_)) => Err(refused()),
        (None, _) if !is_shared(state, name) => Err(refused()),
        (None, _) if state.bans.refuse(Refused::Play, head.remote.ip()) => Err(refused()),
        (None, _) => Ok(None),
    }
}

/// Returns the opening of a viewer with a valid pass for the stream or ladder `name`.
pub(super) fn admit(
    state: &State,
    head: &RequestHead<'_>,
    name: &str,
    pass: &str,
    now: SystemTime,
) -> Option<Opening> {
    let pass = state.passes.of_stream(pass, name, now);
    let valid = pass.filter(|pass| signing::holds(&state.config, name, pass.grant));
    let opening = valid.map(|pass| Opening {
        viewer: pass.viewer,
        granted: pass.issued,
        ..opening(state, head, name, "hls", now)
    });
    opening.filter(|opening| !state.bans.refuse_player(opening))
}

/// Returns true if the stream's media has the same URLs for all viewers.
pub(super) fn is_shared(state: &State, name: &str) -> bool {
    state.config.hls.shared && is_open(state, name)
}

/// Answers a viewer's first request. The master playlist leads to media below a new pass.
fn enter(
    state: &Arc<State>,
    head: &RequestHead<'_>,
    name: &str,
    via: Via,
    request: HlsRequest,
) -> Answer {
    let now = request.now;
    let (opening, grant) = match viewing::enter_by(state, head, name, "hls", now) {
        Ok(entered) => entered,
        Err(refusal) => return Answer::Now(*refusal),
    };
    let Ok(permits) = reserve(state, &opening) else { return full(now).into() };
    let (state, query) = (state.clone(), head.query().to_owned());
    Answer::Later(Box::pin(async move {
        // Held until the response. The session starts with the first media.
        let _permits = permits;
        let lookup = match ask_hook(state.clone(), opening.clone(), query).await {
            Ok(lookup) => lookup,
            Err(why) => return denied(why, now),
        };
        let outlet = match outlet(&state, &opening.stream, opening.remote, via, now) {
            Ok(outlet) => outlet,
            Err(refusal) => return *refusal,
        };
        drop(lookup);
        let found = |s: &Segmenter| s.master().map(Ok).or(s.unsupported_stream().map(Err));
        let text = match outlet.wait(found).await {
            Some(Ok(text)) => text,
            Some(Err(codec)) => return Response::text(415, &unsupported(codec), now),
            None => return late(now),
        };
        let (viewer, stream) = (opening.viewer, &opening.stream);
        let pass = state.passes.stream(viewer, stream, grant, now, opening.until);
        let text = String::from_utf8_lossy(&text);
        let text = text.replace(MEDIA_PLAYLIST, &format!("~{pass}/{MEDIA_PLAYLIST}"));
        let page = state.passes.page(opening.viewer, now);
        request.master(text).with(VIEWER, page)
    }))
}

/// Returns the error text for a stream of this codec.
pub(super) fn unsupported(codec: Codec) -> String {
    format!("{codec} is not supported over HLS: play the stream as FLV or RTMP")
}

/// Returns the stream's outlet, started if necessary.
///
/// # Errors
/// The error response, if the stream is unavailable or full.
fn outlet(
    state: &Arc<State>,
    name: &str,
    remote: IpAddr,
    via: Via,
    now: SystemTime,
) -> Result<Arc<Outlet>, Box<Response>> {
    let outlets = &state.live.outlets;
    if let Some(outlet) = outlets.get(&state.live.streams, name, TrackSelection::All) {
        return Ok(outlet);
    }
    let stream = find(state, name, remote, via).or_else(|why| outlets.ended(name).ok_or(why));
    let stream = stream.map_err(|why| Box::new(missing(why, now)))?;
    let runtime = state.runtime.get();
    let shared = is_shared(state, name);
    let open = |runtime| outlets.of(&stream, &state.config.hls, shared, runtime);
    let outlet = runtime.and_then(open);
    outlet.ok_or_else(|| Box::new(full(now)))
}

/// The segments and viewers that a request refers to.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) outlet: &'a Outlet,
    /// Viewers of the stream or ladder.
    pub(super) viewers: &'a HlsViewers,
    /// Whether media has the same URLs for all viewers.
    pub(super) shared: bool,
}

/// The parameters of a request.
pub(super) struct HlsRequest {
    resource: Resource,
    pub(super) now: SystemTime,
    head_only: bool,
    /// `_HLS_msn`, `_HLS_part` and `_HLS_skip`.
    after: Option<(u64, Option<usize>)>,
    skip: bool,
    /// Whether the client accepts gzip.
    gzips: bool,
    is_valid: bool,
}

impl HlsRequest {
    pub(super) fn new(head: &RequestHead<'_>, resource: Resource, now: SystemTime) -> Self {
        let number = |name: &str| head.parameter(name).map(str::parse::<u64>);
        let (msn, part) = (number("_HLS_msn"), number("_HLS_part"));
        // A part requires a segment, and both must be numbers.
        let is_valid =
            !matches!((&msn, &part), (None, Some(_)) | (Some(Err(_)), _) | (_, Some(Err(_))));
        let part = part.and_then(Result::ok).map(|part| part as usize);
        Self {
            resource,
            now,
            head_only: head.method == "HEAD",
            after: msn.and_then(Result::ok).map(|msn| (msn, part)),
            gzips: gzip::is_accepted(head),
            skip: matches!(head.parameter("_HLS_skip"), Some("YES" | "v2")),
            is_valid,
        }
    }

    /// Answers a viewer. `opening` is `None` for shared media without a pass.
    pub(super) async fn answer(
        self,
        state: &State,
        place: Place<'_>,
        opening: Option<Opening>,
    ) -> Response {
        let outlet = place.outlet;
        if !self.is_valid {
            return Response::plain(400, self.now);
        }
        match self.resource {
            // The past has its own routes.
            Resource::Master | Resource::Shifted(_) | Resource::Recorded(_) => {
                Response::plain(404, self.now)
            }
            Resource::Playlist => {
                let answer = self.playlist(outlet).await;
                self.count_playlist(&answer, state, place, opening);
                answer
            }
            Resource::Init(id) => {
                let init = outlet.look(|s| s.init(id));
                self.media(init.map(|bytes| vec![bytes]), None, state, place, opening)
            }
            Resource::Segment(name) => {
                let parts = outlet.wait(|s| match s.availability_of(name, None) {
                    Availability::Pending => None,
                    _ => Some(s.segment(name)),
                });
                let parts = parts.await.flatten();
                let slack = outlet.look(|s| s.slack(name, None));
                self.media(parts, slack, state, place, opening)
            }
            Resource::Part(name, part) => {
                let bytes = outlet.wait(|s| match s.availability_of(name, Some(part)) {
                    Availability::Pending => None,
                    _ => Some(s.part(name, part)),
                });
                let parts = bytes.await.flatten().map(|bytes| vec![bytes]);
                let slack = outlet.look(|s| s.slack(name, Some(part)));
                self.media(parts, slack, state, place, opening)
            }
        }
    }

    /// Adds a playlist to the viewer's session. With shared media, only playlists identify the
    /// viewer.
    fn count_playlist(
        &self,
        answer: &Response,
        state: &State,
        place: Place<'_>,
        opening: Option<Opening>,
    ) {
        let Some(opening) = opening.filter(|_| !self.head_only) else { return };
        let known = place.viewers.session(opening.viewer);
        if let (200, Body::Bytes(text)) = (answer.status, &answer.body)
            && place.shared
            && let Some(session) = known.or_else(|| place.session(state, opening))
        {
            session.add_media(text.len() as u64);
        }
    }

    async fn playlist(&self, outlet: &Outlet) -> Response {
        let skip = self.skip;
        let answer = |text: Bytes| {
            let packed = self.gzips.then(|| outlet.gzip(&text, skip));
            self.text(text, packed)
        };
        let Some((msn, part)) = self.after else {
            let text = outlet.wait(|s| s.playlist(skip)).await;
            return text.map_or_else(|| late(self.now), answer);
        };
        let found = outlet.wait(|s| match s.availability(msn, part) {
            Availability::Pending => None,
            Availability::TooFar => Some(None),
            Availability::Past | Availability::Present => Some(s.playlist(skip)),
        });
        match found.await {
            Some(Some(text)) => answer(text),
            Some(None) => Response::plain(400, self.now),
            None => late(self.now),
        }
    }

    /// Returns the response with a master playlist.
    pub(super) fn master(&self, text: String) -> Response {
        let text = Bytes::from(text);
        let packed = self.gzips.then(|| gzip(&text).into());
        self.text(text, packed)
    }

    /// Returns the response with a media playlist, compressed if the client accepts it.
    pub(super) fn playlist_text(&self, text: Bytes, packed: Bytes) -> Response {
        self.text(text, self.gzips.then_some(packed))
    }

    /// Returns the response with a playlist, compressed if `packed` is given.
    fn text(&self, text: Bytes, packed: Option<Bytes>) -> Response {
        let coded = packed.is_some();
        let text = packed.unwrap_or(text);
        let mut headers = vec![
            ("date", httpdate::fmt_http_date(self.now)),
            ("content-type", PLAYLIST.into()),
            ("content-length", text.len().to_string()),
            ("cache-control", "no-cache".into()),
            ("vary", "accept-encoding".into()),
        ];
        if coded {
            headers.push(("content-encoding", "gzip".into()));
        }
        let body = if self.head_only { Body::Empty } else { Body::Bytes(text) };
        Response { status: 200, headers, body }
    }

    /// Returns the response with media. The viewer's session starts with its first media.
    fn media(
        &self,
        parts: Option<Vec<Bytes>>,
        slack: Option<Duration>,
        state: &State,
        place: Place<'_>,
        opening: Option<Opening>,
    ) -> Response {
        let Some(parts) = parts else { return Response::plain(404, self.now) };
        let length: usize = parts.iter().map(Bytes::len).sum();
        let kind = match self.resource {
            Resource::Init(_) => "video/mp4",
            // The first byte of a transport stream is its sync byte.
            _ if parts.first().is_some_and(|part| part.first() == Some(&0x47)) => "video/mp2t",
            _ => "video/iso.segment",
        };
        let headers = vec![
            ("date", httpdate::fmt_http_date(self.now)),
            ("content-type", kind.into()),
            ("content-length", length.to_string()),
            // Names are never reused for other bytes.
            ("cache-control", "public, max-age=31536000, immutable".into()),
        ];
        if self.head_only {
            return Response { status: 200, headers, body: Body::Empty };
        }
        let session = match opening.map(|opening| place.session(state, opening)) {
            Some(None) => return full(self.now),
            known => known.flatten(),
        };
        session.iter().for_each(|session| session.add_media(length as u64));
        let body = Body::Parts { parts: parts.into(), session, slack };
        Response { status: 200, headers, body }
    }
}

impl Place<'_> {
    fn session(self, state: &State, opening: Opening) -> Option<Arc<Session>> {
        session(state, self.viewers, self.outlet.stream().settings().max_viewers, opening)
    }
}

/// Returns the viewer's session, started if necessary; `None` if there are `most` viewers or the
/// address is full, or the operator has dismissed the viewer since the request.
pub(super) fn session(
    state: &State,
    viewers: &HlsViewers,
    most: u64,
    opening: Opening,
) -> Option<Arc<Session>> {
    viewers.session(opening.viewer).or_else(|| {
        viewers.enter(opening.viewer, most, || {
            let permits = reserve(state, &opening).ok()?;
            begin(state, opening, permits)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_parsed() {
        assert_eq!(Resource::parse("index.m3u8"), Some(Resource::Master));
        assert_eq!(Resource::parse("media.m3u8"), Some(Resource::Playlist));
        let name = Name { msn: 17, id: 0xab };
        assert_eq!(Resource::parse("init-0000000000000003.mp4"), Some(Resource::Init(3)));
        assert_eq!(Resource::parse(&format!("{name}.m4s")), Some(Resource::Segment(name)));
        assert_eq!(Resource::parse(&format!("{name}.2.ts")), Some(Resource::Part(name, 2)));
        for file in [
            "",
            "a.m4s",
            "1.m3u8",
            "17.m4s",
            "17-00000000000000ab.2.3.m4s",
            "17-00000000000000ab.02.m4s",
            "17-ab.ts",
            "init-.mp4",
            "init-3.mp4",
            "99999999999999999999-00000000000000ab.ts",
        ] {
            assert_eq!(Resource::parse(file), None, "{file}");
        }
    }

    #[test]
    fn the_pass_is_parsed_from_the_path() {
        fn parts(path: &str) -> Option<(&str, Option<&str>, Resource)> {
            HlsTarget::parse(path).map(|(name, target)| (name, target.pass, target.resource))
        }
        assert_eq!(parts("live/a/index.m3u8"), Some(("live/a", None, Resource::Master)));
        assert_eq!(parts("a/~x/media.m3u8"), Some(("a", Some("x"), Resource::Playlist)));
        let segment = Resource::Segment(Name { msn: 7, id: 0 });
        let file = "7-0000000000000000.ts";
        assert_eq!(parts(&format!("live/a/~/{file}")), Some(("live/a", Some(""), segment)));
        assert_eq!(parts(&format!("~x/{file}")), Some(("~x", None, segment)));
        assert_eq!(parts("live/a/x.mp4"), None);
    }
}
