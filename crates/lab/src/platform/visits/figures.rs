//! Figures 11 to 15 of the paper for these visits: each startup mode against the baseline, paired
//! by visit.

use qoe::stats::{Estimate, Sample};
use recovery::Random;
use startup::cookie::Verdict;
use startup::decision::Mode;

use super::draw::Visit;
use super::run::FirstFrameResult;
use crate::platform::draws::Draws;

/// The paper's baseline: the usual values for every viewer.
pub(super) const BASELINE: Mode = Mode::Fixed;
/// Number of bootstrap samples per interval of a percentile.
const RESAMPLES: usize = 200;
/// Standard errors in half a 95 % interval.
const HALF_95: f64 = 1.96;

/// A number of a startup mode over visits.
pub(super) struct VisitMetric {
    /// Name in `summary.json`.
    pub key: &'static str,
    pub unit: &'static str,
    /// Order of the percentile; the mean if `None`.
    order: Option<f64>,
    of: fn(&FirstFrameResult) -> f64,
}

/// Metric of a mean.
const fn mean(
    key: &'static str,
    unit: &'static str,
    of: fn(&FirstFrameResult) -> f64,
) -> VisitMetric {
    VisitMetric { key, unit, order: None, of }
}

/// Metric of a percentile.
const fn percentile(
    key: &'static str,
    unit: &'static str,
    order: f64,
    of: fn(&FirstFrameResult) -> f64,
) -> VisitMetric {
    VisitMetric { key, unit, order: Some(order), of }
}

/// All metrics. Losses are in per cent. `ffct` are the paper's times, the others the viewer's.
pub(super) const METRICS: [VisitMetric; 17] = [
    mean("first_frame_ms", "ms", |seen| seen.pictures_ms[0]),
    percentile("first_frame_p70_ms", "ms", 0.7, |seen| seen.pictures_ms[0]),
    percentile("first_frame_p90_ms", "ms", 0.9, |seen| seen.pictures_ms[0]),
    mean("first_frame_loss", "%", |seen| seen.losses[0] * 100.0),
    percentile("first_frame_loss_p90", "%", 0.9, |seen| seen.losses[0] * 100.0),
    mean("ffct_ms", "ms", |seen| seen.ffct_ms(0)),
    percentile("ffct_p70_ms", "ms", 0.7, |seen| seen.ffct_ms(0)),
    percentile("ffct_p90_ms", "ms", 0.9, |seen| seen.ffct_ms(0)),
    mean("ffct_2_ms", "ms", |seen| seen.ffct_ms(1)),
    mean("ffct_3_ms", "ms", |seen| seen.ffct_ms(2)),
    mean("ffct_4_ms", "ms", |seen| seen.ffct_ms(3)),
    mean("frame_2_ms", "ms", |seen| seen.pictures_ms[1]),
    mean("frame_3_ms", "ms", |seen| seen.pictures_ms[2]),
    mean("frame_4_ms", "ms", |seen| seen.pictures_ms[3]),
    mean("frame_2_loss", "%", |seen| seen.losses[1] * 100.0),
    mean("frame_3_loss", "%", |seen| seen.losses[2] * 100.0),
    mean("frame_4_loss", "%", |seen| seen.losses[3] * 100.0),
];

/// A metric's value, with 95 % intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MetricNumber {
    pub value: Estimate,
    /// Change from the baseline, as a share of the baseline's value, over paired visits. `None` if
    /// that is 0.
    pub gain: Option<Estimate>,
}

/// One startup mode over some visits.
#[derive(Clone, Debug)]
pub(super) struct ModeLine {
    pub mode: Mode,
    pub visits: usize,
    /// First-frame times, in milliseconds.
    pub times: Sample,
    /// In the order of [`METRICS`].
    pub numbers: Vec<MetricNumber>,
    /// Mean difference from the loss rates of [`Mode::Iw10`].
    pub losses_over_iw10: Estimate,
    /// Shares of the visits: with a valid cookie, with a jump, with a jump that met congestion.
    pub with_past: f64,
    pub jumped: f64,
    pub failed: f64,
}

