//! Who gets to watch a stream, whatever the protocol: whether there is one, where it comes from, whether the
//! operator's server grants it, and where the viewer starts.

use std::sync::Arc;

use relay::{Stream, Viewer};
use serde_json::json;
use tokio::task::JoinSet;

use crate::hooks::Hook;
use crate::ingest::pull::{self, Via};
use crate::limits::Place;
use crate::live::{Missing, start};
use crate::names::matches;
use crate::sessions::{Opening, Session};
use crate::state::State;

/// Whether there is a stream of this name, or an upstream that may have it.
pub(crate) fn is_known(state: &State, name: &str) -> bool {
    state.live.streams.get(name).is_some() || pull::may_start(state, name)
}

/// Whether everybody may play a stream of this name.
pub(crate) fn is_open(state: &State, name: &str) -> bool {
    let rules = &mut state.config.play.iter();
    state.config.hooks.on_play.is_none() && !rules.any(|rule| matches(&rule.stream, name))
}

/// The stream of this name for one who may play it: what is not there is asked of an upstream, with
/// the servers that the request has passed.
///
/// # Errors
/// It is not to be had, or not now.
pub(crate) fn find(state: &Arc<State>, name: &str, via: Via) -> Result<Arc<Stream>, Missing> {
    state.live.streams.get(name).map_or_else(|| pull::start(state, name, via), Ok)
}

/// A new viewer of the stream, who starts where the configuration of the moment says; `None` if
/// there are too many.
pub(crate) fn watch(state: &State, stream: Arc<Stream>) -> Option<Viewer> {
    Viewer::new(stream, start(&state.config.live))
}

/// Why the session of a viewer who was let in does not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotBegun {
    /// The operator has sent it away since.
    SentAway,
    /// Its address has as many as one may have.
    AddressFull,
}

/// Opens the session of a viewer who was let in.
///
/// # Errors
/// Why it does not begin.
pub(crate) fn begin(state: &State, opening: Opening) -> Result<Arc<Session>, NotBegun> {
    let enter = |place| {
        let place = state.limits.enter(place, &state.config, Some(opening.remote));
        place.map_err(|_| NotBegun::AddressFull)
    };
    let mut places = vec![enter(Place::Session)?];
    if opening.format == "hls" {
        places.push(enter(Place::HlsSession)?);
    }
    let session = state.sessions.begin(opening, places);
    // Only now: who is sent away either finds the session or is found here.
    let is_sent_away = state.bans.refuse_player(session.opening());
    if is_sent_away { Err(NotBegun::SentAway) } else { Ok(session) }
}

/// Asks the hook whether a viewer may play. Runs on the runtime of the hooks, also for an event loop. The
/// question is taken back when the answer is waited for no more.
pub(crate) async fn ask_hook(state: Arc<State>, opening: Opening, query: String) -> bool {
    if state.config.hooks.on_play.is_none() {
        return true;
    }
    let Some(runtime) = state.runtime.get().cloned() else { return false };
    let what = json!({
        "stream": opening.stream,
        "protocol": opening.protocol.name(),
        "format": opening.format,
        "remote": opening.remote.to_string(),
        "viewer": opening.viewer.to_string(),
        "query": query,
    });
    let mut asked = JoinSet::new();
    let question = async move {
        let granted = state.hooks.ask(&state.config.hooks, Hook::Play, what).await;
        granted.map_err(|why| tracing::info!("{}: viewer refused: {why}", opening.stream)).is_ok()
    };
    asked.spawn_on(question, &runtime);
    matches!(asked.join_next().await, Some(Ok(true)))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use media::{Kind, Tag};
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::runtime::Handle;
    use tokio::time::timeout;

    use super::*;
    use crate::config::Config;
    use crate::hooks::Grant;
    use crate::ingest::publish;
    use crate::passes::ViewerId;
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
    async fn a_hook_is_asked_no_longer_than_somebody_waits() {
        let hook = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = hook.local_addr().expect("bound");
        let state = state(&format!("[hooks]\non_play = \"http://{address}/\"\ntimeout = \"60s\""));
        let asked = tokio::spawn(ask_hook(state, opening("flv", [192, 0, 2, 1]), String::new()));
        let (mut question, _) = timeout(LIMIT, hook.accept()).await.expect("asked").expect("one");
        let mut text = vec![0; 10_000];
        assert!(question.read(&mut text).await.expect("readable") > 0);
        asked.abort();
        let end = async { while question.read(&mut text).await.is_ok_and(|length| length > 0) {} };
        timeout(LIMIT, end).await.expect("the question is taken back");
    }

    #[tokio::test]
    async fn an_address_has_so_many_sessions_and_fewer_of_hls() {
        let state = state(
            "[limits]\nmax_sessions_per_address = 3\nmax_hls_sessions_per_address = 2\n\
             trusted = \"10.0.0.0/8\"",
        );
        let begin = |format, remote| begin(&state, opening(format, remote));
        let mut held = vec![];
        for format in ["hls", "hls"] {
            held.push(begin(format, [192, 0, 2, 1]).expect("room"));
        }
        assert!(begin("hls", [192, 0, 2, 1]).is_err(), "of HLS");
        held.push(begin("flv", [192, 0, 2, 1]).expect("room for another kind"));
        assert!(begin("flv", [192, 0, 2, 1]).is_err(), "of all");
        assert!(begin("hls", [192, 0, 2, 2]).is_ok(), "another address");
        (0..10).for_each(|_| held.push(begin("hls", [10, 0, 0, 1]).expect("trusted")));
        held.clear();
        assert!(begin("hls", [192, 0, 2, 1]).is_ok(), "they are gone");
        let losses = state.limits.losses();
        for reason in ["session_address", "hls_session_address"] {
            assert!(losses.contains(&(reason, 1)), "{losses:?}");
        }
    }

    #[tokio::test]
    async fn without_memory_nothing_new_is_published_or_pulled() {
        let state = state(
            "[live]\nmax_memory = \"100kB\"\n[[pull]]\nstream = \"pulled/*\"\n\
             upstream = [\"rtmp://127.0.0.1:1/live/a\"]",
        );
        let live = &state.live;
        let offer = |name| publish(live, &state.bans, &state.config, name, None, Grant::Nobody);
        let mut first = offer("live/a").expect("room");
        let tag = Tag::new(Kind::Video, 0, &[&[0x12][..], &[0; 95_000]].concat());
        first.publisher.push(tag.expect("short enough"), &live.repairs);
        live.streams.keep_within_memory(|| live.outlets.trim());
        let refusal = offer("live/b").expect_err("no room");
        assert_eq!(refusal, "no memory is left for another stream");
        let find = |name| find(&state, name, Via::default()).map(|_| ());
        assert!(is_known(&state, "pulled/a"), "so that the answer is no 404");
        assert_eq!(find("pulled/a"), Err(Missing::NoMemory));
        assert_eq!(find("unknown"), Err(Missing::Unknown));
        assert_eq!(find("live/a"), Ok(()));
        assert_eq!(live.streams.memory().count_of(relay::memory::Event::Refused), 2);
    }
}
