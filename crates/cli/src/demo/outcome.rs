//! How the demo's viewers do, and how much the difference between them is.

use std::fmt;
use std::time::Duration;

use qoe::{Policy, Report};
use records::Record;
use serde_json::{Value, json};

use crate::watch;

/// How a viewer does, as it sees it and as the server sees it.
pub(super) struct DemoOutcome {
    pub(super) cohort: &'static str,
    /// The player in the report.
    pub(super) policy: Policy,
    pub(super) seen: Option<watch::WatchReport>,
    pub(super) record: Option<Record>,
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn millis(time: Duration) -> f64 {
    round(time.as_secs_f64() * 1e3)
}

impl DemoOutcome {
    /// The report of the player.
    pub(super) fn player(&self) -> Option<&Report> {
        self.seen.as_ref()?.player(self.policy)
    }

    pub(super) fn json(&self) -> Value {
        let player = self.player();
        let record = self.record.as_ref();
        json!({
            "cohort": self.cohort,
            "scheme": record.and_then(|r| r.session.scheme.clone()),
            "client": "quinn",
            "protocol": "h3",
            "freezes": player.map(|p| p.noticed().count),
            "freeze_s": player.map(|p| round(p.noticed().total.as_secs_f64())),
            "frames": player.map(|p| p.frames),
            "late_frames": player.map(|p| p.late),
            "first_frame_ms": player.and_then(|p| p.first_frame).map(millis),
            "redundancy_cost": record.and_then(|r| r.recovery.redundancy_cost).map(round),
            "played_s": player.map(|p| round(p.played.as_secs_f64())),
            "bytes": self.seen.as_ref().map(|seen| seen.bytes),
            "loss_rate": record.and_then(|r| r.path.loss_rate).map(round),
            "recovery_latency_ms": record.and_then(|r| r.recovery.recovery_mean_ms).map(round),
        })
    }
}

/// Thresholds of a notable difference: fewer freezes by this number and share. Smaller ones may be
/// reversed in another minute of the same link.
const MIN_SAVED_FREEZES: i64 = 3;
const MIN_SAVED_SHARE: f64 = 1.0 / 3.0;

/// Reductions of one cohort's viewer against another cohort's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Difference {
    /// Seconds since the viewers began.
    seconds: f64,
    /// Freezes and seconds frozen with plain retransmission, and with the default.
    plain: (u64, f64),
    default: (u64, f64),
}

impl Difference {
    /// Between the viewers of these two cohorts; `None` before both play.
    pub(super) fn between(
        plain: &str,
        default: &str,
        all: &[DemoOutcome],
        seconds: f64,
    ) -> Option<Self> {
        let of = |cohort: &str| {
            let seen = all.iter().find(|outcome| outcome.cohort == cohort)?.player()?;
            seen.start?;
            Some((seen.noticed().count, seen.noticed().total.as_secs_f64()))
        };
        Some(Self { seconds, plain: of(plain)?, default: of(default)? })
    }

    /// Freezes that the default's viewer had less.
    fn saved(&self) -> i64 {
        self.plain.0.cast_signed() - self.default.0.cast_signed()
    }

    /// Whether chance alone may have made it.
    fn is_small(&self) -> bool {
        self.saved() < MIN_SAVED_FREEZES
            || (self.saved() as f64) < self.plain.0 as f64 * MIN_SAVED_SHARE
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "freezes_saved": self.saved(),
            "freeze_s_saved": round(self.plain.1 - self.default.1),
            "is_small": self.is_small(),
            "text": self.to_string(),
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |(count, seconds): (u64, f64)| match count {
            1 => format!("once ({seconds:.1} s)"),
            _ => format!("{count} times ({seconds:.1} s)"),
        };
        write!(
            f,
            "In {:.0} s plain retransmission froze {}, the default {}. ",
            self.seconds,
            told(self.plain),
            told(self.default)
        )?;
        match self.saved() {
            saved if !self.is_small() => write!(
                f,
                "The default saved {saved} of {} freezes, and {:.1} s.",
                self.plain.0,
                self.plain.1 - self.default.1
            ),
            saved if saved < 0 => write!(f, "The default did not help: {} freezes more.", -saved),
            _ => write!(
                f,
                "The difference is small: fewer than {MIN_SAVED_FREEZES} freezes less, or less \
                 than a third of them, may be chance."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::PolicyPlayback;
    use units::Timestamp;

    fn outcome(cohort: &'static str, freezes: u64, millis: u64) -> DemoOutcome {
        let policy = Policy::LOW_LATENCY;
        let mut seen = qoe::Player::new(policy, Timestamp::ZERO).report(Timestamp::ZERO);
        seen.start = Some(Duration::from_millis(300));
        seen.freezes[1].count = freezes;
        seen.freezes[1].total = Duration::from_millis(millis);
        let seen = watch::WatchReport {
            players: vec![PolicyPlayback { policy, seen }],
            ..watch::WatchReport::default()
        };
        DemoOutcome { cohort, policy, seen: Some(seen), record: None }
    }

    fn told(plain: u64, default: u64) -> (String, Value) {
        let all = [outcome("arq", plain, plain * 400), outcome("spare", default, default * 400)];
        let difference = Difference::between("arq", "spare", &all, 60.2).expect("both play");
        (difference.to_string(), difference.json())
    }

    #[test]
    fn a_difference_is_told_with_its_numbers() {
        let (text, json) = told(7, 2);
        assert_eq!(
            text,
            "In 60 s plain retransmission froze 7 times (2.8 s), the default 2 times (0.8 s). \
             The default saved 5 of 7 freezes, and 2.0 s."
        );
        assert_eq!(
            json,
            json!({ "freezes_saved": 5, "freeze_s_saved": 2.0, "is_small": false, "text": text })
        );
    }

    #[test]
    fn a_small_difference_is_called_small() {
        // Too few, none, and too small a share of many.
        for (plain, default) in [(3, 1), (0, 0), (5, 5), (12, 9)] {
            let (text, json) = told(plain, default);
            assert!(text.contains("The difference is small"), "{text}");
            assert!(!text.contains("saved"), "{text}");
            assert_eq!(json["is_small"], true, "{text}");
        }
        assert!(!told(9, 6).0.contains("small"), "a third");
    }

    #[test]
    fn a_default_that_freezes_more_often_is_reported() {
        let (text, json) = told(1, 5);
        assert!(text.contains("froze once (0.4 s)"), "{text}");
        assert!(text.ends_with("The default did not help: 4 freezes more."), "{text}");
        assert_eq!((&json["freezes_saved"], &json["is_small"]), (&json!(-4), &json!(true)));
    }

    #[test]
    fn before_both_play_there_is_no_difference() {
        let mut waiting = outcome("spare", 0, 0);
        waiting.seen = None;
        let all = [outcome("arq", 4, 1_000), waiting];
        assert_eq!(Difference::between("arq", "spare", &all, 1.0), None);
    }
}