impl ModeLine {
    /// Returns a metric's number by its key.
    pub(super) fn number(&self, key: &str) -> Option<MetricNumber> {
        let place = METRICS.iter().position(|metric| metric.key == key)?;
        self.numbers.get(place).copied()
    }
}

/// A class of visits.
#[derive(Clone, Debug)]
pub(super) struct VisitClass {
    pub name: &'static str,
    pub lines: Vec<ModeLine>,
}

/// Results of some modes over the same visits.
pub(super) struct ModeResults {
    pub modes: Vec<Mode>,
    /// By mode, in visit order.
    pub results: Vec<Vec<FirstFrameResult>>,
}

/// All figures.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub visits: usize,
    pub returns: usize,
    /// Figures 11, 14 and 15.
    pub all: Vec<ModeLine>,
    /// Figures 12 and 14, and first visits, which the paper does not show.
    pub kinds: Vec<VisitClass>,
    /// Figure 13.
    pub sizes: Vec<VisitClass>,
    pub rtts: Vec<VisitClass>,
    pub rates: Vec<VisitClass>,
    /// Classes by the retransmission ratio of the same visit under [`Mode::Iw10`]. A ratio of the
    /// compared modes would select visits in which one of them happened to lose much.
    pub retransmissions: Vec<VisitClass>,
    /// Visits with a path rate reduced to a quarter since the cookie; empty if not run.
    pub fell: Vec<ModeLine>,
}

impl ModeResults {
    fn of(&self, mode: Mode) -> Option<&[FirstFrameResult]> {
        let place = self.modes.iter().position(|known| *known == mode)?;
        self.results.get(place).map(Vec::as_slice)
    }

    /// Returns a line per startup mode over the selected visits. All modes have the same visits.
    fn lines(&self, places: &[usize]) -> Vec<ModeLine> {
        let (Some(base), Some(iw10)) = (self.of(BASELINE), self.of(Mode::Iw10)) else {
            return Vec::new();
        };
        let both = self.modes.iter().zip(&self.results);
        both.filter_map(|(mode, seen)| line(*mode, places, seen, [base, iw10])).collect()
    }
}

impl Figures {
    /// Computes the figures.
    pub(super) fn of(visits: &[Visit], all: &ModeResults, fell: &ModeResults) -> Self {
        let (base, iw10) = (all.of(BASELINE).unwrap_or(&[]), all.of(Mode::Iw10).unwrap_or(&[]));
        let class = |name, is_in: &dyn Fn(usize) -> bool| {
            let places: Vec<usize> = (0..visits.len()).filter(|&place| is_in(place)).collect();
            VisitClass { name, lines: all.lines(&places) }
        };
        // Classes from `low`, excluded, to `high`.
        let within = |value: f64, low: f64, high: f64| value > low && value <= high;
        let kb = |name, low, high| {
            let size = |place: usize| base[place].first_frame_bytes as f64 / 1e3;
            class(name, &|place| within(size(place), low, high))
        };
        let rtt =
            |name, low, high| class(name, &|place| within(visits[place].session.rtt_ms, low, high));
        let rate = |name, low, high| class(name, &|place| within(base[place].rate_mbps, low, high));
        let retransmission = |name, low: f64, high: f64| {
            class(name, &|place| within(iw10[place].retransmission, low, high))
        };
        let is_return = |place: usize| visits[place].before.is_some();
        let every: Vec<usize> = (0..visits.len()).collect();
        let returns: Vec<usize> = (0..visits.len()).filter(|&place| is_return(place)).collect();
        Self {
            visits: visits.len(),
            returns: returns.len(),
            all: all.lines(&every),
            kinds: vec![
                class("0-RTT", &|place| visits[place].is_early),
                class("1-RTT, returning", &|place| !visits[place].is_early && is_return(place)),
                class("1-RTT", &|place| !visits[place].is_early),
                class("first visit", &|place| !is_return(place)),
            ],
            sizes: vec![
                kb("up to 30 KB", 0.0, 30.0),
                kb("30 to 50 KB", 30.0, 50.0),
                kb("50 to 80 KB", 50.0, 80.0),
                kb("80 to 150 KB", 80.0, 150.0),
            ],
            rtts: vec![
                rtt("up to 20 ms", 0.0, 20.0),
                rtt("20 to 50 ms", 20.0, 50.0),
                rtt("50 to 100 ms", 50.0, 100.0),
                rtt("above 100 ms", 100.0, f64::MAX),
            ],
            rates: vec![
                rate("up to 10 Mbps", 0.0, 10.0),
                rate("10 to 20 Mbps", 10.0, 20.0),
                rate("20 to 60 Mbps", 20.0, 60.0),
            ],
            retransmissions: vec![
                retransmission("up to 1 %", -1.0, 0.01),
                retransmission("1 to 5 %", 0.01, 0.05),
                retransmission("5 to 10 %", 0.05, 0.1),
                retransmission("10 to 30 %", 0.1, 0.3),
            ],
            fell: fell.lines(&returns),
        }
    }

