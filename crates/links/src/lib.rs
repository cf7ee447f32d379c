//! Link models: what happens to a packet between two hosts, as a chain of nodes per direction, in
//! whatever time the caller says it is. The testbed drives them in virtual time, the relay of
//! `mendcast link` in real time.
//!
//! A [`Link`] is one direction. A packet passes its nodes in this order:
//!
//! 1. blackhole windows and the MTU,
//! 2. the policer and the ECN policy of a network before the bottleneck,
//! 3. loss, if [`LossPlace::BeforeQueue`] (where netem puts it),
//! 4. the queue (drop-tail in bytes, or CoDel of RFC 8289) and the rate (constant, or a trace),
//! 5. loss, if [`LossPlace::AfterQueue`] (the default: a radio that fails after capacity was
//!    spent),
//! 6. duplication, bunches, propagation delay (with steps and jitter), and reordering.
//!
//! [`HeldAcks`] stands before a path: a client that acknowledges rarely.
//!
//! Randomness: every node draws from a stream of its own, derived from the seed, the name of the
//! link and the role of the node, and **indexed** rather than consumed: by the packet's place among
//! those offered to the link, or by time slot where a model works in time slots. So the fate of the
//! n-th packet, or of a slot, depends on nothing else: not on the recovery scheme under test, not
//! on the queue's state, not on whether another node was switched on, and not on what a sender knows
//! of fates ([`Passage`]).
//!
//! Time is integer nanoseconds; rates keep the remainder, so a long run has exactly the bytes that
//! its rate allows.

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
pub use sessions::Session;
pub use steps::Steps;
pub use text::{ParseError, parse_duration, parse_rate};
pub use trace::{Opportunities, Row, Rows, Trace};
pub use window::Window;
