//! Which sessions of a period a decision is made from: AutoPlex's "better-performed sessions" (sections 3.4 and 4.2),
//! and our own selection, which knows demand from capacity.
//!
//! All numbers are integers and every order has a tie-break, so that the queries of `autoplex/sql`, which say the same for
//! many more sessions, find the same to the last bit, on whatever engine.

use core::ops::Range;
use std::collections::{BTreeMap, HashMap};

use crate::decide::{OfGroup, Seen};

/// A session, as decisions see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Its user group: [`group_id`] of the name.
    pub group: i64,
    /// A number of its own, which nobody outside can choose.
    pub session: i64,
    /// Its network: /24 or /48.
    pub prefix: i64,
    /// When it ended, in Unix seconds.
    pub ended: i64,
    /// 1 if it was served without a cap so that others learn from it.
    pub explorer: i64,
    /// Packets sent that were no copies of others; at least 1.
    pub packets: i64,
    /// Retransmissions.
    pub retransmitted: i64,
    /// Goodput in kbit/s.
    pub goodput_kbps: i64,
    /// Smoothed round-trip time in microseconds; at least 1.
    pub rtt_us: i64,
    /// Most bytes in flight.
    pub in_flight: i64,
    /// Largest congestion window in bytes.
    pub window: i64,
    /// Largest delivery rate of flights that the stream did not limit, in kbit/s; 0 if there was none.
    pub open_kbps: i64,
}

/// The number by which a group is known wherever sessions are measured: FNV-1a of its name, without the sign's bit.
pub fn group_id(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash & i64::MAX as u64) as i64
}

/// What sessions are put in order by, ascending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Retransmissions per million first transmissions.
    Retransmission,
    /// Goodput ÷ smoothed round-trip time, in bit/s per microsecond.
    GoodputPerRtt,
    /// [`Sample::open_kbps`].
    OpenRate,
}

impl Metric {
    fn of(self, sample: &Sample) -> i64 {
        let ratio = |part: i64, factor: f64, whole: i64| {
            (part as f64 * factor / whole.max(1) as f64) as i64
        };
        match self {
            Self::Retransmission => ratio(sample.retransmitted, 1e6, sample.packets),
            Self::GoodputPerRtt => ratio(sample.goodput_kbps, 1e3, sample.rtt_us),
            Self::OpenRate => sample.open_kbps,
        }
    }
}

/// Which sessions teach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// As people name it.
    pub name: &'static str,
    /// What they are put in order by.
    pub metric: Metric,
    /// The percentiles between which a session is chosen, of those of its group.
    pub band: Range<i64>,
    /// Only explorers count, and of these only those who measured a rate that the stream did not limit.
    pub explorers: bool,
    /// A network contributes so many per cent of the number of its group's networks in sessions, rounded up: with 5,
    /// no more than one in twenty of all, or one. 0 for no bound.
    pub prefix_share: i64,
}

impl Policy {
    /// The paper's, for few retransmissions (section 5.1).
    pub const LOWER_RETRANSMISSION: Self = Self {
        name: "lower-retransmission",
        metric: Metric::Retransmission,
        band: 5..20,
        explorers: false,
        prefix_share: 0,
    };
    /// The paper's, for a high ratio of goodput to round-trip time (section 5.2).
    pub const GOODPUT_PER_RTT: Self = Self {
        name: "goodput-per-rtt",
        metric: Metric::GoodputPerRtt,
        band: 80..95,
        explorers: false,
        prefix_share: 0,
    };
    /// Ours: the middle fifth of what the explorers' paths were seen to carry. It does not move by more than the share of
    /// those who lie, and nobody whose stream needs little says that the path has little.
    pub const OPEN_RATE: Self = Self {
        name: "open-rate",
        metric: Metric::OpenRate,
        band: 40..60,
        explorers: true,
        prefix_share: 5,
    };
    /// All that are built in.
    pub const ALL: [Self; 3] = [Self::LOWER_RETRANSMISSION, Self::GOODPUT_PER_RTT, Self::OPEN_RATE];

    /// What is seen of a group of which this was chosen. The paper takes goodput as the pacing rate, and the mean of
    /// flight and window as the window (algorithm 1, lines 7 and 8).
    pub fn seen(&self, chosen: &Chosen) -> Option<Seen> {
        let (in_flight, window) = (chosen.mean(chosen.in_flight)?, chosen.mean(chosen.window)?);
        let (kbps, in_flight) = match self.metric {
            Metric::OpenRate => (chosen.mean(chosen.open_kbps)?, in_flight),
            _ => (chosen.mean(chosen.goodput_kbps)?, (in_flight + window) / 2.0),
        };
        Some(Seen { sessions: chosen.sessions as u64, rate: kbps * 1e3, in_flight })
    }

