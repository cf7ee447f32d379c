//! The interface of recovery schemes. A scheme decides *how many* replicas a lost unit gets and
//! *when* they leave. The two decisions are separate traits, so that they can be combined freely.
//!
//! A scheme is told of losses, copies, finished units and ends of decision intervals. It is never
//! called for a packet that was not lost.

use crate::correlation::{Chances, LossCorrelation};
use crate::overdue::Overdue;
use crate::table::{CopyKind, LostUnit, UnitKey, UnitTable};
use core::fmt::Debug;
use core::time::Duration;
use units::{Rate, Timestamp};

/// Decides how many replicas a lost unit may get.
pub trait RedundancyAdapter: Debug {
    /// Handles an event of a unit or a copy.
    fn on_event(&mut self, _event: &RecoveryEvent) {}

    /// Handles the end of a decision interval.
    fn on_interval(&mut self, _metrics: &IntervalMetrics, _view: &View<'_>) {}

    /// Sets expectations for the first interval. Called once, before any loss.
    fn on_expected(&mut self, _expected: &Expected) {}

    /// Discards measurements: the connection has migrated to another path.
    fn on_new_path(&mut self) {}

    /// Returns how many replicas the unit may get besides the retransmission of `round` (from 1)
    /// that is being sent. Called once per unit and round.
    fn level(&mut self, unit: UnitKey, round: u32, view: &View<'_>) -> u32;

    /// Returns the number of replicas at which a unit gets no more for the rest of its life, even
    /// if the ceiling rises again.
    fn ceiling(&self) -> u32 {
        u32::MAX
    }

    /// Returns the length of a decision interval in smoothed round-trip times (AutoRec, journal
    /// version, section V-A: "usually set several Round-Trip Times (RTTs), e.g., D = 5 RTTs").
    fn interval_rtts(&self) -> u32 {
        5
    }

    /// Passes the names and values that determined the level to `tell`.
    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64));
}

/// Decides when each replica leaves.
pub trait ReplicaScheduler: Debug {
    /// Handles the end of a decision interval; `ceiling` is the adapter's.
    fn on_interval(&mut self, _metrics: &IntervalMetrics, _ceiling: u32) {}

    /// Handles the adapter's ceiling after [`RedundancyAdapter::on_expected`].
    fn on_expected(&mut self, _ceiling: u32) {}

    /// Discards measurements: the connection has migrated. Plans for unfinished units remain.
    fn on_new_path(&mut self) {}

    /// Plans up to `level` replicas: the first copy of a round was sent.
    fn on_retransmitted(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        unit: &LostUnit,
        level: u32,
        view: &View<'_>,
    );

    /// Returns whether overdue data gets a copy before its loss is known. Asked if
    /// [`Scheme::overdue`] is set.
    fn wants_overdue(&mut self, _now: Timestamp, _data: &Overdue, _view: &View<'_>) -> bool {
        false
    }

    /// Notes that the replica returned by `poll` was sent.
    fn on_replica_sent(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit);

    /// Notes that a probe carried the unit.
    fn on_probe_sent(&mut self, _now: Timestamp, _key: UnitKey, _unit: &LostUnit) {}

    /// Drops the unit's plan: its round was acknowledged, abandoned or lost.
    fn on_finished(&mut self, key: UnitKey);

    /// Returns the unit that should get a replica now, if any. May be called repeatedly before
    /// it is sent.
    fn poll(
        &mut self,
        now: Timestamp,
        opportunity: &SendOpportunity,
        units: &UnitTable,
    ) -> Option<UnitKey>;

    /// Returns when `poll` must be called next, at the latest.
    fn next_timeout(&self) -> Option<Timestamp>;

