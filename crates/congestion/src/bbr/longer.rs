//! A path that becomes longer without a change of address: hand-over of a satellite or of a cell, another exit of a VPN.
//!
//! `RTprop` is the shortest round trip of ten seconds, and the window two bandwidth-delay products of it. On a path that
//! has become ten times as long the window is a fraction of what the stream needs until that round trip expires. So for a
//! sender that the application limits, while its window is full and round trips are longer than a queue of senders with
//! the same model can make them, the shortest of them takes the place of `RTprop` for a trial of two rounds. If more in
//! flight does not make the round trip longer, the path is, and the value stays. If it does, a queue grows: the trial is
//! undone, and none follows for [`BLOCKED`].

use core::time::Duration;

use units::Timestamp;

use crate::floor::MAX_FLOOR;

/// Two windows of two bandwidth-delay products each make a round trip this many times as long.
const OWN_QUEUES: u32 = 3;
/// Rounds of a trial.
const TRIAL_ROUNDS: u64 = 2;
/// Time without a trial after one that was undone: the life of `RTprop`.
const BLOCKED: Duration = super::RTPROP_FILTER_LEN;

/// What an acknowledgement says of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub now: Timestamp,
    /// Round trip of the newest packet that is acknowledged.
    pub rtt: Duration,
    /// Shortest round trip of the last half second to second.
    pub present_rtt: Duration,
    /// Count of rounds.
    pub round: u64,
    /// Whether the window held a sender back that the application limits.
    pub is_window_full: bool,
}

/// A round trip on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// `RTprop` before.
    before: Duration,
    adopted: Duration,
    /// Shortest round trip of the trial's last round.
    shortest: Duration,
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
        let Seen { now, rtt, present_rtt, round, is_window_full } = *seen;
        let Some(trial) = &mut self.trial else {
            // The floor of the window carries the stream over shorter round trips.
            let longest_queue = (rtprop * OWN_QUEUES).max(MAX_FLOOR * 3 / 4);
            let begins = is_window_full && present_rtt > longest_queue && now >= self.blocked_until;
            self.trial = begins.then_some(Trial {
                before: rtprop,
                adopted: present_rtt,
                shortest: Duration::MAX,
                began: round,
            });
            return begins.then_some(present_rtt);
        };
        // The round before that acknowledges packets that were sent before the window grew.
        if round >= trial.began + TRIAL_ROUNDS {
            trial.shortest = trial.shortest.min(rtt);
        }
        if round <= trial.began + TRIAL_ROUNDS {
            return None;
        }
        let Trial { before, adopted, shortest, .. } = *trial;
        self.trial = None;
        let is_queue = shortest > adopted + adopted / 4 && rtprop == adopted;
        if is_queue {
            self.blocked_until = now + BLOCKED;
        }
        is_queue.then_some(before)
    }
}
