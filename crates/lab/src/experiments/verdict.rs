//! Verdicts on measured values against the numbers that a paper states.

use std::ops::AddAssign;

use super::claims::short;

/// Agreement of our value with the paper's, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CellVerdict {
    /// At most 10 % away, or inside the stated range.
    Within10,
    /// At most 25 % away.
    Within25,
    /// At least half and at most twice the stated number.
    Within2x,
    /// Further away, with the same sign.
    Beyond,
    /// Of the other sign: an increase where the paper states a decrease.
    Opposite,
}

/// Smallest magnitude that shares and factors refer to, by unit: deviations from numbers nearer to
/// zero are measured against it. A value within 10 % of the floor agrees with a stated zero, and
/// one within the floor is no worse than [`CellVerdict::Within2x`].
pub(crate) const FLOORS: [(&str, f64); 6] =
    [("ms", 2.0), ("1", 0.01), ("%", 1.0), ("Mbps", 0.1), ("Mbps/s", 1.0), ("ms/s", 10.0)];
/// Floor of other units.
const OTHER_FLOOR: f64 = 1.0;
/// Share of a deviation that a rounding error may add.
const ROUNDING: f64 = 1e-9;

impl CellVerdict {
    pub(crate) const ALL: [Self; 5] =
        [Self::Within10, Self::Within25, Self::Within2x, Self::Beyond, Self::Opposite];

    /// Judges a value against a number, or a range with both ends.
    pub(crate) fn of(ours: f64, (low, high): (f64, f64), unit: &str) -> Self {
        if (low..=high).contains(&ours) {
            return Self::Within10;
        }
        let paper = nearest(ours, (low, high));
        let floor = FLOORS.iter().find(|(known, _)| *known == unit);
        let floor = floor.map_or(OTHER_FLOOR, |(_, floor)| *floor);
        let away = (ours - paper).abs();
        let is_within = |share: f64| away <= share * paper.abs().max(floor) * (1.0 + ROUNDING);
        let ratio = ours / paper;
        let is_near_double = (0.5 - ROUNDING..=2.0 + ROUNDING).contains(&ratio);
        if is_within(0.1) {
            Self::Within10
        } else if is_within(0.25) {
            Self::Within25
        } else if ours * paper < 0.0 {
            Self::Opposite
        } else if is_near_double || away <= floor {
            Self::Within2x
        } else {
            Self::Beyond
        }
    }

    /// Words for tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Within10 => "within 10 %",
            Self::Within25 => "within 25 %",
            Self::Within2x => "within 2×",
            Self::Beyond => "beyond 2×",
            Self::Opposite => "opposite sign",
        }
    }
}

/// Returns our value ÷ the nearest stated one; `None` if that is zero, 1 inside a range.
pub(crate) fn ratio(ours: f64, paper: (f64, f64)) -> Option<f64> {
    let paper = nearest(ours, paper);
    (paper != 0.0).then(|| ours / paper)
}

fn nearest(ours: f64, (low, high): (f64, f64)) -> f64 {
    ours.max(low).min(high)
}

/// States the floors, for legends.
pub(crate) fn floors() -> String {
    let shown = |(unit, floor): &(&str, f64)| match *unit {
        "1" => format!("{} for shares and counts", short(*floor)),
        unit => format!("{} {unit}", short(*floor)),
    };
    FLOORS.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Numbers of cells by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VerdictCounts([usize; CellVerdict::ALL.len()]);

impl VerdictCounts {
    pub(crate) fn add(&mut self, verdict: CellVerdict) {
        self.0[verdict as usize] += 1;
    }

    pub(crate) fn all(&self) -> usize {
        self.0.iter().sum()
    }

    /// The numbers, from best to worst.
    pub(crate) fn values(&self) -> [usize; CellVerdict::ALL.len()] {
        self.0
    }

    /// `18 / 14 / 7 / 0 / 0`; a dash without cells.
    pub(crate) fn text(&self) -> String {
        match self.all() {
            0 => "–".to_owned(),
            _ => self.0.map(|count| count.to_string()).join(" / "),
        }
    }
}

impl FromIterator<CellVerdict> for VerdictCounts {
    fn from_iter<I: IntoIterator<Item = CellVerdict>>(all: I) -> Self {
        let mut counts = Self::default();
        all.into_iter().for_each(|verdict| counts.add(verdict));
        counts
    }
}

impl AddAssign for VerdictCounts {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

#[cfg(test)]
mod tests {
    use super::CellVerdict::{Beyond, Opposite, Within2x, Within10, Within25};
    use super::*;

    fn judged(ours: f64, paper: f64, unit: &str) -> CellVerdict {
        CellVerdict::of(ours, (paper, paper), unit)
    }

    #[test]
    fn verdicts_change_at_10_percent_25_percent_half_and_double() {
        for (ours, verdict) in [
            (100.0, Within10),
            (110.0, Within10),
            (90.0, Within10),
            (110.1, Within25),
            (125.0, Within25),
            (75.0, Within25),
            (125.1, Within2x),
            (200.0, Within2x),
            (50.0, Within2x),
            (200.1, Beyond),
            (49.9, Beyond),
            (0.0, Beyond),
            (-3.0, Opposite),
        ] {
            assert_eq!(judged(ours, 100.0, "ms"), verdict, "{ours}");
            assert_eq!(judged(-ours, -100.0, "ms"), verdict, "-{ours}");
        }
    }

    #[test]
    fn near_zero_the_floor_of_the_unit_counts() {
        for (ours, paper, unit, verdict) in [
            (0.001, 0.0, "1", Within10),
            (-0.001, 0.0, "1", Within10),
            (0.0025, 0.0, "1", Within25),
            (0.01, 0.0, "1", Within2x),
            (0.0101, 0.0, "1", Beyond),
            (0.2, 0.0, "ms", Within10),
            (2.1, 0.0, "ms", Beyond),
            (-0.0045, 0.0045, "1", Opposite),
            (0.0003, -0.0003, "1", Within10),
            (0.0, 0.0, "ms", Within10),
            (0.9, 0.0, "players", Within2x),
        ] {
            assert_eq!(judged(ours, paper, unit), verdict, "{ours} {paper} {unit}");
        }
    }

    #[test]
    fn a_range_is_judged_by_its_nearer_end() {
        let range = (0.75, 0.9);
        for (ours, verdict) in
            [(0.8, Within10), (0.99, Within10), (0.6, Within25), (0.4, Within2x), (0.3, Beyond)]
        {
            assert_eq!(CellVerdict::of(ours, range, "1"), verdict, "{ours}");
        }
        assert_eq!(CellVerdict::of(-0.1, range, "1"), Opposite);
        assert_eq!(ratio(1.8, range), Some(2.0));
        assert_eq!(ratio(0.8, range), Some(1.0));
        assert_eq!(ratio(1.0, (0.0, 0.0)), None);
    }

    #[test]
    fn counts_are_in_the_order_of_the_verdicts() {
        let mut counts: VerdictCounts = [Beyond, Within10, Beyond].into_iter().collect();
        counts += [Opposite].into_iter().collect();
        assert_eq!((counts.text().as_str(), counts.all()), ("1 / 0 / 0 / 2 / 1", 4));
        assert_eq!(VerdictCounts::default().text(), "–");
    }
}
