//! Copa's rules, driven by synthetic ACKs. `tests/paths` tests its behaviour on paths.

use proptest::prelude::*;

use super::*;
use crate::{RttSnapshot, event};

const MTU: u16 = 1_200;
const RTT: Duration = Duration::from_millis(50);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn ack(now: Timestamp, rtt: Duration, acked_bytes: u64) -> AckBatch {
    AckBatch {
        now,
        acked_bytes,
        largest_acked: PacketNumber(0),
        largest_sent_time: now - rtt,
        in_flight_before: acked_bytes,
        in_flight: 0,
        rtt: RttSnapshot { latest: rtt, smoothed: RTT, min: RTT, variance: Duration::ZERO },
        rate: None,
        cwnd_limited: true,
        source_paced: false,
        lost_bytes: 0,
        ecn_ce: 0,
    }
}

/// A sender with round trips chosen by the test. Each step acknowledges a tenth of the window.
struct Driver {
    copa: Copa,
    now: Timestamp,
    pn: PacketNumber,
    in_use: bool,
}

impl Driver {
    /// Creates a sender in default mode with a window of `packets`, after a round trip of 50 ms.
    fn new(packets: u64) -> Self {
        let mut copa = Copa::new(MTU);
        copa.start(Start { window: Some(packets * u64::from(MTU)), ..Start::default() });
        copa.enter(CopaState::Default);
        let mut driver = Self { copa, now: at(1_000), pn: PacketNumber(0), in_use: false };
        driver.round(RTT);
        driver.in_use = true;
        driver
    }

    /// Runs a round trip of `rtt` with ten ACKs.
    fn round(&mut self, rtt: Duration) {
        let (end, step) = (self.pn.next(), self.copa.window() / 10);
        self.pn = end;
        self.copa.on_sent(self.now, end, step, 1);
        for tenth in 1..=10 {
            self.now += RTT / 10;
            let mut batch = ack(self.now, rtt, step);
            batch.cwnd_limited = self.in_use;
            if tenth == 10 {
                batch.largest_acked = end;
            }
            self.copa.on_ack(&batch);
        }
    }

    fn lose(&mut self, sent: Timestamp) {
        self.copa.on_packets_lost(self.now, MTU.into(), 0);
        self.copa.on_congestion_event(&event(self.now, sent, CongestionKind::Loss));
    }

    fn packets(&self) -> f64 {
        self.copa.window / f64::from(MTU)
    }

    fn state(&self) -> &'static str {
        self.copa.snapshot().state
    }
}

#[test]
fn slow_start_doubles_until_the_rate_exceeds_the_target() {
    let mut d = Driver::new(10);
    d.copa.enter(CopaState::SlowStart);
    d.round(RTT);
    assert!((d.packets() - 20.0).abs() < 0.1, "{}", d.packets());
    // 0.8 of 20 packets in 52 ms are in the queue: fewer than 1/δ.
    d.round(ms(52));
    assert_eq!(d.state(), "slow_start");
    // 2.3 of 40 packets in 53 ms are; the standing round trip shows them half a round later.
    d.round(ms(53));
    assert_ne!(d.state(), "slow_start");
    assert!((45.0..60.0).contains(&d.packets()), "{}", d.packets());
}

#[test]
fn a_window_moves_by_two_packets_per_round_trip_towards_the_target() {
    let mut d = Driver::new(40);
    d.round(RTT);
    assert!((d.packets() - 42.0).abs() < 0.1, "{}", d.packets());
    d.round(ms(60));
    // The standing round trip covers half a round trip: the first five ACKs still see 50 ms.
    assert!((d.packets() - 42.0).abs() < 0.5, "{}", d.packets());
    d.round(ms(60));
    assert!((d.packets() - 40.0).abs() < 0.6, "{}", d.packets());
}

#[test]
fn the_velocity_doubles_after_three_rounds_and_resets_when_the_window_turns() {
    let mut d = Driver::new(400);
    let velocities: Vec<f64> = (0..6)
        .map(|_| {
            d.round(RTT);
            d.copa.velocity
        })
        .collect();
    assert_eq!(velocities, [1.0, 1.0, 2.0, 4.0, 8.0, 16.0]);
    d.round(ms(80));
    assert_eq!(d.copa.velocity, 1.0);
    // 3/8 of the window is queued. Half of the excess is the limit of a step per round.
    let mut last = d.packets();
    for _ in 0..5 {
        d.round(ms(80));
        // Ten ACKs of a tenth of the window at the start of the round.
        assert!(last - d.packets() <= 1.2 * last * 0.375 / 2.0, "{last} {}", d.packets());
        last = d.packets();
    }
}

#[test]
fn an_unused_window_does_not_grow_but_shrinks() {
    for state in [CopaState::SlowStart, CopaState::Default] {
        let mut d = Driver::new(40);
        d.copa.enter(state);
        d.in_use = false;
        for _ in 0..10 {
            d.round(RTT);
        }
        assert_eq!((d.packets(), d.copa.velocity), (40.0, 1.0));
        d.round(ms(70));
        assert!(d.packets() < 40.0);
    }
}

#[test]
fn five_round_trips_without_an_empty_queue_start_competitive_mode() {
    let mut d = Driver::new(100);
    for round in 0..5 {
        d.round(ms(70));
        assert_eq!(d.state(), "default", "round {round}");
    }
    d.round(ms(70));
    assert_eq!(d.state(), "competitive");
    assert_eq!(d.copa.snapshot().delta, Some(1.0 / 3.0), "that round had no loss");
    for _ in 0..3 {
        d.round(ms(90));
    }
    assert_eq!(d.copa.snapshot().delta, Some(1.0 / 6.0));
    // A tenth of 90 ms − 50 ms is 4 ms. The maximum over 4 round trips of 54 ms expires later.
    d.round(ms(54));
    assert_eq!((d.state(), d.copa.snapshot().delta), ("default", Some(0.5)));
}

