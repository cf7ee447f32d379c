//! What operators see of a decision: `report.json` beside the table, which edges show on their dashboard. It has the largest
//! groups and those that are off, so that it stays small however many groups there are; the rest is counted.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use groups::Table;
use groups::decide::GroupStats;
use serde::Serialize;

use crate::Error;
use crate::geo::widening;
use crate::guard::{Counted, Guard, Harm, Sums};
use crate::store::{Store, listed, replace_with};

/// The name of the file.
pub const FILE: &str = "report.json";
/// How many of the largest groups it has.
const LARGEST: usize = 200;
/// How many groups it has with those that are off. At this many points of the history that is 2 MB; an edge takes 4 MiB.
const MOST: usize = 1_000;
/// The decisions of the history, the newest ones.
const POINTS: usize = 96;

/// What a report is made from.
#[derive(Debug)]
pub struct Reporting<'a> {
    /// Where earlier decisions lie, and where it goes.
    pub store: &'a Store,
    /// What was decided.
    pub table: &'a Table,
    /// The groups of the table in their order, as they were seen.
    pub groups: &'a [GroupStats],
    /// How viewers fared.
    pub guard: &'a Guard,
    /// What sessions were chosen by.
    pub policy: String,
    /// The time between decisions.
    pub period: Duration,
    /// The time whose sessions count.
    pub window: Duration,
    /// How many those are.
    pub sessions: i64,
}

/// The file. Times are in Unix seconds, rates in bit/s.
#[derive(Debug, Serialize)]
struct Report<'a> {
    end: u64,
    period_s: u64,
    window_s: u64,
    lifetime_s: u64,
    policy: &'a str,
    groups: usize,
    decided: usize,
    off: usize,
    sessions: i64,
    /// Groups that are not among `shown`.
    left_out: usize,
    /// When each point of the histories was decided.
    ends: Vec<u64>,
    shown: Vec<Shown<'a>>,
}

/// A group.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    name: &'a str,
    sessions: u64,
    rate: Option<u64>,
    in_flight: Option<u64>,
    decided: Option<u64>,
    off: Option<Off<'a>>,
    /// Since when outcomes are counted.
    counted: Option<u64>,
    treated: Option<Outcomes>,
    holdout: Option<Outcomes>,
    /// At each of the report's `ends`; null where there was none.
    rates: Vec<Option<u64>>,
    /// 1 where it was off.
    offs: Vec<u8>,
}

/// Why a group is off. The outcomes of the group that `by` names are then those that it was turned off for.
#[derive(Debug, Serialize)]
struct Off<'a> {
    since: u64,
    /// The group that the guard turned off: this one, or a wider one that it is part of.
    by: &'a str,
    /// What its treated viewers had more of than the hold-out; nothing where that is not known.
    why: Vec<&'static str>,
    treated: Outcomes,
    holdout: Outcomes,
}

/// How viewers fared; null where too little is known to divide by.
#[derive(Debug, Serialize)]
struct Outcomes {
    sessions: i64,
    freezes_per_100_s: Option<f64>,
    frozen_s_per_100_s: Option<f64>,
    first_frames: i64,
    first_frame_ms: Option<f64>,
}

impl Outcomes {
    fn of(sums: &Sums) -> Self {
        let [plays, freezes, played_ms, frozen_ms, _, _, _, firsts, first_ms, _] = *sums;
        // Four digits behind the point are more than anybody reads.
        let ratio = |part: i64, whole: i64, factor: f64| {
            (whole > 0).then(|| (part as f64 / whole as f64 * factor * 1e4).round() / 1e4)
        };
        Self {
            sessions: plays,
            freezes_per_100_s: ratio(freezes, played_ms, 1e5),
            frozen_s_per_100_s: ratio(frozen_ms, played_ms, 100.0),
            first_frames: firsts,
            first_frame_ms: ratio(first_ms, firsts, 1.0),
        }
    }
}

/// A group's parameters over time: see [`Shown`].
#[derive(Clone, Debug)]
struct History {
    rates: Vec<Option<u64>>,
    offs: Vec<u8>,
}

