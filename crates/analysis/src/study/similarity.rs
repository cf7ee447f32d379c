//! Similarity of networks within user groups, within origin-destination pairs, and between two
//! visits of one viewer (Wira, II-C and II-D, figures 3 and 4).
//!
//! The coefficient of variation is the standard deviation over the mean, with the number of values
//! as divisor under the root. (Wira's equation 1 prints the divisor before the root, which would
//! make the figures depend on the number of connections.) It is biased low for small sets: for two
//! values by a factor of 0.56 on average. The pooled coefficient therefore stands next to it: the
//! root of the sum of squared relative deviations over all sets, divided by the sum of their
//! degrees of freedom.

use records::Column;

use super::measure::Measure;
use super::row::StudyRow;
use super::section::{Cell, StudySection, StudyTable};
use super::sums::{Ratio, Values};
use crate::plot::{Curve, Plot, YAxis};

/// Wira's intervals, in minutes.
const MINUTES: [u32; 4] = [5, 10, 30, 60];
/// Mean CV of MinRTT in origin-destination pairs by interval, in per cent.
const PAIR_RTT: [f64; 4] = [9.9, 10.2, 10.5, 11.2];

/// One session, 40 bytes.
#[derive(Clone, Copy, Debug)]
struct Visit {
    group: u64,
    prefix: u64,
    viewer: u64,
    /// Start, in seconds since 1970.
    begin: u32,
    end: u32,
    /// NaN if absent, like the bandwidth.
    rtt: f32,
    bandwidth: f32,
}

/// All sessions with comparable networks.
#[derive(Debug, Default)]
pub(super) struct Similarity {
    visits: Vec<Visit>,
}

/// Coefficients of variation of both quantities.
#[derive(Debug, Default)]
struct Variations {
    rtt: Variation,
    bandwidth: Variation,
}

/// Coefficients of variation of one quantity.
#[derive(Debug, Default)]
struct Variation {
    of_sets: Values,
    /// Squared relative deviations, and degrees of freedom.
    squares: Ratio,
}

impl Variations {
    fn add(&mut self, visits: &[Visit]) {
        self.rtt.add(visits.iter().map(|visit| visit.rtt));
        self.bandwidth.add(visits.iter().map(|visit| visit.bandwidth));
    }

    /// Returns mean, median and pooled coefficient of both quantities.
    fn cells(&self) -> Vec<Cell> {
        [&self.rtt, &self.bandwidth].into_iter().flat_map(Variation::cells).collect()
    }
}

impl Variation {
    fn add(&mut self, values: impl Iterator<Item = f32> + Clone) {
        let Some(found) = variation(values.clone()) else { return };
        let n = values.filter(|value| value.is_finite()).count() as f64;
        self.of_sets.add(Some(found));
        self.squares.add(Some(n * found * found), Some(n - 1.0));
    }

    fn cells(&self) -> [Cell; 3] {
        let (of, squares) = (self.of_sets.distribution(), self.squares.cell(1.0));
        let pooled = Cell { value: squares.value.map(|square| 100.0 * square.sqrt()), ..squares };
        [of.mean(100.0), of.quantile(0.5, 100.0), pooled]
    }
}

/// Returns the coefficient of variation; `None` for fewer than two values.
fn variation(values: impl Iterator<Item = f32> + Clone) -> Option<f64> {
    let values = values.filter(|value| value.is_finite()).map(f64::from);
    let n = values.clone().count();
    let mean = values.clone().sum::<f64>() / n as f64;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (n >= 2 && mean > 0.0).then(|| (squares / n as f64).sqrt() / mean)
}

/// Returns the variations within each window of `minutes` over visits with the same `key`. A key of
/// 0 is no key.
fn windows(visits: &[Visit], minutes: u32, key: impl Fn(&Visit) -> u64) -> Variations {
    let mut order: Vec<Visit> = visits.iter().filter(|visit| key(visit) != 0).copied().collect();
    let place = |visit: &Visit| (key(visit), visit.begin / (60 * minutes));
    order.sort_unstable_by_key(place);
    let mut all = Variations::default();
    order.chunk_by(|a, b| place(a) == place(b)).for_each(|window| all.add(window));
    all
}

/// Returns the variations between consecutive visits of a viewer in the same network, by the time
/// between them: up to each of [`MINUTES`], and longer.
fn again(visits: &[Visit]) -> [Variations; 5] {
    let known = |visit: &&Visit| visit.viewer != 0 && visit.prefix != 0;
    let mut order: Vec<Visit> = visits.iter().filter(known).copied().collect();
    order.sort_unstable_by_key(|visit| (visit.viewer, visit.prefix, visit.begin));
    let mut all: [Variations; 5] = Default::default();
    for pair in order.windows(2) {
        let [first, second] = pair else { continue };
        let same = (first.viewer, first.prefix) == (second.viewer, second.prefix);
        // Overlapping visits do not show a change over time.
        let Some(age) = second.begin.checked_sub(first.end).filter(|_| same) else { continue };
        let within = MINUTES.iter().position(|minutes| age <= 60 * minutes).unwrap_or(4);
        // Wira's intervals all start at 0.
        for variations in &mut all[within..if within < 4 { 4 } else { 5 }] {
            variations.add(pair);
        }
    }
    all
}

