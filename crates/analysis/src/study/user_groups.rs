//! Number of user groups by rule, and the share of sessions in the largest ones (AutoPlex, section
//! 3.2, table 1).
//!
//! A group's name locates its viewers: country, AS, state and city, separated by `/`
//! (`BR/AS28573/SP/Campinas`). Each prefix of a name is a wider group, so a rule is the number of
//! parts. A shorter name, of an incompletely located viewer, belongs to no group of the longer
//! rules.

use std::collections::HashMap;

use records::Column;

use super::measure::Measure;
use super::row::{StudyRow, number_of};
use super::section::{Cell, StudySection, StudyTable};
use crate::plot::{Curve, Plot, YAxis};

/// Rules by the number of name parts: 1, 2, 3 and 4.
const RULES: [Rule; 4] = [
    Rule { label: "country, or a name of one part", short: "country", paper: None },
    Rule {
        label: "ASN (two parts of the name)",
        short: "ASN",
        paper: Some([8_329.0, 30.9, 35.7, 38.3]),
    },
    Rule {
        label: "state-ASN (three)",
        short: "state-ASN",
        paper: Some([10_326.0, 16.7, 27.7, 32.9]),
    },
    Rule {
        label: "state-city-ASN (four)",
        short: "state-city-ASN",
        paper: Some([18_620.0, 11.8, 22.2, 27.3]),
    },
];
/// Numbers of largest groups in the paper.
const TOP: [usize; 3] = [10, 50, 100];
/// Maximum number of groups per rule, 14 times as many as the paper has. Names come from records,
/// and their author could give each session its own group.
const MAX_GROUPS: usize = 1 << 18;
/// Number of largest groups in the plot.
const PLOTTED_GROUPS: usize = 200;

/// A rule, and the paper's values for it.
struct Rule {
    label: &'static str,
    short: &'static str,
    /// Groups, and per cent of sessions in the largest 10, 50 and 100.
    paper: Option<[f64; 4]>,
}

/// All groups, by rule.
#[derive(Debug, Default)]
pub(super) struct UserGroups([GroupSums; 4]);

/// Groups of one rule.
#[derive(Debug, Default)]
struct GroupSums {
    /// Sessions of each group.
    sessions: HashMap<u64, u32>,
    /// Sessions of groups beyond the maximum.
    beyond: u64,
}

impl GroupSums {
    fn add(&mut self, group: u64, most: usize) {
        let room = self.sessions.len() < most;
        match self.sessions.get_mut(&group) {
            Some(sessions) => *sessions = sessions.saturating_add(1),
            None if room => _ = self.sessions.insert(group, 1),
            None => self.beyond += 1,
        }
    }

    /// Returns the sessions per group, largest first.
    fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.sessions.values().copied().map(u64::from).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    }

    /// Returns the number of sessions with a group by this rule.
    fn all(&self) -> u64 {
        self.sessions.values().copied().map(u64::from).sum::<u64>() + self.beyond
    }

    /// Returns the number of groups, and per cent of sessions in the largest ones.
    fn cells(&self) -> Vec<Cell> {
        let (sizes, n) = (self.sizes(), self.all());
        let cell = |value: f64| Cell { value: (n > 0).then_some(value), n, paper: None };
        let share = |top: usize| sizes.iter().take(top).sum::<u64>() as f64 / n as f64;
        let shares = TOP.iter().map(|top| cell(100.0 * share(*top)));
        [cell(sizes.len() as f64)].into_iter().chain(shares).collect()
    }

    /// Returns the cumulative share of sessions by group rank.
    fn curve(&self) -> Vec<(f64, f64)> {
        let (sizes, n) = (self.sizes(), self.all());
        let mut seen = 0;
        let sizes = sizes.into_iter().take(PLOTTED_GROUPS).zip(1_u32..);
        let shares = sizes.map(|(sessions, top)| {
            seen += sessions;
            (f64::from(top), seen as f64 / n as f64)
        });
        // Empty without sessions. Starts at the origin, because one point is no line.
        [(0.0, 0.0)].into_iter().filter(|_| n > 0).chain(shares).collect()
    }
}

