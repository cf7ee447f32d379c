//! Comparison of cohorts: statistics of each cohort, differences with intervals, the sample-ratio
//! check, and the power of more data.

use qoe::stats::{Bootstrap, Clustered, Interval, Observation, holm};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use serde::Serialize;

use crate::doubts::{CohortTotals, MIN_UNITS, SampleRatio, sample_ratio, warnings};
use crate::metric::Metric;
use crate::options::CompareOptions;
use crate::read::{ReadCounts, SessionTable};
use crate::robust::winsorized;
use records::{Column, Error};

/// Orders of the reported quantiles; their names are in [`STATISTICS`].
const ORDERS: [f64; 4] = [0.5, 0.9, 0.95, 0.99];
/// Statistics of a metric, in order.
pub(super) const STATISTICS: [&str; 6] = ["mean", "p50", "p90", "p95", "p99", ROBUST];
/// Name of the winsorized mean.
const ROBUST: &str = "robust mean";
/// Statistics that are tested.
const TESTED: [&str; 3] = ["mean", "p50", ROBUST];
/// Family-wise error rate over all comparisons.
pub(super) const ALPHA: f64 = 0.05;
/// Viewers required beyond a quantile.
const MIN_TAIL_VIEWERS: f64 = 5.0;
/// Standard errors of the smallest effect detected with 80 % power at 5 %: 1.960 + 0.842.
const DETECTABLE: f64 = 2.802;
/// Steps of a curve.
const CURVE: u32 = 200;
const DAY_MS: f64 = 86_400_000.0;

/// Comparison of all cohorts.
#[derive(Clone, Debug, Serialize)]
pub struct CohortReport {
    /// Counts of records read and excluded.
    pub read: ReadCounts,
    /// From the start of the first session to the start of the last one, in days.
    pub days: f64,
    /// Cohorts, the baseline first.
    pub cohorts: Vec<CohortTotals>,
    /// Split of viewers against the weights; `None` without weights.
    pub sample_ratio: Option<SampleRatio>,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Number of tests: means, medians and robust means of all metrics and cohorts.
    pub comparisons: usize,
    /// Metrics in the requested order, without those that have no values.
    pub metrics: Vec<MetricReport>,
    /// Names of metrics without any value.
    pub without_data: Vec<&'static str>,
    /// Reasons to doubt the comparison.
    pub warnings: Vec<String>,
}

/// One metric.
#[derive(Clone, Debug, Serialize)]
pub struct MetricReport {
    /// Name of the metric.
    pub name: &'static str,
    /// Unit; empty for counts and ratios.
    pub unit: &'static str,
    /// Meaning; may be empty.
    pub meaning: &'static str,
    /// Cohorts that have values, the baseline first.
    pub cohorts: Vec<CohortMetric>,
    /// Other cohorts against the baseline.
    pub comparisons: Vec<Comparison>,
}

/// A metric of a cohort.
#[derive(Clone, Debug, Serialize)]
pub struct CohortMetric {
    /// Name of the cohort.
    pub cohort: String,
    /// Sessions with a value.
    pub sessions: usize,
    /// Viewers of these sessions.
    pub units: usize,
    /// Statistics in the metric's unit.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// Distribution function up to the 99th percentile: value and share of sessions.
    #[serde(skip)]
    pub curve: Vec<(f64, f64)>,
}

/// Mean and quantiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Mean over sessions, or the ratio of sums for pooled metrics.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Mean with values clipped to the 1st and 99th percentile, and weights to the 99th.
    pub robust_mean: f64,
}

impl Statistics {
    /// Returns the statistics in the order of [`STATISTICS`].
    pub(super) fn all(&self) -> [f64; STATISTICS.len()] {
        [self.mean, self.p50, self.p90, self.p95, self.p99, self.robust_mean]
    }
}

/// A cohort against the baseline.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Name of the cohort.
    pub cohort: String,
    /// Differences of the mean, the quantiles, and the robust mean.
    pub differences: Vec<Difference>,
    /// Detectable effect on the mean; `None` with too few viewers.
    pub power: Option<Power>,
}

/// Difference of a statistic from the baseline's.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// "mean", "p50", …
    pub statistic: &'static str,
    /// Difference in the metric's unit.
    pub estimate: f64,
    /// Difference relative to the baseline; `None` if that is 0.
    pub relative: Option<f64>,
    /// Lower end of the 95 % interval; `None` with too few viewers, or too few beyond the quantile.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// Whether the uncorrected interval excludes 0.
    pub excludes_zero: bool,
    /// Uncorrected p-value, for mean, median and robust mean.
    pub p: Option<f64>,
    /// p-value corrected for the number of comparisons.
    pub p_holm: Option<f64>,
    /// Verdict: whether the corrected p-value is below 0.05.
    pub differs: bool,
}

