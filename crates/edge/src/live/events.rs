//! Counters of publisher and upstream events, by name. The names are a small fixed set.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use media::Deviation;

use crate::sync::lock;

/// Counters by name.
#[derive(Debug, Default)]
pub struct Events(Mutex<BTreeMap<&'static str, u64>>);

impl Events {
    /// Counts one event.
    pub fn count(&self, event: &'static str) {
        self.add(event, 1);
    }

    /// Counts `times` events.
    pub fn add(&self, event: &'static str, times: u64) {
        *self.lock().entry(event).or_default() += times;
    }

    /// Returns all nonzero counters.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        self.lock().iter().map(|(event, count)| (*event, *count)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        lock(&self.0)
    }
}

/// Log of the tolerated deviations of one stream: one line per kind.
#[derive(Clone, Copy, Default, Debug)]
pub struct DeviationLog(u64);

impl DeviationLog {
    /// Counts the deviations, and logs kinds that are new.
    pub fn record(
        &mut self,
        tolerated: &Events,
        stream: &str,
        deviations: impl Iterator<Item = (Deviation, u32)>,
    ) {
        for (deviation, times) in deviations {
            tolerated.add(deviation.name(), times.into());
            let bit = 1 << deviation as u32;
            if self.0 & bit == 0 {
                self.0 |= bit;
                tracing::warn!("{stream}: tolerated reason={}", deviation.name());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deviation_is_counted_and_each_kind_is_logged_once() {
        let (tolerated, mut log) = (Events::default(), DeviationLog::default());
        for _ in 0..3 {
            let deviations = [(Deviation::TsSync, 2), (Deviation::HttpRange, 1)];
            log.record(&tolerated, "live/a", deviations.into_iter());
        }
        assert_eq!(tolerated.all(), [("http_range", 3), ("ts_sync", 6)]);
        assert_eq!(log.0.count_ones(), 2);
        assert!(Deviation::ALL.len() <= 64);
    }
}
