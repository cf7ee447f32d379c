//! HLS and Low-Latency HLS of a live stream: `index.m3u8` (the master playlist), `media.m3u8`, and
//! the files that it names.
//!
//! A stream is packed only while somebody asks for it, once for all viewers, by a task that is a
//! viewer of the stream itself. Requests for what comes next wait for it (draft-pantos-hls-
//! rfc8216bis, section 6.2.5.2).

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use media::hls::segmenter::MEDIA_PLAYLIST;
use media::hls::{Segmenter, When};

use super::viewing::{check, opening};
use crate::http::{Answer, Body, RequestHead, Response};
use crate::live::Outlet;
use crate::play::{ask_hook, find};
use crate::sessions::Session;
use crate::state::State;

/// What a URL of a stream names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// `index.m3u8`.
    Master,
    /// `media.m3u8`.
    Playlist,
    /// `init-V.mp4`.
    Init(u64),
    /// `MSN.m4s` or `MSN.ts`.
    Segment(u64),
    /// `MSN.PART.m4s` or `MSN.PART.ts`.
    Part(u64, usize),
}

impl Resource {
    /// Whether it is one of the playlists.
    pub fn is_playlist(self) -> bool {
        matches!(self, Self::Master | Self::Playlist)
    }

    /// Reads the last part of a path.
    pub fn parse(file: &str) -> Option<Self> {
        match file {
            "index.m3u8" => return Some(Self::Master),
            MEDIA_PLAYLIST => return Some(Self::Playlist),
            _ => {}
        }
        if let Some(version) = file.strip_prefix("init-").and_then(|f| f.strip_suffix(".mp4")) {
            return version.parse().ok().map(Self::Init);
        }
        let name = file.strip_suffix(".m4s").or_else(|| file.strip_suffix(".ts"))?;
        match name.split_once('.') {
            Some((msn, part)) => Some(Self::Part(msn.parse().ok()?, part.parse().ok()?)),
            None => name.parse().ok().map(Self::Segment),
        }
    }
}

/// Who asks: the player's own name, else its address.
fn who(head: &RequestHead<'_>) -> String {
    match head.parameter("viewer") {
        Some(viewer) => format!("viewer {viewer}"),
        None => head.remote.ip().to_string(),
    }
}

pub(super) fn respond(
    state: &Arc<State>,
    head: &RequestHead<'_>,
    name: &str,
    resource: Resource,
    now: SystemTime,
) -> Answer {
    // Playlists are the gate; the names of segments are told nowhere else.
    let is_playlist = resource.is_playlist();
    if is_playlist && let Err(refusal) = check(state, head, name, now) {
        return Answer::Now(*refusal);
    }
    let request = Request::new(head, resource, now);
    let who = who(head);
    let outlet = state.live.outlets.known(&state.live.streams, name);
    let session = outlet.as_ref().and_then(|outlet| outlet.session(&who));
    match outlet {
        None if !is_playlist => return Response::plain(404, now).into(),
        Some(outlet) if !is_playlist || session.is_some() => {
            return Answer::Later(Box::pin(async move { request.answer(&outlet, session).await }));
        }
        // A viewer's first words.
        _ => {}
    }
    let opening = opening(head, name, "hls");
    let (state, query) = (state.clone(), head.query().to_owned());
    Answer::Later(Box::pin(async move {
        if !ask_hook(state.clone(), opening.clone(), query).await {
            return Response::plain(403, now);
        }
        let stream =
            find(&state, &opening.stream).or_else(|| state.live.outlets.ended(&opening.stream));
        let Some(stream) = stream else { return Response::plain(404, now) };
        let full = || Response::plain(503, now).with("retry-after", "5");
        let outlets = &state.live.outlets;
        let runtime = state.runtime.get();
        let outlet = runtime.and_then(|runtime| outlets.of(&stream, &state.config.hls, runtime));
        let Some(outlet) = outlet else { return full() };
        let session = outlet.enter(who, || state.sessions.open(opening));
        let Some(session) = session else { return full() };
        request.answer(&outlet, Some(session)).await
    }))
}

/// A request, as far as its answer depends on it.
struct Request {
    resource: Resource,
    now: SystemTime,
    head_only: bool,
    query: String,
    /// `_HLS_msn`, `_HLS_part` and `_HLS_skip`.
    after: Option<(u64, Option<usize>)>,
    skip: bool,
    is_sound: bool,
}

