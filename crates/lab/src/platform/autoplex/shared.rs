//! Two sessions on one bottleneck: the effect of capped sessions on uncapped ones. A comparison of
//! concurrent capped and uncapped sessions cannot show it, because both share the effect. Running
//! the same sessions under three courses can (Spang et al., IMC '21).

use std::fmt::Write as _;

use qoe::stats::{Estimate, Sample};

use super::course::{Bottleneck, PolicyRun};
use super::row::GroupRow;

pub(super) const PAGE: &str = "autoplex-shared.md";

type Days<'a> = &'a [Vec<GroupRow>];

/// A compared metric.
struct SharedMetric {
    name: &'static str,
    /// Whether to show the change relative to uncapped BBR, in per cent.
    is_relative: bool,
    of: fn(&[&GroupRow]) -> Option<f64>,
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    Some(Sample::new(values)?.mean())
}

fn per_100_s(rows: &[&GroupRow], of: fn(&GroupRow) -> f64) -> Option<f64> {
    let played: f64 = rows.iter().map(|row| row.played_s + row.frozen_s).sum();
    (played > 0.0).then(|| rows.iter().map(|row| of(row)).sum::<f64>() * 100.0 / played)
}

const MEASURES: [SharedMetric; 5] = [
    SharedMetric {
        name: "retransmission ratio",
        is_relative: true,
        of: |rows| mean(rows.iter().filter_map(|row| Some(row.retransmission()? * 100.0))),
    },
    SharedMetric {
        name: "freezes per 100 s",
        is_relative: false,
        of: |rows| per_100_s(rows, |row| row.freezes as f64),
    },
    SharedMetric {
        name: "frozen seconds per 100 s",
        is_relative: false,
        of: |rows| per_100_s(rows, |row| row.frozen_s),
    },
    SharedMetric {
        name: "frames later than 400 ms, %",
        is_relative: false,
        of: |rows| {
            let frames: i64 = rows.iter().map(|row| row.frames).sum();
            let late: i64 = rows.iter().map(|row| row.late_frames).sum();
            (frames > 0).then(|| late as f64 * 100.0 / frames as f64)
        },
    },
    SharedMetric {
        name: "first frame, ms",
        is_relative: false,
        of: |rows| mean(rows.iter().map(|row| row.first_frame_ms).filter(|time| time.is_finite())),
    },
];

impl SharedMetric {
    /// Change for the given members of each pair: absolute, or in per cent.
    fn change(&self, own: &[GroupRow], free: &[GroupRow], places: &[usize]) -> Option<f64> {
        let (own, free) = ((self.of)(&side(own, places))?, (self.of)(&side(free, places))?);
        match self.is_relative {
            true => (free > 0.0).then(|| (own / free - 1.0) * 100.0),
            false => Some(own - free),
        }
    }
}

/// Returns the given members of each pair. The first member is the capped one.
fn side<'a>(day: &'a [GroupRow], places: &[usize]) -> Vec<&'a GroupRow> {
    let of = |place: &usize| day.iter().skip(*place).step_by(2);
    places.iter().flat_map(of).collect()
}

/// Renders the page; `None` without comparable sessions.
pub(super) fn page(all: &[(&PolicyRun, Days<'_>)], command: &str) -> Option<String> {
    let of = |name: &str, held: usize| {
        let is_it = |course: &PolicyRun| {
            course.name == name && course.bottleneck == Bottleneck::Shared { held }
        };
        all.iter().find(|(course, _)| is_it(course)).map(|(_, days)| *days)
    };
    let (_, free) = all.iter().find(|(c, _)| c.bottleneck == Bottleneck::Shared { held: 0 })?;
    let sessions: usize = free.iter().map(Vec::len).sum();
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "# AutoPlex behind shared bottlenecks\n\n`{command}`: {} days, {sessions} sessions. \
         Pairs of concurrent sessions of a group share a bottleneck. The same pairs run three \
         times: with neither session capped, with one capped, and with both capped. The first \
         column is the mean with neither capped; the others are changes from it, with Student's \
         95 % interval over days (±).\n\n- *capped*: the capped session of a pair with one \
         capped; explorers count as capped\n- *neighbour*: the uncapped session of such a \
         pair\n- *A/B test*: the difference of these two, which an A/B test would measure\n\
         - *all capped*: both sessions of a pair with both capped\n",
        free.len()
    );
    for measure in &MEASURES {
        let _ = write!(
            out,
            "\n## {}\n\n| policy | neither capped | capped | neighbour | A/B test | all capped |\n|---|---|---|---|---|---|\n",
            measure.name
        );
        for (course, both) in all {
            if course.bottleneck != (Bottleneck::Shared { held: 2 }) {
                continue;
            }
            let one = of(&course.name, 1)?;
            let changes = |days: Days<'_>, places: &[usize]| -> Option<Vec<f64>> {
                days.iter()
                    .zip(*free)
                    .map(|(own, free)| measure.change(own, free, places))
                    .collect()
            };
            let (held, spared) = (changes(one, &[0])?, changes(one, &[1])?);
            let seen = held.iter().zip(&spared).map(|(held, spared)| held - spared).collect();
            let base: Option<Vec<f64>> =
                free.iter().map(|day| (measure.of)(&side(day, &[0, 1]))).collect();
            let _ = write!(out, "| {} | {:.3} |", course.name, Estimate::of(base?)?.mean);
            for values in [held, spared, seen, changes(both, &[0, 1])?] {
                let unit = if measure.is_relative { " %" } else { "" };
                let Estimate { mean, half } = Estimate::of(values)?;
                let _ = match half {
                    Some(half) => write!(out, " {mean:+.3} ± {half:.3}{unit} |"),
                    None => write!(out, " {mean:+.3}{unit} |"),
                };
            }
            out.push('\n');
        }
    }
    Some(out)
}