    /// Returns all classes with their figure.
    pub(super) fn classes(&self) -> impl Iterator<Item = &VisitClass> {
        let all = [&self.kinds, &self.sizes, &self.rtts, &self.rates, &self.retransmissions];
        all.into_iter().flatten()
    }
}

fn line(
    mode: Mode,
    places: &[usize],
    seen: &[FirstFrameResult],
    [base, iw10]: [&[FirstFrameResult]; 2],
) -> Option<ModeLine> {
    let part = |is: &dyn Fn(&FirstFrameResult) -> bool| {
        places.iter().filter(|&&at| is(&seen[at])).count() as f64 / places.len() as f64
    };
    let number = |metric: &VisitMetric| {
        let [own, base] = [seen, base]
            .map(|seen| places.iter().map(|&at| (metric.of)(&seen[at])).collect::<Vec<f64>>());
        match metric.order {
            None => mean_number(&own, &base),
            Some(order) => percentile_number(&own, &base, order),
        }
    };
    let over_iw10 = places.iter().map(|&at| seen[at].losses[0] - iw10[at].losses[0]);
    Some(ModeLine {
        mode,
        visits: places.len(),
        times: Sample::new(places.iter().map(|&at| seen[at].pictures_ms[0]))?,
        numbers: METRICS.iter().map(number).collect::<Option<_>>()?,
        losses_over_iw10: Estimate::of(over_iw10)?,
        with_past: part(&|seen| seen.has_past),
        jumped: part(&|seen| seen.verdict != Verdict::None),
        failed: part(&|seen| seen.verdict == Verdict::Failed),
    })
}

/// Estimates a mean with Student's interval.
fn mean_number(own: &[f64], base: &[f64]) -> Option<MetricNumber> {
    let whole = Sample::new(base.iter().copied())?.mean();
    let changes = own.iter().zip(base).map(|(own, base)| (own - base) / whole);
    let gain = (whole != 0.0).then(|| Estimate::of(changes)).flatten();
    Some(MetricNumber { value: Estimate::of(own.iter().copied())?, gain })
}

