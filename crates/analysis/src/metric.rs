//! Metrics for the comparison of cohorts.

use records::{Column, Error, Kind};

/// One number per session.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Metric {
    pub meaning: &'static str,
    pub of: Of,
}

/// Source of the number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Of {
    /// A column of the records.
    Column(Column),
    /// A factor times a column over the sum of others. A cohort's mean is the ratio of its sums, so
    /// long sessions have more weight than short ones.
    Pooled { name: &'static str, unit: &'static str, ratio: Pooled },
}

/// Ratio of a cohort's sums.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pooled {
    part: Column,
    whole: &'static [Column],
    times: f64,
}

const WATCHED: &[Column] = &[Column::player_played_s, Column::player_freeze_s];

const fn column(column: Column, meaning: &'static str) -> Metric {
    Metric { meaning, of: Of::Column(column) }
}

const fn per_hour(
    name: &'static str,
    unit: &'static str,
    part: Column,
    meaning: &'static str,
) -> Metric {
    let ratio = Pooled { part, whole: WATCHED, times: 3_600.0 };
    Metric { meaning, of: Of::Pooled { name, unit, ratio } }
}

/// Metrics compared by default.
pub(super) const METRICS: [Metric; 15] = [
    column(Column::first_frame_ms, "from the request to the acknowledgement of the first frame"),
    column(Column::player_first_frame_ms, "the player's own first-frame time"),
    per_hour(
        "freezes_per_hour",
        "/h",
        Column::player_freezes,
        "freezes per hour of viewing, pooled over sessions",
    ),
    per_hour(
        "freeze_s_per_hour",
        "s/h",
        Column::player_freeze_s,
        "seconds frozen per hour of viewing, pooled over sessions",
    ),
    column(Column::goodput_mbps, "media handed to the transport, over the session"),
    column(Column::loss_rate, "packets lost ÷ packets settled"),
    column(Column::retransmission_ratio, "retransmissions ÷ first transmissions"),
    Metric {
        meaning: "retransmissions of round 2 and later ÷ first transmissions, pooled over sessions",
        of: Of::Pooled {
            name: "repeated_ratio",
            unit: "",
            ratio: Pooled {
                part: Column::repeated_retransmissions,
                whole: &[Column::first_transmissions],
                times: 1.0,
            },
        },
    },
    column(
        Column::recovery_mean_ms,
        "mean recovery latency of data with a lost first retransmission",
    ),
    column(Column::recovery_p95_ms, "the same: 95th percentile of the session"),
    column(Column::recovery_max_ms, "the same: maximum of the session"),
    column(Column::redundancy_cost, "replicas ÷ first transmissions"),
    column(Column::skips, "skips to a key frame by a viewer that fell behind"),
    column(Column::thinned, "disposable pictures withheld from a viewer that fell behind"),
    column(Column::off_mode_ms_per_s, "time with nothing to send but replicas"),
];

impl Metric {
    /// Returns the name: the column's, unless pooled.
    pub(super) fn name(&self) -> &'static str {
        match self.of {
            Of::Column(column) => column.name(),
            Of::Pooled { name, .. } => name,
        }
    }

    /// Returns the unit; empty for counts and ratios.
    pub(super) fn unit(&self) -> &'static str {
        match self.of {
            Of::Pooled { unit, .. } => unit,
            Of::Column(column) => match column.unit() {
                unit @ ("ms" | "s" | "Mbps" | "ms/s" | "1/s") => unit,
                _ => "",
            },
        }
    }

    /// Finds the metric `name`: one of [`METRICS`], or any numeric column.
    pub(super) fn named(name: &str) -> Result<Self, Error> {
        if let Some(metric) = METRICS.iter().find(|metric| metric.name() == name) {
            return Ok(*metric);
        }
        let is_number = |column: &Column| column.kind() != Kind::Text;
        match Column::named(name).filter(is_number) {
            Some(found) => Ok(column(found, "")),
            None => {
                let numbers = Column::ALL.into_iter().filter(is_number).map(Column::name);
                let mut all: Vec<_> = numbers.chain(METRICS.iter().map(Self::name)).collect();
                all.sort_unstable();
                all.dedup();
                Err(Error::new(format!("no metric {name:?}; known metrics: {}", all.join(", "))))
            }
        }
    }

    /// Returns the columns that the metric needs.
    pub(super) fn columns(&self) -> Vec<Column> {
        match self.of {
            Of::Column(column) => vec![column],
            Of::Pooled { ratio, .. } => [&[ratio.part], ratio.whole].concat(),
        }
    }

    /// Returns a session's metric and its weight in the mean. `None` if a column is absent or the
    /// denominator is zero.
    pub(super) fn of(&self, number: impl Fn(Column) -> f64) -> Option<(f64, f64)> {
        let (value, weight) = match self.of {
            Of::Column(column) => (number(column), 1.0),
            Of::Pooled { ratio: Pooled { part, whole, times }, .. } => {
                let whole: f64 = whole.iter().map(|column| number(*column)).sum();
                (times * number(part) / whole, whole)
            }
        };
        (value.is_finite() && weight.is_finite() && weight > 0.0).then_some((value, weight))
    }
}
