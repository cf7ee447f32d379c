//! A network path: the peer's address and all per-path state (RFC 9000, sections 8 and 9):
//! validation, anti-amplification limit, round-trip time, congestion control, datagram size, ECN.

use crate::config::TransportConfig;
use crate::ecn::PathEcn;
use crate::mtud::Mtud;
use crate::presence::Presence;
use crate::reordering::Reordering;
use crate::rtt::Rtt;
use congestion::{Cap, Controller, Pacer, RateSample, RateSampler, RttSnapshot, burst};
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use units::{Rate, Timestamp};

/// Source or destination of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The peer.
    pub remote: SocketAddr,
    /// Our address, where the socket knows it.
    pub local: Option<IpAddr>,
    /// The caller's socket. The transport returns it with datagrams to send there. Only
    /// authenticated packets move a path to another socket.
    pub socket: u16,
}

impl Addresses {
    /// Returns the addresses of a peer for a caller with one socket.
    pub const fn of(remote: SocketAddr) -> Self {
        Self { remote, local: None, socket: 0 }
    }
}

/// A PATH_CHALLENGE under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge {
    /// Frame data. The first is sent in a datagram below 1,200 bytes, and its answer proves the
    /// address. The second is sent in 1,200 bytes, and its answer proves that the path carries
    /// them.
    pub data: [[u8; 8]; 2],
    /// The frame must be sent once the anti-amplification limit permits it.
    pub due: bool,
    /// Time of the next retransmission.
    pub retry_at: Timestamp,
    /// From its next sending to the one after that.
    pub wait: Duration,
    /// Time at which validation fails.
    pub gives_up_at: Timestamp,
    /// Time of its first sending.
    pub sent: Option<Timestamp>,
}

impl Challenge {
    /// The frame left.
    pub(crate) fn on_sent(&mut self, now: Timestamp) {
        self.due = false;
        self.sent.get_or_insert(now);
        self.retry_at = now + self.wait;
        self.wait *= 2;
    }

    /// Returns the time of the next action.
    pub(crate) fn deadline(&self) -> Timestamp {
        if self.due { self.gives_up_at } else { self.retry_at.min(self.gives_up_at) }
    }
}

/// Minimum budget of an unvalidated address for frames other than path validation. Holds any
/// control frame, and headers do not dominate.
pub(crate) const MIN_BUDGET: u64 = 200;

/// An address of the peer and the state of its validation (RFC 9000, section 8).
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub addresses: Addresses,
    pub validated: bool,
    /// UDP payload bytes received from, and sent to, an address not validated yet.
    pub received: u64,
    pub sent: u64,
    pub challenge: Option<Box<Challenge>>,
}

impl Standing {
    /// An address seen for the first time.
    pub(crate) fn new(addresses: Addresses) -> Self {
        Self { addresses, validated: false, received: 0, sent: 0, challenge: None }
    }

    /// Returns true after validation, the one in full datagrams included.
    pub(crate) fn is_proven(&self) -> bool {
        self.validated && self.challenge.is_none()
    }

    /// Returns true if validation has failed.
    pub(crate) fn has_failed(&self, now: Timestamp) -> bool {
        match &self.challenge {
            Some(challenge) => now >= challenge.gives_up_at,
            None => !self.validated,
        }
    }

    /// Takes the data of a PATH_RESPONSE. If it matches the challenge to this address, returns the
    /// time since the challenge left first. `again` is the time-out of the challenge in a full
    /// datagram.
    pub(crate) fn on_response(
        &mut self,
        now: Timestamp,
        data: [u8; 8],
        again: Duration,
    ) -> Option<Duration> {
        let challenge = self.challenge.as_mut()?;
        let ([small, full], delay) = (challenge.data, now.since(challenge.sent?));
        if data == full {
            self.challenge = None;
        } else if data == small && !self.validated {
            // Section 8.2.1: "To ensure that the path MTU is large enough, the endpoint MUST
            // perform a second path validation by sending a PATH_CHALLENGE frame in a datagram of
            // at least 1200 bytes."
            challenge.due = true;
            challenge.gives_up_at = now + 3 * challenge.wait.max(again);
        } else {
            return None;
        }
        Some(delay)
    }
}

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    /// Mark that identifies the path's packets.
    pub generation: u8,
    /// Number of the newest 1-RTT packet sent on it.
    pub last_sent: Option<u64>,
    /// The peer's address. Paths survive a change of the port.
    pub standing: Standing,
    pub rtt: Rtt,
    pub controller: Box<dyn Controller>,
    pub sampler: RateSampler,
    pub rate_peak: RatePeak,
    pub pacer: Pacer,
    pub in_flight: u64,
    /// The last opportunity to send ended for want of window or pacer credit.
    pub limited: bool,
    /// Data of a live stream was written since the last ACK, as marks say.
    pub source_paced: bool,
    pub mtud: Mtud,
    pub ecn: PathEcn,
    pub reordering: Reordering,
    pub presence: Presence,
}

