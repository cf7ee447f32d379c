//! The guard: turns a group off whose treated viewers fare worse than those of the hold-out at the same time, as soon as
//! that is beyond chance. Periods in which all of a group is free do not count: what they differ in is the hour first.
//!
//! It looks after every period and may stop at any of them, so its test has to hold at all times at once: the mixture
//! sequential probability ratio test of Robbins, with normal effects of the standard deviation [`EFFECT`], on the logarithm
//! of the ratio of two rates. Of groups in which treatment changes nothing it turns off fewer than one in a hundred, per
//! outcome and [`AGAIN`].

use std::collections::BTreeMap;
use std::path::Path;

use crate::geo::widening;
use crate::store;
use crate::{Error, about};

/// The chance of turning off a group that treatment does not change, per outcome.
const ALPHA: f64 = 0.01;
/// The size of effects that are found soonest: a fifth more or less.
const EFFECT: f64 = 0.2;
/// Of fewer sessions on either side nothing is concluded.
const FEWEST: i64 = 100;
/// Nor of fewer freezes on both sides together.
const FEWEST_FREEZES: i64 = 20;
/// How long a group stays off, in seconds; then it begins anew.
pub const OFF: u64 = 86_400;
/// After how long all counts begin anew, in seconds: what held a week ago may hold no more.
pub const AGAIN: u64 = 7 * 86_400;

/// The columns of a row of outcomes after its group and part, in the order of `sql/outcomes.sql`.
pub const OUTCOMES: usize = 10;
/// The columns of outcomes.
pub const COLUMNS: [&str; OUTCOMES + 2] = [
    "user_group",
    "part",
    "plays",
    "freezes_sum",
    "played_ms_sum",
    "frozen_ms_sum",
    "freezes_squares",
    "freezes_by_seconds",
    "seconds_squares",
    "first_frames",
    "first_frame_ms_sum",
    "first_frame_squares",
];

/// How viewers fared: sums in the order of [`COLUMNS`].
pub type Sums = [i64; OUTCOMES];

/// Sums of what is counted per session (`f`) and of what it is counted by (`t`), and of their products.
struct Rate {
    sessions: i64,
    f: f64,
    t: f64,
    ff: f64,
    ft: f64,
    tt: f64,
}

impl Rate {
    /// Freezes by seconds played. One more of each side keeps none from being a certainty.
    fn of_freezes(sums: &Sums) -> Self {
        let [plays, freezes, played_ms, _, ff, ft, tt, ..] = sums.map(|sum| sum as f64);
        let (f, t) = (freezes + 1.0, played_ms / 1e3);
        Self { sessions: sums[0], f, t, ff: ff + 1.0, ft: ft + t / plays.max(1.0), tt }
    }

    /// Milliseconds to the first frame by sessions.
    fn of_first_frames(sums: &Sums) -> Self {
        let [.., count, sum, squares] = sums.map(|sum| sum as f64);
        Self { sessions: sums[7], f: sum, t: count, ff: squares, ft: sum, tt: count }
    }

    /// The variance of the rate's logarithm.
    fn variance(&self) -> f64 {
        let rate = self.f / self.t;
        (self.ff - 2.0 * rate * self.ft + rate * rate * self.tt) / (self.f * self.f)
    }

    /// Whether this rate is higher than the other beyond chance.
    fn is_above(&self, other: &Self) -> bool {
        if self.sessions < FEWEST || other.sessions < FEWEST {
            return false;
        }
        let effect = (self.f / self.t).ln() - (other.f / other.t).ln();
        let variance = self.variance() + other.variance();
        let wider = variance + EFFECT * EFFECT;
        let evidence = 0.5 * (variance / wider).ln()
            + EFFECT * EFFECT * effect * effect / (2.0 * variance * wider);
        effect > 0.0 && variance > 0.0 && evidence >= -ALPHA.ln()
    }
}

/// What is known of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct State {
    /// Since when outcomes are counted, in Unix seconds.
    since: u64,
    /// Since when it is off; 0 if it is not.
    off: u64,
    treated: Sums,
    free: Sums,
}

impl State {
    /// In what the treated fare worse, beyond chance.
    fn harm(&self) -> Vec<Harm> {
        let [treated, free] = [&self.treated, &self.free];
        let count = treated[1].saturating_add(free[1]);
        let freezes =
            count >= FEWEST_FREEZES && Rate::of_freezes(treated).is_above(&Rate::of_freezes(free));
        let first = Rate::of_first_frames(treated).is_above(&Rate::of_first_frames(free));
        [(freezes, Harm::Freezes), (first, Harm::FirstFrame)]
            .into_iter()
            .filter_map(|(is_worse, harm)| is_worse.then_some(harm))
            .collect()
    }
}

