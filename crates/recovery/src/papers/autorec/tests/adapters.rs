use super::*;
use std::time::Instant;

fn formula(latency: u64, cost: f64, goodput: f64) -> FormulaAdapter {
    FormulaAdapter::new(Tolerances { latency: ms(latency), cost, goodput })
}

#[test]
fn tolerances_out_of_range_are_rejected_by_name() {
    let fine = Tolerances::default();
    assert_eq!(fine.checked(), Ok(fine));
    let refused = |tolerances: Tolerances| tolerances.checked().map_err(|e| e.key);
    for cost in [-0.1, f64::NAN, f64::INFINITY] {
        assert_eq!(refused(Tolerances { cost, ..fine }), Err("cost"));
    }
    for goodput in [-0.1, 1.1, f64::NAN] {
        assert_eq!(refused(Tolerances { goodput, ..fine }), Err("goodput"));
    }
    let error = FixedLife::new(11).expect_err("above the limit");
    assert_eq!(error.to_string(), "`level` must be 0 to 10");
    assert!(FixedLife::new(10).is_ok());
}

#[test]
fn the_level_is_the_minimum_of_target_and_limits_and_0_after_an_interval_without_loss() {
    let mut adapter = formula(30, 0.3, 0.2);
    let with_unit = |ms_: u64, metrics| IntervalMetrics { t_unit: Some(ms(ms_)), ..metrics };
    with_view(path(), |view| {
        assert_eq!(adapter.ceiling(), 0, "no interval yet");
        adapter.on_interval(&with_unit(95, interval(5, 100)), view);
        assert_eq!(adapter.ceiling(), 3, "K_α");
        let levels = ["k_alpha", "k_beta", "k_gamma", "level"].map(|name| told(&adapter, name));
        assert_eq!(levels, [3.0, 6.0, 5.0, 3.0]);
        assert_eq!((told(&adapter, "loss_rate"), told(&adapter, "t_unit_ms")), (0.05, 95.0));
        // T_unit keeps its last value.
        adapter.on_interval(&interval(15, 100), view);
        assert_eq!((adapter.ceiling(), told(&adapter, "t_unit_ms")), (2, 95.0));
        adapter.on_interval(&interval(0, 100), view);
        assert_eq!(adapter.ceiling(), 0);
        adapter.on_interval(&interval(0, 0), view);
        assert_eq!(adapter.ceiling(), 0);
        // Everything is lost: no replica is within the cost limit.
        adapter.on_interval(&interval(100, 100), view);
        assert_eq!(adapter.ceiling(), 0);
        let mut fresh = formula(30, 0.3, 0.2);
        fresh.on_interval(&interval(5, 100), view);
        assert_eq!(told(&fresh, "t_unit_ms"), 60.0, "the round-trip time is used instead");
    });
}

/// The loss rate of the last visit sets the level for the first loss; after the first interval,
/// measurements do.
#[test]
fn expectations_decide_until_the_first_measurement() {
    let expected = crate::Expected { loss_rate: 0.05, rtt: ms(95), chances: None };
    let tolerances = Tolerances { latency: ms(30), cost: 0.3, goodput: 0.2 };
    let mut recovery = crate::Recovery::<()>::new(scheme(tolerances), None, at(0));
    recovery.expect(&expected);
    let key = recovery.opened(at(1), at(0), 1);
    recovery.copy_sent(at(1), key, crate::CopyKind::Retransmission);
    let off = crate::SendOpportunity { off_mode: true };
    for n in 2..5 {
        assert_eq!(recovery.next_replica(at(n), &off), Some(key), "K_α is 3");
        recovery.copy_sent(at(n), key, crate::CopyKind::Replica);
    }
    assert_eq!(recovery.next_replica(at(5), &off), None);
    let mut adapter = formula(30, 0.3, 0.2);
    adapter.on_expected(&expected);
    assert_eq!(adapter.ceiling(), 3);
    with_view(path(), |view| adapter.on_interval(&interval(0, 100), view));
    assert_eq!(adapter.ceiling(), 0, "no loss");
    adapter.on_expected(&expected);
    adapter.on_new_path();
    assert_eq!(adapter.ceiling(), 0, "expectations belong to the old path");
    adapter.on_expected(&crate::Expected { loss_rate: 0.0, ..expected });
    assert_eq!(adapter.ceiling(), 0);
}

#[test]
fn no_replicas_beyond_round_1() {
    let mut recovery = crate::Recovery::<()>::new(crate::Arq::scheme(), None, at(0));
    let key = recovery.opened(at(1), at(0), 1);
    let mut adapters: [Box<dyn RedundancyAdapter>; 2] =
        [Box::new(formula(0, 0.2, 0.2)), Box::new(FixedLife::new(4).expect("in range"))];
    with_view(path(), |view| {
        for adapter in &mut adapters {
            adapter.on_interval(&interval(5, 100), view);
            assert_eq!([1, 2, 3].map(|n| adapter.level(key, n, view)), [4, 0, 0], "{adapter:?}");
        }
    });
}

#[test]
fn a_decision_takes_less_than_a_microsecond() {
    let mut adapter = formula(30, 0.3, 0.2);
    const DECISIONS: u32 = 20_000;
    let began = Instant::now();
    let mut sum = 0;
    with_view(path(), |view| {
        for n in 0..u64::from(DECISIONS) {
            adapter.on_interval(&interval(n % 100, 100), view);
            sum += adapter.ceiling();
        }
    });
    let each = began.elapsed() / DECISIONS;
    println!("{each:?} per decision");
    assert!(sum > 0);
    // A loose bound: the machine may be busy, and the build unoptimised.
    assert!(each < Duration::from_micros(50), "{each:?}");
}
