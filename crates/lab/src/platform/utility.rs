//! MM'24's production results by utility and expected waiting time (its figures 14b and 15), next
//! to ours. They are computed from sums over a session; the paper's servers compute them per
//! decision interval.

use std::collections::BTreeMap;

use qoe::stats::Sample;

use super::compare::SessionTrial;
use super::run::SessionRow;

/// α of the sigmoid in production (section 5.2).
const SIGMOID: f64 = 0.1;

/// Utility of a session (equation 1): lower is better. The level is the number of replicas per
/// unit of lost data. `None` without lost data or goodput.
fn utility(row: &SessionRow) -> Option<f64> {
    let (latency, _) = row.recovery_with_zeros()?;
    let level = row.replicas as f64 / row.finished as f64;
    let cost = 1.0 / (1.0 + (-SIGMOID * (level - 2.0)).exp());
    let scale = row.rtt_min_ms * row.goodput_mbps;
    (scale > 0.0).then(|| latency * cost / scale)
}

/// Expected waiting time in milliseconds (equation 3), where n is the highest round of the session.
fn expected_waiting(row: &SessionRow) -> Option<f64> {
    let loss = row.loss_rate.filter(|_| row.finished > 0)?;
    let rounds = (0..row.rounds_max.max(1)).map(|k| f64::from(k + 1) * loss.powf(f64::from(k)));
    Some((1.0 - loss) * row.srtt_ms * rounds.sum::<f64>())
}

/// A session under the baseline and under AutoRec.
struct Pair<'a> {
    /// Expected waiting time under the baseline.
    waiting: f64,
    before: &'a SessionRow,
    after: &'a SessionRow,
}

