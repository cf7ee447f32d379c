//! The queries in `sql/`, filled in: text that every engine runs as it is, over a table or view called `sessions` (or
//! `histograms`, what `histogram.sql` gave).

use core::ops::Range;

use groups::select::{Metric, Policy};

/// Which sessions teach, as SQL, and what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// An integer from 0 that sessions are put in order by; ties are broken by `session`.
    pub metric: String,
    /// Which sessions count at all.
    pub filter: String,
    /// The percentiles between which they are chosen.
    pub band: Range<i64>,
    /// Most sessions of one network, in per cent of the number of its group's networks; 0 for any number.
    pub prefix_share: i64,
    /// Which policy this is, or a variant of: what is learned from them.
    pub policy: Policy,
}

impl Plan {
    /// The plan of a policy that is built in.
    pub fn of(policy: &Policy) -> Self {
        let ratio = |part: &str, factor: &str, whole: &str| {
            format!(
                "FLOOR(CAST({part} AS DOUBLE) * {factor} / CAST(GREATEST({whole}, 1) AS DOUBLE))"
            )
        };
        let metric = match policy.metric {
            Metric::Retransmission => ratio("retransmitted", "1000000", "packets"),
            Metric::GoodputPerRtt => ratio("goodput_kbps", "1000", "rtt_us"),
            Metric::OpenRate => "open_kbps".into(),
        };
        let filter = if policy.explorers { "explorer = 1 AND open_kbps > 0" } else { "1 = 1" };
        let policy = policy.clone();
        Self {
            metric,
            filter: filter.into(),
            band: policy.band.clone(),
            prefix_share: policy.prefix_share,
            policy,
        }
    }

    /// As people name it: by its policy, and whether it is a variant.
    pub fn name(&self) -> String {
        let is_built_in = *self == Self::of(&self.policy);
        format!("{}{}", self.policy.name, if is_built_in { "" } else { " (variant)" })
    }

    /// Chosen rows of a window in Unix seconds, from its sessions and exactly.
    pub fn band(&self, window: &Range<u64>) -> String {
        self.fill(include_str!("../sql/band.sql"), window)
    }

    /// Histograms of a window, from its sessions.
    pub fn histogram(&self, window: &Range<u64>) -> String {
        self.fill(include_str!("../sql/histogram.sql"), window)
    }

    /// Chosen rows from histograms.
    pub fn merge(&self) -> String {
        self.fill(include_str!("../sql/merge.sql"), &(0..0))
    }

    fn fill(&self, text: &str, window: &Range<u64>) -> String {
        let taken = match self.prefix_share {
            0 => include_str!("../sql/taken.sql"),
            _ => include_str!("../sql/thinned.sql"),
        };
        let text = text.replace("{taken}", taken);
        // What operators write comes last, so that nothing in it is taken for a place to fill in.
        between(&text, window)
            .replace("{from}", &self.band.start.to_string())
            .replace("{to}", &self.band.end.to_string())
            .replace("{prefix_share}", &self.prefix_share.to_string())
            .replace("{filter}", &self.filter)
            .replace("{metric}", &self.metric)
    }
}

/// How viewers fared in a window in Unix seconds, from its sessions.
pub fn outcomes(window: &Range<u64>) -> String {
    between(include_str!("../sql/outcomes.sql"), window)
}

fn between(text: &str, window: &Range<u64>) -> String {
    text.replace("{begin}", &window.start.to_string()).replace("{end}", &window.end.to_string())
}

/// The columns of chosen rows.
pub const CHOSEN: [&str; 7] =
    ["user_group", "among", "weight", "goodput", "open_rate", "flight", "win"];
/// The columns of histograms.
pub const HISTOGRAM: [&str; 7] =
    ["user_group", "bin", "n", "goodput", "open_rate", "flight", "win"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_fill_in() {
        for policy in &Policy::ALL {
            let plan = Plan::of(policy);
            let texts =
                [plan.band(&(1..2)), plan.histogram(&(1..2)), plan.merge(), outcomes(&(1..2))];
            assert!(texts.iter().all(|text| !text.contains(['{', '}'])), "{texts:?}");
        }
    }

    /// The logarithm is the only thing that engines compute differently: in the last digits.
    #[test]
    fn no_integer_is_so_near_to_the_edge_of_a_bin_that_engines_could_disagree() {
        let place = |n: f64| 8.0 * n.log2() + 0.000_001;
        let mut nearest = f64::INFINITY;
        for bin in 1..=320 {
            let edge = ((f64::from(bin) - 0.000_001) / 8.0).exp2().floor();
            for n in [edge - 1.0, edge, edge + 1.0] {
                nearest = nearest.min((place(n.max(1.0)) - f64::from(bin)).abs());
            }
        }
        // Of 320, a logarithm that is wrong by four units in the last place is wrong by 2.3e-13.
        assert!(nearest > 4e-13, "{nearest}");
    }
}