/// Estimates a percentile with the bootstrap's interval: both modes in the same resampled visits.
fn percentile_number(own: &[f64], base: &[f64], order: f64) -> Option<MetricNumber> {
    let at = |values: &[f64]| Some(Sample::new(values.iter().copied())?.quantile(order));
    let (value, whole) = (at(own)?, at(base)?);
    let change = |own: f64, base: f64| own / base - 1.0;
    let mut random: Random = Draws::new(1).of("resamples", own.len() as u64);
    let (mut values, mut changes) = (Vec::new(), Vec::new());
    for _ in 0..RESAMPLES {
        let drawn: Vec<usize> =
            own.iter().map(|_| random.below(own.len() as u32) as usize).collect();
        let of = |values: &[f64]| at(&drawn.iter().map(|&place| values[place]).collect::<Vec<_>>());
        let (own, base) = (of(own)?, of(base)?);
        values.push(own);
        if base != 0.0 {
            changes.push(change(own, base));
        }
    }
    let half = |values: Vec<f64>| Some(Sample::new(values)?.variance()?.sqrt() * HALF_95);
    let gain = Estimate { mean: change(value, whole), half: half(changes) };
    Some(MetricNumber {
        value: Estimate { mean: value, half: half(values) },
        gain: Some(gain).filter(|_| whole != 0.0),
    })
}

/// Returns the line of a mode, if it has visits.
pub(super) fn find(lines: &[ModeLine], mode: Mode) -> Option<&ModeLine> {
    lines.iter().find(|line| line.mode == mode)
}

#[cfg(test)]
mod tests {
    use super::super::draw;
    use super::*;
    use crate::platform::population::Population;
    use crate::platform::specification::{Specification, WIRA};

    #[test]
    fn a_percentile_has_the_interval_of_its_paired_resamples() {
        let base: Vec<f64> = (1..=1_000).map(f64::from).collect();
        let own: Vec<f64> = base.iter().map(|value| value * 0.8).collect();
        let number = percentile_number(&own, &base, 0.7).expect("values");
        assert!((number.value.mean - 560.24).abs() < 0.01, "{number:?}");
        // Standard error of a quantile of 1,000 uniform values: √(0.7 × 0.3 / 1,000) × 800.
        let half = number.value.half.expect("several values");
        assert!((half / (HALF_95 * 11.6) - 1.0).abs() < 0.25, "{half}");
        // Paired visits have no spread in this change.
        let gain = number.gain.expect("a baseline");
        assert!((gain.mean + 0.2).abs() < 1e-9 && gain.half.is_some_and(|half| half < 1e-9));
        let lossless = percentile_number(&own, &[0.0; 1_000], 0.7).expect("values");
        assert_eq!(lossless.gain, None);
        assert_eq!(percentile_number(&[], &[], 0.7), None);
    }

    #[test]
    fn a_mean_has_its_change_over_pairs() {
        let number = mean_number(&[80.0, 180.0, 340.0], &[100.0, 200.0, 300.0]).expect("values");
        assert_eq!((number.value.mean, number.gain.map(|gain| gain.mean)), (200.0, Some(0.0)));
        assert_eq!(mean_number(&[1.0], &[0.0]).expect("a value").gain, None);
    }

    /// A result of one visit, with a first-frame time, a loss rate and a ratio of retransmissions.
    fn seen(ms: f64, loss: f64, retransmission: f64, kb: u64, rate_mbps: f64) -> FirstFrameResult {
        FirstFrameResult {
            pictures_ms: [ms, ms + 10.0, ms + 20.0, ms + 30.0],
            losses: [loss, loss + 0.01, loss + 0.02, loss + 0.03],
            retransmission,
            first_frame_bytes: kb * 1_000,
            has_past: ms < 100.0,
            verdict: if ms < 100.0 { Verdict::Failed } else { Verdict::None },
            rate_mbps,
            rtt_ms: 40.0,
        }
    }

    /// Four visits: 0-RTT, 1-RTT of a returning viewer, and two first visits, at limits of classes.
    fn visits() -> Vec<Visit> {
        let wira = Specification::parse(WIRA).expect("valid");
        let drawn = draw::visits(&Population::new(wira, None), 1, 50);
        let before = drawn.iter().find_map(|visit| visit.before.clone()).expect("a return");
        let visit = |rtt_ms: f64, is_return: bool, is_early: bool| {
            let mut visit = drawn[0].clone();
            visit.session.rtt_ms = rtt_ms;
            visit.before = is_return.then(|| before.clone());
            visit.is_early = is_early;
            visit
        };
        vec![
            visit(20.0, true, true),
            visit(20.1, true, false),
            visit(50.0, false, false),
            visit(100.1, false, false),
        ]
    }

