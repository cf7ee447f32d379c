//! The two questions that a recovery scheme answers, and what it may look at. *How many* and
//! *when* stay apart, so that every combination of the papers is a pair of types.
//!
//! A scheme is asked when a unit exists and told of losses, copies, finished units and the ends of
//! decision intervals. It is never called for a packet that was not lost.

use crate::correlation::{Chances, LossCorrelation};
use crate::overdue::Overdue;
use crate::table::{CopyKind, LostUnit, UnitKey, UnitTable};
use core::fmt::Debug;
use core::time::Duration;
use units::{Rate, Timestamp};

/// How many replicas a lost unit may get.
pub trait RedundancyAdapter: Debug {
    /// Something happened to a unit or to a copy.
    fn on_event(&mut self, _event: &RecoveryEvent) {}

    /// A decision interval ended.
    fn on_interval(&mut self, _metrics: &IntervalMetrics, _view: &View<'_>) {}

    /// What to expect until the first interval has ended. Told once, before anything is lost.
    fn on_expected(&mut self, _expected: &Expected) {}

    /// Packets take another path from now on: what was measured on the old one is void.
    fn on_new_path(&mut self) {}

    /// Replicas that the unit may get beyond the retransmission of `round` (from 1), which is being
    /// sent. Asked once per unit and round.
    fn level(&mut self, unit: UnitKey, round: u32, view: &View<'_>) -> u32;

    /// Replicas that any unit may have got in its life; a unit that has as many gets no more, also
    /// when the ceiling rises again.
    fn ceiling(&self) -> u32 {
        u32::MAX
    }

    /// Length of a decision interval in smoothed round-trip times (AutoRec, journal version, section
    /// V-A: "usually set several Round-Trip Times (RTTs), e.g., D = 5 RTTs").
    fn interval_rtts(&self) -> u32 {
        5
    }

    /// Why the level is what it is: names and values of what it follows from.
    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64));
}

/// When each replica leaves.
pub trait ReplicaScheduler: Debug {
    /// A decision interval ended; `ceiling` is the adapter's.
    fn on_interval(&mut self, _metrics: &IntervalMetrics, _ceiling: u32) {}

    /// The adapter was told what to expect; `ceiling` is what it made of it.
    fn on_expected(&mut self, _ceiling: u32) {}

    /// Packets take another path from now on; what is planned for unfinished units goes on.
    fn on_new_path(&mut self) {}

    /// The first copy of a round was sent; `level` replicas may follow.
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

    /// The replica that `poll` asked for was sent.
    fn on_replica_sent(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit);

    /// A probe carried the unit: a sending like any other to those who space copies in time.
    fn on_probe_sent(&mut self, _now: Timestamp, _key: UnitKey, _unit: &LostUnit) {}

    /// The round is over: acknowledged, abandoned, or wholly lost.
    fn on_finished(&mut self, key: UnitKey);

    /// The unit that should send a replica now, if any. Nothing has been sent yet: the answer may
    /// be asked for again.
    fn poll(
        &mut self,
        now: Timestamp,
        opportunity: &SendOpportunity,
        units: &UnitTable,
    ) -> Option<UnitKey>;

    /// When `poll` wants to be asked again, whatever else happens.
    fn next_timeout(&self) -> Option<Timestamp>;

    /// Why the last replicas were planned as they were: names and values of what that follows from.
    fn explain(&self, _tell: &mut dyn FnMut(&'static str, f64)) {}
}

/// A moment at which the sender could put one more packet on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendOpportunity {
    /// No first copy waits and no stream has new bytes that flow control lets go.
    pub off_mode: bool,
}

/// The path, as far as schemes care.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PathState {
    /// Smoothed round-trip time; the assumed one before the first sample.
    pub smoothed_rtt: Duration,
    /// Smallest round-trip time; zero before the first sample.
    pub min_rtt: Duration,
    /// The newest round-trip time without the peer's delay.
    pub latest_rtt: Duration,
    /// The longest of these lately.
    pub peak_rtt: Duration,
    /// The shortest of these lately: a path may become longer.
    pub trough_rtt: Duration,
    /// Rate at which packets leave, if it is limited.
    pub pacing_rate: Option<Rate>,
    /// The highest rate at which packets were delivered lately; 0 before the first were.
    pub delivery_rate: Rate,
    /// Congestion window, in bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes of a full packet.
    pub packet: u16,
}

/// What an earlier connection has measured of the path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// Packets lost per packet sent, 0 to 1.
    pub loss_rate: f64,
    /// The smallest round-trip time.
    pub rtt: Duration,
    /// How losses came together, if enough were seen.
    pub chances: Option<Chances>,
}

/// What a scheme may look at when it decides.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The path.
    pub path: PathState,
    /// Unfinished units.
    pub units: &'a UnitTable,
    /// Longest run of consecutive lost packets in the last 5 to 10 round-trip times; 0 without loss.
    pub longest_burst: u32,
    /// How the loss of one packet goes with that of another some time later, if
    /// [`Scheme::correlation`] asks for it.
    pub correlation: Option<&'a LossCorrelation>,
    /// The share of overdue data that was lost, lately: the rest came, and its acknowledgement was late or lost.
    pub overdue_lost: f64,
    /// The share of first transmissions that was lost within the last 32 to 64 seconds.
    pub loss_rate: f64,
}

