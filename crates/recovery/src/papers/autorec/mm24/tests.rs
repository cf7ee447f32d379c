use super::super::tests::{at, interval, ms, path, told, with_view};
use super::*;
use crate::recovery::arrival;
use crate::{Arq, CopyKind, PathState, Recovery};

#[test]
fn options_out_of_range_are_rejected_by_name() {
    let fine = Options::default();
    assert_eq!(fine.checked(), Ok(fine));
    let wrong = [
        (Options { a: 0.0, ..fine }, "a"),
        (Options { a: f64::NAN, ..fine }, "a"),
        (Options { r_nor: -0.1, ..fine }, "r_nor"),
        (Options { max: 11, ..fine }, "max"),
        (Options { off_above: Some(1.5), ..fine }, "off_above"),
        (Options { off_above: Some(f64::NAN), ..fine }, "off_above"),
    ];
    for (options, key) in wrong {
        assert_eq!(options.checked().map_err(|e| e.key), Err(key));
    }
}

#[test]
fn no_replicas_beyond_round_1() {
    let mut recovery = Recovery::<()>::new(Arq::scheme(), None, at(0));
    let key = recovery.opened(at(1), at(0), 1);
    let mut adapter = UtilityAdapter { level: 3, ..UtilityAdapter::new(free(), 1) };
    with_view(path(), |view| {
        assert_eq!([1, 2, 3].map(|round| adapter.level(key, round, view)), [3, 0, 0]);
    });
}

fn free() -> Options {
    Options { gate: false, ..Options::default() }
}

/// An interval with this recovery latency in milliseconds.
fn slow(latency: u64) -> IntervalMetrics {
    IntervalMetrics {
        recovery_latency: Some(ms(latency)),
        rounds_max: 2,
        finished: 5,
        ..interval(5, 100)
    }
}

/// Returns level and direction after a decision at `level`, reached in `direction`, with this
/// relative improvement of the utility.
fn decided(level: u32, direction: i32, change: f64) -> (u32, i32) {
    let mut adapter = UtilityAdapter { level, direction, ..UtilityAdapter::new(free(), 1) };
    let now = adapter.measure(&slow(70), ms(60)).expect("all is known");
    adapter.utility = Some(now / (1.0 - change));
    with_view(path(), |view| adapter.on_interval(&slow(70), view));
    assert!((told(&adapter, "r_delta") - change).abs() < 1e-9);
    (adapter.level, adapter.direction)
}

#[test]
fn equation_4_continues_on_improvement_and_reverses_on_deterioration() {
    let (better, same, worse) = (0.031, [0.029, 0.0, -0.029], -0.031);
    assert_eq!(decided(2, 1, better), (3, 1));
    assert_eq!(decided(2, 1, worse), (1, -1));
    assert_eq!(decided(2, -1, better), (1, -1));
    assert_eq!(decided(2, -1, worse), (3, 1));
    for change in same {
        assert_eq!(decided(2, 1, change), (2, -1), "an unchanged level sets λ to -1");
    }
    // At the minimum and maximum level.
    assert_eq!(decided(4, 1, better), (4, -1));
    assert_eq!(decided(0, -1, better), (0, -1));
    assert_eq!(decided(4, -1, worse), (4, -1));
}

#[test]
fn utility_is_latency_by_round_trip_time_and_goodput_with_a_sigmoid_of_the_level() {
    let at_level = |level| {
        let mut adapter = UtilityAdapter { level, ..UtilityAdapter::new(free(), 1) };
        adapter.measure(&slow(76), ms(50)).expect("all is known")
    };
    let goodput = 95.0 * 1_200.0 / 0.3;
    assert!((at_level(2) / (0.076 * 0.5 / (0.05 * goodput)) - 1.0).abs() < 1e-9);
    assert!((at_level(0) / at_level(2) - 0.900_33).abs() < 1e-4);
    assert!((at_level(4) / at_level(2) - 1.099_67).abs() < 1e-4);
}

#[test]
fn the_expected_waiting_time_of_the_testbed_is_close_to_the_threshold() {
    let near = |found: f64, wanted: f64| (found - wanted).abs() < 0.01;
    assert!(near(waiting(0.05, 50.0, 1), 47.5));
    assert!(near(waiting(0.05, 50.0, 2), 52.25));
    assert!(near(waiting(0.05, 50.0, u32::MAX), 50.0 / 0.95));
    assert!(near(waiting(0.0, 50.0, 1), 50.0));
    assert_eq!(waiting(1.0, 50.0, 3), 0.0);
    for n in 1..20 {
        let sum: f64 = (0..n).map(|k| f64::from(k + 1) * 0.3_f64.powi(k)).sum();
        assert!(near(waiting(0.3, 50.0, n as u32), 0.7 * 50.0 * sum));
    }
}