impl Measure for Similarity {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::group,
            Column::prefix,
            Column::viewer,
            Column::started_ms,
            Column::duration_s,
            Column::rtt_min_ms,
            Column::max_bandwidth_mbps,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        let Some(started) = row[Column::started_ms] else { return };
        if row[Column::rtt_min_ms].is_none() && row[Column::max_bandwidth_mbps].is_none() {
            return;
        }
        let seconds = started * 1e-3;
        let float = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
        self.visits.push(Visit {
            group: row.group.unwrap_or(0),
            prefix: row.prefix.unwrap_or(0),
            viewer: row.viewer.unwrap_or(0),
            begin: seconds as u32,
            end: (seconds + row[Column::duration_s].unwrap_or(0.0)) as u32,
            rtt: float(row[Column::rtt_min_ms]),
            bandwidth: float(row[Column::max_bandwidth_mbps]),
        });
    }

    fn report(&self) -> StudySection {
        const HEAD: [&str; 6] = [
            "MinRTT, mean (%)",
            "median (%)",
            "pooled (%)",
            "MaxBW, mean (%)",
            "median (%)",
            "pooled (%)",
        ];
        let group = windows(&self.visits, MINUTES[0], |visit| visit.group);
        let mut within =
            StudyTable::new("windows", &HEAD).line("user group, 5 min", group.cells()).papers(
                &[Some(36.4), None, None, Some(51.6)],
                "Wira II-C, fig. 3: 1,000 groups in Southeast Asia",
            );
        within.counted = "sets of two or more sessions";
        let mut pair = None;
        for (minutes, rtt) in MINUTES.into_iter().zip(PAIR_RTT) {
            let all = windows(&self.visits, minutes, |visit| visit.prefix);
            let bandwidth = (minutes == 5).then_some(27.0);
            within = within
                .line(format!("origin-destination pair, {minutes} min"), all.cells())
                .papers(&[Some(rtt), None, None, bandwidth], "Wira II-D, fig. 4");
            pair = pair.or(Some(all));
        }
        let mut visits = StudyTable::new("visits", &HEAD);
        visits.counted = "pairs of visits";
        let labels = MINUTES.map(|minutes| format!("next visit within {minutes} min"));
        let labels = labels.into_iter().chain(["next visit later".to_owned()]);
        for (label, variations) in labels.zip(again(&self.visits)) {
            visits = visits.line(label, variations.cells());
        }
        let line = |name: &str, colour, values: &Variation| Curve {
            name: name.into(),
            colour,
            points: values.of_sets.distribution().curve(100.0),
        };
        let pair = pair.unwrap_or_default();
        StudySection::new("similarity", "Similarity within groups and pairs")
            .note(
                "Coefficient of variation (standard deviation ÷ mean) of the smallest round-trip \
                 time and the largest delivery rate of sessions. An origin-destination pair is a \
                 viewer's network (/24, /48) and this node; each set covers one window of \
                 wall-clock time. Visits are consecutive ones of a viewer in one network, by the \
                 time since the end of the first. Sessions of one connection share both numbers. \
                 The mean over small sets is biased low (for two values by a factor of 0.56); the \
                 pooled coefficient is not. The largest delivery rate of a stream below the \
                 bottleneck's rate describes the stream rather than the path.",
            )
            .table(within)
            .table(visits)
            .plot(Plot {
                title: "Cumulative share of sets by coefficient of variation, 5 min".into(),
                x: "coefficient of variation (%)".into(),
                y: YAxis::Share,
                lines: vec![
                    line("group, MinRTT", 0, &group.rtt),
                    line("group, MaxBW", 1, &group.bandwidth),
                    line("pair, MinRTT", 2, &pair.rtt),
                    line("pair, MaxBW", 3, &pair.bandwidth),
                ],
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coefficient_of_variation_has_the_number_of_values_under_the_root() {
        // Mean 60, deviations 20, 20, 40: variance 2,400 / 3.
        let found = variation([40.0, 40.0, 100.0].into_iter()).expect("three values");
        assert!((found - 800f64.sqrt() / 60.0).abs() < 1e-12, "{found}");
        assert_eq!(variation([40.0, f32::NAN].into_iter()), None);
        assert_eq!(variation([0.0, 0.0].into_iter()), None);
        // For two values it is their difference over their sum.
        let two = variation([30.0, 50.0].into_iter()).expect("two values");
        assert!((two - 20.0 / 80.0).abs() < 1e-12, "{two}");
    }

    #[test]
    fn visits_count_by_their_distance_and_only_one_after_the_other_in_one_network() {
        let visit = |viewer, prefix, begin, end, rtt| Visit {
            group: 0,
            prefix,
            viewer,
            begin,
            end,
            rtt,
            bandwidth: f32::NAN,
        };
        let visits = [
            visit(1, 7, 0, 100, 30.0),
            visit(1, 7, 400, 500, 50.0),
            visit(1, 7, 1_101, 1_200, 50.0),
            // Starts before the preceding visit has ended.
            visit(1, 7, 1_150, 1_300, 90.0),
            visit(1, 8, 1_400, 1_500, 90.0),
            visit(2, 8, 10_000, 10_100, 90.0),
            visit(2, 8, 13_701, 13_800, 10.0),
        ];
        let found = again(&visits).map(|v| v.rtt.cells()[0]);
        let seen = found.map(|cell| (cell.n, cell.value.map(|mean| (mean * 10.0).round() / 10.0)));
        // 300 s apart: 25 %; 601 s: 0 %; 3,601 s: 80 %.
        let half = (2, Some(12.5));
        assert_eq!(seen, [(1, Some(25.0)), (1, Some(25.0)), half, half, (1, Some(80.0))]);
    }
}
