//! Judges claims from the rows of an experiment.

use std::collections::BTreeMap;

use qoe::stats::Estimate;

use super::metrics::Term;
use super::output::note;
use super::rows::{RunGroup, RunRow, describe, groups, other, values};
use super::spec::{Bound, Claim, Comparison, Selection, Spec, number};
use crate::setup::Setup;

/// The verdict on a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimVerdict {
    pub text: String,
    /// Points at which the claim holds, and points it applies to.
    pub good: usize,
    pub all: usize,
    /// Points at which the 95 % confidence interval of the deciding value crosses the bound. Other
    /// seeds could reverse the verdict there.
    pub close: usize,
    /// Numbers of the failing points, or the margin of a claim that holds.
    pub detail: String,
    /// Reason for the failure, if the specification states one.
    pub why: Option<String>,
}

impl ClaimVerdict {
    /// A claim that applies to no point fails.
    pub(crate) fn holds(&self) -> bool {
        self.good == self.all && self.all > 0
    }

    pub(crate) fn word(&self) -> &'static str {
        if self.holds() { "PASS" } else { "FAIL" }
    }

    /// `5 of 6, 1 within its interval`.
    pub(crate) fn count(&self) -> String {
        let close = match self.close {
            0 => String::new(),
            1 => ", 1 within its interval".to_owned(),
            n => format!(", {n} within their intervals"),
        };
        format!("{} of {}{close}", self.good, self.all)
    }
}

/// Runs that failed. Every run must deliver the right bytes: an invariant, which is no claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delivery {
    pub failed: usize,
    pub all: usize,
    /// Place and reason of the first failure.
    pub first: Option<String>,
}

impl Delivery {
    pub(crate) fn of(rows: &[RunRow]) -> Self {
        let mut failed = rows.iter().filter(|row| !row.error.is_empty());
        let first = failed.next();
        Self {
            failed: usize::from(first.is_some()) + failed.count(),
            all: rows.len(),
            first: first.map(|RunRow { scheme, point, seed, error, .. }| {
                format!("{scheme} at {} with seed {seed}: {error}", describe(point))
            }),
        }
    }

    /// Returns whether there are runs, and none failed.
    pub(crate) fn holds(&self) -> bool {
        self.failed == 0 && self.all > 0
    }

    pub(crate) fn text(&self) -> String {
        match &self.first {
            None if self.all > 0 => format!("All {} runs delivered the right bytes.", self.all),
            None => "There are no runs.".to_owned(),
            Some(first) => {
                format!("{} of {} runs failed; the first: {first}.", self.failed, self.all)
            }
        }
    }
}

/// Prints the verdicts on standard error. Returns whether every run succeeded and all claims hold.
pub(crate) fn announce(delivery: &Delivery, verdicts: &[ClaimVerdict]) -> bool {
    if !delivery.holds() {
        note(format_args!("FAIL  {}", delivery.text()));
    }
    for verdict in verdicts {
        let detail = match &*verdict.detail {
            "" => String::new(),
            detail => format!("; {detail}"),
        };
        note(format_args!("{}  {} ({}{detail})", verdict.word(), verdict.text, verdict.count()));
    }
    delivery.holds() && verdicts.iter().all(ClaimVerdict::holds)
}

/// Verdict on one point.
struct PointVerdict {
    good: bool,
    /// The compared numbers as text.
    numbers: String,
    /// Distance to the bound (negative if the claim holds), and half its confidence interval.
    by: f64,
    half: Option<f64>,
}

/// Formats an estimate as `12.34 ± 0.56`: two significant digits of the interval, and the mean with
/// as many decimals. Without an interval, the mean alone.
pub(crate) fn with_ci(Estimate { mean, half }: Estimate) -> String {
    match half {
        None => short(mean),
        Some(half) if half >= 1e-4 => {
            let decimals = (1.0 - half.log10().floor()).max(0.0) as usize;
            format!("{mean:.decimals$} ± {half:.decimals$}")
        }
        Some(half) => format!("{} ± {}", short(mean), short(half)),
    }
}

/// Formats a value with three significant digits.
pub(crate) fn short(value: f64) -> String {
    // Treats 0.1 less a rounding error as 0.1.
    let size = value.abs() * (1.0 + 1e-9);
    match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ if size >= 0.1 => format!("{value:.3}"),
        _ if size >= 0.01 => format!("{value:.4}"),
        _ if size >= 0.001 => format!("{value:.5}"),
        _ => format!("{value:.1e}"),
    }
}

/// Returns all verdicts in claim order.
pub(crate) fn verdicts(spec: &Spec, rows: &[RunRow]) -> Vec<ClaimVerdict> {
    let groups = groups(rows);
    let judge = Judge { spec, groups: &groups };
    spec.claims.iter().map(|claim| judge.verdict(claim)).collect()
}

struct Judge<'a> {
    spec: &'a Spec,
    groups: &'a [RunGroup<'a>],
}

