//! The actions of control calls. Changing actions also return a summary for the log.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::input::{JsonFields, Query};
use super::reply::Reply;
use crate::admin::snapshot::{describe_stream, viewers_of_streams};
use crate::bans::{Ban, BanTarget, BansFull, MAX_BANS};
use crate::config::is_stream_name;
use crate::config::{Level, Network, Value as _};
use crate::logging;
use crate::passes::ViewerId;
use crate::reload::reload;
use crate::sessions::Session;
use crate::state::{Shared, State};

/// Shortest prefixes that may be banned (IPv4, IPv6); shorter ones are likely mistakes.
const MIN_PREFIX: [u8; 2] = [8, 16];

/// A response and a summary, or the error response.
type Done = Result<(Reply, String), Reply>;

/// Returns a page of a list. `next` is the cursor of the next page, `left_out` the number of
/// remaining entries.
fn page(name: &str, entries: Vec<Value>, next: Option<Value>, left_out: usize) -> Reply {
    let next = next.filter(|_| left_out > 0);
    Reply::new(200, json!({ name: entries, "next": next, "left_out": left_out }))
}

/// Lists the streams by name.
pub(super) fn streams(shared: &Shared, mut query: Query) -> Result<Reply, Reply> {
    let (limit, after) = (query.limit()?, query.take("cursor").unwrap_or_default());
    query.finish()?;
    let state = shared.state();
    let sessions = state.sessions.all();
    let viewers = viewers_of_streams(&sessions);
    let mut streams = state.live.streams.all();
    streams.retain(|stream| stream.name() > after.as_str());
    let left_out = streams.len().saturating_sub(limit);
    streams.truncate(limit);
    let describe = |stream: &Arc<relay::Stream>| {
        let viewers = viewers.get(stream.name()).copied().unwrap_or(0);
        describe_stream(&state, stream, viewers)
    };
    let next = streams.last().map(|stream| stream.name().into());
    Ok(page("streams", streams.iter().map(describe).collect(), next, left_out))
}

/// Lists open sessions of all streams or one, oldest first.
pub(super) fn viewers(shared: &Shared, mut query: Query) -> Result<Reply, Reply> {
    let (limit, after) = (query.limit()?, query.number_after()?);
    let stream = query.take("stream");
    query.finish()?;
    let mut sessions = shared.state().sessions.all();
    let is_asked_for = |session: &Session| {
        let is_of_stream = stream.as_ref().is_none_or(|name| *name == session.opening().stream);
        session.id() > after && is_of_stream
    };
    sessions.retain(|session| is_asked_for(session));
    let left_out = sessions.len().saturating_sub(limit);
    sessions.truncate(limit);
    let next = sessions.last().map(|session| session.id().to_string().into());
    Ok(page("viewers", sessions.iter().map(describe_viewer).collect(), next, left_out))
}

fn describe_viewer(session: &Arc<Session>) -> Value {
    let opening = session.opening();
    json!({
        "viewer": opening.viewer.to_string(),
        "session": session.id(),
        "stream": opening.stream,
        "protocol": opening.protocol.name(),
        "format": opening.format,
        "address": opening.remote.to_canonical().to_string(),
        "age_s": session.age().as_secs_f64(),
        "bytes": session.bytes(),
    })
}

/// Lists the bans by number.
pub(super) fn bans(shared: &Shared, mut query: Query) -> Result<Reply, Reply> {
    let (limit, after) = (query.limit()?, query.number_after()?);
    query.finish()?;
    let (bans, left_out) = shared.state().bans.page(after, limit, Instant::now());
    let next = bans.last().map(|ban| ban.id.to_string().into());
    Ok(page("bans", bans.iter().map(describe_ban).collect(), next, left_out))
}

fn describe_ban(Ban { id, target, left }: &Ban) -> Value {
    let mut ban = json!({ "id": id, "left_s": left.as_secs_f64() });
    let (key, value) = match target {
        BanTarget::Network(network) => ("prefix", network.to_string()),
        BanTarget::Viewer(viewer) => ("viewer", viewer.to_string()),
        BanTarget::Stream(name) => ("stream", name.clone()),
    };
    ban[key] = value.into();
    ban
}