/// What happened to a unit or a copy.
#[derive(Clone, Debug)]
pub enum RecoveryEvent {
    /// A packet with stream data was declared lost for the first time.
    Opened {
        /// When.
        now: Timestamp,
        /// The unit that it became.
        unit: UnitKey,
    },
    /// A copy was sent.
    CopySent {
        /// When.
        now: Timestamp,
        /// The unit.
        unit: UnitKey,
        /// What the copy is to its round.
        kind: CopyKind,
        /// The unit's round, from 1.
        round: u32,
    },
    /// The fate of a copy is known, also of one whose unit was finished by a sibling.
    CopySettled {
        /// When.
        now: Timestamp,
        /// The unit that it is a copy of; it may be over.
        unit: UnitKey,
        /// What the copy was to its round.
        kind: CopyKind,
        /// Whether it was acknowledged before it was declared lost.
        acked: bool,
    },
    /// No copy of a round is outstanding any more and none was acknowledged.
    RoundLost {
        /// When.
        now: Timestamp,
        /// The unit.
        unit: UnitKey,
        /// The round that is lost, from 1.
        round: u32,
    },
    /// Every byte of the unit was acknowledged.
    Finished {
        /// When.
        now: Timestamp,
        /// Which unit.
        unit: UnitKey,
        /// Its last state.
        state: LostUnit,
    },
    /// The unit's stream was reset.
    Abandoned {
        /// When.
        now: Timestamp,
        /// Which unit.
        unit: UnitKey,
    },
}

/// What a decision interval measured.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct IntervalMetrics {
    /// End of the interval.
    pub now: Timestamp,
    /// Its length.
    pub span: Duration,
    /// Packets whose fate was settled as acknowledged.
    pub acked: u64,
    /// Packets declared lost, those acknowledged later taken out.
    pub lost: u64,
    /// Mean of T_unit (first sending of content to its first sending again) over the content that
    /// was sent again; none if nothing was.
    pub t_unit: Option<Duration>,
    /// Units finished.
    pub finished: u64,
    /// Mean recovery latency of the units finished, 0 of those whose first retransmission arrived;
    /// none without any.
    pub recovery_latency: Option<Duration>,
    /// Highest round of a unit finished, 0 without any.
    pub rounds_max: u32,
    /// Bytes sent in packets, copies included.
    pub sent_bytes: u64,
    /// Bytes that arrived, each byte of content once.
    pub goodput_bytes: u64,
    /// Replicas sent.
    pub replicas: u64,
}

impl IntervalMetrics {
    /// R: the share of the packets settled that were lost; 0 if none was settled.
    pub fn loss_rate(&self) -> f64 {
        let settled = self.acked + self.lost;
        if settled == 0 { 0.0 } else { self.lost as f64 / settled as f64 }
    }
}

/// Which losses tell the congestion controller.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LossSignal {
    /// Every packet declared lost (RFC 9002, section 7.3.1).
    #[default]
    Every,
    /// Packets that are no copies, and a round of copies once it is wholly lost (ART, section 6.4).
    WhollyLost,
}

/// A scheme: one answer to *how many*, one to *when*, and what its copies mean to congestion control.
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
    /// Its name in configurations and reports.
    pub name: &'static str,
    /// How many replicas.
    pub adapter: Box<dyn RedundancyAdapter>,
    /// When each leaves.
    pub scheduler: Box<dyn ReplicaScheduler>,
    /// Which losses are signals of congestion.
    pub signal: LossSignal,
    /// Whether replicas may pass the congestion window a little (ART's opportunism).
    pub opportunism: bool,
    /// Whether replicas leave only in off-mode: when no first copy of a round waits and no stream has new
    /// bytes that flow control lets go. What is due at another time waits for that, unless its viewer is
    /// [catching up](units::Mark::catching_up) with a stream that the path is wide enough for.
    pub when_idle: bool,
    /// Whether [`View::correlation`] is measured. It takes 6 KB per connection after the first loss, and
    /// a few nanoseconds per packet.
    pub correlation: bool,
    /// Whether the loss of each copy begins a new round, also while others are in flight: their fates may be known
    /// late. Otherwise a round lasts until all its copies are lost.
    pub answers_each: bool,
    /// Whether overdue data gets a copy before its loss is known. The copy is a replica:
    /// [`Scheme::when_idle()`] and the guard apply to it. If more than 70 % of the recent overdue
    /// data was lost, only the guard does.
    pub overdue: bool,
}

impl Scheme {
    /// A scheme with the usual answers to the rest: every loss is a signal, replicas stay within the
    /// window but wait for nothing, loss correlation is not measured, and rounds last until all copies are lost.
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
            opportunism: false,
            when_idle: false,
            correlation: false,
            answers_each: false,
            overdue: false,
        }
    }
    /// The same scheme with replicas that leave only when nothing else waits, as the field of this name says.
    pub fn when_idle(self) -> Self {
        Self { when_idle: true, ..self }
    }
}