/// The highest rate at which packets were delivered lately.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RatePeak(Rate);

impl RatePeak {
    /// Decay per lower sample: to a third in 64 acknowledgements.
    const RATE_DECAY: f64 = 1.0 / 64.0;

    /// Updates the rate. Samples of an application-limited sender can only raise it.
    pub(crate) fn update(&mut self, sample: &RateSample) {
        let fallen =
            if sample.is_app_limited { self.0 } else { self.0.scale(1.0 - Self::RATE_DECAY) };
        self.0 = sample.delivery_rate.max(fallen);
    }

    pub(crate) fn get(self) -> Rate {
        self.0
    }
}

impl Path {
    pub(crate) fn new(
        config: &TransportConfig,
        cap: Cap,
        standing: Standing,
        generation: u8,
        seed: u64,
    ) -> Self {
        let mut controller = (config.congestion)(config.initial_mtu, seed);
        controller.cap(cap);
        Self {
            generation,
            last_sent: None,
            standing,
            rtt: Rtt::new(config.initial_rtt),
            controller,
            sampler: RateSampler::new(),
            rate_peak: RatePeak::default(),
            pacer: Pacer::new(),
            in_flight: 0,
            limited: false,
            source_paced: false,
            mtud: Mtud::new(config.initial_mtu, config.max_mtu),
            ecn: PathEcn::new(config.ecn),
            reordering: Reordering::default(),
            presence: Presence::default(),
        }
    }

    /// Bytes that may be sent before the peer's address is validated: RFC 9000, section 8.1,
    /// "MUST NOT send more than three times as many bytes as the number of bytes they have
    /// received". All of it is path validation's; see [`Path::budget`] for the rest.
    #[inline]
    pub(crate) fn amplification_limit(&self) -> u64 {
        let Standing { validated, received, sent, .. } = self.standing;
        if validated { u64::MAX } else { (3 * received).saturating_sub(sent) }
    }

    /// Part of [`Path::amplification_limit`] for data, control frames and acknowledgements. A
    /// remainder too small for a packet counts as zero.
    #[inline]
    pub(crate) fn budget(&self) -> u64 {
        let limit = self.amplification_limit();
        if limit < MIN_BUDGET { 0 } else { limit }
    }

    /// Bytes that the congestion window still lets go.
    #[inline]
    pub(crate) fn window_room(&self) -> u64 {
        self.controller.window().saturating_sub(self.in_flight)
    }

    /// The rate that the pacer keeps; none while nothing is known.
    #[inline]
    pub(crate) fn pacing_rate(&self) -> Rate {
        self.controller.pacing_rate().unwrap_or(Rate::MAX)
    }

    /// Bytes that the pacer lets go now.
    #[inline]
    pub(crate) fn pacing_budget(&mut self, now: Timestamp) -> u64 {
        let rate = self.controller.pacing_rate();
        let burst = burst(rate, self.mtud.current()).max(self.controller.send_quantum());
        self.pacer.budget(now, rate.unwrap_or(Rate::MAX), burst)
    }

    pub(crate) fn rtt_snapshot(&self) -> RttSnapshot {
        RttSnapshot {
            latest: self.rtt.latest(),
            smoothed: self.rtt.smoothed(),
            min: self.rtt.min(),
            variance: self.rtt.variance(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_rate_counts_in_time_and_that_of_a_limited_sender_never() {
        let mut peak = RatePeak::default();
        let mut after = |samples, mbps, is_app_limited| {
            let delivery_rate = Rate::from_mbps(mbps);
            let (interval, delivered, prior_delivered) = (Duration::from_secs(1), 0, 0);
            let sample =
                RateSample { delivery_rate, interval, delivered, prior_delivered, is_app_limited };
            (0..samples).for_each(|_| peak.update(&sample));
            peak.get().as_mbps_f64()
        };
        assert_eq!(after(1, 10, true), 10.0);
        assert_eq!(after(1_000, 2, true), 10.0);
        let fallen = after(64, 2, false);
        assert!((3.5..4.0).contains(&fallen), "{fallen}");
        assert_eq!(after(1_000, 2, false), 2.0);
        assert_eq!(after(1, 3, false), 3.0);
    }
}
