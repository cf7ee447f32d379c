//! Better- and worse-performed sessions of a user group by interval (AutoPlex, section 3.4, figures
//! 2 and 3).
//!
//! The sessions that ended in an interval are sorted by retransmission ratio, ascending, or by
//! goodput over smoothed round-trip time, descending. Sessions from the 5th to the 20th percentile
//! are the better-performed ones, those from the 75th to the 90th the worse-performed ones. A
//! band's value is its mean, which is followed from interval to interval.

use core::ops::Range;

use super::section::Cell;
use super::sums::Mean;

/// The paper's interval T (section 3.4), in seconds.
pub(super) const INTERVAL: f64 = 15.0 * 60.0;
/// Minimum sessions of a band for a mean. Reached with 17 sessions in an interval.
pub(super) const MIN_BAND_SESSIONS: u64 = 3;

/// One session, 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BandSession {
    pub group: u64,
    /// Interval of its end, counted from 1970.
    pub interval: u32,
    /// Retransmissions ÷ first transmissions. NaN if absent, like all values below.
    pub retransmission: f32,
    pub goodput_mbps: f32,
    pub rtt_ms: f32,
    pub in_flight: f32,
    pub window: f32,
}

/// Quantity of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quantity {
    Retransmission,
    Rtt,
    Goodput,
    GoodputPerRtt,
    InFlight,
    Window,
}

impl Quantity {
    /// All quantities, in the order of [`Means`].
    const ALL: [Self; 6] = [
        Self::Retransmission,
        Self::Rtt,
        Self::Goodput,
        Self::GoodputPerRtt,
        Self::InFlight,
        Self::Window,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Retransmission => "retransmission ratio (%)",
            Self::Rtt => "SRTT (ms)",
            Self::Goodput => "goodput (Mbps)",
            Self::GoodputPerRtt => "goodput ÷ SRTT (Mbps/s)",
            Self::InFlight => "max_inflight (bytes)",
            Self::Window => "max_cwnd (bytes)",
        }
    }

    /// Returns the value in the unit of its title; `None` if absent.
    pub(super) fn of(self, session: &BandSession) -> Option<f64> {
        let per_second = || f64::from(session.goodput_mbps) / (f64::from(session.rtt_ms) * 1e-3);
        let value = match self {
            Self::Retransmission => 100.0 * f64::from(session.retransmission),
            Self::Rtt => f64::from(session.rtt_ms),
            Self::Goodput => f64::from(session.goodput_mbps),
            Self::GoodputPerRtt => per_second(),
            Self::InFlight => f64::from(session.in_flight),
            Self::Window => f64::from(session.window),
        };
        // A round-trip time of 0 gives no ratio.
        Some(value).filter(|value| value.is_finite())
    }
}

/// Sort order of sessions, best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Retransmission,
    GoodputPerRtt,
}

impl Order {
    pub(super) const ALL: [Self; 2] = [Self::Retransmission, Self::GoodputPerRtt];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Retransmission => "retransmission",
            Self::GoodputPerRtt => "goodput ÷ SRTT",
        }
    }

    pub(super) fn quantity(self) -> Quantity {
        match self {
            Self::Retransmission => Quantity::Retransmission,
            Self::GoodputPerRtt => Quantity::GoodputPerRtt,
        }
    }

    /// Returns the sort key; lower is better.
    fn key(self, session: &BandSession) -> Option<f64> {
        let value = self.quantity().of(session)?;
        Some(match self {
            Self::Retransmission => value,
            Self::GoodputPerRtt => -value,
        })
    }
}

/// Band of the sorted sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Band {
    Better,
    Worse,
}

impl Band {
    pub(super) const ALL: [Self; 2] = [Self::Better, Self::Worse];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
        }
    }

    fn percentiles(self) -> Range<usize> {
        match self {
            Self::Better => 5..20,
            Self::Worse => 75..90,
        }
    }

    /// Returns the band: sessions with a rank (from 1) above the first percentile and at most the
    /// last.
    fn of(self, order: &[BandSession]) -> &[BandSession] {
        let Range { start, end } = self.percentiles();
        let place = |percentile| order.len() * percentile / 100;
        &order[place(start)..place(end)]
    }
}

/// Means over a band's sessions, by quantity.
#[derive(Clone, Copy, Debug, Default)]
struct Means([Cell; 6]);

impl Means {
    fn new(sessions: &[BandSession]) -> Self {
        Self(Quantity::ALL.map(|quantity| {
            let mut mean = Mean::default();
            sessions.iter().for_each(|session| mean.add(quantity.of(session)));
            mean.cell(1.0)
        }))
    }

    /// Returns the mean if it has enough sessions.
    fn get(&self, quantity: Quantity) -> Option<f64> {
        let cell = self.0[quantity as usize];
        cell.value.filter(|_| cell.n >= MIN_BAND_SESSIONS)
    }
}

