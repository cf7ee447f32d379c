//! CUBIC as in LSQUIC (`lsquic_cubic.c` and `lsquic_send_ctl.c`, versions of 2021 to 2023), the
//! transport of AutoRec's paper. For its figures only: it is no controller for servers.
//!
//! Differences from [`Cubic`](crate::Cubic), which follows RFC 9438:
//! - The initial window is 32 packets, and slow start has no HyStart++.
//! - A congestion event cuts a fifth of the window (RFC: 30 %). The Reno-friendly window then grows
//!   by 0.8 packets per round trip (RFC: 0.53, then 1).
//! - The window at the threshold counts as slow start, so that the first ACK after a cut adds a
//!   packet. Slow start adds a packet for each acknowledged one, used or not.
//! - The window also grows during recovery. One event is answered for all packets sent before it.
//! - The curve depends on time alone: the window is the larger of curve and Reno at each ACK, and
//!   idle time restarts the curve instead of pausing it.
//! - A retransmission time-out sets 2 packets and half of the window as the threshold. Persistent
//!   congestion (RFC 9002, section 7.6) stands for it here.
//! - A packet may leave while the flight is smaller than the window, even if it then exceeds it.

use core::time::Duration;

use units::{PacketNumber, Rate, Timestamp};

use crate::controller::{
    AckBatch, Cap, CongestionEvent, CongestionKind, Controller, Snapshot, Start, StartRate,
    minimum_window,
};
use crate::pacer::burst;

/// Initial window in packets.
const INITIAL_PACKETS: f64 = 32.0;
/// Initial slow-start threshold in packets, above any window of a connection's first seconds.
const INITIAL_THRESHOLD_PACKETS: f64 = 10_000.0;
/// Window after a retransmission time-out, in packets, and minimum.
const MIN_PACKETS: f64 = 2.0;
/// Curvature of the cubic, in packets per second cubed.
const CURVATURE: f64 = 0.4;
/// Fraction of the window that remains after a congestion event, and growth of the Reno-friendly
/// window in packets per round trip.
const BETA: f64 = 819.0 / 1024.0;
/// Fraction of the window that becomes the maximum if the last maximum was not reached.
const FAST_CONVERGENCE: f64 = 922.0 / 1024.0;
/// Unused window, in packets, above which the sender counts as limited by the application.
const MAX_UNUSED_PACKETS: u64 = 3;
/// Pacing rate in windows per smoothed round trip: in slow start, in recovery, and otherwise.
const SLOW_START_PACING_GAIN: f64 = 2.0;
const RECOVERY_PACING_GAIN: f64 = 1.0;
const PACING_GAIN: f64 = 1.25;

/// The curve since the last congestion event.
#[derive(Clone, Copy, Debug)]
struct Curve {
    start: Timestamp,
    /// Time at which the curve reaches `origin`, in seconds.
    k: f64,
    /// Window at the flat point, in packets.
    origin: f64,
}

/// LSQUIC's CUBIC. Windows are fractional packets.
#[derive(Clone, Debug)]
pub(crate) struct CubicLsquic {
    mtu: u16,
    window: f64,
    threshold: f64,
    last_max: f64,
    reno: f64,
    curve: Option<Curve>,
    /// Number that the next packet gets, and its value at the last congestion event.
    next: PacketNumber,
    cutback: PacketNumber,
    in_recovery: bool,
    /// The path was empty before the flight in progress.
    was_quiet: bool,
    rtt: Option<Duration>,
    start_rate: StartRate,
    cap: Cap,
}

impl CubicLsquic {
    /// Creates a controller for datagrams of `mtu` bytes.
    pub(crate) fn new(mtu: u16) -> Self {
        Self {
            mtu,
            window: INITIAL_PACKETS,
            threshold: INITIAL_THRESHOLD_PACKETS,
            last_max: INITIAL_PACKETS,
            reno: INITIAL_PACKETS,
            curve: None,
            next: PacketNumber(0),
            cutback: PacketNumber(0),
            in_recovery: false,
            was_quiet: false,
            rtt: None,
            start_rate: StartRate::default(),
            cap: Cap::default(),
        }
    }

    fn in_slow_start(&self) -> bool {
        self.window <= self.threshold
    }

    /// Returns this number of packets in bytes.
    fn bytes(&self, packets: f64) -> u64 {
        (packets * f64::from(self.mtu)) as u64
    }

    /// Moves the window along the curve, but not below Reno's.
    fn follow_curve(&mut self, now: Timestamp, min_rtt: Duration) {
        let (window, last_max) = (self.window, self.last_max);
        let curve = *self.curve.get_or_insert_with(|| {
            if window < last_max {
                Curve { start: now, k: (last_max.floor() / 2.0).floor().cbrt(), origin: last_max }
            } else {
                Curve { start: now, k: 0.0, origin: window }
            }
        });
        let time = (now.since(curve.start) + min_rtt).as_secs_f64();
        let target = curve.origin + CURVATURE * (time - curve.k).powi(3);
        self.reno += BETA / self.reno;
        self.window = target.max(self.reno);
    }

