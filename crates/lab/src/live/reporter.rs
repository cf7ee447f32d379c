//! A viewer's player that says what it has buffered, as the product's page does by its beacons.

use core::time::Duration;

use qoe::{FrameKind, Player, Policy};
use units::Timestamp;

use super::view::Arrival;

/// How often the page does that.
const EVERY: Duration = Duration::from_secs(5);

/// A player that reports.
pub(crate) struct Reporter {
    player: Player,
    /// Arrivals that it has.
    seen: usize,
    due: Timestamp,
}

impl Reporter {
    /// A player that asks for its stream at that time.
    pub(crate) fn new(policy: Policy, requested: Timestamp) -> Self {
        Self { player: Player::new(policy, requested), seen: 0, due: requested + EVERY }
    }

    /// The media that it had buffered at `at`, when that is due; of `arrivals` it has those until then.
    pub(crate) fn report(&mut self, at: Timestamp, arrivals: &[Arrival]) -> Option<Duration> {
        if at < self.due {
            return None;
        }
        self.due = at + EVERY;
        for arrival in arrivals[self.seen..].iter().take_while(|arrival| arrival.at <= at) {
            let kind = if arrival.is_key { FrameKind::Key } else { FrameKind::Dependent };
            self.player.on_media(arrival.at, arrival.media_ms, kind);
            self.seen += 1;
        }
        Some(self.player.report(at).buffered)
    }
}
