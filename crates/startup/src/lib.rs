//! How a connection starts, so that a viewer's first frame comes soon and harms nobody: Wira (*Reducing
//! First-Frame Delay of Live Streaming by Simultaneously Initializing Window and Rate*), RFC 9959
//! (Careful Resume) and Rapid Start, beside each other as [modes](decision::Mode).
//!
//! Nothing here has a clock or a socket. The parts, from what is known to what is done:
//!
//! | part | question | papers |
//! |---|---|---|
//! | [`perception`] | How many bytes is the first frame? | Wira, section IV-A |
//! | [`cookie`] | What did the last connection learn about the path? | Wira, section IV-B; RFC 9959, section 3.1 |
//! | [`DeliveryRates`], [`Refresh`] | What does this one learn, and when does the client get it? | the same |
//! | [`Spent`] | Did the viewer jump since the cookie was issued? | RFC 9959, section 3.2 |
//! | [`History`] | What was measured in a network whose viewer brings nothing? | – |
//! | [`decision`] | Which window and rate does the connection begin with? | Wira, section IV-C |
//! | [`careful`], [`rapid`] | What happens in the round trips after it? | RFC 9959; draft-kazuho-ccwg-rapid-start |
//!
//! # How a server uses it
//!
//! 1. **A connection arrives**, and its address is validated: by the handshake, or by the NEW_TOKEN
//!    token that carried the cookie. Before that nothing here is to be asked. The bytes of token or
//!    ticket go to [`Cookie::decode`], those of an HTTP cookie to [`Cookie::open`], and the [`History`]
//!    is asked last. The first of [`Carrier::ALL`] that has one counts; [`Cookie::accept`] makes a [`Past`]
//!    of it or counts a [`Refusal`].
//! 2. **One jump for each viewer.** [`Spent::buy`] is asked once, when a [`Past`] is about to be used;
//!    without it the past is dropped ([`Refusal::Spent`]), and the connection starts as one
//!    without a cookie.
//! 3. **The response begins.** What the relay sends has a known first frame; of what is proxied
//!    [`Perception::read`] sees the bytes on their way to the transport. [`decision::decide`] makes a
//!    [`congestion::Start`] of it for the controller. If the size came too late, decide and start again once
//!    it is known, unless more than the new window is in flight by then.
//! 4. **The course goes on** in [`Guided`], a controller around the connection's own. For
//!    [`decision::Course::Careful`] a [`careful::Careful`] stands beside that one: it is told of packets,
//!    acknowledgements and congestion after the controller is, and its [`careful::Order`]s are obeyed. For
//!    [`decision::Course::Rapid`] window and rate are those of [`rapid::Rapid`] until its phase is
//!    [`rapid::Phase::Over`]; then the controller is started with that window.
//! 5. **The connection learns.** [`DeliveryRates`], in [`Guided`] too, takes every rate sample, [`Refresh`] says when a new
//!    [`Cookie`] is due: as `own` bytes of a NEW_TOKEN token ([`Cookie::encode`]), and as a sealed HTTP
//!    cookie with the next response. Its verdict is the course's. What goes to the client goes into
//!    the [`History`]; a failed jump makes it [forget](History::forget) the network.

#![forbid(unsafe_code)]

pub mod careful;
mod compact;
pub mod cookie;
pub mod decision;
#[cfg(test)]
mod fixture;
mod guided;
mod history;
mod observe;
pub mod perception;
mod prefix;
pub mod rapid;
mod spent;

pub use cookie::{Carrier, Cookie, Past, Refusal};
pub use guided::Guided;
pub use history::History;
pub use observe::{DeliveryRates, Refresh};
pub use perception::{Perception, Progress};
pub use prefix::Prefix;
pub use spent::Spent;
