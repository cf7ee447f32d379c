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

#[cfg(test)]
mod tests {
    use qoe::stats::{Estimate, Sample};
    use startup::decision::Mode;

    use super::super::figures::{MetricNumber, VisitClass};
    use super::*;

    fn mode_line(mode: Mode, value: f64) -> ModeLine {
        let of = |mean| Estimate { mean, half: Some(0.5) };
        let number = MetricNumber { value: of(value), gain: Some(of(value / 100.0)) };
        ModeLine {
            mode,
            visits: 1,
            times: Sample::new([value]).expect("a value"),
            numbers: vec![number; METRICS.len()],
            losses_over_iw10: of(0.0),
            with_past: 0.0,
            jumped: 0.0,
            failed: 0.0,
        }
    }

    #[test]
    fn each_class_has_values_of_all_modes_and_changes_of_all_but_the_baseline() {
        let modes = |value| vec![mode_line(BASELINE, value), mode_line(Mode::Wira, value + 1.0)];
        let class = |name, value| vec![VisitClass { name, lines: modes(value) }];
        let figures = Figures {
            visits: 1,
            returns: 1,
            all: modes(10.0),
            kinds: class("0-RTT", 20.0),
            sizes: class("80 to 150 KB", 30.0),
            rtts: class("up to 20 ms", 40.0),
            rates: class("up to 10 Mbps", 50.0),
            retransmissions: class("1 to 5 %", 60.0),
            fell: modes(70.0),
        };
        let all = lines("fitted", &figures);
        // Values of two modes, and changes of one.
        assert_eq!(all.len(), 6 * METRICS.len() * 3);
        let is_fitted = |line: &ResultLine| line.point[CONDITION].as_str() == Some("fitted");
        assert!(all.iter().all(is_fitted));
        let of = |sweep: &str, scheme: &str, metric: &str| {
            let is_it = |line: &&ResultLine| {
                line.sweep.as_deref() == Some(sweep)
                    && (&*line.scheme, &*line.metric) == (scheme, metric)
            };
            all.iter().find(is_it).map(|line| (line.mean, line.ci95, &*line.unit))
        };
        let (loss, gain) = ("first_frame_loss", "gain:first_frame_loss");
        assert_eq!(of("all", "fixed", loss), Some((10.0, Some(0.5), "%")));
        assert_eq!(of("0-RTT", "wira", "frame_4_ms"), Some((21.0, Some(0.5), "ms")));
        assert_eq!(of("80 to 150 KB", "wira", gain), Some((0.31, Some(0.5), "1")));
        assert_eq!(of("1 to 5 %", "wira", gain), Some((0.61, Some(0.5), "1")));
        assert_eq!(of("all", "fixed", gain), None, "the baseline against itself");
    }
}
