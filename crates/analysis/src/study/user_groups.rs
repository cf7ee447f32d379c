//! How many user groups there are, and how many sessions the largest of them have, by the rule that makes them
//! (AutoPlex, 3.2, table 1).
//!
//! A group's name says where its viewers are: country, AS, state and city, in this order, with `/` between
//! (`BR/AS28573/SP/Campinas`). Each beginning of a name is a wider group, so that the rules are the lengths of
//! beginnings. A name that ends early, because nobody knew more, belongs to no group of the longer rules.

use std::collections::HashMap;

use super::measure::Measure;
use super::row::{Row, number_of};
use super::section::{Cell, Section, Table};
use crate::plot::{Curve, Plot, Upwards};

/// The rules, by how many parts of a name they take: 1, 2, 3 and 4.
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
/// The paper's numbers of largest groups.
const TOP: [usize; 3] = [10, 50, 100];
/// So many groups are told apart by each rule, 14 times as many as the paper has: names come from records, and
/// whoever writes these could give each session a group of its own.
const MOST: usize = 1 << 18;
/// So many of the largest groups are drawn.
const DRAWN: usize = 200;

/// One rule, and what the paper has for it.
struct Rule {
    label: &'static str,
    short: &'static str,
    /// Groups, and per cent of sessions in the largest 10, 50 and 100.
    paper: Option<[f64; 4]>,
}

/// All groups, by rule.
#[derive(Debug, Default)]
pub(super) struct UserGroups([Groups; 4]);

/// The groups of one rule.
#[derive(Debug, Default)]
struct Groups {
    /// Sessions of each group.
    sessions: HashMap<u64, u32>,
    /// Those of groups that were too many to be told apart.
    beyond: u64,
}

impl Groups {
    fn add(&mut self, group: u64, most: usize) {
        let room = self.sessions.len() < most;
        match self.sessions.get_mut(&group) {
            Some(sessions) => *sessions = sessions.saturating_add(1),
            None if room => _ = self.sessions.insert(group, 1),
            None => self.beyond += 1,
        }
    }

    /// Sessions of the groups, the largest first.
    fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.sessions.values().copied().map(u64::from).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    }

    /// All sessions that have a group by this rule.
    fn all(&self) -> u64 {
        self.sessions.values().copied().map(u64::from).sum::<u64>() + self.beyond
    }

    /// How many groups there are, and per cent of sessions in the largest ones.
    fn cells(&self) -> Vec<Cell> {
        let (sizes, n) = (self.sizes(), self.all());
        let cell = |value: f64| Cell { value: (n > 0).then_some(value), n, paper: None };
        let share = |top: usize| sizes.iter().take(top).sum::<u64>() as f64 / n as f64;
        let shares = TOP.iter().map(|top| cell(100.0 * share(*top)));
        [cell(sizes.len() as f64)].into_iter().chain(shares).collect()
    }

    /// The share of sessions in the largest group, the largest two, and so on.
    fn curve(&self) -> Vec<(f64, f64)> {
        let (sizes, n) = (self.sizes(), self.all());
        let mut seen = 0;
        let sizes = sizes.into_iter().take(DRAWN).zip(1_u32..);
        let shares = sizes.map(|(sessions, top)| {
            seen += sessions;
            (f64::from(top), seen as f64 / n as f64)
        });
        // All of nothing is nothing, and one point is no line.
        [(0.0, 0.0)].into_iter().filter(|_| n > 0).chain(shares).collect()
    }
}

/// The groups that a name belongs to, from the widest to the narrowest. A part that is empty ends the name.
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
    fn columns(&self) -> &'static [&'static str] {
        &["group"]
    }

    fn add(&mut self, row: &Row) {
        let name = row.group_name.as_deref().unwrap_or_default();
        for (groups, group) in self.0.iter_mut().zip(levels(name)) {
            groups.add(group, MOST);
        }
    }

    fn report(&self) -> Section {
        let mut table = Table::new("rules", &["groups", "top 10 (%)", "top 50 (%)", "top 100 (%)"]);
        let mut lines = Vec::new();
        let rules = RULES.iter().zip(&self.0).enumerate().rev();
        for (colour, (rule, groups)) in rules {
            table = table.line(rule.label, groups.cells());
            if let Some(values) = rule.paper {
                table = table.papers(&values.map(Some), "AutoPlex 3.2, table 1: Brazil");
            }
            lines.push(Curve { name: rule.short.into(), colour, points: groups.curve() });
        }
        let section = Section::new("user_groups", "User groups").note(
            "A user group's name has up to four parts: country, AS, state, city. Each beginning of it is a wider group. \
             A session whose name ends early belongs to no group of the finer rules and does not count for them; a name \
             without parts has one. Shares are of the sessions that count for the rule.",
        );
        let beyond: u64 = self.0.iter().map(|groups| groups.beyond).max().unwrap_or(0);
        let section = match beyond {
            0 => section,
            _ => section.note(format!(
                "{beyond} sessions are of groups beyond the first {MOST}, which are not told apart: there are more \
                 groups than stand here."
            )),
        };
        section.table(table).plot(Plot {
            title: "Share of sessions in so many of the largest groups".into(),
            x: "largest groups".into(),
            y: Upwards::Share,
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
        // What lies behind a part that is empty is not known to lie in anything.
        assert_eq!((of("BR//SP"), of("BR/")), (named(&["BR"]), named(&["BR"])));
        assert_eq!((of(""), of("/"), of("/AS1")), (vec![], vec![], vec![]));
    }

    #[test]
    fn groups_beyond_the_bound_are_sessions_without_a_group() {
        let mut groups = Groups::default();
        for group in [1, 2, 3, 3, 1, 4, 1] {
            groups.add(group, 2);
        }
        assert_eq!((groups.sizes(), groups.beyond, groups.all()), (vec![3, 1], 3, 7));
        let cells = groups.cells();
        assert_eq!((cells[0].value, cells[0].n), (Some(2.0), 7));
        assert_eq!(groups.curve(), [(0.0, 0.0), (1.0, 3.0 / 7.0), (2.0, 4.0 / 7.0)]);
        assert_eq!(Groups::default().cells()[1], Cell::default());
        assert!(Groups::default().curve().is_empty());
    }
}
