use super::super::formulas::*;
use super::ms;
use crate::Random;
use core::time::Duration;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const SECOND: Duration = Duration::from_secs(1);

fn close(found: f64, wanted: f64, tolerance: f64) -> bool {
    (found - wanted).abs() <= tolerance
}

#[test]
fn formulas_match_the_model_and_its_simulation() {
    // R, K, then F, G, H for the life of a unit, then F' (exact) and G' (simulated).
    let table = [
        (0.01, 1, [0.5101, 0.0100, 0.0097], [0.5101, 0.0100]),
        (0.05, 1, [0.5526, 0.0500, 0.0432], [0.5514, 0.0501]),
        (0.05, 3, [0.2633, 0.1500, 0.1228], [0.2633, 0.1500]),
        (0.05, 10, [0.0957, 0.5000, 0.3209], [0.0957, 0.5000]),
        (0.10, 1, [0.6111, 0.1000, 0.0749], [0.6061, 0.1010]),
        (0.10, 5, [0.1852, 0.5000, 0.3056], [0.1852, 0.5000]),
        (0.30, 1, [0.9286, 0.3000, 0.1282], [0.8791, 0.3294]),
        (0.30, 2, [0.5619, 0.6000, 0.2527], [0.5379, 0.6173]),
        (0.30, 5, [0.2410, 1.5000, 0.4899], [0.2401, 1.5010]),
    ];
    for (r, k, life, renewed) in table {
        let found = [
            recovery_latency(r, SECOND, k).as_secs_f64(),
            redundancy_cost(r, k),
            goodput_reduction(r, k),
        ];
        for (found, wanted) in found.into_iter().zip(life) {
            assert!(close(found, wanted, 6e-5), "R {r}, K {k}: {found}, not {wanted}");
        }
        let found =
            [recovery_latency_renewed(r, SECOND, k).as_secs_f64(), redundancy_cost_renewed(r, k)];
        let noise = [6e-5, 0.001];
        for ((found, wanted), noise) in found.into_iter().zip(renewed).zip(noise) {
            assert!(close(found, wanted, noise), "renewed R {r}, K {k}: {found}, not {wanted}");
        }
    }
    assert!(close(deterioration_rate(0.05, 2), 0.000_125, 1e-12));
}

#[test]
fn timely_acknowledgements_cancel_replicas() {
    // T_unit in percent of the round-trip time, K, and the remaining fraction of K R at R = 5 %.
    let table = [
        (100, 10, 1.0),
        (112, 6, 1.0),
        (125, 3, 1.0),
        (125, 4, 0.76),
        (125, 6, 0.84),
        (125, 10, 0.81),
        (150, 2, 0.53),
        (150, 3, 0.68),
        (150, 10, 0.71),
        (200, 1, 0.05),
        (200, 3, 0.35),
        (200, 10, 0.51),
    ];
    for (t_unit, level, wanted) in table {
        let found = redundancy_cost_cancelled(0.05, ms(t_unit), ms(100), level)
            / redundancy_cost(0.05, level);
        assert!(close(found, wanted, 0.006), "{t_unit}, {level}: {found}, not {wanted}");
    }
    assert_eq!(redundancy_cost_cancelled(0.05, Duration::ZERO, ms(100), 4), 0.2);
    assert!(close(redundancy_cost_cancelled(1.0, ms(200), ms(100), 4), 4.0, 1e-12));
    assert!(close(redundancy_cost_cancelled(0.05, ms(200), Duration::ZERO, 1), 0.0025, 1e-12));
}

/// Sums over replicas, each cancelled with the probability that an earlier copy was acknowledged.
fn cancelled_one_by_one(loss: f64, t_unit: u128, rtt: u128, level: u32) -> f64 {
    let copies = u128::from(level) + 1;
    let mut sum = 0.0;
    for j in 1..copies {
        let known = (0..j).filter(|i| i * t_unit + rtt * copies <= j * t_unit).count();
        sum += loss * loss.powi(known as i32);
    }
    sum
}