/// Adds a ban and ends the affected sessions.
pub(super) fn ban(shared: &Shared, mut fields: JsonFields) -> Done {
    let address = fields.text("address")?;
    let (prefix, viewer) = (fields.text("prefix")?, fields.text("viewer")?);
    let (stream, span) = (fields.text("stream")?, fields.span()?);
    fields.finish()?;
    let span = span.ok_or_else(|| Reply::wrong("for", "expected a duration such as \"10m\""))?;
    let target = match (address, prefix, viewer, stream) {
        (Some(address), None, None, None) => BanTarget::Network(read_address(&address)?),
        (None, Some(prefix), None, None) => BanTarget::Network(read_prefix(&prefix)?),
        (None, None, Some(viewer), None) => BanTarget::Viewer(read_viewer("viewer", &viewer)?),
        (None, None, None, Some(name)) if is_stream_name(&name) => BanTarget::Stream(name),
        (None, None, None, Some(_)) => {
            return Err(Reply::wrong("stream", "this is not a valid stream name"));
        }
        _ => return Err(Reply::error(400, "expected one of address, prefix, viewer and stream")),
    };
    let state = shared.state();
    let now = Instant::now();
    let id = state.bans.add(target.clone(), span, now).map_err(full)?;
    let ended = match &target {
        BanTarget::Network(network) => {
            let mut sessions = state.sessions.all();
            sessions.retain(|session| network.contains(session.opening().remote));
            end_all(&sessions)
        }
        BanTarget::Viewer(viewer) => end_all(&state.sessions.of_viewer(*viewer)),
        BanTarget::Stream(name) => usize::from(end_stream(&state, name)),
    };
    let mut answer = describe_ban(&Ban { id, target: target.clone(), left: span });
    answer["ended"] = ended.into();
    let what = match target {
        BanTarget::Network(network) => {
            format!("{network} is banned for {span:?}, {ended} sessions ended")
        }
        BanTarget::Viewer(viewer) => {
            format!("viewer {viewer} is banned for {span:?}, {ended} sessions ended")
        }
        BanTarget::Stream(name) => format!("stream {name} is banned for {span:?}"),
    };
    Ok((Reply::new(201, answer), what))
}

fn full(_: BansFull) -> Reply {
    Reply::error(409, format!("the limit of {MAX_BANS} bans is reached: lift other bans first"))
}

fn read_address(text: &str) -> Result<Network, Reply> {
    let address: Option<IpAddr> = text.parse().ok();
    let why = "expected an address such as \"192.0.2.7\" or \"2001:db8::7\"";
    address.map(Network::of_subscriber).ok_or_else(|| Reply::wrong("address", why))
}

fn read_prefix(text: &str) -> Result<Network, Reply> {
    let [v4, v6] = MIN_PREFIX;
    let network = Network::parse(text).map(Network::canonical);
    let is_long_enough = |n: &Network| n.bits() >= if n.is_ipv4() { v4 } else { v6 };
    let why = format!(
        "expected a network such as \"10.0.0.0/8\", at least /{v4} for IPv4 or /{v6} for IPv6"
    );
    network.filter(is_long_enough).ok_or_else(|| Reply::wrong("prefix", why))
}

fn read_viewer(key: &str, text: &str) -> Result<ViewerId, Reply> {
    let why = "expected a viewer number of 16 hexadecimal digits";
    ViewerId::parse(text).ok_or_else(|| Reply::wrong(key, why))
}

/// Lifts a ban.
pub(super) fn unban(shared: &Shared, id: &str, fields: JsonFields) -> Done {
    fields.finish()?;
    let number = id.parse().map_err(|_| Reply::wrong("id", "expected the number of a ban"))?;
    let lifted = shared.state().bans.remove(number, Instant::now());
    let target = lifted.ok_or_else(|| Reply::error(404, "there is no such ban"))?;
    let ban = describe_ban(&Ban { id: number, target, left: Duration::ZERO });
    let what = format!("ban {number} is lifted: {ban}");
    Ok((Reply::new(200, ban), what))
}

