//! The guard turns a group off if treated viewers fare significantly worse than the hold-out at the
//! same time. Control periods do not count, because they differ from treated periods in the
//! time of day.
//!
//! The guard evaluates after every period, so its test must hold at all times: Robbins' mixture
//! sequential probability ratio test on the log ratio of two rates, with normal effects of standard
//! deviation 0.2. If treatment changes nothing, it turns off less than one group in a hundred per
//! outcome and [`RESET_INTERVAL`].

use std::collections::BTreeMap;
use std::path::Path;

use crate::geo::with_ancestors;
use crate::{Error, store};

/// False-positive rate per outcome.
const ALPHA: f64 = 0.01;
/// Standard deviation of the log ratio under treatment. Effects of this size are detected soonest.
const EFFECT_SD: f64 = 0.2;
/// Minimum sessions in each arm.
const MIN_SESSIONS: i64 = 100;
/// Minimum freezes in both arms together.
const MIN_FREEZES: i64 = 20;
/// Time for which a group stays off, in seconds. Its counts then restart.
pub const OFF_DURATION: u64 = 86_400;
/// Time after which counts restart, in seconds, because old outcomes stop being representative.
pub const RESET_INTERVAL: u64 = 7 * 86_400;

/// Number of sums in a row of outcomes.
pub const OUTCOMES: usize = 10;
/// Columns of `sql/outcomes.sql`: group, arm and sums.
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

/// Outcomes of viewers: sums in the order of [`COLUMNS`].
pub type Sums = [i64; OUTCOMES];

/// Ratio of two sums over sessions, `f` and `t`, and the sums of their products.
struct Rate {
    sessions: i64,
    f: f64,
    t: f64,
    ff: f64,
    ft: f64,
    tt: f64,
}

impl Rate {
    /// Freezes per second played. One extra freeze keeps the variance positive without freezes.
    fn of_freezes(sums: &Sums) -> Self {
        let [plays, freezes, played_ms, _, ff, ft, tt, ..] = sums.map(|sum| sum as f64);
        let (f, t) = (freezes + 1.0, played_ms / 1e3);
        Self { sessions: sums[0], f, t, ff: ff + 1.0, ft: ft + t / plays.max(1.0), tt }
    }

    /// First-frame time in milliseconds per session.
    fn of_first_frames(sums: &Sums) -> Self {
        let [.., count, sum, squares] = sums.map(|sum| sum as f64);
        Self { sessions: sums[7], f: sum, t: count, ff: squares, ft: sum, tt: count }
    }

    /// Returns the variance of the rate's logarithm (delta method).
    fn variance(&self) -> f64 {
        let rate = self.f / self.t;
        (self.ff - 2.0 * rate * self.ft + rate * rate * self.tt) / (self.f * self.f)
    }

    /// Returns true if this rate is significantly higher than `other`.
    fn is_above(&self, other: &Self) -> bool {
        if self.sessions < MIN_SESSIONS || other.sessions < MIN_SESSIONS {
            return false;
        }
        let effect = (self.f / self.t).ln() - (other.f / other.t).ln();
        let variance = self.variance() + other.variance();
        let wider = variance + EFFECT_SD * EFFECT_SD;
        let evidence = 0.5 * (variance / wider).ln()
            + EFFECT_SD * EFFECT_SD * effect * effect / (2.0 * variance * wider);
        effect > 0.0 && variance > 0.0 && evidence >= -ALPHA.ln()
    }
}

/// State of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct State {
    /// Start of the counts, in Unix seconds.
    since: u64,
    /// Time at which it was turned off, in Unix seconds; 0 if it is on.
    off: u64,
    treated: Sums,
    holdout: Sums,
}

impl State {
    /// Returns the outcomes that are significantly worse under treatment.
    fn harm(&self) -> Vec<Harm> {
        let Self { treated, holdout, .. } = self;
        let count = treated[1].saturating_add(holdout[1]);
        let freezes =
            count >= MIN_FREEZES && Rate::of_freezes(treated).is_above(&Rate::of_freezes(holdout));
        let first = Rate::of_first_frames(treated).is_above(&Rate::of_first_frames(holdout));
        [(freezes, Harm::Freezes), (first, Harm::FirstFrame)]
            .into_iter()
            .filter_map(|(is_worse, harm)| is_worse.then_some(harm))
            .collect()
    }
}

