//! Turns a period's observations into the parameters of each group's next sessions. Small groups
//! shrink towards their parents, and parameters change gradually.

use core::ops::RangeInclusive;
use std::collections::HashMap;

use units::Rate;

use crate::table::{Group, GroupId, Parameters, Table, TableBuilder, Times};

/// Statistics of a group's selected sessions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Observed {
    /// Number of candidate sessions.
    pub sessions: u64,
    /// Rate by the policy's statistic, in bit/s.
    pub rate: f64,
    /// Bytes in flight by the same statistic.
    pub in_flight: f64,
}

impl Observed {
    /// Returns true if all values are positive and finite.
    fn is_sane(&self) -> bool {
        let is_fine = |value: f64| value.is_finite() && value > 0.0;
        self.sessions > 0 && is_fine(self.rate) && is_fine(self.in_flight)
    }
}

/// A group of one period.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupStats {
    /// Name, which also identifies the group in the previous decision.
    pub name: Box<str>,
    /// Index of the parent group, which precedes this one.
    pub parent: Option<usize>,
    /// Observations; `None` without eligible sessions.
    pub seen: Option<Observed>,
    /// Whether the guard disabled the group.
    pub is_off: bool,
}

/// Settings of a decision.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// Sessions that a group without a parent estimate needs. With fewer, it gets no parameters.
    pub min_sessions: u64,
    /// Weight of the parent, in sessions. A group with as many sessions of its own weighs half.
    pub parent_weight: f64,
    /// Fraction of the observed values granted to sessions. Below 1, it leaves headroom for groups
    /// with diverse paths.
    pub share: f64,
    /// Allowed factors between the parameters of successive periods.
    pub steps: RangeInclusive<f64>,
}

impl Default for Rules {
    /// With 200 sessions, the band from the 5th to the 20th percentile has 30. Doubling a parameter
    /// takes four periods.
    fn default() -> Self {
        Self { min_sessions: 200, parent_weight: 200.0, share: 1.0, steps: 0.8..=1.25 }
    }
}

/// Estimate of a group before the step limit.
#[derive(Clone, Copy)]
struct CapEstimate {
    rate: f64,
    in_flight: f64,
    sessions: u64,
}

/// Decides the parameters of all groups. `last` is the active decision. The returned table has no
/// address ranges yet.
///
/// ```
/// use core::time::Duration;
/// use mendcast_groups::decide::{GroupStats, Observed, Rules, decide};
/// use mendcast_groups::Times;
///
/// let seen = Some(Observed { sessions: 1_000, rate: 4e6, in_flight: 60_000.0 });
/// let country = GroupStats { name: "BR".into(), parent: None, seen, is_off: false };
/// let seen = Some(Observed { sessions: 200, rate: 8e6, in_flight: 60_000.0 });
/// let city = GroupStats { name: "BR/SP/Campinas".into(), parent: Some(0), seen, is_off: false };
/// let times = Times { issued: 1_800_000_000, lifetime: Duration::from_secs(7_200) };
/// let (_, ids) = decide(&[country, city], None, &Rules::default(), times);
/// assert_eq!(ids.len(), 2);
/// ```
pub fn decide(
    groups: &[GroupStats],
    last: Option<&Table>,
    rules: &Rules,
    times: Times,
) -> (TableBuilder, Vec<GroupId>) {
    let last: HashMap<&str, &Parameters> = last
        .into_iter()
        .flat_map(|table| table.groups())
        .filter_map(|group| Some((&*group.name, group.parameters.as_ref()?)))
        .collect();
    let mut building = TableBuilder::new(times);
    let mut estimates: Vec<Option<CapEstimate>> = Vec::with_capacity(groups.len());
    let mut ids: Vec<GroupId> = Vec::with_capacity(groups.len());
    for group in groups {
        let parent = group.parent.filter(|index| *index < ids.len());
        let parent_estimate = parent.and_then(|index| estimates[index]);
        let own = group.seen.filter(Observed::is_sane);
        let estimate = estimate(own.as_ref(), parent_estimate, rules);
        let before = last.get(&*group.name).copied();
        // Without a new estimate, an earlier decision stays valid for the lifetime of a table.
        let is_fresh = |last: &&Parameters| {
            times.issued.saturating_sub(last.decided) <= times.lifetime.as_secs()
        };
        let kept = || before.filter(is_fresh).copied();
        let parameters = estimate.map_or_else(kept, |estimate| {
            let share = |value: f64| value * rules.share;
            let estimate = CapEstimate {
                rate: share(estimate.rate),
                in_flight: share(estimate.in_flight),
                ..estimate
            };
            let bounded = bounded(estimate, before, rules, times.issued);
            Some(bounded).filter(Parameters::is_sane)
        });
        let name = group.name.clone();
        let parent = parent.map(|index| ids[index]);
        ids.push(building.group(Group { name, parent, parameters, is_off: group.is_off }));
        estimates.push(estimate);
    }
    (building, ids)
}

/// Weighs a group's own sessions against its parent's estimate.
fn estimate(
    own: Option<&Observed>,
    parent: Option<CapEstimate>,
    rules: &Rules,
) -> Option<CapEstimate> {
    match (own, parent) {
        (Some(own), Some(parent)) => {
            let weight = own.sessions as f64 / (own.sessions as f64 + rules.parent_weight);
            let mix = |own: f64, parent: f64| weight * own + (1.0 - weight) * parent;
            Some(CapEstimate {
                rate: mix(own.rate, parent.rate),
                in_flight: mix(own.in_flight, parent.in_flight),
                sessions: own.sessions,
            })
        }
        (Some(own), None) => (own.sessions >= rules.min_sessions).then_some(CapEstimate {
            rate: own.rate,
            in_flight: own.in_flight,
            sessions: own.sessions,
        }),
        (None, parent) => parent.map(|parent| CapEstimate { sessions: 0, ..parent }),
    }
}

