//! Recovery of lost data: a table of lost units, and schemes that decide **how many** replicas a
//! unit gets ([`RedundancyAdapter`]) and **when** each leaves ([`ReplicaScheduler`]).
//!
//! A *lost unit* is the stream data of a packet that was declared lost (the papers' *D_ul*). A
//! *retransmission* is the first copy of a round, a *replica* (AutoRec: reinjection) any further
//! copy, and a *probe* a copy sent on a probe timeout (RFC 9002, section 6.2). A round is lost when
//! its last outstanding copy is declared lost. The *level* is the number of copies besides the
//! retransmission: plain ARQ is level 0.
//!
//! The [`catalog`] lists all schemes by name.
//!
//! This crate knows neither packets nor streams. The transport reports the fate of each packet and
//! provides its data as a [`Content`], which knows the missing parts.
//! [`Recovery`] is the whole interface. The transport calls it in this order:
//!
//! - An ACK arrives: [`acked`] per newly acknowledged packet, after its streams know; [`lost`] per
//!   packet that the ACK shows to be lost; then [`ack_done`] once.
//! - The loss timer fires: [`lost`] per packet.
//! - A packet may be sent: [`opportunity`]; then, in this order, [`next_waiting`] (a
//!   retransmission), [`next_replica`] with the result of `opportunity`, new data. At
//!   [`next_timeout`] at the latest.
//! - A probe timeout fires: [`oldest`]; [`probed`] if the probe carries data of no unit.
//! - A unit is written into a packet: [`copy`], which asks the scheme for the round's replicas.
//! - A packet was sent: [`sent`]; then [`superseded`], if the transport watches only the newest
//!   copy of a unit.
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
//! [`superseded`]: Recovery::superseded
//! [`next_timeout`]: Recovery::next_timeout

#![forbid(unsafe_code)]

mod arq;
mod bursts;
mod by_unit;
pub mod catalog;
mod contents;
mod correlation;
pub mod deadline;
mod guard;
mod interval;
mod level;
mod metrics;
mod on_demand;
mod overdue;
mod packet;
mod papers;
mod random;
mod range;
mod recent;
mod recovery;
mod schedule;
mod scheme;
pub mod spare;
mod statistics;
mod table;

pub use arq::Arq;
pub use bursts::{BURST_SIZES, BurstCounts, Bursts};
pub use contents::{Content, Fit};
pub use correlation::{CALLS, Chances, LAGS, LossCorrelation};
pub use guard::{Guard, SharedBudget};
pub use level::fixed;
pub use metrics::{Latencies, OffTime};
pub use on_demand::{Empty, OnDemand};
pub use overdue::Overdue;
pub use packet::{Acked, Loss, Packet, Written};
pub use papers::{art, autorec};
pub use random::Random;
pub use range::OutOfRange;
pub use recovery::Recovery;
pub use schedule::{Replicas, Spread};
pub use scheme::{
    Expected, IntervalMetrics, LossSignal, PathState, RecoveryEvent, RedundancyAdapter,
    ReplicaScheduler, Scheme, SendOpportunity, View, WindowExcess,
};
pub use statistics::{LossStatistics, Statistics, Totals, UnitTimes};
pub use table::{CopyKind, LostUnit, UnitKey, UnitTable};
