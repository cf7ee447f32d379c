//! Fixtures, and tests of formulas, adapters and the controller.

mod adapters;
mod controller;
mod formulas;

use super::*;
use crate::{PathState, UnitTable, View};
use units::Timestamp;

pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The path of the paper's testbed: 60 ms.
pub(super) fn path() -> PathState {
    PathState { smoothed_rtt: ms(60), min_rtt: ms(60), packet: 1_200, ..PathState::default() }
}

pub(super) fn interval(lost: u64, packets: u64) -> IntervalMetrics {
    IntervalMetrics {
        span: ms(300),
        acked: packets - lost,
        lost,
        sent_bytes: packets * 1_200,
        goodput_bytes: (packets - lost) * 1_200,
        ..IntervalMetrics::default()
    }
}

pub(super) fn with_view<T>(path: PathState, look: impl FnOnce(&View<'_>) -> T) -> T {
    let units = UnitTable::default();
    look(&View {
        path,
        units: &units,
        longest_burst: 0,
        correlation: None,
        overdue_lost: 0.5,
        loss_rate: 0.05,
    })
}

/// Returns the value that the adapter reports under this name.
pub(super) fn told(adapter: &dyn RedundancyAdapter, name: &str) -> f64 {
    let mut found = None;
    adapter.explain(&mut |known, value| {
        if known == name {
            found = Some(value);
        }
    });
    found.unwrap_or_else(|| panic!("nothing is told about {name}"))
}
