//! The control API: JSON calls to inspect and control the running server.
//! docs/operate/control.md lists every call.
//!
//! A call's path names a resource, its method an action. [`Access`] checks permission, [`input`]
//! reads the parameters, and [`actions`] performs the action.

mod actions;
mod input;
pub(super) mod openapi;
mod reply;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

use super::access::{Access, AccessDenied};
use crate::state::Shared;
use crate::sync::lock;
use input::{JsonFields, Query};
pub(crate) use reply::Reply;

/// Maximum content of a call, in bytes.
const MAX_BODY: usize = 4_096;
/// Timeout for the content.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The resource of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ControlResource {
    Streams,
    /// Ends the stream of this name.
    End(String),
    Viewers,
    Viewer(String),
    Kick(String),
    Bans,
    Ban(String),
    Log,
    Reload,
    Drain,
}

impl ControlResource {
    /// Parses a path; `None` if it is not part of the control API.
    pub(super) fn of(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/api/")?;
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Some(match rest {
            "streams" => Self::Streams,
            "viewers" => Self::Viewers,
            "bans" => Self::Bans,
            "log" => Self::Log,
            "reload" => Self::Reload,
            "drain" => Self::Drain,
            _ => match rest.split_once('/')? {
                ("streams", rest) => Self::End(decoded(rest.strip_suffix("/end")?)),
                ("viewers", rest) => match rest.strip_suffix("/kick") {
                    Some(id) => Self::Kick(decoded(id)),
                    None => Self::Viewer(decoded(rest)),
                },
                ("bans", rest) => Self::Ban(decoded(rest)),
                _ => return None,
            },
        })
    }

    /// Returns the action of a method, or else the allowed methods.
    fn action(&self, method: &str) -> Result<ControlAction, &'static str> {
        match (self, method) {
            (Self::Streams, "GET" | "HEAD") => Ok(ControlAction::ListStreams),
            (Self::Viewers, "GET" | "HEAD") => Ok(ControlAction::ListViewers),
            (Self::Bans, "GET" | "HEAD") => Ok(ControlAction::ListBans),
            (Self::Log, "GET" | "HEAD") => Ok(ControlAction::ShowLog),
            (Self::Log, "POST") => Ok(ControlAction::SetLogLevel),
            (Self::Bans, "POST") => Ok(ControlAction::Ban),
            (Self::Ban(_), "DELETE") => Ok(ControlAction::Unban),
            (Self::Viewer(_), "DELETE") | (Self::Kick(_), "POST") => Ok(ControlAction::Kick),
            (Self::End(_), "POST") => Ok(ControlAction::End),
            (Self::Reload, "POST") => Ok(ControlAction::Reload),
            (Self::Drain, "POST") => Ok(ControlAction::Drain),
            (Self::Streams | Self::Viewers, _) => Err("GET, HEAD"),
            (Self::Bans | Self::Log, _) => Err("GET, HEAD, POST"),
            (Self::Ban(_) | Self::Viewer(_), _) => Err("DELETE"),
            (Self::Kick(_) | Self::End(_) | Self::Reload | Self::Drain, _) => Err("POST"),
        }
    }
}

/// An action of the control API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ControlAction {
    ListStreams,
    ListViewers,
    ListBans,
    ShowLog,
    Kick,
    Ban,
    Unban,
    End,
    SetLogLevel,
    Reload,
    Drain,
}

impl ControlAction {
    const fn name(self) -> &'static str {
        match self {
            Self::ListStreams => "list_streams",
            Self::ListViewers => "list_viewers",
            Self::ListBans => "list_bans",
            Self::ShowLog => "show_log",
            Self::Kick => "kick",
            Self::Ban => "ban",
            Self::Unban => "unban",
            Self::End => "end",
            Self::SetLogLevel => "set_log_level",
            Self::Reload => "reload",
            Self::Drain => "drain",
        }
    }

    /// Whether it changes something.
    const fn changes(self) -> bool {
        !matches!(self, Self::ListStreams | Self::ListViewers | Self::ListBans | Self::ShowLog)
    }
}

/// Number of calls by action and result.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<BTreeMap<[&'static str; 2], u64>>);

impl Calls {
    fn count(&self, action: ControlAction, result: &'static str) {
        *lock(&self.0).entry([action.name(), result]).or_default() += 1;
    }