    /// Passes the names and values that determined the last plan to `tell`.
    fn explain(&self, _tell: &mut dyn FnMut(&'static str, f64)) {}
}

/// An opportunity to send one more packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendOpportunity {
    /// True if no first copy waits and no stream has new bytes within flow control.
    pub off_mode: bool,
}

/// State of the path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PathState {
    /// Smoothed round-trip time; the initial one before the first sample.
    pub smoothed_rtt: Duration,
    /// Minimum round-trip time; zero before the first sample.
    pub min_rtt: Duration,
    /// Latest round-trip time, without the peer's delay.
    pub latest_rtt: Duration,
    /// Maximum of recent round-trip times.
    pub peak_rtt: Duration,
    /// Minimum of recent round-trip times. It rises if the path becomes longer.
    pub trough_rtt: Duration,
    /// Pacing rate, if any.
    pub pacing_rate: Option<Rate>,
    /// Maximum recent delivery rate; 0 before the first sample.
    pub delivery_rate: Rate,
    /// Congestion window, in bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Size of a full packet, in bytes.
    pub packet: u16,
}

/// Measurements of an earlier connection on the same path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// Loss rate, 0 to 1.
    pub loss_rate: f64,
    /// Minimum round-trip time.
    pub rtt: Duration,
    /// Loss correlation, if it was measured.
    pub chances: Option<Chances>,
}

/// State that schemes decide on.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The path.
    pub path: PathState,
    /// Unfinished units.
    pub units: &'a UnitTable,
    /// Longest run of consecutive lost packets in the last 5 to 10 round-trip times; 0 without a
    /// loss.
    pub longest_burst: u32,
    /// Loss correlation, if [`Scheme::correlation`] is set.
    pub correlation: Option<&'a LossCorrelation>,
    /// Fraction of recent overdue data that was lost. The rest arrived, with late or lost
    /// acknowledgements.
    pub overdue_lost: f64,
    /// Loss rate of first transmissions in the last 32 to 64 seconds.
    pub loss_rate: f64,
}

/// An event of a unit or a copy.
#[derive(Clone, Debug)]
pub enum RecoveryEvent {
    /// A packet with stream data was declared lost, or overdue, and became a unit.
    Opened {
        /// Time of the event.
        now: Timestamp,
        /// The new unit.
        unit: UnitKey,
    },
    /// A copy was sent.
    CopySent {
        /// Time of the event.
        now: Timestamp,
        /// The unit.
        unit: UnitKey,
        /// Role of the copy in its round.
        kind: CopyKind,
        /// Round of the unit, from 1.
        round: u32,
    },
    /// The fate of a copy is known. Its unit may have finished earlier.
    CopySettled {
        /// Time of the event.
        now: Timestamp,
        /// The copied unit, which may be finished.
        unit: UnitKey,
        /// Role of the copy in its round.
        kind: CopyKind,
        /// True if the copy was acknowledged before it was declared lost.
        acked: bool,
    },
    /// A newer copy of the unit took the place of a copy in flight. The loss of the older one will
    /// not be reported.
    CopySuperseded {
        /// Time of the event.
        now: Timestamp,
        /// The copied unit.
        unit: UnitKey,
    },
    /// The last outstanding copy of a round was lost, and none was acknowledged.
    RoundLost {
        /// Time of the event.
        now: Timestamp,
        /// The unit.
        unit: UnitKey,
        /// The lost round, from 1.
        round: u32,
    },
    /// Every byte of the unit was acknowledged.
    Finished {
        /// Time of the event.
        now: Timestamp,
        /// The unit.
        unit: UnitKey,
        /// Its final state.
        state: LostUnit,
    },
    /// The unit's stream was reset.
    Abandoned {
        /// Time of the event.
        now: Timestamp,
        /// The unit.
        unit: UnitKey,
    },
}

/// Measurements of a decision interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct IntervalMetrics {
    /// End of the interval.
    pub now: Timestamp,
    /// Its length.
    pub span: Duration,
    /// Packets acknowledged.
    pub acked: u64,
    /// Packets declared lost, without those acknowledged later.
    pub lost: u64,
    /// Mean of T_unit, the time from the first transmission of data to its first copy; `None`
    /// without copies.
    pub t_unit: Option<Duration>,
    /// Units finished.
    pub finished: u64,
    /// Mean recovery latency of finished units, counted as 0 if the first retransmission arrived;
    /// `None` without finished units.
    pub recovery_latency: Option<Duration>,
    /// Highest round of a finished unit; 0 without any.
    pub rounds_max: u32,
    /// Bytes sent in packets, copies included.
    pub sent_bytes: u64,
    /// Bytes that arrived, without duplicates.
    pub goodput_bytes: u64,
    /// Replicas sent.
    pub replicas: u64,
}

