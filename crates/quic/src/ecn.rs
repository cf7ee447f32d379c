//! ECN validation (RFC 9000, section 13.4.2): packets are marked while the peer's counts add up and
//! marked packets arrive as reliably as unmarked ones.
//!
//! Three faults end the marking of a path. The peer's counts are missing or wrong (section
//! 13.4.2.1). The path marks everything CE. The path drops all marked packets or a share of them.
//! Outages and ordinary loss look like the third fault at first, so a trial compares marked with
//! unmarked packets (`trial`). The endpoint remembers networks with a costly fault (`networks`).
//!
//! Of 18,000 connections in simulated minutes without such faults, one lost ECN:
//! `MENDCAST_CASES=3000 cargo test -p mendcast-quic --lib ecn::tests::loss -- --nocapture`.

mod monitor;
mod networks;
mod trial;

use crate::wire::EcnCounts;
use core::time::Duration;
pub(crate) use monitor::EcnMonitor;
pub(crate) use networks::Networks;
pub(crate) use trial::Fate;
use trial::{EcnTrial, MAX_LOST_PERCENT, TrialVerdict};
use units::Timestamp;

/// Number of marked packets that test a path (RFC 9000, appendix A.4). ECN ends when this many go
/// unreported. The share of CE is taken of the first ones.
const TESTING: u64 = 10;
/// Share of CE among the testing packets, in percent, that counts as a fault.
const ALL_CE_PERCENT: u64 = 90;
/// Number of unacknowledged marked packets in a row that start a trial as soon as an unmarked
/// packet is acknowledged.
const MIN_UNACKED_MARKED: u32 = 3;
/// Number of marked packets over which the loss rate is taken: the bits of [`PathEcn::recent`].
const RECENT: u32 = 64;
/// Lost packets among the last [`RECENT`] that start a trial: more than [`MAX_LOST_PERCENT`].
const LOSSY: u32 = RECENT * MAX_LOST_PERCENT / 100 + 1;
/// Pause between a trial without a fault and the next one because of loss. It doubles each time.
const MIN_PAUSE: Duration = Duration::from_secs(10);
/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// State of ECN on a path, as qlog names it (`ecn_state_updated`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EcnState {
    /// Packets are marked; too few reports have come.
    Testing,
    /// Marked packets are lost or unacknowledged: a trial compares them with unmarked ones.
    Unknown,
    /// Packets are unmarked: the path has failed validation, or its network has within the last
    /// hour.
    Failed,
    /// Packets are marked.
    Capable,
}

impl EcnState {
    /// The name in qlog.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Testing => "testing",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
            Self::Capable => "capable",
        }
    }
}

/// Reason why a path failed ECN validation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum EcnFault {
    /// It drops marked packets and delivers unmarked ones.
    Dropped,
    /// It marks everything CE.
    AllCe,
    /// Acknowledgements of marked packets come without counts: it erases the marks.
    Bleached,
    /// The counts do not add up: it changes the marks, or the peer miscounts.
    Miscounted,
}

impl EcnFault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dropped, Self::AllCe, Self::Bleached, Self::Miscounted];

    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::AllCe => "all_ce",
            Self::Bleached => "bleached",
            Self::Miscounted => "miscounted",
        }
    }

    /// Returns true if the test costs lost packets or a cut window, so that the next connection
    /// from the network should skip it.
    pub(crate) fn is_costly(self) -> bool {
        matches!(self, Self::Dropped | Self::AllCe)
    }
}

impl From<EcnFault> for usize {
    fn from(fault: EcnFault) -> Self {
        fault as Self
    }
}

/// Growth of the peer's counts since the last ACK frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EcnReport {
    /// The ACK frame has no counts.
    Missing,
    /// The counts are impossible.
    Wrong,
    /// Number of newly reported packets (ECT(0) or CE), and the number of CE among them.
    Grown { all: u64, ce: u64 },
}

/// The peer's counts. They cover the connection, on all its paths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnTally {
    reported: EcnCounts,
    sent: u64,
}

