//! Performance of the largest user groups (AutoPlex, section 3.3, figure 1), the gap between better
//! and worse sessions of the largest one, and its stability (section 3.4, figures 2 and 3).
//! AutoPlex relies on better sessions that change little between intervals.

use std::collections::HashMap;

use super::bands::{Band, BandSession, GroupBands, INTERVAL, MIN_BAND_SESSIONS, Order, Quantity};
use records::Column;

use super::measure::Measure;
use super::row::StudyRow;
use super::section::{Cell, StudySection, StudyTable};
use super::sums::Values;
use crate::plot::{Curve, Plot, YAxis};

/// Minimum duration in seconds for a session to represent its path (as in `autoplex measure`).
const MIN_DURATION_S: f64 = 10.0;
/// Minimum packets. With fewer, even the worst path may lose none.
const MIN_PACKETS: f64 = 500.0;
/// The groups of figure 1.
const LARGEST: [&str; 3] = ["UG 1", "UG 2", "UG 3"];
/// Maximum number of group names kept, and maximum length of a name: names come from untrusted
/// records.
const MAX_NAMES: usize = 20_000;
const MAX_NAME_LEN: usize = 48;

/// All sessions that represent their paths.
#[derive(Debug, Default)]
pub(super) struct Performance {
    sessions: Vec<BandSession>,
    /// Sessions with a group, including excluded ones.
    with_group: u64,
    names: HashMap<u64, Box<str>>,
}

impl Performance {
    /// Returns the largest groups with their sessions, largest first. Ties are broken by the larger
    /// number.
    fn largest(&self) -> Vec<(u64, Vec<BandSession>)> {
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for session in &self.sessions {
            *counts.entry(session.group).or_default() += 1;
        }
        let mut order: Vec<_> = counts.into_iter().map(|(group, count)| (count, group)).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        let of = |group: u64| self.sessions.iter().filter(move |session| session.group == group);
        let largest = order.iter().take(LARGEST.len());
        largest.map(|(_, group)| (*group, of(*group).copied().collect())).collect()
    }

    fn name(&self, group: u64) -> String {
        self.names
            .get(&group)
            .map_or_else(|| format!("number {group:016x}"), |name| name.to_string())
    }
}

/// Sanitises a name for terminals: printable ASCII only.
fn shown(name: &str) -> Box<str> {
    let is_plain = |c: char| c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ';
    name.chars().take(MAX_NAME_LEN).map(|c| if is_plain(c) { c } else { '?' }).collect()
}

impl Measure for Performance {
    fn columns(&self) -> &'static [Column] {
        &[
            Column::group,
            Column::started_ms,
            Column::duration_s,
            Column::first_transmissions,
            Column::retransmissions,
            Column::goodput_mbps,
            Column::rtt_ms,
            Column::max_in_flight,
            Column::max_window,
        ]
    }

    fn add(&mut self, row: &StudyRow) {
        let Some(group) = row.group else { return };
        self.with_group += 1;
        let (Some(started), Some(duration), Some(packets)) =
            (row[Column::started_ms], row[Column::duration_s], row[Column::first_transmissions])
        else {
            return;
        };
        if duration < MIN_DURATION_S || packets < MIN_PACKETS {
            return;
        }
        let float = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
        self.sessions.push(BandSession {
            group,
            interval: ((started * 1e-3 + duration) / INTERVAL) as u32,
            retransmission: float(row[Column::retransmissions].map(|sent| sent / packets)),
            goodput_mbps: float(row[Column::goodput_mbps]),
            rtt_ms: float(row[Column::rtt_ms]),
            in_flight: float(row[Column::max_in_flight]),
            window: float(row[Column::max_window]),
        });
        if self.names.len() < MAX_NAMES && !self.names.contains_key(&group) {
            self.names.extend(row.group_name.as_deref().map(|name| (group, shown(name))));
        }
    }

    fn report(&self) -> StudySection {
        let largest = self.largest();
        let sessions = largest.first().map_or(&[][..], |(_, sessions)| sessions);
        let courses = Order::ALL.map(|order| GroupBands::new(sessions, order));
        let n = self.with_group;
        let share = (n > 0).then(|| 100.0 * self.sessions.len() as f64 / n as f64);
        let figures = StudyTable::of_figures().figure(
            "sessions of 10 s and 500 packets or more, of those with a group (%)",
            Cell { value: share, n, paper: None },
        );
        let mut section = StudySection::new("performance", "Performance within user groups")
            .note(
                "Only sessions of at least 10 s and 500 packets represent their paths. UG 1 is \
                 the group with most of them. Retransmission ratio: retransmissions ÷ first \
                 transmissions.",
            )
            .note(
                "Better-performed sessions are those from the 5th to the 20th percentile of the \
                 sessions of UG 1 that ended in one interval of 15 min, in order of their \
                 retransmission ratio or of descending goodput ÷ SRTT; worse-performed ones are \
                 those from the 75th to the 90th. A change is the absolute difference of a band's \
                 mean between consecutive intervals, relative to the earlier one. Means of few \
                 sessions also change by chance, the more so the more the sessions differ.",
            )
            .table(figures);
        section = with_groups(section, self, &largest);
        section = with_bands(section, &courses);
        with_changes(section, &courses)
    }
}

