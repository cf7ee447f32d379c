//! What loss does to BBR's window (draft-cardwell-iccrg-bbr-congestion-control-00, section
//! 4.2.3.4): one round of packet conservation, then growth back towards the target by what is
//! delivered, minus what is lost.
//!
//! The trap that this avoids: on a path with 5 to 10 % of random loss a round without loss is
//! rare. Were each lossy round a recovery of its own, conservation would never end and the window
//! would shrink by the loss of every round. Here a recovery ends with a round without loss and may
//! last for many rounds, but conserves only during its first; from the second round on the window
//! gains (1 − 2p) of what the flight carries per round and soon is at its target again, where the
//! pacing rate, not the window, decides.
//!
//! Random loss. Before the bottleneck it costs nothing but the lost packets: goodput is 1.01 to
//! 1.04 times (1 − p) × capacity at p = 5 and 10 %, since what is lost takes no capacity. Behind
//! the bottleneck it is 0.96 to 0.99 of that at 5 % and 0.91 to 1.00 at 10 %. The cause is the
//! model, not the window: the samples of a full bottleneck show (1 − p) × capacity, six phases of
//! eight send no faster, and then the bottleneck passes only that. The maximum over ten rounds
//! and the queue which the probe at 1.25 leaves bring back a part. It is the same to a thousandth
//! with recovery switched off, and without ProbeRTT (but for rates where 200 ms are many rounds).
//! Nothing within the draft's rules cures it; to count losses as delivered would take the loss of
//! an overflowing queue for bandwidth.

/// Where in a recovery the sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Conservation,
    Growth,
}

/// The recovery state machine; the window itself is the controller's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    stage: Stage,
    loss_in_round: bool,
}

impl Recovery {
    pub(super) const NONE: Self = Self { stage: Stage::Open, loss_in_round: false };

    pub(super) fn is_active(self) -> bool {
        self.stage != Stage::Open
    }

    pub(super) fn conserves(self) -> bool {
        self.stage == Stage::Conservation
    }

    /// Begins with a round of conservation.
    pub(super) fn enter_conservation(&mut self) {
        *self = Self { stage: Stage::Conservation, loss_in_round: true };
    }

    /// Begins with growth: in Startup, and when the window was cut to its minimum.
    pub(super) fn enter_growth(&mut self) {
        *self = Self { stage: Stage::Growth, loss_in_round: true };
    }

    pub(super) fn on_loss(&mut self) {
        self.loss_in_round = true;
    }

    /// Returns whether recovery is over with the last round: the window from before it is restored.
    pub(super) fn on_round_start(&mut self) -> bool {
        let lossy = core::mem::take(&mut self.loss_in_round);
        let is_over = self.stage == Stage::Growth && !lossy;
        self.stage = match self.stage {
            Stage::Conservation => Stage::Growth,
            _ if is_over => Stage::Open,
            stage => stage,
        };
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conservation_lasts_one_round_and_recovery_until_a_round_without_loss() {
        let mut r = Recovery::NONE;
        r.enter_conservation();
        assert!(r.conserves());
        assert!(!r.on_round_start());
        for _ in 0..20 {
            r.on_loss();
            assert!(!r.on_round_start());
            assert!(r.is_active() && !r.conserves());
        }
        assert!(r.on_round_start());
        assert!(!r.is_active());
    }
}