impl EcnTally {
    /// A marked packet was sent.
    #[inline]
    pub(crate) fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// Takes the counts of an acknowledgement that raises the largest acknowledged number.
    pub(crate) fn take(&mut self, counts: Option<EcnCounts>) -> EcnReport {
        let Some(counts) = counts else { return EcnReport::Missing };
        let old = core::mem::replace(&mut self.reported, counts);
        let possible = counts.ect0 >= old.ect0
            && counts.ce >= old.ce
            && counts.ect1 == old.ect1
            && counts.ect0.saturating_add(counts.ce) <= self.sent;
        if !possible {
            return EcnReport::Wrong;
        }
        let ce = counts.ce - old.ce;
        EcnReport::Grown { all: counts.ect0 - old.ect0 + ce, ce }
    }
}

#[derive(Clone, Copy, Debug)]
enum EcnPhase {
    /// ECN is off in the configuration.
    Off,
    Marking,
    Trial(EcnTrial),
    Failed,
}

/// ECN of one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathEcn {
    phase: EcnPhase,
    /// Packets reported during the test, and the number of CE among them.
    tested: u64,
    tested_ce: u64,
    unreported: u64,
    /// Marked packets sent since one was acknowledged.
    unheard: u32,
    /// Send time of the first packet since the last acknowledgement.
    silent_since: Option<Timestamp>,
    /// Fates of the last [`RECENT`] marked packets outside trials: 1 for lost, the newest in bit 0.
    recent: u64,
    next_trial: Timestamp,
    pause: Duration,
    fault: Option<EcnFault>,
}

