//! What recovery measured over the life of a connection.

use crate::bursts::Bursts;
use crate::correlation::LossCorrelation;
use crate::metrics::{Latencies, OffMode, OffTime};
use core::time::Duration;
use units::Timestamp;

/// Defines counters that can be added up and subtracted field by field.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $($(#[$doc:meta])* $field:ident,)+ }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)+
            /// Highest round of a finished unit: N_max.
            pub rounds_max: u32,
        }

        impl $name {
            /// Adds another connection's counters.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
                self.rounds_max = self.rounds_max.max(other.rounds_max);
            }

            /// What came after `earlier`, a former state of the same counters. `rounds_max` is that
            /// of all the time.
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
    /// Counters over the life of a connection. Packets are 1-RTT packets that were ack-eliciting.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Totals {
        /// Packets sent that were no copies.
        first_transmissions,
        /// Bytes of these packets.
        first_bytes,
        /// Bytes of copies, replicas included.
        copy_bytes,
        /// Bytes of replicas, without the first copies of overdue data that was then declared lost.
        replica_bytes,
        /// Packets whose fate was settled as acknowledged.
        acked,
        /// Packets declared lost; a later acknowledgement takes the packet out again.
        lost,
        /// Packets that were acknowledged after they had been declared lost.
        spurious,
        /// Bytes of packets that were no copies and arrived, and of units that a copy finished.
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
        /// Units finished by an acknowledgement; of a packet that was split, one with its last part.
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
    /// Packets whose fate is known: acknowledged, or lost and not acknowledged later.
    pub fn settled(&self) -> u64 {
        self.acked + self.lost
    }
}

/// T_unit: the time from the first sending of content to its first sending again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnitTimes {
    /// How many were measured; spurious losses are taken out.
    pub count: u64,
    /// Their sum.
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

    /// Their mean; `None` without any.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.sum.div_f64(self.count as f64))
    }

    /// Adds another connection's.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
    }

    /// What came after `earlier`, a former state of the same times.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }
}

/// All that recovery measured.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Counters.
    pub totals: Totals,
    /// Recovery latency of data whose first retransmission was lost: from the detection of the loss to
    /// the sending of the copy that arrived.
    pub latencies: Latencies,
    /// T_unit of all content that was sent again.
    pub unit_times: UnitTimes,
    /// Runs of consecutive lost packets.
    pub bursts: Bursts,
    /// How the loss of one packet goes with that of another; measured if the scheme asks for it
    /// ([`Scheme::correlation`](crate::Scheme::correlation)).
    pub correlation: Option<LossCorrelation>,
    pub(crate) off_mode: OffMode,
}

impl Statistics {
    /// The time until `now` in which there was nothing to send but replicas.
    pub fn off_mode(&self, now: Timestamp) -> OffTime {
        self.off_mode.until(now)
    }
}
