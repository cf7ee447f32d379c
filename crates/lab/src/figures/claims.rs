//! Decides claims from the rows of an experiment.

use std::collections::BTreeMap;

use qoe::stats::Sample;

use super::engine::{Group, describe, groups, other, values};
use super::metrics::Term;
use super::settings::Settings;
use super::spec::{Bound, Claim, Comparison, Place, Spec, number};
use super::{engine::Row, spec::Contestant};

/// What became of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub text: String,
    /// At how many points it holds, and at how many it could.
    pub good: usize,
    pub all: usize,
    /// Where it does not hold, with the numbers; or a number that shows by how much it does.
    pub detail: String,
    /// Why not, if the specification knows.
    pub why: Option<String>,
}

impl Verdict {
    /// A claim that applies nowhere does not hold.
    pub(crate) fn holds(&self) -> bool {
        self.good == self.all && self.all > 0
    }

    pub(crate) fn word(&self) -> &'static str {
        if self.holds() { "PASS" } else { "FAIL" }
    }
}

/// Mean, and half the width of its 95 % confidence interval (Student's).
pub(crate) fn mean_ci(values: impl IntoIterator<Item = f64>) -> Option<(f64, Option<f64>)> {
    let summary = Sample::new(values)?.summary();
    Some((summary.mean, summary.ci95.map(|ci| (ci.high - ci.low) / 2.0)))
}

/// Three digits that mean something.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

/// All verdicts, in the order of the claims; the first is that every run came to something.
pub(crate) fn verdicts(spec: &Spec, rows: &[Row]) -> Vec<Verdict> {
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.error.is_empty()).collect();
    let detail = failed.first().map_or(String::new(), |row| {
        format!("{} at {} with seed {}: {}", row.scheme, describe(&row.point), row.seed, row.error)
    });
    let complete = Verdict {
        text: "Every run ends with the right bytes.".to_owned(),
        good: rows.len() - failed.len(),
        all: rows.len(),
        detail,
        why: None,
    };
    let groups = groups(rows);
    let judge = Judge { spec, groups: &groups };
    core::iter::once(complete).chain(spec.claims.iter().map(|claim| judge.verdict(claim))).collect()
}

struct Judge<'a> {
    spec: &'a Spec,
    groups: &'a [Group<'a>],
}

