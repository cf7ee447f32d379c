//! Rapid Start (draft-kazuho-ccwg-rapid-start, section 3), as a replacement for slow start.
//!
//! The first flight is paced over one round trip. The window triples per round until the queue
//! grows, then doubles. At the first congestion event it converges on a fraction of the delivered
//! bytes.
//!
//! Until [`Rapid::phase`] is [`RapidPhase::Over`], [`Rapid::window`] and [`Rapid::pacing_rate`]
//! apply. Then the controller continues with that window in congestion avoidance.

use core::time::Duration;

use congestion::{AckBatch, CongestionEvent, initial_window, minimum_window};
use units::{Rate, Timestamp};

/// Maximum number of stored samples: one per eighth of a round, and both ends.
const SAMPLES: usize = 9;
/// Delay that counts as a queue, unless a tenth of the minimum round trip is less.
const QUEUE: Duration = Duration::from_millis(4);
/// K in section 3.3.1.
const K: f64 = 11.0 / 18.0;

/// Phase of Rapid Start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RapidPhase {
    /// No congestion yet.
    Growing,
    /// Congestion was detected. The window is reduced as outstanding packets are acknowledged or
    /// lost.
    Recovery,
    /// Finished: the congestion controller takes over.
    Over,
}

/// Rapid Start of one connection.
#[derive(Clone, Debug)]
pub struct Rapid {
    phase: RapidPhase,
    window: u64,
    mtu: u16,
    factors: Factors,
    /// Rate of the first flight; `None` once it was sent.
    first_flight: Option<Rate>,
    first_sent: Option<Timestamp>,
    floor: Floor,
    /// Smoothed round trip once there is a sample.
    rtt: Duration,
    recovery: RapidRecovery,
}

/// The reduction factors of section 3.3.1.
#[derive(Clone, Copy, Debug)]
struct Factors {
    beta: f64,
    silence: f64,
    ack: f64,
    loss: f64,
}

impl Factors {
    fn new(beta: f64) -> Self {
        let ack = K * (1.0 - beta);
        Self { beta, silence: beta + ack, ack, loss: beta + ack }
    }

