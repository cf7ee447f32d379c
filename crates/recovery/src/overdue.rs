//! Overdue data: its acknowledgement is later than expected. The data may be lost or delayed, or
//! its acknowledgement lost or held back. The fraction that is lost depends on the return path and
//! on how often the peer acknowledges, so it is measured.

use units::{Mark, Timestamp};

/// Time constant of the moving average, in packets: several acknowledgements of up to ten packets
/// each.
const AVERAGE_PACKETS: f64 = 128.0;

/// Data with an overdue acknowledgement and no known loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overdue {
    /// Time of its first transmission.
    pub first_sent: Timestamp,
    /// The application's mark.
    pub mark: Option<Mark>,
}

/// Fate of overdue data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fates {
    /// Packets below this number were overdue, unless their fate was known earlier.
    below: u64,
    lost: f64,
}

impl Default for Fates {
    /// Assumes that half is lost.
    fn default() -> Self {
        Self { below: 0, lost: 0.5 }
    }
}

impl Fates {
    /// Notes that the packet is overdue, and all earlier packets of unknown fate.
    pub(crate) fn on_overdue(&mut self, number: u64) {
        self.below = self.below.max(number + 1);
    }

    /// Notes the fate of a packet that was not a copy.
    pub(crate) fn on_settled(&mut self, number: u64, is_lost: bool) {
        if number < self.below {
            self.lost += (f64::from(u8::from(is_lost)) - self.lost) / AVERAGE_PACKETS;
        }
    }

    /// Returns the fraction of recent overdue data that was lost.
    pub(crate) fn lost(&self) -> f64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_overdue_packets_count() {
        let mut fates = Fates::default();
        (0..100).for_each(|number| fates.on_settled(number, number % 2 == 0));
        assert!((fates.lost() - 0.5).abs() < 1e-9);
        fates.on_overdue(99);
        (0..100).for_each(|number| fates.on_settled(number, false));
        assert!((0.2..0.25).contains(&fates.lost()), "{}", fates.lost());
        fates.on_settled(100, true);
        assert!(fates.lost() < 0.25, "it was not overdue");
    }
}
