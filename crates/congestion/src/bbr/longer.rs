//! A path that becomes longer without a change of address: hand-over of a satellite or of a cell, another exit of a VPN.
//!
//! `RTprop` is the shortest round trip of ten seconds, and the window two bandwidth-delay products of it. On a path that
//! has become ten times as long the window is a fraction of what the stream needs until that round trip expires. So for a
//! sender that the application limits, the window carries half more than the rate that was delivered before over the
//! present round trip, on trial, while it is full, less is delivered than before, and all round trips are longer than a
//! queue of senders with the same model can make them. If the round trip stays with more in flight and the stream gets its
//! rate, the path is longer, and the window remains until a round trip is short again. Otherwise a queue grows or others
//! fill the bottleneck: the trial is undone, and none follows for [`BLOCKED`].

use core::time::Duration;

use units::{Rate, Timestamp};

/// Senders with windows of two bandwidth-delay products make round trips twice as long, and half of that more where they
/// overestimate their bandwidths: longest queue in halves of `RTprop`.
const OWN_QUEUES: u32 = 5;
/// Longest round trip over which the window carries a stream: peers that withhold acknowledgements gain no more.
/// Geostationary satellites take some 600 ms.
const LONGEST: Duration = Duration::from_secs(1);
/// Share of the rate delivered before, below which a sender is short of window.
const STARVED: f64 = 0.9;
/// Least share of the rate delivered before that a trial has to bring: with less, others fill the bottleneck.
const HELPED: f64 = 0.8;
/// The round of a trial that decides, counted from the one in which it began: the one before acknowledges packets that
/// left before the window grew.
const JUDGED_ROUND: u64 = 2;
/// Growth of the delivered rate above which a trial begins again with the longer round trip: the path was still
/// becoming longer.
const GROWTH: f64 = 1.5;
/// Time without a trial after one that was undone.
const BLOCKED: Duration = Duration::from_secs(3);

/// What an acknowledgement says of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub now: Timestamp,
    pub rtprop: Duration,
    /// Round trip of the newest packet that is acknowledged.
    pub rtt: Duration,
    /// Shortest round trip of the last quarter to half of a second.
    pub present_rtt: Duration,
    /// Delivered rate now, and the highest of the last seconds.
    pub rate: Rate,
    pub proven_rate: Rate,
    /// Round trip that the whole window makes in a queue at the estimated bandwidth.
    pub own_queue: Duration,
    /// Count of rounds.
    pub round: u64,
    /// Whether the window held a sender back that the application limits.
    pub is_window_full: bool,
}

impl Seen {
    /// Whether the window holds a stream below its rate, and no queue of the sender's own explains the round trips.
    fn is_starved(&self) -> bool {
        let longest_queue = (self.rtprop * OWN_QUEUES / 2).max(self.own_queue * 8 / 7);
        self.is_window_full
            && self.present_rtt > longest_queue
            && self.rate < self.proven_rate.scale(STARVED)
    }
}

/// A trial under way.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Round trip before it, over which the window carries the stream again if the trial is undone.
    before: Duration,
    /// Delivered rate when it began.
    rate: Rate,
    /// Shortest round trip and highest delivered rate of the round that decides.
    shortest: Duration,
    fastest: Rate,
    /// Round in which it began.
    began: u64,
}

/// The round trip over which the window carries a live stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longer {
    /// Zero while `RTprop` is believed.
    rtt: Duration,
    trial: Option<Trial>,
    blocked_until: Timestamp,
}

impl Longer {
    /// Takes an acknowledgement.
    pub(super) fn on_ack(&mut self, seen: &Seen) {
        if seen.rtt < self.rtt * 3 / 4 {
            // The path is short again.
            (self.rtt, self.trial) = (Duration::ZERO, None);
        }
        let Some(trial) = &mut self.trial else {
            if seen.now >= self.blocked_until && seen.is_starved() {
                self.begin(seen.rtt, seen.rate, seen.round);
            }
            return;
        };
        let judged = trial.began + JUDGED_ROUND;
        if seen.round <= judged {
            if seen.round == judged {
                trial.shortest = trial.shortest.min(seen.rtt);
                trial.fastest = trial.fastest.max(seen.rate);
            }
            return;
        }
        let Trial { before, rate, shortest, fastest, .. } = *trial;
        self.trial = None;
        let is_path = shortest <= self.rtt + self.rtt / 4;
        if is_path && fastest >= seen.proven_rate.scale(HELPED) {
            return;
        }
        self.rtt = before;
        if !is_path && fastest > rate.scale(GROWTH) {
            // Both directions did not become longer at once.
            self.begin(shortest, fastest, seen.round);
        } else {
            self.blocked_until = seen.now + BLOCKED;
        }
    }

    fn begin(&mut self, rtt: Duration, rate: Rate, began: u64) {
        let (before, shortest, fastest) = (self.rtt, Duration::MAX, Rate::ZERO);
        self.trial = Some(Trial { before, rate, shortest, fastest, began });
        self.rtt = rtt.min(LONGEST);
    }

    /// The present round trip of a longer path; zero where `RTprop` is believed.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Time for which the window carries the rate that was delivered before; zero where `RTprop` is believed.
    pub(super) fn time(&self) -> Duration {
        self.rtt + self.rtt / 2
    }
}
