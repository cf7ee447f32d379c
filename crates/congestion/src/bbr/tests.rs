//! BBR's reactions to single events. `tests/paths` tests its behaviour on paths.

use proptest::prelude::*;

use super::*;
use crate::{RateSample, RttSnapshot};

const MTU: u16 = 1_200;
const RTT: Duration = Duration::from_millis(50);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Returns an ACK of `bytes` bytes at `now` that ends a round with a sample of `mbps`.
fn ack(b: &Bbr, now: Timestamp, bytes: u64, mbps: u64, in_flight: u64) -> AckBatch {
    AckBatch {
        now,
        acked_bytes: bytes,
        largest_acked: PacketNumber(0),
        largest_sent_time: now - RTT,
        in_flight_before: in_flight + bytes,
        in_flight,
        rtt: RttSnapshot { latest: RTT, smoothed: RTT, min: RTT, variance: Duration::ZERO },
        rate: Some(RateSample {
            delivery_rate: Rate::from_mbps(mbps),
            interval: RTT,
            delivered: bytes,
            prior_delivered: b.delivered,
            is_app_limited: false,
        }),
        cwnd_limited: true,
        source_paced: false,
        lost_bytes: 0,
        ecn_ce: 0,
    }
}

fn event(now: Timestamp, in_flight: u64, kind: CongestionKind) -> CongestionEvent {
    CongestionEvent {
        now,
        lost_bytes: MTU.into(),
        largest_lost_sent_time: now - RTT,
        largest_lost: PacketNumber(0),
        in_flight,
        rtt: RTT,
        kind,
    }
}

/// Returns a controller in ProbeBW at 12 Mbps and 50 ms (75000 bytes), and the time.
fn cruising() -> (Bbr, Timestamp) {
    let mut b = Bbr::new(MTU, 1);
    let mut now = at(50);
    while !matches!(b.state, BbrState::ProbeBw { .. }) {
        let batch = ack(&b, now, 75_000, 12, 75_000);
        b.on_ack(&batch);
        now += RTT;
        assert!(now < at(2_000), "stuck in {:?}", b.state);
    }
    let batch = ack(&b, now, 75_000, 12, 75_000);
    b.on_ack(&batch);
    (b, now)
}

#[test]
fn the_window_in_probe_bw_is_two_bdp_three_quanta_and_a_bunch() {
    let (b, _) = cruising();
    // Each acknowledgement covers a whole round trip.
    assert_eq!(b.window(), 150_000 + 3 * b.send_quantum() + 75_000);
}

#[test]
fn startup_ends_after_three_rounds_without_growth() {
    let mut b = Bbr::new(MTU, 1);
    let mut now = at(50);
    for mbps in [1, 2, 4, 8, 9, 9] {
        let batch = ack(&b, now, 12_000, mbps, 90_000);
        b.on_ack(&batch);
        assert_eq!(b.snapshot().state, "startup", "{mbps}");
        now += RTT;
    }
    let batch = ack(&b, now, 12_000, 9, 90_000);
    b.on_ack(&batch);
    assert_eq!(b.snapshot().state, "drain");
    let pacing = b.pacing_rate().expect("a rate").as_mbps_f64();
    assert!((pacing - 9.0 / HIGH_GAIN).abs() < 0.01, "{pacing}");
}

#[test]
fn startup_of_a_limited_sender_ends_after_a_round_whose_packets_all_met_a_queue() {
    let more = |b: &mut Bbr, now| b.on_ack(&ack(b, now, 12_000, 16, 90_000));
    let stays = |round_trips: [u64; 3], draft: bool, application: fn(&mut Bbr, Timestamp)| {
        let mut b = if draft { Bbr::draft(MTU, 1) } else { Bbr::new(MTU, 1) };
        let mut now = at(50);
        for (mbps, rtt) in [4, 8, 12].into_iter().zip(round_trips) {
            let batch = ack(&b, now, 12_000, mbps, 90_000);
            let sent = now - Duration::from_millis(rtt);
            b.on_ack(&AckBatch { largest_sent_time: sent, ..batch });
            now += RTT;
        }
        application(&mut b, now);
        b.snapshot().state == "startup"
    };
    assert!(!stays([50, 50, 80], false, limited));
    assert!(!stays([50, 80, 50], false, limited), "all packets of a round met a queue");
    assert!(stays([50, 50, 60], false, limited), "within the tolerance of radio networks");
    assert!(stays([50, 50, 80], false, more), "the bandwidth grows");
    assert!(stays([50, 50, 80], false, source_paced), "cached data fills the path");
    assert!(stays([50, 50, 80], true, limited));
}