/// Figure 1.
fn with_groups(
    section: StudySection,
    all: &Performance,
    largest: &[(u64, Vec<BandSession>)],
) -> StudySection {
    let mut table =
        StudyTable::new("largest", &["mean", "median", "75th percentile", "90th percentile"]);
    let mut plots = Vec::new();
    for quantity in [Quantity::Retransmission, Quantity::Rtt, Quantity::Goodput] {
        let mut lines = Vec::new();
        for (colour, place) in LARGEST.iter().enumerate() {
            let mut values = Values::default();
            let mut label = format!("{}, {place}", quantity.title());
            if let Some((group, sessions)) = largest.get(colour) {
                label = format!("{label}: {}", all.name(*group));
                sessions.iter().for_each(|session| values.add(quantity.of(session)));
            }
            let values = values.distribution();
            let quantiles = [0.5, 0.75, 0.9].map(|order| values.quantile(order, 1.0));
            let cells = [values.mean(1.0)].into_iter().chain(quantiles).collect();
            table = table.line(label, cells).papers(&[], "AutoPlex 3.3, fig. 1");
            lines.push(Curve { name: (*place).into(), colour, points: values.curve(1.0) });
        }
        plots.push(Plot {
            title: format!("Cumulative share of sessions by {}", quantity.title()),
            x: quantity.title().into(),
            y: YAxis::Share,
            lines,
        });
    }
    plots.into_iter().fold(section.table(table), StudySection::plot)
}

/// Returns both bands of each sort order with their names and colours.
fn lines(courses: &[GroupBands; 2]) -> impl Iterator<Item = (&GroupBands, Band, String, usize)> {
    let all = courses.iter().flat_map(|course| Band::ALL.map(|band| (course, band)));
    all.zip(0..).map(|((course, band), colour)| {
        (course, band, format!("{} by {}", band.title(), course.order.title()), colour)
    })
}

