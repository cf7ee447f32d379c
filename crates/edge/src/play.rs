//! Admission of viewers in all protocols: look-up of the stream, pull, hook, and session.

use std::net::IpAddr;
use std::sync::Arc;

use relay::{Stream, Viewer};
use serde_json::json;
use tokio::task::JoinSet;

use crate::config::{Config, any_contains};
use crate::hooks::{self, Asker, Hook};
use crate::ingest::pull::{self, Via};
use crate::ladder;
use crate::limits::{Full, Origin, Permit, Place};
use crate::live::{Missing, NameLookup, start};
use crate::names::matches;
use crate::sessions::{Opening, Session};
use crate::state::State;

/// Returns true if the stream exists, or a pull rule matches its name.
pub(crate) fn is_known(state: &State, name: &str) -> bool {
    state.live.streams.get(name).is_some() || pull::may_start(state, name)
}

/// Returns true if playing the stream needs neither a signature nor a hook.
pub(crate) fn is_open(state: &State, name: &str) -> bool {
    let rules = &mut state.config.play.iter();
    state.config.hooks.on_play.is_none() && !rules.any(|rule| matches(&rule.stream, name))
}

/// Returns the stream for an authorized client, pulled if necessary. `via` lists the servers that
/// the request passed.
///
/// # Errors
/// The stream is unavailable.
pub(crate) fn find(
    state: &Arc<State>,
    name: &str,
    remote: IpAddr,
    via: Via,
) -> Result<Arc<Stream>, Missing> {
    if let Some(stream) = state.live.streams.get(name) {
        return Ok(stream);
    }
    if !pull::may_start(state, name) {
        return Err(Missing::Unknown);
    }
    let _lookup = look_up(state, name, remote)?;
    pull::start(state, name, via)
}

/// Begins a rate-limited look-up at the hook or an upstream; `None` for a stream that exists here.
fn look_up(state: &State, name: &str, remote: IpAddr) -> Result<Option<NameLookup>, Missing> {
    let live = &state.live;
    let exists = live.streams.get(name).is_some() || live.pulls.is_running(name);
    let is_ladder = || ladder::is_running(&state.config, &live.streams, name);
    if exists || live.outlets.ended(name).is_some() || is_ladder() {
        return Ok(None);
    }
    let client = (!is_trusted(&state.config, remote)).then(|| Origin::of(remote));
    live.lookups.enter(name, client).map(Some)
}

fn is_trusted(config: &Config, remote: IpAddr) -> bool {
    any_contains(config.limits.trusted.as_ref(), remote)
}

/// Returns the hook's queue identity of the client at this address.
pub(crate) fn asker(config: &Config, remote: IpAddr) -> Asker {
    Asker::new(remote, is_trusted(config, remote))
}

/// The reason why a viewer is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ViewerRejection {
    /// The hook rejects, or fails.
    Refused,
    /// Too many queries are queued for the hook.
    Busy,
    /// The stream is unavailable.
    Missing(Missing),
}

impl ViewerRejection {
    /// Returns the reason as text for a player.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Busy => "too many viewers wait for the on_play hook",
            Self::Missing(why) => why.reason(),
        }
    }
}

/// Adds a viewer to the stream, at the configured start position; `None` if the stream is full.
pub(crate) fn watch(state: &State, stream: Arc<Stream>) -> Option<Viewer> {
    Viewer::new(stream, start(&state.config.live))
}

/// The permits of one viewer's session. A pending request holds them first, then the session.
#[derive(Debug)]
pub(crate) struct SessionPermits(Vec<Permit>);

/// Reserves the permits of the viewer's session.
///
/// # Errors
/// The address has too many sessions and pending requests.
pub(crate) fn reserve(state: &State, opening: &Opening) -> Result<SessionPermits, Full> {
    let enter = |place| state.limits.enter(place, &state.config, Some(opening.remote));
    let mut permits = vec![enter(Place::Session)?];
    if opening.format == "hls" {
        permits.push(enter(Place::HlsSession)?);
    }
    Ok(SessionPermits(permits))
}

/// Opens the session of an admitted viewer; `None` if the operator has dismissed the viewer since
/// the request.
pub(crate) fn begin(
    state: &State,
    opening: Opening,
    SessionPermits(permits): SessionPermits,
) -> Option<Arc<Session>> {
    let session = state.sessions.begin(opening, permits);
    // Checked after the start: a concurrent dismissal either finds the session or is found here.
    let is_dismissed = state.bans.refuse_player(session.opening());
    (!is_dismissed).then_some(session)
}

