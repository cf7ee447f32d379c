//! Detection of paths that become longer without a change of address, by hand-over of a satellite
//! or a cell or another exit of a VPN.
//!
//! `RTprop` is the minimum round trip of ten seconds, and the window two bandwidth-delay products.
//! On a path that has become ten times as long, the window is a fraction of the stream's demand
//! until the old minimum expires. For a live sender, a trial therefore extends the window to 1.5
//! times the recent delivered rate over the current round trip. It starts if the window is full,
//! less is delivered than before, and all round trips are longer than a queue of senders with the
//! same model can make them.
//!
//! If the round trip does not rise with more in flight and the stream gets its rate, the path is
//! longer. The window then remains until a round trip is short again. Otherwise a queue grows or
//! others fill the bottleneck: the trial is undone, and none follows for [`RETRY_DELAY`].

use core::time::Duration;

use units::{Rate, Timestamp};

/// Longest round trip that queues of senders with this model cause, in halves of `RTprop`: windows
/// of two bandwidth-delay products double it, and overestimated bandwidths add a half.
const MAX_QUEUED_RTT_HALVES: u32 = 5;
/// Maximum round trip over which the window carries a stream, which limits peers that withhold
/// acknowledgements. Geostationary satellites take about 600 ms.
const MAX_RTT: Duration = Duration::from_secs(1);
/// Fraction of the recent delivered rate below which a sender lacks window.
const STARVED_SHARE: f64 = 0.9;
/// Minimum fraction of the recent delivered rate for a trial to succeed; below it, others fill the
/// bottleneck.
const SUCCESS_SHARE: f64 = 0.8;
/// Round in which a trial is judged, counted from its start. The preceding round acknowledges
/// packets sent before the window grew.
const JUDGED_ROUND: u64 = 2;
/// Growth of the delivered rate above which a trial restarts with the longer round trip, because
/// the path was still becoming longer.
const GROWTH: f64 = 1.5;
/// Time without trials after a failed one.
const RETRY_DELAY: Duration = Duration::from_secs(3);

/// Observations at an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub now: Timestamp,
    pub rtprop: Duration,
    /// Round trip of the newest acknowledged packet.
    pub rtt: Duration,
    /// Minimum round trip of the last quarter to half second.
    pub present_rtt: Duration,
    /// Current delivered rate, and the maximum of recent seconds.
    pub rate: Rate,
    pub proven_rate: Rate,
    /// Round trip with the whole window queued at the estimated bandwidth.
    pub own_queue: Duration,
    /// Number of rounds.
    pub round: u64,
    /// Whether the window limits a live sender.
    pub is_window_full: bool,
}

impl Observation {
    /// Returns whether the window starves a stream, and the sender's own queue does not explain the
    /// round trips.
    fn is_starved(&self) -> bool {
        let longest_queue = (self.rtprop * MAX_QUEUED_RTT_HALVES / 2).max(self.own_queue * 8 / 7);
        self.is_window_full
            && self.present_rtt > longest_queue
            && self.rate < self.proven_rate.scale(STARVED_SHARE)
    }
}

/// A trial in progress.
#[derive(Clone, Copy, Debug)]
struct RttTrial {
    /// Previous round trip, restored if the trial fails.
    before: Duration,
    /// Delivered rate at the start.
    rate: Rate,
    /// Minimum round trip and maximum delivered rate of the judged round.
    shortest: Duration,
    fastest: Rate,
    /// Round of the start.
    began: u64,
}

/// Round trip over which the window carries a live stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longer {
    /// Zero while `RTprop` is trusted.
    rtt: Duration,
    trial: Option<RttTrial>,
    blocked_until: Timestamp,
}

impl Longer {
    /// Handles an acknowledgement.
    pub(super) fn on_ack(&mut self, observed: &Observation) {
        if observed.rtt < self.rtt * 3 / 4 {
            // The path is short again.
            (self.rtt, self.trial) = (Duration::ZERO, None);
        }
        let Some(trial) = &mut self.trial else {
            if observed.now >= self.blocked_until && observed.is_starved() {
                self.begin(observed.rtt, observed.rate, observed.round);
            }
            return;
        };
        let judged = trial.began + JUDGED_ROUND;
        if observed.round <= judged {
            if observed.round == judged {
                trial.shortest = trial.shortest.min(observed.rtt);
                trial.fastest = trial.fastest.max(observed.rate);
            }
            return;
        }
        let RttTrial { before, rate, shortest, fastest, .. } = *trial;
        self.trial = None;
        let is_path = shortest <= self.rtt + self.rtt / 4;
        if is_path && fastest >= observed.proven_rate.scale(SUCCESS_SHARE) {
            return;
        }
        self.rtt = before;
        if !is_path && fastest > rate.scale(GROWTH) {
            // Both directions did not become longer at the same time.
            self.begin(shortest, fastest, observed.round);
        } else {
            self.blocked_until = observed.now + RETRY_DELAY;
        }
    }

    fn begin(&mut self, rtt: Duration, rate: Rate, began: u64) {
        let (before, shortest, fastest) = (self.rtt, Duration::MAX, Rate::ZERO);
        self.trial = Some(RttTrial { before, rate, shortest, fastest, began });
        self.rtt = rtt.min(MAX_RTT);
    }

    /// Returns the current round trip of a longer path; zero while `RTprop` is trusted.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Returns the time for which the window carries the delivered rate; zero while `RTprop` is
    /// trusted.
    pub(super) fn time(&self) -> Duration {
        self.rtt + self.rtt / 2
    }
}
