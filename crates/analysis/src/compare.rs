//! From columns to a report: statistics of each cohort, differences with their intervals, the
//! check of the sample ratio, and what more data would show.

use std::collections::HashMap;

use qoe::stats::{Bootstrap, Clustered, Interval, Observation, chi_square_tail, holm};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use serde::Serialize;

use crate::metric::Metric;
use crate::options::Options;
use crate::read::{CohortSeen, Counts, Table};
use records::Error;

/// The orders of the quantiles that are reported; their names are in [`STATISTICS`].
const ORDERS: [f64; 4] = [0.5, 0.9, 0.95, 0.99];
/// The statistics of a metric, in order.
pub(super) const STATISTICS: [&str; 5] = ["mean", "p50", "p90", "p95", "p99"];
/// How many of them are tested: mean and median.
const TESTED: usize = 2;
/// The error that a verdict may have, over all comparisons.
pub(super) const ALPHA: f64 = 0.05;
/// With fewer viewers in one of two cohorts nothing is said of their difference.
const MIN_UNITS: usize = 20;
/// Viewers that must lie beyond a quantile.
const BEYOND: f64 = 5.0;
/// Below that p-value the division of viewers is not the one configured.
const RATIO_ALARM: f64 = 0.001;
/// With fewer expected viewers than that in a cohort the test of the ratio means nothing.
const MIN_EXPECTED: f64 = 5.0;
/// Standard errors of the smallest effect that is found in 4 of 5 cases at 5 %: 1.960 + 0.842.
const DETECTABLE: f64 = 2.802;
/// Steps of a curve.
const CURVE: u32 = 200;
/// A viewer with a larger share of a cohort's sessions decides its statistics.
const LARGE: f64 = 0.05;
const DAY_MS: f64 = 86_400_000.0;

/// The comparison of all cohorts.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was read and left out.
    pub read: Counts,
    /// From the first session's beginning to the last one's, in days.
    pub days: f64,
    /// The cohorts, the baseline first.
    pub cohorts: Vec<Totals>,
    /// How viewers are divided, against the weights; absent without weights.
    pub sample_ratio: Option<SampleRatio>,
    /// Draws of the bootstrap.
    pub resamples: usize,
    /// Where the draws began.
    pub seed: u64,
    /// Tests made: means and medians of all metrics and cohorts.
    pub comparisons: usize,
    /// The metrics in the order asked for, those without any value left out.
    pub metrics: Vec<MetricReport>,
    /// Names of metrics without any value.
    pub without_data: Vec<&'static str>,
    /// What makes the comparison doubtful.
    pub warnings: Vec<String>,
}

/// A cohort as a whole.
#[derive(Clone, Debug, Serialize)]
pub struct Totals {
    /// Its name.
    pub name: String,
    /// Sessions compared.
    pub sessions: u64,
    /// Viewers in it, those with short sessions only too.
    pub units: u64,
    /// Sessions left out because they are short.
    pub too_short: u64,
    /// The schemes that its sessions had.
    pub schemes: Vec<String>,
}

/// Whether viewers are divided as the weights say.
#[derive(Clone, Debug, Serialize)]
pub struct SampleRatio {
    /// Per cohort with a weight: name, weight, viewers expected, viewers seen.
    pub cohorts: Vec<(String, u32, f64, u64)>,
    /// Pearson's statistic.
    pub chi_square: f64,
    /// The probability of so large a one by chance; absent if some cohort expects under 5 viewers.
    pub p: Option<f64>,
    /// Whether that is below 0.001.
    pub mismatch: bool,
}

/// One metric.
#[derive(Clone, Debug, Serialize)]
pub struct MetricReport {
    /// Its name.
    pub name: &'static str,
    /// Its unit; empty for counts and ratios.
    pub unit: &'static str,
    /// What it says; may be empty.
    pub meaning: &'static str,
    /// The cohorts that have values, the baseline first.
    pub cohorts: Vec<OfCohort>,
    /// The other cohorts against the baseline.
    pub comparisons: Vec<Comparison>,
}

