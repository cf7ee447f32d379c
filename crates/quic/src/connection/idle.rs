//! The idle timer (RFC 9000, section 10.1), from which keep-alive PINGs are timed too.

use core::time::Duration;
use units::Timestamp;

/// Time of the last sign of the peer, or of our first packet since that asks for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleTimer {
    reference: Timestamp,
    eliciting_since_received: bool,
}

impl IdleTimer {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { reference: now, eliciting_since_received: false }
    }

    /// Restarts the timer: a packet of the peer was processed.
    #[inline]
    pub(super) fn on_received(&mut self, now: Timestamp) {
        *self = Self::new(now);
    }

    /// Restarts the timer with the first ack-eliciting packet sent after a received one.
    #[inline]
    pub(super) fn on_eliciting_sent(&mut self, now: Timestamp) {
        if !self.eliciting_since_received {
            *self = Self { reference: now, eliciting_since_received: true };
        }
    }

    /// Returns when the connection has been idle too long. RFC 9000, section 10.1: after "at least
    /// three times the current Probe Timeout", but here at most twice the negotiated value, since
    /// the peer controls the probe time-out.
    pub(super) fn deadline(&self, timeout: Duration, pto: Duration) -> Timestamp {
        self.reference + timeout.max((3 * pto).min(2 * timeout))
    }

    /// Returns when to send a keep-alive PING. Leaves time for a second one if the first is lost.
    pub(super) fn keep_alive(&self, interval: Duration, timeout: Duration) -> Timestamp {
        self.reference + interval.min(timeout / 3)
    }
}
