//! Selects the sessions that a decision is based on: AutoPlex's "better-performed sessions"
//! (sections 3.4 and 4.2), and our own selection, which separates demand from capacity.
//!
//! All numbers are integers and every sort has a tie-break. The queries in `autoplex/sql`, which
//! scale to many more sessions, therefore yield bit-identical results on any engine.

use core::ops::Range;
use std::collections::{BTreeMap, HashMap};

use crate::decide::{GroupStats, Observed};

/// The columns of a session that decisions use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// User group: [`group_id`] of its name.
    pub group: i64,
    /// Unique number, which no client can choose.
    pub session: i64,
    /// Network of the client: /24 or /48.
    pub prefix: i64,
    /// End time, in Unix seconds.
    pub ended: i64,
    /// 1 for uncapped sessions that probe the path's capacity.
    pub explorer: i64,
    /// First transmissions, in packets; at least 1.
    pub packets: i64,
    /// Retransmissions.
    pub retransmitted: i64,
    /// Goodput in kbit/s.
    pub goodput_kbps: i64,
    /// Smoothed round-trip time in microseconds; at least 1.
    pub rtt_us: i64,
    /// Maximum bytes in flight.
    pub in_flight: i64,
    /// Largest congestion window in bytes.
    pub window: i64,
    /// Highest delivery rate while not application-limited, in kbit/s; 0 without a sample.
    pub open_kbps: i64,
}

/// Hashes a group's name to the number used in measurements: FNV-1a without the sign bit.
pub fn group_id(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash & i64::MAX as u64) as i64
}

/// Sort key of sessions, ascending.
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

/// Rule that selects sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Name in configurations and reports.
    pub name: &'static str,
    /// Sort key.
    pub metric: Metric,
    /// Percentiles of a group's sessions between which sessions are selected.
    pub band: Range<i64>,
    /// Restricts the selection to explorers with a delivery rate that the stream did not limit.
    pub explorers: bool,
    /// Maximum sessions per network, in percent of the number of networks in the group, rounded up.
    /// With 5, a network contributes at most every twentieth session, or one. 0 disables the limit.
    pub prefix_share: i64,
}

impl Policy {
    /// The paper's policy for few retransmissions (section 5.1).
    pub const LOWER_RETRANSMISSION: Self = Self {
        name: "lower-retransmission",
        metric: Metric::Retransmission,
        band: 5..20,
        explorers: false,
        prefix_share: 0,
    };
    /// The paper's policy for a high ratio of goodput to round-trip time (section 5.2).
    pub const GOODPUT_PER_RTT: Self = Self {
        name: "goodput-per-rtt",
        metric: Metric::GoodputPerRtt,
        band: 80..95,
        explorers: false,
        prefix_share: 0,
    };
    /// Our policy: the middle fifth of the explorers' delivery rates. Lying clients shift it by no
    /// more than their share, and low-rate streams do not make the path look narrow.
    pub const OPEN_RATE: Self = Self {
        name: "open-rate",
        metric: Metric::OpenRate,
        band: 40..60,
        explorers: true,
        prefix_share: 5,
    };
    /// All built-in policies.
    pub const ALL: [Self; 3] = [Self::LOWER_RETRANSMISSION, Self::GOODPUT_PER_RTT, Self::OPEN_RATE];

    /// Returns the statistics of a selection. The paper uses goodput as the pacing rate, and the
    /// mean of flight and window as the window (algorithm 1, lines 7 and 8).
    pub fn seen(&self, chosen: &Selection) -> Option<Observed> {
        let (in_flight, window) = (chosen.mean(chosen.in_flight)?, chosen.mean(chosen.window)?);
        let (kbps, in_flight) = match self.metric {
            Metric::OpenRate => (chosen.mean(chosen.open_kbps)?, in_flight),
            _ => (chosen.mean(chosen.goodput_kbps)?, (in_flight + window) / 2.0),
        };
        Some(Observed { sessions: chosen.sessions as u64, rate: kbps * 1e3, in_flight })
    }

    /// Returns the groups of a decision: groups with selected sessions, and their ancestors. An
    /// ancestor sums the selections of its parts. It has the best sessions of every part rather
    /// than the sessions of the best part.
    pub fn groups(&self, chosen: impl IntoIterator<Item = (String, Selection)>) -> Vec<GroupStats> {
        let mut all: BTreeMap<String, Selection> = BTreeMap::new();
        for (name, part) in chosen {
            let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
            ends.for_each(|end| all.entry(name[..end].to_owned()).or_default().add(&part));
        }
        let indices: HashMap<&str, usize> = all.keys().map(String::as_str).zip(0..).collect();
        let group = |(name, chosen): (&String, &Selection)| GroupStats {
            name: name.as_str().into(),
            parent: name.rsplit_once('/').and_then(|(wider, _)| indices.get(wider).copied()),
            seen: self.seen(chosen),
            is_off: false,
        };
        all.iter().map(group).collect()
    }

    fn takes(&self, sample: &Sample) -> bool {
        !self.explorers || (sample.explorer == 1 && sample.open_kbps > 0)
    }
}

/// Selected sessions of a group. Sums are scaled by 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// Group number.
    pub group: i64,
    /// Candidate sessions.
    pub sessions: i64,
    /// Selected sessions, times 100. Histograms also select fractions of sessions.
    pub weight: i64,
    /// Sum of [`Sample::goodput_kbps`].
    pub goodput_kbps: i64,
    /// Sum of [`Sample::open_kbps`].
    pub open_kbps: i64,
    /// Sum of [`Sample::in_flight`].
    pub in_flight: i64,
    /// Sum of [`Sample::window`].
    pub window: i64,
}