#[test]
fn levels_for_the_papers_settings() {
    // R in ‰, then K_θ with α = 0 and β = γ = 20 %, 5 %, 50 %.
    let table = [
        (5, [10, 10, 10]),
        (10, [10, 5, 10]),
        (28, [7, 1, 10]),
        (48, [4, 1, 10]),
        (50, [4, 1, 10]),
        (88, [2, 0, 5]),
        (100, [2, 0, 5]),
        (128, [1, 0, 3]),
        (168, [1, 0, 2]),
    ];
    for (r, levels) in table {
        let r = f64::from(r) / 1e3;
        for (tolerance, wanted) in [0.2, 0.05, 0.5].into_iter().zip(levels) {
            let found = level_for_latency(r, ms(90), Duration::ZERO, 10)
                .min(level_for_cost(r, tolerance, 10))
                .min(level_for_goodput(r, tolerance, 10));
            assert_eq!(found, wanted, "R {r}, β = γ = {tolerance}");
        }
    }
    assert_eq!(level_for_cost(0.05, 0.3, 10), 6, "6 × 0.05 does not exceed 0.3");
    // Figure 14: no replicas above α = 100 ms.
    assert_eq!(level_for_latency(0.05, ms(95), ms(101), 10), 0);
    assert_eq!(level_for_latency(0.05, ms(95), ms(30), 10), 3);
}

#[test]
fn functions_are_total() {
    let rates = [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 1e-300, 0.5, 1.0, 2.0, f64::INFINITY];
    for loss in rates {
        for level in [0, 1, 10, u32::MAX] {
            for t_unit in [Duration::ZERO, ms(60), Duration::MAX] {
                let _ = recovery_latency(loss, t_unit, level);
                let _ = recovery_latency_renewed(loss, t_unit, level);
                let cost = redundancy_cost_cancelled(loss, t_unit, ms(60), level);
                assert!(cost >= 0.0 && cost <= f64::from(level) * 1.001, "{loss} {level}: {cost}");
            }
            let reduction = goodput_reduction(loss, level);
            assert!((0.0..=1.0).contains(&reduction), "{loss} {level}: {reduction}");
            assert!(redundancy_cost(loss, level).is_finite());
            assert!(redundancy_cost_renewed(loss, level) >= 0.0);
            assert!((0.0..=1.0).contains(&deterioration_rate(loss, level)));
        }
        for tolerance in [f64::NAN, -1.0, 0.0, f64::INFINITY] {
            assert!(level_for_cost(loss, tolerance, 10) <= 10);
            assert!(level_for_goodput(loss, tolerance, 10) <= 10);
        }
    }
    assert_eq!(recovery_latency(0.0, ms(60), 0), ms(60));
    assert_eq!(recovery_latency(1.0, Duration::ZERO, 3), Duration::MAX, "it never arrives");
    assert_eq!(recovery_latency_renewed(1.0, ms(60), 3), Duration::MAX);
    assert_eq!(level_for_latency(1.0, ms(60), ms(200), 10), 10);
    assert_eq!(level_for_cost(1.0, 0.99, 10), 0);
    assert_eq!(level_for_latency(0.05, Duration::ZERO, Duration::ZERO, 10), 0);
    assert_eq!(level_for_cost(0.05, f64::NAN, 10), 0);
}

/// Simulates the model with losses in slots of 30 ms, T_unit of 45 ms and three evenly spaced
/// replicas. Slots follow a Gilbert-Elliott chain: good to bad with the first probability, bad to
/// good with the second; loss is 1 % in good slots and `bad` in bad ones. Returns the mean recovery
/// latency in ms and the fraction of lost data that needs a second round.
fn under_slots((to_bad, to_good): (f64, f64), bad: f64) -> (f64, f64) {
    const SLOT: f64 = 30.0;
    const T_UNIT: f64 = 45.0;
    let mut random = Random::new(1);
    let (mut latency, mut twice, mut again, mut lost) = (0.0, 0u32, 0u32, 0u32);
    for _ in 0..400_000 {
        let offset = random.fraction() * SLOT;
        let mut slot = 0;
        let mut is_bad = random.fraction() < to_bad / (to_bad + to_good);
        let mut arrives = |at: f64| {
            while slot < ((at + offset) / SLOT) as u32 {
                slot += 1;
                is_bad = random.fraction() < if is_bad { 1.0 - to_good } else { to_bad };
            }
            random.fraction() >= if is_bad { bad } else { 0.01 }
        };
        if arrives(0.0) {
            continue;
        }
        lost += 1;
        let copies = (0..4).map(|n| f64::from(n) * T_UNIT / 4.0);
        let later = (1..).map(|n| (0.75 + f64::from(n)) * T_UNIT);
        let first = copies.chain(later).find(|after| arrives(T_UNIT + after)).unwrap_or_default();
        twice += u32::from(first > 0.0);
        again += u32::from(first >= T_UNIT);
        latency += first;
    }
    (latency / f64::from(twice), f64::from(again) / f64::from(lost))
}

