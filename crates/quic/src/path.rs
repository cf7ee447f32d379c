//! A network path: the peer's address and everything that is measured or granted per path
//! (RFC 9000, sections 8 and 9): validation, the anti-amplification limit, round-trip time,
//! congestion control, datagram size, ECN.

use crate::config::TransportConfig;
use crate::ecn::EcnState;
use crate::mtud::Mtud;
use crate::rtt::Rtt;
use congestion::{Controller, Pacer, RateSampler, RttSnapshot, burst};
use std::net::{IpAddr, SocketAddr};
use units::{Rate, Timestamp};

/// Where a datagram came from, or goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The peer.
    pub remote: SocketAddr,
    /// Our address, where the socket knows it.
    pub local: Option<IpAddr>,
}

/// A PATH_CHALLENGE under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge {
    pub data: [u8; 8],
    /// The frame is to be sent (again).
    pub due: bool,
    /// When it is sent again.
    pub retry_at: Timestamp,
    /// When validation has failed.
    pub gives_up_at: Timestamp,
}

/// The smallest datagram worth sending.
const MIN_DATAGRAM: u64 = 100;

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    /// Tells packets of this path from those of earlier ones.
    pub generation: u8,
    pub addresses: Addresses,
    pub validated: bool,
    /// UDP payload bytes received from, and sent to, an address not validated yet.
    pub received: u64,
    pub sent: u64,
    pub rtt: Rtt,
    pub controller: Box<dyn Controller>,
    pub sampler: RateSampler,
    pub pacer: Pacer,
    pub in_flight: u64,
    /// The last opportunity to send ended for want of window or pacer credit.
    pub limited: bool,
    pub mtud: Mtud,
    pub ecn: EcnState,
    pub challenge: Option<Challenge>,
}

impl Path {
    pub(crate) fn new(
        config: &TransportConfig,
        addresses: Addresses,
        generation: u8,
        seed: u64,
    ) -> Self {
        Self {
            generation,
            addresses,
            validated: false,
            received: 0,
            sent: 0,
            rtt: Rtt::new(config.initial_rtt),
            controller: config.congestion.build(config.initial_mtu, seed),
            sampler: RateSampler::new(),
            pacer: Pacer::new(),
            in_flight: 0,
            limited: false,
            mtud: Mtud::new(config.initial_mtu, config.max_mtu),
            ecn: EcnState::new(config.ecn),
            challenge: None,
        }
    }

    /// Bytes that may be sent before the peer's address is validated: RFC 9000, section 8.1,
    /// "MUST NOT send more than three times as many bytes as the number of bytes they have
    /// received".
    #[inline]
    pub(crate) fn amplification_budget(&self) -> u64 {
        if self.validated {
            return u64::MAX;
        }
        let budget = (3 * self.received).saturating_sub(self.sent);
        // A remainder that holds no packet is as good as nothing.
        if budget < MIN_DATAGRAM { 0 } else { budget }
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
