//! The interface of congestion controllers: the trait, its events, and the windows of RFC 9002,
//! section 7.2.

use core::any::Any;
use core::fmt;
use core::time::Duration;

use units::{PacketNumber, Rate, Timestamp};

use crate::rate::RateSample;

/// Returns the initial congestion window in bytes for datagrams of `mtu` bytes: ten datagrams, but
/// at most the larger of 14720 bytes and two datagrams (RFC 9002, section 7.2).
pub fn initial_window(mtu: u16) -> u64 {
    let mtu = u64::from(mtu);
    (10 * mtu).min(14_720.max(2 * mtu))
}

/// Returns the minimum congestion window in bytes: two datagrams (RFC 9002, section 7.2). BBR's is
/// four.
pub fn minimum_window(mtu: u16) -> u64 {
    2 * u64::from(mtu)
}

/// The round-trip estimates of RFC 9002, section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttSnapshot {
    /// `latest_rtt`.
    pub latest: Duration,
    /// `smoothed_rtt`.
    pub smoothed: Duration,
    /// `min_rtt`.
    pub min: Duration,
    /// `rttvar`.
    pub variance: Duration,
}

/// Effects of an ACK frame that newly acknowledges at least one packet in flight. Packets that were
/// declared lost earlier are not counted.
#[derive(Clone, Copy, Debug)]
pub struct AckBatch {
    /// Time of arrival.
    pub now: Timestamp,
    /// Bytes newly acknowledged.
    pub acked_bytes: u64,
    /// Largest newly acknowledged packet number.
    pub largest_acked: PacketNumber,
    /// Time when that packet was sent.
    pub largest_sent_time: Timestamp,
    /// Bytes in flight before the ACK.
    pub in_flight_before: u64,
    /// Bytes in flight after the ACK and the losses it revealed.
    pub in_flight: u64,
    /// Round-trip estimates, including this ACK.
    pub rtt: RttSnapshot,
    /// Delivery-rate sample of this ACK.
    pub rate: Option<RateSample>,
    /// Whether the sender was limited by its window: its last send opportunity ended because of
    /// window or pacer, not for lack of data (RFC 9002, section 7.8; replicas do not count).
    pub cwnd_limited: bool,
    /// Whether data with a pace of its own ([`units::Mark`]) was written since the last ACK. A
    /// sender of such data does not exceed that pace for long, even if it lags and always has
    /// something to send.
    pub source_paced: bool,
    /// Bytes declared lost by this ACK, already reported to [`Controller::on_packets_lost`].
    pub lost_bytes: u64,
    /// Packets newly reported as CE-marked, already reported by a [`CongestionEvent`].
    pub ecn_ce: u64,
}

impl AckBatch {
    /// Returns the round trip of the largest newly acknowledged packet, including the peer's delay.
    /// Unlike `rtt.latest`, it is never older than this ACK.
    pub fn rtt_sample(&self) -> Duration {
        self.now.since(self.largest_sent_time)
    }
}

/// Cause of a congestion event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionKind {
    /// Packets were declared lost (RFC 9002, section 7.3.2).
    Loss,
    /// The peer reports newly CE-marked packets (RFC 9002, section 7.1).
    Ecn,
    /// Persistent congestion was established (RFC 9002, section 7.6).
    Persistent,
}

/// A signal of congestion. Raised at most once per ACK or timer for each kind. The controller
/// decides whether it has already responded to the same round.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent {
    /// Time of the event.
    pub now: Timestamp,
    /// Lost bytes; 0 for [`CongestionKind::Ecn`].
    pub lost_bytes: u64,
    /// Time when the largest lost packet was sent (for ECN, the largest newly acknowledged one).
    pub largest_lost_sent_time: Timestamp,
    /// Number of that packet.
    pub largest_lost: PacketNumber,
    /// Bytes in flight after the loss.
    pub in_flight: u64,
    /// Latest round-trip time, including the peer's delay.
    pub rtt: Duration,
    /// Cause of the event.
    pub kind: CongestionKind,
}

/// Assumptions about a path before it is measured. `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Congestion window in bytes, raised to the controller's minimum.
    pub window: Option<u64>,
    /// Pacing rate.
    pub rate: Option<Rate>,
    /// Round-trip time until one is measured.
    pub rtt: Option<Duration>,
}

/// External caps on window and rate; `None` is no cap. After a cap is lifted, the controller grows
/// at its own speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// Maximum pacing rate; one datagram per second is always allowed.
    pub rate: Option<Rate>,
    /// Maximum window in bytes; the controller's minimum window is always allowed.
    pub in_flight: Option<u64>,
    /// Reduction applied before the two caps above.
    pub halfway: Halfway,
}

/// Equation 1 of AutoPlex (section 4.3): the part of a controller's demand above these values is
/// halved. It applies to the demand of each phase, so it bounds controllers that measure their own
/// sending rate: BBR settles at 4/3 of `rate` on any faster path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Halfway {
    /// Pacing rate.
    pub rate: Option<Rate>,
    /// Window in bytes.
    pub in_flight: Option<u64>,
}

impl Halfway {
    fn window(&self, own: u64) -> u64 {
        self.in_flight.filter(|last| own > *last).map_or(own, |last| last + (own - last) / 2)
    }

    fn rate(&self, own: Rate) -> Rate {
        let last = self.rate.filter(|last| own > *last).map(Rate::as_bps);
        last.map_or(own, |last| Rate::from_bps(last + (own.as_bps() - last) / 2))
    }
}

impl Cap {
    /// Returns whether this cap limits a controller that asks for `window` bytes and `rate`.
    pub(crate) fn binds(&self, window: u64, rate: Option<Rate>) -> bool {
        self.rate.is_some_and(|cap| rate.is_some_and(|rate| rate >= cap))
            || self.in_flight.is_some_and(|cap| window >= cap)
    }

