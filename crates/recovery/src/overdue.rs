//! Data whose acknowledgement is overdue: lost, or on its way, or arrived while the acknowledgement was lost or held
//! back. Which of these it mostly is goes by the path back and by the peer, who may acknowledge each second packet or
//! each tenth, and is measured.

use units::{Mark, Timestamp};

/// Of so many packets the share is a mean: those of some acknowledgements, one of which may stand for ten packets.
const PACKETS: f64 = 128.0;

/// Data whose acknowledgement is overdue, and which is not known to be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overdue {
    /// When it was sent for the first time.
    pub first_sent: Timestamp,
    /// What the application said of it.
    pub mark: Option<Mark>,
}

/// What became of overdue data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fates {
    /// Packets below this number were overdue unless their fate was known before.
    below: u64,
    lost: f64,
}

impl Default for Fates {
    /// As many are expected to be lost as not.
    fn default() -> Self {
        Self { below: 0, lost: 0.5 }
    }
}

impl Fates {
    /// This packet is overdue, and so were those before it whose fate is not known.
    pub(crate) fn on_overdue(&mut self, number: u64) {
        self.below = self.below.max(number + 1);
    }

    /// The fate of a packet that was no copy is known.
    pub(crate) fn on_settled(&mut self, number: u64, is_lost: bool) {
        if number < self.below {
            self.lost += (f64::from(u8::from(is_lost)) - self.lost) / PACKETS;
        }
    }

    /// The share that was lost, lately.
    pub(crate) fn lost(&self) -> f64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_settled_in_time_says_nothing_and_the_rest_counts() {
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
