//! What loss recovery was like in a run: the connection's own counters, and a diary of single units and
//! decisions for the experiments that need them.

use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Mutex};

use quic::Connection;
use recovery::{
    Arq, Bursts, IntervalMetrics, LAGS, Latencies, RecoveryEvent, RedundancyAdapter, Scheme,
    Totals, UnitKey, UnitTimes, View,
};
use units::Timestamp;

/// Makes a recovery scheme for a new connection, from the run's seed.
#[derive(Clone)]
pub struct SchemeMaker(Arc<dyn Fn(u64) -> Scheme + Send + Sync>);

impl SchemeMaker {
    /// The schemes that `make` makes.
    pub fn new(make: impl Fn(u64) -> Scheme + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(&self, seed: u64) -> Scheme {
        (self.0)(seed)
    }
}

impl Default for SchemeMaker {
    fn default() -> Self {
        Self::new(|_| Arq::scheme())
    }
}

impl fmt::Debug for SchemeMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.make(0).name)
    }
}

/// The measurements of one connection, or of several added up.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Counters.
    pub totals: Totals,
    /// Recovery latencies.
    pub latencies: Latencies,
    /// T_unit.
    pub unit_times: UnitTimes,
    /// Number and packets of the runs of consecutive lost packets, and the longest.
    pub bursts: (u64, u64, u32),
    /// Of each class of [`LAGS`]: packets sent so long after a lost one, and lost ones of them.
    pub correlation: [(u64, u64); LAGS.len()],
    /// Time with nothing to send but replicas, and how often it began.
    pub off_mode: (Duration, u64),
    /// Of that, time in which flow control held new bytes back.
    pub blocked: Duration,
    /// Times that the guard began to refuse replicas.
    pub refusals: u64,
    /// Time of the connection.
    pub time: Duration,
}

impl Recovered {
    pub(crate) fn of(connection: &Connection, now: Timestamp) -> Self {
        let recovery = connection.recovery();
        let bursts: &Bursts = recovery.bursts();
        let runs = bursts.counts().iter().map(|&count| u64::from(count)).sum();
        Self {
            totals: *recovery.totals(),
            latencies: recovery.latencies().clone(),
            unit_times: *recovery.unit_times(),
            bursts: (runs, connection.stats().packets_lost, bursts.longest()),
            correlation: recovery.correlation().counts(),
            off_mode: recovery.off_mode(now),
            blocked: recovery.blocked(now),
            refusals: recovery.guard().map_or(0, recovery::Guard::refusals),
            time: now.since(Timestamp::ZERO),
        }
    }

    /// Adds another connection's.
    pub fn merge(&mut self, other: &Self) {
        self.combine(other, |sum, more| sum + more);
        self.totals.rounds_max = self.totals.rounds_max.max(other.totals.rounds_max);
        self.latencies.merge(&other.latencies);
        self.unit_times.sum += other.unit_times.sum;
        self.bursts.2 = self.bursts.2.max(other.bursts.2);
        self.off_mode.0 += other.off_mode.0;
        self.blocked += other.blocked;
        self.time += other.time;
    }

    /// What came after `earlier`, a former state of the same connection. The largest number of rounds
    /// and the longest burst are those of all the time.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut rest = self.clone();
        rest.combine(earlier, u64::saturating_sub);
        rest.latencies = self.latencies.since(&earlier.latencies);
        rest.unit_times.sum -= earlier.unit_times.sum;
        rest.off_mode.0 -= earlier.off_mode.0;
        rest.blocked -= earlier.blocked;
        rest.time -= earlier.time;
        rest
    }

    /// Puts `how` of both in the place of every plain counter.
    fn combine(&mut self, other: &Self, how: impl Fn(u64, u64) -> u64) {
        let (a, b) = (&mut self.totals, &other.totals);
        for (own, other) in [
            (&mut a.first_transmissions, b.first_transmissions),
            (&mut a.first_bytes, b.first_bytes),
            (&mut a.copy_bytes, b.copy_bytes),
            (&mut a.replica_bytes, b.replica_bytes),
            (&mut a.acked, b.acked),
            (&mut a.lost, b.lost),
            (&mut a.spurious, b.spurious),
            (&mut a.goodput_bytes, b.goodput_bytes),
            (&mut a.units, b.units),
            (&mut a.retransmissions, b.retransmissions),
            (&mut a.repeated, b.repeated),
            (&mut a.replicas, b.replicas),
            (&mut a.replicas_acked, b.replicas_acked),
            (&mut a.replicas_lost, b.replicas_lost),
            (&mut a.probes, b.probes),
            (&mut a.finished, b.finished),
            (&mut a.finished_late, b.finished_late),
            (&mut a.rounds, b.rounds),
            (&mut a.copies, b.copies),
            (&mut a.abandoned, b.abandoned),
            (&mut self.unit_times.count, other.unit_times.count),
            (&mut self.bursts.0, other.bursts.0),
            (&mut self.bursts.1, other.bursts.1),
            (&mut self.off_mode.1, other.off_mode.1),
            (&mut self.refusals, other.refusals),
        ] {
            *own = how(*own, other);
        }
        for (own, other) in self.correlation.iter_mut().zip(other.correlation) {
            *own = (how(own.0, other.0), how(own.1, other.1));
        }
    }
}

