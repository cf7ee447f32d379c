//! Loss rates and loss correlation.

use records::Column;

use super::measure::Measure;
use super::row::StudyRow;
use super::section::{Cell, StudySection, StudyTable};
use super::sums::{LOSS, Mean, Ratio, Values};
use crate::plot::{Curve, Plot, YAxis};

/// Loss rates (AutoRec journal, III-A, figure 4).
#[derive(Debug, Default)]
pub(super) struct LossRates {
    rates: Values,
    pooled: Ratio,
    classes: [u64; 4],
}

impl Measure for LossRates {
    fn columns(&self) -> &'static [Column] {
        &[Column::loss_rate, Column::packets_lost, Column::packets_settled]
    }

    fn add(&mut self, row: &StudyRow) {
        self.rates.add(row[Column::loss_rate]);
        self.pooled.add(row[Column::packets_lost], row[Column::packets_settled]);
        if let Some(class) = row[Column::loss_rate].and_then(|loss| LOSS.of(loss)) {
            self.classes[class] += 1;
        }
    }

    fn report(&self) -> StudySection {
        let rates = self.rates.distribution();
        let mut table = StudyTable::of_figures()
            .figure(
                "packets lost ÷ packets settled, all sessions' sums (%)",
                self.pooled.cell(100.0),
            )
            .figure("loss rate, mean over sessions (%)", rates.mean(100.0))
            .paper(3.78, "AutoRec journal III-A, fig. 4a: Brazil, Japan; 2 to 5 by hour, fig. 4b");
        for (label, order) in [("median", 0.5), ("90th percentile", 0.9), ("99th percentile", 0.99)]
        {
            table = table.figure(format!("{label} (%)"), rates.quantile(order, 100.0));
        }
        table = table.figure("sessions without loss (%)", rates.share(|rate| rate == 0.0));
        for (label, count) in LOSS.labels.iter().zip(self.classes) {
            let all = rates.mean(1.0).n;
            let value = (all > 0).then(|| 100.0 * count as f64 / all as f64);
            table = table
                .figure(format!("sessions with {label} (%)"), Cell { value, n: all, paper: None });
        }
        StudySection::new("loss", "Loss rate").table(table).plot(Plot {
            title: "Cumulative share of sessions by loss rate".into(),
            x: "loss rate (%)".into(),
            y: YAxis::Share,
            lines: vec![Curve { name: "sessions".into(), colour: 0, points: rates.curve(100.0) }],
        })
    }
}

/// Loss some time after a lost packet.
#[derive(Clone, Copy, Debug, Default)]
struct AfterLoss {
    lost: Ratio,
    /// Expectation for independent losses at each session's own rate.
    independent: Ratio,
}

/// Bursts of lost packets, and the loss of packets sent some time after a lost one.
#[derive(Debug, Default)]
pub(super) struct BurstLengths {
    length: Ratio,
    longest: Values,
    /// Share of the runs up to a size, by the size.
    sizes: [(u32, Ratio); 8],
    after: [(u32, AfterLoss); 6],
}

impl Measure for BurstLengths {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::packets_lost,
            Column::packets_settled,
            Column::packets_spurious,
            Column::bursts,
            Column::burst_longest,
            Column::bursts_1,
            Column::bursts_2,
            Column::bursts_4,
            Column::bursts_8,
            Column::bursts_16,
            Column::bursts_32,
            Column::bursts_64,
            Column::bursts_128,
            Column::after_1ms_sent,
            Column::after_5ms_sent,
            Column::after_20ms_sent,
            Column::after_50ms_sent,
            Column::after_100ms_sent,
            Column::after_200ms_sent,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        let declared = row[Column::packets_lost]
            .zip(row[Column::packets_spurious])
            .map(|(lost, late)| lost + late);
        self.length.add(declared, row[Column::bursts]);
        self.longest.add(row[Column::burst_longest].filter(|longest| *longest > 0.0));
        let mut runs = Some(0.0);
        for ((limit, sum), (size, own)) in self.sizes.iter_mut().zip(row.burst_lengths()) {
            *limit = size;
            runs = runs.zip(own).map(|(before, own)| before + own);
            sum.add(runs, row[Column::bursts]);
        }
        let counts = row[Column::packets_lost].zip(row[Column::packets_settled]);
        // Expected loss next to a lost packet if the session's losses are independent. Computed per
        // session: in a pooled rate, sessions with high loss would make independent losses look
        // correlated.
        let others = counts.filter(|(lost, settled)| *lost >= 1.0 && *settled >= 2.0);
        let chance = others.map(|(lost, settled)| (lost - 1.0) / (settled - 1.0));
        for ((end, sum), (lag, counts)) in self.after.iter_mut().zip(row.after_loss()) {
            *end = lag;
            if let Some(((sent, lost), chance)) =
                counts.zip(chance).filter(|((sent, _), _)| *sent > 0.0)
            {
                sum.lost.add(Some(lost), Some(sent));
                sum.independent.add(Some(chance * sent), Some(sent));
            }
        }
    }

    fn report(&self) -> StudySection {
        let longest = self.longest.distribution();
        let figures = StudyTable::of_figures()
            .figure(
                "mean run of consecutive lost packets, all sessions' sums",
                self.length.cell(1.0),
            )
            .figure("longest run of a session with loss: mean", longest.mean(1.0))
            .figure("95th percentile", longest.quantile(0.95, 1.0));
        let mut sizes = StudyTable::new("burst_lengths", &["share of runs (%)"]);
        for (limit, share) in &self.sizes {
            let packets = if *limit == 1 { "packet" } else { "packets" };
            let label = format!("runs of at most {limit} {packets}");
            sizes = sizes.line(label, vec![share.cell(100.0)]);
            if *limit == 1 {
                sizes = sizes.paper(37.2, "ART 3.2, fig. 4a");
            }
        }
        let head = ["lost (%)", "if independent (%)", "ratio"];
        let mut lags = StudyTable::new("after_loss", &head);
        let (mut seen, mut chance) = (Vec::new(), Vec::new());
        let mut from = 0;
        for (end, sum) in &self.after {
            let (lost, independent) = (sum.lost.cell(100.0), sum.independent.cell(100.0));
            let ratio = lost.value.zip(independent.value).filter(|(_, by)| *by > 0.0);
            let ratio = Cell { value: ratio.map(|(lost, by)| lost / by), ..lost };
            seen.extend(lost.value.map(|value| (f64::from(*end), value)));
            chance.extend(independent.value.map(|value| (f64::from(*end), value)));
            lags = lags.line(
                format!("sent {from} to {end} ms after a lost packet"),
                vec![lost, independent, ratio],
            );
            from = *end;
        }
        StudySection::new("bursts", "Bursts and correlation of losses")
            .note(
                "Ratio 1: losses are independent. Above 1: copies sent soon are lost together. \
                 \"If independent\" distributes each session's own losses at random.",
            )
            .table(figures)
            .table(sizes)
            .table(lags)
            .plot(Plot {
                title: "Loss of packets by time since a lost one (%)".into(),
                x: "time since a lost packet, upper limit (ms)".into(),
                y: YAxis::Number,
                lines: vec![
                    Curve { name: "lost".into(), colour: 0, points: seen },
                    Curve { name: "if independent".into(), colour: 1, points: chance },
                ],
            })
    }
}