    fn own_rate(&self) -> Option<Rate> {
        self.start_rate.get().or_else(|| {
            let gain = if self.window < self.threshold {
                SLOW_START_PACING_GAIN
            } else if self.in_recovery {
                RECOVERY_PACING_GAIN
            } else {
                PACING_GAIN
            };
            Some(Rate::from_bytes_in(self.bytes(self.window * gain), self.rtt?))
        })
    }

    fn on_timeout(&mut self) {
        self.threshold = (self.window / 2.0).max(MIN_PACKETS);
        (self.window, self.reno) = (MIN_PACKETS, MIN_PACKETS);
        self.last_max = INITIAL_PACKETS;
        self.curve = None;
        self.in_recovery = false;
        self.start_rate = StartRate::default();
    }
}

impl Controller for CubicLsquic {
    fn on_sent(&mut self, now: Timestamp, pn: PacketNumber, _bytes: u64, in_flight: u64) {
        self.next = pn.next();
        self.was_quiet |= in_flight == 0;
        self.start_rate.on_sent(now);
    }

    fn on_ack(&mut self, batch: &AckBatch) {
        self.rtt = Some(batch.rtt.smoothed);
        self.start_rate.on_ack(batch);
        if batch.largest_acked >= self.cutback {
            self.in_recovery = false;
        }
        if core::mem::take(&mut self.was_quiet) {
            self.curve = None;
        }
        let mtu = u64::from(self.mtu);
        let is_used = batch.in_flight_before + MAX_UNUSED_PACKETS * mtu >= self.bytes(self.window);
        for _ in 0..batch.acked_bytes.div_ceil(mtu) {
            if self.in_slow_start() {
                self.window += 1.0;
            } else if is_used {
                self.follow_curve(batch.now, batch.rtt.min);
            }
        }
    }

    /// The window responds to signals only.
    fn on_packets_lost(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        if event.kind == CongestionKind::Persistent {
            return self.on_timeout();
        }
        if event.largest_lost < self.cutback {
            return;
        }
        self.cutback = self.next;
        self.in_recovery = true;
        self.last_max =
            self.window * if self.window < self.last_max { FAST_CONVERGENCE } else { 1.0 };
        self.window = (self.window * BETA).max(MIN_PACKETS);
        (self.reno, self.threshold) = (self.window, self.window);
        self.curve = None;
        tracing::debug!(to = self.window, "CUBIC of LSQUIC: cut");
    }

    fn window(&self) -> u64 {
        // A flight below the window lets one more packet go.
        let window = self.bytes(self.window) + u64::from(self.mtu) - 1;
        self.cap.window(window, minimum_window(self.mtu))
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.cap.rate(self.own_rate(), self.mtu)
    }

    fn send_quantum(&self) -> u64 {
        burst(self.pacing_rate(), self.mtu)
    }

    fn start(&mut self, start: Start) {
        let packets = |bytes: u64| bytes as f64 / f64::from(self.mtu);
        let window = start.window.map_or(self.window, packets).max(MIN_PACKETS);
        (self.window, self.reno, self.last_max) = (window, window, window);
        self.threshold = INITIAL_THRESHOLD_PACKETS;
        self.curve = None;
        self.start_rate.set(start.rate);
        self.rtt = self.rtt.or(start.rtt);
    }

    fn resume(&mut self, window: u64, threshold: u64) {
        self.start(Start { window: Some(window), ..Start::default() });
        self.threshold = (threshold as f64 / f64::from(self.mtu)).max(self.window);
        self.start_rate = StartRate::default();
    }

    fn cap(&mut self, cap: Cap) {
        self.cap = cap;
    }

    fn beta(&self) -> f64 {
        BETA
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
    }