/// Both bands of one interval.
#[derive(Clone, Copy, Debug)]
struct BandInterval {
    number: u32,
    better: Means,
    worse: Means,
}

impl BandInterval {
    fn band(&self, band: Band) -> &Means {
        match band {
            Band::Better => &self.better,
            Band::Worse => &self.worse,
        }
    }

    /// Hours since the start of another interval.
    fn hours_from(&self, first: u32) -> f64 {
        f64::from(self.number - first) * INTERVAL / 3_600.0
    }
}

/// A group's bands over time.
#[derive(Debug)]
pub(super) struct GroupBands {
    pub order: Order,
    /// Intervals with enough sessions, in order.
    intervals: Vec<BandInterval>,
    /// Intervals with any sessions.
    all: u64,
    /// Sessions with a sort key.
    sessions: u64,
}

impl GroupBands {
    pub(super) fn new(group: &[BandSession], order: Order) -> Self {
        let known = |session: &BandSession| Some((session.interval, order.key(session)?, *session));
        let mut sessions: Vec<_> = group.iter().filter_map(known).collect();
        // Ties keep the order of the records.
        sessions.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let (mut intervals, mut all) = (Vec::new(), 0);
        for chunk in sessions.chunk_by(|a, b| a.0 == b.0) {
            all += 1;
            let ordered: Vec<BandSession> = chunk.iter().map(|(_, _, session)| *session).collect();
            let bands = Band::ALL.map(|band| band.of(&ordered));
            if bands.iter().all(|band| band.len() as u64 >= MIN_BAND_SESSIONS) {
                let [better, worse] = bands.map(Means::new);
                intervals.push(BandInterval { number: chunk[0].0, better, worse });
            }
        }
        Self { order, intervals, all, sessions: sessions.len() as u64 }
    }

    /// Returns the mean of a quantity over intervals.
    pub(super) fn mean(&self, band: Band, quantity: Quantity) -> Cell {
        let mut mean = Mean::default();
        self.intervals.iter().for_each(|at| mean.add(at.band(band).get(quantity)));
        mean.cell(1.0)
    }

    /// Returns a quantity by hours since the first interval.
    pub(super) fn points(&self, band: Band, quantity: Quantity) -> Vec<(f64, f64)> {
        let first = self.intervals.first().map_or(0, |first| first.number);
        let point = |at: &BandInterval| Some((at.hours_from(first), at.band(band).get(quantity)?));
        self.intervals.iter().filter_map(point).collect()
    }

    /// Returns the pairs of consecutive intervals with enough sessions.
    fn neighbours(&self) -> impl Iterator<Item = [&BandInterval; 2]> {
        let pairs = self.intervals.iter().zip(self.intervals.iter().skip(1));
        pairs
            .filter(|(before, after)| after.number - before.number == 1)
            .map(|(before, after)| [before, after])
    }

    /// Absolute changes of a quantity between consecutive intervals, in per cent of the earlier
    /// value.
    fn changes(
        &self,
        band: Band,
        quantity: Quantity,
    ) -> impl Iterator<Item = ([&BandInterval; 2], f64)> {
        self.neighbours().filter_map(move |pair| {
            let [before, after] = pair.map(|at| at.band(band).get(quantity));
            let change = 100.0 * (after? / before? - 1.0).abs();
            // No relative change from zero.
            change.is_finite().then_some((pair, change))
        })
    }

    /// Returns the mean change of a quantity.
    pub(super) fn change(&self, band: Band, quantity: Quantity) -> Cell {
        let mut mean = Mean::default();
        self.changes(band, quantity).for_each(|(_, change)| mean.add(Some(change)));
        mean.cell(1.0)
    }

    /// Returns the cumulative change by hours since the first interval. The slope is the rate of
    /// change.
    pub(super) fn cumulative(&self, band: Band, quantity: Quantity) -> Vec<(f64, f64)> {
        let first = self.intervals.first().map_or(0, |first| first.number);
        let mut points = Vec::new();
        let mut sum = 0.0;
        for ([before, after], change) in self.changes(band, quantity) {
            if points.is_empty() {
                points.push((before.hours_from(first), 0.0));
            }
            sum += change;
            points.push((after.hours_from(first), sum));
        }
        points
    }

    /// Returns the number of intervals, of skipped intervals, of consecutive pairs, and of sessions
    /// in a band.
    pub(super) fn counts(&self) -> [Cell; 4] {
        let kept = self.intervals.len() as u64;
        let mut size = Mean::default();
        for at in &self.intervals {
            size.add(Some(at.better.0[self.order.quantity() as usize].n as f64));
        }
        let cell = |value: f64| Cell { value: Some(value), n: self.sessions, paper: None };
        [
            cell(self.all as f64),
            cell((self.all - kept) as f64),
            cell(self.neighbours().count() as f64),
            Cell { n: self.sessions, ..size.cell(1.0) },
        ]
    }
}
