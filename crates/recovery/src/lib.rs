//! Recovery of lost data: the table of lost units, and the two questions that a scheme answers
//! about them: **how many** replicas ([`RedundancyAdapter`]) and **when** each leaves
//! ([`ReplicaScheduler`]).
//!
//! A *lost unit* is the stream data of a packet that was declared lost (the papers' *D_ul*). A
//! *retransmission* is the first copy of a round, a *replica* (AutoRec: reinjection) any further
//! copy, a *probe* a copy that a probe time-out (RFC 9002, section 6.2) sent. A round is lost when
//! the last of its outstanding copies is declared lost. *Level* is the number of copies beyond the
//! retransmission: plain ARQ is level 0.
//!
//! All schemes stand in the [`catalog`], each under one name.
//!
//! This crate knows no packets and no streams: the transport reports the fate of each packet, and
//! lends its data as a [`Content`], which tells what is still missing. [`Recovery`] is the whole
//! interface between the two. The transport calls it in this order:
//!
//! | when | calls |
//! |---|---|
//! | an ACK arrives | [`acked`] per newly acknowledged packet, after its streams know; [`lost`] per packet that the ACK shows to be lost; then [`ack_done`] once |
//! | the loss timer fires | [`lost`] per packet |
//! | something may be sent | [`opportunity`], then in this order [`next_waiting`] (a retransmission), [`next_replica`] on the answer of `opportunity`, new data |
//! | a probe time-out fires | [`oldest`]; [`probed`] if it carries data of no unit |
//! | a unit goes into a packet | [`copy`], which asks the scheme for the round's replicas |
//! | the packet left | [`sent`] |
//! | never later than [`next_timeout`] | the transmit opportunity again |
//!
//! [`acked`]: Recovery::acked
//! [`lost`]: Recovery::lost
//! [`ack_done`]: Recovery::ack_done
//! [`opportunity`]: Recovery::opportunity
//! [`next_waiting`]: Recovery::next_waiting
//! [`next_replica`]: Recovery::next_replica
//! [`oldest`]: Recovery::oldest
//! [`probed`]: Recovery::probed
//! [`copy`]: Recovery::copy
//! [`sent`]: Recovery::sent
//! [`next_timeout`]: Recovery::next_timeout

#![forbid(unsafe_code)]

mod arq;
pub mod art;
pub mod autorec;
mod bursts;
mod by_unit;
pub mod catalog;
mod contents;
mod correlation;
pub mod deadline;
pub mod fixed;
mod guard;
mod interval;
mod metrics;
mod overdue;
mod packet;
mod random;
mod range;
mod recent;
mod recovery;
mod scheme;
pub mod spare;
mod statistics;
mod table;

pub use arq::Arq;
pub use bursts::Bursts;
pub use contents::{Content, Fit};
pub use correlation::{CALLS, Chances, LAGS, LossCorrelation};
pub use guard::{Guard, SharedBudget};
pub use metrics::{Latencies, OffTime};
pub use overdue::Overdue;
pub use packet::{Acked, Loss, Packet, Written};
pub use random::Random;
pub use range::OutOfRange;
pub use recovery::Recovery;
pub use scheme::{
    Expected, IntervalMetrics, LossSignal, PathState, RecoveryEvent, RedundancyAdapter,
    ReplicaScheduler, Scheme, SendOpportunity, View,
};
pub use statistics::{Statistics, Totals, UnitTimes};
pub use table::{CopyKind, LostUnit, UnitKey, UnitTable};
