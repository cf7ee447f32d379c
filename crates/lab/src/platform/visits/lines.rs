//! Lines of `summary.json`, which the pages of the papers read.

use toml::Value;

use super::figures::{BASELINE, Figures, METRICS, ModeLine};
use crate::experiments::papers::ResultLine;

/// Axis of the conditions in the lines' points.
pub(super) const CONDITION: &str = "condition";

/// Returns the lines of one condition, by class of visits. `gain:METRIC` is the change from the
/// baseline as a share of its value.
pub(super) fn lines(condition: &str, figures: &Figures) -> Vec<ResultLine> {
    let mut all = of_class(condition, "all", &figures.all);
    for class in figures.classes() {
        all.extend(of_class(condition, class.name, &class.lines));
    }
    all
}

fn of_class(condition: &str, class: &str, modes: &[ModeLine]) -> Vec<ResultLine> {
    let mut all = Vec::new();
    for mode in modes {
        for (metric, number) in METRICS.iter().zip(&mode.numbers) {
            let line = |metric: String, unit: &str, value: qoe::stats::Estimate| ResultLine {
                sweep: Some(class.to_owned()),
                scheme: mode.mode.name().to_owned(),
                point: [(CONDITION.to_owned(), Value::from(condition))].into(),
                metric,
                unit: unit.to_owned(),
                mean: value.mean,
                ci95: value.half,
            };
            all.push(line(metric.key.to_owned(), metric.unit, number.value));
            if let Some(gain) = number.gain.filter(|_| mode.mode != BASELINE) {
                all.push(line(format!("gain:{}", metric.key), "1", gain));
            }
        }
    }
    all
}
