//! Live streams over HTTP: which request is for which stream, and what its answer is.
//!
//! `/live/demo.flv` is the stream `live/demo` as FLV, in one response that goes on while the
//! stream does.

mod flv;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use media::Limits;
use relay::{Registry, Settings, Start, Viewer};

use crate::Error;
use crate::config::{self, Config};
use crate::front::{Answer, Body, RequestHead, Response};
use crate::server::State;
use crate::sessions::{Opening, RecordWriter, Sessions};

pub use flv::FlvBody;

/// The live streams of the process; they outlive every configuration.
#[derive(Debug)]
pub struct Live {
    /// The streams by name.
    pub streams: Registry,
    /// Who watches them.
    pub sessions: Arc<Sessions>,
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
        let streams = Registry::new(config.live.max_streams as usize);
        Ok(Self { streams, sessions: Arc::new(Sessions::new(writer)) })
    }
}

/// What holds for a stream that is opened under this configuration.
pub fn settings(config: &config::Live) -> Settings {
    let cache = Limits { groups: config.groups.into(), bytes: config.cache.as_usize() };
    let start = match config.start {
        config::Start::KeyFrame => Start::KeyFrame,
        config::Start::LatestGop => Start::LatestGop,
        config::Start::LowDelay => Start::LowDelay,
    };
    let max_lag_ms = millis(config.max_lag);
    Settings { cache, start, max_lag_ms, max_viewers: config.max_viewers.into() }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// What is known of a viewer who asks for the stream `name`.
fn opening(head: &RequestHead<'_>, name: &str, format: &'static str) -> Opening {
    let viewer = head.parameter("viewer").filter(|viewer| (1..=64).contains(&viewer.len()));
    Opening {
        stream: name.to_owned(),
        protocol: head.protocol,
        format,
        remote: head.remote.ip(),
        viewer: viewer.map(str::to_owned),
        cohort: head.cohort.map_or_else(String::new, |cohort| cohort.name.clone()),
        scheme: head.cohort.map_or("", |cohort| cohort.scheme),
    }
}

/// Answers a request for a live stream; `None` if it is for something else.
pub fn respond(state: &Arc<State>, head: &RequestHead<'_>, now: SystemTime) -> Option<Answer> {
    let name = head.path().strip_prefix('/')?.strip_suffix(".flv")?;
    let stream = state.live.streams.get(name)?;
    let response = match head.method {
        "GET" | "HEAD" => match Viewer::new(stream) {
            Some(viewer) => {
                let headers = vec![
                    ("date", httpdate::fmt_http_date(now)),
                    ("content-type", "video/x-flv".into()),
                    ("cache-control", "no-store".into()),
                ];
                let body = match head.method {
                    "GET" => {
                        let session = state.live.sessions.open(opening(head, name, "flv"));
                        Body::Flv(Box::new(FlvBody::new(viewer, session)))
                    }
                    _ => Body::Empty,
                };
                Response { status: 200, headers, body }
            }
            None => Response::plain(503, now).with("retry-after", "5"),
        },
        // RFC 9110, section 15.5.6: a 405 MUST carry Allow.
        _ => Response::plain(405, now).with("allow", "GET, HEAD"),
    };
    Some(with_cors(state, response).into())
}

/// The response, for pages of other origins too if the configuration says so.
pub fn with_cors(state: &State, response: Response) -> Response {
    match &state.config.live.cors {
        cors if cors.is_empty() => response,
        cors => response.with("access-control-allow-origin", cors),
    }
}