    #[test]
    fn classes_have_the_visits_between_their_limits() {
        let of = |factor: f64, ratios: [f64; 4]| {
            let [a, b, c, d] = ratios;
            vec![
                seen(100.0 * factor, 0.1, a, 30, 10.0),
                seen(200.0 * factor, 0.2, b, 31, 10.1),
                seen(300.0 * factor, 0.3, c, 80, 20.0),
                seen(400.0 * factor, 0.0, d, 150, 61.0),
            ]
        };
        let modes = vec![Mode::Iw10, Mode::Fixed, Mode::Wira];
        let flat = [0.2; 4];
        let all = ModeResults {
            modes: modes.clone(),
            results: vec![of(1.5, [0.01, 0.011, 0.1, 0.31]), of(1.0, flat), of(0.5, flat)],
        };
        let fell =
            ModeResults { modes, results: vec![of(4.0, flat), of(4.0, flat), of(2.0, flat)] };
        let figures = Figures::of(&visits(), &all, &fell);
        assert_eq!((figures.visits, figures.returns), (4, 2));
        // Mean first-frame times of the baseline identify the visits of a class: 100 to 400 ms.
        let means = |classes: &[VisitClass]| -> Vec<Option<f64>> {
            let mean = |lines| find(lines, BASELINE).map(|line: &ModeLine| line.times.mean());
            classes.iter().map(|class| mean(&class.lines)).collect()
        };
        assert_eq!(means(&figures.kinds), [100.0, 200.0, 300.0, 350.0].map(Some));
        assert_eq!(means(&figures.sizes), [Some(100.0), Some(200.0), Some(300.0), Some(400.0)]);
        assert_eq!(means(&figures.rtts), [Some(100.0), Some(250.0), None, Some(400.0)]);
        assert_eq!(means(&figures.rates), [Some(100.0), Some(250.0), None]);
        assert_eq!(means(&figures.retransmissions), [Some(100.0), Some(200.0), Some(300.0), None]);
        // Only returning viewers have outdated cookies.
        assert_eq!(find(&figures.fell, BASELINE).map(|line| line.times.mean()), Some(600.0));

        let line = find(&figures.all, Mode::Wira).expect("a line");
        let number = |key: &str| {
            let number = line.number(key).expect(key);
            (number.value.mean, number.gain.map(|gain| gain.mean))
        };
        assert_eq!(number("first_frame_ms"), (125.0, Some(-0.5)));
        // Between the third and the fourth of 50, 100, 150 and 200 ms.
        assert!((number("first_frame_p70_ms").0 - 155.0).abs() < 1e-9);
        assert!((number("first_frame_p90_ms").0 - 185.0).abs() < 1e-9);
        assert_eq!(number("frame_2_ms").0, 135.0);
        assert_eq!(number("frame_4_ms").0, 155.0);
        // 85 ms instead of 210.
        assert_eq!(number("ffct_ms"), (85.0, Some(85.0 / 210.0 - 1.0)));
        assert!((number("ffct_p70_ms").0 - 115.0).abs() < 1e-9);
        assert!((number("ffct_p90_ms").0 - 145.0).abs() < 1e-9);
        assert_eq!([2, 3, 4].map(|n| number(&format!("ffct_{n}_ms")).0), [95.0, 105.0, 115.0]);
        assert!((number("first_frame_loss").0 - 15.0).abs() < 1e-9);
        assert!((number("frame_4_loss").0 - 18.0).abs() < 1e-9);
        assert_eq!((line.visits, line.with_past, line.jumped, line.failed), (4, 0.25, 0.25, 0.25));
        assert!(line.losses_over_iw10.mean.abs() < 1e-9);
    }
}