/// Asks the hook whether a viewer may play, on the runtime of the hooks. Dropping the future
/// cancels the query. Returns the pending look-up, to be held until the stream is found.
///
/// # Errors
/// The viewer is not admitted.
pub(crate) async fn ask_hook(
    state: Arc<State>,
    opening: Opening,
    query: String,
) -> Result<Option<NameLookup>, ViewerRejection> {
    if state.config.hooks.on_play.is_none() {
        return Ok(None);
    }
    let lookup =
        look_up(&state, &opening.stream, opening.remote).map_err(ViewerRejection::Missing)?;
    let Some(runtime) = state.runtime.get().cloned() else { return Err(ViewerRejection::Refused) };
    let what = json!({
        "stream": opening.stream,
        "protocol": opening.protocol.name(),
        "format": opening.format,
        "remote": opening.remote.to_string(),
        "viewer": opening.viewer.to_string(),
        "query": query,
    });
    let mut query_task = JoinSet::new();
    let ask = async move {
        let asker = asker(&state.config, opening.remote);
        let granted = state.hooks.ask(&state.config.hooks, Hook::Play, asker, what).await;
        granted.map_err(|why| match why {
            // Counted, not logged.
            hooks::Denied::Busy(_) => ViewerRejection::Busy,
            why @ hooks::Denied::Refused(_) => {
                tracing::info!("{}: viewer refused: {why}", opening.stream);
                ViewerRejection::Refused
            }
        })
    };
    query_task.spawn_on(ask, &runtime);
    match query_task.join_next().await {
        Some(Ok(answer)) => answer.map(|_| lookup),
        _ => Err(ViewerRejection::Refused),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, SystemTime};

    use media::{Kind, Tag};
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::runtime::Handle;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;
    use crate::hooks::Grant;
    use crate::http::{Answer, RequestHead};
    use crate::ingest::publish;
    use crate::live::Admission;
    use crate::passes::ViewerId;
    use crate::routes::respond;
    use crate::viewer::Protocol;

    const LIMIT: Duration = Duration::from_secs(5);

    fn state(config: &str) -> Arc<State> {
        let config = Config::parse("edge.toml", config).expect("valid");
        let state = State::new(config, None).expect("made");
        state.runtime.set(Handle::current()).expect("the first");
        Arc::new(state)
    }

    fn opening(format: &'static str, remote: [u8; 4]) -> Opening {
        Opening {
            stream: "live/a".into(),
            protocol: Protocol::Http3,
            format,
            remote: remote.into(),
            viewer: ViewerId::random(),
            unit: None,
            cohort: String::new(),
            scheme: "",
            tcp: None,
            granted: SystemTime::now(),
            until: None,
        }
    }

    #[tokio::test]
    async fn dropping_the_request_cancels_the_hook_query() {
        let hook = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = hook.local_addr().expect("bound");
        let state = state(&format!("[hooks]\non_play = \"http://{address}/\"\ntimeout = \"60s\""));
        let asked = tokio::spawn(ask_hook(state, opening("flv", [192, 0, 2, 1]), String::new()));
        let (mut query, _) = timeout(LIMIT, hook.accept()).await.expect("asked").expect("one");
        let mut text = vec![0; 10_000];
        assert!(query.read(&mut text).await.expect("readable") > 0);
        asked.abort();
        let end = async { while query.read(&mut text).await.is_ok_and(|length| length > 0) {} };
        timeout(LIMIT, end).await.expect("the connection closes");
    }

    #[tokio::test]
    async fn sessions_of_an_address_are_limited_in_total_and_for_hls() {
        let state = state(
            "[limits]\nmax_sessions_per_address = 3\nmax_hls_sessions_per_address = 2\n\
             trusted = \"10.0.0.0/8\"",
        );
        let begin = |format, remote| {
            let opening = opening(format, remote);
            let permits = reserve(&state, &opening);
            permits.map(|permits| begin(&state, opening, permits).expect("admitted"))
        };
        let mut held = vec![];
        for format in ["hls", "hls"] {
            held.push(begin(format, [192, 0, 2, 1]).expect("room"));
        }
        assert!(begin("hls", [192, 0, 2, 1]).is_err(), "limit of HLS");
        held.push(begin("flv", [192, 0, 2, 1]).expect("room for FLV"));
        assert!(begin("flv", [192, 0, 2, 1]).is_err(), "total limit");
        assert!(begin("hls", [192, 0, 2, 2]).is_ok(), "another address");
        (0..10).for_each(|_| held.push(begin("hls", [10, 0, 0, 1]).expect("trusted")));
        held.clear();
        assert!(begin("hls", [192, 0, 2, 1]).is_ok(), "permits are released");
        let losses = state.limits.losses();
        for reason in ["session_address", "hls_session_address"] {
            assert!(losses.contains(&(reason, 1)), "{losses:?}");
        }
    }

    fn head<'a>(target: &'a str, method: &'a str, address: [u8; 4]) -> RequestHead<'a> {
        RequestHead::new(method, target, (address, 1).into(), Protocol::Http2)
    }

    /// Starts a request. Returns its status, or the pending task.
    async fn request(state: &Arc<State>, head: RequestHead<'_>) -> Result<u16, JoinHandle<u16>> {
        let answer = respond(state, &head, SystemTime::now());
        let answer = match answer {
            Answer::Now(response) => return Ok(response.status),
            Answer::Later(answer) => tokio::spawn(async move { answer.await.status }),
        };
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        if answer.is_finished() { Ok(answer.await.expect("answered")) } else { Err(answer) }
    }

    #[tokio::test]
    async fn pending_requests_hold_the_permits_of_their_sessions() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = silent.local_addr().expect("bound");
        let hook = format!("[hooks]\non_play = \"http://{address}/\"\ntimeout = \"60s\"\n");
        for more in [hook.as_str(), ""] {
            let state = state(&format!(
                "[limits]\nmax_sessions_per_address = 3\nmax_hls_sessions_per_address = 1\n{more}\
                 [[pull]]\nstream = \"live/*\"\nupstream = [\"rtmp://{address}/live/a\"]"
            ));
            let from = |target, method, address| request(&state, head(target, method, address));
            let (one, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
            let mut waiting = vec![];
            waiting.push(from("/live/a/index.m3u8", "HEAD", one).await.expect_err("waits"));
            assert_eq!(from("/live/a/index.m3u8", "GET", one).await.ok(), Some(503), "{more}");
            for name in ["/live/a.flv", "/live/b.flv"] {
                waiting.push(from(name, "GET", one).await.expect_err("waits"));
            }
            assert_eq!(from("/live/c.flv", "GET", one).await.ok(), Some(503), "{more}");
            waiting.push(from("/live/a.flv", "GET", other).await.expect_err("waits"));
            assert_eq!(state.limits.counts(Place::Session).used, 4);
            // Cancelled requests release their permits.
            waiting.iter().for_each(JoinHandle::abort);
            for request in waiting {
                assert!(request.await.is_err());
            }
            assert_eq!(state.limits.counts(Place::Session).used, 0, "{more}");
            assert_eq!(state.limits.counts(Place::HlsSession).used, 0, "{more}");
        }
    }

    /// Starts a server that counts connections and never answers.
    async fn silent() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let count = Arc::new(AtomicUsize::new(0));
        let counter = count.clone();
        tokio::spawn(async move {
            let mut held = vec![];
            while let Ok((socket, _)) = listener.accept().await {
                held.push(socket);
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        (address, count)
    }

    #[tokio::test]
    async fn look_ups_of_unknown_names_are_rate_limited() {
        let (address, connections) = silent().await;
        let hook = format!("[hooks]\non_play = \"http://{address}/\"\ntimeout = \"60s\"\n");
        for more in [hook.as_str(), ""] {
            let state = state(&format!(
                "[limits]\ntrusted = \"10.0.0.0/8\"\n{more}[[pull]]\nstream = \"live/*\"\n\
                 max_pending = 1000\nupstream = [\"rtmp://{address}/live/a\"]"
            ));
            let mut statuses = vec![];
            let mut waiting = vec![];
            for n in 0..300_u16 {
                // All clients share a network. Alternates FLV and HLS.
                let target = match n % 2 {
                    0 => format!("/live/{n}.flv"),
                    _ => format!("/live/{n}/index.m3u8"),
                };
                match request(&state, head(&target, "GET", [192, 0, 2, n as u8])).await {
                    Ok(status) => statuses.push(status),
                    Err(answer) => waiting.push(answer),
                }
            }
            assert!((40..50).contains(&waiting.len()), "{} wait", waiting.len());
            assert!(statuses.iter().all(|&status| status == 429), "{statuses:?}");
            // A popular name costs one token for all its viewers behind one NAT.
            let popular = || request(&state, head("/live/popular.flv", "GET", [198, 51, 100, 1]));
            for _ in 0..500 {
                waiting.push(popular().await.expect_err("waits"));
            }
            for n in 0..100 {
                let target = format!("/live/trusted{n}.flv");
                let head = head(&target, "GET", [10, 0, 0, 1]);
                waiting.push(request(&state, head).await.expect_err("waits"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            let asked = connections.swap(0, Ordering::Relaxed);
            assert!(asked <= 64 + 50 + 1 + 100, "{asked} connections");
            if more.is_empty() {
                assert_eq!(state.live.pulls.running(), waiting.len() - 499, "one each");
            }
            waiting.iter().for_each(JoinHandle::abort);
        }
    }

    #[tokio::test]
    async fn concurrent_hook_queries_are_limited_separately_for_publishers() {
        let (address, asked) = silent().await;
        let state = state(&format!(
            "[hooks]\non_play = \"http://{address}/\"\non_publish = \"http://{address}/\"\n\
             timeout = \"2s\"\nmax_at_once = 8"
        ));
        let admission = Admission::new(None, Grant::Nobody);
        let stream = publish(&state.live, &state.bans, &state.config, "live/a", &admission);
        let _held = stream.expect("room");
        let mut waiting = vec![];
        for n in 0..3_000_u16 {
            let address = [192, 0, (n % 100) as u8, 1];
            let answer = request(&state, head("/live/a.flv", "GET", address)).await;
            waiting.extend(answer.err());
        }
        assert_eq!(waiting.len(), 1_024 + 8, "the others are rejected at once");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(asked.load(Ordering::Relaxed), 8);
        let what = json!({});
        let asker = asker(&state.config, [192, 0, 1, 1].into());
        let published = state.hooks.ask(&state.config.hooks, Hook::Publish, asker, what);
        assert!(timeout(Duration::from_millis(200), published).await.is_err(), "pending");
        assert_eq!(asked.load(Ordering::Relaxed), 9);
        let mut statuses = [0, 0];
        for answer in waiting {
            let status = timeout(LIMIT, answer).await.expect("in time").expect("answered");
            statuses[usize::from(status == 403)] += 1;
        }
        assert_eq!(statuses, [1_024, 8], "503 in the queue, 403 after the timeout");
        let limited = state.hooks.limited();
        assert_eq!(limited[1], ("on_play_late", 1_024));
        assert!(limited[0].1 >= 3_000 - 1_024 - 8, "{limited:?}");
    }

    #[tokio::test]
    async fn new_streams_are_rejected_without_memory() {
        let state = state(
            "[live]\nmax_memory = \"100kB\"\n[[pull]]\nstream = \"pulled/*\"\n\
             upstream = [\"rtmp://127.0.0.1:1/live/a\"]",
        );
        let live = &state.live;
        let admission = Admission::new(None, Grant::Nobody);
        let offer = |name| publish(live, &state.bans, &state.config, name, &admission);
        let mut first = offer("live/a").expect("room");
        let tag = Tag::new(Kind::Video, 0, &[&[0x12][..], &[0; 95_000]].concat());
        first.publisher.push(tag.expect("short enough"), &live.repairs);
        live.streams.enforce_memory_limit(|| live.outlets.trim());
        let refusal = offer("live/b").expect_err("no room");
        assert_eq!(refusal.to_string(), "no memory is left for another stream");
        let find = |name| find(&state, name, [192, 0, 2, 1].into(), Via::default()).map(|_| ());
        assert!(is_known(&state, "pulled/a"), "503 instead of 404");
        assert_eq!(find("pulled/a"), Err(Missing::NoMemory));
        assert_eq!(find("unknown"), Err(Missing::Unknown));
        assert_eq!(find("live/a"), Ok(()));
        assert_eq!(live.streams.memory().count_of(relay::memory::Event::Refused), 2);
    }
}
