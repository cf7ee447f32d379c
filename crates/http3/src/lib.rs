//! The server side of HTTP/3 (RFC 9114) with static-table QPACK (RFC 9204) and extensible
//! priorities (RFC 9218), sans-IO: the transport is reached through [`Transport`], what happened is
//! told by [`Server::poll_event`], and no clock, socket or randomness is used: the transport says
//! what time it is.
//!
//! Left out on purpose: server push, the dynamic QPACK table (its capacity is announced as 0, so
//! that no request waits for another stream), interim responses, trailers of responses, and
//! tunnels (CONNECT gets status 501). A peer that uses one of them gets the error code of the
//! RFCs.
//!
//! Bodies are pulled: DATA is read from the transport only in [`Server::read_body`], so a body
//! that nobody reads stays under the stream's flow control, but for one chunk of a few kilobytes.
//! Memory per connection is bounded by [`Config`] and by the number of streams that
//! the transport admits.

#![forbid(unsafe_code)]

mod cancels;
mod control;
mod error;
mod event;
mod frame;
mod over_quic;
mod priority;
mod qpack;
mod request;
mod respond;
mod server;
mod shutdown;
mod stream;
mod transport;

#[cfg(test)]
mod tests;

pub use cancels::Cancels;
pub use error::{SendError, code};
pub use event::{BodyRead, Event};
pub use over_quic::OverQuic;
pub use qpack::Field;
pub use quic::streams::Priority;
pub use request::RequestHead;
pub use server::{Config, Server};
pub use transport::Transport;
