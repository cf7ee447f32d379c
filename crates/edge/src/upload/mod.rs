//! Uploads of recordings and session records to object stores or shared folders (`[[record]]
//! upload`, `[records] upload`).
//!
//! The local directory is the queue: a thread per directory compares it with what the store has,
//! and uploads the rest, oldest first. Nothing waits for it. While the store is away or slow, files
//! stay in the directory within its own limits (`keep`, `max_size`).

mod counts;
mod progress;
mod recordings;
mod records;
mod rule;
mod store;
mod worker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::config::Config;
use crate::sync::lock;

use counts::UploadCounts;
pub(crate) use progress::{PROGRESS, is_complete};
use rule::UploadRule;
pub(crate) use store::{Store, environment};
use worker::Worker;

/// All uploads of the process. Reloads keep them.
#[derive(Debug, Default)]
pub struct Uploads {
    workers: Mutex<HashMap<UploadRule, Worker>>,
}

impl Uploads {
    /// Starts the uploads that the configuration asks for, and ends others. Called each second.
    pub(crate) fn tend(&self, config: &Config) {
        let rules = UploadRule::all(config);
        let mut workers = lock(&self.workers);
        // Dropping a worker ends its thread.
        workers.retain(|rule, _| rules.contains(rule));
        for rule in rules {
            if workers.contains_key(&rule) {
                continue;
            }
            match Worker::start(&rule) {
                Ok(worker) => _ = workers.insert(rule, worker),
                Err(error) => tracing::error!("no uploads: cannot start a thread: {error}"),
            }
        }
    }

    /// Returns the counts of each directory.
    pub(crate) fn counts(&self) -> Vec<(String, Arc<UploadCounts>)> {
        let workers = lock(&self.workers);
        let counts = |(rule, worker): (&UploadRule, &Worker)| {
            (rule.directory.display().to_string(), worker.counts().clone())
        };
        let mut all: Vec<_> = workers.iter().map(counts).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

#[cfg(test)]
mod tests;