/// Returns the groups of a name, widest first. An empty part ends the name.
fn levels(name: &str) -> impl Iterator<Item = u64> {
    let ends = name.match_indices('/').map(|(end, _)| end).chain([name.len()]);
    let known = ends.scan(0, |begin, end| {
        let is_known = end > *begin;
        *begin = end + 1;
        is_known.then_some(end)
    });
    known.map(|end| number_of(&name[..end]))
}

impl Measure for UserGroups {
    fn columns(&self) -> &'static [Column] {
        &[Column::group]
    }

    fn add(&mut self, row: &StudyRow) {
        let name = row.group_name.as_deref().unwrap_or_default();
        for (groups, group) in self.0.iter_mut().zip(levels(name)) {
            groups.add(group, MAX_GROUPS);
        }
    }

    fn report(&self) -> StudySection {
        let mut table =
            StudyTable::new("rules", &["groups", "top 10 (%)", "top 50 (%)", "top 100 (%)"]);
        let mut lines = Vec::new();
        let rules = RULES.iter().zip(&self.0).enumerate().rev();
        for (colour, (rule, groups)) in rules {
            table = table.line(rule.label, groups.cells());
            if let Some(values) = rule.paper {
                table = table.papers(&values.map(Some), "AutoPlex 3.2, table 1: Brazil");
            }
            lines.push(Curve { name: rule.short.into(), colour, points: groups.curve() });
        }
        let section = StudySection::new("user_groups", "User groups").note(
            "A user group's name has up to four parts: country, AS, state, city. Each prefix is a \
             wider group. A session with a shorter name belongs to no group of the finer rules \
             and does not count for them; a name without separators has one part. Shares are of \
             the sessions that count for the rule.",
        );
        let beyond: u64 = self.0.iter().map(|groups| groups.beyond).max().unwrap_or(0);
        let section = match beyond {
            0 => section,
            _ => section.note(format!(
                "{beyond} sessions are in groups beyond the first {MAX_GROUPS}, which are not \
                 distinguished: the number of groups is a lower limit."
            )),
        };
        section.table(table).plot(Plot {
            title: "Cumulative share of sessions in the largest groups".into(),
            x: "largest groups".into(),
            y: YAxis::Share,
            lines,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_beginning_of_a_name_is_a_wider_group() {
        let of = |name: &str| levels(name).collect::<Vec<_>>();
        let named = |names: &[&str]| names.iter().map(|name| number_of(name)).collect::<Vec<_>>();
        assert_eq!(of("BR/AS1/SP/C"), named(&["BR", "BR/AS1", "BR/AS1/SP", "BR/AS1/SP/C"]));
        assert_eq!(of("g17"), named(&["g17"]));
        // Parts after an empty part are ignored.
        assert_eq!((of("BR//SP"), of("BR/")), (named(&["BR"]), named(&["BR"])));
        assert_eq!((of(""), of("/"), of("/AS1")), (vec![], vec![], vec![]));
    }

    #[test]
    fn groups_beyond_the_bound_are_sessions_without_a_group() {
        let mut groups = GroupSums::default();
        for group in [1, 2, 3, 3, 1, 4, 1] {
            groups.add(group, 2);
        }
        assert_eq!((groups.sizes(), groups.beyond, groups.all()), (vec![3, 1], 3, 7));
        let cells = groups.cells();
        assert_eq!((cells[0].value, cells[0].n), (Some(2.0), 7));
        assert_eq!(groups.curve(), [(0.0, 0.0), (1.0, 3.0 / 7.0), (2.0, 4.0 / 7.0)]);
        assert_eq!(GroupSums::default().cells()[1], Cell::default());
        assert!(GroupSums::default().curve().is_empty());
    }
}
