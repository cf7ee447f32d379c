//! Recovery of lost data: the table of lost units, and the two questions that a scheme answers
//! about them: **how many** replicas ([`RedundancyAdapter`]) and **when** each leaves
//! ([`ReplicaScheduler`]).
//!
//! Words of the house (docs/architecture.md, "content, not packets"): a *lost unit* is the stream
//! data of a packet that was declared lost (the papers' *D_ul*). A *retransmission* is the first
//! copy of a round, a *replica* (AutoRec: reinjection) any further copy, a *probe* a copy that a
//! probe time-out (RFC 9002, section 6.2) sent. A round is lost when the last of its outstanding
//! copies is declared lost. *Level* is the number of copies beyond the retransmission: plain ARQ
//! is level 0.
//!
//! This room knows no packets: the transport maps a [`UnitKey`] to content, and tells what became
//! of each copy.

#![forbid(unsafe_code)]

mod arq;
mod metrics;
mod scheme;
mod units;

pub use arq::Arq;
pub use metrics::Latencies;
pub use scheme::{
    IntervalMetrics, RecoveryEvent, RedundancyAdapter, ReplicaScheduler, Scheme, SendOpportunity,
};
pub use units::{LostUnit, UnitKey, UnitTable};

use ::units::Timestamp;
use core::time::Duration;
use metrics::OffMode;

/// Length of a decision interval in smoothed round-trip times (AutoRec, journal version,
/// section V-B: "e.g. 5 RTT").
const INTERVAL_RTTS: u32 = 5;

/// What a copy of a unit's content is to its round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyKind {
    /// The first copy of a round.
    Retransmission,
    /// A further copy of the round.
    Replica,
    /// A copy sent because of a probe time-out: it opens no round and is no replica.
    Probe,
}

/// Counters over the life of a connection. Packets are 1-RTT packets that were ack-eliciting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Packets whose fate was settled as acknowledged.
    pub acked: u64,
    /// Packets declared lost; a later acknowledgement takes the packet out again.
    pub lost: u64,
    /// Packets that were acknowledged after having been declared lost.
    pub spurious: u64,
    /// Units opened.
    pub units: u64,
    /// Retransmissions sent.
    pub retransmissions: u64,
    /// Retransmissions of round 2 and later.
    pub repeated: u64,
    /// Replicas sent.
    pub replicas: u64,
    /// Probes sent that carried a unit.
    pub probes: u64,
    /// Units finished by an acknowledgement.
    pub finished: u64,
    /// Units abandoned because their stream was reset.
    pub abandoned: u64,
}

/// The recovery of one connection: its lost units, and the scheme that cares for them.
#[derive(Debug)]
pub struct Recovery {
    table: UnitTable,
    scheme: Scheme,
    totals: Totals,
    latencies: Latencies,
    off_mode: OffMode,
    interval_start: Timestamp,
    interval_base: Totals,
}

impl Recovery {
    /// A recovery without lost units, under `scheme`.
    pub fn new(scheme: Scheme, now: Timestamp) -> Self {
        let totals = Totals::default();
        let table = UnitTable::default();
        Self {
            table,
            scheme,
            totals,
            latencies: Latencies::default(),
            off_mode: OffMode::default(),
            interval_start: now,
            interval_base: totals,
        }
    }

    /// Counters since the connection began.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// How long it took to recover data whose first retransmission did not do: from the first
    /// detection of the loss to the sending of the copy that arrived.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// The time, until `now`, in which there was nothing to send but replicas, and how often it
    /// began.
    pub fn off_mode(&self, now: Timestamp) -> (Duration, u64) {
        self.off_mode.total(now)
    }

    /// Whether there is nothing to send but replicas from `now` on.
    #[inline]
    pub fn set_off_mode(&mut self, now: Timestamp, off: bool) {
        self.off_mode.set(now, off);
    }

    /// The unit of `key` while it is unfinished.
    pub fn unit(&self, key: UnitKey) -> Option<&LostUnit> {
        self.table.get(key)
    }

    /// Number of unfinished units.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no unit is unfinished.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Opens a unit of `bytes` stream bytes, first sent at `first_sent` and declared lost `now`;
    /// it waits for the first copy of round 1.
    pub fn open(&mut self, now: Timestamp, first_sent: Timestamp, bytes: u32) -> UnitKey {
        let unit = LostUnit::new(first_sent, now, bytes);
        let key = self.table.insert(unit);
        self.totals.units += 1;
        self.scheme.adapter.on_event(&RecoveryEvent::Opened { now, unit: key });
        key
    }

    /// The unit whose next round waits longest for its first copy.
    pub fn next_waiting(&mut self) -> Option<UnitKey> {
        self.table.next_waiting()
    }

    /// The unfinished unit that was detected first: what a probe carries.
    pub fn oldest(&self) -> Option<UnitKey> {
        self.table.oldest()
    }

