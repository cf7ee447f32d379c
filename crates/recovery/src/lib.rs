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
pub mod art;
pub mod autorec;
mod bursts;
mod correlation;
pub mod fixed;
mod guard;
mod interval;
mod metrics;
mod random;
mod scheme;
pub mod spare;
mod table;

pub use arq::Arq;
pub use bursts::Bursts;
pub use correlation::{LAGS, LossCorrelation};
pub use guard::{Guard, SharedBudget};
pub use metrics::Latencies;
pub use random::Random;
pub use scheme::{
    IntervalMetrics, LossSignal, PathState, RecoveryEvent, RedundancyAdapter, ReplicaScheduler,
    Scheme, SendOpportunity, View,
};
pub use table::{LostUnit, UnitKey, UnitTable};

use ::units::Timestamp;
use core::time::Duration;
use interval::Interval;
use metrics::OffMode;

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

/// A packet that arrived with content of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When it was sent.
    pub sent: Timestamp,
    /// What it was to its round; nothing if it was the packet that had been declared lost.
    pub copy: Option<CopyKind>,
}

impl Arrival {
    /// Whether it is the unit's first copy, which a replica of the same moment is not.
    fn is_first(self, unit: &LostUnit) -> bool {
        unit.first_copy == Some(self.sent)
            && matches!(self.copy, Some(CopyKind::Retransmission | CopyKind::Probe))
    }
}

/// Counters over the life of a connection. Packets are 1-RTT packets that were ack-eliciting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Packets sent that were no copies.
    pub first_transmissions: u64,
    /// Their bytes.
    pub first_bytes: u64,
    /// Bytes of copies, replicas included.
    pub copy_bytes: u64,
    /// Bytes of replicas.
    pub replica_bytes: u64,
    /// Packets whose fate was settled as acknowledged.
    pub acked: u64,
    /// Packets declared lost; a later acknowledgement takes the packet out again.
    pub lost: u64,
    /// Packets that were acknowledged after having been declared lost.
    pub spurious: u64,
    /// Bytes of packets that were no copies and arrived, and of units that were finished by one.
    pub goodput_bytes: u64,
    /// Units opened.
    pub units: u64,
    /// Retransmissions sent.
    pub retransmissions: u64,
    /// Retransmissions of round 2 and later.
    pub repeated: u64,
    /// Replicas sent.
    pub replicas: u64,
    /// Replicas acknowledged before they were declared lost.
    pub replicas_acked: u64,
    /// Replicas declared lost: with the acknowledged ones, p_r follows.
    pub replicas_lost: u64,
    /// Probes sent that carried a unit.
    pub probes: u64,
    /// Units finished by an acknowledgement; of a packet that was split, one with its last part.
    pub finished: u64,
    /// Of these, units of round 2 and later: the recovery deterioration rate's numerator.
    pub finished_late: u64,
    /// Rounds of the units finished, added up: N is this ÷ `finished`.
    pub rounds: u64,
    /// Copies of the units finished, added up: the papers' K is this ÷ `finished`.
    pub copies: u64,
    /// Highest round of a unit finished: N_max.
    pub rounds_max: u32,
    /// Units abandoned because their stream was reset.
    pub abandoned: u64,
}

/// T_unit: the time from the first sending of content to its first sending again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnitTimes {
    /// How many there are, spurious ones taken out.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
}

impl UnitTimes {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.sum += time;
    }

    fn remove(&mut self, time: Duration) {
        self.count = self.count.saturating_sub(1);
        self.sum = self.sum.saturating_sub(time);
    }

    /// Their mean.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.sum.div_f64(self.count as f64))
    }
}

/// The recovery of one connection: its lost units, and the scheme that cares for them.
#[derive(Debug)]
pub struct Recovery {
    table: UnitTable,
    scheme: Scheme,
    guard: Option<Guard>,
    path: PathState,
    player_slack: Option<Duration>,
    totals: Totals,
    latencies: Latencies,
    unit_times: UnitTimes,
    off_mode: OffMode,
    bursts: Bursts,
    correlation: LossCorrelation,
    interval: Interval,
    /// Packets acknowledged and lost, for this second and the one before.
    heavy: [(u64, u64); 2],
    heavy_since: Timestamp,
    /// Units finished by the acknowledgement that is being taken, with the earliest-sent packet known
    /// to have arrived.
    finishing: Vec<(UnitKey, LostUnit, Option<Arrival>)>,
}

