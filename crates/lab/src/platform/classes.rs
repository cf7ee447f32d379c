//! Classes of sessions for breakdowns. Classes use drawn properties only, so a session has the same
//! class under every scheme.

use qoe::Policy;

use super::session::{ACCESS, Acks, EcnFault, Session};

/// A dimension that divides sessions into classes.
pub(super) struct Dimension {
    pub key: &'static str,
    pub title: &'static str,
    /// Returns a session's class index and its value on a plot's axis.
    of: fn(&Session) -> (usize, f64),
    names: &'static [&'static str],
}

/// Returns the class of a value. Class boundaries are in `from`.
fn place(value: f64, from: &[f64]) -> usize {
    from.partition_point(|least| *least <= value)
}

const PLAYERS: [&str; 3] = [Policy::PRESETS[0].0, Policy::PRESETS[1].0, Policy::PRESETS[2].0];

/// All dimensions.
pub(super) const DIMENSIONS: [Dimension; 8] = [
    Dimension {
        key: "loss",
        title: "Loss rate of the path",
        of: |session| {
            let percent = session.loss * 100.0;
            let class = if session.loss == 0.0 { 0 } else { 1 + place(percent, &[1.0, 3.0, 10.0]) };
            (class, percent)
        },
        names: &["none", "below 1 %", "1 to 3 %", "3 to 10 %", "10 % and more"],
    },
    Dimension {
        key: "kind",
        title: "Kind of loss",
        of: |session| {
            use super::session::LossKind::{Calls, Gilbert, Independent, Outages, Slots};
            let class = match session.kind {
                _ if session.loss == 0.0 => 0,
                Calls | Slots => 1,
                Gilbert { .. } => 2,
                Outages { .. } => 3,
                Independent => 4,
            };
            (class, class as f64)
        },
        names: &["none", "like calls", "Gilbert bursts", "outages", "independent"],
    },
    Dimension {
        key: "rtt",
        title: "Round-trip time without queues",
        of: |session| (place(session.rtt_ms, &[50.0, 100.0, 200.0, 500.0]), session.rtt_ms),
        names: &[
            "below 50 ms",
            "50 to 100 ms",
            "100 to 200 ms",
            "200 to 500 ms",
            "500 ms and more",
        ],
    },
    Dimension {
        key: "room",
        title: "Bottleneck as a multiple of the stream's rate",
        of: |session| {
            let room = session.rate_mbps / session.bitrate_mbps;
            (place(room, &[1.5, 3.0]), room)
        },
        names: &["below 1.5", "1.5 to 3", "3 and more"],
    },
    Dimension {
        key: "access",
        title: "Access",
        of: |session| (session.access, session.access as f64),
        names: &ACCESS,
    },
    Dimension {
        key: "player",
        title: "Player",
        of: |session| (session.player, session.player as f64),
        names: &PLAYERS,
    },
    Dimension {
        key: "link",
        title: "Link (the lowest class that applies)",
        of: |session| {
            let links = &session.links;
            let class = match links.ecn {
                _ if links.policer.is_some() => 6,
                _ if links.bunches.is_some() => 5,
                _ if !links.rtt_steps.is_empty() => 4,
                Some(EcnFault::Drop) => 3,
                _ if links.bunches_up.is_some() => 2,
                Some(EcnFault::Bleach) => 1,
                None => 0,
            };
            (class, class as f64)
        },
        names: &[
            "plain",
            "ECN bleached",
            "acknowledgements in bunches",
            "ECN black hole",
            "steps of the round-trip time",
            "bunches",
            "policed",
        ],
    },
    Dimension {
        key: "acks",
        title: "Acknowledgements",
        of: |session| {
            let class = match session.links.acks {
                Acks::EachSecond => 0,
                Acks::Chromium => 1,
                Acks::Rare { .. } => 2,
            };
            (class, class as f64)
        },
        names: &["each second packet", "as Chromium", "rarely"],
    },
];

impl Dimension {
    /// Returns the non-empty classes: name, mean axis value, and session indices.
    pub(super) fn divide(&self, sessions: &[Session]) -> Vec<(&'static str, f64, Vec<usize>)> {
        let mut classes: Vec<(&str, f64, Vec<usize>)> =
            self.names.iter().map(|name| (*name, 0.0, Vec::new())).collect();
        for (at, session) in sessions.iter().enumerate() {
            let (class, value) = (self.of)(session);
            classes[class].1 += value;
            classes[class].2.push(at);
        }
        classes.retain(|(_, _, places)| !places.is_empty());
        for (_, sum, places) in &mut classes {
            *sum /= places.len() as f64;
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::population::Population;
    use crate::platform::specification::{FLEET, Specification};

    #[test]
    fn every_session_is_in_one_class_of_each_dimension() {
        let population = Population::new(Specification::parse(FLEET).expect("valid"), None);
        let sessions = population.sessions(4, 3_000);
        for dimension in &DIMENSIONS {
            let classes = dimension.divide(&sessions);
            let mut places: Vec<usize> = classes.iter().flat_map(|class| class.2.clone()).collect();
            places.sort_unstable();
            assert_eq!(places, (0..sessions.len()).collect::<Vec<_>>(), "{}", dimension.key);
            assert!(classes.len() >= 3, "{}", dimension.key);
        }
        let loss = DIMENSIONS[0].divide(&sessions);
        let mean = |name: &str| loss.iter().find(|class| class.0 == name).expect("there").1;
        assert!(mean("none") == 0.0 && (3.0..10.0).contains(&mean("3 to 10 %")));
    }
}