#[test]
fn startup_continues_after_an_outage() {
    // Returns the round without growth that ends Startup.
    let ends = |draft: bool, loses: fn(u32) -> bool, rtt: Duration| {
        let mut b = if draft { Bbr::draft(MTU, 1) } else { Bbr::new(MTU, 1) };
        (0..20).find(|&round| {
            let now = at(100) + RTT * round;
            let batch = ack(&b, now, 12_000, 9, 90_000);
            let sent = now - if round == 0 { RTT } else { rtt };
            b.on_ack(&AckBatch { largest_sent_time: sent, ..batch });
            if loses(round) {
                b.on_packets_lost(now, 12_000, 90_000);
            }
            b.snapshot().state != "startup"
        })
    };
    assert_eq!(ends(false, |_| false, RTT), Some(3));
    assert_eq!(ends(false, |round| round == 1, RTT), Some(5), "two rounds are excused");
    assert_eq!(ends(false, |round| round == 1, RTT * 2), Some(3), "there is a queue");
    assert_eq!(ends(false, |_| true, RTT), Some(4), "a policer drops in every round");
    assert_eq!(ends(false, |round| round % 2 == 1, RTT), Some(6), "at most three are excused");
    assert_eq!(ends(true, |round| round == 1, RTT), Some(3));
}

#[test]
fn startup_of_a_limited_sender_ends_after_four_consecutive_lossy_rounds() {
    let rounds = |draft: bool, loses: fn(u32) -> bool| {
        let mut b = if draft { Bbr::draft(MTU, 1) } else { Bbr::new(MTU, 1) };
        b.round_count += 10;
        for round in 1..50 {
            let now = at(50) + RTT * round;
            if loses(round) {
                b.on_packets_lost(now, 1_200, 12_000);
            }
            let batch = ack(&b, now, 12_000, 2, 12_000);
            let rate = batch.rate.map(|rate| RateSample { is_app_limited: true, ..rate });
            b.on_ack(&AckBatch { rate, ..batch });
            if b.snapshot().state != "startup" {
                return Some(round);
            }
        }
        None
    };
    assert_eq!(
        rounds(false, |_| true),
        Some(4),
        "a queue of a few packets overflows at every frame"
    );
    assert_eq!(rounds(false, |round| round % 4 > 0), None, "outages");
    assert_eq!(rounds(true, |_| true), None);
}

#[test]
fn startup_of_a_limited_sender_ends_after_a_round_with_queue_and_loss() {
    let ends = |rtt: Duration, loses: bool| {
        let mut b = Bbr::new(MTU, 1);
        b.round_count += 10;
        // One packet per round meets a queue or not.
        for round in 1..8 {
            for (now, is_new, rtt) in [(at(50), true, RTT), (at(60), false, rtt)] {
                let now = now + RTT * round;
                let batch = ack(&b, now, 6_000, 2, 12_000);
                let prior = if is_new { b.delivered } else { 0 };
                let rate = batch.rate.map(|rate| RateSample {
                    is_app_limited: true,
                    prior_delivered: prior,
                    delivered: b.delivered - prior + 6_000,
                    ..rate
                });
                b.on_ack(&AckBatch { rate, largest_sent_time: now - rtt, ..batch });
            }
            if loses && round == 2 {
                b.on_packets_lost(at(70) + RTT * round, 1_200, 12_000);
            }
        }
        b.snapshot().state != "startup"
    };
    assert!(ends(RTT * 2, true));
    assert!(!ends(RTT, true), "an outage");
    assert!(!ends(RTT * 2, false), "one packet");
}