    /// Returns the fraction of the window that remains at least. A queue that fills three times as
    /// fast as it drains drops at most two thirds when it overflows.
    fn least(&self) -> f64 {
        self.silence - self.ack / 3.0 - 2.0 * self.loss / 3.0
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct RapidRecovery {
    since: Timestamp,
    /// Fractional, as rounding at each acknowledgement would add up.
    window: f64,
    least: f64,
}

impl Rapid {
    /// Starts with `window` bytes, paced over `rtt`, as returned by
    /// [`decide`](crate::decision::decide). `beta` is the controller's multiplicative decrease,
    /// from 0.5 to 1 (CUBIC: 0.7).
    pub fn new(window: u64, rtt: Duration, mtu: u16, beta: f64) -> Self {
        Self {
            phase: RapidPhase::Growing,
            window,
            mtu,
            factors: Factors::new(beta.clamp(0.5, 1.0)),
            first_flight: Some(Rate::from_bytes_in(window, rtt)),
            first_sent: None,
            floor: Floor::default(),
            rtt,
            recovery: RapidRecovery::default(),
        }
    }

    /// Current phase.
    pub fn phase(&self) -> RapidPhase {
        self.phase
    }

    /// Congestion window in bytes.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Pacing rate. The first flight takes one round trip. Later, it is twice the window per round
    /// trip as in paced slow start, and the window per round trip during recovery.
    pub fn pacing_rate(&self) -> Rate {
        let gain = if self.phase == RapidPhase::Growing { 2 } else { 1 };
        let window = self.window.saturating_mul(gain);
        self.first_flight.unwrap_or(Rate::from_bytes_in(window, self.rtt))
    }

    /// Records a packet sent at `now`. `in_flight` includes its bytes.
    pub fn on_sent(&mut self, now: Timestamp, in_flight: u64) {
        self.first_sent.get_or_insert(now);
        if in_flight + u64::from(self.mtu) > self.window {
            self.first_flight = None;
        }
    }

    /// Processes an acknowledgement. Losses must have been reported before.
    pub fn on_ack(&mut self, batch: &AckBatch) {
        self.rtt = batch.rtt.smoothed;
        self.floor.add(batch.now, batch.rtt_sample(), batch.rtt.min);
        if self.first_sent.is_some_and(|first| batch.largest_sent_time >= first) {
            self.first_flight = None;
        }
        match self.phase {
            // An underutilized window must not grow (RFC 9002, section 7.8).
            RapidPhase::Growing if batch.cwnd_limited => {
                let growth = if self.has_queue(batch.rtt.min) { 1 } else { 2 };
                let growth = batch.acked_bytes.saturating_mul(growth);
                self.window = self.window.saturating_add(growth);
            }
            RapidPhase::Recovery => {
                self.reduce(self.factors.ack * batch.acked_bytes as f64);
                if batch.largest_sent_time > self.recovery.since {
                    self.phase = RapidPhase::Over;
                }
            }
            _ => {}
        }
    }

    /// Processes lost bytes, before the congestion event that they cause
    /// ([`Rapid::on_congestion_event`]).
    pub fn on_packets_lost(&mut self, bytes: u64) {
        if self.phase == RapidPhase::Recovery {
            self.reduce(self.factors.loss * bytes as f64);
        }
    }

    /// Processes a congestion event. The first one starts the recovery.
    pub fn on_congestion_event(&mut self, event: &CongestionEvent) {
        if self.phase != RapidPhase::Growing {
            return;
        }
        let before = self.window as f64;
        // "Doing so preserves classic slow start's aggressiveness on connections with tiny BDPs".
        let initial = initial_window(self.mtu) as f64 * self.factors.beta;
        let minimum = minimum_window(self.mtu) as f64;
        let least = (before * self.factors.least()).max(initial).max(minimum).min(before);
        self.phase = RapidPhase::Recovery;
        self.first_flight = None;
        self.recovery = RapidRecovery { since: event.now, window: before, least };
        self.reduce(before * (1.0 - self.factors.silence));
        // The packets that caused the event also count as lost in recovery.
        self.reduce(self.factors.loss * event.lost_bytes as f64);
    }

    fn reduce(&mut self, bytes: f64) {
        let RapidRecovery { window, least, .. } = &mut self.recovery;
        *window = (*window - bytes).max(*least);
        self.window = window.round() as u64;
    }

    /// Returns true if the round trip of the last round exceeds the minimum by more than jitter.
    fn has_queue(&self, min_rtt: Duration) -> bool {
        self.floor.get().is_some_and(|floor| floor > min_rtt + QUEUE.min(min_rtt / 10))
    }
}

/// `rtt_floor`: the minimum sample of the latest round.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    /// Increasing minima, oldest first, at least an eighth of a round apart.
    samples: [(Timestamp, Duration); SAMPLES],
    len: usize,
}

impl Floor {
    /// Adds a sample and removes those older than `round`.
    fn add(&mut self, now: Timestamp, rtt: Duration, round: Duration) {
        let known = self.samples;
        let mut len = 0;
        for (at, sample) in known.into_iter().take(self.len) {
            if now.since(at) <= round && sample < rtt {
                self.samples[len] = (at, sample);
                len += 1;
            }
        }
        // A sample soon after a smaller one is omitted. When the smaller one expires, the floor may
        // be too high, and growth too slow, for an eighth of a round.
        let is_apart = len
            .checked_sub(1)
            .is_none_or(|last| now.since(self.samples[last].0) >= round / 8 && !round.is_zero());
        if let Some(free) = self.samples.get_mut(len).filter(|_| is_apart) {
            *free = (now, rtt);
            len += 1;
        }
        self.len = len;
    }