#[test]
fn one_packet_in_the_queue_is_nearly_empty() {
    let mut d = Driver::new(10);
    d.copa.cap(Cap { rate: None, in_flight: Some(12_000), ..Cap::default() });
    for _ in 0..20 {
        d.round(ms(55));
        assert_eq!(d.state(), "default");
    }
}

#[test]
fn idle_time_is_no_evidence_of_competition() {
    let mut d = Driver::new(100);
    d.round(ms(70));
    d.now += Duration::from_secs(9);
    d.copa.on_sent(d.now, d.pn.next(), 1_200, 0);
    for _ in 0..5 {
        d.round(ms(70));
        assert_eq!(d.state(), "default");
    }
    d.round(ms(70));
    assert_eq!(d.state(), "competitive");
}

#[test]
fn competitive_mode_is_additive_increase_and_one_halving_per_round_trip() {
    let mut d = Driver::new(100);
    d.round(ms(70));
    d.copa.enter(CopaState::Competitive);
    d.copa.inverse_delta = 20.0;
    d.round(ms(70));
    assert_eq!(d.copa.inverse_delta, 21.0);
    let sent = d.now - RTT;
    d.lose(sent);
    d.lose(sent);
    assert_eq!(d.copa.inverse_delta, 10.5);
    d.round(ms(70));
    assert_eq!(d.copa.inverse_delta, 10.5, "a round with a loss adds nothing");
    d.round(ms(70));
    assert_eq!(d.copa.inverse_delta, 11.5);
    d.in_use = false;
    d.round(ms(70));
    assert_eq!(d.copa.inverse_delta, 11.5, "nor does a round with an unused window");
    for _ in 0..5 {
        d.now += RTT;
        d.lose(d.now);
        d.now += RTT;
    }
    assert_eq!(d.copa.inverse_delta, 2.0, "δ is 0.5 at most");
}

#[test]
fn losses_are_not_signals_in_default_mode() {
    let mut d = Driver::new(100);
    d.lose(d.now);
    d.copa.on_congestion_event(&event(d.now, d.now, CongestionKind::Ecn));
    assert_eq!((d.packets(), d.copa.inverse_delta), (100.0, 2.0));
}

#[test]
fn persistent_congestion_collapses_to_the_minimum_window_and_slow_starts() {
    let mut d = Driver::new(100);
    d.copa.on_congestion_event(&event(d.now, d.now, CongestionKind::Persistent));
    assert_eq!((d.copa.window(), d.state()), (2_400, "slow_start"));
    d.round(RTT);
    assert_eq!(d.copa.window(), 4_800);
}

#[test]
fn packets_leave_at_twice_the_window_per_standing_round_trip() {
    let mut d = Driver::new(100);
    assert_eq!(d.copa.pacing_rate(), Some(Rate::from_bytes_in(240_000, RTT)));
    d.round(ms(60));
    d.round(ms(60));
    assert_eq!(d.copa.snapshot().standing_rtt, Some(ms(60)));
    let expected = Rate::from_bytes_in((d.copa.window * 2.0) as u64, ms(60));
    assert_eq!(d.copa.pacing_rate(), Some(expected));
    let mut fresh = Copa::new(MTU);
    assert_eq!(fresh.pacing_rate(), None);
    fresh.start(Start { rtt: Some(RTT), ..Start::default() });
    assert_eq!(fresh.pacing_rate(), Some(Rate::from_bytes_in(24_000, RTT)));
}

#[test]
fn a_cap_limits_the_values_of_a_start() {
    let mut copa = Copa::new(1_452);
    copa.cap(Cap { rate: Some(Rate::from_mbps(1)), in_flight: None, ..Cap::default() });
    let s = copa.snapshot();
    assert_eq!((s.state, s.window, s.min_rtt), ("slow_start", 14_520, None));
    copa.on_mtu(1_200);
    assert_eq!(copa.window(), 12_000);
    copa.start(Start { rate: Some(Rate::from_mbps(5)), ..Start::default() });
    assert_eq!(copa.pacing_rate(), Some(Rate::from_mbps(1)));
}

proptest! {
    #![proptest_config(crate::properties(128))]

    #[test]
    fn no_sequence_of_events_leads_below_the_minimum_or_to_invalid_values(
        events in prop::collection::vec((0u8..6, 0u64..3_000, 0u64..100_000), 1..120),
    ) {
        let mut c = Copa::new(MTU);
        let (mut now, mut pn) = (at(1_000), PacketNumber(0));
        for (what, wait, bytes) in events {
            now += Duration::from_micros(wait * wait);
            match what {
                0..=2 => {
                    let mut batch = ack(now, Duration::from_micros(bytes), bytes);
                    batch.rtt.smoothed = Duration::from_micros(bytes / 2);
                    batch.largest_acked = pn;
                    batch.cwnd_limited = wait % 3 > 0;
                    c.on_ack(&batch);
                }
                3 => c.on_congestion_event(&event(now, now, CongestionKind::Loss)),
                4 if bytes < 10_000 => {
                    c.on_congestion_event(&event(now, now, CongestionKind::Persistent));
                }
                _ => {
                    pn = pn.next();
                    c.on_sent(now, pn, 1_200, bytes / 20_000);
                }
            }
            prop_assert!(c.window() >= 2_400 && c.window.is_finite());
            prop_assert!(c.velocity >= 1.0 && c.inverse_delta >= 2.0);
            prop_assert!(c.velocity.is_finite() && c.inverse_delta.is_finite());
            prop_assert!(c.pacing_rate().is_none_or(|rate| rate > Rate::ZERO));
        }
    }
}
