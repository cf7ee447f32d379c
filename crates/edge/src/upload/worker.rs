//! The thread of an upload: repeats passes over its directory, with back-off after failures.

use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use rand_chacha::rand_core::Rng as _;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::counts::UploadCounts;
use super::recordings::RecordingUpload;
use super::records::RecordUpload;
use super::rule::{UploadKind, UploadRule};
use super::store::{Store, StoreError};
use crate::entropy::generator;

/// Interval of passes over a directory without news.
const INTERVAL: Duration = Duration::from_secs(3);
/// Wait after the first failure. Each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Maximum wait after failures.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Interval of log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Handle of the thread, which ends with it.
#[derive(Debug)]
pub(super) struct Worker {
    counts: Arc<UploadCounts>,
    /// Tells the thread to end.
    stop: Arc<Notify>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(rule: &UploadRule) -> io::Result<Self> {
        let (counts, stop) = (Arc::<UploadCounts>::default(), Arc::<Notify>::default());
        let (rule, own) = (rule.clone(), (counts.clone(), stop.clone()));
        Builder::new().name("uploads".to_owned()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    runtime.block_on(run(&rule, own));
                    // Look-ups of names in progress must not delay the end.
                    runtime.shutdown_background();
                }
                Err(error) => tracing::error!("no uploads: {error}"),
            }
        })?;
        Ok(Self { counts, stop })
    }

    pub(super) fn counts(&self) -> &Arc<UploadCounts> {
        &self.counts
    }
}

/// Runs passes until `stop` is notified, also in the middle of one.
async fn run(rule: &UploadRule, (counts, stop): (Arc<UploadCounts>, Arc<Notify>)) {
    let repeat = async {
        let mut failures = Failures::default();
        let mut job = None;
        loop {
            match pass(rule, &mut job, &counts).await {
                Ok(has_more) => {
                    failures.reset(rule);
                    if !has_more {
                        sleep(INTERVAL).await;
                    }
                }
                Err(error) => {
                    UploadCounts::add(&counts.failures, 1);
                    sleep(failures.next(rule, &error)).await;
                }
            }
        }
    };
    tokio::select! {
        () = repeat => {}
        () = stop.notified() => {}
    }
}

/// A pass over a directory.
enum Job {
    Recordings(RecordingUpload),
    Records(RecordUpload),
}

/// Uploads some files. Returns whether there are more.
async fn pass(
    rule: &UploadRule,
    job: &mut Option<Job>,
    counts: &Arc<UploadCounts>,
) -> Result<bool, StoreError> {
    let job = match job {
        Some(job) => job,
        None => {
            let (store, directory) = (Store::open(&rule.url)?, rule.directory.clone());
            job.insert(match rule.kind {
                UploadKind::Recordings => {
                    Job::Recordings(RecordingUpload::new(directory, store, counts.clone()))
                }
                UploadKind::Records => {
                    Job::Records(RecordUpload::new(directory, store, counts.clone()))
                }
            })
        }
    };
    match job {
        Job::Recordings(job) => job.pass().await,
        Job::Records(job) => job.pass().await,
    }
}

/// Consecutive failures.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    logged: Option<Instant>,
}

impl Failures {
    fn reset(&mut self, rule: &UploadRule) {
        if std::mem::take(&mut self.count) > 0 && self.logged.take().is_some() {
            tracing::info!("{}: upload resumed", rule.directory.display());
        }
    }

    /// Logs a failure, once per [`LOG_INTERVAL`], and returns the time until the next attempt.
    fn next(&mut self, rule: &UploadRule, error: &StoreError) -> Duration {
        if self.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged = Some(Instant::now());
            let directory = rule.directory.display();
            tracing::warn!("{directory}: upload to {} failed, will be repeated: {error}", rule.url);
        }
        self.count = self.count.saturating_add(1);
        back_off(self.count, generator().next_u64())
    }
}

/// Returns the wait after this number of consecutive failures: doubled with each, and shortened by
/// a random part of up to a half.
fn back_off(failures: u32, random: u64) -> Duration {
    let full = FIRST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(MAX_WAIT);
    full.mul_f64(1.0 - 0.5 * (random >> 11) as f64 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_vary() {
        let waits: Vec<Duration> = (1..10).map(|failures| back_off(failures, 0)).collect();
        assert_eq!(waits[..3], [1, 2, 4].map(Duration::from_secs));
        assert_eq!(*waits.last().expect("some"), MAX_WAIT);
        assert_eq!(back_off(u32::MAX, 0), MAX_WAIT);
        let least = back_off(1, u64::MAX);
        assert!(least >= FIRST_WAIT / 2 && least < FIRST_WAIT.mul_f64(0.51), "{least:?}");
    }
}