    /// The groups of a decision: those of which something was chosen, by their names, and all that these are part of.
    /// What was chosen of a wider group is what was chosen of its parts: the best sessions of each, not those of the
    /// best part.
    pub fn groups(&self, chosen: impl IntoIterator<Item = (String, Chosen)>) -> Vec<OfGroup> {
        let mut all: BTreeMap<String, Chosen> = BTreeMap::new();
        for (name, part) in chosen {
            let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
            ends.for_each(|end| all.entry(name[..end].to_owned()).or_default().add(&part));
        }
        let places: HashMap<&str, usize> = all.keys().map(String::as_str).zip(0..).collect();
        let group = |(name, chosen): (&String, &Chosen)| OfGroup {
            name: name.as_str().into(),
            parent: name.rsplit_once('/').and_then(|(wider, _)| places.get(wider).copied()),
            seen: self.seen(chosen),
            is_off: false,
        };
        all.iter().map(group).collect()
    }

    fn takes(&self, sample: &Sample) -> bool {
        !self.explorers || (sample.explorer == 1 && sample.open_kbps > 0)
    }
}

/// What was chosen of a group. Sums are of the values times 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chosen {
    /// The group.
    pub group: i64,
    /// Sessions that the choice was made among.
    pub sessions: i64,
    /// Sessions chosen, times 100; with histograms, parts of sessions too.
    pub weight: i64,
    /// Of [`Sample::goodput_kbps`].
    pub goodput_kbps: i64,
    /// Of [`Sample::open_kbps`].
    pub open_kbps: i64,
    /// Of [`Sample::in_flight`].
    pub in_flight: i64,
    /// Of [`Sample::window`].
    pub window: i64,
}

impl Chosen {
    /// The mean of what a sum is of.
    pub fn mean(&self, sum: i64) -> Option<f64> {
        (self.weight > 0).then(|| sum as f64 / self.weight as f64)
    }

    /// Takes in what was chosen of a part of this group.
    pub fn add(&mut self, part: &Self) {
        self.sessions += part.sessions;
        self.weight += part.weight;
        self.goodput_kbps += part.goodput_kbps;
        self.open_kbps += part.open_kbps;
        self.in_flight += part.in_flight;
        self.window += part.window;
    }
}

/// Chooses of each group, in the order of their numbers; groups of which nothing was chosen are left out.
///
/// ```
/// use mendcast_groups::select::{Policy, Sample, choose, group_id};
///
/// let group = group_id("BR/AS28573/SP/Campinas");
/// let sample = |session| Sample { group, session, packets: 1_000, retransmitted: session, ..Sample::default() };
/// let chosen = choose((1..=100).map(sample), &Policy::LOWER_RETRANSMISSION);
/// assert_eq!((chosen[0].sessions, chosen[0].weight), (100, 1_500));
/// ```
pub fn choose(samples: impl IntoIterator<Item = Sample>, policy: &Policy) -> Vec<Chosen> {
    let mut groups: BTreeMap<i64, Vec<Sample>> = BTreeMap::new();
    for sample in samples.into_iter().filter(|sample| policy.takes(sample)) {
        groups.entry(sample.group).or_default().push(sample);
    }
    let chosen = groups.into_values().map(|sessions| of_group(sessions, policy));
    chosen.filter(|chosen| chosen.weight > 0).collect()
}

fn of_group(mut sessions: Vec<Sample>, policy: &Policy) -> Chosen {
    thin(&mut sessions, policy.prefix_share);
    sessions.sort_unstable_by_key(|sample| (policy.metric.of(sample), sample.session));
    let among = sessions.len() as i64;
    let group = sessions.first().map_or(0, |sample| sample.group);
    let mut all = Chosen { group, sessions: among, ..Chosen::default() };
    let (first, last) = (among * policy.band.start, among * policy.band.end);
    for (sample, place) in sessions.iter().zip(1..) {
        if place * 100 > first && place * 100 <= last {
            all.add(&Chosen {
                group,
                sessions: 0,
                weight: 100,
                goodput_kbps: 100 * sample.goodput_kbps,
                open_kbps: 100 * sample.open_kbps,
                in_flight: 100 * sample.in_flight,
                window: 100 * sample.window,
            });
        }
    }
    all
}

