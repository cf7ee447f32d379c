//! Live streams over HTTP: which request is for which stream, who may see it, and what the answer is.
//!
//! `/live/demo.flv` is the stream `live/demo` as FLV, in one response that goes on while the
//! stream does; `/live/demo/index.m3u8` is the same as HLS. A stream that nobody publishes here is
//! pulled from an upstream if the configuration names one.

mod events;
mod flv;
pub mod hls;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use media::Limits;
use relay::{Registry, Settings, Start, Status, Stream, Viewer};
use serde_json::json;
use tokio::runtime::Handle;

use crate::Error;
use crate::config::{self, Config};
use crate::front::{Answer, Body, RequestHead, Response};
use crate::hooks::{Hook, Hooks};
use crate::ingest::pull::Pulls;
use crate::server::State;
use crate::sessions::{Opening, RecordWriter, Sessions};
use crate::signing;

pub use events::Events;
pub use flv::FlvBody;

/// The live streams of the process; they outlive every configuration.
#[derive(Debug)]
pub struct Live {
    /// The streams by name.
    pub streams: Registry,
    /// Who watches them.
    pub sessions: Arc<Sessions>,
    /// The operator's servers that are asked and told.
    pub hooks: Arc<Hooks>,
    /// What happened to publishers and upstreams.
    pub events: Events,
    /// The streams that are pulled.
    pub pulls: Pulls,
    /// The streams that somebody watches as HLS.
    pub outlets: Mutex<HashMap<String, Arc<hls::Outlet>>>,
    /// Where tasks run that a request on another thread asks for.
    pub runtime: OnceLock<Handle>,
}

impl Live {
    /// No streams yet.
    ///
    /// # Errors
    /// One line: the directory of the records cannot be written to.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let records = &config.records;
        let writer = match &records.directory {
            Some(directory) => Some(RecordWriter::start(directory, records.period)?),
            None => None,
        };
        Ok(Self {
            streams: Registry::new(config.live.max_streams as usize),
            sessions: Arc::new(Sessions::new(writer)),
            hooks: Arc::default(),
            events: Events::default(),
            pulls: Pulls::default(),
            outlets: Mutex::default(),
            runtime: OnceLock::new(),
        })
    }
}

/// What holds for a stream that is opened under this configuration.
pub fn settings(config: &config::Live) -> Settings {
    let cache = Limits { groups: config.groups.into(), bytes: config.cache.as_usize() };
    Settings {
        cache,
        max_lag_ms: millis(config.max_lag),
        merge_ms: millis(config.merge),
        max_viewers: config.max_viewers.into(),
    }
}

fn start(config: &config::Live) -> Start {
    match config.start {
        config::Start::KeyFrame => Start::KeyFrame,
        config::Start::LatestGop => Start::LatestGop,
        config::Start::LowDelay => Start::LowDelay,
    }
}

