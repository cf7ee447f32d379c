//! Amount of data.

use std::collections::HashSet;

use records::Column;

use super::measure::Measure;
use super::row::StudyRow;
use super::section::{Cell, StudySection, StudyTable};
use super::sums::{Mean, Ratio};

/// Counts of records, viewers and traffic.
#[derive(Debug, Default)]
pub(super) struct Overview {
    sessions: u64,
    bytes: Mean,
    seconds: Mean,
    goodput: Ratio,
    cost: Ratio,
    streams: HashSet<u64>,
    viewers: HashSet<u64>,
    networks: HashSet<u64>,
    groups: HashSet<u64>,
    span: Option<(f64, f64)>,
}

impl Measure for Overview {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::started_ms,
            Column::duration_s,
            Column::bytes,
            Column::stream,
            Column::viewer,
            Column::prefix,
            Column::group,
            Column::replicas,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        self.sessions += 1;
        self.bytes.add(row[Column::bytes]);
        self.seconds.add(row[Column::duration_s]);
        self.goodput.add(row[Column::bytes], row[Column::duration_s]);
        self.cost.add(row[Column::replicas], row[Column::first_transmissions]);
        self.streams.extend(row.stream);
        self.viewers.extend(row.viewer);
        self.networks.extend(row.prefix);
        self.groups.extend(row.group);
        if let Some(at) = row[Column::started_ms] {
            let (first, last) = self.span.unwrap_or((at, at));
            self.span = Some((first.min(at), last.max(at)));
        }
    }

    fn report(&self) -> StudySection {
        let total = |mean: &Mean, times: f64| {
            let cell = mean.cell(times);
            Cell { value: cell.value.map(|mean| mean * cell.n as f64), ..cell }
        };
        let count = |number: u64| Cell {
            value: (number > 0).then_some(number as f64),
            n: self.sessions,
            paper: None,
        };
        let days = self.span.map(|(first, last)| (last - first) / 86_400_000.0);
        let table = StudyTable::of_figures()
            .figure("sessions", count(self.sessions))
            .figure("bytes of media (GB)", total(&self.bytes, 1e-9))
            .figure("hours of sessions", total(&self.seconds, 1.0 / 3_600.0))
            .figure(
                "days from the first session to the last",
                Cell { value: days, n: self.sessions, paper: None },
            )
            .figure("mean session (s)", self.seconds.cell(1.0))
            .paper(99.6, "AutoRec journal II-B: QUIC connection")
            .figure("media over time of sessions (Mbps)", self.goodput.cell(8e-6))
            .figure("streams", count(self.streams.len() as u64))
            .figure("viewers", count(self.viewers.len() as u64))
            .figure("networks (/24, /48)", count(self.networks.len() as u64))
            .figure("user groups", count(self.groups.len() as u64))
            .figure("replicas ÷ first transmissions (%)", self.cost.cell(100.0))
            .paper(0.47, "AutoRec journal VII-B, fig. 21b: α 200 ms, β and γ 50 %");
        StudySection::new("overview", "Sessions").table(table)
    }
}