/// A metric of a cohort.
#[derive(Clone, Debug, Serialize)]
pub struct OfCohort {
    /// The cohort's name.
    pub cohort: String,
    /// Sessions with a value.
    pub sessions: usize,
    /// Their viewers.
    pub units: usize,
    /// In the metric's unit.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// The distribution function, up to the 99th percentile: value and share of sessions.
    #[serde(skip)]
    pub curve: Vec<(f64, f64)>,
}

/// Mean and quantiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// The mean over sessions, or the ratio of sums of what is pooled.
    pub mean: f64,
    /// The median session.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 95th.
    pub p95: f64,
    /// The 99th.
    pub p99: f64,
}

impl Statistics {
    /// In the order of [`STATISTICS`].
    pub(super) fn all(&self) -> [f64; 5] {
        [self.mean, self.p50, self.p90, self.p95, self.p99]
    }
}

/// A cohort against the baseline.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The cohort.
    pub cohort: String,
    /// Of the mean, then the quantiles.
    pub differences: Vec<Difference>,
    /// What this set can show of the mean; absent with too few viewers.
    pub power: Option<Power>,
}

/// A statistic of a cohort less that of the baseline.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// "mean", "p50", …
    pub statistic: &'static str,
    /// In the metric's unit.
    pub estimate: f64,
    /// Over the baseline's; absent where that is 0.
    pub relative: Option<f64>,
    /// The 95 % interval, lower end; absent with too few viewers, or too few beyond the quantile.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// Whether the interval excludes 0, by itself.
    pub excludes_zero: bool,
    /// For mean and median: the p-value by itself.
    pub p: Option<f64>,
    /// The same, corrected for the number of comparisons.
    pub p_holm: Option<f64>,
    /// The verdict: whether the corrected one is below 0.05.
    pub differs: bool,
}

/// The smallest difference of the mean that is found in 4 of 5 such experiments, by a single test
/// at 5 %.
#[derive(Clone, Debug, Serialize)]
pub struct Power {
    /// With this much data, in the metric's unit.
    pub now: f64,
    /// With another week of it; absent if this data spans less than an hour.
    pub one_week_more: Option<f64>,
    /// With four weeks more.
    pub four_weeks_more: Option<f64>,
    /// The baseline's mean, by which these are divided; absent if 0.
    pub of: Option<f64>,
}