impl Reporting<'_> {
    /// Writes the report of this decision.
    ///
    /// # Errors
    /// One line: earlier decisions cannot be listed, or it cannot be written.
    pub fn write(&self) -> Result<(), Error> {
        replace_with(&self.store.path(FILE), self.text()?.as_bytes())
    }

    fn text(&self) -> Result<String, Error> {
        let places = self.shown();
        let (ends, histories) = self.histories(&places)?;
        let shown =
            places.iter().zip(histories).map(|(place, history)| self.describe(*place, history));
        let (all, times) = (self.table.groups(), self.table.times());
        let report = Report {
            end: times.issued,
            period_s: self.period.as_secs(),
            window_s: self.window.as_secs(),
            lifetime_s: times.lifetime.as_secs(),
            policy: &self.policy,
            groups: all.len(),
            decided: all.iter().filter(|group| group.parameters.is_some()).count(),
            off: all.iter().filter(|group| group.is_off).count(),
            sessions: self.sessions,
            left_out: all.len() - places.len(),
            ends,
            shown: shown.collect(),
        };
        serde_json::to_string(&report).map_err(|e| Error::new(format!("{FILE}: {e}")))
    }

    /// The sessions of the group at a place, of the last window; of the one that its parameters are of if it had none.
    fn sessions(&self, place: usize) -> u64 {
        let seen = self.groups.get(place).and_then(|group| group.seen).map(|seen| seen.sessions);
        let kept = || Some(self.table.groups().get(place)?.parameters?.sessions);
        seen.or_else(kept).unwrap_or(0)
    }

    /// The places of the groups to show, the largest first.
    fn shown(&self) -> Vec<usize> {
        let all = self.table.groups();
        // Equals stay in the table's order.
        let by_sessions = |place: &usize| Reverse(self.sessions(*place));
        let mut places: Vec<usize> = (0..all.len()).collect();
        places.sort_by_cached_key(by_sessions);
        let mut rest = places.split_off(LARGEST.min(places.len()));
        rest.retain(|place| all[*place].is_off);
        // If there are too many, those count whom the guard itself has turned off: they say why the others are.
        rest.sort_by_cached_key(|place| self.turned_off(&all[*place].name).is_none());
        places.extend(rest.into_iter().take(MOST - LARGEST));
        places.sort_by_cached_key(by_sessions);
        places
    }

    /// What was counted of a group that the guard itself has turned off, and since when it is.
    fn turned_off(&self, name: &str) -> Option<(Counted, u64)> {
        let counted = self.guard.counted(name)?;
        let since = counted.off?;
        Some((counted, since))
    }

    fn describe(&self, place: usize, History { rates, offs }: History) -> Shown<'_> {
        let group = &self.table.groups()[place];
        let parameters = group.parameters.as_ref();
        let off = || {
            widening(&group.name).find_map(|by| {
                let (Counted { treated, holdout, harm, .. }, since) = self.turned_off(by)?;
                let why = harm.into_iter().map(Harm::name).collect();
                let [treated, holdout] = [&treated, &holdout].map(Outcomes::of);
                Some(Off { since, by, why, treated, holdout })
            })
        };
        let counted = self.guard.counted(&group.name);
        let counted = counted.as_ref();
        Shown {
            name: &group.name,
            sessions: self.sessions(place),
            rate: parameters.map(|parameters| parameters.rate.as_bps()),
            in_flight: parameters.map(|parameters| parameters.in_flight),
            decided: parameters.map(|parameters| parameters.decided),
            off: off().filter(|_| group.is_off),
            counted: counted.map(|counted| counted.since),
            treated: counted.map(|counted| Outcomes::of(&counted.treated)),
            holdout: counted.map(|counted| Outcomes::of(&counted.holdout)),
            rates,
            offs,
        }
    }

    /// The decisions before this one, oldest first.
    fn before(&self) -> Result<Vec<(u64, PathBuf)>, Error> {
        let end = |path: PathBuf| {
            let end = path.file_stem()?.to_str()?.parse().ok()?;
            Some((end, path)).filter(|(end, _)| *end < self.table.times().issued)
        };
        let files = listed(&self.store.path("decisions"))?;
        let mut files: Vec<_> = files.into_iter().filter_map(end).collect();
        files.sort();
        Ok(files.split_off(files.len().saturating_sub(POINTS - 1)))
    }

    /// When each point of the histories was decided, and the history of each of these groups. A decision that cannot be
    /// read says nothing of any.
    fn histories(&self, places: &[usize]) -> Result<(Vec<u64>, Vec<History>), Error> {
        let all = self.table.groups();
        let rows: HashMap<&str, usize> =
            places.iter().map(|place| &*all[*place].name).zip(0..).collect();
        let before = self.before()?;
        let (last, points) = (before.len(), before.len() + 1);
        let empty = History { rates: vec![None; points], offs: vec![0; points] };
        let mut histories = vec![empty; places.len()];
        for (point, (_, path)) in before.iter().enumerate() {
            let text = fs::read_to_string(path).unwrap_or_default();
            for (name, rate, off) in text.lines().skip(1).filter_map(of_history) {
                if let Some(row) = rows.get(name) {
                    histories[*row].rates[point] = rate;
                    histories[*row].offs[point] = off;
                }
            }
        }
        for (place, history) in places.iter().zip(&mut histories) {
            let group = &all[*place];
            history.rates[last] = group.parameters.map(|parameters| parameters.rate.as_bps());
            history.offs[last] = u8::from(group.is_off);
        }
        let ends = before.into_iter().map(|(end, _)| end).chain([self.table.times().issued]);
        Ok((ends.collect(), histories))
    }
}

/// Group, rate and whether it was off, of a line of `decisions/END.csv`.
fn of_history(line: &str) -> Option<(&str, Option<u64>, u8)> {
    let mut cells = line.splitn(5, ',');
    let rate: u64 = cells.next()?.parse().ok()?;
    let off = cells.nth(2)? == "1";
    Some((cells.next()?, Some(rate).filter(|rate| *rate > 0), u8::from(off)))
}

#[cfg(test)]
mod tests;
