use super::*;
use crate::fixture::{self, MTU, ack, ms};
use proptest::prelude::*;

const IW: u64 = 12_000;

/// 60 KB in flight at 50 ms: a jump may use 30 KB.
fn saved() -> Saved {
    Saved { jump: 30_000, rtt: Duration::from_millis(50), first_frame: None }
}

fn event(now: u64, kind: CongestionKind) -> CongestionEvent {
    fixture::event(now, 0, kind)
}

fn careful(saved: Saved) -> Careful {
    Careful::new(saved, IW, MTU, 0.5)
}

/// The initial window was sent at 1,000 ms. `order` results from its acknowledgement at 1,050 ms.
fn reconnoitred(saved: Saved) -> (Careful, Option<Order>) {
    let mut careful = careful(saved);
    for n in 1..=10 {
        assert_eq!(careful.on_sent(ms(1_000), 1_200, n * 1_200), None);
    }
    let order = careful.on_ack(&ack(1_050, 1_000, 12_000, 0), 24_000);
    (careful, order)
}

/// The jump of 30,000 bytes was sent from 1,050 to 1,098 ms, and validation has started.
fn validating() -> Careful {
    let (mut careful, _) = reconnoitred(saved());
    let orders: Vec<_> =
        (1..=25).filter_map(|n| careful.on_sent(ms(1_048 + 2 * n), 1_200, n * 1_200)).collect();
    assert_eq!(orders, [Order::Window(30_000)], "the flight is as large as the window");
    assert_eq!(careful.phase(), CarefulPhase::Validating);
    careful
}

#[test]
fn a_fully_acknowledged_jump_passes() {
    let (careful, order) = reconnoitred(saved());
    // 30,000 bytes in 50 ms, the current round trip.
    let rate = Rate::from_kbps(4_800);
    assert_eq!(order, Some(Order::Jump { window: 30_000, rate }));
    assert_eq!((careful.phase(), careful.verdict()), (CarefulPhase::Unvalidated, Verdict::None));
    let mut careful = validating();
    assert_eq!(careful.on_ack(&ack(1_120, 1_070, 12_000, 18_000), 42_000), None);
    assert_eq!((careful.phase(), careful.pipe_size()), (CarefulPhase::Validating, 12_000));
    assert_eq!(careful.on_ack(&ack(1_148, 1_098, 18_000, 0), 60_000), None);
    assert_eq!(careful.phase(), CarefulPhase::Normal(Exit::LastUnvalidatedPacketAcknowledged));
    assert_eq!((careful.verdict(), careful.pipe_size()), (Verdict::Passed, 30_000));
    // Later events have no effect.
    assert_eq!(careful.on_congestion_event(&event(1_200, CongestionKind::Loss)), None);
    assert_eq!(careful.verdict(), Verdict::Passed);
}

#[test]
fn the_current_round_trip_paces_the_jump() {
    let mut careful = careful(saved());
    careful.on_sent(ms(1_000), 12_000, 12_000);
    let order = careful.on_ack(&ack(1_200, 1_000, 12_000, 0), 24_000);
    assert_eq!(order, Some(Order::Jump { window: 30_000, rate: Rate::from_kbps(1_200) }));
}

#[test]
fn the_jump_waits_for_all_initial_data() {
    let mut careful = careful(saved());
    careful.on_sent(ms(1_000), 6_000, 6_000);
    careful.on_sent(ms(1_001), 6_000, 12_000);
    assert_eq!(careful.on_ack(&ack(1_040, 990, 300, 12_000), 12_300), None, "the handshake");
    assert_eq!(careful.on_ack(&ack(1_050, 1_000, 6_000, 6_000), 18_000), None);
    careful.on_sent(ms(1_050), 6_000, 12_000);
    assert_eq!(careful.phase(), CarefulPhase::Reconnaissance);
    // The rest of the first flight; later packets are still in flight.
    let order = careful.on_ack(&ack(1_051, 1_001, 6_000, 6_000), 24_000);
    assert!(matches!(order, Some(Order::Jump { window: 30_000, .. })), "{order:?}");
    assert_eq!(careful.pipe_size(), 6_000, "the flight before the jump");
}

#[test]
fn congestion_ends_reconnaissance() {
    for kind in [CongestionKind::Loss, CongestionKind::Ecn, CongestionKind::Persistent] {
        let mut careful = careful(saved());
        careful.on_sent(ms(1_000), 12_000, 12_000);
        assert_eq!(careful.on_congestion_event(&event(1_050, kind)), None);
        assert_eq!(careful.on_ack(&ack(1_051, 1_000, 10_800, 0), 24_000), None);
        assert_eq!(careful.phase(), CarefulPhase::Normal(Exit::Congestion));
        assert_eq!(careful.verdict(), Verdict::None, "no jump");
    }
}