/// Smallest difference of the mean that a single test at 5 % detects with 80 % power.
#[derive(Clone, Debug, Serialize)]
pub struct Power {
    /// With this much data, in the metric's unit.
    pub now: f64,
    /// With another week of data; `None` if the data spans less than an hour.
    pub one_week_more: Option<f64>,
    /// With four more weeks.
    pub four_weeks_more: Option<f64>,
    /// The baseline's mean, the denominator of relative effects; `None` if 0.
    pub of: Option<f64>,
}

pub(super) fn analyse(
    table: &SessionTable,
    metrics: &[Metric],
    options: &CompareOptions,
) -> Result<CohortReport, Error> {
    let order = order(table, options)?;
    let days = table.span.map_or(0.0, |(first, last)| (last - first) / DAY_MS);
    let mut reports = all_metrics(table, metrics, &order, days, options);
    let comparisons = correct(&mut reports);
    let (reports, without): (Vec<_>, Vec<_>) =
        reports.into_iter().partition(|report| !report.cohorts.is_empty());
    let cohorts: Vec<_> = order.iter().map(|place| totals(table, *place)).collect();
    let sample_ratio = sample_ratio(&table.cohorts, &options.weights);
    let warnings = warnings(table, &cohorts, sample_ratio.as_ref(), days, options);
    Ok(CohortReport {
        read: table.counts.clone(),
        days,
        cohorts,
        sample_ratio,
        resamples: options.resamples,
        seed: options.seed,
        comparisons,
        metrics: reports,
        without_data: without.iter().map(|report| report.name).collect(),
        warnings,
    })
}

/// Returns the cohort indices: the baseline first, then by name.
fn order(table: &SessionTable, options: &CompareOptions) -> Result<Vec<u16>, Error> {
    let name = |place: &u16| table.cohorts[usize::from(*place)].name.as_str();
    let mut order: Vec<u16> = (0..table.cohorts.len() as u16).collect();
    order.sort_by_key(name);
    let baseline = options.baseline.as_deref();
    let found = order.iter().position(|place| name(place) == baseline.unwrap_or("control"));
    match (found, baseline) {
        (Some(found), _) => order[..=found].rotate_right(1),
        (None, None) => {}
        (None, Some(baseline)) => {
            let all: Vec<_> = order.iter().map(name).collect();
            let all = all.join(", ");
            return Err(Error::new(format!("no cohort {baseline:?}; known cohorts: {all}")));
        }
    }
    Ok(order)
}

fn totals(table: &SessionTable, place: u16) -> CohortTotals {
    let seen = &table.cohorts[usize::from(place)];
    CohortTotals {
        name: seen.name.clone(),
        sessions: seen.assigned_sessions - seen.too_short,
        units: seen.assigned_units,
        too_short: seen.too_short,
        schemes: seen.schemes.iter().cloned().collect(),
    }
}

/// Computes a report per metric, on all processors.
fn all_metrics(
    table: &SessionTable,
    metrics: &[Metric],
    order: &[u16],
    days: f64,
    options: &CompareOptions,
) -> Vec<MetricReport> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = |some: &[Metric]| {
        std::thread::scope(|scope| {
            let work =
                |metric| scope.spawn(move || one_metric(table, metric, order, days, options));
            let running: Vec<_> = some.iter().map(work).collect();
            let done = running.into_iter().map(|thread| thread.join().expect("no thread panics"));
            done.collect::<Vec<_>>()
        })
    };
    metrics.chunks(processors).flat_map(at_once).collect()
}

fn one_metric(
    table: &SessionTable,
    metric: &Metric,
    order: &[u16],
    days: f64,
    options: &CompareOptions,
) -> MetricReport {
    let columns = metric.columns();
    let columns: Vec<_> = columns.iter().map(|column| (*column, table.column(*column))).collect();
    let mut all: Vec<Vec<Observation>> = vec![Vec::new(); table.cohorts.len()];
    for (session, (place, unit)) in table.cohort.iter().zip(&table.unit).enumerate() {
        let number = |wanted: Column| {
            let column = columns.iter().find(|(column, _)| *column == wanted);
            column.and_then(|(_, values)| values.get(session)).map_or(f64::NAN, |value| *value)
        };
        if let Some((value, weight)) = metric.of(number) {
            all[usize::from(*place)].push(Observation { value, weight, cluster: *unit });
        }
    }
    let samples: Vec<(&str, MetricSample)> = order
        .iter()
        .map(|place| usize::from(*place))
        .filter_map(|place| {
            let sample = MetricSample::new(core::mem::take(&mut all[place]))?;
            Some((table.cohorts[place].name.as_str(), sample))
        })
        .collect();
    // Nothing to compare without values of the baseline.
    let baseline =
        samples.first().filter(|(name, _)| *name == table.cohorts[usize::from(order[0])].name);
    let others = samples.get(1..).unwrap_or_default();
    MetricReport {
        name: metric.name(),
        unit: metric.unit(),
        meaning: metric.meaning,
        cohorts: samples.iter().map(|(name, sample)| of_cohort(name, sample)).collect(),
        comparisons: baseline.map_or_else(Vec::new, |(_, baseline)| {
            let compared = others.iter();
            compared.map(|(name, sample)| against(name, sample, baseline, days, options)).collect()
        }),
    }
}

