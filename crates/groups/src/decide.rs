//! From what was seen of groups in a period to what their next sessions may send: small groups lean on the wider
//! ones that they are part of, and nothing changes by much at once.

use core::ops::RangeInclusive;
use std::collections::HashMap;

use units::Rate;

use crate::table::{Building, Group, GroupId, Parameters, Table, Times};

/// What the selected sessions of a group had.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seen {
    /// How many sessions the selection was made from.
    pub sessions: u64,
    /// What the statistic of the policy says of their rates, in bit/s.
    pub rate: f64,
    /// The same of their bytes in flight.
    pub in_flight: f64,
}

impl Seen {
    /// Whether anything can be learned from it.
    fn is_sane(&self) -> bool {
        let is_fine = |value: f64| value.is_finite() && value > 0.0;
        self.sessions > 0 && is_fine(self.rate) && is_fine(self.in_flight)
    }
}

/// A group of a period.
#[derive(Clone, PartialEq, Debug)]
pub struct OfGroup {
    /// Its name, by which the last decision knows it as well.
    pub name: Box<str>,
    /// The place of the wider group that it is part of, which stands before it.
    pub parent: Option<usize>,
    /// What was seen of it; `None` if it had no session that counts.
    pub seen: Option<Seen>,
    /// The guard has turned it off.
    pub is_off: bool,
}

/// How much is made of how little.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// A group with no wider one needs this many sessions, or nothing is decided for it.
    pub least: u64,
    /// The wider group counts as this many sessions: at as many of its own a group is half itself.
    pub lean: f64,
    /// What sessions may have of what was seen: less than 1 leaves room where a group's paths differ.
    pub share: f64,
    /// By which factor parameters may change from one period to the next.
    pub steps: RangeInclusive<f64>,
}

impl Default for Rules {
    /// 200 sessions, of which the band from the 5th to the 20th percentile has thirty; a rise to the double takes four
    /// periods.
    fn default() -> Self {
        Self { least: 200, lean: 200.0, share: 1.0, steps: 0.8..=1.25 }
    }
}

/// An estimate that is not bounded by the last decision yet.
#[derive(Clone, Copy)]
struct Estimate {
    rate: f64,
    in_flight: f64,
    sessions: u64,
}

/// Decides for all groups of a period; `last` is the decision in force. The table has no ranges of addresses yet.
///
/// ```
/// use core::time::Duration;
/// use mendcast_groups::decide::{OfGroup, Rules, Seen, decide};
/// use mendcast_groups::Times;
///
/// let seen = Some(Seen { sessions: 1_000, rate: 4e6, in_flight: 60_000.0 });
/// let country = OfGroup { name: "BR".into(), parent: None, seen, is_off: false };
/// let seen = Some(Seen { sessions: 200, rate: 8e6, in_flight: 60_000.0 });
/// let city = OfGroup { name: "BR/SP/Campinas".into(), parent: Some(0), seen, is_off: false };
/// let times = Times { issued: 1_800_000_000, lifetime: Duration::from_secs(7_200) };
/// let (_, ids) = decide(&[country, city], None, &Rules::default(), times);
/// assert_eq!(ids.len(), 2);
/// ```
pub fn decide(
    groups: &[OfGroup],
    last: Option<&Table>,
    rules: &Rules,
    times: Times,
) -> (Building, Vec<GroupId>) {
    let last: HashMap<&str, &Parameters> = last
        .into_iter()
        .flat_map(|table| table.groups())
        .filter_map(|group| Some((&*group.name, group.parameters.as_ref()?)))
        .collect();
    let mut building = Building::new(times);
    let mut estimates: Vec<Option<Estimate>> = Vec::with_capacity(groups.len());
    let mut ids: Vec<GroupId> = Vec::with_capacity(groups.len());
    for group in groups {
        let parent = group.parent.filter(|place| *place < ids.len());
        let wider = parent.and_then(|place| estimates[place]);
        let own = group.seen.filter(Seen::is_sane);
        let estimate = estimate(own.as_ref(), wider, rules);
        let before = last.get(&*group.name).copied();
        // Where nothing new is known, what was decided holds for as long as a table does.
        let is_fresh = |last: &&Parameters| {
            times.issued.saturating_sub(last.decided) <= times.lifetime.as_secs()
        };
        let kept = || before.filter(is_fresh).copied();
        let parameters = estimate.map_or_else(kept, |estimate| {
            let share = |value: f64| value * rules.share;
            let estimate = Estimate {
                rate: share(estimate.rate),
                in_flight: share(estimate.in_flight),
                ..estimate
            };
            let bounded = bounded(estimate, before, rules, times.issued);
            Some(bounded).filter(Parameters::is_sane)
        });
        let name = group.name.clone();
        let parent = parent.map(|place| ids[place]);
        ids.push(building.group(Group { name, parent, parameters, is_off: group.is_off }));
        estimates.push(estimate);
    }
    (building, ids)
}

