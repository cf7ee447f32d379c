//! What every congestion controller is told and asked: the trait, its events, and the windows
//! that RFC 9002, section 7.2 prescribes.

use core::any::Any;
use core::fmt;
use core::time::Duration;

use units::{PacketNumber, Rate, Timestamp};

use crate::rate::RateSample;

/// The initial congestion window in bytes for datagrams of `mtu` bytes: ten datagrams, but no more
/// than the larger of 14720 bytes and two datagrams (RFC 9002, section 7.2).
pub fn initial_window(mtu: u16) -> u64 {
    let mtu = u64::from(mtu);
    (10 * mtu).min(14_720.max(2 * mtu))
}

/// The minimum congestion window in bytes: two datagrams (RFC 9002, section 7.2). BBR's is four.
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

/// What one ACK frame did; at least one packet in flight is newly acknowledged by it. Packets
/// that had been declared lost before are in none of its numbers.
#[derive(Clone, Copy, Debug)]
pub struct AckBatch {
    /// When the ACK arrived.
    pub now: Timestamp,
    /// Bytes newly acknowledged.
    pub acked_bytes: u64,
    /// The largest newly acknowledged packet number.
    pub largest_acked: PacketNumber,
    /// When that packet was sent.
    pub largest_sent_time: Timestamp,
    /// Bytes in flight before the ACK.
    pub in_flight_before: u64,
    /// Bytes in flight after it, and after the losses that it revealed.
    pub in_flight: u64,
    /// Estimates that include this ACK.
    pub rtt: RttSnapshot,
    /// The delivery-rate sample of this ACK.
    pub rate: Option<RateSample>,
    /// Whether the sender used its window: its last opportunity to send ended for want of window
    /// or pacer credit, not for want of data (RFC 9002, section 7.8; replicas do not count).
    pub cwnd_limited: bool,
    /// Whether data was written since the ACK before that comes at a rate of its own ([`units::Mark`]). The sender of such
    /// data does not exceed that rate for long, even if it is behind and always has something to send.
    pub source_paced: bool,
    /// Bytes declared lost by this ACK; [`Controller::on_packets_lost`] has reported them already.
    pub lost_bytes: u64,
    /// Packets newly reported as marked CE; a [`CongestionEvent`] has reported them already.
    pub ecn_ce: u64,
}

impl AckBatch {
    /// The round trip of the largest newly acknowledged packet, the peer's delay included. Unlike
    /// `rtt.latest` never older than this ACK.
    pub fn rtt_sample(&self) -> Duration {
        self.now.since(self.largest_sent_time)
    }
}

/// Why a congestion event is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionKind {
    /// Packets were declared lost (RFC 9002, section 7.3.2).
    Loss,
    /// The peer reports newly CE-marked packets (RFC 9002, section 7.1).
    Ecn,
    /// Persistent congestion is established (RFC 9002, section 7.6).
    Persistent,
}

/// A signal of congestion. Raised at most once per ACK or timer for each kind; a controller
/// decides itself whether the signal belongs to a round that it has answered already.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent {
    /// When it is raised.
    pub now: Timestamp,
    /// Bytes whose loss raised it; 0 for [`CongestionKind::Ecn`].
    pub lost_bytes: u64,
    /// When the largest lost packet was sent (for ECN, the largest newly acknowledged one).
    pub largest_lost_sent_time: Timestamp,
    /// That packet's number.
    pub largest_lost: PacketNumber,
    /// Bytes in flight after the loss.
    pub in_flight: u64,
    /// The latest round-trip time, the peer's delay included.
    pub rtt: Duration,
    /// What was noticed.
    pub kind: CongestionKind,
}

/// What is believed about a path before it was measured. `None` leaves a value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Congestion window in bytes; raised to the controller's minimum.
    pub window: Option<u64>,
    /// Pacing rate.
    pub rate: Option<Rate>,
    /// Round trip; used only until one is measured.
    pub rtt: Option<Duration>,
}

/// Limits from outside on what a controller may ask for; `None` is no limit. A lifted cap is left
/// at the controller's own speed of growth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// Largest pacing rate; one datagram per second always remains.
    pub rate: Option<Rate>,
    /// Largest window in bytes; the controller's minimum window always remains.
    pub in_flight: Option<u64>,
    /// What is drawn back first, before the two above bind.
    pub halfway: Halfway,
}

