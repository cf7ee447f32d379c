//! Rules on the cost of neighbours for the server and for honest newcomers: places, memory,
//! descriptors, log, `/healthz`, and statistics of player reports.

use std::time::Duration;

use crate::edge::soak::neighbours::Count;
use crate::edge::soak::outcome::{RuleVerdict, SoakOutcome};
use crate::edge::soak::server::Reported;

/// Minimum share of newcomers admitted.
const MIN_ADMITTED: f64 = 0.95;
/// Maximum response time of `/healthz`: Kubernetes' default for a probe.
const MAX_HEALTH_TIME: Duration = Duration::from_secs(1);
/// Maximum resident memory in bytes. 40 viewers and all neighbours took 168 MB.
const MAX_RESIDENT: u64 = 512_000_000;
/// Maximum number of descriptors: 1,024 of TCP, 1,000 of RTMP, 512 in reserve, and the rest of the
/// process.
const MAX_DESCRIPTORS: u64 = 3_000;
/// Descriptors allowed in excess of the time before the neighbours: kept-alive connections to hooks
/// and upstreams, 64 at most.
const KEPT_DESCRIPTORS: u64 = 64;
/// Maximum log rate in bytes per second, on average. Neighbours trigger about 350 lines of 130
/// bytes per second; the budget of each kind of line is 5 lines per second.
const LOG_RATE: f64 = 8_192.0;
/// Additional log bytes: 50 lines of 1 KiB of each of ten kinds.
const LOG_BURST: f64 = 512_000.0;

impl SoakOutcome {
    /// Applies the rules for phases with and without neighbours.
    pub(super) fn bounds(&self) -> [RuleVerdict; 7] {
        let [memory, open, left] = self.resources();
        let [short, harmless] = self.log();
        [self.health(), memory, open, left, short, harmless, self.reports()]
    }

    fn health(&self) -> RuleVerdict {
        let longest = self.looks.iter().map(|look| look.health).max().unwrap_or_default();
        RuleVerdict {
            rule: "/healthz answers in time",
            holds: !self.looks.is_empty() && longest <= MAX_HEALTH_TIME,
            figures: format!(
                "at most {} ms in {} samples; limit {} ms",
                longest.as_millis(),
                self.looks.len(),
                MAX_HEALTH_TIME.as_millis()
            ),
        }
    }

    fn resources(&self) -> [RuleVerdict; 3] {
        let memory = self.looks.iter().map(|look| look.resident).max().unwrap_or_default();
        let open = self.looks.iter().map(|look| look.descriptors).max().unwrap_or_default();
        let (before, after) = (self.alone.1.descriptors, self.last.descriptors);
        let megabytes = |bytes: u64| bytes as f64 * 1e-6;
        [
            RuleVerdict {
                rule: "memory is bounded",
                holds: memory <= MAX_RESIDENT,
                figures: format!(
                    "{:.1} MB; at most {:.0}",
                    megabytes(memory),
                    megabytes(MAX_RESIDENT)
                ),
            },
            RuleVerdict {
                rule: "descriptors are bounded",
                holds: open <= MAX_DESCRIPTORS,
                figures: format!("{open} open; at most {MAX_DESCRIPTORS}"),
            },
            RuleVerdict {
                rule: "neighbours leave no descriptors behind",
                holds: after <= before + KEPT_DESCRIPTORS,
                figures: format!("{after} open, {before} before; at most {KEPT_DESCRIPTORS} more"),
            },
        ]
    }

    fn log(&self) -> [RuleVerdict; 2] {
        let log = &self.log;
        let seconds = self.last.at.as_secs_f64();
        let most = LOG_BURST + LOG_RATE * seconds;
        [
            RuleVerdict {
                rule: "the log stays short",
                holds: log.bytes as f64 <= most,
                figures: format!(
                    "{:.1} kB in {} lines in {:.1} min; at most {:.0} kB",
                    log.bytes as f64 * 1e-3,
                    log.lines,
                    seconds / 60.0,
                    most * 1e-3
                ),
            },
            RuleVerdict {
                rule: "the log has no control characters",
                holds: log.controls == 0,
                figures: format!("{} control characters", log.controls),
            },
        ]
    }

    /// For each session, metrics and records count at most its duration.
    fn reports(&self) -> RuleVerdict {
        let Reported { played_s, frozen_s, freezes } = self.last.reported;
        let records = &self.records;
        let is_possible = [played_s, frozen_s, freezes].iter().all(|sum| *sum >= 0.0);
        RuleVerdict {
            rule: "reports fit in their sessions",
            holds: is_possible
                && played_s + frozen_s <= records.room_s
                && freezes <= records.room_freezes()
                && records.beyond == 0,
            figures: format!(
                "{played_s:.0} s played, {frozen_s:.0} s and {freezes} times frozen in {} \
                 sessions with reports, which allow {:.0} s and {:.0} freezes; {} records beyond \
                 their session",
                records.reported,
                records.room_s,
                records.room_freezes(),
                records.beyond
            ),
        }
    }
}

/// Checks that newcomers arrived and that the server admitted them.
pub(super) fn let_in(count: &Count) -> RuleVerdict {
    let Count { name, due, attempted, reached, ends, .. } = count;
    let ends: Vec<String> = ends.iter().map(|(how, count)| format!("{how} {count}")).collect();
    RuleVerdict {
        rule: name,
        holds: count.is_enough() && *reached as f64 >= MIN_ADMITTED * *attempted as f64,
        figures: format!(
            "{reached} of {attempted} admitted, {due:.0} due; at least {:.0} %; {}",
            MIN_ADMITTED * 100.0,
            ends.join(", ")
        ),
    }
}
