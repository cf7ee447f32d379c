//! A path that becomes longer without a change of address: hand-over of a satellite or of a cell, another exit of a VPN.
//!
//! `RTprop` is the shortest round trip of ten seconds, and the window two bandwidth-delay products of it. On a path that
//! has become ten times as long the window is a fraction of what the stream needs until that round trip expires. So for a
//! sender that the application limits, the present round trip takes the place of `RTprop` on trial while the window is
//! full, less is delivered than before, and all round trips are longer than a queue of senders with the same model can
//! make them. The path is longer if with more in flight more is delivered and the round trip stays. Otherwise a queue
//! grows: the trial is undone, and none follows for [`BLOCKED`].

use core::time::Duration;

use units::{Rate, Timestamp};

/// Senders with windows of two bandwidth-delay products make round trips twice as long, and half of that more where they
/// overestimate their bandwidths: longest queue in halves of `RTprop`.
const OWN_QUEUES: u32 = 5;
/// The round of a trial that decides, counted from the one in which it began, and by how much more it has to deliver.
const JUDGED_ROUND: u64 = 2;
const GAIN: f64 = 1.2;
/// A sender is short of window below this share of the rate that was delivered before.
const STARVED: f64 = 0.9;
/// Time without a trial after one that was undone: the life of `RTprop`.
const BLOCKED: Duration = super::RTPROP_FILTER_LEN;

/// What an acknowledgement says of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub now: Timestamp,
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
    fn is_starved(&self, rtprop: Duration) -> bool {
        let longest_queue = (rtprop * OWN_QUEUES / 2).max(self.own_queue + self.own_queue / 4);
        self.is_window_full
            && self.present_rtt > longest_queue
            && self.rate < self.proven_rate.scale(STARVED)
    }
}

/// A round trip on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// `RTprop` before.
    before: Duration,
    /// `RTprop` on trial.
    adopted: Duration,
    /// Delivered rate when the trial began.
    rate: Rate,
    /// Shortest round trip and highest delivered rate of the trial's last round.
    shortest: Duration,
    fastest: Rate,
    /// Round in which it began.
    began: u64,
}

/// The trial of a longer path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longer {
    trial: Option<Trial>,
    blocked_until: Timestamp,
}

impl Longer {
    /// Takes an acknowledgement. Returns the value that `RTprop` takes now, if a trial begins or is undone.
    pub(super) fn on_ack(&mut self, seen: &Seen, rtprop: Duration) -> Option<Duration> {
        let Some(trial) = &mut self.trial else {
            let begins = seen.now >= self.blocked_until && seen.is_starved(rtprop);
            self.trial = begins.then_some(Trial {
                before: rtprop,
                adopted: seen.rtt,
                rate: seen.rate,
                shortest: Duration::MAX,
                fastest: Rate::ZERO,
                began: seen.round,
            });
            return begins.then_some(seen.rtt);
        };
        if rtprop < trial.adopted * 3 / 4 {
            // The path is short again.
            self.trial = None;
            return None;
        }
        // The round before that acknowledges packets that left before the window grew.
        if seen.round == trial.began + JUDGED_ROUND {
            trial.shortest = trial.shortest.min(seen.rtt);
            trial.fastest = trial.fastest.max(seen.rate);
        }
        if seen.round <= trial.began + JUDGED_ROUND {
            return None;
        }
        let Trial { before, adopted, rate, shortest, fastest, .. } = *trial;
        self.trial = None;
        let is_longer = shortest <= adopted + adopted / 4 && fastest > rate.scale(GAIN);
        if is_longer {
            return None;
        }
        self.blocked_until = seen.now + BLOCKED;
        Some(before)
    }
}