    fn get(&self) -> Option<Duration> {
        self.samples[..self.len].first().map(|(_, rtt)| *rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use congestion::{CongestionKind, RttSnapshot};
    use proptest::prelude::*;
    use units::PacketNumber;

    const RTT: Duration = Duration::from_millis(50);
    const MTU: u16 = 1_200;

    fn ms(n: u64) -> Timestamp {
        Timestamp::from_millis(n)
    }

    /// Acknowledges at `now` a packet sent `rtt` ms earlier, on a path of 50 ms.
    fn ack(now: u64, rtt: u64, acked_bytes: u64) -> AckBatch {
        AckBatch {
            now: ms(now),
            acked_bytes,
            largest_acked: PacketNumber(1),
            largest_sent_time: ms(now - rtt),
            in_flight_before: 0,
            in_flight: 0,
            rtt: RttSnapshot {
                latest: Duration::from_millis(rtt),
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

    fn loss(now: u64, lost_bytes: u64) -> CongestionEvent {
        CongestionEvent {
            now: ms(now),
            lost_bytes,
            largest_lost_sent_time: ms(now - 50),
            largest_lost: PacketNumber(1),
            in_flight: 0,
            rtt: Duration::from_millis(50),
            kind: CongestionKind::Loss,
        }
    }

    fn rapid(window: u64) -> Rapid {
        Rapid::new(window, RTT, MTU, 0.7)
    }

    #[test]
    fn the_first_flight_takes_one_round_trip() {
        let mut rapid = rapid(24_000);
        // 24,000 bytes in 50 ms.
        assert_eq!(rapid.pacing_rate(), Rate::from_kbps(3_840));
        (0..19).for_each(|n| rapid.on_sent(ms(n * 2), (n + 1) * 1_200));
        assert_eq!(rapid.pacing_rate(), Rate::from_kbps(3_840));
        // Ended by its last packet, or by its first acknowledgement.
        rapid.on_sent(ms(48), 24_000);
        rapid.on_ack(&ack(50, 50, 1_200));
        assert_eq!(rapid.window(), 26_400);
        assert_eq!(rapid.pacing_rate(), Rate::from_bytes_in(2 * 26_400, RTT));
    }

    #[test]
    fn the_window_triples_per_round_without_a_queue() {
        let mut rapid = rapid(24_000);
        rapid.on_sent(ms(0), 1_200);
        for round in 0..3 {
            let acks = rapid.window() / 1_200;
            (0..acks).for_each(|_| rapid.on_ack(&ack(50 + round * 50, 50, 1_200)));
        }
        assert_eq!(rapid.window(), 24_000 * 27);
        assert_eq!(rapid.phase(), RapidPhase::Growing);
    }

    #[test]
    fn a_queue_during_a_whole_round_slows_growth_to_doubling() {
        let mut rapid = rapid(24_000);
        rapid.on_ack(&ack(100, 50, 1_200));
        // 54 ms is not a queue. Neither is 60 ms while the floor is from the same round.
        rapid.on_ack(&ack(110, 54, 1_200));
        rapid.on_ack(&ack(120, 60, 1_200));
        assert_eq!(rapid.window(), 24_000 + 3 * 2_400);
        // A round later the floor is 60 ms.
        rapid.on_ack(&ack(161, 61, 1_200));
        assert_eq!(rapid.window(), 31_200 + 1_200);
        // The threshold is 4 ms or a tenth, so 1 ms for a round trip of 10 ms.
        let short = |rtt_us: u64| {
            let mut rapid = Rapid::new(24_000, RTT, MTU, 0.7);
            let min = Duration::from_millis(10);
            let batch = ack(100, 50, 1_200);
            let sent = batch.now - Duration::from_micros(rtt_us);
            let rtt = RttSnapshot { min, ..batch.rtt };
            rapid.on_ack(&AckBatch { largest_sent_time: sent, rtt, ..batch });
            rapid.window() - 24_000
        };
        assert_eq!((short(11_000), short(11_001)), (2_400, 1_200));
    }

    #[test]
    fn an_underutilized_window_does_not_grow() {
        let mut rapid = rapid(24_000);
        rapid.on_ack(&AckBatch { cwnd_limited: false, ..ack(50, 50, 12_000) });
        assert_eq!(rapid.window(), 24_000);
    }

    #[test]
    fn reduction_factors_match_the_draft() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        let half = Factors::new(0.5);
        assert!(near(half.silence, 29.0 / 36.0) && near(half.ack, 11.0 / 36.0));
        let cubic = Factors::new(0.7);
        assert!(near(cubic.silence, 53.0 / 60.0) && near(cubic.loss, 53.0 / 60.0));
        assert!(near(cubic.ack, 11.0 / 60.0));
    }

    #[test]
    fn recovery_ends_at_beta_of_the_delivered_bytes() {
        // 60,000 bytes in flight, two thirds lost: the BDP is 20,000, and 0.7 of it 14,000.
        let mut rapid = rapid(60_000);
        rapid.on_congestion_event(&loss(100, 10_000));
        // 53,000 minus 53/60 of 10,000.
        assert_eq!((rapid.phase(), rapid.window()), (RapidPhase::Recovery, 44_167));
        rapid.on_packets_lost(30_000);
        rapid.on_congestion_event(&loss(110, 30_000));
        rapid.on_ack(&ack(120, 60, 20_000));
        assert_eq!((rapid.phase(), rapid.window()), (RapidPhase::Recovery, 14_000));
        assert_eq!(rapid.pacing_rate(), Rate::from_bytes_in(14_000, RTT));
        rapid.on_ack(&ack(160, 50, 1_200));
        assert_eq!(rapid.phase(), RapidPhase::Over, "a packet sent in recovery was acknowledged");
        // A tenth is lost: 0.7 × 54,000.
        let mut rapid = Rapid::new(60_000, RTT, MTU, 0.7);
        rapid.on_congestion_event(&loss(100, 6_000));
        rapid.on_ack(&ack(120, 60, 54_000));
        assert_eq!(rapid.window(), 37_800);
    }

    #[test]
    fn excessive_losses_do_not_close_the_window() {
        let mut large = rapid(600_000);
        large.on_congestion_event(&loss(100, 500_000));
        large.on_packets_lost(100_000);
        // 600,000 × (53/60 − 11/180 − 106/180) = 140,000.
        assert_eq!(large.window(), 140_000);
        let mut small = rapid(24_000);
        small.on_congestion_event(&loss(100, 24_000));
        assert_eq!(small.window(), 8_400, "0.7 × the initial window");
        let mut tiny = rapid(5_000);
        tiny.on_congestion_event(&loss(100, 5_000));
        assert_eq!(tiny.window(), 5_000, "never above the old window");
    }

    proptest! {
        #[test]
        fn the_floor_is_the_minimum_of_a_round_within_an_eighth(
            samples in prop::collection::vec((0..30u64, 50..90u64), 1..200),
        ) {
            let mut floor = Floor::default();
            let (mut now, mut all) = (1_000, Vec::new());
            for (pause, rtt) in samples {
                now += pause;
                all.push((now, rtt));
                floor.add(ms(now), Duration::from_millis(rtt), Duration::from_millis(80));
                let of = |span| {
                    let latest = all.iter().filter(|(at, _)| now - at <= span);
                    latest.map(|(_, rtt)| *rtt).min().expect("this one")
                };
                let got = floor.get().expect("a sample").as_millis() as u64;
                prop_assert!(of(80) <= got && got <= of(70), "{} {got} {}", of(80), of(70));
            }
        }

        #[test]
        fn any_order_of_events_keeps_the_window_within_bounds(
            window in 2_400..1_000_000u64,
            events in prop::collection::vec((0..3u8, 0..200_000u64, 0..100u64), 1..100),
        ) {
            let mut rapid = rapid(window);
            let mut now = 1_000;
            for (event, bytes, pause) in events {
                now += pause;
                let before = rapid.window();
                match event {
                    0 => rapid.on_ack(&ack(now, 60, bytes)),
                    1 => rapid.on_packets_lost(bytes),
                    _ => rapid.on_congestion_event(&loss(now, bytes)),
                }
                prop_assert!(rapid.window() >= 2_400.min(window));
                prop_assert!(event == 0 || rapid.window() <= before);
                prop_assert!(rapid.pacing_rate() > Rate::ZERO);
            }
        }
    }
}
