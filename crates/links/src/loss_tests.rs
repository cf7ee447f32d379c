//! Measured loss rates and burst statistics against theory, with fixed seeds.

use super::*;

const SEED: u64 = 20_261_121;

fn process(text: &str) -> LossProcess {
    let loss: Loss = text.parse().unwrap();
    LossProcess::new(Some(&loss), None, SEED, "test")
}

/// Fates of `n` packets at intervals of `gap`.
fn fates(text: &str, n: u64, gap: Duration) -> Vec<bool> {
    let mut process = process(text);
    let nanos = gap.as_nanos() as u64;
    (0..n).map(|i| process.is_lost(Timestamp::from_nanos(i * nanos), i)).collect()
}

fn mean(fates: &[bool]) -> f64 {
    fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64
}

/// Lengths of the runs of consecutive losses.
fn bursts(fates: &[bool]) -> Vec<usize> {
    fates.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).collect()
}

#[track_caller]
fn assert_near(measured: f64, expected: f64, relative: f64) {
    assert!(
        (measured - expected).abs() <= relative * expected,
        "measured {measured}, expected {expected} ± {} %, seed {SEED}",
        relative * 100.0
    );
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn independent_losses_have_their_rate_and_geometric_bursts() {
    let fates = fates("5%", 400_000, MS);
    assert_near(mean(&fates), 0.05, 0.03);
    let bursts = bursts(&fates);
    let longer = bursts.iter().filter(|length| **length > 1).count() as f64;
    assert_near(longer / bursts.len() as f64, 0.05, 0.1);
}

#[test]
fn loss_rates_of_zero_and_one_are_exact() {
    assert_eq!(mean(&fates("none", 1_000, MS)), 0.0);
    assert_eq!(mean(&fates("0%", 1_000, MS)), 0.0);
    assert_eq!(mean(&fates("100%", 1_000, MS)), 1.0);
    assert_eq!(mean(&fates("corr:rate=0,correlation=25%", 1_000, MS)), 0.0);
    assert_eq!(mean(&fates("lomax:rate=0", 1_000, MS)), 0.0);
}

/// P(draw < p) of netem's blended draws. Iterates their distribution function on a grid:
/// F(y) = E[F'((y − (1 − c) u) / c)] over a uniform u.
fn netem_rate(p: f64, c: f64) -> f64 {
    const N: usize = 2_000;
    let mut f: Vec<f64> = (0..=N).map(|i| i as f64 / N as f64).collect();
    let look_up = |f: &[f64], x: f64| match x * N as f64 {
        x if x <= 0.0 => 0.0,
        x if x >= N as f64 => 1.0,
        x => f[x as usize] + (f[x as usize + 1] - f[x as usize]) * x.fract(),
    };
    for _ in 0..12 {
        f = (0..=N)
            .map(|i| {
                let y = i as f64 / N as f64;
                let over = (0..400).map(|j| {
                    let u = (f64::from(j) + 0.5) / 400.0;
                    look_up(&f, (y - (1.0 - c) * u) / c)
                });
                over.sum::<f64>() / 400.0
            })
            .collect();
    }
    look_up(&f, p)
}

#[test]
fn correlated_losses_have_the_rate_of_netems_blend() {
    for (text, rate) in [("10%", 0.1), ("20%", 0.2)] {
        let fates = fates(&format!("corr:rate={text},correlation=25%"), 1_000_000, MS);
        assert_near(mean(&fates), netem_rate(rate, 0.25), 0.05);
        // A loss makes the next one more likely.
        let pairs = fates.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
        assert!(pairs / 1e6 > 1.2 * mean(&fates).powi(2));
    }
}

#[test]
fn a_gaussian_rate_has_its_mean_and_variance_over_slots() {
    let fates = fates("gauss:mean=10%,sd=2%,every=1s", 1_000_000, MS);
    assert_near(mean(&fates), 0.1, 0.02);
    let slots: Vec<f64> = fates.chunks(1_000).map(mean).collect();
    let variance = slots.iter().map(|rate| (rate - 0.1).powi(2)).sum::<f64>() / slots.len() as f64;
    // Variance of the slots' rates, plus the binomial variance of 1,000 packets per slot.
    assert_near(variance, 0.02_f64.powi(2) + 0.1 * 0.9 / 1_000.0, 0.15);
}

#[test]
fn gilbert_elliott_per_packet_has_its_rate_and_burst_length() {
    let fates = fates("ge:p=1%,r=25%", 1_000_000, MS);
    assert_near(mean(&fates), 0.01 / 0.26, 0.05);
    let bursts = bursts(&fates);
    assert_near(bursts.iter().sum::<usize>() as f64 / bursts.len() as f64, 4.0, 0.03);
}

#[test]
fn the_papers_slotted_chain_is_memoryless() {
    // p(G→B) + p(B→G) = 1: each slot of 30 ms is bad with probability 0.2, regardless of the
    // previous one.
    let mut chain = Chain {
        enter: Probability::clamped(0.2),
        remain: Probability::clamped(0.8).complement(),
        known: (0, false),
    };
    let states = DrawStream::new(SEED, "test", "loss state");
    let bad: Vec<bool> = (0..200_000).map(|slot| chain.is_bad(states, slot)).collect();
    assert_near(mean(&bad), 0.2, 0.02);
    let after_bad: Vec<bool> = bad.windows(2).filter(|w| w[0]).map(|w| w[1]).collect();
    let after_good: Vec<bool> = bad.windows(2).filter(|w| !w[0]).map(|w| w[1]).collect();
    assert_near(mean(&after_bad), 0.2, 0.03);
    assert_near(mean(&after_good), 0.2, 0.03);
}

#[test]
fn the_papers_slotted_chain_has_the_mean_loss_of_figure_20() {
    for (bad, expected) in [("10%", 0.028), ("40%", 0.088), ("80%", 0.168)] {
        let text = format!("ge:p=0.2,r=0.8,good=1%,bad={bad},slot=30ms");
        assert_near(mean(&fates(&text, 2_000_000, MS)), expected, 0.03);
    }
}

#[test]
fn the_state_of_a_slot_does_not_depend_on_earlier_queries() {
    for (p, r) in [(0.2, 0.8), (0.01, 0.05), (0.9, 0.95), (1.0, 1.0)] {
        let chain = || Chain {
            enter: Probability::clamped(p),
            remain: Probability::clamped(r).complement(),
            known: (0, false),
        };
        let states = DrawStream::new(SEED, "test", "loss state");
        let mut every = chain();
        let full: Vec<bool> = (0..3_000).map(|slot| every.is_bad(states, slot)).collect();
        assert!(!full[0], "the chain starts good");
        let mut sparse = chain();
        for slot in (0..3_000_u64).filter(|slot| slot % 7 == 3 || slot % 113 < 2) {
            assert_eq!(
                sparse.is_bad(states, slot),
                full[slot as usize],
                "slot {slot}, p {p} r {r}"
            );
        }
        assert_eq!(chain().is_bad(states, 2_999), full[2_999]);
    }
}

#[test]
fn a_chain_that_always_changes_state_alternates() {
    let mut chain = Chain { enter: Probability::ONE, remain: Probability::ZERO, known: (0, false) };
    let states = DrawStream::new(SEED, "test", "loss state");
    for step in [1, 2, 3, 10, 1_001] {
        assert_eq!(chain.is_bad(states, step), step % 2 == 1, "step {step}");
    }
}

#[test]
fn outages_have_their_share_of_time_and_their_length() {
    for (rate, ms) in [(0.02, 1), (0.1, 4)] {
        let fates = fates(&format!("outages:rate={rate},length={ms}ms"), 2_000_000, MS / 20);
        assert_near(mean(&fates), rate, 0.1);
        let bursts = bursts(&fates);
        let length = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
        assert_near(length, 20.0 * f64::from(ms), 0.1);
    }
    // Outages depend on time, not on packets.
    let sparse = fates("outages:rate=10%,length=4ms", 20_000, MS * 100);
    assert_near(mean(&sparse), 0.1, 0.1);
    assert!(bursts(&sparse).iter().sum::<usize>() < 2 * bursts(&sparse).len());
}

#[test]
fn lomax_bursts_have_the_tail_measured_by_art() {
    let fates = fates("lomax:rate=10%", 4_000_000, MS);
    assert_near(mean(&fates), 0.1, 0.1);
    let bursts = bursts(&fates);
    let exceeds = |k: usize| bursts.iter().filter(|b| **b > k).count() as f64 / bursts.len() as f64;
    for (k, expected, tolerance) in
        [(1, 0.618, 0.02), (13, 0.102, 0.05), (27, 0.050, 0.06), (125, 0.010, 0.15)]
    {
        assert_near(exceeds(k), expected, tolerance);
    }
    // ART reports P1 = 37.2 %. The fit gives 38.2 %.
    assert_near(1.0 - exceeds(1), 0.382, 0.03);
    assert!(bursts.iter().all(|length| *length <= 1_000));
}

#[test]
fn lomax_bursts_support_other_rates() {
    for rate in [0.01, 0.3] {
        let fates = fates(&format!("lomax:rate={rate},max=100"), 3_000_000, MS);
        assert_near(mean(&fates), rate, 0.06);
    }
}

#[test]
fn fates_do_not_depend_on_drops_elsewhere() {
    for text in [
        "5%",
        "corr:rate=30%,correlation=25%",
        "ge:p=5%,r=25%",
        "ge:p=0.2,r=0.8,good=1%,bad=40%,slot=30ms",
        "lomax:rate=20%",
        "gauss:mean=20%,sd=10%,every=100ms",
    ] {
        let full = fates(text, 5_000, MS);
        assert!(full.contains(&true), "{text}");
        let mut sparse = process(text);
        for index in (0..5_000_u64).filter(|i| i % 5 < 2 || i % 61 == 0) {
            let now = Timestamp::from_millis(index);
            assert_eq!(sparse.is_lost(now, index), full[index as usize], "{text}, packet {index}");
        }
    }
}

#[test]
fn a_script_drops_its_packets_and_windows() {
    let fates = fates("script:0,7-9,20ms+5ms", 40, MS);
    let lost: Vec<usize> = (0..40).filter(|i| fates[*i]).collect();
    assert_eq!(lost, [0, 7, 8, 9, 20, 21, 22, 23, 24]);
}

#[test]
fn the_loss_column_of_a_trace_is_followed() {
    let trace: crate::Trace = "0 1 2ms 0\n1 1 2ms 0.5\n".parse().unwrap();
    let mut process = LossProcess::new(None, trace.rows(), SEED, "test");
    let fates: Vec<bool> =
        (0..20_000).map(|i| process.is_lost(Timestamp::from_millis(i), i)).collect();
    for (second, part) in fates.chunks(1_000).enumerate() {
        match second % 2 {
            0 => assert_eq!(mean(part), 0.0),
            _ => assert_near(mean(part), 0.5, 0.15),
        }
    }
}

#[test]
fn invalid_loss_models_state_the_expected_format() {
    for bad in
        ["5", "ge:p=0.2", "ge:p=0.2,r=0.8,x=1", "lomx:rate=1%", "script:a", "corr:5%", "ge:p"]
    {
        let error = bad.parse::<Loss>().unwrap_err().to_string();
        assert!(error.contains("ge:p=0.2,r=0.8"), "{error}");
    }
    let error = "ge:p=2,r=0.8".parse::<Loss>().unwrap_err().to_string();
    assert!(error.contains("`p` in `ge:p=2,r=0.8`") && error.contains("0 to 1"), "{error}");
    let error = "ge:p=1%,r=1%,slot=1ns".parse::<Loss>().unwrap_err().to_string();
    assert!(error.contains("at least 100us"), "{error}");
    assert!("lomax:rate=1%,alpha=-1".parse::<Loss>().is_err());
    assert!("lomax:rate=1%,max=99999999".parse::<Loss>().is_err());
}
