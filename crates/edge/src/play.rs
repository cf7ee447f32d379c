//! Who gets to watch a stream, whatever the protocol: whether there is one, where it comes from, whether the
//! operator's server grants it, and where the viewer starts.

use std::sync::Arc;

use relay::{Stream, Viewer};
use serde_json::json;

use crate::hooks::Hook;
use crate::ingest::pull::{self, Via};
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

/// Opens the session of a viewer who was let in; `None` if the operator has sent it away since.
pub(crate) fn begin(state: &State, opening: Opening) -> Option<Arc<Session>> {
    let session = state.sessions.open(opening);
    // Only now: who is sent away either finds the session or is found here.
    let is_sent_away = state.bans.refuse_player(session.opening());
    (!is_sent_away).then_some(session)
}

/// A new viewer of the stream, who starts where the configuration of the moment says; `None` if
/// there are too many.
pub(crate) fn watch(state: &State, stream: Arc<Stream>) -> Option<Viewer> {
    Viewer::new(stream, start(&state.config.live))
}

/// Asks the hook whether a viewer may play. Runs on the runtime of the hooks, also for an event loop.
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
    let task = runtime.spawn(async move {
        let granted = state.hooks.ask(&state.config.hooks, Hook::Play, what).await;
        granted.map_err(|why| tracing::info!("{}: viewer refused: {why}", opening.stream)).is_ok()
    });
    task.await.unwrap_or(false)
}