#[test]
fn an_outage_in_startup_does_not_reduce_the_window() {
    let window = |draft: bool, rtt: Duration, kind: CongestionKind, before: bool| {
        let mut b = if draft { Bbr::draft(MTU, 1) } else { Bbr::new(MTU, 1) };
        if before {
            b.on_packets_lost(at(40), 1_200, 90_000);
        }
        b.on_ack(&ack(&b, at(50), 90_000, 9, 90_000));
        b.on_packets_lost(at(60), 60_000, 30_000);
        let lost_bytes = if kind == CongestionKind::Ecn { 0 } else { 60_000 };
        b.on_congestion_event(&CongestionEvent { lost_bytes, rtt, ..event(at(60), 30_000, kind) });
        b.window()
    };
    let all = 102_000;
    assert_eq!(window(false, RTT, CongestionKind::Loss, false), all);
    assert_eq!(window(false, RTT, CongestionKind::Loss, true), all - 60_000, "round after round");
    assert_eq!(window(false, RTT * 2, CongestionKind::Loss, false), all - 60_000, "a queue");
    assert_eq!(window(false, RTT, CongestionKind::Persistent, false), 4_800);
    assert_eq!(window(true, RTT, CongestionKind::Loss, false), all - 60_000);
}

#[test]
fn a_limited_sender_keeps_its_window_in_startup_too() {
    let mut b = Bbr::new(MTU, 1);
    b.on_ack(&ack(&b, at(50), 90_000, 9, 90_000));
    limited(&mut b, at(100));
    assert_eq!(b.snapshot().state, "startup");
    let before = b.window();
    for kind in [CongestionKind::Loss, CongestionKind::Persistent] {
        b.on_packets_lost(at(160), 60_000, 0);
        b.on_congestion_event(&event(at(160), 0, kind));
        assert_eq!(b.window(), before, "{kind:?}");
    }
}

#[test]
fn one_poor_sample_after_a_limited_period_is_not_the_rate() {
    for draft in [false, true] {
        let mut b = if draft { Bbr::draft(MTU, 1) } else { Bbr::new(MTU, 1) };
        b.on_ack(&ack(&b, at(50), 90_000, 9, 90_000));
        for round in 0..600 {
            let batch = ack(&b, at(100) + RTT * round, 1_200, 2, 12_000);
            let rate = batch.rate.map(|rate| RateSample { is_app_limited: true, ..rate });
            b.on_ack(&AckBatch { rate, ..batch });
        }
        b.on_ack(&ack(&b, at(30_100), 1_200, 1, 1_200));
        let rate = b.snapshot().bandwidth.expect("a bandwidth").as_mbps_f64();
        assert_eq!(rate, if draft { 1.0 } else { 9.0 });
    }
}

#[test]
fn the_first_rate_is_high_gain_times_the_initial_window_per_round_trip() {
    let mut b = Bbr::new(MTU, 1);
    assert_eq!(b.pacing_rate(), None);
    let batch = ack(&b, at(50), 0, 0, 12_000);
    b.on_ack(&AckBatch { rate: None, ..batch });
    assert_eq!(b.pacing_rate(), Some(Rate::from_bytes_in(34_620, RTT)));
}

/// Runs rounds of `rtt` with a full window and `mbps` delivered; returns the time.
fn full_rounds(b: &mut Bbr, now: Timestamp, rtt: Duration, mbps: [u64; 3]) -> Timestamp {
    mbps.into_iter().fold(now, |now, mbps| {
        let (now, window) = (now + rtt, b.window());
        let batch = ack(b, now, 12_000, mbps, window - 12_000);
        b.on_ack(&AckBatch { largest_sent_time: now - rtt, source_paced: true, ..batch });
        now
    })
}

const LONG: Duration = Duration::from_millis(400);