impl Judge<'_> {
    fn covered<'b>(&'b self, place: &'b Selection) -> impl Iterator<Item = &'b RunGroup<'b>> {
        self.groups.iter().filter(|group| {
            self.spec.is_shown(group.scheme)
                && place.covers(&self.spec.sweeps[group.sweep], group.scheme, group.point)
        })
    }

    fn setup(&self, group: &RunGroup<'_>) -> Option<Setup> {
        group.rows.values().next()?.setup(self.spec).ok()
    }

    fn values(&self, group: &RunGroup<'_>, term: &Term) -> BTreeMap<u64, f64> {
        values(self.spec, self.groups, group, term)
    }

    fn mean(&self, group: &RunGroup<'_>, term: &Term) -> Option<f64> {
        Some(Estimate::of(self.values(group, term).into_values())?.mean)
    }

    /// Returns the bound for each run of a group.
    fn bounds(&self, group: &RunGroup<'_>, bound: &Bound) -> BTreeMap<u64, f64> {
        let all = |value: f64| group.rows.keys().map(|&seed| (seed, value)).collect();
        match bound {
            Bound::Number(value) => all(*value),
            Bound::Key { key, factor } => {
                let value = self.setup(group).and_then(|setup| setup.number_of(key));
                value.map(|value| all(value * factor)).unwrap_or_default()
            }
            Bound::Metric { metric, of, factor } => {
                let values = match of {
                    None => self.values(group, metric),
                    Some(label) => other(self.groups, group, label)
                        .map(|other| self.values(other, metric))
                        .unwrap_or_default(),
                };
                values.into_iter().map(|(seed, value)| (seed, value * factor)).collect()
            }
        }
    }

    fn is_given(&self, claim: &Claim, group: &RunGroup<'_>) -> bool {
        let Some(given) = &claim.given else { return true };
        let Some(mean) = self.mean(group, &given.metric) else { return false };
        let bound = |bound: &Bound| {
            Estimate::of(self.bounds(group, bound).into_values()).map_or(f64::NAN, |all| all.mean)
        };
        given.at_most.as_ref().is_none_or(|most| mean <= bound(most))
            && given.at_least.as_ref().is_none_or(|least| mean >= bound(least))
    }

    fn verdict(&self, claim: &Claim) -> ClaimVerdict {
        let mut judged = Vec::new();
        match &claim.is {
            Comparison::Crosses { scheme } => {
                for (name, ends) in self.lines(claim) {
                    let (Some(first), Some(last)) = (ends.first(), ends.last()) else { continue };
                    let difference = |group: &RunGroup<'_>| {
                        let rival = other(self.groups, group, scheme)?;
                        self.difference(&claim.metric, group, rival)
                    };
                    if let (Some(a), Some(b)) = (difference(first), difference(last)) {
                        let numbers = format!("{name} {} to {}", with_ci(a), with_ci(b));
                        let good = a.mean * b.mean < 0.0;
                        // The end nearer to zero decides.
                        let near = if a.mean.abs() < b.mean.abs() { a } else { b };
                        let by = if good { -near.mean.abs() } else { near.mean.abs() };
                        judged.push(PointVerdict { good, numbers, by, half: near.half });
                    }
                }
            }
            Comparison::Falls { margin } => {
                for (name, line) in self.lines(claim) {
                    let rises = line.windows(2);
                    let rises = rises.filter_map(|w| self.difference(&claim.metric, w[1], w[0]));
                    if let Some(rise) = rises.max_by(|a, b| a.mean.total_cmp(&b.mean)) {
                        let numbers = format!("{name} rises by {}", with_ci(rise));
                        let by = rise.mean - margin;
                        judged.push(PointVerdict { good: by <= 0.0, numbers, by, half: rise.half });
                    }
                }
            }
            _ => {
                for group in self.covered(&claim.on) {
                    if self.is_given(claim, group)
                        && let Some(point) = self.judge(claim, group)
                    {
                        judged.push(point);
                    }
                }
            }
        }
        let bad: Vec<String> =
            judged.iter().filter(|point| !point.good).map(|point| point.numbers.clone()).collect();
        let worst = judged.iter().max_by(|a, b| a.by.total_cmp(&b.by));
        let detail = match (bad.len(), worst) {
            (0, Some(worst)) => format!("closest: {}", worst.numbers),
            (0, None) => "no point to judge".to_owned(),
            (1..=3, _) => bad.join("; "),
            (n, _) => format!("{}; and {} more", bad[..3].join("; "), n - 3),
        };
        let good = judged.len() - bad.len();
        let is_close = |point: &&PointVerdict| point.half.is_some_and(|half| point.by.abs() < half);
        let close = judged.iter().filter(is_close).count();
        let (text, why) = (claim.text.clone(), claim.why.clone());
        ClaimVerdict { text, good, all: judged.len(), close, detail, why }
    }

    /// Returns the points along the first axis, grouped by their other coordinates.
    fn lines<'b>(&'b self, claim: &'b Claim) -> BTreeMap<String, Vec<&'b RunGroup<'b>>> {
        let mut lines: BTreeMap<String, Vec<&RunGroup<'_>>> = BTreeMap::new();
        for group in self.covered(&claim.on) {
            let sweep = &self.spec.sweeps[group.sweep];
            let Some(x) = sweep.x().map(|axis| axis.key.get_ref()) else { continue };
            let rest: Vec<_> = group.point.iter().filter(|(key, _)| key != x).cloned().collect();
            let name = format!("{} {} {}", sweep.title, group.scheme, describe(&rest));
            lines.entry(name.trim().to_owned()).or_default().push(group);
        }
        for line in lines.values_mut() {
            line.sort_by(|a, b| {
                let x = |group: &RunGroup<'_>| {
                    let sweep = &self.spec.sweeps[group.sweep];
                    let key = sweep.x().map(|axis| axis.key.get_ref().clone());
                    let value = group.point.iter().find(|(name, _)| Some(name) == key.as_ref());
                    value.and_then(|(_, value)| number(value)).unwrap_or(0.0)
                };
                x(a).total_cmp(&x(b))
            });
        }
        lines
    }

    /// Returns the paired difference of a metric between two groups.
    fn difference(
        &self,
        metric: &Term,
        group: &RunGroup<'_>,
        rival: &RunGroup<'_>,
    ) -> Option<Estimate> {
        differences(&self.values(group, metric), &self.values(rival, metric))
    }

    /// Judges a claim at one point.
    fn judge(&self, claim: &Claim, group: &RunGroup<'_>) -> Option<PointVerdict> {
        let own = self.values(group, &claim.metric);
        let estimate = Estimate::of(own.values().copied())?;
        let (sign, bounds) = match &claim.is {
            Comparison::AtMost { bound, .. } => ("against at most", self.bounds(group, bound)),
            Comparison::AtLeast { bound, .. } => ("against at least", self.bounds(group, bound)),
            Comparison::Near { bound, .. } => ("against", self.bounds(group, bound)),
            Comparison::Below { scheme } => {
                let rival = other(self.groups, group, scheme)?;
                ("against", self.values(rival, &claim.metric))
            }
            Comparison::Crosses { .. } | Comparison::Falls { .. } => return None,
        };
        let difference = differences(&own, &bounds)?;
        let Estimate { mean: more, half } = difference;
        let bound = estimate.mean - more;
        let by = match &claim.is {
            Comparison::AtMost { margin, .. } => more - margin,
            Comparison::AtLeast { margin, .. } => -more - margin,
            Comparison::Near { share, margin, ci, .. } => {
                let noise = half.filter(|_| *ci).unwrap_or(0.0);
                more.abs() - noise.max(share * bound.abs()).max(*margin)
            }
            _ => more,
        };
        let is_strict = matches!(claim.is, Comparison::Below { .. });
        let good = if is_strict { by < 0.0 } else { by <= 0.0 };
        // A claim need not name the sweep if there is only one.
        let sweep = match claim.on.sweep {
            None if self.spec.sweeps.len() > 1 => &self.spec.sweeps[group.sweep].title,
            _ => "",
        };
        let place = [sweep, group.scheme, &describe(group.point)];
        let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
        let place = place.join(", ");
        let own = with_ci(estimate);
        let bound = match &claim.is {
            Comparison::Near { .. } => {
                format!("{} to {}", short(bound - more.abs() + by), short(bound + more.abs() - by))
            }
            Comparison::AtMost { margin, .. } => short(bound + margin),
            Comparison::AtLeast { margin, .. } => short(bound - margin),
            _ => short(bound),
        };
        let numbers = format!("{place}: {own} {sign} {bound}");
        // A bound that varies between runs has its own spread, so the interval of the difference
        // counts.
        let is_fixed = bounds.values().all(|value| Some(value) == bounds.values().next());
        let numbers = match is_fixed {
            true => numbers,
            false => format!("{numbers}, difference {}", with_ci(difference)),
        };
        // The claim already allows for the interval.
        let half = half.filter(|_| !matches!(claim.is, Comparison::Near { ci: true, .. }));
        Some(PointVerdict { good, numbers, by, half })
    }
}

/// Returns the mean difference of runs with the same seed, and half its confidence interval.
fn differences(own: &BTreeMap<u64, f64>, others: &BTreeMap<u64, f64>) -> Option<Estimate> {
    Estimate::of(own.iter().filter_map(|(seed, value)| Some(value - others.get(seed)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let numbers =
            [0.0, 123.4, -12.34, 1.234, 0.1234, -0.01234, 0.001234, 0.00001234, 0.1 - 1e-16]
                .map(short);
        let expected =
            ["0", "123", "-12.3", "1.23", "0.123", "-0.0123", "0.00123", "1.2e-5", "0.100"];
        assert_eq!(numbers, expected);
        let numbers = [(12.345, 0.056), (3357.4, 10.5), (0.05, 6.5e-4), (7e-5, 2e-5), (1.5, 0.0)];
        let numbers = numbers.map(|(mean, half)| with_ci(Estimate { mean, half: Some(half) }));
        let expected =
            ["12.345 ± 0.056", "3357 ± 10", "0.05000 ± 0.00065", "7.0e-5 ± 2.0e-5", "1.50 ± 0"];
        assert_eq!(numbers, expected);
    }
}
