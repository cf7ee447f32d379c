//! Counts of what happened to publishers and upstreams, by name: a few names that the code knows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use media::Deviation;

use crate::sync::lock;

/// Counters by name.
#[derive(Debug, Default)]
pub struct Events(Mutex<BTreeMap<&'static str, u64>>);

impl Events {
    /// It happened once more.
    pub fn count(&self, event: &'static str) {
        self.add(event, 1);
    }

    /// It happened so many more times.
    pub fn add(&self, event: &'static str, times: u64) {
        *self.lock().entry(event).or_default() += times;
    }

    /// All that happened at least once.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        self.lock().iter().map(|(event, count)| (*event, *count)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        lock(&self.0)
    }
}

/// Which breaches of rules were logged of one stream: each kind is logged once.
#[derive(Clone, Copy, Default, Debug)]
pub struct Told(u64);

impl Told {
    /// Counts what was met in the stream, and logs the kinds that are new.
    pub fn tell(
        &mut self,
        tolerated: &Events,
        stream: &str,
        met: impl Iterator<Item = (Deviation, u32)>,
    ) {
        for (deviation, times) in met {
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
    fn every_breach_is_counted_and_each_kind_is_told_once() {
        let (tolerated, mut told) = (Events::default(), Told::default());
        for _ in 0..3 {
            let met = [(Deviation::TsSync, 2), (Deviation::HttpRange, 1)];
            told.tell(&tolerated, "live/a", met.into_iter());
        }
        assert_eq!(tolerated.all(), [("http_range", 3), ("ts_sync", 6)]);
        assert_eq!(told.0.count_ones(), 2);
        assert!(Deviation::ALL.len() <= 64);
    }
}
