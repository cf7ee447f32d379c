//! Observer of a connection's events, for qlog and the testbed's event logs. Payloads are plain
//! text and decoded by observers only, so an unobserved connection pays nothing.

use crate::detection::LossTrigger;
use crate::ecn::EcnState;
use crate::ledger::PacketKind;
use crate::rtt::Rtt;
use crate::wire::PacketType;
use congestion::Snapshot;
use core::time::Duration;
use recovery::{CopyKind, IntervalMetrics, LostUnit};
use units::{Rate, Timestamp};

/// Watches one connection.
pub trait Observer {
    /// Handles an event that occurred at `now`.
    fn on_event(&mut self, now: Timestamp, event: &Event<'_>);
}

/// Purpose of a sent packet, for [`Event::PacketSent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// New data, or frames that are not stream data.
    Original,
    /// The first copy of a round.
    Retransmission,
    /// A further copy of a round.
    Replica,
    /// A copy because of a probe time-out.
    Probe,
    /// Datagram-size discovery.
    MtuProbe,
}

impl From<PacketKind> for Purpose {
    fn from(kind: PacketKind) -> Self {
        match kind {
            PacketKind::Original => Self::Original,
            PacketKind::Copy(CopyKind::Retransmission) => Self::Retransmission,
            PacketKind::Copy(CopyKind::Replica) => Self::Replica,
            PacketKind::Copy(CopyKind::Probe) => Self::Probe,
            PacketKind::MtuProbe => Self::MtuProbe,
        }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A packet left.
    PacketSent {
        /// Its type.
        ty: PacketType,
        /// Its number.
        number: u64,
        /// Its bytes, header and tag included.
        size: usize,
        /// Its frames.
        payload: &'a [u8],
        /// Its purpose.
        purpose: Purpose,
    },
    /// A packet arrived and was authentic.
    PacketReceived {
        /// Its type.
        ty: PacketType,
        /// Its number.
        number: u64,
        /// Its bytes, header and tag included.
        size: usize,
        /// Its frames.
        payload: &'a [u8],
    },
    /// A packet was declared lost.
    PacketLost {
        /// Its type.
        ty: PacketType,
        /// Its number.
        number: u64,
        /// Its send time.
        sent: Timestamp,
        /// Rule that declared it lost.
        trigger: LossTrigger,
    },
    /// Estimates after an acknowledgement or a loss.
    Metrics {
        /// Round-trip time.
        rtt: &'a Rtt,
        /// Congestion window in bytes.
        window: u64,
        /// Bytes in flight.
        in_flight: u64,
        /// Pacing rate.
        pacing_rate: Option<Rate>,
        /// The controller's state.
        controller: &'a Snapshot,
    },
    /// A lost unit is finished: the peer has all of it.
    UnitFinished {
        /// Its last state.
        unit: &'a LostUnit,
    },
    /// A decision interval of loss recovery ended.
    RecoveryDecision {
        /// The scheme in force.
        scheme: &'static str,
        /// Measurements of the interval.
        metrics: &'a IntervalMetrics,
        /// Smoothed round-trip time at its end.
        smoothed_rtt: Duration,
        /// The decision and its inputs.
        reasons: &'a [(&'static str, f64)],
    },
    /// The keys of a new phase are in use.
    KeyUpdated,
    /// The ECN state of the present path changed.
    EcnState {
        /// The state before; `None` at the first event.
        old: Option<EcnState>,
        /// The new state.
        new: EcnState,
    },
    /// The peer's address changed.
    Migrated,
    /// The connection is over: error code and reason.
    Closed {
        /// Transport or application error code.
        code: u64,
        /// Why.
        reason: &'a str,
    },
}
