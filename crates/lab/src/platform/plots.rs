//! Plots of a virtual A/B test.

use super::metrics::{COST, FREEZES, FROZEN, LATE_400};
use super::summary::PopulationSummary;
use analysis::{Chart, Series, Span};

/// Series of a metric along the classes of a dimension, with intervals.
fn along(summary: &PopulationSummary, dimension: &str, metric: usize) -> Vec<Series> {
    let mut all = Vec::new();
    for (place, name) in summary.arms.iter().map(|arm| &arm.name).enumerate() {
        let mut line = Series::line(name.clone());
        for part in summary.parts.iter().filter(|part| part.dimension == dimension) {
            if let Some(estimate) = part.arms[place].means[metric] {
                line.points.push((part.x, estimate.value));
                line.band.push(Span { x: part.x, low: estimate.low, high: estimate.high });
            }
        }
        all.push(line);
    }
    // Bands of all schemes would cover each other.
    all.iter_mut().skip(1).for_each(|series| series.band.clear());
    all
}

/// Time frozen against the cost of copies.
fn price(summary: &PopulationSummary) -> Vec<Series> {
    let arms = summary.overall.iter().filter_map(|arm| {
        let mut mark = Series::line(arm.name.clone());
        mark.points.push((arm.means[COST]?.value, arm.means[FROZEN]?.value));
        Some(mark)
    });
    arms.collect()
}

fn frozen(summary: &PopulationSummary) -> Vec<Series> {
    let of = |curve: &super::summary::FreezeCurve| Series {
        points: curve.points.clone(),
        dots: false,
        ..Series::line(curve.name.clone())
    };
    summary.frozen.iter().map(of).collect()
}

/// Renders the plots with their file names.
///
/// # Errors
/// One line: a plot cannot be drawn.
pub(super) fn draw(summary: &PopulationSummary) -> Vec<(&'static str, String)> {
    let chart = |title: &str, x: &str, y: &str| Chart {
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
    };
    let mut all = Vec::new();
    for (name, chart, series) in [
        (
            "viewers-late.svg",
            chart("Frames later than 400 ms", "loss rate of the path, %", "frames, %"),
            along(summary, "loss", LATE_400),
        ),
        (
            "viewers-freezes.svg",
            chart("Freezes", "round-trip time without queues, ms", "freezes in 100 s"),
            along(summary, "rtt", FREEZES),
        ),
        (
            "viewers-frozen.svg",
            chart("Sessions that freeze", "seconds frozen in 100 s, at least", "sessions, %"),
            frozen(summary),
        ),
        (
            "viewers-cost.svg",
            chart(
                "Cost and benefit of copies",
                "bytes of copies, % of the stream",
                "s frozen in 100 s",
            ),
            price(summary),
        ),
    ] {
        if series.iter().any(|series| !series.points.is_empty()) {
            all.push((name, chart.svg(&series)));
        }
    }
    all
}