/// Loss and its consequences by hour of the day (AutoRec journal, figures 2b and 4b).
#[derive(Debug, Default)]
pub(super) struct Hours([Hour; 24]);

#[derive(Clone, Copy, Debug, Default)]
struct Hour {
    loss: Ratio,
    rtt: Mean,
    late: Ratio,
    recovery: Mean,
    freezes: Ratio,
    frozen: Ratio,
    first_frame: Mean,
}

impl Measure for Hours {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::started_ms,
            Column::packets_lost,
            Column::packets_settled,
            Column::rtt_ms,
            Column::units_late,
            Column::units_finished,
            Column::recovery_mean_ms,
            Column::player_freezes,
            Column::player_freeze_s,
            Column::player_played_s,
            Column::first_frame_ms,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        let Some(hour) = row.hour().and_then(|hour| self.0.get_mut(hour)) else { return };
        hour.loss.add(row[Column::packets_lost], row[Column::packets_settled]);
        hour.rtt.add(row[Column::rtt_ms]);
        hour.late.add(row[Column::units_late], row[Column::units_finished]);
        hour.recovery.add(row[Column::recovery_mean_ms]);
        hour.freezes.add(row[Column::player_freezes], row.watched_s());
        hour.frozen.add(row[Column::player_freeze_s], row.watched_s());
        hour.first_frame.add(row[Column::first_frame_ms]);
    }

    fn report(&self) -> StudySection {
        let head = [
            "loss (%)",
            "SRTT (ms)",
            "deterioration (%)",
            "recovery (ms)",
            "freezes in 100 s",
            "frozen s in 100 s",
            "first frame (ms)",
        ];
        let mut table = StudyTable::new("hours", &head);
        let mut curves = [
            ("loss (%)", Vec::new()),
            ("freezes in 100 s", Vec::new()),
            ("frozen s in 100 s", Vec::new()),
        ];
        for (at, hour) in self.0.iter().enumerate() {
            let cells = [
                hour.loss.cell(100.0),
                hour.rtt.cell(1.0),
                hour.late.cell(100.0),
                hour.recovery.cell(1.0),
                hour.freezes.cell(100.0),
                hour.frozen.cell(100.0),
                hour.first_frame.cell(1.0),
            ];
            for ((_, points), cell) in curves.iter_mut().zip([0, 4, 5].map(|at| cells[at])) {
                points.extend(cell.value.map(|value| (at as f64, value)));
            }
            if cells.iter().any(|cell| cell.n > 0) {
                table = table.line(format!("{at:02} h"), cells.to_vec());
            }
        }
        let lines = curves.into_iter().enumerate().map(|(colour, (name, points))| Curve {
            name: name.into(),
            colour,
            points,
        });
        StudySection::new("hours", "By hour of the day (UTC)")
            .note(
                "By the hour in which a session began. Loss, deterioration and freezes are ratios of sums, the others \
                 means over sessions. AutoRec journal: loss from 2 to 5 % over 24 hours (fig. 4b); more than 2 s frozen \
                 or 2 freezes in 100 s frequent after 20 h (fig. 2b).",
            )
            .table(table)
            .plot(Plot {
                title: "By hour of the day (UTC)".into(),
                x: "hour".into(),
                y: YAxis::Number,
                lines: lines.collect(),
            })
    }
}