impl Judge<'_> {
    fn covered<'b>(&'b self, place: &'b Place) -> impl Iterator<Item = &'b Group<'b>> {
        self.groups.iter().filter(|group| {
            self.spec.is_shown(group.scheme)
                && place.covers(&self.spec.sweeps[group.sweep], group.scheme, group.point)
        })
    }

    fn settings(&self, group: &Group<'_>) -> Option<Settings> {
        let scheme: &Contestant =
            self.spec.schemes.iter().find(|scheme| scheme.label == group.scheme)?;
        let sweep = &self.spec.sweeps[group.sweep];
        let drawn = &group.rows.values().next()?.drawn;
        self.spec.settings(sweep, group.point, drawn, scheme).ok()
    }

    fn values(&self, group: &Group<'_>, term: &Term) -> BTreeMap<u64, f64> {
        values(self.spec, self.groups, group, term)
    }

    fn mean(&self, group: &Group<'_>, term: &Term) -> Option<f64> {
        mean_ci(self.values(group, term).into_values()).map(|(mean, _)| mean)
    }

    /// The bound in each run of a group.
    fn bounds(&self, group: &Group<'_>, bound: &Bound) -> BTreeMap<u64, f64> {
        let all = |value: f64| group.rows.keys().map(|&seed| (seed, value)).collect();
        match bound {
            Bound::Number(value) => all(*value),
            Bound::Key { key, factor } => {
                let value = self.settings(group).and_then(|settings| settings.number_of(key));
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

    fn is_given(&self, claim: &Claim, group: &Group<'_>) -> bool {
        let Some(given) = &claim.given else { return true };
        let Some(mean) = self.mean(group, &given.metric) else { return false };
        let bound = |bound: &Bound| {
            mean_ci(self.bounds(group, bound).into_values()).map_or(f64::NAN, |(mean, _)| mean)
        };
        given.at_most.as_ref().is_none_or(|most| mean <= bound(most))
            && given.at_least.as_ref().is_none_or(|least| mean >= bound(least))
    }

    fn verdict(&self, claim: &Claim) -> Verdict {
        let mut judged = Vec::new();
        match &claim.is {
            Comparison::Crosses { scheme } => {
                for (name, ends) in self.lines(claim) {
                    let (Some(first), Some(last)) = (ends.first(), ends.last()) else { continue };
                    let difference = |group: &Group<'_>| {
                        let rival = other(self.groups, group, scheme)?;
                        Some(self.mean(group, &claim.metric)? - self.mean(rival, &claim.metric)?)
                    };
                    if let (Some(a), Some(b)) = (difference(first), difference(last)) {
                        let told = format!("{name} {} to {}", short(a), short(b));
                        judged.push((a * b < 0.0, told, (a * b).abs()));
                    }
                }
            }
            Comparison::Falls { margin } => {
                for (name, line) in self.lines(claim) {
                    let means: Vec<f64> =
                        line.iter().filter_map(|g| self.mean(g, &claim.metric)).collect();
                    if means.len() > 1 {
                        let rise = means.windows(2).map(|w| w[1] - w[0]).fold(f64::MIN, f64::max);
                        let told = format!("{name} rises by {}", short(rise));
                        judged.push((rise <= *margin, told, rise));
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
            judged.iter().filter(|(good, ..)| !good).map(|(_, told, _)| told.clone()).collect();
        let worst = judged.iter().max_by(|a, b| a.2.total_cmp(&b.2));
        let detail = match (bad.len(), worst) {
            (0, Some((_, told, _))) => format!("closest: {told}"),
            (0, None) => "no point to judge".to_owned(),
            (1..=3, _) => bad.join("; "),
            (n, _) => format!("{}; and {} more", bad[..3].join("; "), n - 3),
        };
        let good = judged.len() - bad.len();
        let (text, why) = (claim.text.clone(), claim.why.clone());
        Verdict { text, good, all: judged.len(), detail, why }
    }

    /// Points along the first axis, by what else they have in common.
    fn lines<'b>(&'b self, claim: &'b Claim) -> BTreeMap<String, Vec<&'b Group<'b>>> {
        let mut lines: BTreeMap<String, Vec<&Group<'_>>> = BTreeMap::new();
        for group in self.covered(&claim.on) {
            let sweep = &self.spec.sweeps[group.sweep];
            let Some(x) = sweep.x().map(|axis| axis.key.get_ref()) else { continue };
            let rest: Vec<_> = group.point.iter().filter(|(key, _)| key != x).cloned().collect();
            let name = format!("{} {} {}", sweep.title, group.scheme, describe(&rest));
            lines.entry(name.trim().to_owned()).or_default().push(group);
        }
        for line in lines.values_mut() {
            line.sort_by(|a, b| {
                let x = |group: &Group<'_>| {
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

    /// Whether the claim holds at a point, the numbers, and how near it is to failing.
    fn judge(&self, claim: &Claim, group: &Group<'_>) -> Option<(bool, String, f64)> {
        let own = self.values(group, &claim.metric);
        let (mean, _) = mean_ci(own.values().copied())?;
        let told = |sign: &str, bound: f64| {
            let place = format!("{} {}", group.scheme, describe(group.point));
            format!("{}: {} {sign} {}", place.trim(), short(mean), short(bound))
        };
        // Differences are taken run by run.
        let difference = |bounds: &BTreeMap<u64, f64>| {
            mean_ci(own.iter().filter_map(|(seed, value)| Some(value - bounds.get(seed)?)))
        };
        let (good, sign, by, bound) = match &claim.is {
            Comparison::AtMost { bound, margin } => {
                let bounds = self.bounds(group, bound);
                let (by, _) = difference(&bounds)?;
                (by <= *margin, "against at most", by - margin, mean - by)
            }
            Comparison::AtLeast { bound, margin } => {
                let bounds = self.bounds(group, bound);
                let (by, _) = difference(&bounds)?;
                (by >= -*margin, "against at least", -by - margin, mean - by)
            }
            Comparison::Below { scheme } => {
                let rival = other(self.groups, group, scheme)?;
                let (by, _) = difference(&self.values(rival, &claim.metric))?;
                (by < 0.0, "against", by, mean - by)
            }
            Comparison::Near { bound, share, margin, ci } => {
                let bounds = self.bounds(group, bound);
                let (by, half) = difference(&bounds)?;
                let expected = mean - by;
                let allowed =
                    half.filter(|_| *ci).unwrap_or(0.0).max(share * expected.abs()).max(*margin);
                (by.abs() <= allowed, "against", by.abs() - allowed, expected)
            }
            Comparison::Crosses { .. } | Comparison::Falls { .. } => return None,
        };
        Some((good, told(sign, bound), by))
    }
}