/// A lost unit that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedUnit {
    /// Rounds of retransmission (ART's N).
    pub rounds: u32,
    /// Copies, of all kinds.
    pub copies: u32,
    /// From the first sending to the acknowledgement: ART's T_wait and the way back.
    pub wait: Duration,
    /// When the acknowledgement came.
    pub at: Timestamp,
}

/// A decision interval: its end, the loss rate, and what the scheme made of it, by name.
#[derive(Clone, Debug)]
pub struct Decision {
    /// When.
    pub at: Timestamp,
    /// Loss rate of the interval.
    pub loss_rate: f64,
    /// Smoothed round-trip time at its end.
    pub smoothed_rtt: Duration,
    /// What the adapter explains.
    pub reasons: Vec<(&'static str, f64)>,
}

/// What a [`Diary`] keeps.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// Units in the order in which they were finished.
    pub units: Vec<FinishedUnit>,
    /// Decisions in order.
    pub decisions: Vec<Decision>,
}

/// Keeps what happens inside a scheme, without changing what it does.
#[derive(Clone, Debug, Default)]
pub struct Diary(Arc<Mutex<Pages>>);

impl Diary {
    /// The scheme, watched.
    pub(crate) fn keep(&self, scheme: Scheme) -> Scheme {
        let adapter = Box::new(Watched { adapter: scheme.adapter, diary: self.clone() });
        Scheme { adapter, ..scheme }
    }

    /// Takes what was kept so far.
    pub fn take(&self) -> Pages {
        core::mem::take(&mut *self.0.lock().expect("a run has one thread"))
    }
}

#[derive(Debug)]
struct Watched {
    adapter: Box<dyn RedundancyAdapter>,
    diary: Diary,
}

impl RedundancyAdapter for Watched {
    fn on_event(&mut self, event: &RecoveryEvent) {
        self.adapter.on_event(event);
        if let RecoveryEvent::Finished { now, state, .. } = event {
            self.diary.0.lock().expect("a run has one thread").units.push(FinishedUnit {
                rounds: state.round,
                copies: state.copies,
                wait: now.since(state.first_sent),
                at: *now,
            });
        }
    }

    fn on_interval(&mut self, metrics: &IntervalMetrics, view: &View<'_>) {
        self.adapter.on_interval(metrics, view);
        let mut reasons = Vec::new();
        self.adapter.explain(&mut |name, value| reasons.push((name, value)));
        let decision = Decision {
            at: metrics.now,
            loss_rate: metrics.loss_rate(),
            smoothed_rtt: view.path.smoothed_rtt,
            reasons,
        };
        self.diary.0.lock().expect("a run has one thread").decisions.push(decision);
    }

    fn on_new_path(&mut self) {
        self.adapter.on_new_path();
    }

    fn level(&mut self, unit: UnitKey, round: u32, view: &View<'_>) -> u32 {
        self.adapter.level(unit, round, view)
    }

    fn ceiling(&self) -> u32 {
        self.adapter.ceiling()
    }

    fn interval_rtts(&self) -> u32 {
        self.adapter.interval_rtts()
    }

    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        self.adapter.explain(tell);
    }
}