/// What a scheme may look at.
macro_rules! view {
    ($self:ident, $now:expr) => {
        View {
            path: $self.path,
            units: &$self.table,
            longest_burst: $self.bursts.recent($now, $self.path.smoothed_rtt),
            correlation: &$self.correlation,
            player_slack: $self.player_slack,
        }
    };
}

impl Recovery {
    /// A recovery without lost units, under `scheme`; `guard` bounds its replicas.
    pub fn new(scheme: Scheme, guard: Option<Guard>, now: Timestamp) -> Self {
        Self {
            table: UnitTable::default(),
            scheme,
            guard,
            path: PathState::default(),
            player_slack: None,
            totals: Totals::default(),
            latencies: Latencies::default(),
            unit_times: UnitTimes::default(),
            off_mode: OffMode::default(),
            bursts: Bursts::default(),
            correlation: LossCorrelation::default(),
            interval: Interval::new(now),
            heavy: [(0, 0); 2],
            heavy_since: now,
            finishing: Vec::new(),
        }
    }

    /// Another scheme from now on. Unfinished units end under it; what the old one had planned for them
    /// is dropped.
    pub fn set_scheme(&mut self, scheme: Scheme) {
        self.scheme = scheme;
    }

    /// The name of the scheme in force.
    pub fn scheme(&self) -> &'static str {
        self.scheme.name
    }

    /// What the player has buffered, as far as the server can tell.
    pub fn set_player_slack(&mut self, slack: Option<Duration>) {
        self.player_slack = slack;
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

    /// T_unit of all content that was sent again.
    pub fn unit_times(&self) -> &UnitTimes {
        &self.unit_times
    }

    /// Runs of consecutive lost packets.
    pub fn bursts(&self) -> &Bursts {
        &self.bursts
    }

    /// How the loss of one packet goes with that of another.
    pub fn correlation(&self) -> &LossCorrelation {
        &self.correlation
    }

    /// The bound on replicas, if there is one.
    pub fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// Why the scheme decides as it does: names and values.
    pub fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        self.scheme.adapter.explain(tell);
        if let Some(guard) = &self.guard {
            tell("guard_budget_bytes", guard.budget() as f64);
        }
    }

    /// The time, until `now`, in which there was nothing to send but replicas, and how often it
    /// began.
    pub fn off_mode(&self, now: Timestamp) -> (Duration, u64) {
        self.off_mode.total(now)
    }

    /// Of the time in off-mode, that in which flow control held new bytes back.
    pub fn blocked(&self, now: Timestamp) -> Duration {
        self.off_mode.blocked(now)
    }

    /// Whether there is nothing to send but replicas from `now` on, and whether that is because flow
    /// control holds new bytes back.
    #[inline]
    pub fn set_off_mode(&mut self, now: Timestamp, off: bool, blocked: bool) {
        self.off_mode.set(now, off, blocked);
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

    /// An ack-eliciting 1-RTT packet of `bytes` that is no copy was sent.
    #[inline]
    pub fn on_first_transmission(&mut self, bytes: u16) {
        self.totals.first_transmissions += 1;
        self.totals.first_bytes += u64::from(bytes);
        if let Some(guard) = &mut self.guard {
            guard.on_first_transmission(bytes.into(), self.path.packet);
        }
    }

    /// Content without a unit, first sent at `first_sent`, was sent again by a probe.
    pub fn on_probed(&mut self, now: Timestamp, first_sent: Timestamp) {
        self.unit_times.add(now.since(first_sent));
    }

    /// A copy of the unit was sent in a packet of its own.
    pub fn on_copy_sent(&mut self, now: Timestamp, key: UnitKey, kind: CopyKind) {
        let Some(unit) = self.table.on_copy_sent(now, key, kind) else { return };
        let (round, is_first) = (unit.round, unit.copies == 1);
        if is_first {
            self.unit_times.add(now.since(unit.first_sent));
        }
        match kind {
            CopyKind::Retransmission => {
                self.totals.retransmissions += 1;
                self.totals.repeated += u64::from(round > 1);
                let view = view!(self, now);
                let level = self.scheme.adapter.level(key, round, &view);
                if let Some(unit) = self.table.get(key) {
                    self.scheme.scheduler.on_retransmitted(now, key, unit, level, &view);
                }
            }
            CopyKind::Replica => {
                self.totals.replicas += 1;
                self.scheme.scheduler.on_replica_sent(now, key, unit);
            }
            CopyKind::Probe => {
                self.totals.probes += 1;
                self.scheme.scheduler.on_probe_sent(now, key, unit);
            }
        }
        self.scheme.adapter.on_event(&RecoveryEvent::CopySent { now, unit: key, kind, round });
    }

    /// The packet of a copy left, with so many bytes.
    pub fn on_copy_bytes(&mut self, kind: CopyKind, bytes: u16) {
        self.totals.copy_bytes += u64::from(bytes);
        if kind == CopyKind::Replica {
            self.totals.replica_bytes += u64::from(bytes);
            if let Some(guard) = &mut self.guard {
                guard.on_replica(bytes.into());
            }
        }
    }

    /// A copy, of a unit that may be over, was acknowledged before it was declared lost.
    pub fn on_copy_acked(&mut self, now: Timestamp, key: UnitKey, kind: CopyKind, sent: Timestamp) {
        self.totals.replicas_acked += u64::from(kind == CopyKind::Replica);
        // One acknowledgement may tell of several copies, and not in the order of their sending.
        let arrival = Arrival { sent, copy: Some(kind) };
        if let Some((_, unit, by)) = self.finishing.iter_mut().find(|(known, ..)| *known == key)
            && by.is_some_and(|by| sent < by.sent || arrival.is_first(unit))
        {
            *by = Some(arrival);
        }
        let event = RecoveryEvent::CopySettled { now, unit: key, kind, acked: true };
        self.scheme.adapter.on_event(&event);
    }

    /// A copy of the unit, which may be over, was declared lost. Returns whether its round is lost with
    /// it: the unit then waits for the first copy of the next round.
    pub fn on_copy_lost(&mut self, now: Timestamp, key: UnitKey, kind: CopyKind) -> bool {
        self.totals.replicas_lost += u64::from(kind == CopyKind::Replica);
        let event = RecoveryEvent::CopySettled { now, unit: key, kind, acked: false };
        self.scheme.adapter.on_event(&event);
        let Some((round, wholly)) = self.table.on_copy_lost(key) else { return false };
        if wholly {
            self.scheme.scheduler.on_finished(key);
            let event = RecoveryEvent::RoundLost { now, unit: key, round };
            self.scheme.adapter.on_event(&event);
        }
        wholly
    }

    /// Whether a packet's loss tells the congestion controller: a copy's only as the scheme has it.
    /// `wholly` is what [`Recovery::on_copy_lost`] returned. Above 20 % loss, all do.
    pub fn signals(&self, copy: Option<CopyKind>, wholly: bool) -> bool {
        match (self.scheme.signal, copy) {
            (LossSignal::WhollyLost, Some(_)) => wholly || self.is_heavy(),
            _ => true,
        }
    }

    /// Whether more than 20 % of the last 1 to 2 seconds' packets were lost.
    fn is_heavy(&self) -> bool {
        let [(a, b), (c, d)] = self.heavy;
        (b + d) * 4 > a + c && b + d >= 5
    }

    fn count_heavy(&mut self, now: Timestamp, acked: u64, lost: u64) {
        let age = now.since(self.heavy_since);
        if age >= Duration::from_secs(1) {
            self.heavy =
                [(0, 0), if age < Duration::from_secs(2) { self.heavy[0] } else { (0, 0) }];
            self.heavy_since = now;
        }
        self.heavy[0].0 += acked;
        self.heavy[0].1 += lost;
    }

    /// A copy was acknowledged that carried only a part of what is missing: one copy less is
    /// outstanding, and after the last one the unit waits for another, in the same round.
    pub fn on_partly_acked(&mut self, key: UnitKey) {
        self.table.on_partly_acked(key);
    }

    /// All content of the unit has been acknowledged, the last of it with this packet, if that is known.
    pub fn on_finished(&mut self, now: Timestamp, key: UnitKey, by: Option<Arrival>) {
        if let Some(unit) = self.table.remove(key) {
            self.scheme.scheduler.on_finished(key);
            let state = unit.clone();
            self.scheme.adapter.on_event(&RecoveryEvent::Finished { now, unit: key, state });
            self.finishing.push((key, unit, by));
        }
    }

    /// An acknowledgement has been taken wholly: what it finished is counted.
    pub fn on_ack_taken(&mut self) {
        for (_, unit, by) in self.finishing.drain(..) {
            if let Some((round, copies)) = self.table.complete(&unit) {
                let totals = &mut self.totals;
                totals.finished += 1;
                totals.finished_late += u64::from(round > 1);
                totals.rounds += u64::from(round);
                totals.copies += u64::from(copies);
                totals.rounds_max = totals.rounds_max.max(round);
                self.interval.on_finished(round);
            }
            match by {
                // What had been declared lost has arrived: the loss was none.
                Some(Arrival { copy: None, .. }) => {
                    if let Some(first) = unit.first_copy {
                        self.unit_times.remove(first.since(unit.first_sent));
                    }
                    continue;
                }
                Some(by) if !by.is_first(&unit) => {
                    self.latencies.add(by.sent.since(unit.detected));
                }
                _ => {}
            }
            self.totals.goodput_bytes += u64::from(unit.bytes);
        }
    }

    /// The unit's stream was reset: nobody waits for its content any more.
    pub fn on_abandoned(&mut self, now: Timestamp, key: UnitKey) {
        if let Some(unit) = self.table.remove(key) {
            self.table.complete(&unit);
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

    /// A packet of `bytes`, sent at `sent`, was acknowledged; `after_loss` if it had been declared lost
    /// before, `copy` if it was one.
    #[inline]
    pub fn on_packet_acked(
        &mut self,
        now: Timestamp,
        sent: Timestamp,
        bytes: u16,
        copy: bool,
        after_loss: bool,
    ) {
        self.totals.acked += 1;
        if !copy {
            self.totals.goodput_bytes += u64::from(bytes);
        }
        if after_loss {
            self.totals.lost = self.totals.lost.saturating_sub(1);
            self.totals.spurious += 1;
        } else {
            self.correlation.on_settled(sent, false);
        }
        self.count_heavy(now, 1, 0);
    }

    /// The packet `number`, sent at `sent`, was declared lost.
    pub fn on_packet_lost(&mut self, now: Timestamp, number: u64, sent: Timestamp) {
        self.totals.lost += 1;
        self.bursts.on_lost(now, self.path.smoothed_rtt, number);
        self.correlation.on_settled(sent, true);
        self.count_heavy(now, 0, 1);
    }

    /// Whether replicas may pass the congestion window: by 2 packets or a quarter of it.
    pub fn passes_window(&self) -> bool {
        self.scheme.opportunism && !self.table.is_empty()
    }

    /// The replica that is due at this opportunity, if the scheme wants one sent now and the guard
    /// lets it go. The answer stays the same until something happens.
    #[inline]
    pub fn poll_replica(&mut self, now: Timestamp, at: &SendOpportunity) -> Option<UnitKey> {
        if self.table.is_empty() {
            return None;
        }
        let key = self.scheme.scheduler.poll(now, at, &self.table)?;
        let packet = self.path.packet;
        self.guard.as_mut().is_none_or(|guard| guard.allows(packet)).then_some(key)
    }

    /// When [`Recovery::poll_replica`] wants to be asked again.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        if self.table.is_empty() { None } else { self.scheme.scheduler.next_timeout() }
    }

    /// The path as it is. Closes the decision interval if it has lasted 5 smoothed round-trip
    /// times, and lets the scheme decide for the next one. Returns whether it did.
    pub fn on_tick(&mut self, now: Timestamp, path: PathState) -> bool {
        self.path = path;
        let sums = (&self.totals, &self.latencies, &self.unit_times);
        let length = path.smoothed_rtt * self.scheme.adapter.interval_rtts();
        let Some(metrics) = self.interval.close(now, length, sums) else { return false };
        let view = view!(self, now);
        self.scheme.adapter.on_interval(&metrics, &view);
        self.scheme.scheduler.on_interval(&metrics, self.scheme.adapter.ceiling());
        true
    }

    /// The connection is over: nobody waits for any unit. The counters stay.
    pub fn give_up(&mut self) {
        self.table = UnitTable::default();
        self.finishing.clear();
    }

    /// The connection moved to a new path: estimates start afresh, unfinished units survive.
    pub fn on_new_path(&mut self, now: Timestamp) {
        self.interval.restart(now, (&self.totals, &self.latencies, &self.unit_times));
        self.correlation = LossCorrelation::default();
        self.heavy = [(0, 0); 2];
        self.scheme.adapter.on_new_path();
        self.scheme.scheduler.on_new_path();
    }
}

#[cfg(test)]
mod tests;
