//! What the demo shows of a viewer.

use records::Record;
use serde_json::{Value, json};

use crate::watch;

/// The player whose picture is reported.
pub(super) const PLAYER: &str = "low-latency";

/// How a viewer does, as it sees it and as the server sees it.
pub(super) struct Outcome {
    pub(super) cohort: &'static str,
    pub(super) seen: Option<watch::Report>,
    pub(super) record: Option<Record>,
}

impl Outcome {
    /// The player whose picture is reported.
    pub(super) fn player(&self) -> Option<&qoe::Report> {
        self.seen.as_ref()?.player(PLAYER)
    }

    pub(super) fn json(&self) -> Value {
        let player = self.player();
        let record = self.record.as_ref();
        let round = |value: f64| (value * 1e3).round() / 1e3;
        json!({
            "cohort": self.cohort,
            "scheme": record.and_then(|r| r.scheme.clone()),
            "client": "quinn",
            "protocol": "h3",
            "first_frame_ms": player.and_then(|p| p.first_frame).map(|t| round(t.as_secs_f64() * 1e3)),
            "played_s": player.map(|p| round(p.played.as_secs_f64())),
            "freezes": player.map(|p| p.freezes[0].count),
            "freeze_s": player.map(|p| round(p.freezes[0].total.as_secs_f64())),
            "bytes": self.seen.as_ref().map(|seen| seen.bytes),
            "loss_rate": record.and_then(|r| r.loss_rate).map(round),
            "recovery_latency_ms": record.and_then(|r| r.recovery_mean_ms).map(round),
            "redundancy_cost": record.and_then(|r| r.redundancy_cost).map(round),
        })
    }
}