pub(super) fn analyse(
    table: &Table,
    metrics: &[Metric],
    options: &Options,
) -> Result<Report, Error> {
    let order = order(table, options)?;
    let days = table.span.map_or(0.0, |(first, last)| (last - first) / DAY_MS);
    let mut reports = all_metrics(table, metrics, &order, days, options);
    let comparisons = correct(&mut reports);
    let (reports, without): (Vec<_>, Vec<_>) =
        reports.into_iter().partition(|report| !report.cohorts.is_empty());
    let cohorts: Vec<_> = order.iter().map(|place| totals(table, *place)).collect();
    let sample_ratio = sample_ratio(&table.cohorts, &options.weights);
    let warnings = warnings(table, &cohorts, sample_ratio.as_ref(), days, options);
    Ok(Report {
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

/// The places of the cohorts: the baseline's first, then by name.
fn order(table: &Table, options: &Options) -> Result<Vec<u16>, Error> {
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
            return Err(Error::new(format!("no cohort {baseline:?}; there are {all}")));
        }
    }
    Ok(order)
}

fn totals(table: &Table, place: u16) -> Totals {
    let seen = &table.cohorts[usize::from(place)];
    Totals {
        name: seen.name.clone(),
        sessions: seen.assigned_sessions - seen.too_short,
        units: seen.assigned_units,
        too_short: seen.too_short,
        schemes: seen.schemes.iter().cloned().collect(),
    }
}

/// One report per metric, on all processors.
fn all_metrics(
    table: &Table,
    metrics: &[Metric],
    order: &[u16],
    days: f64,
    options: &Options,
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
    table: &Table,
    metric: &Metric,
    order: &[u16],
    days: f64,
    options: &Options,
) -> MetricReport {
    let columns = metric.columns();
    let columns: Vec<_> = columns.iter().map(|name| (*name, table.column(name))).collect();
    let mut all: Vec<Vec<Observation>> = vec![Vec::new(); table.cohorts.len()];
    for (session, (place, unit)) in table.cohort.iter().zip(&table.unit).enumerate() {
        let column = |name: &str| {
            let column = columns.iter().find(|(column, _)| *column == name);
            column.and_then(|(_, values)| values.get(session)).map_or(f64::NAN, |value| *value)
        };
        if let Some((value, weight)) = metric.of(column) {
            all[usize::from(*place)].push(Observation { value, weight, cluster: *unit });
        }
    }
    let samples: Vec<(&str, Clustered)> = order
        .iter()
        .map(|place| usize::from(*place))
        .filter_map(|place| {
            let sample = Clustered::new(core::mem::take(&mut all[place]))?;
            Some((table.cohorts[place].name.as_str(), sample))
        })
        .collect();
    // A baseline without values leaves nothing to compare with.
    let baseline =
        samples.first().filter(|(name, _)| *name == table.cohorts[usize::from(order[0])].name);
    let others = samples.get(1..).unwrap_or_default();
    MetricReport {
        name: metric.name,
        unit: metric.unit,
        meaning: metric.meaning,
        cohorts: samples.iter().map(|(name, sample)| of_cohort(name, sample)).collect(),
        comparisons: baseline.map_or_else(Vec::new, |(_, baseline)| {
            let compared = others.iter();
            compared.map(|(name, sample)| against(name, sample, baseline, days, options)).collect()
        }),
    }
}

fn statistics(sample: &Clustered) -> Statistics {
    let quantiles = sample.quantiles(&ORDERS);
    let [p50, p90, p95, p99] = quantiles[..] else { unreachable!("as many as orders") };
    Statistics { mean: sample.mean(), p50, p90, p95, p99 }
}

fn of_cohort(name: &str, sample: &Clustered) -> OfCohort {
    let shares: Vec<f64> = (0..=CURVE).map(|i| 0.99 * f64::from(i) / f64::from(CURVE)).collect();
    OfCohort {
        cohort: name.to_owned(),
        sessions: sample.values().len(),
        units: sample.clusters(),
        statistics: statistics(sample),
        curve: sample.quantiles(&shares).into_iter().zip(shares).collect(),
    }
}

fn against(
    name: &str,
    sample: &Clustered,
    baseline: &Clustered,
    days: f64,
    options: &Options,
) -> Comparison {
    // All comparisons draw alike, so that one does not depend on which others are asked for.
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let (values, base) = (statistics(sample).all(), statistics(baseline).all());
    let units = sample.clusters().min(baseline.clusters());
    let all = (units >= MIN_UNITS)
        .then(|| sample.difference(baseline, &ORDERS, options.resamples, &mut rng))
        .flatten();
    let share = |part: f64, whole: f64| (whole != 0.0).then(|| part / whole.abs());
    let differences = STATISTICS.iter().enumerate().map(|(i, statistic)| {
        let estimate = values[i] - base[i];
        let beyond = i.checked_sub(1).map_or(f64::INFINITY, |i| units as f64 * (1.0 - ORDERS[i]));
        let bootstrap = all.as_ref().map(|all| &all[i]).filter(|_| beyond >= BEYOND - 1e-6);
        let interval: Option<Interval> = bootstrap.map(|bootstrap| bootstrap.bca(0.95));
        Difference {
            statistic,
            estimate,
            relative: share(estimate, base[i]),
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            excludes_zero: interval.is_some_and(|interval| !interval.contains(0.0)),
            p: bootstrap.filter(|_| i < TESTED).map(Bootstrap::p_value),
            p_holm: None,
            differs: false,
        }
    });
    Comparison {
        cohort: name.to_owned(),
        differences: differences.collect(),
        power: all.as_ref().map(|all| {
            let now = DETECTABLE * all[0].standard_error();
            // The variance of a mean falls with the amount of data.
            let after =
                |more: f64| (days >= 1.0 / 24.0).then(|| now * (days / (days + more)).sqrt());
            let of = Some(base[0].abs()).filter(|mean| *mean != 0.0);
            Power { now, one_week_more: after(7.0), four_weeks_more: after(28.0), of }
        }),
    }
}

/// Corrects the p-values of all tests for their number, which it returns.
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

/// Pearson's test of the viewers in each cohort against the weights.
fn sample_ratio(cohorts: &[CohortSeen], weights: &[(String, u32)]) -> Option<SampleRatio> {
    let seen = |name: &str| {
        cohorts.iter().find(|cohort| cohort.name == name).map_or(0, |cohort| cohort.assigned_units)
    };
    let total: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let all: u64 = weights.iter().map(|(name, _)| seen(name)).sum();
    if weights.len() < 2 || total <= 0.0 {
        return None;
    }
    let cohorts: Vec<_> = weights
        .iter()
        .map(|(name, weight)| {
            let expected = all as f64 * f64::from(*weight) / total;
            (name.clone(), *weight, expected, seen(name))
        })
        .collect();
    let enough = cohorts.iter().all(|(_, _, expected, _)| *expected >= MIN_EXPECTED);
    let chi_square =
        cohorts.iter().map(|(_, _, expected, seen)| (*seen as f64 - expected).powi(2) / expected);
    let chi_square = if enough { chi_square.sum() } else { 0.0 };
    let p = enough.then(|| chi_square_tail(chi_square, cohorts.len() as u32 - 1));
    Some(SampleRatio { cohorts, chi_square, p, mismatch: p.is_some_and(|p| p < RATIO_ALARM) })
}

fn warnings(
    table: &Table,
    cohorts: &[Totals],
    ratio: Option<&SampleRatio>,
    days: f64,
    options: &Options,
) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(ratio) = ratio
        && ratio.mismatch
    {
        let p = ratio.p.unwrap_or(0.0);
        all.push(format!(
            "sample ratio mismatch (p = {p:.2e}): viewers are not divided as the weights say; \
             find out why before you believe any difference"
        ));
    }
    let unknown = |name: &str| !options.weights.iter().any(|(known, _)| known == name);
    if ratio.is_some() {
        for cohort in cohorts.iter().filter(|cohort| unknown(&cohort.name)) {
            all.push(format!("cohort {} has no weight: the check leaves it out", cohort.name));
        }
    }
    if table.counts.units_in_several_cohorts > 0 {
        all.push(format!(
            "{} viewers were in more than one cohort: did salt, weights or names change within \
             these files?",
            table.counts.units_in_several_cohorts
        ));
    }
    for (place, most) in most_of_one_viewer(table).into_iter().enumerate() {
        let seen = &table.cohorts[place];
        let share = most as f64 / (seen.assigned_sessions - seen.too_short).max(1) as f64;
        if seen.assigned_units >= MIN_UNITS as u64 && share > LARGE {
            all.push(format!(
                "one viewer has {:.0} % of the sessions of cohort {}: all its figures hang on that \
                 viewer, who may be a large network",
                100.0 * share,
                seen.name
            ));
        }
    }
    for cohort in cohorts.iter().filter(|cohort| cohort.schemes.len() > 1) {
        let schemes = cohort.schemes.join(", ");
        all.push(format!("cohort {} had several schemes: {schemes}", cohort.name));
    }
    if let [first, rest @ ..] = cohorts {
        if rest.is_empty() {
            all.push("there is one cohort only: nothing to compare".into());
        } else if first.schemes.len() == 1 && rest.iter().all(|c| c.schemes == first.schemes) {
            let scheme = &first.schemes[0];
            all.push(format!("all cohorts had the scheme {scheme}: this is an A/A comparison"));
        }
    }
    if days < 7.0 {
        all.push("less than a week of data: days of the week differ".into());
    }
    all
}

/// How many sessions the viewer with the most of them has, by place of the cohort.
fn most_of_one_viewer(table: &Table) -> Vec<u64> {
    let mut sessions: HashMap<(u16, u32), u64> = HashMap::new();
    for at in table.cohort.iter().copied().zip(table.unit.iter().copied()) {
        *sessions.entry(at).or_default() += 1;
    }
    let mut most = vec![0; table.cohorts.len()];
    for ((place, _), count) in sessions {
        let most = &mut most[usize::from(place)];
        *most = count.max(*most);
    }
    most
}
