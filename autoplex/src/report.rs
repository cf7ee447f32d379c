//! The report for operators: `report.json` beside the table, which edges show on their dashboard.
//!
//! It lists the largest groups and groups that are off, so that its size is bounded. The others are
//! counted.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use groups::Table;
use groups::decide::GroupStats;
use serde::Serialize;

use crate::Error;
use crate::geo::with_ancestors;
use crate::guard::{Counts, Guard, Harm, Sums};
use crate::store::{Store, list_directory, replace_with};

/// File name.
pub const FILE: &str = "report.json";
/// Number of largest groups that are listed.
const LARGEST_GROUPS: usize = 200;
/// Maximum listed groups, including groups that are off. With the whole history, the file then has
/// 2 MB; edges accept 4 MiB.
const MAX_GROUPS: usize = 1_000;
/// Length of the history, in decisions.
const MAX_HISTORY: usize = 96;

/// Input of a report.
#[derive(Debug)]
pub struct ReportWriter<'a> {
    /// Directory of the report and of earlier decisions.
    pub store: &'a Store,
    /// The decision.
    pub table: &'a Table,
    /// Statistics of the table's groups, in the same order.
    pub groups: &'a [GroupStats],
    /// The guard, with the outcomes of viewers.
    pub guard: &'a Guard,
    /// Name of the policy.
    pub policy: String,
    /// Time between decisions.
    pub period: Duration,
    /// Time span of the sessions.
    pub window: Duration,
    /// Number of candidate sessions.
    pub sessions: i64,
}

/// Content of the file. Times are in Unix seconds, rates in bit/s.
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
    /// Number of groups that are not in `shown`.
    left_out: usize,
    /// Times of the decisions in the histories.
    ends: Vec<u64>,
    shown: Vec<ListedGroup<'a>>,
}

/// A listed group.
#[derive(Debug, Serialize)]
struct ListedGroup<'a> {
    name: &'a str,
    sessions: u64,
    rate: Option<u64>,
    in_flight: Option<u64>,
    decided: Option<u64>,
    off: Option<Off<'a>>,
    /// Start of the outcome counts.
    counted: Option<u64>,
    treated: Option<Outcomes>,
    holdout: Option<Outcomes>,
    /// Rate in each decision of `ends`; null without one.
    rates: Vec<Option<u64>>,
    /// 1 if the group was off in a decision of `ends`.
    offs: Vec<u8>,
}

/// The reason for which a group is off, with the outcomes that caused it.
#[derive(Debug, Serialize)]
struct Off<'a> {
    since: u64,
    /// The group that the guard turned off: this one, or an ancestor.
    by: &'a str,
    /// Names of the outcomes that treatment worsened; may be empty.
    why: Vec<&'static str>,
    treated: Outcomes,
    holdout: Outcomes,
}

/// Outcomes of viewers. Ratios with a zero denominator are null.
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
        // Rounded to four decimals, to keep the file small.
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

/// History of a group: see [`ListedGroup`].
#[derive(Clone, Debug)]
struct History {
    rates: Vec<Option<u64>>,
    offs: Vec<u8>,
}

