//! CUBIC against the formulas of its RFC, driven by synthetic ACKs.

use proptest::prelude::*;

use super::*;
use crate::event;

const MTU: u16 = 1_200;
const SEGMENT: f64 = 1_200.0;
const RTT: Duration = Duration::from_millis(50);

fn ack(now: Timestamp, acked_bytes: u64, cwnd_limited: bool) -> AckBatch {
    AckBatch {
        now,
        acked_bytes,
        largest_acked: PacketNumber(0),
        largest_sent_time: now - RTT,
        in_flight_before: 0,
        in_flight: 0,
        rtt: crate::RttSnapshot { latest: RTT, smoothed: RTT, min: RTT, variance: Duration::ZERO },
        rate: None,
        cwnd_limited,
        source_paced: false,
        lost_bytes: 0,
        ecn_ce: 0,
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Creates a controller with a window of `segments` and a loss at 1 s.
fn after_loss(segments: u64) -> Cubic {
    let mut c = Cubic::new(MTU);
    c.start(Start { window: Some(segments * u64::from(MTU)), ..Start::default() });
    c.on_congestion_event(&event(at(1_000), at(950), CongestionKind::Loss));
    c
}

/// Acknowledges a window per round trip in twenty ACKs, for `span` from `from`.
fn acknowledge(c: &mut Cubic, from: Timestamp, span: Duration) -> Timestamp {
    let mut now = from;
    while now < from + span {
        let bytes = c.window() / 20;
        now += RTT / 20;
        c.on_ack(&ack(now, bytes, true));
    }
    now
}

proptest! {
    #![proptest_config(crate::properties(64))]

    #[test]
    fn the_window_follows_the_cubic_of_section_4_2(segments in 400u64..2_000, tenths in 5u64..150) {
        let mut c = after_loss(segments);
        let start = at(1_060);
        c.on_ack(&ack(start, 1_200, true));
        let span = Duration::from_millis(100 * tenths);
        acknowledge(&mut c, start, span);
        let w_max = segments as f64;
        let k = (w_max * (1.0 - BETA) / C).cbrt();
        let t = span.as_secs_f64();
        // From 400 segments on, Reno is always slower. The window leads the curve by a round trip.
        let curve = |t: f64| C * (t - k).powi(3) + w_max;
        let (low, high) = (curve(t - 0.05), curve(t + 0.05));
        let found = c.window() as f64 / SEGMENT;
        prop_assert!(found >= low - 1.0 && found <= high + 1.0, "{found} not in {low}..{high}");
    }

    #[test]
    fn no_sequence_of_events_leads_below_the_minimum_or_to_invalid_values(
        events in prop::collection::vec((0u8..6, 0u64..200, 0u64..100_000), 1..80),
    ) {
        let mut c = Cubic::new(MTU);
        let mut now = at(1_000);
        for (what, wait, bytes) in events {
            now += Duration::from_millis(wait);
            match what {
                0 | 1 => c.on_ack(&ack(now, bytes, true)),
                2 => c.on_congestion_event(&event(now, now - RTT, CongestionKind::Loss)),
                3 => c.on_congestion_event(&event(now, now - RTT, CongestionKind::Persistent)),
                4 => c.on_sent(now, PacketNumber(bytes), 1_200, 0),
                _ => c.on_ack(&ack(now, bytes, false)),
            }
            prop_assert!(c.window.is_finite() && c.window() >= minimum_window(MTU));
            prop_assert!(c.pacing_rate().is_none_or(|rate| rate > Rate::ZERO));
        }
    }
}

#[test]
fn small_windows_grow_at_least_as_fast_as_reno() {
    let mut c = after_loss(10);
    acknowledge(&mut c, at(1_060), Duration::from_secs(1));
    // 20 round trips from 7 segments: alpha is 0.53 up to 10 segments, then 1. The cubic alone
    // would still be below 10.
    let found = c.window() as f64 / SEGMENT;
    assert!((20.0..=25.0).contains(&found), "{found}");
}

#[test]
fn a_round_is_reduced_once_by_three_tenths() {
    for kind in [CongestionKind::Loss, CongestionKind::Ecn] {
        let mut c = Cubic::new(MTU);
        c.start(Start { window: Some(120_000), ..Start::default() });
        c.on_congestion_event(&event(at(1_000), at(950), kind));
        assert_eq!(c.window(), 84_000);
        assert_eq!(c.snapshot().ssthresh, Some(84_000));
        assert_eq!(c.snapshot().state, "recovery");
        c.on_congestion_event(&event(at(1_010), at(990), kind));
        c.on_congestion_event(&event(at(1_020), at(1_000), kind));
        assert_eq!(c.window(), 84_000, "packets sent before recovery began");
        c.on_ack(&ack(at(1_030), 12_000, true));
        assert_eq!(c.window(), 84_000, "no growth in recovery");
        c.on_congestion_event(&event(at(1_060), at(1_001), kind));
        assert!(c.window().abs_diff(58_800) <= 1, "{}", c.window());
    }
}

#[test]
fn fast_convergence_lowers_the_maximum_after_losses_below_it() {
    let mut c = after_loss(100);
    assert_eq!(c.w_max, 100.0 * SEGMENT);
    c.on_congestion_event(&event(at(1_100), at(1_050), CongestionKind::Loss));
    assert!((c.w_max - 70.0 * SEGMENT * 0.85).abs() < 1.0, "{}", c.w_max);
}

#[test]
fn persistent_congestion_collapses_to_the_minimum_window_and_slow_starts() {
    let mut c = after_loss(100);
    c.on_congestion_event(&event(at(1_500), at(1_400), CongestionKind::Persistent));
    assert_eq!(c.window(), 2_400);
    assert_eq!(c.snapshot().state, "slow_start");
    let ssthresh = c.snapshot().ssthresh.expect("a finite threshold");
    assert!(ssthresh.abs_diff(58_800) <= 1, "0.7 of 84000, not {ssthresh}");
    c.on_ack(&ack(at(1_600), 2_400, true));
    assert_eq!(c.window(), 4_800);
    while c.window() < ssthresh {
        c.on_ack(&ack(at(1_700), 2_400, true));
    }
    let start = c.window;
    acknowledge(&mut c, at(1_700), Duration::from_millis(500));
    assert!(c.epoch.is_some_and(|epoch| epoch.k == 0.0), "the curve starts flat");
    assert!(c.window < 1.3 * start);
}

#[test]
fn idle_or_unused_time_does_not_advance_the_curve() {
    let (mut busy, mut idle, mut starved) = (after_loss(500), after_loss(500), after_loss(500));
    for c in [&mut busy, &mut idle, &mut starved] {
        acknowledge(c, at(1_060), Duration::from_secs(2));
    }
    let window = busy.window();
    acknowledge(&mut busy, at(3_060), RTT);
    assert!(busy.window() > window);
    // Idle for a minute.
    idle.on_sent(at(63_060), PacketNumber(9), 1_200, 0);
    acknowledge(&mut idle, at(63_060), RTT);
    assert_eq!(idle.window(), busy.window());
    // A minute of acknowledgements with an unused window.
    for ms in 0..=1_200 {
        starved.on_ack(&ack(at(3_060 + 50 * ms), 12_000, false));
    }
    assert_eq!(starved.window(), window);
    acknowledge(&mut starved, at(63_060), RTT);
    assert_eq!(starved.window(), busy.window());
}

#[test]
fn the_pacing_rate_exceeds_the_window_most_in_slow_start() {
    let mut c = Cubic::new(MTU);
    assert_eq!(c.pacing_rate(), None);
    assert_eq!(c.send_quantum(), 12_000);
    c.on_ack(&ack(at(100), 0, true));
    assert_eq!(c.pacing_rate(), Some(Rate::from_bytes_in(24_000, RTT)));
    let c = {
        let mut c = after_loss(100);
        c.on_ack(&ack(at(1_010), 0, true));
        c
    };
    assert_eq!(c.pacing_rate(), Some(Rate::from_bytes_in(105_000, RTT)));
}

#[test]
fn a_new_datagram_size_rescales_only_an_untouched_initial_window() {
    let mut c = Cubic::new(1_200);
    c.on_mtu(1_452);
    assert_eq!(c.window(), 14_520);
    c.on_ack(&ack(at(100), 1_452, true));
    c.on_mtu(1_200);
    assert_eq!(c.window(), 15_972);
}

#[test]
fn a_cap_holds_until_it_is_lifted() {
    let mut c = Cubic::new(MTU);
    c.cap(Cap { rate: None, in_flight: Some(6_000), ..Cap::default() });
    assert_eq!(c.window(), 6_000);
    c.cap(Cap::default());
    assert_eq!(c.window(), 12_000);
    assert_eq!(c.snapshot().ssthresh, None);
}

#[test]
fn an_event_of_spurious_losses_is_undone() {
    let mut c = Cubic::new(MTU);
    c.start(Start { window: Some(400 * 1_200), ..Start::default() });
    c.on_congestion_event(&event(at(1_000), at(950), CongestionKind::Loss));
    let now = acknowledge(&mut c, at(1_060), Duration::from_secs(3));
    let (window, snapshot) = (c.window(), c.snapshot());
    c.on_congestion_event(&event(now, now - RTT, CongestionKind::Loss));
    assert!(c.window() < window);
    c.on_spurious_congestion(now + RTT);
    assert_eq!((c.window(), c.snapshot().ssthresh), (window, snapshot.ssthresh));
    assert_eq!(c.snapshot().state, "congestion_avoidance");
    // Only once.
    c.on_congestion_event(&event(now + 2 * RTT, now + RTT, CongestionKind::Ecn));
    let cut = c.window();
    c.on_spurious_congestion(now + 3 * RTT);
    assert_eq!(c.window(), cut, "CE marks are never spurious");
}
