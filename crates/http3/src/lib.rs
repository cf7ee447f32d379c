//! HTTP/3 server (RFC 9114) with static-table QPACK (RFC 9204) and extensible priorities (RFC
//! 9218), without I/O. [`Transport`] abstracts the QUIC connection and its clock, and
//! [`Server::poll_event`] returns events. Clock, sockets and randomness are not used directly.
//!
//! Not supported by design: server push, the dynamic QPACK table (its capacity is announced as 0,
//! so that no request waits for another stream), interim responses, trailers of responses, and
//! tunnels (CONNECT gets status 501). A peer that uses one of them gets the error code that the
//! RFCs define.
//!
//! Bodies are pulled: only [`Server::read_body`] reads DATA from the transport, so an unread body
//! stays under the stream's flow control, except for a chunk of a few kilobytes. Memory per
//! connection is bounded by [`Config`] and by the number of streams that the transport allows.

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