/// What is thought of a group: its own sessions beside those that the wider group stands for.
fn estimate(own: Option<&Seen>, wider: Option<Estimate>, rules: &Rules) -> Option<Estimate> {
    match (own, wider) {
        (Some(own), Some(wider)) => {
            let weight = own.sessions as f64 / (own.sessions as f64 + rules.lean);
            let mix = |own: f64, wider: f64| weight * own + (1.0 - weight) * wider;
            Some(Estimate {
                rate: mix(own.rate, wider.rate),
                in_flight: mix(own.in_flight, wider.in_flight),
                sessions: own.sessions,
            })
        }
        (Some(own), None) => (own.sessions >= rules.least).then_some(Estimate {
            rate: own.rate,
            in_flight: own.in_flight,
            sessions: own.sessions,
        }),
        (None, wider) => wider.map(|wider| Estimate { sessions: 0, ..wider }),
    }
}

/// The estimate, no further from the last decision than one step.
fn bounded(
    estimate: Estimate,
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

    fn of(name: &str, parent: Option<usize>, sessions: u64, mbps: f64) -> OfGroup {
        let seen = Seen { sessions, rate: mbps * 1e6, in_flight: mbps * 12_500.0 };
        let seen = (sessions > 0).then_some(seen);
        OfGroup { name: name.into(), parent, seen, is_off: false }
    }

    fn table(groups: &[OfGroup], last: Option<&Table>) -> Table {
        decide(groups, last, &Rules::default(), times()).0.finish().expect("no ranges")
    }

    fn mbps(table: &Table) -> Vec<Option<f64>> {
        let rate = |group: &Group| group.parameters.map(|found| found.rate.as_mbps_f64());
        table.groups().iter().map(rate).collect()
    }

    #[test]
    fn small_groups_lean_on_the_wider_one() {
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
    fn parameters_change_by_a_step_at_most() {
        let last = table(&[of("BR", None, 1_000, 4.0)], None);
        let next = |rate| mbps(&table(&[of("BR", None, 1_000, rate)], Some(&last)))[0];
        assert_eq!(next(40.0), Some(5.0));
        assert_eq!(next(0.1), Some(3.2));
        assert_eq!(next(4.2), Some(4.2));
        // One that the last decision does not know has nothing to be near to.
        let other = table(&[of("TR", None, 1_000, 40.0)], Some(&last));
        assert_eq!(mbps(&other), [Some(40.0)]);
    }

    #[test]
    fn a_group_that_nobody_came_from_keeps_its_parameters_for_a_while() {
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
    fn what_nobody_can_have_seen_teaches_nothing() {
        for rate in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let mut group = of("BR", None, 1_000, 4.0);
            group.seen.as_mut().expect("there").rate = rate;
            assert_eq!(mbps(&table(&[group], None)), [None], "{rate}");
        }
        // Nor do parents that stand behind, or that are not there.
        let lost = [of("BR/SP", Some(7), 1_000, 4.0), of("BR/RJ", Some(1), 1_000, 4.0)];
        let found = table(&lost, None);
        assert!(found.groups().iter().all(|group| group.parent.is_none()));
    }

    proptest! {
        #[test]
        fn a_decision_can_be_read_again_whatever_was_seen(
            all in proptest::collection::vec(
                (proptest::option::of(0usize..40), 0u64..2_000, any::<f64>(), any::<f64>()), 0..40,
            ),
        ) {
            let groups: Vec<OfGroup> = all.iter().enumerate().map(|(n, (parent, sessions, rate, in_flight))| {
                let seen = Seen { sessions: *sessions, rate: *rate, in_flight: *in_flight };
                let name = format!("{n}").into();
                OfGroup { name, parent: *parent, seen: Some(seen), is_off: n % 7 == 0 }
            }).collect();
            let table = table(&groups, None);
            prop_assert_eq!(Table::decode(&table.encode()), Ok(table));
        }
    }
}
