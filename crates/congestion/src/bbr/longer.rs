//! A path that becomes longer without a change of address: hand-over of a satellite or of a cell, another exit of a VPN.
//!
//! `RTprop` is the shortest round trip of ten seconds, and the window two bandwidth-delay products of it. On a path that
//! has become ten times as long the window is a fraction of what the stream needs until that round trip expires. So for a
//! sender that the application limits, while its window is full and round trips are longer than a queue of senders with
//! the same model can make them, the shortest of them takes the place of `RTprop` on trial. If more in flight does not
//! make the round trip longer, the path is, and the value stays. If it does, a queue grows: the trial is undone, and none
//! follows for [`BLOCKED`].

use core::time::Duration;

use units::Timestamp;

/// Longest round trip over which the window's floor carries the stream. Longer ones need a trial.
pub(super) const LONGEST_FLOOR: Duration = Duration::from_millis(200);
/// Senders with windows of two bandwidth-delay products make round trips twice as long, and half of that more where they
/// overestimate their bandwidths: longest queue in halves of `RTprop`.
const OWN_QUEUES: u32 = 5;
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
    /// `RTprop` now: the shortest round trip of packets that left before the window grew.
    adopted: Duration,
    /// Shortest round trip of the present round.
    shortest: Duration,
    round: u64,
    /// Round in which the trial began.
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
            let longest_queue = (rtprop * OWN_QUEUES / 2).max(LONGEST_FLOOR * 3 / 4);
            let begins = is_window_full && present_rtt > longest_queue && now >= self.blocked_until;
            self.trial = begins.then_some(Trial {
                before: rtprop,
                adopted: present_rtt,
                shortest: Duration::MAX,
                round,
                began: round,
            });
            return begins.then_some(present_rtt);
        };
        if rtprop < trial.adopted * 3 / 4 {
            // The path is short again.
            self.trial = None;
            return None;
        }
        if round == trial.round {
            trial.shortest = trial.shortest.min(rtt);
            return None;
        }
        let ended = core::mem::replace(&mut trial.shortest, rtt);
        trial.round = round;
        match round - trial.began {
            0 | 1 => None,
            // What left before the window grew: both directions may not have become longer at once.
            2 => {
                trial.adopted = trial.adopted.max(ended);
                Some(trial.adopted)
            }
            _ => {
                let is_queue = ended > trial.adopted + trial.adopted / 4;
                let before = trial.before;
                self.trial = None;
                if is_queue {
                    self.blocked_until = now + BLOCKED;
                }
                is_queue.then_some(before)
            }
        }
    }
}