impl IntervalMetrics {
    /// Returns R, the lost fraction of settled packets; 0 without any.
    pub fn loss_rate(&self) -> f64 {
        let settled = self.acked + self.lost;
        if settled == 0 { 0.0 } else { self.lost as f64 / settled as f64 }
    }
}

/// Losses that are reported to congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LossSignal {
    /// Every packet declared lost (RFC 9002, section 7.3.1).
    #[default]
    Every,
    /// Packets that are not copies, and wholly lost rounds of copies (ART, section 6.4).
    WhollyLost,
    /// The same, but every packet while more than 20 % are lost. Otherwise ART's sender would not
    /// slow down on a bottleneck that drops whole bursts of copies.
    WhollyLostUnlessHeavy,
}

/// Replicas that may leave although the congestion window is full.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WindowExcess {
    /// None.
    #[default]
    Never,
    /// Up to 2 packets or a quarter of the window, whichever is more.
    Bounded,
    /// All (ART's opportunism, section 6.4, which states no bound).
    Unbounded,
}

/// A recovery scheme: an adapter, a scheduler, and options of the engine.
///
/// ```
/// use mendcast_recovery::catalog::{Parameters, SchemeSpec};
///
/// let parameters = Parameters { copies: 2, ..Parameters::default() };
/// let spec = SchemeSpec::new("spare".parse()?, parameters)?;
/// let scheme = spec.build(1);
/// assert_eq!(scheme.name, "spare");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Scheme {
    /// Name in configurations and records.
    pub name: &'static str,
    /// Decides how many replicas a unit gets.
    pub adapter: Box<dyn RedundancyAdapter>,
    /// Decides when replicas leave.
    pub scheduler: Box<dyn ReplicaScheduler>,
    /// Losses that signal congestion.
    pub signal: LossSignal,
    /// Replicas beyond the congestion window (ART's opportunism).
    pub excess: WindowExcess,
    /// Whether replicas leave only in off-mode. Due replicas wait for it, unless the viewer is
    /// [catching up](units::Mark::catching_up) on a path wider than the stream.
    pub when_idle: bool,
    /// Whether [`View::correlation`] is measured. Costs 6 KB per connection after the first loss,
    /// and a few nanoseconds per packet.
    pub correlation: bool,
    /// Whether the loss of each copy starts a new round, even while others are in flight. Otherwise
    /// a round ends with the loss of its last copy.
    pub answers_each: bool,
    /// Whether overdue data gets a copy before its loss is known. The copy is a replica, subject to
    /// [`Scheme::when_idle()`] and the guard. If more than 70 % of recent overdue data was lost,
    /// only the guard applies.
    pub overdue: bool,
}

impl Scheme {
    /// Creates a scheme with default options: every loss signals congestion, replicas stay within
    /// the window and need not wait, loss correlation is not measured, and a round ends with its
    /// last copy.
    pub fn new(
        name: &'static str,
        adapter: impl RedundancyAdapter + 'static,
        scheduler: impl ReplicaScheduler + 'static,
    ) -> Self {
        Self {
            name,
            adapter: Box::new(adapter),
            scheduler: Box::new(scheduler),
            signal: LossSignal::Every,
            excess: WindowExcess::Never,
            when_idle: false,
            correlation: false,
            answers_each: false,
            overdue: false,
        }
    }

    /// Returns the scheme with [`Scheme::when_idle`](Self#structfield.when_idle) set.
    pub fn when_idle(self) -> Self {
        Self { when_idle: true, ..self }
    }
}