    /// A copy of the unit was sent in a packet of its own.
    pub fn on_copy_sent(&mut self, now: Timestamp, key: UnitKey, kind: CopyKind) {
        let Some(unit) = self.table.on_copy_sent(now, key, kind) else { return };
        match kind {
            CopyKind::Retransmission => {
                self.totals.retransmissions += 1;
                self.totals.repeated += u64::from(unit.round > 1);
                let level = self.scheme.adapter.level(unit.round);
                self.scheme.scheduler.on_retransmitted(now, key, unit, level);
            }
            CopyKind::Replica => self.totals.replicas += 1,
            CopyKind::Probe => self.totals.probes += 1,
        }
        let round = unit.round;
        self.scheme.adapter.on_event(&RecoveryEvent::CopySent { now, unit: key, kind, round });
    }

    /// A copy of the unit was declared lost. Returns whether its round is lost with it: the unit
    /// then waits for the first copy of the next round.
    pub fn on_copy_lost(&mut self, now: Timestamp, key: UnitKey, kind: CopyKind) -> bool {
        let Some((round, wholly)) = self.table.on_copy_lost(key) else { return false };
        if wholly {
            self.scheme.scheduler.on_finished(key);
        }
        let event = RecoveryEvent::CopyLost { now, unit: key, kind, round, wholly };
        self.scheme.adapter.on_event(&event);
        wholly
    }

    /// A copy was acknowledged that carried only a part of what is missing: one copy less is
    /// outstanding, and after the last one the unit waits for another, in the same round.
    pub fn on_partly_acked(&mut self, key: UnitKey) {
        self.table.on_partly_acked(key);
    }

    /// All content of the unit has been acknowledged, the last of it with a packet that was sent at
    /// `sent`, if that was a copy of the unit.
    pub fn on_finished(&mut self, now: Timestamp, key: UnitKey, sent: Option<Timestamp>) {
        if let Some(unit) = self.table.remove(key) {
            self.totals.finished += 1;
            if let (Some(sent), Some(first)) = (sent, unit.first_copy)
                && sent > first
            {
                self.latencies.add(sent.since(unit.detected));
            }
            self.scheme.scheduler.on_finished(key);
            self.scheme.adapter.on_event(&RecoveryEvent::Finished { now, unit: key, state: unit });
        }
    }

    /// The unit's stream was reset: nobody waits for its content any more.
    pub fn on_abandoned(&mut self, now: Timestamp, key: UnitKey) {
        if self.table.remove(key).is_some() {
            self.totals.abandoned += 1;
            self.scheme.scheduler.on_finished(key);
            self.scheme.adapter.on_event(&RecoveryEvent::Abandoned { now, unit: key });
        }
    }

    /// Splits `bytes` stream bytes off a unit that waits for the first copy of its round and no
    /// longer fits one packet. The new unit inherits round, counts and times, and waits too.
    pub fn split(&mut self, key: UnitKey, bytes: u32) -> Option<UnitKey> {
        self.table.split(key, bytes)
    }

    /// A 1-RTT packet was acknowledged; `after_loss` if it had been declared lost before.
    pub fn on_packet_acked(&mut self, after_loss: bool) {
        self.totals.acked += 1;
        if after_loss {
            self.totals.lost = self.totals.lost.saturating_sub(1);
            self.totals.spurious += 1;
        }
    }

    /// A 1-RTT packet was declared lost.
    pub fn on_packet_lost(&mut self) {
        self.totals.lost += 1;
    }

    /// The replica that is due at this opportunity, if the scheme wants one sent now.
    pub fn poll_replica(&mut self, now: Timestamp, at: &SendOpportunity) -> Option<UnitKey> {
        if self.table.is_empty() {
            return None;
        }
        self.scheme.scheduler.poll(now, at, &self.table)
    }

    /// When [`Recovery::poll_replica`] wants to be asked again.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        if self.table.is_empty() { None } else { self.scheme.scheduler.next_timeout() }
    }

    /// Closes the decision interval if it has lasted 5 smoothed round-trip times, and lets the
    /// adapter decide for the next one.
    pub fn on_tick(&mut self, now: Timestamp, smoothed_rtt: Duration) {
        let span = now.since(self.interval_start);
        if span < smoothed_rtt * INTERVAL_RTTS {
            return;
        }
        let (base, all) = (self.interval_base, self.totals);
        self.scheme.adapter.on_interval(&IntervalMetrics {
            now,
            span,
            smoothed_rtt,
            acked: all.acked - base.acked,
            lost: all.lost.saturating_sub(base.lost),
        });
        self.interval_start = now;
        self.interval_base = all;
    }

    /// The connection is over: nobody waits for any unit. The counters stay.
    pub fn give_up(&mut self) {
        self.table = UnitTable::default();
    }

    /// The connection moved to a new path: estimates start afresh, unfinished units survive.
    pub fn on_new_path(&mut self, now: Timestamp) {
        self.interval_start = now;
        self.interval_base = self.totals;
    }
}

#[cfg(test)]
mod tests;