/// Figure 2.
fn with_bands(section: StudySection, courses: &[GroupBands; 2]) -> StudySection {
    const QUANTITIES: [Quantity; 2] = [Quantity::Retransmission, Quantity::GoodputPerRtt];
    let mut counts = StudyTable::new("intervals", &Order::ALL.map(Order::title));
    counts.counted = "sessions of UG 1";
    let [first, second] = courses.each_ref().map(GroupBands::counts);
    let labels = [
        "intervals of 15 min with sessions".to_owned(),
        format!("skipped: fewer than {MIN_BAND_SESSIONS} sessions in a band"),
        "pairs of neighbours".to_owned(),
        "sessions of a band, mean".to_owned(),
    ];
    for (label, (first, second)) in labels.into_iter().zip(first.into_iter().zip(second)) {
        counts = counts.line(label, vec![first, second]);
    }
    let mut table = StudyTable::new("bands", &QUANTITIES.map(Quantity::title));
    table.counted = "intervals of UG 1";
    for (course, band, label, _) in lines(courses) {
        let cells = QUANTITIES.map(|quantity| course.mean(band, quantity));
        let papers = match (course.order, band) {
            (Order::Retransmission, Band::Better) => [Some(0.03), None],
            (Order::Retransmission, Band::Worse) => [Some(2.9), None],
            (Order::GoodputPerRtt, Band::Better) => [None, Some(872.0)],
            (Order::GoodputPerRtt, Band::Worse) => [None, Some(53.0)],
        };
        table = table.line(label, cells.to_vec()).papers(&papers, "AutoPlex 3.4, fig. 2");
    }
    let plots = courses.iter().map(|course| {
        let quantity = course.order.quantity();
        let line = |(band, colour): (Band, usize)| Curve {
            name: band.title().into(),
            colour,
            points: course.points(band, quantity),
        };
        Plot {
            title: format!("UG 1: {}, mean of better and worse sessions", quantity.title()),
            x: "hours".into(),
            y: YAxis::Number,
            lines: Band::ALL.into_iter().zip(0..).map(line).collect(),
        }
    });
    plots.fold(section.table(counts).table(table), StudySection::plot)
}

/// Figure 3.
fn with_changes(section: StudySection, courses: &[GroupBands; 2]) -> StudySection {
    const QUANTITIES: [Quantity; 3] = [Quantity::Goodput, Quantity::InFlight, Quantity::Window];
    let head = ["change of goodput", "of max_inflight", "of max_cwnd"];
    let mut table = StudyTable::new("changes", &head);
    table.counted = "pairs of intervals of UG 1";
    for (course, band, label, _) in lines(courses) {
        let cells = QUANTITIES.map(|quantity| course.change(band, quantity));
        table = table.line(format!("{label} (%)"), cells.to_vec());
    }
    for course in courses {
        let cells = QUANTITIES.map(|quantity| {
            let [better, worse] = Band::ALL.map(|band| course.change(band, quantity));
            let by = better.value.zip(worse.value).filter(|(better, _)| *better > 0.0);
            let n = better.n.min(worse.n);
            Cell { value: by.map(|(better, worse)| worse / better), n, paper: None }
        });
        // Better sessions' goodput changes by 25 to 30 % of the worse sessions' change.
        let source = "AutoPlex 3.4, fig. 3: 3.3 to 4, 1.3 to 3.0, 3.0 to 5.1";
        let label = format!("worse ÷ better by {}", course.order.title());
        table = table.line(label, cells.to_vec()).papers(&[], source);
    }
    let plots = QUANTITIES.map(|quantity| {
        let line = |(course, band, name, colour): (&GroupBands, Band, String, usize)| Curve {
            name,
            colour,
            points: course.cumulative(band, quantity),
        };
        Plot {
            title: format!("UG 1: cumulative change (%), {}", quantity.title()),
            x: "hours".into(),
            y: YAxis::Number,
            lines: lines(courses).map(line).collect(),
        }
    });
    plots.into_iter().fold(section.table(table), StudySection::plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_up_to_a_bound() {
        let mut all = Performance::default();
        for group in 0..MAX_NAMES as u64 + 5 {
            let mut row = StudyRow::default();
            row.group = Some(group);
            row.group_name = Some("x".repeat(1_000));
            row[Column::started_ms] = Some(0.0);
            row[Column::duration_s] = Some(60.0);
            row[Column::first_transmissions] = Some(1_000.0);
            all.add(&row);
        }
        assert_eq!((all.names.len(), all.sessions.len()), (MAX_NAMES, MAX_NAMES + 5));
        assert_eq!(all.name(7), "x".repeat(MAX_NAME_LEN));
        assert_eq!(all.name(MAX_NAMES as u64 + 1), "number 0000000000004e21");
    }

    #[test]
    fn a_session_takes_32_bytes() {
        assert_eq!(size_of::<BandSession>(), 32);
    }
}
