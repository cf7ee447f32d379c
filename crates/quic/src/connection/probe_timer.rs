//! The probe timer (RFC 9002, section 6.2) with its back-off, and the tail PING.

use crate::detection::{Detection, LOSSY_PERIOD, MAX_BACKOFF, ProbeRule};
use crate::rtt::Rtt;
use core::time::Duration;
use units::Timestamp;

/// LSQUIC: tail loss probes before retransmission time-outs, and minimum values of both.
const TAIL_LOSS_PROBES: u32 = 2;
const MIN_TLP: Duration = Duration::from_millis(10);
const MIN_RTO: Duration = Duration::from_millis(200);

/// Back-off of the probe time-out, and the time of the tail PING.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeTimer {
    /// Probe time-outs since the last acknowledgement.
    pto_count: u32,
    /// When to send a PING if nothing follows the last packet ([`crate::Detection::tail`]).
    tail: Option<Timestamp>,
    /// Time at which a packet was last declared lost.
    last_loss: Option<Timestamp>,
}

impl ProbeTimer {
    /// Returns the probe time-outs since the last acknowledgement.
    pub(super) fn count(&self) -> u32 {
        self.pto_count
    }

    /// Returns true after a probe time-out without an acknowledgement.
    #[inline]
    pub(super) fn is_backed_off(&self) -> bool {
        self.pto_count > 0
    }

    #[inline]
    pub(super) fn reset_backoff(&mut self) {
        self.pto_count = 0;
    }

    pub(super) fn on_timeout(&mut self) {
        self.pto_count += 1;
    }

    /// Returns the current probe time-out and its back-off multiplier. `alone_delay` is the peer's
    /// maximum acknowledgement delay if a single ack-eliciting 1-RTT packet is in flight.
    pub(super) fn timeout(
        &self,
        rule: ProbeRule,
        rtt: &Rtt,
        alone_delay: Option<Duration>,
    ) -> (Duration, u32) {
        match rule {
            ProbeRule::Pto => (rtt.pto_base(), 1 << self.pto_count.min(MAX_BACKOFF)),
            ProbeRule::TlpThenRto if self.pto_count < TAIL_LOSS_PROBES => {
                let timeout = (rtt.smoothed() * 2).max(MIN_TLP);
                let alone = alone_delay.map(|delay| rtt.smoothed() * 3 / 2 + delay);
                (alone.map_or(timeout, |alone| timeout.max(alone)), 1)
            }
            ProbeRule::TlpThenRto => {
                let timeout = (rtt.smoothed() + rtt.variance() * 4).max(MIN_RTO);
                (timeout, 1 << (self.pto_count - TAIL_LOSS_PROBES).min(MAX_BACKOFF))
            }
        }
    }

    /// Returns the time-out with back-off, at most the longest wait of the rules.
    pub(super) fn capped(&self, timeout: Duration, backoff: u32, rules: &Detection) -> Duration {
        let interval = timeout * backoff;
        rules.longest_wait(timeout, self.pto_count).map_or(interval, |most| interval.min(most))
    }

    /// A packet was declared lost.
    pub(super) fn on_loss(&mut self, now: Timestamp) {
        self.last_loss = Some(now);
    }

    /// Returns true within [`LOSSY_PERIOD`] after a loss.
    #[inline]
    pub(super) fn is_lossy(&self, at: Timestamp) -> bool {
        self.last_loss.is_some_and(|last| at.since(last) < LOSSY_PERIOD)
    }

    /// Sets or clears the time of the tail PING.
    #[inline]
    pub(super) fn set_tail(&mut self, at: Option<Timestamp>) {
        self.tail = at;
    }

    pub(super) fn tail(&self) -> Option<Timestamp> {
        self.tail
    }

    /// Clears the time of the tail PING if it has come. Returns true then.
    pub(super) fn take_tail(&mut self, now: Timestamp) -> bool {
        self.tail.take_if(|at| now >= *at).is_some()
    }
}
