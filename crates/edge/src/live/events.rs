//! Counts of what happened to publishers and upstreams, by name: a few names that the code knows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use crate::sync::lock;

/// Counters by name.
#[derive(Debug, Default)]
pub struct Events(Mutex<BTreeMap<&'static str, u64>>);

impl Events {
    /// It happened once more.
    pub fn count(&self, event: &'static str) {
        self.add(event, 1);
    }

    /// It happened so many times more.
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