#[test]
fn half_or_ten_times_the_round_trip_is_another_path() {
    for (rtt, jumps) in [(25, false), (26, true), (500, true), (501, false)] {
        let mut careful = careful(saved());
        careful.on_sent(ms(1_000), 12_000, 12_000);
        let order = careful.on_ack(&ack(1_000 + rtt, 1_000, 12_000, 0), 24_000);
        assert_eq!(order.is_some(), jumps, "{rtt} ms");
        if !jumps {
            assert_eq!(careful.phase(), CarefulPhase::Normal(Exit::RttNotValidated));
        }
    }
}

#[test]
fn without_data_reconnaissance_continues() {
    let mut careful = careful(saved());
    careful.on_sent(ms(1_000), 12_000, 12_000);
    let idle = AckBatch { cwnd_limited: false, ..ack(1_050, 1_000, 12_000, 0) };
    assert_eq!(careful.on_ack(&idle, 24_000), None);
    assert_eq!(careful.phase(), CarefulPhase::Reconnaissance);
    careful.on_sent(ms(1_100), 24_000, 24_000);
    let order = careful.on_ack(&ack(1_150, 1_100, 12_000, 12_000), 24_000);
    assert!(matches!(order, Some(Order::Jump { .. })), "{order:?}");
}

#[test]
fn the_jump_is_limited_to_the_rest_of_the_first_frame() {
    // 12,000 of 16,000 × 17/16 bytes were sent.
    let small = Saved { first_frame: Some(16_000), ..saved() };
    let (careful, order) = reconnoitred(small);
    assert_eq!((order, careful.phase()), (None, CarefulPhase::Normal(Exit::NothingToGain)));
    let middle = Saved { first_frame: Some(36_000), ..saved() };
    let (_, order) = reconnoitred(middle);
    let window = 36_000 * 17 / 16 - 12_000;
    assert!(matches!(order, Some(Order::Jump { window: w, .. }) if w == window), "{order:?}");
    // The frame's size may be set late.
    let mut careful = careful_with_late_frame();
    let order = careful.on_ack(&ack(1_050, 1_000, 12_000, 0), 24_000);
    assert!(matches!(order, Some(Order::Jump { window: w, .. }) if w == window), "{order:?}");
    let endless = Saved { first_frame: Some(u64::MAX), ..saved() };
    assert!(matches!(reconnoitred(endless).1, Some(Order::Jump { window: 30_000, .. })));
}

fn careful_with_late_frame() -> Careful {
    let mut careful = careful(saved());
    careful.on_sent(ms(1_000), 12_000, 12_000);
    careful.set_first_frame(36_000);
    careful
}

#[test]
fn the_jump_is_at_most_half_of_the_saved_window() {
    let past = |confidence| PathState { cookie: fixture::cookie(), confidence };
    // 6 Mbit/s at 50 ms are 37,500 bytes.
    let jump = |confidence, max_jump| Saved::new(&past(confidence), None, max_jump).jump;
    assert_eq!(jump(1.0, 100_000), 18_750);
    assert_eq!(jump(0.5, 100_000), 9_375);
    assert_eq!(jump(7.0, 100_000), 18_750);
    assert_eq!(jump(f64::NAN, 100_000), 0);
    assert_eq!(jump(1.0, 15_000), 15_000);
}

#[test]
fn an_early_acknowledgement_ends_the_unvalidated_phase() {
    let (mut careful, _) = reconnoitred(saved());
    let orders: Vec<_> =
        (1..=15).filter_map(|n| careful.on_sent(ms(1_050 + n), 1_200, n * 1_200)).collect();
    assert_eq!(orders, []);
    // The path is shorter than the first round trip.
    let order = careful.on_ack(&ack(1_091, 1_051, 1_200, 16_800), 25_200);
    assert_eq!((order, careful.phase()), (Some(Order::Window(16_800)), CarefulPhase::Validating));
}

#[test]
fn a_round_trip_ends_the_unvalidated_phase() {
    let (mut careful, _) = reconnoitred(saved());
    for n in 1..=12 {
        assert_eq!(careful.on_sent(ms(1_050 + n), 1_200, n * 1_200), None);
    }
    assert_eq!(careful.on_sent(ms(1_101), 1_200, 15_600), Some(Order::Window(15_600)));
    assert_eq!(careful.phase(), CarefulPhase::Validating);
    // The last unvalidated packet is the one before.
    careful.on_ack(&ack(1_112, 1_062, 14_400, 1_200), 30_000);
    assert_eq!(careful.verdict(), Verdict::Passed);
}

#[test]
fn an_insufficient_flight_undoes_the_jump() {
    let (mut careful, _) = reconnoitred(saved());
    careful.on_sent(ms(1_051), 1_200, 1_200);
    let order = careful.on_ack(&ack(1_101, 1_051, 1_200, 0), 25_200);
    // PipeSize is 1,200. Without congestion, the window stays at least the initial one.
    assert_eq!(order, Some(Order::Window(IW)));
    assert_eq!(careful.phase(), CarefulPhase::Normal(Exit::RateLimited));
    assert_eq!(careful.verdict(), Verdict::None);
}

