//! The queries in `sql/` with their parameters. Every engine runs the same text over a table or
//! view called `sessions`, or `histograms` (results of `histogram.sql`).

use core::ops::Range;

use groups::select::{Metric, Policy};

use crate::engine::Kept;

/// Condition that all sessions fulfil.
const ALL: &str = "1 = 1";

/// SQL expressions of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Sort key of sessions: an integer from 0. Ties are broken by `session`.
    pub metric: String,
    /// Condition for eligible sessions.
    pub filter: String,
    /// Percentiles between which sessions are selected. 0 to 100.
    pub band: Range<i64>,
    /// Maximum sessions per network, in percent of the number of networks in the group. 0 disables
    /// the limit.
    pub prefix_share: i64,
    /// The policy. Fields above may differ from it.
    pub policy: Policy,
}

impl Plan {
    /// Creates the plan of a built-in policy.
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
        let filter = if policy.explorers { "explorer = 1 AND open_kbps > 0" } else { ALL };
        let policy = policy.clone();
        Self {
            metric,
            filter: filter.into(),
            band: policy.band.clone(),
            prefix_share: policy.prefix_share,
            policy,
        }
    }

    /// Returns the part of the sessions that are eligible.
    pub fn kept(&self) -> Kept {
        if self.filter == ALL { Kept::Most } else { Kept::Few }
    }

    /// Returns the name of the policy, marked if the plan differs from it.
    pub fn name(&self) -> String {
        let is_built_in = *self == Self::of(&self.policy);
        format!("{}{}", self.policy.name, if is_built_in { "" } else { " (variant)" })
    }

    /// Returns the exact selection query over the sessions of a window, in Unix seconds.
    pub fn band(&self, window: &Range<u64>) -> String {
        self.fill(include_str!("../sql/band.sql"), window)
    }

    /// Returns the histogram query over the sessions of a window, in Unix seconds.
    pub fn histogram(&self, window: &Range<u64>) -> String {
        self.fill(include_str!("../sql/histogram.sql"), window)
    }

    /// Returns the selection query over histograms.
    pub fn merge(&self) -> String {
        self.fill(include_str!("../sql/merge.sql"), &(0..0))
    }

    fn fill(&self, text: &str, window: &Range<u64>) -> String {
        let eligible = match self.prefix_share {
            0 => include_str!("../sql/eligible.sql"),
            _ => include_str!("../sql/limited.sql"),
        };
        let text = text.replace("{eligible}", eligible);
        // Expressions of operators come last, so that braces in them are not replaced.
        with_window(&text, window)
            .replace("{from}", &self.band.start.to_string())
            .replace("{to}", &self.band.end.to_string())
            .replace("{prefix_share}", &self.prefix_share.to_string())
            .replace("{filter}", &self.filter)
            .replace("{metric}", &self.metric)
    }
}

/// Returns the query of viewers' outcomes over the sessions of a window, in Unix seconds.
pub fn outcomes(window: &Range<u64>) -> String {
    with_window(include_str!("../sql/outcomes.sql"), window)
}

fn with_window(text: &str, window: &Range<u64>) -> String {
    text.replace("{begin}", &window.start.to_string()).replace("{end}", &window.end.to_string())
}

/// Columns of selections.
pub const SELECTION_COLUMNS: [&str; 7] =
    ["user_group", "among", "weight", "goodput", "open_rate", "flight", "win"];
/// Columns of histograms.
pub const HISTOGRAM_COLUMNS: [&str; 7] =
    ["user_group", "bin", "n", "goodput", "open_rate", "flight", "win"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_have_no_unfilled_parameters() {
        for policy in &Policy::ALL {
            let plan = Plan::of(policy);
            let texts =
                [plan.band(&(1..2)), plan.histogram(&(1..2)), plan.merge(), outcomes(&(1..2))];
            assert!(texts.iter().all(|text| !text.contains(['{', '}'])), "{texts:?}");
        }
    }

    /// Engines agree except in the last digits of logarithms.
    #[test]
    fn no_integer_is_close_enough_to_a_bin_edge_for_engines_to_disagree() {
        let position = |n: f64| 8.0 * n.log2() + 0.000_001;
        let mut nearest = f64::INFINITY;
        for bin in 1..=320 {
            let edge = ((f64::from(bin) - 0.000_001) / 8.0).exp2().floor();
            for n in [edge - 1.0, edge, edge + 1.0] {
                nearest = nearest.min((position(n.max(1.0)) - f64::from(bin)).abs());
            }
        }
        // Four units in the last place of a logarithm of 320 are 2.3e-13.
        assert!(nearest > 4e-13, "{nearest}");
    }
}
