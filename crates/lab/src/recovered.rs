//! Loss recovery of a run: the connection's counters, and an optional diary of units and decisions.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use quic::Connection;
use quic::observer::{Event, Observer};
use recovery::{BurstCounts, Guard, LAGS, Latencies, OffTime, Totals, UnitTimes};
use units::Timestamp;

/// Bursts of consecutive lost packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossBursts {
    /// Number of bursts.
    pub runs: u64,
    /// Packets in all bursts.
    pub packets: u64,
    /// Packets in the longest burst.
    pub longest: u32,
    /// Bursts by size.
    pub sizes: BurstCounts,
}

/// Packets sent within a certain time after a lost one.
#[derive(Clone, Copy, Debug, Default)]
pub struct AfterLoss {
    /// Number of packets sent.
    pub sent: u64,
    /// Number of them that were lost.
    pub lost: u64,
}

/// Measurements of one connection, or sums over several.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Counters.
    pub totals: Totals,
    /// Recovery latencies.
    pub latencies: Latencies,
    /// T_unit.
    pub unit_times: UnitTimes,
    /// Bursts of consecutive lost packets.
    pub bursts: LossBursts,
    /// Packets sent after a lost one, by the classes of [`LAGS`].
    pub correlation: [AfterLoss; LAGS.len()],
    /// Time with nothing to send but replicas.
    pub off_mode: OffTime,
    /// Times that the guard started to refuse replicas.
    pub refusals: u64,
    /// Age of the connection.
    pub time: Duration,
}

impl Recovered {
    pub(crate) fn of(connection: &Connection, now: Timestamp) -> Self {
        let recovery = connection.recovery();
        let sizes = *recovery.losses.bursts.counts();
        let runs = sizes.iter().map(|&count| u64::from(count)).sum();
        let packets = connection.stats().packets_lost;
        let correlation = recovery.correlation.as_ref();
        Self {
            totals: recovery.totals,
            latencies: recovery.losses.latencies.clone(),
            unit_times: recovery.losses.unit_times,
            bursts: LossBursts { runs, packets, longest: recovery.losses.bursts.longest(), sizes },
            correlation: correlation.map_or_else(Default::default, |known| {
                known.counts().map(|(sent, lost)| AfterLoss { sent, lost })
            }),
            off_mode: recovery.off_mode(now),
            refusals: connection.guard().map_or(0, Guard::refusals),
            time: now.since(Timestamp::ZERO),
        }
    }

    /// Adds the measurements of another connection.
    pub fn merge(&mut self, other: &Self) {
        self.totals.add(&other.totals);
        self.latencies.merge(&other.latencies);
        self.unit_times.merge(&other.unit_times);
        self.bursts.runs += other.bursts.runs;
        self.bursts.packets += other.bursts.packets;
        self.bursts.longest = self.bursts.longest.max(other.bursts.longest);
        for (own, other) in self.bursts.sizes.iter_mut().zip(other.bursts.sizes) {
            *own += other;
        }
        for (own, other) in self.correlation.iter_mut().zip(other.correlation) {
            own.sent += other.sent;
            own.lost += other.lost;
        }
        self.off_mode.add(&other.off_mode);
        self.refusals += other.refusals;
        self.time += other.time;
    }

    /// Returns the difference from `earlier`, a former state of the same connection. The maxima
    /// (rounds, longest burst) still cover the whole connection.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut correlation = self.correlation;
        for (own, other) in correlation.iter_mut().zip(earlier.correlation) {
            own.sent = own.sent.saturating_sub(other.sent);
            own.lost = own.lost.saturating_sub(other.lost);
        }
        let mut sizes = self.bursts.sizes;
        for (own, other) in sizes.iter_mut().zip(earlier.bursts.sizes) {
            *own = own.saturating_sub(other);
        }
        Self {
            totals: self.totals.since(&earlier.totals),
            latencies: self.latencies.since(&earlier.latencies),
            unit_times: self.unit_times.since(&earlier.unit_times),
            bursts: LossBursts {
                runs: self.bursts.runs.saturating_sub(earlier.bursts.runs),
                packets: self.bursts.packets.saturating_sub(earlier.bursts.packets),
                longest: self.bursts.longest,
                sizes,
            },
            correlation,
            off_mode: self.off_mode.since(&earlier.off_mode),
            refusals: self.refusals.saturating_sub(earlier.refusals),
            time: self.time - earlier.time,
        }
    }
}

/// A lost unit that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedUnit {
    /// Rounds of retransmission (ART's N).
    pub rounds: u32,
    /// Copies of all kinds.
    pub copies: u32,
    /// From the first transmission to the acknowledgement: ART's T_wait plus the return path.
    pub wait: Duration,
    /// Time of the acknowledgement.
    pub at: Timestamp,
}

/// A decision interval.
#[derive(Clone, Debug)]
pub struct IntervalDecision {
    /// End of the interval.
    pub at: Timestamp,
    /// Loss rate of the interval.
    pub loss_rate: f64,
    /// Smoothed round-trip time at its end.
    pub smoothed_rtt: Duration,
    /// Inputs of the scheme's decision, by name.
    pub reasons: Vec<(&'static str, f64)>,
}

/// Contents of a [`Diary`].
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// Units in the order of completion.
    pub units: Vec<FinishedUnit>,
    /// Decisions in order.
    pub decisions: Vec<IntervalDecision>,
}

/// Records events inside a scheme.
#[derive(Clone, Debug, Default)]
pub struct Diary(Arc<Mutex<Pages>>);

impl Diary {
    /// Takes all entries up to now.
    pub fn take(&self) -> Pages {
        core::mem::take(&mut *self.0.lock().expect("a run has one thread"))
    }
}

impl Observer for Diary {
    fn on_event(&mut self, now: Timestamp, event: &Event<'_>) {
        match event {
            Event::UnitFinished { unit } => {
                let finished = FinishedUnit {
                    rounds: unit.round,
                    copies: unit.copies,
                    wait: now.since(unit.first_sent),
                    at: now,
                };
                self.0.lock().expect("a run has one thread").units.push(finished);
            }
            Event::RecoveryDecision { metrics, smoothed_rtt, reasons, .. } => {
                let decision = IntervalDecision {
                    at: metrics.now,
                    loss_rate: metrics.loss_rate(),
                    smoothed_rtt: *smoothed_rtt,
                    reasons: reasons.to_vec(),
                };
                self.0.lock().expect("a run has one thread").decisions.push(decision);
            }
            _ => {}
        }
    }
}