/// Ends a viewer's sessions. The viewer may return with a new pass.
pub(super) fn kick(shared: &Shared, id: &str, fields: JsonFields) -> Done {
    fields.finish()?;
    let viewer = read_viewer("id", id)?;
    let state = shared.state();
    let sessions = state.sessions.of_viewer(viewer);
    if sessions.is_empty() {
        return Err(Reply::error(404, "this viewer has no session"));
    }
    // Before the sessions end, since HLS clients continue with their passes.
    state.bans.dismiss(viewer, SystemTime::now());
    let ended = end_all(&state.sessions.of_viewer(viewer));
    let answer = json!({ "viewer": id, "ended": ended });
    Ok((Reply::new(200, answer), format!("viewer {viewer} is kicked, {ended} sessions ended")))
}

fn end_all(sessions: &[Arc<Session>]) -> usize {
    sessions.iter().for_each(|session| session.stay().end());
    sessions.len()
}

/// Ends a stream, and bans it if the call contains a duration.
pub(super) fn end(shared: &Shared, name: &str, mut fields: JsonFields) -> Done {
    let span = fields.span()?;
    fields.finish()?;
    let state = shared.state();
    if state.live.streams.get(name).is_none() && !state.live.publishers.has(name) {
        return Err(Reply::error(404, "there is no such stream"));
    }
    if let Some(span) = span {
        state.bans.add(BanTarget::Stream(name.to_owned()), span, Instant::now()).map_err(full)?;
    }
    end_stream(&state, name);
    let until = span.map_or_else(String::new, |span| format!(" and banned for {span:?}"));
    let answer = json!({ "stream": name, "banned_s": span.map(|span| span.as_secs_f64()) });
    Ok((Reply::new(200, answer), format!("stream {name} is ended{until}")))
}

/// Ends a stream: its publisher or pull, and the viewers' responses once they are sent. Returns
/// whether it existed. The publisher of a ladder ends its streams itself.
fn end_stream(state: &State, name: &str) -> bool {
    let is_published = state.live.publishers.end(name);
    let Some(stream) = state.live.streams.get(name) else { return is_published };
    // A cancelled pull ends its stream itself.
    if !state.live.pulls.cancel(name) || is_published {
        state.live.streams.end(&stream);
    }
    true
}

/// Returns the level of the log in force, and the configured one.
pub(super) fn log(shared: &Shared, mut query: Query) -> Result<Reply, Reply> {
    query.finish()?;
    let configured = shared.state().config.log.level;
    let level = logging::level().unwrap_or(configured);
    Ok(Reply::new(200, json!({ "level": level.word(), "configured": configured.word() })))
}

/// Sets the level of the log until the next reload.
pub(super) fn set_log_level(shared: &Shared, mut fields: JsonFields) -> Done {
    let given = fields.text("level")?;
    fields.finish()?;
    let wrong = || Reply::wrong("level", format!("expected {}", Level::expected()));
    let level = Level::ALL.iter().find(|level| Some(level.word()) == given.as_deref());
    let level = *level.ok_or_else(wrong)?;
    logging::set_level(level);
    let configured = shared.state().config.log.level.word();
    let answer = json!({ "level": level.word(), "configured": configured });
    Ok((Reply::new(200, answer), format!("log level is {}", level.word())))
}

/// Reloads the configuration file.
pub(super) fn reload_now(shared: &Shared, fields: JsonFields) -> Done {
    fields.finish()?;
    let changes = reload(shared).map_err(|e| Reply::error(409, e.to_string()))?;
    let answer = json!({
        "for_new": changes.for_new,
        "at_once": changes.at_once,
        "at_start": changes.at_start,
    });
    Ok((Reply::new(200, answer), "reload".into()))
}

/// Starts the drain.
pub(super) fn drain(shared: &Shared, fields: JsonFields) -> Done {
    fields.finish()?;
    if !shared.drain() {
        return Err(Reply::error(409, "draining already"));
    }
    let limit = shared.state().config.drain.timeout;
    let answer = json!({ "draining": true, "timeout_s": limit.as_secs_f64() });
    Ok((Reply::new(202, answer), format!("draining, {limit:?} at most")))
}
