//! Retransmission and recovery: rounds, deterioration, latency, off-mode.

use records::Column;

use super::measure::Measure;
use super::row::StudyRow;
use super::section::{Cell, StudySection, StudyTable};
use super::sums::{Classes, LOSS, Mean, Ratio, SRTT, Values};
use crate::plot::{Curve, Plot, YAxis};

/// Rounds counted individually. Higher ones are counted together.
const ROUNDS: usize = 20;

/// Rounds of retransmission (AutoRec journal, III-A, figure 3).
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Sessions by their highest round.
    highest: [u64; ROUNDS + 1],
    mean: Ratio,
    retransmitted: Ratio,
    repeated: Ratio,
}

impl Measure for Rounds {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::rounds_max,
            Column::rounds,
            Column::units_finished,
            Column::units_late,
            Column::retransmissions,
            Column::first_transmissions,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        if let Some(most) = row[Column::rounds_max] {
            self.highest[(most as usize).min(ROUNDS)] += 1;
        }
        self.mean.add(row[Column::rounds], row[Column::units_finished]);
        self.retransmitted.add(row[Column::retransmissions], row[Column::first_transmissions]);
        self.repeated.add(row[Column::units_late], row[Column::units_finished]);
    }

    fn report(&self) -> StudySection {
        let n: u64 = self.highest.iter().sum();
        let from = |rounds: usize| {
            let with: u64 = self.highest[rounds..].iter().sum();
            Cell { value: (n > 0).then(|| 100.0 * with as f64 / n as f64), n, paper: None }
        };
        let table = StudyTable::of_figures()
            .figure("sessions with a highest round of 2 or more (%)", from(2))
            .paper(43.0, "AutoRec journal III-A, fig. 3: \"exceeds 43 %\" of connections")
            .figure("3 or more (%)", from(3))
            .figure("5 or more (%)", from(5))
            .figure("10 or more (%)", from(10))
            .figure("rounds of lost data that arrived, all sessions' sums", self.mean.cell(1.0))
            .figure("retransmissions ÷ first transmissions (%)", self.retransmitted.cell(100.0));
        let mut seen = 0;
        let points = self.highest.iter().enumerate().filter(|_| n > 0).map(|(rounds, count)| {
            seen += count;
            (rounds as f64, seen as f64 / n as f64)
        });
        StudySection::new("rounds", "Rounds of retransmission")
            .note("A connection's highest round counts for each of its sessions.")
            .table(table)
            .plot(Plot {
                title: "Cumulative share of sessions by highest round".into(),
                x: format!("highest round ({ROUNDS}: or more)"),
                y: YAxis::Share,
                lines: vec![Curve { name: "sessions".into(), colour: 0, points: points.collect() }],
            })
    }
}

/// Recovery deterioration rate (AutoRec journal, VII-B, figure 21a).
#[derive(Debug, Default)]
pub(super) struct Deterioration {
    pooled: Ratio,
    mean: Mean,
    classes: [Ratio; 4],
}

impl Measure for Deterioration {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::units_late,
            Column::units_finished,
            Column::recovery_deterioration,
            Column::loss_rate,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        self.pooled.add(row[Column::units_late], row[Column::units_finished]);
        self.mean.add(row[Column::recovery_deterioration]);
        if let Some(class) = row[Column::loss_rate].and_then(|loss| LOSS.of(loss)) {
            self.classes[class].add(row[Column::units_late], row[Column::units_finished]);
        }
    }

    fn report(&self) -> StudySection {
        let source = "AutoRec journal VII-B, fig. 21a: without AutoRec; 22.6 with it";
        let mut table = StudyTable::of_figures()
            .figure("all sessions' sums (%)", self.pooled.cell(100.0))
            .paper(23.0, source)
            .figure("mean over sessions with lost data (%)", self.mean.cell(100.0))
            .paper(23.0, source);
        for (label, class) in LOSS.labels.iter().zip(&self.classes) {
            table = table.figure(format!("{label}, sums (%)"), class.cell(100.0));
        }
        StudySection::new("deterioration", "Recovery deterioration rate")
            .note(
                "Lost data that needed more than one retransmission ÷ all lost data that arrived. \
                 For independent losses it equals the loss rate. The paper does not define its \
                 average, so its value stands next to both readings.",
            )
            .table(table)
    }
}

/// Recovery latency in one class.
#[derive(Clone, Copy, Debug, Default)]
struct Latency {
    mean: Mean,
    maximum: Mean,
    weighted: Ratio,
}

impl Latency {
    fn add(&mut self, row: &StudyRow) {
        self.mean.add(row[Column::recovery_mean_ms]);
        self.maximum.add(row[Column::recovery_max_ms]);
        let sum = row[Column::recovery_mean_ms]
            .zip(row[Column::recovery_count])
            .map(|(mean, count)| mean * count);
        self.weighted.add(sum, row[Column::recovery_count].filter(|count| *count > 0.0));
    }

    fn cells(&self) -> Vec<Cell> {
        vec![self.mean.cell(1.0), self.maximum.cell(1.0), self.weighted.cell(1.0)]
    }
}

/// Recovery latency (AutoRec journal, III-C, table I).
#[derive(Debug, Default)]
pub(super) struct Latencies {
    means: Values,
    maxima: Values,
    all: Latency,
    by_loss: [Latency; 5],
    by_srtt: [Latency; 5],
}