/// Equation 1 of AutoPlex (section 4.3): what a controller asks for above these is taken halfway back to them, what
/// is below stays as it is. It is applied to what each phase of a controller asks for, so for one that measures what it
/// sends it is a bound: BBR comes to rest at four thirds of `rate`, whatever the path has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Halfway {
    /// The pacing rate.
    pub rate: Option<Rate>,
    /// The window in bytes.
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
    /// Whether this cap, not the `window` bytes or the `rate` of a controller, is what limits it.
    pub(crate) fn binds(&self, window: u64, rate: Option<Rate>) -> bool {
        self.rate.is_some_and(|cap| rate.is_some_and(|rate| rate >= cap))
            || self.in_flight.is_some_and(|cap| window >= cap)
    }

    /// `window` bytes under this cap, with `minimum` below it.
    pub fn window(&self, window: u64, minimum: u64) -> u64 {
        let window = self.halfway.window(window);
        window.min(self.in_flight.unwrap_or(u64::MAX)).max(minimum)
    }

    /// `rate`, which may be unknown yet, under this cap, but one datagram of `mtu` bytes per second
    /// at least: a rate of zero would end the connection's sending for good.
    pub fn rate(&self, rate: Option<Rate>, mtu: u16) -> Option<Rate> {
        let rate = rate.map(|rate| self.halfway.rate(rate));
        let capped = rate.into_iter().chain(self.rate).min()?;
        Some(capped.max(Rate::from_bytes_per_second(mtu.into())))
    }
}

/// The rate of [`Controller::start`]: holds until a packet sent under it is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StartRate {
    rate: Option<Rate>,
    /// When the first packet under it left.
    since: Option<Timestamp>,
}

impl StartRate {
    /// `rate` holds from here on; `None` leaves things as they are.
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

/// A controller's state for logs (qlog's `recovery:metrics_updated` and
/// `recovery:congestion_state_updated`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Name of the state: `slow_start`, `conservative_slow_start`, `recovery` or
    /// `congestion_avoidance` for CUBIC; `startup`, `drain`, `probe_bw` or `probe_rtt` for BBR;
    /// `slow_start`, `drain`, `default` or `competitive` for Copa.
    pub state: &'static str,
    /// Congestion window in bytes, caps applied.
    pub window: u64,
    /// Pacing rate, caps applied.
    pub pacing_rate: Option<Rate>,
    /// Slow-start threshold in bytes; `None` while it is infinite and for controllers without one.
    pub ssthresh: Option<u64>,
    /// Estimated bottleneck bandwidth, by controllers that estimate it.
    pub bandwidth: Option<Rate>,
    /// The controller's own estimate of the round trip without queues.
    pub min_rtt: Option<Duration>,
    /// Copa's `RTTstanding`.
    pub standing_rtt: Option<Duration>,
    /// Copa's `δ`: one flow keeps about `1/δ` packets in the queue; above 0, at most 0.5.
    pub delta: Option<f64>,
    /// Copa's velocity, 1 or more.
    pub velocity: Option<f64>,
}

/// A congestion controller of one path. The order of calls stands in the crate's documentation.
/// Bytes are those of UDP payloads of packets that count in flight. [`Any`], so that its owner finds the type again that
/// it gave to a connection.
pub trait Controller: fmt::Debug + Send + Any {
    /// Packet `pn` of `bytes` bytes leaves at `now`; `in_flight` bytes were in flight before it.
    fn on_sent(&mut self, now: Timestamp, pn: PacketNumber, bytes: u64, in_flight: u64);

    /// An ACK newly acknowledged packets. One call per ACK, after its losses were reported.
    fn on_ack(&mut self, batch: &AckBatch);

    /// `bytes` bytes were declared lost and left the flight, now `in_flight`; with or without a
    /// congestion event, which would follow.
    fn on_packets_lost(&mut self, now: Timestamp, bytes: u64, in_flight: u64);

    /// Congestion is signalled.
    fn on_congestion_event(&mut self, event: &CongestionEvent);

    /// Every packet whose loss raised the last [`CongestionKind::Loss`] has arrived after all: they were
    /// reordered or delayed. A controller that keeps what it had before takes it back (RFC 9438,
    /// section 4.9); the others need not answer.
    fn on_spurious_congestion(&mut self, _now: Timestamp) {}

    /// Bytes that may be in flight.
    fn window(&self) -> u64;

    /// The rate at which packets leave; `None` while there is no round trip to derive it from, and
    /// the initial window may leave unpaced.
    fn pacing_rate(&self) -> Option<Rate>;

    /// Bytes that may leave at once; see [`burst`](crate::burst).
    fn send_quantum(&self) -> u64;

    /// Begins the start-up phase (again) with these values.
    fn start(&mut self, start: Start);

    /// Ends the start-up phase, which somebody else went through: the window is `window` bytes and goes on from there as after
    /// congestion. Up to `threshold` bytes it may still grow as in slow start; controllers that know no threshold
    /// leave that out.
    fn resume(&mut self, window: u64, threshold: u64);

    /// Replaces the caps.
    fn cap(&mut self, cap: Cap);

    /// The maximum datagram size is now `mtu` bytes.
    fn on_mtu(&mut self, mtu: u16);

    /// The algorithm's name, as [`Algorithm`](crate::Algorithm) spells it.
    fn name(&self) -> &'static str;

    /// The state, for logs.
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
