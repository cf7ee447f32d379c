//! Figures 11 to 15 of the paper for these visits: each startup mode against the baseline, paired
//! by visit.

use qoe::stats::{Estimate, Sample};
use startup::cookie::Verdict;
use startup::decision::Mode;

use super::draw::Visit;
use super::run::{FirstFrameResult, PICTURES};

/// The paper's baseline: the usual values for every viewer.
pub(super) const BASELINE: Mode = Mode::Fixed;

/// One startup mode over some visits.
#[derive(Clone, Debug)]
pub(super) struct ModeLine {
    pub mode: Mode,
    pub visits: usize,
    /// First-frame times, in milliseconds.
    pub times: Sample,
    /// Mean difference ÷ the baseline's mean, with half its 95 % interval.
    pub change: Estimate,
    /// Loss rates until the first frame was acknowledged.
    pub losses: Sample,
    /// Mean difference from the loss rates of [`Mode::Iw10`].
    pub losses_over_iw10: Estimate,
    /// Mean completion times of the first pictures.
    pub pictures_ms: [f64; PICTURES],
    /// Shares of the visits: with a valid cookie, with a jump, with a jump that met congestion.
    pub with_past: f64,
    pub jumped: f64,
    pub failed: f64,
}

/// A class of visits.
#[derive(Clone, Debug)]
pub(super) struct VisitClass {
    pub name: &'static str,
    pub lines: Vec<ModeLine>,
}

/// All figures.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub visits: usize,
    pub returns: usize,
    /// Figures 11, 14 and 15.
    pub all: Vec<ModeLine>,
    /// Figure 12, and first visits, which the paper does not show.
    pub kinds: Vec<VisitClass>,
    /// Figure 13.
    pub sizes: Vec<VisitClass>,
    pub rtts: Vec<VisitClass>,
    pub rates: Vec<VisitClass>,
    /// Visits with a path rate reduced to a quarter since the cookie.
    pub fell: Vec<ModeLine>,
}

impl Figures {
    /// Computes the figures from the observations of each visit, in visit order, by startup mode.
    pub(super) fn of(
        visits: &[Visit],
        all: &[Vec<FirstFrameResult>],
        fell: &[Vec<FirstFrameResult>],
    ) -> Self {
        let class = |name, of: &dyn Fn(&Visit, &FirstFrameResult) -> bool| VisitClass {
            name,
            lines: lines(visits, all, of),
        };
        let kb = |low: f64, high: f64| {
            move |_: &Visit, seen: &FirstFrameResult| {
                let size = seen.first_frame_bytes as f64 / 1e3;
                size > low && size <= high
            }
        };
        let rtt = |low: f64, high: f64| {
            move |visit: &Visit, _: &FirstFrameResult| {
                visit.session.rtt_ms > low && visit.session.rtt_ms <= high
            }
        };
        let rate = |low: f64, high: f64| {
            move |_: &Visit, seen: &FirstFrameResult| seen.rate_mbps > low && seen.rate_mbps <= high
        };
        Self {
            visits: visits.len(),
            returns: visits.iter().filter(|visit| visit.before.is_some()).count(),
            all: lines(visits, all, &|_, _| true),
            kinds: vec![
                class("0-RTT", &|visit, _| visit.is_early),
                class("1-RTT, returning", &|visit, _| !visit.is_early && visit.before.is_some()),
                class("first visit", &|visit, _| visit.before.is_none()),
            ],
            sizes: vec![
                class("up to 30 KB", &kb(0.0, 30.0)),
                class("30 to 50 KB", &kb(30.0, 50.0)),
                class("50 to 80 KB", &kb(50.0, 80.0)),
                class("80 to 150 KB", &kb(80.0, 150.0)),
            ],
            rtts: vec![
                class("up to 20 ms", &rtt(0.0, 20.0)),
                class("20 to 50 ms", &rtt(20.0, 50.0)),
                class("50 to 100 ms", &rtt(50.0, 100.0)),
                class("above 100 ms", &rtt(100.0, f64::MAX)),
            ],
            rates: vec![
                class("up to 10 Mbps", &rate(0.0, 10.0)),
                class("10 to 20 Mbps", &rate(10.0, 20.0)),
                class("20 to 60 Mbps", &rate(20.0, 60.0)),
            ],
            fell: lines(visits, fell, &|visit, _| visit.before.is_some()),
        }
    }
}

/// Returns a line per startup mode over the selected visits. The selection uses the baseline's
/// observation, so all modes have the same visits.
fn lines(
    visits: &[Visit],
    all: &[Vec<FirstFrameResult>],
    is_in: &dyn Fn(&Visit, &FirstFrameResult) -> bool,
) -> Vec<ModeLine> {
    let baseline = Mode::ALL.iter().position(|mode| *mode == BASELINE).unwrap_or(0);
    let iw10 = Mode::ALL.iter().position(|mode| *mode == Mode::Iw10).unwrap_or(0);
    let (base, iw10) = (&all[baseline], &all[iw10]);
    let places: Vec<usize> =
        (0..visits.len()).filter(|&place| is_in(&visits[place], &base[place])).collect();
    let ways = Mode::ALL.into_iter().zip(all);
    ways.filter_map(|(mode, seen)| line(mode, &places, seen, [base, iw10])).collect()
}

fn line(
    mode: Mode,
    places: &[usize],
    seen: &[FirstFrameResult],
    [base, iw10]: [&[FirstFrameResult]; 2],
) -> Option<ModeLine> {
    let of = |value: &dyn Fn(&FirstFrameResult) -> f64| {
        Sample::new(places.iter().map(|&at| value(&seen[at])))
    };
    let times = of(&|seen| seen.pictures_ms[0])?;
    let whole = Sample::new(places.iter().map(|&at| base[at].pictures_ms[0]))?.mean();
    let apart = |at: &usize| (seen[*at].pictures_ms[0] - base[*at].pictures_ms[0]) / whole;
    let part = |is: &dyn Fn(&FirstFrameResult) -> bool| {
        places.iter().filter(|&&at| is(&seen[at])).count() as f64 / places.len() as f64
    };
    let mut pictures_ms = [0.0; PICTURES];
    for (place, mean) in pictures_ms.iter_mut().enumerate() {
        *mean = of(&|seen| seen.pictures_ms[place])?.mean();
    }
    Some(ModeLine {
        mode,
        visits: places.len(),
        times,
        change: Estimate::of(places.iter().map(apart))?,
        losses: of(&|seen| seen.loss)?,
        losses_over_iw10: Estimate::of(places.iter().map(|&at| seen[at].loss - iw10[at].loss))?,
        pictures_ms,
        with_past: part(&|seen| seen.has_past),
        jumped: part(&|seen| seen.verdict != Verdict::None),
        failed: part(&|seen| seen.verdict == Verdict::Failed),
    })
}

/// Returns the line of a mode, if it has visits.
pub(super) fn find(lines: &[ModeLine], mode: Mode) -> Option<&ModeLine> {
    lines.iter().find(|line| line.mode == mode)
}