/// A new viewer of the stream, who starts where the configuration of the moment says; `None` if
/// there are too many.
pub(crate) fn watch(state: &State, stream: Arc<Stream>) -> Option<Viewer> {
    Viewer::new(stream, start(&state.config.live))
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// How a player calls its viewer, if that can be a name.
pub(crate) fn viewer_name(name: Option<&str>) -> Option<String> {
    name.filter(|name| (1..=64).contains(&name.len())).map(str::to_owned)
}

/// What is known of a viewer who asks for the stream `name`.
fn opening(head: &RequestHead<'_>, name: &str, format: &'static str) -> Opening {
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

/// Answers a request for a live stream; `None` if it is for something else.
pub fn respond(state: &Arc<State>, head: &RequestHead<'_>, now: SystemTime) -> Option<Answer> {
    let path = head.path().strip_prefix('/')?;
    let (name, file) = match path.strip_suffix(".flv") {
        Some(name) => (name, None),
        None => {
            let (name, file) = path.rsplit_once('/')?;
            (name, Some(hls::Resource::parse(file)?))
        }
    };
    let had = || file.is_some() && hls::ended(state, name).is_some();
    if !is_known(state, name) && !had() {
        return None;
    }
    let answer = match (head.method, file) {
        ("GET" | "HEAD", None) => flv(state, head, name, now),
        ("GET" | "HEAD", Some(file)) => hls::respond(state, head, name, file, now),
        // RFC 9110, section 15.5.6: a 405 MUST carry Allow.
        _ => Response::plain(405, now).with("allow", "GET, HEAD").into(),
    };
    Some(match answer {
        Answer::Now(response) => with_cors(state, response).into(),
        Answer::Later(response) => {
            let state = state.clone();
            Answer::Later(Box::pin(async move { with_cors(&state, response.await) }))
        }
    })
}

/// Whether there is a stream of this name, or an upstream that may have it.
pub(crate) fn is_known(state: &State, name: &str) -> bool {
    state.live.streams.get(name).is_some() || state.live.pulls.may_start(state, name)
}

/// The stream of this name for one who may play it: what is not there is asked of an upstream.
pub(crate) fn find(state: &Arc<State>, name: &str) -> Option<Arc<Stream>> {
    state.live.streams.get(name).or_else(|| state.live.pulls.start(state, name))
}

/// Whether the request may play the stream at all, as far as its URL tells.
///
/// # Errors
/// The refusal.
fn check(
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

/// Asks the hook whether a viewer may play. Runs where hooks run, whoever waits for it.
pub(crate) async fn ask_hook(state: Arc<State>, opening: Opening, query: String) -> bool {
    if state.config.hooks.on_play.is_none() {
        return true;
    }
    let Some(runtime) = state.live.runtime.get().cloned() else { return false };
    let what = json!({
        "stream": opening.stream,
        "protocol": opening.protocol.name(),
        "format": opening.format,
        "remote": opening.remote.to_string(),
        "viewer": opening.viewer,
        "query": query,
    });
    let task = runtime.spawn(async move {
        let granted = state.live.hooks.ask(&state.config.hooks, Hook::Play, what).await;
        granted.map_err(|why| tracing::info!("{}: viewer refused: {why}", opening.stream)).is_ok()
    });
    task.await.unwrap_or(false)
}

fn flv(state: &Arc<State>, head: &RequestHead<'_>, name: &str, now: SystemTime) -> Answer {
    if let Err(refusal) = check(state, head, name, now) {
        return Answer::Now(*refusal);
    }
    let headers = vec![
        ("date", httpdate::fmt_http_date(now)),
        ("content-type", "video/x-flv".into()),
        ("cache-control", "no-store".into()),
    ];
    if head.method == "HEAD" {
        return Response { status: 200, headers, body: Body::Empty }.into();
    }
    let opening = opening(head, name, "flv");
    let full = move || Response::plain(503, now).with("retry-after", "5");
    let live = state.live.streams.get(name).filter(|stream| stream.status() == Status::Live);
    if let Some(stream) = live
        && state.config.hooks.on_play.is_none()
    {
        let Some(viewer) = watch(state, stream) else { return full().into() };
        let session = state.live.sessions.open(opening);
        let body = Body::Flv(Box::new(FlvBody::new(viewer, session)));
        return Response { status: 200, headers, body }.into();
    }
    let (state, query) = (state.clone(), head.query().to_owned());
    Answer::Later(Box::pin(async move {
        if !ask_hook(state.clone(), opening.clone(), query).await {
            return Response::plain(403, now);
        }
        let Some(stream) = find(&state, &opening.stream) else { return Response::plain(404, now) };
        let Some(mut viewer) = watch(&state, stream) else { return full() };
        // An upstream that has nothing to give is found out before anything is promised.
        if poll_fn(|context| viewer.poll_kinds(context)).await.is_none() {
            return Response::plain(502, now);
        }
        let session = state.live.sessions.open(opening);
        let body = Body::Flv(Box::new(FlvBody::new(viewer, session)));
        Response { status: 200, headers, body }
    }))
}

/// The response, for pages of other origins too if the configuration says so.
pub fn with_cors(state: &State, response: Response) -> Response {
    match &state.config.live.cors {
        cors if cors.is_empty() => response,
        cors => response.with("access-control-allow-origin", cors),
    }
}
