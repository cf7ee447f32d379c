//! Streams pulled from an upstream over RTMP, HTTP-FLV or HLS. A pull starts with the first viewer,
//! serves any number of viewers, and stops without viewers.

mod cookies;
mod flv;
mod hls;
mod http;
#[cfg(test)]
mod origin;
mod pacer;
mod report;
mod rtmp;
mod schedule;
mod selection;
mod source;
mod via;

use std::sync::Arc;

use relay::Stream;
use relay::memory::Event;

use crate::config::{self, is_stream_name};
use crate::live::{Budget, Missing, Pull, settings};
use crate::names::matches;
use crate::state::State;
use schedule::Puller;
pub(crate) use via::Via;

/// Returns the stream, and starts its pull if necessary. `via` lists the servers that the viewer's
/// request passed.
///
/// # Errors
/// No rule matches, the pull failed a moment ago, too many pulls are pending, or memory is full.
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
        // A ban added meanwhile did not find the pull.
        if state.bans.has_stream(name) {
            live.pulls.cancel(name);
        }
    }
    Ok(stream)
}

/// Returns true if [`start`] would succeed, now or once the budget allows.
pub fn may_start(state: &State, name: &str) -> bool {
    rule(state, name).is_some_and(|rule| state.live.pulls.may_begin(name, budget(rule)))
}

fn budget(rule: &config::Pull) -> Budget<'_> {
    Budget { rule: &rule.stream, max_pending: rule.max_pending as usize }
}

/// Returns the first rule that matches the stream, unless the stream is banned.
fn rule<'a>(state: &'a State, name: &str) -> Option<&'a config::Pull> {
    let rules = &mut state.config.pull.iter();
    let rule = rules.find(|rule| matches(&rule.stream, name)).filter(|_| is_stream_name(name));
    rule.filter(|_| !state.bans.has_stream(name))
}
