//! A viewer's player that reports its buffer level, as the product's page does with beacons.

use core::time::Duration;

use qoe::{FrameKind, Player, Policy};
use units::Timestamp;

use super::view::FrameArrival;

/// Report interval of the page.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// A player that reports.
pub(crate) struct Reporter {
    player: Player,
    /// Number of arrivals played.
    seen: usize,
    due: Timestamp,
}

impl Reporter {
    /// Creates a player that requests its stream at `requested`.
    pub(crate) fn new(policy: Policy, requested: Timestamp) -> Self {
        Self { player: Player::new(policy, requested), seen: 0, due: requested + REPORT_INTERVAL }
    }

    /// Returns the buffered media at `at` if a report is due. The player has all `arrivals` until
    /// then.
    pub(crate) fn report(&mut self, at: Timestamp, arrivals: &[FrameArrival]) -> Option<Duration> {
        if at < self.due {
            return None;
        }
        self.due = at + REPORT_INTERVAL;
        for arrival in arrivals[self.seen..].iter().take_while(|arrival| arrival.at <= at) {
            let kind = if arrival.is_key { FrameKind::Key } else { FrameKind::Dependent };
            self.player.on_media(arrival.at, arrival.media_ms, kind);
            self.seen += 1;
        }
        Some(self.player.report(at).buffered)
    }
}