/// Leaves of each network no more than `share` per cent of the number of networks: the sessions of the smallest numbers.
/// The bound is by networks, not sessions, or else whoever comes often would widen it.
fn thin(sessions: &mut Vec<Sample>, share: i64) {
    if share == 0 {
        return;
    }
    sessions.sort_unstable_by_key(|sample| (sample.prefix, sample.session));
    let networks = sessions.chunk_by(|a, b| a.prefix == b.prefix).count() as i64;
    let most = (networks * share + 99) / 100;
    let (mut prefix, mut place) = (None, 0);
    sessions.retain(|sample| {
        if prefix.replace(sample.prefix) != Some(sample.prefix) {
            place = 0;
        }
        place += 1;
        place <= most
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(session: i64) -> Sample {
        Sample {
            group: 1,
            session,
            prefix: session,
            explorer: 1,
            packets: 1_000,
            retransmitted: session,
            goodput_kbps: 1_000 * session,
            rtt_us: 50_000,
            in_flight: 10_000,
            window: 20_000,
            open_kbps: 1_000 * session,
            ..Sample::default()
        }
    }

    fn one(samples: impl IntoIterator<Item = Sample>, policy: &Policy) -> Chosen {
        choose(samples, policy).pop().unwrap_or_default()
    }

    fn rate(samples: impl IntoIterator<Item = Sample>) -> f64 {
        let chosen = one(samples, &Policy::OPEN_RATE);
        chosen.mean(chosen.open_kbps).expect("some")
    }

    #[test]
    fn the_bands_are_those_of_the_paper() {
        // Places 6 to 20 and 81 to 95 of a hundred.
        let chosen = one((1..=100).map(sample), &Policy::LOWER_RETRANSMISSION);
        assert_eq!(chosen.mean(chosen.goodput_kbps), Some(13_000.0));
        let chosen = one((1..=100).map(sample), &Policy::GOODPUT_PER_RTT);
        assert_eq!(chosen.mean(chosen.goodput_kbps), Some(88_000.0));
        assert_eq!(
            (chosen.weight, chosen.in_flight, chosen.window),
            (1_500, 15_000_000, 30_000_000)
        );
        assert_eq!(rate((1..=100).map(sample)), 50_500.0);
    }

    #[test]
    fn a_handful_of_sessions_has_no_band_and_equals_are_told_apart() {
        let sizes = (0..=6).map(|n| one((1..=n).map(sample), &Policy::LOWER_RETRANSMISSION).weight);
        assert_eq!(sizes.collect::<Vec<_>>(), [0, 0, 0, 0, 0, 100, 100]);
        let equal = |n| Sample { retransmitted: 0, ..sample(n) };
        let forth = choose((1..=100).map(equal), &Policy::LOWER_RETRANSMISSION);
        let back = choose((1..=100).rev().map(equal), &Policy::LOWER_RETRANSMISSION);
        assert_eq!(forth, back);
    }

    #[test]
    fn only_explorers_with_a_rate_of_their_own_teach_the_open_rate() {
        let quiet = |n| Sample { explorer: n % 2, ..sample(n) };
        let chosen = one((1..=100).map(quiet), &Policy::OPEN_RATE);
        assert_eq!(chosen.sessions, 50);
        let limited = |n| Sample { open_kbps: 0, ..sample(n) };
        assert_eq!(choose((1..=100).map(limited), &Policy::OPEN_RATE), []);
    }

    #[test]
    fn wider_groups_are_the_sums_of_their_parts_and_stand_before_them() {
        let part = |group, sessions| Chosen {
            group,
            sessions,
            weight: 100,
            goodput_kbps: 100 * sessions,
            ..Chosen::default()
        };
        let chosen = [("BR/AS1/SP", part(1, 10)), ("BR/AS1/RJ", part(2, 30)), ("BR-X", part(3, 7))];
        let chosen = chosen.map(|(name, chosen)| (name.to_owned(), chosen));
        let groups = Policy::GOODPUT_PER_RTT.groups(chosen);
        let names: Vec<&str> = groups.iter().map(|group| &*group.name).collect();
        assert_eq!(names, ["BR", "BR-X", "BR/AS1", "BR/AS1/RJ", "BR/AS1/SP"]);
        let parents: Vec<_> = groups.iter().map(|group| group.parent).collect();
        assert_eq!(parents, [None, None, Some(0), Some(2), Some(2)]);
        let seen = groups[0].seen.expect("seen");
        assert_eq!((seen.sessions, seen.rate), (40, 20_000.0));
    }

    #[test]
    fn one_network_moves_its_group_by_its_share_at_most() {
        let honest = || (1..=100).map(|n| Sample { open_kbps: 10_000 + 10 * n, ..sample(n) });
        let liar = |n: i64| Sample { prefix: 1_000_000, open_kbps: 1, ..sample(1_000 + n) };
        let (before, after) = (rate(honest()), rate(honest().chain((1..=900).map(liar))));
        // 6 of 106: without the bound nine tenths of all would be liars.
        assert!(after > 0.95 * before, "{before}, {after}");
    }

    #[test]
    fn a_tenth_who_lie_move_the_open_rate_by_less_than_a_tenth() {
        // Rates of a group whose logarithm has a standard deviation of 0.6, as in the built-in population.
        let spread = |n: i64| {
            let u = (n as f64 - 0.5) / 900.0;
            (8_000.0 * (0.6 * 1.702_f64.recip() * (u / (1.0 - u)).ln()).exp()) as i64
        };
        let honest = || (1..=900).map(|n| Sample { open_kbps: spread(n), ..sample(n) });
        for lie in [1, 100_000_000] {
            let liar = |n: i64| Sample { open_kbps: lie, ..sample(1_000 + n) };
            let moved = rate(honest().chain((1..=100).map(liar))) / rate(honest());
            assert!((0.9..1.1).contains(&moved), "{lie}: {moved}");
        }
    }
}