#[test]
fn recovery_takes_longer_under_bursts_than_the_formulas_predict() {
    // Reference values in experiments/formula-limits.toml.
    let table = [
        ((0.2, 0.8), 0.8, (25.0, 0.0157)),
        ((0.05, 0.2), 0.4, (19.6, 0.0127)),
        ((0.05, 0.2), 0.8, (68.0, 0.23)),
    ];
    for (chances, bad, (latency, share)) in table {
        let found = under_slots(chances, bad);
        assert!(close(found.0, latency, latency * 0.03), "{chances:?}, {bad}: {found:?}");
        assert!(close(found.1, share, share * 0.08), "{chances:?}, {bad}: {found:?}");
        let loss = 0.2 * bad + 0.8 * 0.01;
        assert!(found.0 > recovery_latency(loss, ms(45), 3).as_secs_f64() * 1e3);
        assert!(found.1 > deterioration_rate(loss, 3));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(20_261_121),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn latency_falls_and_overheads_rise_with_the_level(r in 0.0..=1.0, t in 0u64..5_000, k in 0u32..40) {
        prop_assert!(recovery_latency(r, ms(t), k + 1) <= recovery_latency(r, ms(t), k));
        prop_assert!(redundancy_cost(r, k + 1) >= redundancy_cost(r, k));
        prop_assert!(goodput_reduction(r, k + 1) >= goodput_reduction(r, k) - 1e-12);
        prop_assert!(deterioration_rate(r, k + 1) <= deterioration_rate(r, k));
        // Renewed replicas in every round never slow recovery down.
        prop_assert!(recovery_latency_renewed(r, ms(t), k) <= recovery_latency(r, ms(t), k) + Duration::from_nanos(2));
        prop_assert!(redundancy_cost_renewed(r, k) >= redundancy_cost(r, k));
    }

    #[test]
    fn binary_search_matches_linear_search(
        r in 0.0..=1.0, t in 0u64..1_000, alpha in 0u64..300, bound in 0.0..=1.0, cap in 0u32..30,
    ) {
        let alpha_level = (0..=cap).find(|&k| recovery_latency(r, ms(t), k) <= ms(alpha));
        prop_assert_eq!(level_for_latency(r, ms(t), ms(alpha), cap), alpha_level.unwrap_or(cap));
        let beta_level = (0..=cap).rev().find(|&k| redundancy_cost(r, k) <= bound + 1e-9);
        prop_assert_eq!(level_for_cost(r, bound, cap), beta_level.unwrap_or(0));
        let gamma_level = (0..=cap).rev().find(|&k| goodput_reduction(r, k) <= bound + 1e-9);
        prop_assert_eq!(level_for_goodput(r, bound, cap), gamma_level.unwrap_or(0));
    }

    #[test]
    fn the_cancelled_cost_is_the_sum_over_replicas(
        r in 0.0..1.0, t in 1u64..500, rtt in 0u64..300, k in 0u32..15,
    ) {
        let sum = cancelled_one_by_one(r, ms(t).as_nanos(), ms(rtt).as_nanos(), k);
        prop_assert!(close(redundancy_cost_cancelled(r, ms(t), ms(rtt), k), sum, 1e-9));
    }

    #[test]
    fn the_cancelled_reduction_equals_h_without_cancellation_and_is_less_otherwise(
        r in 0.0..0.95, t in 1u64..500, rtt in 0u64..300, k in 0u32..15,
    ) {
        let whole = goodput_reduction(r, k);
        prop_assert!(close(goodput_reduction_cancelled(r, ms(t), ms(t), k), whole, 1e-9));
        prop_assert!(goodput_reduction_cancelled(r, ms(t), ms(rtt), k) <= whole + 1e-9);
        prop_assert_eq!(goodput_reduction_cancelled(r, ms(t), ms(rtt), 0), 0.0);
    }
}