    fn name(&self) -> &'static str {
        "cubic-lsquic"
    }

    fn snapshot(&self) -> Snapshot {
        let state = if self.in_recovery {
            "recovery"
        } else if self.in_slow_start() {
            "slow_start"
        } else {
            "congestion_avoidance"
        };
        Snapshot {
            state,
            window: self.window(),
            pacing_rate: self.pacing_rate(),
            ssthresh: Some(self.bytes(self.threshold)),
            ..Snapshot::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event;

    const MTU: u16 = 1_200;
    const RTT: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// An ACK of `packets` packets up to `largest` while the window is used.
    fn ack(now: Timestamp, largest: u64, packets: u64) -> AckBatch {
        AckBatch {
            now,
            acked_bytes: packets * u64::from(MTU),
            largest_acked: PacketNumber(largest),
            largest_sent_time: now - RTT,
            in_flight_before: 1 << 30,
            in_flight: 0,
            rtt: crate::RttSnapshot {
                latest: RTT,
                smoothed: RTT,
                min: RTT,
                variance: Duration::ZERO,
            },
            rate: None,
            cwnd_limited: true,
            source_paced: false,
            lost_bytes: 0,
            ecn_ce: 0,
        }
    }

    fn loss(number: u64) -> CongestionEvent {
        let largest_lost = PacketNumber(number);
        CongestionEvent { largest_lost, ..event(at(1_000), at(950), CongestionKind::Loss) }
    }

    /// A controller that has sent 100 packets and lost number 50 at 40 packets.
    fn after_loss() -> CubicLsquic {
        let mut c = CubicLsquic::new(MTU);
        c.start(Start { window: Some(40 * u64::from(MTU)), ..Start::default() });
        (0..100).for_each(|n| c.on_sent(at(900), PacketNumber(n), 1_200, 1_200));
        c.on_congestion_event(&loss(50));
        c
    }

    #[test]
    fn the_first_flight_is_32_packets_and_each_acknowledged_packet_adds_one() {
        let mut c = CubicLsquic::new(MTU);
        assert_eq!(c.window() / u64::from(MTU), 32);
        c.on_ack(&AckBatch { in_flight_before: 0, ..ack(at(50), 3, 4) });
        assert_eq!(c.window, 36.0, "also if the window is unused");
    }

    #[test]
    fn an_event_cuts_a_fifth_once_for_all_packets_sent_before_it() {
        let mut c = after_loss();
        assert!((c.window - 32.0).abs() < 0.01, "{}", c.window);
        c.on_congestion_event(&loss(99));
        assert!((c.window - 32.0).abs() < 0.01, "sent before the cut");
        c.on_congestion_event(&loss(100));
        assert!((c.window - 25.6).abs() < 0.02, "{}", c.window);
        assert!((c.last_max - 28.8).abs() < 0.02, "fast convergence: {}", c.last_max);
    }

    #[test]
    fn a_cut_is_followed_by_one_packet_and_then_by_reno_at_four_fifths() {
        let mut c = after_loss();
        c.on_ack(&ack(at(1_001), 60, 1));
        assert!((c.window - 33.0).abs() < 0.01, "during recovery: {}", c.window);
        let mut now = at(1_001);
        for round in 0..20 {
            for n in 0..32 {
                now += RTT / 32;
                c.on_ack(&ack(now, 100 + 32 * round + n, 1));
            }
        }
        // The curve is below Reno for the first second: K is cbrt(20), 2.7 s.
        assert!((44.0..48.0).contains(&c.window), "0.8 x 20 more than 32: {}", c.window);
    }

    #[test]
    fn the_curve_passes_the_last_maximum_after_k_seconds() {
        let mut c = CubicLsquic::new(MTU);
        c.start(Start { window: Some(2_000 * u64::from(MTU)), ..Start::default() });
        c.on_congestion_event(&loss(0));
        c.on_ack(&ack(at(1_000), 1, 1));
        c.on_ack(&ack(at(1_000), 1, 1));
        // K is cbrt(1,000), 10 s.
        c.on_ack(&ack(at(11_000) - RTT, 1, 1));
        assert!((c.window - 2_000.0).abs() < 0.1, "{}", c.window);
        c.on_ack(&ack(at(12_000) - RTT, 1, 1));
        assert!((c.window - 2_000.4).abs() < 0.1, "{}", c.window);
        // After idle time the curve starts flat from this window.
        c.on_sent(at(60_000), PacketNumber(2), 1_200, 0);
        c.on_ack(&ack(at(60_050), 2, 1));
        assert!((c.window - 2_000.4).abs() < 0.1, "{}", c.window);
    }

    #[test]
    fn an_unused_window_above_the_threshold_stays() {
        let mut c = after_loss();
        c.on_ack(&ack(at(1_001), 60, 1));
        let window = c.window;
        let unused = (window as u64 - 4) * u64::from(MTU);
        c.on_ack(&AckBatch { in_flight_before: unused, ..ack(at(9_000), 101, 1) });
        assert_eq!(c.window, window);
    }

    #[test]
    fn persistent_congestion_stands_for_a_time_out() {
        let mut c = after_loss();
        let persistent = CongestionEvent { kind: CongestionKind::Persistent, ..loss(100) };
        c.on_congestion_event(&persistent);
        assert_eq!((c.window, c.reno), (2.0, 2.0));
        assert!((c.threshold - 16.0).abs() < 0.01, "{}", c.threshold);
    }

    #[test]
    fn a_flight_below_the_window_lets_one_more_packet_go() {
        let c = CubicLsquic { window: 6.5, ..CubicLsquic::new(MTU) };
        assert!((6 * 1_200 + 1_200..7 * 1_200 + 1_200).contains(&c.window()), "{}", c.window());
    }

    #[test]
    fn pacing_is_fastest_in_slow_start_and_slowest_in_recovery() {
        let mut c = after_loss();
        c.on_ack(&ack(at(1_001), 60, 1));
        let rate = |c: &CubicLsquic| c.pacing_rate().expect("a round trip is known");
        assert_eq!(rate(&c), Rate::from_bytes_in(c.bytes(c.window), RTT));
        c.on_ack(&ack(at(1_002), 100, 0));
        assert_eq!(rate(&c), Rate::from_bytes_in(c.bytes(c.window * 1.25), RTT));
        c.on_congestion_event(&CongestionEvent { kind: CongestionKind::Persistent, ..loss(100) });
        assert_eq!(rate(&c), Rate::from_bytes_in(4_800, RTT));
    }
}