/// A metric of a cohort's sessions, unchanged and winsorized.
struct MetricSample {
    whole: Clustered,
    robust: Clustered,
}

impl MetricSample {
    fn new(all: Vec<Observation>) -> Option<Self> {
        let robust = Clustered::new(winsorized(&all))?;
        Some(Self { whole: Clustered::new(all)?, robust })
    }

    /// Returns the bootstraps of all differences, in the order of [`STATISTICS`].
    fn difference(&self, baseline: &Self, options: &CompareOptions) -> Option<Vec<Bootstrap>> {
        // Every comparison uses the same draws, so it does not depend on which others are
        // requested.
        let rng = || ChaCha8Rng::seed_from_u64(options.seed);
        let draws = options.resamples;
        let mut all = self.whole.difference(&baseline.whole, &ORDERS, draws, &mut rng())?;
        all.extend(self.robust.difference(&baseline.robust, &[], draws, &mut rng())?);
        Some(all)
    }
}

fn statistics(sample: &MetricSample) -> Statistics {
    let quantiles = sample.whole.quantiles(&ORDERS);
    let [p50, p90, p95, p99] = quantiles[..] else { unreachable!("as many as orders") };
    let (mean, robust_mean) = (sample.whole.mean(), sample.robust.mean());
    Statistics { mean, p50, p90, p95, p99, robust_mean }
}

fn of_cohort(name: &str, sample: &MetricSample) -> CohortMetric {
    let shares: Vec<f64> = (0..=CURVE).map(|i| 0.99 * f64::from(i) / f64::from(CURVE)).collect();
    CohortMetric {
        cohort: name.to_owned(),
        sessions: sample.whole.values().len(),
        units: sample.whole.clusters(),
        statistics: statistics(sample),
        curve: sample.whole.quantiles(&shares).into_iter().zip(shares).collect(),
    }
}

fn against(
    name: &str,
    sample: &MetricSample,
    baseline: &MetricSample,
    days: f64,
    options: &CompareOptions,
) -> Comparison {
    let (values, base) = (statistics(sample).all(), statistics(baseline).all());
    let units = sample.whole.clusters().min(baseline.whole.clusters());
    let all = (units >= MIN_UNITS).then(|| sample.difference(baseline, options)).flatten();
    let share = |part: f64, whole: f64| (whole != 0.0).then(|| part / whole.abs());
    let differences = STATISTICS.iter().enumerate().map(|(i, statistic)| {
        let estimate = values[i] - base[i];
        let order = i.checked_sub(1).and_then(|i| ORDERS.get(i));
        let beyond = order.map_or(f64::INFINITY, |order| units as f64 * (1.0 - order));
        let bootstrap =
            all.as_ref().map(|all| &all[i]).filter(|_| beyond >= MIN_TAIL_VIEWERS - 1e-6);
        let interval: Option<Interval> = bootstrap.map(|bootstrap| bootstrap.bca(0.95));
        Difference {
            statistic,
            estimate,
            relative: share(estimate, base[i]),
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            excludes_zero: interval.is_some_and(|interval| !interval.contains(0.0)),
            p: bootstrap.filter(|_| TESTED.contains(statistic)).map(Bootstrap::p_value),
            p_holm: None,
            differs: false,
        }
    });
    Comparison {
        cohort: name.to_owned(),
        differences: differences.collect(),
        power: all.as_ref().map(|all| {
            let now = DETECTABLE * all[0].standard_error();
            // The variance of a mean is inversely proportional to the amount of data.
            let after =
                |more: f64| (days >= 1.0 / 24.0).then(|| now * (days / (days + more)).sqrt());
            let of = Some(base[0].abs()).filter(|mean| *mean != 0.0);
            Power { now, one_week_more: after(7.0), four_weeks_more: after(28.0), of }
        }),
    }
}

/// Corrects the p-values of all tests for their number. Returns that number.
fn correct(reports: &mut [MetricReport]) -> usize {
    let differences = reports.iter_mut().flat_map(|report| &mut report.comparisons);
    let mut tested: Vec<_> = differences
        .flat_map(|comparison| &mut comparison.differences)
        .filter_map(|difference| Some((difference.p?, difference)))
        .collect();
    let adjusted = holm(&tested.iter().map(|(p, _)| *p).collect::<Vec<_>>());
    for ((_, difference), p) in tested.iter_mut().zip(adjusted) {
        difference.p_holm = Some(p);
        difference.differs = p < ALPHA;
    }
    tested.len()
}