/// Returns a controller that has delivered a live stream of 12 Mbps for seconds.
fn streaming() -> (Bbr, Timestamp) {
    let (mut b, mut now) = cruising();
    for _ in 0..60 {
        now += RTT;
        let batch = ack(&b, now, 75_000, 12, 75_000);
        b.on_ack(&AckBatch { source_paced: true, ..batch });
    }
    (b, now)
}

/// Roughly what 12 Mbps carry in one and a half of these round trips.
const OVER_LONG: u64 = 850_000;

#[test]
fn a_starved_stream_gets_a_window_for_a_longer_path() {
    let (mut b, now) = streaming();
    // The last short round trip is a quarter of a second old.
    let now = full_rounds(&mut b, now, LONG, [2, 2, 2]);
    assert!(b.window() > OVER_LONG, "{}", b.window());
    // The round trip does not rise, so the window stays.
    let now = full_rounds(&mut b, now, LONG, [11, 11, 11]);
    let now = full_rounds(&mut b, now, LONG, [11, 11, 11]);
    assert!(b.window() > OVER_LONG, "{}", b.window());
    // A short round trip ends the extension.
    full_rounds(&mut b, now, RTT, [11, 11, 11]);
    assert!(b.window() < OVER_LONG / 2, "{}", b.window());
}

#[test]
fn a_queue_that_grows_with_the_window_ends_the_trial() {
    let (mut b, now) = streaming();
    let now = full_rounds(&mut b, now, LONG, [2, 2, 2]);
    assert!(b.window() > OVER_LONG, "{}", b.window());
    full_rounds(&mut b, now, LONG * 2, [2, 2, 2]);
    assert!(b.window() < OVER_LONG / 2, "{}", b.window());
}

#[test]
fn a_trial_that_delivers_no_more_ends() {
    let (mut b, now) = streaming();
    let now = full_rounds(&mut b, now, LONG, [2, 2, 2]);
    full_rounds(&mut b, now, LONG, [8, 8, 8]);
    assert!(b.window() < OVER_LONG / 2, "{}", b.window());
}

#[test]
fn long_round_trips_without_a_stream_are_a_queue() {
    let (mut b, mut now) = cruising();
    for _ in 0..4 {
        now += LONG;
        let window = b.window();
        let batch = ack(&b, now, 12_000, 2, window - 12_000);
        b.on_ack(&AckBatch { largest_sent_time: now - LONG, ..batch });
    }
    assert!(b.window() < OVER_LONG / 2, "{}", b.window());
}

/// Makes the sender application-limited, after its handshake, with a sample at the stream's rate.
fn limited(b: &mut Bbr, now: Timestamp) {
    b.round_count += 10;
    let batch = ack(b, now, 1_200, 2, 12_000);
    let sample = batch.rate.map(|sample| RateSample { is_app_limited: true, ..sample });
    b.on_ack(&AckBatch { rate: sample, ..batch });
}

/// Lets the sender have data to send, including data with a pace of its own.
fn source_paced(b: &mut Bbr, now: Timestamp) {
    let batch = ack(b, now, 18_750, 3, 18_750);
    b.on_ack(&AckBatch { source_paced: true, ..batch });
}

/// Counts saturated rounds at 3 Mbps until the estimate falls below 12 Mbps.
fn bad_rounds(b: &mut Bbr, mut now: Timestamp) -> u32 {
    for rounds in 1..1_000 {
        now += RTT;
        let batch = ack(b, now, 18_750, 3, 18_750);
        b.on_ack(&batch);
        if b.snapshot().bandwidth < Some(Rate::from_mbps(12)) {
            return rounds;
        }
    }
    panic!("{:?} for ever", b.snapshot().bandwidth);
}

