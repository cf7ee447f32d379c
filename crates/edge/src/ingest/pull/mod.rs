//! Streams pulled from an upstream, on the first viewer and while somebody watches: RTMP, HTTP-FLV
//! or HLS. One pull serves any number of viewers.

mod cookies;
mod flv;
mod hls;
mod http;
#[cfg(test)]
mod origin;
mod pacer;
mod rtmp;
mod schedule;
mod source;
mod trouble;
mod via;

use std::sync::Arc;

use relay::Stream;
use relay::memory::Event;

use crate::config;
use crate::live::{Budget, Missing, Pull, settings};
use crate::names::{is_name, matches};
use crate::state::State;
use schedule::Puller;
pub(crate) use via::Via;

/// The stream, pulled from now on if it is not already, for a request that has passed `via`.
///
/// # Errors
/// No rule names it, it could not be had a moment ago, too many others are waited for, or memory is short.
pub(crate) fn start(state: &Arc<State>, name: &str, via: Via) -> Result<Arc<Stream>, Missing> {
    let rule = rule(state, name).ok_or(Missing::Unknown)?;
    let runtime = state.runtime.get().ok_or(Missing::Unknown)?;
    let (live, settings) = (&state.live, settings(&state.config.live));
    let memory = live.streams.memory();
    if memory.is_full() {
        memory.count(Event::Refused);
        return Err(Missing::NoMemory);
    }
    let open = || live.streams.open(name, settings);
    let (stream, found) = live.pulls.begin(name, budget(rule), open)?;
    if found == Pull::Free {
        runtime.spawn(Puller::new(state.clone(), rule.clone(), stream.clone(), via).run());
        // A ban that came meanwhile has not found the pull.
        if state.bans.has_stream(name) {
            live.pulls.cancel(name);
        }
    }
    Ok(stream)
}

/// Whether [`start`] would have a stream, if not now then as soon as there is room.
pub fn may_start(state: &State, name: &str) -> bool {
    rule(state, name).is_some_and(|rule| state.live.pulls.may_begin(name, budget(rule)))
}

fn budget(rule: &config::Pull) -> Budget<'_> {
    Budget { rule: &rule.stream, max_pending: rule.max_pending as usize }
}

/// The rule that names the stream, unless the operator keeps it out.
fn rule<'a>(state: &'a State, name: &str) -> Option<&'a config::Pull> {
    let rules = &mut state.config.pull.iter();
    let rule = rules.find(|rule| matches(&rule.stream, name)).filter(|_| is_name(name));
    rule.filter(|_| !state.bans.has_stream(name))
}