    /// Returns action, result and count.
    pub(super) fn all(&self) -> Vec<([&'static str; 2], u64)> {
        lock(&self.0).iter().map(|(names, count)| (*names, *count)).collect()
    }
}

/// The control API of a listener.
#[derive(Debug)]
pub(super) struct Control {
    access: Access,
    pub(super) calls: Calls,
}

impl Control {
    /// Creates the API of a listener; `is_local` if it is on loopback.
    pub(super) fn new(is_local: bool) -> Self {
        Self { access: Access::new(is_local), calls: Calls::default() }
    }

    /// Performs the requested action, if allowed.
    pub(super) async fn answer(
        &self,
        shared: &Arc<Shared>,
        resource: ControlResource,
        request: Request<Incoming>,
        remote: SocketAddr,
    ) -> Reply {
        let action = match resource.action(request.method().as_str()) {
            Ok(action) => action,
            Err(allowed) => {
                let why = format!("allowed methods: {allowed}");
                return Reply::error(405, why).with("allow", allowed);
            }
        };
        let result = self.perform(shared, action, resource, request, remote).await;
        let reply = result.unwrap_or_else(|refusal| refusal);
        self.calls.count(action, reply.result());
        reply
    }

    async fn perform(
        &self,
        shared: &Arc<Shared>,
        action: ControlAction,
        resource: ControlResource,
        request: Request<Incoming>,
        remote: SocketAddr,
    ) -> Result<Reply, Reply> {
        let (headers, now) = (request.headers(), Instant::now());
        let tokens = &shared.state().tokens;
        let checked = self.access.check(tokens, headers, remote.ip(), action.changes(), now);
        if let Err(denied) = checked {
            if denied == AccessDenied::Wrong {
                tracing::warn!("control: {remote}: {} with a wrong token", action.name());
            }
            return Err(denied.into());
        }
        let mut query = Query::read(request.uri().query().unwrap_or_default());
        let fields = if action.changes() {
            // Checked before any action: changing calls have no parameters.
            query.finish()?;
            content(request).await?
        } else {
            JsonFields::default()
        };
        let (reply, what) = match resource {
            ControlResource::Streams => return actions::streams(shared, query),
            ControlResource::Viewers => return actions::viewers(shared, query),
            ControlResource::Bans if !action.changes() => return actions::bans(shared, query),
            ControlResource::Log if !action.changes() => return actions::log(shared, query),
            ControlResource::Bans => actions::ban(shared, fields)?,
            ControlResource::Log => actions::set_log_level(shared, fields)?,
            ControlResource::Ban(id) => actions::unban(shared, &id, fields)?,
            ControlResource::Viewer(id) | ControlResource::Kick(id) => {
                actions::kick(shared, &id, fields)?
            }
            ControlResource::End(name) => actions::end(shared, &name, fields)?,
            ControlResource::Reload => actions::reload_now(shared, fields)?,
            ControlResource::Drain => actions::drain(shared, fields)?,
        };
        tracing::info!("control: {remote}: {what}");
        Ok(reply)
    }
}

/// Returns the JSON object in the content, empty without content.
async fn content(request: Request<Incoming>) -> Result<JsonFields, Reply> {
    let (head, body) = request.into_parts();
    let collected = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await;
    let body: Bytes = match collected {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(e)) if e.is::<LengthLimitError>() => {
            return Err(Reply::error(413, format!("more than {MAX_BODY} bytes")));
        }
        Ok(Err(_)) => return Err(Reply::error(400, "the content is incomplete")),
        Err(_) => return Err(Reply::error(408, "timeout while reading the content")),
    };
    if body.is_empty() {
        return Ok(JsonFields::default());
    }
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(Reply::error(415, "expected content-type: application/json"));
    }
    JsonFields::read(&body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_map_to_actions() {
        let action = |method, path| ControlResource::of(path).expect(path).action(method);
        assert_eq!(action("GET", "/api/streams"), Ok(ControlAction::ListStreams));
        assert_eq!(action("POST", "/api/streams/live/a/end"), Ok(ControlAction::End));
        assert_eq!(action("DELETE", "/api/viewers/7"), Ok(ControlAction::Kick));
        assert_eq!(action("POST", "/api/viewers/7/kick"), Ok(ControlAction::Kick));
        assert_eq!(action("DELETE", "/api/bans/7"), Ok(ControlAction::Unban));
        assert_eq!(action("POST", "/api/viewers/7"), Err("DELETE"));
        assert_eq!(action("GET", "/api/drain"), Err("POST"));
        let end = ControlResource::End("live/a b".into());
        assert_eq!(ControlResource::of("/api/streams/live%2Fa%20b/end"), Some(end));
        for path in ["/", "/api/", "/api/state", "/api/streams/live/a", "/api/x/y", "/metrics"] {
            assert_eq!(ControlResource::of(path), None, "{path}");
        }
    }
}