#[test]
fn samples_of_an_outage_are_not_taken_for_the_rate_of_the_path() {
    let (mut b, now) = cruising();
    assert_eq!(bad_rounds(&mut b, now), 10, "an unlimited sender follows the draft");
    for application in [limited, source_paced] {
        let (mut b, now) = cruising();
        application(&mut b, now);
        let rounds = bad_rounds(&mut b, now);
        assert!((70..=80).contains(&rounds), "{rounds} rounds of 50 ms");
    }
    let (b, now) = cruising();
    let mut draft = Bbr { limited: Limited::Never, ..b };
    limited(&mut draft, now);
    assert!(bad_rounds(&mut draft, now) <= 10);
}

#[test]
fn an_outage_without_a_queue_does_not_reduce_the_window_of_a_limited_sender() {
    let after = |application: fn(&mut Bbr, Timestamp), rtt: Duration, kind: CongestionKind| {
        let (mut b, now) = cruising();
        let before = b.window();
        application(&mut b, now);
        b.on_packets_lost(now, 60_000, 0);
        b.on_congestion_event(&CongestionEvent { rtt, lost_bytes: 60_000, ..event(now, 0, kind) });
        b.window() >= before
    };
    // Longer than the wait for a bunch.
    let queue = RTT + Duration::from_millis(100);
    for kind in [CongestionKind::Loss, CongestionKind::Persistent] {
        for application in [limited, source_paced] {
            assert!(after(application, RTT, kind), "{kind:?}");
            assert!(!after(application, queue, kind), "{kind:?}");
        }
        assert!(!after(|_, _| {}, RTT, kind), "{kind:?}");
    }
    assert!(!after(limited, RTT, CongestionKind::Ecn), "an explicit signal");
}

#[test]
fn a_loss_conserves_packets_for_one_round_and_a_round_without_loss_restores_the_window() {
    let (mut b, mut now) = cruising();
    let before = b.window();
    b.on_packets_lost(now, 1_200, 60_000);
    b.on_congestion_event(&event(now, 60_000, CongestionKind::Loss));
    assert_eq!(b.window(), 61_200);
    // Within the round the window follows the flight.
    let batch = ack(&b, now, 1_200, 12, 60_000);
    let inside =
        RateSample { prior_delivered: 0, delivered: b.delivered + 1_200, ..batch.rate.unwrap() };
    b.on_ack(&AckBatch { rate: Some(inside), ..batch });
    assert_eq!(b.window(), 61_200);
    now += RTT;
    let batch = ack(&b, now, 1_200, 12, 60_000);
    b.on_ack(&batch);
    assert_eq!(b.window(), 62_400, "growth by delivered bytes");
    b.on_packets_lost(now, 2_400, 60_000);
    b.on_congestion_event(&event(now, 60_000, CongestionKind::Loss));
    assert_eq!(b.window(), 60_000, "no second conservation, only the lost bytes");
    for _ in 0..2 {
        now += RTT;
        let batch = ack(&b, now, 1_200, 12, 60_000);
        b.on_ack(&batch);
    }
    assert!((before..=before + 2_400).contains(&b.window()), "{}", b.window());
}

#[test]
fn an_application_limited_sender_has_no_conservation() {
    // With a queue.
    let rtt = RTT * 2;
    for is_app_limited in [false, true] {
        let (mut b, now) = cruising();
        let batch = ack(&b, now, 1_200, 4, 2_400);
        let sample = RateSample { is_app_limited, ..batch.rate.expect("a sample") };
        b.on_ack(&AckBatch { rate: Some(sample), ..batch });
        let before = b.window;
        b.on_packets_lost(now, 1_200, 1_200);
        b.on_congestion_event(&CongestionEvent { rtt, ..event(now, 1_200, CongestionKind::Loss) });
        let held = b.min_pipe_window();
        assert_eq!(b.window, if is_app_limited { before - 1_200 } else { held });
    }
}

#[test]
fn a_loss_without_a_signal_does_not_change_the_window() {
    let (mut b, now) = cruising();
    let before = b.window();
    b.on_packets_lost(now, 12_000, 60_000);
    assert_eq!(b.window(), before);
}

