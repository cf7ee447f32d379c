//! Whether Startup has filled the pipe (draft-cardwell-iccrg-bbr-congestion-control-00, section
//! 4.3.2.2): the bandwidth no longer grows.

use units::Rate;

/// The pipe is full after this many rounds that did not raise the bandwidth by a quarter.
const ROUNDS: u8 = 3;
const GROWTH: f64 = 1.25;

/// The growth of the bandwidth from round to round, until the pipe is full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    bandwidth: Rate,
    rounds: u8,
    is_filled: bool,
}

impl FullPipe {
    /// Somebody else has filled it.
    pub(super) const FILLED: Self = Self { bandwidth: Rate::ZERO, rounds: 0, is_filled: true };

    pub(super) fn is_filled(self) -> bool {
        self.is_filled
    }

    /// `BBRCheckFullPipe`: a round has begun with a sample that shows what the path can do;
    /// `bandwidth` is the maximum so far.
    pub(super) fn on_round(&mut self, bandwidth: Option<Rate>) {
        if self.is_filled {
            return;
        }
        let bandwidth = bandwidth.unwrap_or(Rate::ZERO);
        if bandwidth >= self.bandwidth.scale(GROWTH) {
            self.bandwidth = bandwidth;
            self.rounds = 0;
        } else {
            self.rounds += 1;
            self.is_filled = self.rounds >= ROUNDS;
        }
    }
}
