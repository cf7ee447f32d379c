//! Connection startup: short first-frame delay without harm to the path.
//!
//! Implements Wira (*Reducing First-Frame Delay of Live Streaming by Simultaneously Initializing
//! Window and Rate*), Careful Resume (RFC 9959) and Rapid Start as [modes](decision::Mode). Nothing
//! here reads a clock or a socket.
//!
//! | module | task | source |
//! |---|---|---|
//! | [`perception`] | measures the size of the first frame | Wira, section IV-A |
//! | [`cookie`] | stores path state at the client | Wira, section IV-B; RFC 9959, section 3.1 |
//! | [`DeliveryRates`], [`Refresh`] | measure the path, schedule cookies | as above |
//! | [`JumpLedger`] | limits each viewer to one jump per measurement | RFC 9959, section 3.2 |
//! | [`History`] | keeps path state per network for clients without cookies | – |
//! | [`decision`] | chooses the initial window and rate | Wira, section IV-C |
//! | [`careful`], [`rapid`] | control the next rounds | RFC 9959; draft-kazuho-ccwg-rapid-start |
//!
//! # Usage in a server
//!
//! 1. **Find path state.** Wait until the client's address is validated, by the handshake or by the
//!    NEW_TOKEN token that carried the cookie. Pass the bytes of a token or ticket to
//!    [`Cookie::decode`], and an HTTP cookie to [`Cookie::open`]. Query the [`History`]
//!    last. The first of [`Carrier::ALL`] with a cookie counts. [`Cookie::accept`] turns it into a
//!    [`PathState`] or returns a countable [`Refusal`].
//! 2. **Claim the jump.** Call [`JumpLedger::claim`] once, immediately before using a
//!    [`PathState`]. If it fails, drop the state ([`Refusal::Spent`]) and start as without a
//!    cookie.
//! 3. **Start the response.** The relay knows the size of the first frame. For proxied bodies,
//!    [`Perception::read`] inspects the bytes on their way to the transport. [`decision::decide`]
//!    returns a [`congestion::Start`] for the controller. If the size arrives late, decide and
//!    start again, unless more than the new window is already in flight.
//! 4. **Follow the course.** [`Guided`] wraps the connection's controller. For
//!    [`decision::Course::Careful`], it runs a [`careful::Careful`] next to the controller: events
//!    go to the controller first, and each returned [`careful::Order`] is carried out. For
//!    [`decision::Course::Rapid`], [`rapid::Rapid`] sets window and rate until
//!    [`rapid::RapidPhase::Over`]. Then the controller continues with that window.
//! 5. **Learn.** [`Guided`] also feeds rate samples to [`DeliveryRates`]. When [`Refresh`] reports
//!    that a [`Cookie`] is due, send it as the `own` bytes of a NEW_TOKEN token
//!    ([`Cookie::encode`]), or sealed as an HTTP cookie with the next response, with the verdict of
//!    the course. Record it in the [`History`]. After a failed jump, [forget](History::forget) the
//!    network.

#![forbid(unsafe_code)]

pub mod careful;
mod compact;
pub mod cookie;
pub mod decision;
#[cfg(test)]
mod fixture;
mod guided;
mod history;
mod ledger;
mod observe;
pub mod perception;
mod prefix;
pub mod rapid;

pub use cookie::{Carrier, Cookie, PathState, Refusal};
pub use guided::Guided;
pub use history::History;
pub use ledger::JumpLedger;
pub use observe::{DeliveryRates, Refresh};
pub use perception::{Perception, Progress};
pub use prefix::Prefix;
