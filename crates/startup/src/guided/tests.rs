use super::*;
use crate::careful::Saved;
use crate::fixture::{self, MTU, ms};
use congestion::Algorithm;
use core::time::Duration;
use proptest::prelude::*;

const RTT: Duration = Duration::from_millis(50);

/// Acknowledges at `now` a packet sent 50 ms earlier.
fn ack(now: u64, acked_bytes: u64) -> AckBatch {
    fixture::ack(now, now - 50, acked_bytes, 0)
}

fn event(now: u64, kind: CongestionKind) -> CongestionEvent {
    fixture::event(now, 12_000, kind)
}

fn guided(algorithm: Algorithm, window: u64, course: Course) -> Guided {
    let mut guided = Guided::new(algorithm.build(MTU, 1), MTU);
    let start = Start { window: Some(window), rtt: Some(RTT), ..Start::default() };
    guided.begin(&StartDecision { start, course });
    guided
}

/// Sends `packets` packets, 1 ms apart, starting at 100 ms.
fn send(guided: &mut Guided, packets: u64) {
    for n in 0..packets {
        guided.on_sent(ms(100 + n), PacketNumber(n), 1_200, n * 1_200);
    }
}

#[test]
fn without_a_decision_the_controller_is_unchanged() {
    for algorithm in Algorithm::ALL {
        let (mut plain, mut held) =
            (algorithm.build(MTU, 1), Guided::new(algorithm.build(MTU, 1), MTU));
        for n in 0..200 {
            for controller in [&mut *plain, &mut held as &mut dyn Controller] {
                controller.on_sent(ms(100 + n), PacketNumber(n), 1_200, n * 1_200);
                if n % 3 == 0 {
                    controller.on_ack(&ack(150 + n, 3_600));
                }
                if n % 50 == 49 {
                    controller.on_packets_lost(ms(150 + n), 1_200, 12_000);
                    controller.on_congestion_event(&event(150 + n, CongestionKind::Loss));
                }
            }
            assert_eq!(plain.snapshot(), held.snapshot(), "{algorithm} after {n}");
        }
        assert_eq!(held.verdict(), Verdict::None);
    }
}

#[test]
fn an_acknowledged_flight_beyond_the_initial_window_passes() {
    let mut guided = guided(Algorithm::Bbr, 60_000, Course::Normal);
    send(&mut guided, 50);
    // 4 of 50 packets lost: not a sign of a slower path.
    guided.on_packets_lost(ms(155), 4 * 1_200, 50_000);
    guided.on_ack(&ack(160, 1_200));
    // Later packets belong to another flight.
    guided.on_sent(ms(161), PacketNumber(51), 1_200, 50_000);
    assert_eq!(guided.verdict(), Verdict::None);
    guided.on_ack(&ack(199, 50_000));
    assert_eq!(guided.verdict(), Verdict::Passed);
    guided.on_packets_lost(ms(200), 30_000, 0);
    guided.on_ack(&ack(220, 1_200));
    assert_eq!(guided.verdict(), Verdict::Passed, "final");
}

#[test]
fn a_flight_fails_on_many_losses_marks_or_persistent_congestion() {
    let mut lossy = guided(Algorithm::Bbr, 60_000, Course::Normal);
    send(&mut lossy, 50);
    lossy.on_packets_lost(ms(155), 7 * 1_200, 50_000);
    lossy.on_ack(&ack(199, 1_200));
    assert_eq!(lossy.verdict(), Verdict::Failed);
    for kind in [CongestionKind::Ecn, CongestionKind::Persistent] {
        let mut marked = guided(Algorithm::Cubic, 60_000, Course::Normal);
        send(&mut marked, 50);
        marked.on_congestion_event(&event(160, kind));
        marked.on_ack(&ack(199, 1_200));
        assert_eq!(marked.verdict(), Verdict::Failed);
    }
}

#[test]
fn the_initial_window_is_not_a_jump() {
    let mut usual = guided(Algorithm::Cubic, 12_000, Course::Normal);
    send(&mut usual, 10);
    usual.on_ack(&ack(160, 12_000));
    assert_eq!(usual.verdict(), Verdict::None);
    // Neither is an unused window.
    let mut unused = guided(Algorithm::Cubic, 60_000, Course::Normal);
    send(&mut unused, 5);
    unused.on_ack(&ack(160, 6_000));
    assert_eq!(unused.verdict(), Verdict::None);
}

#[test]
fn rapid_start_continues_in_congestion_avoidance() {
    for algorithm in Algorithm::ALL {
        let mut rapid = guided(algorithm, 24_000, Course::Rapid);
        send(&mut rapid, 20);
        rapid.on_ack(&ack(151, 12_000));
        assert_eq!((rapid.window(), rapid.snapshot().state), (48_000, "rapid_start"));
        rapid.on_packets_lost(ms(160), 1_200, 24_000);
        rapid.on_congestion_event(&event(160, CongestionKind::Loss));
        let window = rapid.window();
        assert!((21_000..48_000).contains(&window), "{algorithm}: {window}");
        rapid.on_sent(ms(161), PacketNumber(30), 1_200, 0);
        rapid.on_ack(&ack(212, 1_200));
        let after = rapid.snapshot();
        assert!(!matches!(after.state, "rapid_start" | "slow_start" | "startup"), "{after:?}");
        assert!(after.window.abs_diff(window) <= window / 4, "{algorithm}: {after:?}, {window}");
    }
}

#[test]
fn persistent_congestion_ends_rapid_start_at_the_minimum_window() {
    for (algorithm, minimum) in [(Algorithm::Cubic, 2_400), (Algorithm::Bbr, 4_800)] {
        let mut rapid = guided(algorithm, 24_000, Course::Rapid);
        send(&mut rapid, 20);
        rapid.on_congestion_event(&event(160, CongestionKind::Persistent));
        assert_eq!(rapid.window(), minimum, "{algorithm}");
    }
}

#[test]
fn caps_apply_to_the_startup_algorithm() {
    let mut rapid = guided(Algorithm::Cubic, 24_000, Course::Rapid);
    let rate = Rate::from_kbps(500);
    rapid.cap(Cap { rate: Some(rate), in_flight: Some(9_000), ..Cap::default() });
    assert_eq!((rapid.window(), rapid.pacing_rate()), (9_000, Some(rate)));
}

proptest! {
    /// Any order of events leaves a window without a panic.
    #[test]
    fn any_course_leaves_a_window(
        algorithm in 0..Algorithm::ALL.len(),
        course in 0..3,
        events in prop::collection::vec((0..6u8, 1..200u64), 1..200),
    ) {
        let saved = Saved { jump: 100_000, rtt: RTT, first_frame: None };
        let course = [Course::Normal, Course::Careful(saved), Course::Rapid][course as usize];
        let mut guided = guided(Algorithm::ALL[algorithm], 30_000, course);
        let mut now = 100;
        for (what, n) in events {
            now += n % 40;
            match what {
                0 | 1 => guided.on_sent(ms(now), PacketNumber(now), 1_200, n * 600),
                2 => guided.on_ack(&ack(now, n * 300)),
                3 => guided.on_packets_lost(ms(now), n * 300, 0),
                4 => guided.on_congestion_event(&event(now, CongestionKind::Loss)),
                _ if n > 180 => guided.on_congestion_event(&event(now, CongestionKind::Persistent)),
                _ => guided.on_ack(&AckBatch { cwnd_limited: false, ..ack(now, 1_200) }),
            }
            prop_assert!(guided.window() >= 2_400, "{guided:?}");
            prop_assert!(guided.pacing_rate().is_none_or(|rate| rate.as_bps() > 0));
        }
    }
}
