//! Statistics of a connection's recovery.

use crate::bursts::Bursts;
use crate::correlation::LossCorrelation;
use crate::metrics::{Latencies, OffMode, OffTime};
use crate::on_demand::{Empty, OnDemand};
use core::time::Duration;
use units::Timestamp;

/// Defines counters that are added and subtracted field by field.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $($(#[$doc:meta])* $field:ident,)+ }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)+
            /// N_max, the highest round of a finished unit.
            pub rounds_max: u32,
        }

        impl $name {
            /// Adds the counters of another connection.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
                self.rounds_max = self.rounds_max.max(other.rounds_max);
            }

            /// Returns the counts since `earlier`, a former state. `rounds_max` covers the whole
            /// connection.
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($field: self.$field.saturating_sub(earlier.$field),)+
                    rounds_max: self.rounds_max,
                }
            }
        }
    };
}

counters! {
    /// Counters of a connection. Packets are ack-eliciting 1-RTT packets.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Totals {
        /// Packets sent, without copies.
        first_transmissions,
        /// Bytes of these packets.
        first_bytes,
        /// Bytes of copies, replicas included.
        copy_bytes,
        /// Bytes of replicas, without first copies of overdue data that was declared lost later.
        replica_bytes,
        /// Packets acknowledged.
        acked,
        /// Packets declared lost, without those acknowledged later.
        lost,
        /// Packets acknowledged after they were declared lost.
        spurious,
        /// Bytes of acknowledged packets that were not copies, and of units that a copy finished.
        goodput_bytes,
        /// Units opened.
        units,
        /// Retransmissions sent.
        retransmissions,
        /// Retransmissions of round 2 and later.
        repeated,
        /// Replicas sent, first copies of overdue data included.
        replicas,
        /// Replicas acknowledged before they were declared lost.
        replicas_acked,
        /// Replicas declared lost. The papers' p_r is this ÷ (this + `replicas_acked`).
        replicas_lost,
        /// Probes sent that carried a unit.
        probes,
        /// Units finished by an acknowledgement; of a packet that was split, one with its last
        /// part.
        finished,
        /// Finished units of round 2 and later: the numerator of the recovery deterioration rate.
        finished_late,
        /// Sum of the rounds of finished units: the papers' N is this ÷ `finished`.
        rounds,
        /// Sum of the copies of finished units: the papers' K is this ÷ `finished`.
        copies,
        /// Units abandoned because their stream was reset.
        abandoned,
    }
}

impl Totals {
    /// Returns the packets of known fate: acknowledged or lost.
    pub fn settled(&self) -> u64 {
        self.acked + self.lost
    }
}

/// T_unit: the time from the first transmission of data to its first copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnitTimes {
    /// Number of times, without spurious losses.
    pub count: u64,
    /// Sum of the times.
    pub sum: Duration,
}

impl UnitTimes {
    pub(crate) fn add(&mut self, time: Duration) {
        self.count += 1;
        self.sum += time;
    }

    pub(crate) fn remove(&mut self, time: Duration) {
        self.count = self.count.saturating_sub(1);
        self.sum = self.sum.saturating_sub(time);
    }

    /// Returns the mean; `None` without any.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.sum.div_f64(self.count as f64))
    }

    /// Adds the times of another connection.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
    }

    /// Returns the times since `earlier`, a former state.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }
}

/// Measurements of lost data.
#[derive(Debug, Default)]
pub struct LossStatistics {
    /// Recovery latencies of data whose first retransmission was lost: time from the detection of
    /// the loss to the transmission of the copy that arrived.
    pub latencies: Latencies,
    /// T_unit of all copied data.
    pub unit_times: UnitTimes,
    /// Runs of consecutive lost packets.
    pub bursts: Bursts,
}

impl Empty for LossStatistics {
    const EMPTY: &'static Self = &Self {
        latencies: Latencies::EMPTY,
        unit_times: UnitTimes { count: 0, sum: Duration::ZERO },
        bursts: Bursts::EMPTY,
    };
}

/// Measurements of a connection's recovery.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Counters.
    pub totals: Totals,
    /// Measurements of lost data.
    pub losses: OnDemand<LossStatistics>,
    /// Loss correlation, measured if [`Scheme::correlation`](crate::Scheme::correlation) is set.
    pub correlation: Option<LossCorrelation>,
    pub(crate) off_mode: OffMode,
}

impl Statistics {
    /// Returns the off-mode time until `now`.
    pub fn off_mode(&self, now: Timestamp) -> OffTime {
        self.off_mode.until(now)
    }
}