/// What treatment makes worse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harm {
    /// Freezes, by the time played.
    Freezes,
    /// The time to the first frame.
    FirstFrame,
}

impl Harm {
    /// As reports name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Freezes => "freezes",
            Self::FirstFrame => "first_frame",
        }
    }
}

/// What the guard has counted of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Since when, in Unix seconds.
    pub since: u64,
    /// Of viewers who were treated.
    pub treated: Sums,
    /// Of the hold-out.
    pub holdout: Sums,
    /// Since when the group is off, in Unix seconds. Both sums are then those that it was turned off for.
    pub off: Option<u64>,
    /// What it was turned off for.
    pub harm: Vec<Harm>,
}

/// The guard of all groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    /// The end of what is counted, in Unix seconds.
    until: u64,
    groups: BTreeMap<String, State>,
}

impl Guard {
    /// What `path` says; a guard that knows nothing if there is no such file.
    ///
    /// # Errors
    /// One line: it cannot be read, or is not what [`Guard::write`] wrote.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = about(path.display());
        let text = match std::fs::read_to_string(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(|e| failed(&e))?,
        };
        Self::parse(&text).ok_or_else(|| failed(&"it is damaged"))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let until = lines.next()?.strip_prefix("until,")?.parse().ok()?;
        lines.next().filter(|header| *header == header_line())?;
        let groups = lines.map(|line| {
            let mut cells = line.splitn(3 + 2 * OUTCOMES, ',');
            let [since, off] = [cells.next()?.parse().ok()?, cells.next()?.parse().ok()?];
            let mut sums = [[0; OUTCOMES]; 2];
            for sum in sums.iter_mut().flatten() {
                *sum = cells.next()?.parse().ok()?;
            }
            let [treated, free] = sums;
            Some((cells.next()?.to_owned(), State { since, off, treated, free }))
        });
        Some(Self { until, groups: groups.collect::<Option<_>>()? })
    }

    /// Writes what it knows.
    ///
    /// # Errors
    /// One line: the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let mut text = format!("until,{}\n{}\n", self.until, header_line());
        for (name, State { since, off, treated, free }) in &self.groups {
            text += &format!("{since},{off},");
            for sum in treated.iter().chain(free) {
                text += &format!("{sum},");
            }
            text += name;
            text.push('\n');
        }
        store::replace_with(path, text.as_bytes())
    }

    /// Whether outcomes of a period that ends then are still to be counted.
    pub fn is_behind(&self, end: u64) -> bool {
        self.until < end
    }

    /// Counts outcomes in the period that is counted now: of those treated, and of the hold-out, for their group and the
    /// wider ones. While one of these is off nobody of the group is treated: that says nothing, and what was counted of
    /// a group that is off stays, because it says why.
    pub fn count(&mut self, name: &str, treated: &Sums, free: &Sums) {
        let is_off = |name: &str| self.groups.get(name).is_some_and(|state| state.off > 0);
        if widening(name).any(is_off) {
            return;
        }
        for name in widening(name) {
            let state = match self.groups.get_mut(name) {
                Some(state) => state,
                None => self.groups.entry(name.to_owned()).or_default(),
            };
            for (sums, more) in [(&mut state.treated, treated), (&mut state.free, free)] {
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
            }
        }
    }

    /// Judges all groups at the end of a period; whether each is off is known from then on.
    pub fn judge(&mut self, end: u64) {
        self.until = end;
        for state in self.groups.values_mut() {
            let began = if state.off > 0 { state.off + OFF } else { state.since + AGAIN };
            if state.since == 0 || end >= began {
                let counted = if state.since == 0 { *state } else { State::default() };
                *state = State { since: end, ..counted };
            }
            if state.off == 0 && !state.harm().is_empty() {
                state.off = end;
            }
        }
    }

    /// The groups that are off.
    pub fn off(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().filter(|(_, state)| state.off > 0).map(|(name, _)| name.as_str())
    }

    /// What is known of a group, if anything.
    pub fn counted(&self, name: &str) -> Option<Counted> {
        let state = self.groups.get(name)?;
        let off = Some(state.off).filter(|off| *off > 0);
        let harm = off.map_or_else(Vec::new, |_| state.harm());
        let State { since, treated, free: holdout, .. } = *state;
        Some(Counted { since, treated, holdout, off, harm })
    }
}

fn header_line() -> String {
    let side = |side: &str| COLUMNS[2..].iter().map(|name| format!("{side}_{name},")).collect();
    let [treated, free]: [String; 2] = ["treated", "free"].map(side);
    format!("since,off,{treated}{free}group")
}

#[cfg(test)]
mod tests;