impl ReportWriter<'_> {
    /// Writes the report.
    ///
    /// # Errors
    /// If earlier decisions cannot be listed, or the file cannot be written.
    pub fn write(&self) -> Result<(), Error> {
        replace_with(&self.store.path(FILE), self.text()?.as_bytes())
    }

    fn text(&self) -> Result<String, Error> {
        let indices = self.largest_and_off();
        let (ends, histories) = self.histories(&indices)?;
        let shown =
            indices.iter().zip(histories).map(|(index, history)| self.describe(*index, history));
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
            left_out: all.len() - indices.len(),
            ends,
            shown: shown.collect(),
        };
        Ok(serde_json::to_string(&report)?)
    }

    /// Returns the sessions of a group in the window; without any, those behind its parameters.
    fn sessions(&self, index: usize) -> u64 {
        let seen = self.groups.get(index).and_then(|group| group.seen).map(|seen| seen.sessions);
        let kept = || Some(self.table.groups().get(index)?.parameters?.sessions);
        seen.or_else(kept).unwrap_or(0)
    }

    /// Returns the indices of the listed groups, largest first.
    fn largest_and_off(&self) -> Vec<usize> {
        let all = self.table.groups();
        // The sort is stable: ties stay in the table's order.
        let by_sessions = |index: &usize| Reverse(self.sessions(*index));
        let mut indices: Vec<usize> = (0..all.len()).collect();
        indices.sort_by_cached_key(by_sessions);
        let mut rest = indices.split_off(LARGEST_GROUPS.min(indices.len()));
        rest.retain(|index| all[*index].is_off);
        // Groups that the guard itself turned off come first: they explain their descendants.
        rest.sort_by_cached_key(|index| self.turned_off(&all[*index].name).is_none());
        indices.extend(rest.into_iter().take(MAX_GROUPS - LARGEST_GROUPS));
        indices.sort_by_cached_key(by_sessions);
        indices
    }

    /// Returns the counts of a group that the guard itself turned off, and the time.
    fn turned_off(&self, name: &str) -> Option<(Counts, u64)> {
        let counts = self.guard.counts(name)?;
        let since = counts.off?;
        Some((counts, since))
    }

    fn describe(&self, index: usize, History { rates, offs }: History) -> ListedGroup<'_> {
        let group = &self.table.groups()[index];
        let parameters = group.parameters.as_ref();
        let off = || {
            with_ancestors(&group.name).find_map(|by| {
                let (Counts { treated, holdout, harm, .. }, since) = self.turned_off(by)?;
                let why = harm.into_iter().map(Harm::name).collect();
                let [treated, holdout] = [&treated, &holdout].map(Outcomes::of);
                Some(Off { since, by, why, treated, holdout })
            })
        };
        let counts = self.guard.counts(&group.name);
        let counts = counts.as_ref();
        ListedGroup {
            name: &group.name,
            sessions: self.sessions(index),
            rate: parameters.map(|parameters| parameters.rate.as_bps()),
            in_flight: parameters.map(|parameters| parameters.in_flight),
            decided: parameters.map(|parameters| parameters.decided),
            off: off().filter(|_| group.is_off),
            counted: counts.map(|counts| counts.since),
            treated: counts.map(|counts| Outcomes::of(&counts.treated)),
            holdout: counts.map(|counts| Outcomes::of(&counts.holdout)),
            rates,
            offs,
        }
    }

    /// Lists the previous decisions, oldest first.
    fn previous(&self) -> Result<Vec<(u64, PathBuf)>, Error> {
        let end = |path: PathBuf| {
            let end = path.file_stem()?.to_str()?.parse().ok()?;
            Some((end, path)).filter(|(end, _)| *end < self.table.times().issued)
        };
        let files = list_directory(&self.store.path("decisions"))?;
        let mut files: Vec<_> = files.into_iter().filter_map(end).collect();
        files.sort();
        Ok(files.split_off(files.len().saturating_sub(MAX_HISTORY - 1)))
    }

    /// Returns the times of the decisions, and the history of each group. Unreadable decisions
    /// count as empty.
    fn histories(&self, indices: &[usize]) -> Result<(Vec<u64>, Vec<History>), Error> {
        let all = self.table.groups();
        let rows: HashMap<&str, usize> =
            indices.iter().map(|index| &*all[*index].name).zip(0..).collect();
        let previous = self.previous()?;
        let (last, points) = (previous.len(), previous.len() + 1);
        let empty = History { rates: vec![None; points], offs: vec![0; points] };
        let mut histories = vec![empty; indices.len()];
        for (point, (_, path)) in previous.iter().enumerate() {
            let text = fs::read_to_string(path).unwrap_or_default();
            for (name, rate, off) in text.lines().skip(1).filter_map(parse_decision) {
                if let Some(row) = rows.get(name) {
                    histories[*row].rates[point] = rate;
                    histories[*row].offs[point] = off;
                }
            }
        }
        for (index, history) in indices.iter().zip(&mut histories) {
            let group = &all[*index];
            history.rates[last] = group.parameters.map(|parameters| parameters.rate.as_bps());
            history.offs[last] = u8::from(group.is_off);
        }
        let ends = previous.into_iter().map(|(end, _)| end).chain([self.table.times().issued]);
        Ok((ends.collect(), histories))
    }
}

/// Parses a line of `decisions/END.csv`: the group, its rate, and 1 if it was off.
fn parse_decision(line: &str) -> Option<(&str, Option<u64>, u8)> {
    let mut cells = line.splitn(5, ',');
    let rate: u64 = cells.next()?.parse().ok()?;
    let off = cells.nth(2)? == "1";
    Some((cells.next()?, Some(rate).filter(|rate| *rate > 0), u8::from(off)))
}

#[cfg(test)]
mod tests;