impl Selection {
    /// Returns the weighted mean of one of the sums.
    pub fn mean(&self, sum: i64) -> Option<f64> {
        (self.weight > 0).then(|| sum as f64 / self.weight as f64)
    }

    /// Adds the selection of a part of this group.
    pub fn add(&mut self, part: &Self) {
        self.sessions += part.sessions;
        self.weight += part.weight;
        self.goodput_kbps += part.goodput_kbps;
        self.open_kbps += part.open_kbps;
        self.in_flight += part.in_flight;
        self.window += part.window;
    }
}

/// Selects sessions of each group, in order of group number. Groups without any are omitted.
///
/// ```
/// use mendcast_groups::select::{Policy, Sample, choose, group_id};
///
/// let group = group_id("BR/AS28573/SP/Campinas");
/// let sample = |session| {
///     Sample { group, session, packets: 1_000, retransmitted: session, ..Sample::default() }
/// };
/// let chosen = choose((1..=100).map(sample), &Policy::LOWER_RETRANSMISSION);
/// assert_eq!((chosen[0].sessions, chosen[0].weight), (100, 1_500));
/// ```
pub fn choose(samples: impl IntoIterator<Item = Sample>, policy: &Policy) -> Vec<Selection> {
    let mut groups: BTreeMap<i64, Vec<Sample>> = BTreeMap::new();
    for sample in samples.into_iter().filter(|sample| policy.takes(sample)) {
        groups.entry(sample.group).or_default().push(sample);
    }
    let chosen = groups.into_values().map(|sessions| select_in_group(sessions, policy));
    chosen.filter(|chosen| chosen.weight > 0).collect()
}

fn select_in_group(mut sessions: Vec<Sample>, policy: &Policy) -> Selection {
    limit_prefixes(&mut sessions, policy.prefix_share);
    sessions.sort_unstable_by_key(|sample| (policy.metric.of(sample), sample.session));
    let candidates = sessions.len() as i64;
    let group = sessions.first().map_or(0, |sample| sample.group);
    let mut all = Selection { group, sessions: candidates, ..Selection::default() };
    let (first, last) = (candidates * policy.band.start, candidates * policy.band.end);
    for (sample, rank) in sessions.iter().zip(1..) {
        if rank * 100 > first && rank * 100 <= last {
            all.add(&Selection {
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

/// Limits each network to `share` percent of the number of networks, keeping its lowest session
/// numbers. A limit relative to sessions would grow with a network's own sessions.
fn limit_prefixes(sessions: &mut Vec<Sample>, share: i64) {
    if share == 0 {
        return;
    }
    sessions.sort_unstable_by_key(|sample| (sample.prefix, sample.session));
    let networks = sessions.chunk_by(|a, b| a.prefix == b.prefix).count() as i64;
    let limit = (networks * share + 99) / 100;
    let (mut prefix, mut count) = (None, 0);
    sessions.retain(|sample| {
        if prefix.replace(sample.prefix) != Some(sample.prefix) {
            count = 0;
        }
        count += 1;
        count <= limit
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

    fn one(samples: impl IntoIterator<Item = Sample>, policy: &Policy) -> Selection {
        choose(samples, policy).pop().unwrap_or_default()
    }

    fn rate(samples: impl IntoIterator<Item = Sample>) -> f64 {
        let chosen = one(samples, &Policy::OPEN_RATE);
        chosen.mean(chosen.open_kbps).expect("some")
    }

    #[test]
    fn bands_match_the_paper() {
        // Ranks 6 to 20 and 81 to 95 of 100.
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
    fn few_sessions_select_none_and_ties_are_broken() {
        let sizes = (0..=6).map(|n| one((1..=n).map(sample), &Policy::LOWER_RETRANSMISSION).weight);
        assert_eq!(sizes.collect::<Vec<_>>(), [0, 0, 0, 0, 0, 100, 100]);
        let equal = |n| Sample { retransmitted: 0, ..sample(n) };
        let forth = choose((1..=100).map(equal), &Policy::LOWER_RETRANSMISSION);
        let back = choose((1..=100).rev().map(equal), &Policy::LOWER_RETRANSMISSION);
        assert_eq!(forth, back);
    }

    #[test]
    fn open_rate_uses_only_explorers_with_an_unlimited_rate() {
        let quiet = |n| Sample { explorer: n % 2, ..sample(n) };
        let chosen = one((1..=100).map(quiet), &Policy::OPEN_RATE);
        assert_eq!(chosen.sessions, 50);
        let limited = |n| Sample { open_kbps: 0, ..sample(n) };
        assert_eq!(choose((1..=100).map(limited), &Policy::OPEN_RATE), []);
    }

    #[test]
    fn parent_groups_sum_their_parts_and_precede_them() {
        let part = |group, sessions| Selection {
            group,
            sessions,
            weight: 100,
            goodput_kbps: 100 * sessions,
            ..Selection::default()
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
        // 6 of 106 sessions. Without the limit, 9 of 10 would be false.
        assert!(after > 0.95 * before, "{before}, {after}");
    }

    #[test]
    fn a_tenth_of_false_samples_moves_the_open_rate_by_less_than_a_tenth() {
        // The logarithm of the rate has a standard deviation of 0.6, as in the built-in population.
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