/// Change of the mean of `of` over these sessions, in per cent.
fn change(pairs: &[Pair<'_>], of: impl Fn(&SessionRow) -> Option<f64>) -> Option<f64> {
    let both = pairs.iter().filter_map(|pair| Some((of(pair.before)?, of(pair.after)?)));
    let (before, after) = both.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    (before > 0.0).then(|| 100.0 * (after / before - 1.0))
}

/// Change of a quantile of the utility, in per cent.
fn quantile_change(pairs: &[Pair<'_>], q: f64) -> Option<f64> {
    let quantile = |values: Vec<f64>| Some(Sample::new(values)?.quantile(q));
    let before = quantile(pairs.iter().filter_map(|pair| utility(pair.before)).collect())?;
    let after = quantile(pairs.iter().filter_map(|pair| utility(pair.after)).collect())?;
    (before > 0.0).then(|| 100.0 * (after / before - 1.0))
}

/// A change that the paper states, and ours, in per cent.
pub(super) struct StatedChange {
    pub what: String,
    pub stated: &'static str,
    pub paper: f64,
    pub ours: Option<f64>,
    pub sessions: u64,
}

fn deterioration(row: &SessionRow) -> Option<f64> {
    (row.finished > 0).then(|| row.finished_late as f64 / row.finished as f64)
}

/// Returns the numbers of figures 14b and 15, over sessions with lost data under both schemes.
pub(super) fn changes(
    trials: &[SessionTrial],
    baseline: usize,
    autorec: usize,
) -> Vec<StatedChange> {
    let of_arm = |arm: usize| trials.iter().filter(move |trial| trial.arm == arm);
    let before: BTreeMap<u32, &SessionRow> =
        of_arm(baseline).map(|trial| (trial.session, &trial.row)).collect();
    let mut pairs: Vec<Pair<'_>> = of_arm(autorec)
        .filter_map(|trial| {
            let before = *before.get(&trial.session)?;
            let waiting = expected_waiting(before).filter(|_| trial.row.finished > 0)?;
            Some(Pair { waiting, before, after: &trial.row })
        })
        .collect();
    pairs.sort_by(|a, b| a.waiting.total_cmp(&b.waiting));
    let mut all = Vec::new();
    let mut add = |what: &str, stated, paper, ours, pairs: &[Pair<'_>]| {
        let (what, sessions) = (what.to_owned(), pairs.len() as u64);
        all.push(StatedChange { what, stated, paper, ours, sessions });
    };
    let stated = "MM'24 5.2, figure 15a";
    add("utility", stated, -6.3, change(&pairs, utility), &pairs);
    add("utility, 80th percentile", stated, -13.4, quantile_change(&pairs, 0.8), &pairs);
    let (low, high) = pairs.split_at(pairs.len() / 2);
    let stated = "MM'24 5.2, figure 14b: end of its range";
    let latency = |row: &SessionRow| row.recovery_with_zeros().map(|both| both.0);
    for (name, half, deteriorated, waited) in
        [("low", low, -30.0, -10.0), ("high", high, -50.0, -35.0)]
    {
        let what = format!("deterioration rate, {name} expected waiting time");
        add(&what, stated, deteriorated, change(half, deterioration), half);
        let what = format!("recovery latency, {name} expected waiting time");
        add(&what, stated, waited, change(half, latency), half);
    }
    let stated = "MM'24 5.2, figure 15b: up to";
    add("utility, high expected waiting time", stated, -17.0, change(high, utility), high);
    let goodput = change(high, |row| Some(row.goodput_mbps));
    add("goodput, high expected waiting time", stated, -5.1, goodput, high);
    all
}

#[cfg(test)]
mod tests {
    use super::super::compare::tests::row;
    use super::*;

    #[test]
    fn utility_follows_equation_1() {
        // 200 ms ÷ (80 ms · 1 Mbps), and one replica per unit: sigmoid(0.1 · (1 − 2)).
        let expected = 200.0 / 80.0 / (1.0 + 0.1_f64.exp());
        let own = utility(&row(0, 0)).expect("lost data");
        assert!((own - expected).abs() < 1e-12, "{own} {expected}");
        let dearer = SessionRow { replicas: 40, ..row(0, 0) };
        assert!(utility(&dearer).expect("lost data") > own);
        let fast = SessionRow { goodput_mbps: 2.0, ..row(0, 0) };
        assert!((utility(&fast).expect("lost data") - own / 2.0).abs() < 1e-12);
        assert_eq!(utility(&SessionRow { finished: 0, ..row(0, 0) }), None);
        assert_eq!(utility(&SessionRow { goodput_mbps: 0.0, ..row(0, 0) }), None);
    }

    #[test]
    fn expected_waiting_follows_equation_3() {
        // (1 − 0.04) · 90 ms · (1 + 2 · 0.04).
        let waiting = expected_waiting(&row(0, 0)).expect("lost data");
        assert!((waiting - 0.96 * 90.0 * 1.08).abs() < 1e-9, "{waiting}");
        assert_eq!(expected_waiting(&SessionRow { finished: 0, ..row(0, 0) }), None);
    }

    #[test]
    fn halves_are_divided_by_the_baselines_waiting_time() {
        let mut trials = Vec::new();
        for session in 0..10 {
            let far = session % 2 == 1;
            let before = SessionRow { srtt_ms: if far { 300.0 } else { 30.0 }, ..row(0, 0) };
            // Only the far half improves; its own waiting time under AutoRec does not matter.
            let late = if far { 1 } else { 2 };
            let after = SessionRow { finished_late: late, srtt_ms: 1.0, ..before };
            for (arm, row) in [before, after].into_iter().enumerate() {
                trials.push(SessionTrial { session, viewer: session, arm, row });
            }
        }
        let all = changes(&trials, 0, 1);
        let ours = |what: &str| {
            let line = all.iter().find(|line| line.what == what);
            line.map(|line| (line.ours, line.sessions)).expect("a line")
        };
        assert_eq!(ours("deterioration rate, low expected waiting time"), (Some(0.0), 5));
        assert_eq!(ours("deterioration rate, high expected waiting time"), (Some(-50.0), 5));
        assert_eq!(ours("utility"), (Some(0.0), 10));
    }
}