/// An outcome that treatment worsens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harm {
    /// Freezes per time played.
    Freezes,
    /// First-frame time.
    FirstFrame,
}

impl Harm {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Freezes => "freezes",
            Self::FirstFrame => "first_frame",
        }
    }
}

/// Counts of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Start of the counts, in Unix seconds.
    pub since: u64,
    /// Outcomes of treated viewers.
    pub treated: Sums,
    /// Outcomes of the hold-out.
    pub holdout: Sums,
    /// Time at which the group was turned off, in Unix seconds. The sums then stay as they were.
    pub off: Option<u64>,
    /// Reasons for turning it off.
    pub harm: Vec<Harm>,
}

/// The guard of all groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    /// End of the last counted period, in Unix seconds.
    until: u64,
    groups: BTreeMap<String, State>,
}

impl Guard {
    /// Reads the state from a file; without the file, all groups are on and without counts.
    ///
    /// # Errors
    /// If the file cannot be read, or is damaged.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = match std::fs::read_to_string(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(Error::io(path))?,
        };
        Self::parse(&text).ok_or_else(|| Error::invalid(path, "the file is damaged"))
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
            let [treated, holdout] = sums;
            Some((cells.next()?.to_owned(), State { since, off, treated, holdout }))
        });
        Some(Self { until, groups: groups.collect::<Option<_>>()? })
    }

    /// Writes the state to a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let mut text = format!("until,{}\n{}\n", self.until, header_line());
        for (name, State { since, off, treated, holdout }) in &self.groups {
            text += &format!("{since},{off},");
            for sum in treated.iter().chain(holdout) {
                text += &format!("{sum},");
            }
            text += name;
            text.push('\n');
        }
        store::replace_with(path, text.as_bytes())
    }

    /// Returns true if the period that ends at `end` is not counted yet.
    pub fn is_due(&self, end: u64) -> bool {
        self.until < end
    }

    /// Adds outcomes of treated viewers and of the hold-out to a group and its ancestors. Does
    /// nothing if one of them is off: its viewers are not treated, and its counts stay as the
    /// reason.
    pub fn add(&mut self, name: &str, treated: &Sums, holdout: &Sums) {
        let is_off = |name: &str| self.groups.get(name).is_some_and(|state| state.off > 0);
        if with_ancestors(name).any(is_off) {
            return;
        }
        for name in with_ancestors(name) {
            let state = match self.groups.get_mut(name) {
                Some(state) => state,
                None => self.groups.entry(name.to_owned()).or_default(),
            };
            for (sums, more) in [(&mut state.treated, treated), (&mut state.holdout, holdout)] {
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
            }
        }
    }

    /// Evaluates all groups at the end of a period, and turns them on or off.
    pub fn evaluate(&mut self, end: u64) {
        self.until = end;
        for state in self.groups.values_mut() {
            let restart =
                if state.off > 0 { state.off + OFF_DURATION } else { state.since + RESET_INTERVAL };
            if state.since == 0 || end >= restart {
                let counts = if state.since == 0 { *state } else { State::default() };
                *state = State { since: end, ..counts };
            }
            if state.off == 0 && !state.harm().is_empty() {
                state.off = end;
            }
        }
    }

    /// Iterates over the groups that are off.
    pub fn off(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().filter(|(_, state)| state.off > 0).map(|(name, _)| name.as_str())
    }

    /// Returns the counts of a group; `None` without outcomes.
    pub fn counts(&self, name: &str) -> Option<Counts> {
        let state = self.groups.get(name)?;
        let off = Some(state.off).filter(|off| *off > 0);
        let harm = off.map_or_else(Vec::new, |_| state.harm());
        let State { since, treated, holdout, .. } = *state;
        Some(Counts { since, treated, holdout, off, harm })
    }
}

fn header_line() -> String {
    let side = |side: &str| COLUMNS[2..].iter().map(|name| format!("{side}_{name},")).collect();
    let [treated, holdout]: [String; 2] = ["treated", "free"].map(side);
    format!("since,off,{treated}{holdout}group")
}

#[cfg(test)]
mod tests;