impl Request {
    fn new(head: &RequestHead<'_>, resource: Resource, now: SystemTime) -> Self {
        let number = |name: &str| head.parameter(name).map(str::parse::<u64>);
        let (msn, part) = (number("_HLS_msn"), number("_HLS_part"));
        // A part without a segment makes no sense, and neither do words for numbers.
        let is_sound =
            !matches!((&msn, &part), (None, Some(_)) | (Some(Err(_)), _) | (_, Some(Err(_))));
        let part = part.and_then(Result::ok).map(|part| part as usize);
        Self {
            resource,
            now,
            head_only: head.method == "HEAD",
            query: head.query().to_owned(),
            after: msn.and_then(Result::ok).map(|msn| (msn, part)),
            skip: matches!(head.parameter("_HLS_skip"), Some("YES" | "v2")),
            is_sound,
        }
    }

    async fn answer(self, outlet: &Outlet, session: Option<Arc<Session>>) -> Response {
        let late = |now| Response::plain(503, now).with("retry-after", "1");
        if !self.is_sound {
            return Response::plain(400, self.now);
        }
        match self.resource {
            Resource::Master => match outlet.wait(Segmenter::master).await {
                Some(text) => self.text(with_query(&text, &self.query)),
                None => late(self.now),
            },
            Resource::Playlist => {
                let skip = self.skip;
                let Some((msn, part)) = self.after else {
                    return match outlet.wait(|s| s.playlist(skip)).await {
                        Some(text) => self.text(text),
                        None => late(self.now),
                    };
                };
                let found = outlet.wait(|s| match s.when(msn, part) {
                    When::Next => None,
                    When::TooFar => Some(None),
                    When::Past | When::Present => Some(s.playlist(skip)),
                });
                match found.await {
                    Some(Some(text)) => self.text(text),
                    Some(None) => Response::plain(400, self.now),
                    None => late(self.now),
                }
            }
            Resource::Init(version) => {
                let init = outlet.look(|s| s.init(version));
                self.media(init.map(|bytes| vec![bytes]), session)
            }
            Resource::Segment(msn) => {
                let parts = outlet.wait(|s| match s.when(msn, None) {
                    When::Next => None,
                    _ => Some(s.segment(msn)),
                });
                let parts = parts.await.flatten();
                self.media(parts, session)
            }
            Resource::Part(msn, part) => {
                let bytes = outlet.wait(|s| match s.when(msn, Some(part)) {
                    When::Next => None,
                    _ => Some(s.part(msn, part)),
                });
                let bytes = bytes.await.flatten();
                self.media(bytes.map(|bytes| vec![bytes]), session)
            }
        }
    }

    fn text(&self, text: Bytes) -> Response {
        let headers = vec![
            ("date", httpdate::fmt_http_date(self.now)),
            ("content-type", "application/vnd.apple.mpegurl".into()),
            ("content-length", text.len().to_string()),
            ("cache-control", "no-cache".into()),
        ];
        let body = if self.head_only { Body::Empty } else { Body::Bytes(text) };
        Response { status: 200, headers, body }
    }

    fn media(&self, parts: Option<Vec<Bytes>>, session: Option<Arc<Session>>) -> Response {
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
            // Numbers begin anew when a stream does: a cache may not keep them long.
            ("cache-control", "max-age=5".into()),
        ];
        if self.head_only {
            return Response { status: 200, headers, body: Body::Empty };
        }
        if let Some(session) = &session {
            session.add_media(length as u64);
        }
        Response { status: 200, headers, body: Body::Parts { parts: parts.into(), session } }
    }
}

/// The master playlist, whose URIs go on carrying what the request carried: a signature, the player's
/// name.
fn with_query(text: &Bytes, query: &str) -> Bytes {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~=&%".contains(&b);
    if query.is_empty() || !query.bytes().all(plain) {
        return text.clone();
    }
    let text = String::from_utf8_lossy(text);
    text.replace(MEDIA_PLAYLIST, &format!("{MEDIA_PLAYLIST}?{query}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_read() {
        assert_eq!(Resource::parse("index.m3u8"), Some(Resource::Master));
        assert_eq!(Resource::parse("media.m3u8"), Some(Resource::Playlist));
        assert_eq!(Resource::parse("init-3.mp4"), Some(Resource::Init(3)));
        assert_eq!(Resource::parse("17.m4s"), Some(Resource::Segment(17)));
        assert_eq!(Resource::parse("17.2.ts"), Some(Resource::Part(17, 2)));
        for file in
            ["", "a.m4s", "1.m3u8", "1.2.3.m4s", "-1.ts", "init-.mp4", "99999999999999999999.ts"]
        {
            assert_eq!(Resource::parse(file), None, "{file}");
        }
    }

    #[test]
    fn a_query_goes_on_to_the_media_playlist_unless_it_could_break_it() {
        let master = Bytes::from_static(b"#EXTM3U\nmedia.m3u8\n");
        assert_eq!(with_query(&master, "a=1&b=2")[..], b"#EXTM3U\nmedia.m3u8?a=1&b=2\n"[..]);
        assert_eq!(with_query(&master, "a=\"\n"), master);
    }
}