/// Returns the class of a number. The last index is for numbers beyond all classes or unknown.
fn place(classes: &Classes<5>, number: Option<f64>) -> usize {
    number.and_then(|number| classes.of(number)).unwrap_or(4)
}

impl Measure for Latencies {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::recovery_mean_ms,
            Column::recovery_max_ms,
            Column::recovery_count,
            Column::loss_rate,
            Column::rtt_ms,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        self.means.add(row[Column::recovery_mean_ms]);
        self.maxima.add(row[Column::recovery_max_ms]);
        self.all.add(row);
        self.by_loss[place(&LOSS, row[Column::loss_rate])].add(row);
        self.by_srtt[place(&SRTT, row[Column::rtt_ms])].add(row);
    }

    fn report(&self) -> StudySection {
        const TABLE: &str = "AutoRec journal III-C, table I";
        const BY_LOSS: [(f64, f64); 4] =
            [(26.8, 51.8), (94.5, 204.9), (186.4, 451.3), (530.2, 1_288.4)];
        const BY_SRTT: [(f64, f64); 4] =
            [(68.2, 149.2), (170.2, 391.3), (273.6, 698.8), (418.0, 960.9)];
        let (means, maxima) = (self.means.distribution(), self.maxima.distribution());
        let p95 = StudyTable::of_figures()
            .figure("95th percentile of the sessions' means (ms)", means.quantile(0.95, 1.0))
            .figure("95th percentile of the sessions' maxima (ms)", maxima.quantile(0.95, 1.0))
            .figure("mean over sessions (ms)", self.all.mean.cell(1.0))
            .paper(231.2, "AutoRec journal VII-B, fig. 21a: without AutoRec; 194.6 with it");
        let head = ["mean (ms)", "maximum (ms)", "mean by lost data (ms)"];
        let mut table = StudyTable::new("classes", &head)
            .line("all", self.all.cells())
            .papers(&[Some(123.2), Some(279.3)], TABLE);
        let by_loss = LOSS.labels.iter().zip(&self.by_loss).zip(BY_LOSS);
        let by_srtt = SRTT.labels.iter().zip(&self.by_srtt).zip(BY_SRTT);
        for ((label, latency), (mean, maximum)) in by_loss.chain(by_srtt) {
            table = table.line(*label, latency.cells()).papers(&[Some(mean), Some(maximum)], TABLE);
        }
        for (label, rest) in [("other loss", self.by_loss[4]), ("other SRTT", self.by_srtt[4])] {
            if rest.mean.cell(1.0).n > 0 {
                table = table.line(label, rest.cells());
            }
        }
        let line = |name: &str, colour, points| Curve { name: name.into(), colour, points };
        StudySection::new("recovery_latency", "Recovery latency")
            .note(
                "From loss detection to sending the copy that arrived, for data with a lost first \
                 retransmission. Mean and maximum are averaged over sessions, as in the paper; \
                 \"by lost data\" weights each session by its amount of such data.",
            )
            .table(p95)
            .table(table)
            .plot(Plot {
                title: "Cumulative share of sessions by recovery latency".into(),
                x: "recovery latency (ms)".into(),
                y: YAxis::Share,
                lines: vec![
                    line("mean", 0, means.curve(1.0)),
                    line("maximum", 1, maxima.curve(1.0)),
                ],
            })
    }
}

/// Off-mode (AutoRec journal, III-B, figure 6a).
#[derive(Debug, Default)]
pub(super) struct OffMode {
    time: Values,
    entries: Values,
}

impl Measure for OffMode {
    fn columns(&self) -> &'static [Column] {
        &[Column::off_mode_ms_per_s, Column::off_mode_entries_per_s]
    }

    fn add(&mut self, row: &StudyRow) {
        self.time.add(row[Column::off_mode_ms_per_s]);
        self.entries.add(row[Column::off_mode_entries_per_s]);
    }

    fn report(&self) -> StudySection {
        const FIGURE: &str = "AutoRec journal III-B, fig. 6a";
        let (time, entries) = (self.time.distribution(), self.entries.distribution());
        let table = StudyTable::of_figures()
            .figure("off-mode, mean over sessions (ms in 1 s)", time.mean(1.0))
            .paper(464.0, FIGURE)
            .figure("95 % of sessions have at least (ms in 1 s)", time.quantile(0.05, 1.0))
            .paper(394.0, FIGURE)
            .figure("entries, mean over sessions (in 1 s)", entries.mean(1.0))
            .paper(20.0, FIGURE)
            .figure("95 % of sessions have at least (in 1 s)", entries.quantile(0.05, 1.0))
            .paper(17.0, FIGURE);
        let plot = |title: &str, x: &str, points| Plot {
            title: title.into(),
            x: x.into(),
            y: YAxis::Share,
            lines: vec![Curve { name: "sessions".into(), colour: 0, points }],
        };
        StudySection::new("off_mode", "Off-mode")
            .note("Time with nothing to send but copies.")
            .table(table)
            .plot(plot(
                "Cumulative share of sessions by time in off-mode",
                "off-mode (ms in 1 s)",
                time.curve(1.0),
            ))
            .plot(plot(
                "Cumulative share of sessions by number of entries",
                "entries in 1 s",
                entries.curve(1.0),
            ))
    }
}