#[test]
fn persistent_congestion_collapses_to_four_packets_and_grows_back_by_deliveries() {
    let (mut b, mut now) = cruising();
    b.on_packets_lost(now, 60_000, 0);
    b.on_congestion_event(&event(now, 0, CongestionKind::Loss));
    b.on_congestion_event(&event(now, 0, CongestionKind::Persistent));
    assert_eq!(b.window, 4_800);
    let mut rounds = 0;
    while b.window < 150_000 {
        now += RTT;
        let window = b.window;
        let batch = ack(&b, now, window, 12, 0);
        b.on_ack(&batch);
        assert!(b.window <= 2 * window);
        rounds += 1;
    }
    assert_eq!(rounds, 5, "from 4800 bytes, doubled each round");
}

#[test]
fn restart_from_idle_paces_at_the_bandwidth() {
    let (mut b, mut now) = cruising();
    while b.pacing_gain() != 1.25 {
        now += RTT + Duration::from_millis(1);
        let batch = ack(&b, now, 75_000, 12, 75_000);
        b.on_ack(&batch);
    }
    assert_eq!(b.pacing_rate(), Some(Rate::from_mbps(15)));
    b.on_sent(now + Duration::from_secs(30), PacketNumber(9), 1_200, 0);
    assert_eq!(b.pacing_rate(), Some(Rate::from_mbps(12)));
    // The round trip after the restart renews RTprop without ProbeRTT.
    let batch = ack(&b, now + Duration::from_secs(30) + RTT, 1_200, 12, 75_000);
    b.on_ack(&batch);
    assert_eq!(b.snapshot().state, "probe_bw");
}

#[test]
fn gain_cycles_start_at_every_phase_but_the_draining_one() {
    let mut seen = [false; 8];
    let mut b = Bbr::new(MTU, 42);
    for _ in 0..200 {
        b.enter_probe_bw(at(1));
        if let BbrState::ProbeBw { phase, .. } = b.state {
            seen[phase] = true;
        }
    }
    assert_eq!(seen, [true, false, true, true, true, true, true, true]);
}

#[test]
fn an_assumed_round_trip_paces_the_first_flight() {
    let mut b = Bbr::new(MTU, 1);
    b.start(Start { window: Some(50_000), rate: None, rtt: Some(RTT) });
    assert_eq!(b.pacing_rate(), Some(Rate::from_bytes_in(144_250, RTT)));
}

#[test]
fn a_cap_limits_the_values_of_a_start() {
    let mut b = Bbr::new(MTU, 1);
    b.cap(Cap { rate: Some(Rate::from_mbps(1)), in_flight: None, ..Cap::default() });
    let s = b.snapshot();
    assert_eq!((s.state, s.bandwidth, s.min_rtt, s.window), ("startup", None, None, 12_000));
    b.start(Start { rate: Some(Rate::from_mbps(5)), ..Start::default() });
    assert_eq!(b.pacing_rate(), Some(Rate::from_mbps(1)));
}

proptest! {
    #![proptest_config(crate::properties(64))]

    #[test]
    fn no_sequence_of_events_leads_below_four_packets_or_to_a_rate_of_zero(
        events in prop::collection::vec((0u8..6, 0u64..6_000, 0u64..100_000), 1..80),
    ) {
        let (mut b, mut now) = cruising();
        for (what, wait, bytes) in events {
            now += Duration::from_millis(wait);
            match what {
                0 | 1 => {
                    let batch = ack(&b, now, bytes, bytes % 20, bytes);
                    b.on_ack(&batch);
                }
                2 => {
                    b.on_packets_lost(now, bytes, bytes);
                    b.on_congestion_event(&event(now, bytes, CongestionKind::Loss));
                }
                3 => b.on_congestion_event(&event(now, bytes, CongestionKind::Persistent)),
                4 => b.on_sent(now, PacketNumber(bytes), 1_200, 0),
                _ => b.on_packets_lost(now, bytes, bytes),
            }
            prop_assert!(b.window() >= 4_800);
            prop_assert!(b.pacing_rate().is_none_or(|rate| rate > Rate::ZERO));
        }
    }
}