    /// Applies the cap to `window` bytes, but not below `minimum`.
    pub fn window(&self, window: u64, minimum: u64) -> u64 {
        let window = self.halfway.window(window);
        window.min(self.in_flight.unwrap_or(u64::MAX)).max(minimum)
    }

    /// Applies the cap to `rate`, but not below one datagram of `mtu` bytes per second: a rate of
    /// zero would stop the connection for good.
    pub fn rate(&self, rate: Option<Rate>, mtu: u16) -> Option<Rate> {
        let rate = rate.map(|rate| self.halfway.rate(rate));
        let capped = rate.into_iter().chain(self.rate).min()?;
        Some(capped.max(Rate::from_bytes_per_second(mtu.into())))
    }
}

/// Pacing rate of [`Controller::start`], valid until a packet sent at it is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StartRate {
    rate: Option<Rate>,
    /// Time when the first packet was sent at it.
    since: Option<Timestamp>,
}

impl StartRate {
    /// Sets the rate; `None` changes nothing.
    pub(crate) fn set(&mut self, rate: Option<Rate>) {
        if rate.is_some() {
            *self = Self { rate, since: None };
        }
    }

    pub(crate) fn on_sent(&mut self, now: Timestamp) {
        self.since.get_or_insert(now);
    }

    pub(crate) fn on_ack(&mut self, batch: &AckBatch) {
        if self.since.is_some_and(|since| batch.largest_sent_time >= since) {
            self.rate = None;
        }
    }

    pub(crate) fn get(&self) -> Option<Rate> {
        self.rate
    }
}

/// State of a controller for logs (qlog's `recovery:metrics_updated` and
/// `recovery:congestion_state_updated`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Name of the state: `slow_start`, `conservative_slow_start`, `recovery` or
    /// `congestion_avoidance` for CUBIC; `startup`, `drain`, `probe_bw` or `probe_rtt` for BBR;
    /// `slow_start`, `drain`, `default` or `competitive` for Copa.
    pub state: &'static str,
    /// Congestion window in bytes, after caps.
    pub window: u64,
    /// Pacing rate, after caps.
    pub pacing_rate: Option<Rate>,
    /// Slow-start threshold in bytes; `None` while infinite and for controllers without one.
    pub ssthresh: Option<u64>,
    /// Estimated bottleneck bandwidth, if the controller estimates it.
    pub bandwidth: Option<Rate>,
    /// Estimated round-trip time without queues.
    pub min_rtt: Option<Duration>,
    /// Copa's `RTTstanding`.
    pub standing_rtt: Option<Duration>,
    /// Copa's `δ`: one flow keeps about `1/δ` packets in the queue. Above 0, at most 0.5.
    pub delta: Option<f64>,
    /// Copa's velocity, at least 1.
    pub velocity: Option<f64>,
}

/// The congestion controller of a path. The crate's documentation has the order of calls. Bytes are
/// UDP payloads of packets that count as in flight. [`Any`] lets the owner recover the concrete
/// type.
pub trait Controller: fmt::Debug + Send + Any {
    /// Handles the transmission of packet `pn` of `bytes` bytes; `in_flight` excludes it.
    fn on_sent(&mut self, now: Timestamp, pn: PacketNumber, bytes: u64, in_flight: u64);

    /// Handles an ACK of new packets. Called once per ACK, after its losses.
    fn on_ack(&mut self, batch: &AckBatch);

    /// Handles the loss of `bytes` bytes; `in_flight` excludes them. A congestion event may follow.
    fn on_packets_lost(&mut self, now: Timestamp, bytes: u64, in_flight: u64);

    /// Handles a signal of congestion.
    fn on_congestion_event(&mut self, event: &CongestionEvent);

    /// Handles the late arrival of all packets of the last [`CongestionKind::Loss`]: they were
    /// reordered or delayed. Controllers that keep their previous state restore it (RFC 9438,
    /// section 4.9); others do nothing.
    fn on_spurious_congestion(&mut self, _now: Timestamp) {}

    /// Returns the congestion window in bytes.
    fn window(&self) -> u64;

    /// Returns the pacing rate; `None` without a round-trip time, when the initial window may leave
    /// unpaced.
    fn pacing_rate(&self) -> Option<Rate>;

    /// Returns the bytes that may leave at once; see [`burst`](crate::burst).
    fn send_quantum(&self) -> u64;

    /// Enters or re-enters the startup phase with these values.
    fn start(&mut self, start: Start);

    /// Ends a startup phase that was conducted from outside: continues with `window` bytes as after
    /// congestion. Below `threshold` bytes the window may still grow as in slow start; controllers
    /// without a threshold ignore it.
    fn resume(&mut self, window: u64, threshold: u64);

    /// Replaces the caps.
    fn cap(&mut self, cap: Cap);

    /// Returns the multiplicative decrease: the share of the window that remains after a loss, from
    /// 0.5 to 1. Startup algorithms retreat by it (RFC 9959, section 2.2). The default, 0.5, is
    /// RFC 9959's for controllers without such a factor.
    fn beta(&self) -> f64 {
        0.5
    }

    /// Sets the maximum datagram size to `mtu` bytes.
    fn on_mtu(&mut self, mtu: u16);

    /// Returns the name of the algorithm, as in [`Algorithm`](crate::Algorithm).
    fn name(&self) -> &'static str;

    /// Returns the state for logs.
    fn snapshot(&self) -> Snapshot;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_windows_follow_section_7_2() {
        assert_eq!(initial_window(1_200), 12_000);
        assert_eq!(initial_window(1_472), 14_720);
        assert_eq!(initial_window(1_500), 14_720);
        assert_eq!(initial_window(9_000), 18_000);
    }
}