#[test]
fn short_waiting_closes_the_gate_with_hysteresis() {
    let mut adapter = UtilityAdapter::new(Options::default(), 1);
    let rtt = |ms_: u64| PathState { smoothed_rtt: ms(ms_), ..path() };
    let mut after = |rtt_ms, rounds_max| {
        let metrics = IntervalMetrics { rounds_max, ..slow(70) };
        with_view(rtt(rtt_ms), |view| adapter.on_interval(&metrics, view));
        if adapter.open {
            (adapter.level, adapter.direction, adapter.exploring) = (3, -1, None);
        }
        (told(&adapter, "gate_open") > 0.0, adapter.level, adapter.direction)
    };
    assert_eq!(after(50, 1), (false, 0, 1));
    assert!(after(50, 2).0, "52.3 ms");
    assert!(after(50, 1).0, "47.5 ms is within the hysteresis");
    assert!(after(50, 0).0, "an interval without rounds keeps the previous number");
    assert_eq!(after(47, 1), (false, 0, 1), "44.7 ms; the direction is reset");
    assert!(!after(50, 1).0, "47.5 ms does not open it");
    assert_eq!(told(&adapter, "gate_turns"), 2.0);
}

#[test]
fn without_a_band_the_gate_closes_at_the_threshold() {
    let options = Options { gate_band: 1.0, ..Options::default() };
    let mut adapter = UtilityAdapter::new(options, 1);
    let path = PathState { smoothed_rtt: ms(50), ..path() };
    for (rounds_max, is_open) in [(2, true), (1, false), (2, true), (1, false)] {
        let metrics = IntervalMetrics { rounds_max, ..slow(70) };
        with_view(path, |view| adapter.on_interval(&metrics, view));
        assert_eq!(adapter.open, is_open, "{rounds_max} rounds");
    }
    assert!(Options { gate_band: 1.1, ..options }.checked().is_err());
}

#[test]
fn heavy_loss_disables_replicas_if_configured() {
    for (off_above, level) in [(None, 2), (Some(0.1), 0)] {
        let options = Options { off_above, ..free() };
        let mut adapter = UtilityAdapter { level: 2, ..UtilityAdapter::new(options, 1) };
        let heavy =
            |lost| IntervalMetrics { recovery_latency: Some(ms(70)), ..interval(lost, 100) };
        with_view(path(), |view| {
            adapter.on_interval(&heavy(10), view);
            assert_eq!(adapter.ceiling(), 2, "10 % is not above 10 %");
            adapter.on_interval(&heavy(11), view);
        });
        assert_eq!(adapter.ceiling(), level, "{off_above:?}");
    }
}

/// Returns an adapter at level 2 with this utility that explores next.
fn restless(seed: u64) -> UtilityAdapter {
    let mut adapter = UtilityAdapter { level: 2, ..UtilityAdapter::new(free(), seed) };
    with_view(path(), |view| {
        // The first interval measures, and all leave the level unchanged.
        (0..10).for_each(|_| adapter.on_interval(&slow(70), view));
        assert_eq!((adapter.level, adapter.exploring), (2, None));
        adapter.on_interval(&slow(70), view);
    });
    adapter
}

#[test]
fn ten_unchanged_intervals_trigger_exploration_of_all_levels() {
    let mut tried = [0; 5];
    for seed in 0..400 {
        let adapter = restless(seed);
        assert_eq!(adapter.exploring.map(|old| old.level), Some(2));
        tried[adapter.level as usize] += 1;
    }
    assert_eq!(tried[2], 0);
    assert!([0, 1, 3, 4].iter().all(|&level| (70..130).contains(&tried[level])), "{tried:?}");
}

#[test]
fn an_explored_level_is_kept_only_if_better() {
    // A latency change of 4 % counts. Cost moves the utility by up to 10 %, so latency changes
    // more.
    for seed in 0..20 {
        let mut worse = restless(seed);
        let before = worse.utility;
        with_view(path(), |view| worse.on_interval(&slow(100), view));
        assert_eq!((worse.level, worse.exploring), (2, None));
        assert_eq!((worse.utility, worse.direction), (before, -1), "as if it had not been tried");

        let mut better = restless(seed);
        let tried = better.level;
        with_view(path(), |view| better.on_interval(&slow(40), view));
        assert_eq!(better.exploring, None);
        let wanted = if tried > 2 { (tried + 1).min(4) } else { tried.saturating_sub(1) };
        assert_eq!(better.level, wanted, "the search continues from {tried}");
    }
}