/// Limits an estimate to one step from the last decision.
fn bounded(
    estimate: CapEstimate,
    last: Option<&Parameters>,
    rules: &Rules,
    decided: u64,
) -> Parameters {
    let (low, high) = (*rules.steps.start(), *rules.steps.end());
    let near = |value: f64, last: Option<u64>| {
        let value = match last.map(|last| last as f64) {
            Some(last) => value.clamp(last * low, last * high),
            None => value,
        };
        value.round() as u64
    };
    Parameters {
        rate: Rate::from_bps(near(estimate.rate, last.map(|last| last.rate.as_bps()))),
        in_flight: near(estimate.in_flight, last.map(|last| last.in_flight)),
        sessions: estimate.sessions,
        decided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    fn times() -> Times {
        Times { issued: 1_800_000_000, lifetime: Duration::from_secs(7_200) }
    }

    fn of(name: &str, parent: Option<usize>, sessions: u64, mbps: f64) -> GroupStats {
        let seen = Observed { sessions, rate: mbps * 1e6, in_flight: mbps * 12_500.0 };
        let seen = (sessions > 0).then_some(seen);
        GroupStats { name: name.into(), parent, seen, is_off: false }
    }

    fn table(groups: &[GroupStats], last: Option<&Table>) -> Table {
        decide(groups, last, &Rules::default(), times()).0.finish().expect("no ranges")
    }

    fn mbps(table: &Table) -> Vec<Option<f64>> {
        let rate = |group: &Group| group.parameters.map(|found| found.rate.as_mbps_f64());
        table.groups().iter().map(rate).collect()
    }

    #[test]
    fn small_groups_shrink_towards_their_parents() {
        let groups = [
            of("BR", None, 10_000, 4.0),
            of("BR/half", Some(0), 200, 8.0),
            of("BR/one", Some(0), 1, 8.0),
            of("BR/none", Some(0), 0, 0.0),
            of("BR/none/none", Some(3), 0, 0.0),
            of("TR", None, 199, 8.0),
        ];
        let one = 8.0 / 201.0 + 4.0 * 200.0 / 201.0;
        let found = mbps(&table(&groups, None));
        let wanted = [Some(4.0), Some(6.0), Some(one), Some(4.0), Some(4.0), None];
        for (found, wanted) in found.iter().zip(wanted) {
            let apart = found.unwrap_or(0.0) - wanted.unwrap_or(0.0);
            assert!(apart.abs() < 1e-6, "{found:?}, {wanted:?}");
        }
    }

    #[test]
    fn parameters_change_by_at_most_one_step() {
        let last = table(&[of("BR", None, 1_000, 4.0)], None);
        let next = |rate| mbps(&table(&[of("BR", None, 1_000, rate)], Some(&last)))[0];
        assert_eq!(next(40.0), Some(5.0));
        assert_eq!(next(0.1), Some(3.2));
        assert_eq!(next(4.2), Some(4.2));
        // A group that is new to the table has no step limit.
        let other = table(&[of("TR", None, 1_000, 40.0)], Some(&last));
        assert_eq!(mbps(&other), [Some(40.0)]);
    }

    #[test]
    fn groups_without_sessions_keep_their_parameters_for_one_lifetime() {
        let last = table(&[of("BR", None, 1_000, 4.0)], None);
        let later = |seconds| {
            let times = Times { issued: times().issued + seconds, ..times() };
            let groups = [of("BR", None, 0, 0.0)];
            let (building, _) = decide(&groups, Some(&last), &Rules::default(), times);
            mbps(&building.finish().expect("no ranges"))
        };
        assert_eq!((later(7_200), later(7_201)), (vec![Some(4.0)], vec![None]));
    }

    #[test]
    fn impossible_observations_and_parents_are_ignored() {
        for rate in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let mut group = of("BR", None, 1_000, 4.0);
            group.seen.as_mut().expect("there").rate = rate;
            assert_eq!(mbps(&table(&[group], None)), [None], "{rate}");
        }
        // Parents that follow their child or do not exist.
        let orphans = [of("BR/SP", Some(7), 1_000, 4.0), of("BR/RJ", Some(1), 1_000, 4.0)];
        let found = table(&orphans, None);
        assert!(found.groups().iter().all(|group| group.parent.is_none()));
    }

    proptest! {
        #[test]
        fn every_decision_survives_encoding(
            all in proptest::collection::vec(
                (proptest::option::of(0usize..40), 0u64..2_000, any::<f64>(), any::<f64>()), 0..40,
            ),
        ) {
            let groups = all.iter().enumerate();
            let groups: Vec<GroupStats> = groups.map(|(n, (parent, sessions, rate, in_flight))| {
                let seen = Observed { sessions: *sessions, rate: *rate, in_flight: *in_flight };
                let name = format!("{n}").into();
                GroupStats { name, parent: *parent, seen: Some(seen), is_off: n % 7 == 0 }
            }).collect();
            let table = table(&groups, None);
            prop_assert_eq!(Table::decode(&table.encode()), Ok(table));
        }
    }
}
