//! Viewing: freezes, late frames, first frames.

use records::Column;

use super::measure::Measure;
use super::row::StudyRow;
use super::section::{Cell, StudySection, StudyTable};
use super::sums::{Distribution, LOSS, Mean, Ratio, Values};
use crate::plot::{Curve, Plot, YAxis};

/// Freezes in one class, per 100 s of viewing.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    pooled: [Ratio; 2],
    mean: [Mean; 2],
    late: Ratio,
}

impl Class {
    fn add(&mut self, row: &StudyRow) {
        let watched = row.watched_s();
        for (at, part) in
            [row[Column::player_freezes], row[Column::player_freeze_s]].into_iter().enumerate()
        {
            self.pooled[at].add(part, watched);
            self.mean[at].add(part.zip(watched).map(|(part, watched)| part / watched));
        }
        self.late.add(row[Column::player_late_frames], row[Column::player_frames]);
    }

    fn cells(&self) -> Vec<Cell> {
        let [times, seconds] = self.pooled.map(|pooled| pooled.cell(100.0));
        let [mean_times, mean_seconds] = self.mean.map(|mean| mean.cell(100.0));
        vec![times, mean_times, seconds, mean_seconds, self.late.cell(100.0)]
    }
}

/// Freezes (AutoRec journal, II-B and VII-B).
#[derive(Debug, Default)]
pub(super) struct Freezes {
    all: Class,
    classes: [Class; 4],
    free: [u64; 2],
}

impl Measure for Freezes {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::player_freezes,
            Column::player_freeze_s,
            Column::player_played_s,
            Column::player_frames,
            Column::player_late_frames,
            Column::loss_rate,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        self.all.add(row);
        if let Some(class) = row[Column::loss_rate].and_then(|loss| LOSS.of(loss)) {
            self.classes[class].add(row);
        }
        if let Some((freezes, _)) = row[Column::player_freezes].zip(row.watched_s()) {
            self.free[0] += u64::from(freezes == 0.0);
            self.free[1] += 1;
        }
    }

    fn report(&self) -> StudySection {
        let [free, players] = self.free;
        let value = (players > 0).then(|| 100.0 * free as f64 / players as f64);
        let figures = StudyTable::of_figures()
            .figure("sessions without a freeze (%)", Cell { value, n: players, paper: None });
        let head = [
            "freezes, sums",
            "freezes, mean",
            "frozen s, sums",
            "frozen s, mean",
            "frames later than 400 ms (%)",
        ];
        let mut table = StudyTable::new("classes", &head).line("all", self.all.cells()).papers(
            &[Some(0.69), Some(0.69), Some(1.3), Some(1.3)],
            "AutoRec journal VII-B, fig. 22a (0.62 with AutoRec; MM'24 6.3: 0.57 and 0.51); II-B: \"more than 1.3 s\"",
        );
        for (label, class) in LOSS.labels.iter().zip(&self.classes) {
            table = table.line(*label, class.cells());
        }
        StudySection::new("freezes", "Freezes in 100 s")
            .note(
                "Reported by players, per 100 s of viewing. Sums: all sessions' freezes over all \
                 sessions' time, so long sessions have more weight. Mean: of the sessions' own \
                 rates, where a freeze in a short session has much weight. The papers do not say \
                 which of the two they use.",
            )
            .table(figures)
            .table(table)
    }
}

/// First frames (Wira, II-A and VI-A).
#[derive(Debug, Default)]
pub(super) struct FirstFrames {
    bytes: Values,
    /// Time to the acknowledgement, of sessions with 0-RTT data and without.
    early: Values,
    later: Values,
    player: Values,
}

/// KB in Wira's sense. The paper does not say whether 1,000 or 1,024 bytes.
const KB: f64 = 1e-3;

impl Measure for FirstFrames {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::first_frame_bytes,
            Column::first_frame_ms,
            Column::early_data,
            Column::player_first_frame_ms,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        self.bytes.add(row[Column::first_frame_bytes].map(|bytes| bytes * KB));
        match row[Column::early_data] {
            Some(early) if early > 0.0 => self.early.add(row[Column::first_frame_ms]),
            _ => self.later.add(row[Column::first_frame_ms]),
        }
        self.player.add(row[Column::player_first_frame_ms]);
    }

    fn report(&self) -> StudySection {
        const SIZES: &str = "Wira II-A, fig. 1a";
        let bytes = self.bytes.distribution();
        let sizes = StudyTable::of_figures()
            .figure("first-frame size, mean (KB)", bytes.mean(1.0))
            .paper(43.1, SIZES)
            .figure("smallest (KB)", bytes.quantile(0.0, 1.0))
            .paper(6.0, "Wira I: \"from 6KB to 250KB\"")
            .figure("median (KB)", bytes.quantile(0.5, 1.0))
            .figure("largest (KB)", bytes.quantile(1.0, 1.0))
            .paper(250.0, "Wira I: \"from 6KB to 250KB\"")
            .figure("below 30 KB (%)", bytes.share(|size| size < 30.0))
            .paper(30.0, SIZES)
            .figure("above 60 KB (%)", bytes.share(|size| size > 60.0))
            .paper(20.0, SIZES);
        let (all, early) = (self.early.with(&self.later), self.early.distribution());
        let (later, player) = (self.later.distribution(), self.player.distribution());
        let cells = |of: &Distribution| {
            let orders = [0.5, 0.9, 0.95].map(|order| of.quantile(order, 1.0));
            [vec![of.mean(1.0)], orders.to_vec()].concat()
        };
        let head = ["mean (ms)", "median (ms)", "p90 (ms)", "p95 (ms)"];
        let times = StudyTable::new("times", &head)
            .line("request to acknowledgement, all", cells(&all))
            .papers(&[Some(158.9), None, Some(409.6)], "Wira VI-A, fig. 11: FFCT of the baseline")
            .line("of connections with 0-RTT data", cells(&early))
            .papers(
                &[Some(169.0), None, Some(440.3)],
                "Wira VI-A, fig. 12a and b: 88 to 90 % of streams",
            )
            .line("of others", cells(&later))
            .papers(&[Some(84.4), None, Some(180.4)], "Wira VI-A, fig. 12c and d")
            .line("request to picture, by players", cells(&player));
        let line = |name: &str, colour, of: &Distribution| Curve {
            name: name.into(),
            colour,
            points: of.curve(1.0),
        };
        StudySection::new("first_frames", "First frames")
            .note("KB are 1,000 bytes. Wira's times end when the client has the frame, ours with its acknowledgement.")
            .table(sizes)
            .table(times)
            .plot(Plot {
                title: "Cumulative share of sessions by first-frame time".into(),
                x: "first-frame time (ms)".into(),
                y: YAxis::Share,
                lines: vec![line("acknowledged", 0, &all), line("by players", 1, &player)],
            })
            .plot(Plot {
                title: "Cumulative share of sessions by first-frame size".into(),
                x: "first-frame size (KB)".into(),
                y: YAxis::Share,
                lines: vec![line("sessions", 0, &bytes)],
            })
    }
}
