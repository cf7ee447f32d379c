use super::*;
use crate::{Arq, CopyKind, PathState, Recovery, Scheme};
use units::Rate;

const START: Timestamp = Timestamp::from_millis(100);
const RTT: Duration = Duration::from_millis(60);
const ESCAPE: Spread = Spread::EscapeSpace { alpha: 1.0 };

/// At 12 Mbps a packet of 1,200 bytes takes 0.8 ms, and a round trip has 75 of them.
const CYCLE: Duration = Duration::from_micros(800);

fn path() -> PathState {
    PathState {
        smoothed_rtt: RTT,
        min_rtt: Duration::from_millis(50),
        latest_rtt: Duration::from_millis(50),
        peak_rtt: Duration::from_millis(50),
        trough_rtt: Duration::from_millis(50),
        pacing_rate: Some(Rate::from_mbps(12)),
        delivery_rate: Rate::from_mbps(12),
        window: 150_000,
        in_flight: 0,
        packet: 1_200,
    }
}

/// Calls `see` with a view of this path and longest burst.
fn viewing<T>(path: PathState, longest_burst: u32, see: impl FnOnce(&View<'_>) -> T) -> T {
    let units = UnitTable::default();
    see(&View {
        path,
        units: &units,
        longest_burst,
        correlation: None,
        overdue_lost: 0.5,
        loss_rate: 0.05,
    })
}

fn keys(count: usize) -> Vec<UnitKey> {
    let mut source = Recovery::<()>::new(Arq::scheme(), None, START);
    (0..count).map(|_| source.opened(START, START, 1)).collect()
}

fn unit() -> LostUnit {
    LostUnit::new(START, START, 1, None)
}

fn plan(replicas: &mut Replicas, key: UnitKey, level: u32, burst: u32) {
    viewing(path(), burst, |view| replicas.on_retransmitted(START, key, &unit(), level, view));
}

/// Returns the delay of each replica after the retransmission, if all are sent when due.
fn delays(replicas: &mut Replicas) -> Vec<Duration> {
    let (units, at) = (UnitTable::default(), SendOpportunity { off_mode: false });
    let mut delays = Vec::new();
    while let Some(due) = replicas.next_timeout() {
        if due > START {
            let before = Timestamp::from_nanos(due.as_nanos() - 1);
            assert_eq!(replicas.poll(before, &at, &units), None, "not due yet");
        }
        let key = replicas.poll(due, &at, &units).expect("due when it said");
        assert_eq!(replicas.poll(due, &at, &units), Some(key), "still due until sent");
        replicas.on_replica_sent(due, key, &unit());
        delays.push(due.since(START));
    }
    delays
}

/// Panics if the delays are not uniform over `span`: chi-square with 20 classes
/// (0.999 quantile 43.8).
fn assert_uniform(delays: &[Duration], span: Duration) {
    let mut classes = [0_u32; 20];
    for delay in delays {
        let part = delay.as_secs_f64() / span.as_secs_f64();
        assert!((0.0..1.0).contains(&part), "{delay:?} of {span:?}");
        classes[(part * 20.0) as usize] += 1;
    }
    let expected = delays.len() as f64 / 20.0;
    let chi: f64 = classes.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
    assert!(chi < 43.8, "{chi}: {classes:?}");
}

#[test]
fn replicas_are_uniform_in_the_escape_space() {
    let mut replicas = Replicas::new(ESCAPE, 5);
    let keys = keys(2_000);
    keys.iter().for_each(|&key| plan(&mut replicas, key, 2, 30));
    let delays = delays(&mut replicas);
    assert_eq!(delays.len(), 4_000);
    assert!(delays.is_sorted());
    assert_uniform(&delays, CYCLE * 30);
}

#[test]
fn the_escape_space_is_limited_by_copies_and_one_round_trip() {
    let span = |spread: Spread, path, level, burst| viewing(path, burst, |v| spread.span(level, v));
    let near = |found: Duration, expected: Duration| {
        assert!(found.abs_diff(expected) < Duration::from_nanos(100), "{found:?} {expected:?}");
    };
    near(span(ESCAPE, path(), 1, 10), CYCLE * 10);
    near(span(ESCAPE, path(), 3, 0), CYCLE * 3);
    near(span(ESCAPE, path(), 3, 74), CYCLE * 74);
    near(span(ESCAPE, path(), 3, 76), RTT);
    near(span(Spread::EscapeSpace { alpha: 5.0 }, path(), 3, 10), CYCLE * 50);
    for alpha in [0.1, -7.0, f64::NAN, f64::NEG_INFINITY, f64::INFINITY] {
        near(span(Spread::EscapeSpace { alpha }, path(), 3, 10), CYCLE * 10);
    }
    // Without a pacing rate: a window of 125 packets per round trip.
    let unpaced = PathState { pacing_rate: None, ..path() };
    near(span(ESCAPE, unpaced, 1, 25), RTT / 5);
    let stopped = PathState { pacing_rate: Some(Rate::ZERO), ..path() };
    near(span(ESCAPE, stopped, 1, 1), RTT);
    near(span(ESCAPE, PathState::default(), u32::MAX, u32::MAX), Duration::ZERO);
    let windowless = PathState { window: 0, packet: 0, pacing_rate: None, ..path() };
    near(span(ESCAPE, windowless, 5, 5), Duration::ZERO);
    near(span(Spread::AtOnce, path(), 5, 5), Duration::ZERO);
    near(span(Spread::RoundTrip, path(), 5, 5), path().min_rtt);
    near(span(Spread::RoundTrip, PathState { min_rtt: Duration::ZERO, ..path() }, 5, 5), RTT);
}

/// Returns the mean time from a retransmission to its last replica.
fn mean_spread(spread: Spread, burst: u32) -> Duration {
    let mut replicas = Replicas::new(spread, 9);
    let key = keys(1)[0];
    let mut sum = Duration::ZERO;
    for _ in 0..1_000 {
        plan(&mut replicas, key, 3, burst);
        sum += *delays(&mut replicas).last().expect("three replicas");
    }
    sum / 1_000
}

#[test]
fn the_last_copy_escapes_the_longest_burst_only_with_a_greater_alpha() {
    // The expected maximum of 3 times over n cycles is 3n/4.
    let within = |found: Duration, cycles: f64| {
        let expected = CYCLE.mul_f64(cycles);
        assert!(found.abs_diff(expected) < expected / 30, "{found:?} {expected:?}");
    };
    within(mean_spread(ESCAPE, 40), 30.0);
    within(mean_spread(Spread::EscapeSpace { alpha: 5.0 }, 14), 52.5);
    assert!(mean_spread(ESCAPE, 40) > CYCLE * 10, "copies escape a shorter burst");
}

#[test]
fn the_codes_replicas_follow_one_another_within_a_round_trip() {
    let mut replicas = Replicas::new(Spread::RoundTrip, 4);
    let span = path().min_rtt;
    let key = keys(1)[0];
    let mut firsts = Vec::new();
    let mut last = Duration::ZERO;
    for _ in 0..4_000 {
        plan(&mut replicas, key, 3, 1_000);
        let delays = delays(&mut replicas);
        assert!(delays.is_sorted() && delays[2] < span);
        firsts.push(delays[0]);
        last += delays[2];
    }
    assert_uniform(&firsts, span);
    // Each draw halves the rest: 1 − 1/8.
    let mean = last.as_secs_f64() / 4_000.0 / span.as_secs_f64();
    assert!((0.86..0.89).contains(&mean), "{mean}");
}

#[test]
fn a_seed_determines_the_draws() {
    let of = |seed| {
        let mut replicas = Replicas::new(ESCAPE, seed);
        plan(&mut replicas, keys(1)[0], 10, 50);
        delays(&mut replicas)
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn finished_units_leave_no_replica_and_no_timeout() {
    let mut replicas = Replicas::new(ESCAPE, 3);
    let keys = keys(3);
    keys.iter().for_each(|&key| plan(&mut replicas, key, 4, 30));
    replicas.on_finished(keys[1]);
    replicas.on_finished(keys[0]);
    let mut sent = 0;
    while let Some(due) = replicas.next_timeout() {
        let at = SendOpportunity { off_mode: true };
        assert_eq!(replicas.poll(due, &at, &UnitTable::default()), Some(keys[2]));
        replicas.on_replica_sent(due, keys[2], &unit());
        sent += 1;
    }
    assert_eq!(sent, 4);
    plan(&mut replicas, keys[2], 4, 30);
    replicas.on_finished(keys[2]);
    assert_eq!((replicas.next_timeout(), replicas.len()), (None, 0));
}

#[test]
fn a_new_round_replaces_the_plan() {
    let scheme = Scheme {
        scheduler: Box::new(Replicas::new(ESCAPE, 3)),
        ..crate::fixed::or3_code(crate::fixed::Reading::Extra)
    };
    let mut r = Recovery::<()>::new(scheme, None, Timestamp::ZERO);
    r.decided(Timestamp::from_millis(1), path());
    (0..30).for_each(|number| r.packet_lost(START, number, Timestamp::ZERO));
    let key = r.opened(START, Timestamp::ZERO, 1);
    r.copy_sent(START, key, CopyKind::Retransmission);
    let at = SendOpportunity { off_mode: false };
    let due = r.next_timeout().expect("three replicas");
    assert_eq!(r.next_replica(due, &at), Some(key));
    r.copy_sent(due, key, CopyKind::Replica);
    assert!(r.next_timeout().is_some_and(|next| next >= due));
    // Both copies are lost before the other two replicas leave, so these never do.
    r.copy_lost(due, key, CopyKind::Retransmission);
    assert!(r.copy_lost(due, key, CopyKind::Replica));
    assert_eq!(r.next_timeout(), None);
    let later = START + RTT * 3;
    assert_eq!(r.next_replica(later, &at), None);
    r.copy_sent(later, key, CopyKind::Retransmission);
    let mut sent = 0;
    while let Some(due) = r.next_timeout() {
        assert!(due >= later);
        assert_eq!(r.next_replica(due, &at), Some(key));
        r.copy_sent(due, key, CopyKind::Replica);
        sent += 1;
    }
    assert_eq!(sent, 3);
    r.finish(later, key, None);
    assert!(r.is_empty());
}

#[test]
fn a_second_retransmission_in_a_round_replaces_the_plan() {
    let mut replicas = Replicas::new(ESCAPE, 3);
    let key = keys(1)[0];
    plan(&mut replicas, key, 5, 30);
    plan(&mut replicas, key, 2, 30);
    assert_eq!(delays(&mut replicas).len(), 2);
    plan(&mut replicas, key, 5, 30);
    plan(&mut replicas, key, 0, 30);
    assert_eq!(replicas.next_timeout(), None);
}

#[test]
fn finished_rounds_do_not_hold_memory_for_long() {
    let mut replicas = Replicas::new(ESCAPE, 3);
    let keys = keys(9);
    // One replica stays at the front while others come and go.
    plan(&mut replicas, keys[8], 1, 0);
    for turn in 0..10_000 {
        plan(&mut replicas, keys[turn % 8], 10, 70);
        replicas.on_finished(keys[turn % 8]);
    }
    assert!(replicas.len() <= 64 && replicas.queue.capacity() <= 64, "{:?}", replicas.len());
    assert_eq!(delays(&mut replicas).len(), 1);
}