#[test]
fn exploration_without_alternatives_changes_nothing() {
    let mut adapter = UtilityAdapter::new(Options { max: 0, ..free() }, 1);
    with_view(path(), |view| (0..50).for_each(|_| adapter.on_interval(&slow(70), view)));
    assert_eq!((adapter.level, adapter.exploring), (0, None));
    let mut one = UtilityAdapter::new(Options { max: 1, ..free() }, 1);
    with_view(path(), |view| (0..11).for_each(|_| one.on_interval(&slow(70), view)));
    let old = Some(Fallback { level: 0, utility: one.utility });
    assert_eq!((one.level, one.exploring), (1, old));
}

#[test]
fn intervals_without_measurements_change_nothing() {
    let known = |adapter: &UtilityAdapter| (adapter.level, adapter.utility);
    let mut adapter = UtilityAdapter { level: 2, ..UtilityAdapter::new(free(), 1) };
    with_view(path(), |view| {
        adapter.on_interval(&interval(5, 100), view);
        assert_eq!(known(&adapter), (2, None), "no latency yet");
        adapter.on_interval(&slow(70), view);
        let first = known(&adapter);
        assert_eq!(first.0, 2, "no previous utility");
        adapter.on_interval(&interval(5, 100), view);
        assert_eq!(known(&adapter), first, "the previous latency is kept");
        adapter.on_interval(&IntervalMetrics { goodput_bytes: 0, ..interval(5, 100) }, view);
        adapter.on_interval(&IntervalMetrics { span: Duration::ZERO, ..slow(70) }, view);
        adapter.on_interval(&IntervalMetrics::default(), view);
        assert_eq!(known(&adapter), first);
        // Half the goodput doubles the utility, even at the previous latency.
        let half = interval(5, 100);
        let half = IntervalMetrics { goodput_bytes: half.goodput_bytes / 2, ..half };
        adapter.on_interval(&half, view);
        assert_eq!(told(&adapter, "r_delta"), -1.0);
        assert_eq!(adapter.utility, first.1.map(|utility| utility * 2.0));
        adapter.level = 2;
    });
    with_view(PathState::default(), |view| {
        adapter.on_interval(&slow(500), view);
        assert_eq!(adapter.ceiling(), 2, "no round-trip time");
    });
    let mut zero = UtilityAdapter { level: 2, ..UtilityAdapter::new(free(), 1) };
    with_view(path(), |view| {
        zero.on_interval(&slow(0), view);
        zero.on_interval(&slow(70), view);
        assert_eq!(zero.ceiling(), 2, "no division by a utility of 0");
        zero.on_interval(&slow(60), view);
        assert_eq!(zero.ceiling(), 1);
    });
}

/// Returns the latency of an interval with ten losses, of which `again` were lost again and
/// recovered after 70 ms.
fn interval_with(again: usize) -> f64 {
    let adapter = UtilityAdapter::new(free(), 1);
    let scheme = crate::Scheme { adapter: Box::new(adapter), ..Arq::scheme() };
    let mut r = Recovery::<()>::new(scheme, None, at(0));
    r.decided(at(0), path());
    for n in 0..10 {
        r.sent(at(0), 1_000, None);
        let key = r.opened(at(60), at(0), 1_000);
        r.copy_sent(at(60), key, CopyKind::Retransmission);
        let mut sent = at(60);
        if n < again {
            sent = at(130);
            assert!(r.copy_lost(sent, key, CopyKind::Retransmission));
            r.copy_sent(sent, key, CopyKind::Retransmission);
        }
        let by = arrival(sent, CopyKind::Retransmission);
        r.finish(at(190), key, by);
        r.counted();
    }
    assert!(!r.decided(at(10), path()) && r.decided(at(10_000), path()));
    let mut told = 0.0;
    r.explain(&mut |name, value| told += if name == "utility" { value } else { 0.0 });
    told
}

#[test]
fn the_utility_counts_data_recovered_by_its_first_retransmission_as_zero_latency() {
    let (none, one, two) = (interval_with(0), interval_with(1), interval_with(2));
    assert!(none == 0.0 && one > 0.0, "{none} {one}");
    assert!((two / one - 2.0).abs() < 1e-6, "{one} {two}");
}

#[test]
fn decision_intervals_have_the_configured_length() {
    for (interval_rtts, before) in [(2, 99), (20, 999)] {
        let adapter = UtilityAdapter::new(Options { interval_rtts, ..free() }, 1);
        let scheme = crate::Scheme { adapter: Box::new(adapter), ..Arq::scheme() };
        let mut r = Recovery::<()>::new(scheme, None, at(0));
        let path = PathState { smoothed_rtt: ms(50), ..path() };
        assert!(!r.decided(at(before), path) && r.decided(at(before + 1), path));
    }
    let refused = Options { interval_rtts: 0, ..Options::default() }.checked();
    assert!(refused.is_err_and(|e| e.key == "interval_rtts"));
}