impl PathEcn {
    /// A path to test; unmarked for good if `enabled` is false.
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            phase: if enabled { EcnPhase::Marking } else { EcnPhase::Off },
            tested: 0,
            tested_ce: 0,
            unreported: 0,
            unheard: 0,
            silent_since: None,
            recent: 0,
            next_trial: Timestamp::ZERO,
            pause: MIN_PAUSE,
            fault: None,
        }
    }

    /// A path through a network with a remembered fault.
    pub(crate) fn failed(enabled: bool) -> Self {
        let phase = if enabled { EcnPhase::Failed } else { EcnPhase::Off };
        Self { phase, ..Self::new(enabled) }
    }

    /// Returns the state, `None` if ECN is off in the configuration.
    pub(crate) fn state(&self) -> Option<EcnState> {
        match self.phase {
            EcnPhase::Off => None,
            EcnPhase::Marking if self.tested < TESTING => Some(EcnState::Testing),
            EcnPhase::Marking => Some(EcnState::Capable),
            EcnPhase::Trial(_) => Some(EcnState::Unknown),
            EcnPhase::Failed => Some(EcnState::Failed),
        }
    }

    /// Returns true while each datagram leaves alone, since the next one may differ.
    #[inline]
    pub(crate) fn is_one_by_one(&self) -> bool {
        matches!(&self.phase, EcnPhase::Trial(trial) if trial.is_one_by_one())
    }

    /// Returns whether to mark a datagram outside trials. After a probe time-out without an
    /// acknowledgement, datagrams are unmarked: they pass a node that drops marked packets.
    #[inline]
    pub(crate) fn marks(&self, now: Timestamp, pto: Duration) -> bool {
        let is_silent = || self.silent_since.is_some_and(|since| now.since(since) > pto);
        matches!(self.phase, EcnPhase::Marking) && !is_silent()
    }

    /// Returns whether to mark the next datagram. Only first transmissions (`original`) are marked
    /// during a trial.
    #[inline]
    pub(crate) fn marks_next(&mut self, now: Timestamp, pto: Duration, original: bool) -> bool {
        match &mut self.phase {
            EcnPhase::Trial(trial) => original && trial.marks_next(),
            _ => self.marks(now, pto),
        }
    }

    /// A packet that asks for an acknowledgement was sent.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Timestamp, marked: bool) {
        self.unheard += u32::from(marked);
        self.silent_since.get_or_insert(now);
    }

    /// Forgets missing acknowledgements, because the peer has left the path.
    pub(crate) fn on_left(&mut self) {
        (self.silent_since, self.unheard) = (None, 0);
    }

    /// Takes the fate of an ack-eliciting packet.
    #[inline]
    pub(crate) fn on_fate(&mut self, fate: Fate) {
        if fate.marked && !fate.lost {
            self.unheard = 0;
        }
        match &mut self.phase {
            EcnPhase::Trial(trial) => trial.on_fate(fate),
            _ if fate.marked => self.recent = self.recent << 1 | u64::from(fate.lost),
            _ => {}
        }
    }

    /// Takes the late acknowledgement of a packet that was declared lost.
    pub(crate) fn on_late(&mut self, fate: Fate) {
        if fate.marked {
            self.unheard = 0;
        }
        if let EcnPhase::Trial(trial) = &mut self.phase {
            trial.on_late(fate);
        }
    }

    /// Takes an acknowledgement of packets of this path, all of them unmarked if `unmarked`. `next`
    /// is the number of the next packet. May begin a trial.
    pub(crate) fn on_heard(&mut self, unmarked: bool, next: u64) {
        self.silent_since = None;
        if unmarked && self.unheard >= MIN_UNACKED_MARKED && matches!(self.phase, EcnPhase::Marking)
        {
            self.phase = EcnPhase::Trial(EcnTrial::new(next));
        }
    }

    /// Takes the counts of an acknowledgement that newly acknowledges `marked` marked packets of
    /// this path. Returns the number of packets newly reported as CE.
    pub(crate) fn on_report(&mut self, marked: u64, report: EcnReport) -> u64 {
        if matches!(self.phase, EcnPhase::Failed | EcnPhase::Off) {
            return 0;
        }
        match report {
            // Section 13.4.2.1: without counts for newly acknowledged marked packets validation
            // fails. A few may have passed a node that erases marks while testing.
            EcnReport::Missing => {
                self.unreported += marked;
                if self.unreported >= TESTING {
                    self.fail(EcnFault::Bleached);
                }
                0
            }
            // Section 13.4.2.1: the counts are smaller than the number of packets that they report.
            EcnReport::Wrong if marked > 0 => self.fail(EcnFault::Miscounted),
            EcnReport::Grown { all, .. } if all < marked => self.fail(EcnFault::Miscounted),
            EcnReport::Wrong => 0,
            EcnReport::Grown { all, ce } => {
                if self.tested < TESTING {
                    self.tested += all;
                    self.tested_ce += ce;
                    let is_all = self.tested_ce * 100 >= self.tested * ALL_CE_PERCENT;
                    if self.tested >= TESTING && is_all {
                        return self.fail(EcnFault::AllCe);
                    }
                }
                ce
            }
        }
    }

    /// Begins a trial if too many packets are lost, and ends one with a verdict. `next` is the
    /// number of the next packet.
    pub(crate) fn judge(&mut self, now: Timestamp, next: u64) {
        match &mut self.phase {
            EcnPhase::Marking => {
                if self.recent.count_ones() >= LOSSY && now >= self.next_trial {
                    self.phase = EcnPhase::Trial(EcnTrial::new(next));
                }
            }
            EcnPhase::Trial(trial) => match trial.verdict() {
                TrialVerdict::Open => {}
                TrialVerdict::Drops => {
                    self.fail(EcnFault::Dropped);
                }
                TrialVerdict::Same => {
                    self.phase = EcnPhase::Marking;
                    self.recent = 0;
                    self.next_trial = now + self.pause;
                    self.pause = (self.pause * 2).min(MAX_PAUSE);
                }
            },
            EcnPhase::Off | EcnPhase::Failed => {}
        }
    }

    /// Returns a new fault, once.
    pub(crate) fn take_fault(&mut self) -> Option<EcnFault> {
        self.fault.take()
    }

    fn fail(&mut self, fault: EcnFault) -> u64 {
        self.phase = EcnPhase::Failed;
        self.fault = Some(fault);
        0
    }
}

#[cfg(test)]
mod tests;
