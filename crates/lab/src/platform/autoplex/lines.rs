//! Lines of `summary.json`, which the pages of the papers read.

use std::collections::BTreeMap;

use qoe::stats::Estimate;
use serde::Serialize;

use super::figures::{Figures, METRICS, ORDERS, PolicyLine};
use super::policy::FREE;

/// A line of `summary.json`. Scripts rely on its names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct GroupLine<'a> {
    /// Statistic over sessions: `mean`, a percentile, `better`, `worse`, or `all`.
    pub sweep: String,
    /// Policy.
    pub scheme: &'a str,
    /// Number of user groups.
    pub point: BTreeMap<&'static str, u32>,
    pub metric: String,
    pub unit: &'a str,
    pub mean: f64,
    pub ci95: Option<f64>,
}

/// Returns the lines of the results of one number of user groups. `gain:METRIC` is the change from
/// uncapped sessions as a share of their value.
pub(super) fn lines(figures: &Figures) -> Vec<GroupLine<'_>> {
    let mut all = Vec::new();
    let point: BTreeMap<_, _> =
        figures.groups.map(|groups| ("groups", groups)).into_iter().collect();
    let mut push =
        |sweep: &str, scheme, metric: String, unit, Estimate { mean, half }: Estimate| {
            let (sweep, point) = (sweep.to_owned(), point.clone());
            all.push(GroupLine { sweep, scheme, point, metric, unit, mean, ci95: half });
        };
    let percentiles = ORDERS.map(|order| format!("p{:.0}", order * 100.0));
    let sweeps: Vec<&str> =
        core::iter::once("mean").chain(percentiles.iter().map(String::as_str)).collect();
    for policy in &figures.policies {
        let scheme = &*policy.name;
        let mut both = |sweep: &str, key: &str, unit, line: &PolicyLine| {
            push(sweep, scheme, key.to_owned(), unit, line.value);
            if let Some(change) = line.relative.filter(|_| scheme != FREE) {
                let share = |percent: f64| percent / 100.0;
                let share = Estimate { mean: share(change.mean), half: change.half.map(share) };
                push(sweep, scheme, format!("gain:{key}"), "1", share);
            }
        };
        for (place, sweep) in sweeps.iter().enumerate() {
            both(sweep, "retransmission", "%", &policy.retransmission[place]);
            both(sweep, "goodput_per_rtt", "Mbps/s", &policy.goodput[0][place]);
            both(sweep, "sending_per_rtt", "Mbps/s", &policy.goodput[1][place]);
        }
        for (metric, line) in METRICS.iter().zip(&policy.viewers) {
            if let Some(line) = line {
                both("all", metric.key, metric.unit.trim(), line);
            }
        }
    }
    for band in &figures.bands {
        for (sweep, value) in [("better", band.better), ("worse", band.worse)] {
            push(sweep, FREE, band.key.to_owned(), band.unit, value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::policy::CapPolicy;
    use super::super::row::GroupRow;
    use super::*;

    #[test]
    fn lines_have_values_and_gains_by_policy_and_number_of_groups() {
        let day = |retransmissions| {
            let row = |session| GroupRow {
                session,
                packets: 1_000,
                retransmissions,
                goodput_mbps: 2.0,
                sending_mbps: 8.0,
                rtt_ms: 50.0,
                ..GroupRow::default()
            };
            (0..20).map(row).collect::<Vec<_>>()
        };
        let (free, own) = ([day(40), day(40)], [day(30), day(30)]);
        let of = |name| CapPolicy::parse(name).expect("known");
        let policies =
            [("bbr", of("bbr"), &free[..]), ("paper-goodput", of("paper-goodput"), &own[..])];
        let figures = Figures::of(Some(4), &policies).expect("comparable");
        let lines = lines(&figures);
        let found = |scheme: &str, sweep: &str, metric: &str| {
            let is_it = |line: &&GroupLine<'_>| {
                line.scheme == scheme && line.sweep == sweep && line.metric == metric
            };
            let line = lines.iter().find(is_it)?;
            assert_eq!(line.point, BTreeMap::from([("groups", 4)]));
            Some((line.unit, line.mean, line.ci95))
        };
        assert_eq!(found("bbr", "p90", "retransmission"), Some(("%", 4.0, Some(0.0))));
        assert_eq!(found("bbr", "mean", "gain:retransmission"), None);
        let (unit, mean, _) =
            found("paper-goodput", "mean", "gain:retransmission").expect("a gain");
        assert!(unit == "1" && (mean + 0.25).abs() < 1e-9, "{mean}");
        assert_eq!(found("bbr", "worse", "sending_per_rtt"), Some(("Mbps/s", 160.0, Some(0.0))));
        assert_eq!(found("paper-goodput", "all", "starved"), Some(("%", 0.0, Some(0.0))));
        assert_eq!(found("paper-goodput", "all", "late_400"), None, "no playback");
    }
}
