//! Published streams sent to other servers over RTMP or RTMPS (`[[push]]`).
//!
//! A push is a task that reads the stream as an attendant, a cursor that no viewer notices. Nothing
//! is queued per target except 64 KiB of output: while a target is slow, the cursor falls behind,
//! and beyond `max_lag` it skips to the newest key frame. Each second, [`Pushes::tend`] starts the
//! missing tasks and ends those without a rule.

mod connection;
mod counts;
mod task;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use relay::{Registry, Status, Stream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::client::Clients;
use crate::config;
use crate::ingest::pull::Via;
use crate::names::matches;
use crate::sync::lock;

pub(crate) use counts::{PushCounts, PushEvent, Target, TargetCounts};
use task::PushTask;

/// Maximum number of streams with known servers that they passed.
const MAX_PASSED: usize = 100_000;

/// A running push.
#[derive(Debug)]
struct RunningPush {
    stream: Arc<Stream>,
    rule: config::Push,
    end: Arc<Notify>,
    task: JoinHandle<()>,
}

/// All pushes of the process. Reloads keep them.
#[derive(Debug, Default)]
pub struct Pushes {
    /// Running pushes by name of the stream.
    running: Mutex<HashMap<String, Vec<RunningPush>>>,
    counts: Arc<PushCounts>,
    /// Servers that published streams passed, by name of the stream.
    passed: Mutex<HashMap<String, Via>>,
}

impl Pushes {
    /// Stores the servers that a published stream passed.
    pub(crate) fn set_passed(&self, name: &str, via: Via) {
        let mut passed = lock(&self.passed);
        passed.remove(name);
        if !via.is_empty() && passed.len() < MAX_PASSED {
            passed.insert(name.to_owned(), via);
        }
    }

    /// Starts the pushes that the rules ask for, and ends those without a rule. Called each second.
    pub(crate) fn tend(
        &self,
        rules: &[config::Push],
        clients: &Clients,
        streams: &Registry,
        runtime: &Handle,
    ) {
        let mut running = lock(&self.running);
        running.retain(|_, pushes| {
            pushes.retain(|push| {
                if !rules.contains(&push.rule) {
                    push.end.notify_one();
                }
                !push.task.is_finished()
            });
            !pushes.is_empty()
        });
        if rules.is_empty() {
            return lock(&self.passed).clear();
        }
        let streams = streams.all();
        for stream in streams.iter().filter(|stream| stream.status() == Status::Live) {
            let name = stream.name();
            for rule in rules.iter().filter(|rule| matches(&rule.stream, name)) {
                let pushes = running.entry(name.to_owned()).or_default();
                let is_same =
                    |push: &RunningPush| push.rule == *rule && Arc::ptr_eq(&push.stream, stream);
                if pushes.iter().any(is_same) {
                    continue;
                }
                let via = lock(&self.passed).get(name).cloned().unwrap_or_default();
                let end = Arc::new(Notify::new());
                let client = clients.of(rule.ca_file.as_deref()).clone();
                let counts = self.counts.of(rule);
                let task = PushTask {
                    stream: stream.clone(),
                    rule: rule.clone(),
                    client,
                    passed: via.text(),
                    counts,
                };
                let task = runtime.spawn(task.run(end.clone()));
                let (stream, rule) = (stream.clone(), rule.clone());
                pushes.push(RunningPush { stream, rule, end, task });
            }
        }
        running.retain(|_, pushes| !pushes.is_empty());
        let live: HashMap<&str, ()> = streams.iter().map(|stream| (stream.name(), ())).collect();
        lock(&self.passed).retain(|name, _| live.contains_key(name.as_str()));
    }

    /// Returns the counts of each target.
    pub(crate) fn counts(&self) -> Vec<(Target, Arc<TargetCounts>)> {
        self.counts.all()
    }
}

#[cfg(test)]
mod tests;
