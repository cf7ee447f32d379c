//! Link models: a chain of nodes per direction between two hosts, driven by the caller's time. The
//! testbed uses virtual time, the relay of `mendcast link` real time.
//!
//! A [`Link`] is one direction. A packet passes its nodes in this order:
//!
//! 1. blackhole windows and the MTU,
//! 2. policer and ECN policy of a network before the bottleneck,
//! 3. loss, if [`LossPlace::BeforeQueue`] (as in netem),
//! 4. queue (drop-tail in bytes, or CoDel of RFC 8289) and rate (constant, or a trace),
//! 5. loss, if [`LossPlace::AfterQueue`] (the default: a radio link that fails after using
//!    capacity),
//! 6. duplication, bunches, propagation delay (with steps and jitter), and reordering.
//!
//! [`HeldAcks`] precedes a path and models a client that acknowledges rarely.
//!
//! Randomness: every node draws from its own stream, derived from the seed, the name of the link
//! and the role of the node. Draws are **indexed** rather than consumed: by the packet's index
//! among those offered to the link, or by time slot. The fate of packet n or of a slot is therefore
//! independent of everything else: the recovery scheme, the state of the queue, other nodes, and
//! the sender's knowledge of fates ([`Passage`]).
//!
//! Time is integer nanoseconds. Rates keep the remainder, so long runs carry exactly the bytes that
//! the rate allows.

#![forbid(unsafe_code)]

mod acks;
mod bunches;
mod calls;
mod config;
mod counters;
mod delay;
mod ecn;
mod link;
mod loss;
mod packet;
mod path;
mod policer;
mod queue;
mod random;
mod rate;
mod sessions;
mod steps;
mod text;
mod trace;
mod window;

pub use acks::{HeldAcks, RareAcks};
pub use bunches::Bunches;
pub use config::{LinkConfig, LossPlace};
pub use counters::{Counters, Imbalance, Tally};
pub use delay::{Jitter, Reorder};
pub use ecn::{EcnPolicy, EcnRule};
pub use link::{Corruption, Delivered, Link};
pub use loss::{Loss, Reading};
pub use packet::{Packet, Passage, UDP_IPV4_HEADERS};
pub use path::{Path, PathConfig};
pub use policer::Policer;
pub use queue::Queue;
pub use random::Probability;
pub use sessions::SessionChain;
pub use steps::Steps;
pub use text::{ParseError, parse_duration, parse_rate};
pub use trace::{Opportunities, Rows, Trace, TraceRow};
pub use window::Window;