#[test]
fn congestion_of_the_jump_causes_a_safe_retreat() {
    for kind in [CongestionKind::Loss, CongestionKind::Ecn] {
        let mut careful = validating();
        careful.on_ack(&ack(1_120, 1_070, 12_000, 18_000), 42_000);
        careful.on_sent(ms(1_121), 1_200, 19_200);
        let order = careful.on_congestion_event(&event(1_125, kind));
        assert_eq!(order, Some(Order::Hold(6_000)), "half of the validated bytes");
        assert_eq!(
            (careful.phase(), careful.verdict()),
            (CarefulPhase::SafeRetreat, Verdict::Failed)
        );
        assert_eq!(careful.on_congestion_event(&event(1_130, kind)), None, "once");
        assert_eq!(careful.on_ack(&ack(1_140, 1_090, 10_000, 8_000), 6_000), None);
        // The last packet of the unvalidated and validating phases was sent at 1,121 ms.
        let order = careful.on_ack(&ack(1_171, 1_121, 4_000, 0), 6_000);
        assert_eq!(order, Some(Order::Release { ssthresh: 13_000 }), "half of 26,000");
        assert_eq!(careful.phase(), CarefulPhase::Normal(Exit::ExitRecovery));
        assert_eq!(careful.verdict(), Verdict::Failed);
    }
}

#[test]
fn congestion_and_a_shorter_path_during_the_jump_cause_a_retreat() {
    let (mut careful, _) = reconnoitred(saved());
    careful.on_sent(ms(1_051), 12_000, 12_000);
    let order = careful.on_congestion_event(&event(1_060, CongestionKind::Loss));
    assert_eq!(order, Some(Order::Hold(2_400)), "minimum of two datagrams");
    let (mut careful, _) = reconnoitred(saved());
    careful.on_sent(ms(1_051), 12_000, 12_000);
    let order = careful.on_ack(&ack(1_076, 1_051, 6_000, 6_000), 18_000);
    assert_eq!(order, Some(Order::Hold(3_000)));
    assert_eq!(careful.phase(), CarefulPhase::SafeRetreat);
}

#[test]
fn persistent_congestion_ends_careful_resume() {
    let mut careful = validating();
    let persistent = event(2_000, CongestionKind::Persistent);
    assert_eq!(careful.on_congestion_event(&persistent), None);
    assert_eq!(careful.phase(), CarefulPhase::Normal(Exit::PersistentCongestion));
    assert_eq!(careful.verdict(), Verdict::Failed);
    // A held window is released.
    let mut held = validating();
    held.on_congestion_event(&event(1_125, CongestionKind::Loss));
    let order = held.on_congestion_event(&persistent);
    assert!(matches!(order, Some(Order::Release { .. })), "{order:?}");
}

proptest! {
    #[test]
    fn the_jump_is_bounded_unique_and_undone_after_congestion(
        events in prop::collection::vec((0..4u8, 1..3_000u64, 0..60u64), 1..200),
        first_frame in prop::option::of(0..100_000u64),
    ) {
        let mut careful = careful(Saved { first_frame, ..saved() });
        let (mut now, mut in_flight, mut window) = (1_000, 0u64, IW);
        let (mut jumps, mut held) = (0, false);
        let mut left = vec![];
        for (what, bytes, pause) in events {
            now += pause;
            let order = match what {
                0 | 1 => {
                    in_flight += bytes;
                    left.push(now);
                    careful.on_sent(ms(now), bytes, in_flight)
                }
                2 if !left.is_empty() => {
                    let sent = left.remove(left.len() / 2);
                    let acked = bytes.min(in_flight);
                    in_flight -= acked;
                    careful.on_ack(&ack(now.max(sent + 1), sent, acked, in_flight), window)
                }
                _ => careful.on_congestion_event(&event(now, CongestionKind::Loss)),
            };
            match order {
                Some(Order::Jump { window: to, rate }) => {
                    prop_assert!(to <= saved().jump && to > window && rate > Rate::ZERO);
                    (jumps, window) = (jumps + 1, to);
                }
                Some(Order::Window(to)) => window = to,
                Some(Order::Hold(to)) => {
                    prop_assert!(!held && careful.verdict() == Verdict::Failed);
                    prop_assert_eq!(to, (careful.pipe_size() / 2).max(2_400));
                    (held, window) = (true, to);
                }
                Some(Order::Release { ssthresh }) => {
                    prop_assert!(held && ssthresh <= careful.pipe_size());
                    held = false;
                }
                None => {}
            }
            prop_assert!(jumps <= 1);
            prop_assert_eq!(held, careful.phase() == CarefulPhase::SafeRetreat);
            prop_assert!(careful.verdict() != Verdict::Passed || jumps == 1);
        }
    }
}
