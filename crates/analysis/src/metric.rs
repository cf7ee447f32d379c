//! Metrics for the comparison of cohorts.

use records::Error;
use records::{COLUMNS, Kind};

/// One number per session.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Metric {
    pub name: &'static str,
    /// Unit; empty for counts and ratios.
    pub unit: &'static str,
    pub meaning: &'static str,
    pub of: Of,
}

/// Source of the number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Of {
    /// A column of the records.
    Column(&'static str),
    /// A factor times a column over the sum of others. A cohort's mean is the ratio of its sums, so
    /// long sessions have more weight than short ones.
    Pooled { part: &'static str, whole: &'static [&'static str], times: f64 },
}

const WATCHED: &[&str] = &["player_played_s", "player_freeze_s"];

const fn column(name: &'static str, unit: &'static str, meaning: &'static str) -> Metric {
    Metric { name, unit, meaning, of: Of::Column(name) }
}

/// Metrics compared by default.
pub(super) const METRICS: [Metric; 15] = [
    column("first_frame_ms", "ms", "from the request to the acknowledgement of the first frame"),
    column("player_first_frame_ms", "ms", "the player's own first-frame time"),
    Metric {
        name: "freezes_per_hour",
        unit: "/h",
        meaning: "freezes per hour of viewing, pooled over sessions",
        of: Of::Pooled { part: "player_freezes", whole: WATCHED, times: 3_600.0 },
    },
    Metric {
        name: "freeze_s_per_hour",
        unit: "s/h",
        meaning: "seconds frozen per hour of viewing, pooled over sessions",
        of: Of::Pooled { part: "player_freeze_s", whole: WATCHED, times: 3_600.0 },
    },
    column("goodput_mbps", "Mbps", "media handed to the transport, over the session"),
    column("loss_rate", "", "packets lost ÷ packets settled"),
    column("retransmission_ratio", "", "retransmissions ÷ first transmissions"),
    Metric {
        name: "repeated_ratio",
        unit: "",
        meaning: "retransmissions of round 2 and later ÷ first transmissions, pooled over sessions",
        of: Of::Pooled {
            part: "repeated_retransmissions",
            whole: &["first_transmissions"],
            times: 1.0,
        },
    },
    column(
        "recovery_mean_ms",
        "ms",
        "mean recovery latency of data with a lost first retransmission",
    ),
    column("recovery_p95_ms", "ms", "the same: 95th percentile of the session"),
    column("recovery_max_ms", "ms", "the same: maximum of the session"),
    column("redundancy_cost", "", "replicas ÷ first transmissions"),
    column("skips", "", "skips to a key frame by a viewer that fell behind"),
    column("thinned", "", "disposable pictures withheld from a viewer that fell behind"),
    column("off_mode_ms_per_s", "ms/s", "time with nothing to send but replicas"),
];

impl Metric {
    /// Finds the metric `name`: one of [`METRICS`], or any numeric column.
    pub(super) fn named(name: &str) -> Result<Self, Error> {
        if let Some(metric) = METRICS.iter().find(|metric| metric.name == name) {
            return Ok(*metric);
        }
        let unit = |name: &str| match name.rsplit('_').next() {
            Some("ms") => "ms",
            Some("s") => "s",
            Some("mbps") => "Mbps",
            _ => "",
        };
        let numeric = COLUMNS.iter().filter(|(_, kind)| *kind != Kind::Text);
        let columns: Vec<_> = numeric.map(|(name, _)| *name).collect();
        match columns.iter().find(|column| **column == name) {
            Some(found) => Ok(column(found, unit(found), "")),
            None => {
                let derived = METRICS.iter().map(|metric| metric.name);
                let mut all: Vec<_> = columns.into_iter().chain(derived).collect();
                all.sort_unstable();
                all.dedup();
                Err(Error::new(format!("no metric {name:?}; known metrics: {}", all.join(", "))))
            }
        }
    }

    /// Returns the columns that the metric needs.
    pub(super) fn columns(&self) -> Vec<&'static str> {
        match self.of {
            Of::Column(name) => vec![name],
            Of::Pooled { part, whole, .. } => [&[part], whole].concat(),
        }
    }

    /// Returns a session's metric and its weight in the mean. `None` if a column is absent or the
    /// denominator is zero.
    pub(super) fn of(&self, column: impl Fn(&str) -> f64) -> Option<(f64, f64)> {
        let (value, weight) = match self.of {
            Of::Column(name) => (column(name), 1.0),
            Of::Pooled { part, whole, times } => {
                let whole: f64 = whole.iter().map(|name| column(name)).sum();
                (times * column(part) / whole, whole)
            }
        };
        (value.is_finite() && weight.is_finite() && weight > 0.0).then_some((value, weight))
    }
}
