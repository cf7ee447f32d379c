//! Streams recorded to disk as fMP4 segments and HLS playlists (`[[record]]`).
//!
//! A task packages the stream as an attendant, a cursor that no viewer notices. A thread per
//! directory writes. The queue between them is bounded in bytes: while the disk is slow, full or
//! away, segments are dropped, and the playlist names them as gaps.

mod directory;
mod entries;
#[cfg(test)]
pub(crate) mod fixture;
mod playlist;
mod render;
mod retention;
mod segment;
pub(crate) mod stored;
mod take;
mod task;
mod time_shift;
mod window;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use relay::{Registry, Status, Stream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::config;
use crate::names::matches;
use crate::sync::lock;

pub(crate) use entries::RecordedFile;
pub(crate) use take::write_file;
use task::RecordTask;
pub use time_shift::TimeShifts;
pub(crate) use time_shift::{NoTimeShift, ShiftedStream, rule_of};
pub(crate) use window::RenderedPlaylist;
pub(crate) use writer::{RecordCounts, Writer};

/// Interval of removals of old recordings.
const TIDY_INTERVAL: Duration = Duration::from_secs(60);

/// A running recording.
#[derive(Debug)]
struct RunningRecording {
    stream: Arc<Stream>,
    rule: config::Recording,
    end: Arc<Notify>,
    task: JoinHandle<()>,
}

/// All recordings of the process. Reloads keep them.
#[derive(Debug, Default)]
pub struct Recordings {
    running: Mutex<Vec<RunningRecording>>,
    /// Writers by directory. They stay until the process ends.
    writers: Mutex<HashMap<PathBuf, Arc<Writer>>>,
    /// Time of the last removal of old recordings.
    tidied: Mutex<Option<Instant>>,
    /// Whether streams end because the process does: their recordings continue after a restart.
    is_leaving: Arc<AtomicBool>,
}

impl Recordings {
    /// Starts the recordings that the rules ask for, and ends those without a rule. Called each
    /// second.
    pub(crate) fn tend(&self, rules: &[config::Recording], streams: &Registry, runtime: &Handle) {
        let mut running = lock(&self.running);
        running.retain(|recording| {
            if !rules.contains(&recording.rule) {
                recording.end.notify_one();
            }
            !recording.task.is_finished()
        });
        if rules.is_empty() {
            return;
        }
        self.tidy(rules);
        let streams = streams.all();
        for stream in streams.iter().filter(|stream| stream.status() == Status::Live) {
            for rule in rules.iter().filter(|rule| matches(&rule.stream, stream.name())) {
                // Two recordings of a stream must not write to one directory.
                let is_same = |recording: &RunningRecording| {
                    recording.rule.directory == rule.directory
                        && recording.stream.name() == stream.name()
                };
                if running.iter().any(is_same) {
                    continue;
                }
                let Some(writer) = self.writer(rule) else { continue };
                let end = Arc::new(Notify::new());
                let task = RecordTask {
                    stream: stream.clone(),
                    rule: rule.clone(),
                    writer,
                    is_leaving: self.is_leaving.clone(),
                };
                let task = runtime.spawn(task.run(end.clone()));
                let (stream, rule) = (stream.clone(), rule.clone());
                running.push(RunningRecording { stream, rule, end, task });
            }
        }
    }

    /// Whether the stream is being recorded in this directory.
    pub(crate) fn is_running(&self, stream: &str, directory: &Path) -> bool {
        lock(&self.running).iter().any(|recording| {
            recording.stream.name() == stream
                && recording.rule.directory.as_deref() == Some(directory)
                && !recording.task.is_finished()
        })
    }

    /// Lets the writers remove old recordings, once per [`TIDY_INTERVAL`].
    fn tidy(&self, rules: &[config::Recording]) {
        let mut tidied = lock(&self.tidied);
        if tidied.is_some_and(|at| at.elapsed() < TIDY_INTERVAL) {
            return;
        }
        *tidied = Some(Instant::now());
        for rule in rules {
            if let Some(writer) = self.writer(rule) {
                writer.tidy(rule);
            }
        }
    }

    /// Returns the writer of the rule's directory, started if necessary. `None` if no thread can
    /// be started.
    fn writer(&self, rule: &config::Recording) -> Option<Arc<Writer>> {
        let directory = rule.directory.clone()?;
        let mut writers = lock(&self.writers);
        if let Some(writer) = writers.get(&directory) {
            return Some(writer.clone());
        }
        match Writer::start(&directory) {
            Ok(writer) => {
                let writer = Arc::new(writer);
                writers.insert(directory, writer.clone());
                Some(writer)
            }
            Err(error) => {
                tracing::error!("no recording: {error}");
                None
            }
        }
    }

    /// Marks the start of the drain.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Ends all recordings, and waits until their media is written, for at most `limit`.
    pub(crate) async fn finish(&self, limit: Duration) {
        self.leave();
        let until = Instant::now() + limit;
        lock(&self.running).iter().for_each(|recording| recording.end.notify_one());
        let is_busy = || {
            let is_running = lock(&self.running).iter().any(|running| !running.task.is_finished());
            is_running || lock(&self.writers).values().any(|writer| !writer.is_idle())
        };
        while is_busy() && Instant::now() < until {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns the counts of each directory, and the number of its running recordings.
    pub(crate) fn counts(&self) -> Vec<(String, Arc<RecordCounts>, u64)> {
        let running = lock(&self.running);
        let of = |directory: &PathBuf| {
            let is_own = |one: &&RunningRecording| {
                one.rule.directory.as_ref() == Some(directory) && !one.task.is_finished()
            };
            running.iter().filter(is_own).count() as u64
        };
        let mut all: Vec<_> = lock(&self.writers)
            .iter()
            .map(|(directory, writer)| {
                (directory.display().to_string(), writer.counts().clone(), of(directory))
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

#[cfg(test)]
mod tests;
