//! Key sets of the rules: read from files, and fetched from URLs in the background. A set that
//! cannot be loaded leaves the last good one in use.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http_body_util::{BodyExt as _, Limited};
use hyper::Method;
use jsonwebtoken::{Algorithm, DecodingKey};
use tokio::time::timeout;
use url::Url;

use super::error::{Part, TokenError};
use super::keys::KeySet;
use crate::Error;
use crate::client::{Client, Failure, Reach, authorization, no_answer};
use crate::config::{Config, KeySource};
use crate::disk::small;
use crate::sync::lock;

/// Maximum size of a key set in bytes.
const MAX_SET: usize = 256 << 10;
/// Interval between checks of a file.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// First wait after a failed fetch; it doubles up to `[tokens] refresh`.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// Minimum time between fetches that tokens with unknown key IDs cause.
const MIN_INTERVAL: Duration = Duration::from_secs(30);

/// The key sets of a configuration.
#[derive(Debug)]
pub(crate) struct KeySets {
    sets: BTreeMap<KeySource, Arc<Source>>,
    /// Client of fetches.
    client: Client,
    counts: Arc<Counts>,
}

/// Counts of events since the start of the process.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    rejected: [AtomicU64; Part::ALL.len()],
    loaded: AtomicU64,
    failed: AtomicU64,
}

/// A key set and its state.
#[derive(Debug, Default)]
struct Source {
    keys: ArcSwapOption<KeySet>,
    /// A token had an unknown key ID.
    is_wanted: AtomicBool,
    schedule: Mutex<Schedule>,
}

#[derive(Debug, Default)]
struct Schedule {
    is_running: bool,
    /// Start of the last attempt.
    last: Option<Instant>,
    /// Failures since the last success.
    failures: u32,
    /// The last failure, for the log.
    why: Option<String>,
    /// Content at the last success.
    content: Vec<u8>,
}

impl Schedule {
    /// Whether an attempt is due.
    fn is_due(&self, interval: Duration, is_wanted: bool, now: Instant) -> bool {
        let Some(last) = self.last.filter(|_| !self.is_running) else { return !self.is_running };
        let wait = match self.failures {
            0 if is_wanted => MIN_INTERVAL.min(interval),
            0 => interval,
            count => (FIRST_RETRY * 2u32.saturating_pow(count.min(16) - 1)).min(interval),
        };
        now.saturating_duration_since(last) >= wait
    }
}

/// A set of keys in use.
pub(super) struct InUse<'a> {
    keys: Arc<KeySet>,
    source: &'a Source,
}

impl InUse<'_> {
    /// As [`KeySet::find`]. An unknown key ID causes a fetch, since keys may have been replaced.
    pub(super) fn find(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
    ) -> Result<Vec<DecodingKey>, TokenError> {
        let found = self.keys.find(algorithm, id);
        if found.is_err() {
            self.source.is_wanted.store(true, Ordering::Relaxed);
        }
        Ok(found?.into_iter().cloned().collect())
    }
}

impl KeySets {
    /// Reads the files of the rules' key sets. Sets of URLs are kept from the `running`
    /// configuration, or fetched later by [`KeySets::tick`].
    ///
    /// # Errors
    /// One line: a file is unreadable or has no usable key.
    pub(crate) fn load(config: &Config, running: Option<&Self>) -> Result<Self, Error> {
        let play = config.play.iter().filter_map(|rule| rule.jwks.as_ref());
        let publish = config.publish.iter().filter_map(|rule| rule.jwks.as_ref());
        let mut sets = BTreeMap::new();
        for source in play.chain(publish) {
            let known = running.and_then(|running| running.sets.get(source)).cloned();
            let known = known.unwrap_or_default();
            if let KeySource::File(path) = source {
                let failed = |e: String| Error::new(format!("jwks {}: {e}", path.display()));
                let content = read(path).map_err(failed)?;
                known.accept(content).map_err(failed)?;
            }
            sets.insert(source.clone(), known);
        }
        let client = match &config.tokens.ca_file {
            Some(path) => {
                let failed =
                    |e: String| Error::new(format!("[tokens] ca_file {}: {e}", path.display()));
                let pem =
                    small::read(path, small::MAX_SECRET).map_err(|e| failed(e.to_string()))?;
                Client::of_pem(&pem).map_err(|e| failed(e.to_string()))?
            }
            None => Client::system().clone(),
        };
        let counts = running.map_or_else(Arc::default, |running| running.counts.clone());
        Ok(Self { sets, client, counts })
    }

    /// Returns the keys of a source; `None` if they are not loaded yet.
    pub(super) fn get(&self, source: &KeySource) -> Option<InUse<'_>> {
        let source = self.sets.get(source)?;
        Some(InUse { keys: source.keys.load_full()?, source })
    }

    /// Counts the outcome of a token.
    pub(crate) fn count<T>(&self, outcome: &Result<T, TokenError>) {
        let counter = match outcome {
            Ok(_) => &self.counts.accepted,
            Err(why) => &self.counts.rejected[why.part as usize],
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts of tokens by outcome: `accepted`, or the wrong part.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let accepted = ("accepted", self.counts.accepted.load(Ordering::Relaxed));
        let rejected = Part::ALL.iter().zip(&self.counts.rejected);
        let rejected = rejected.map(|(part, count)| (part.name(), count.load(Ordering::Relaxed)));
        core::iter::once(accepted).chain(rejected)
    }

    /// Returns the counts of key sets that were loaded, and that could not be.
    pub(crate) fn loads(&self) -> [(&'static str, u64); 2] {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("loaded", count(&self.counts.loaded)), ("failed", count(&self.counts.failed))]
    }

    /// Starts an attempt for each set that is due, on this runtime. Call it periodically.
    pub(crate) fn tick(&self, refresh: Duration, now: Instant) {
        for (source, state) in &self.sets {
            let interval = match source {
                KeySource::File(_) => FILE_INTERVAL,
                KeySource::Url(_) => refresh,
            };
            {
                let mut schedule = lock(&state.schedule);
                let is_wanted = state.is_wanted.load(Ordering::Relaxed);
                if !schedule.is_due(interval, is_wanted, now) {
                    continue;
                }
                (schedule.is_running, schedule.last) = (true, Some(now));
                state.is_wanted.store(false, Ordering::Relaxed);
            }
            let (source, state) = (source.clone(), state.clone());
            let (client, counts) = (self.client.clone(), self.counts.clone());
            tokio::spawn(async move {
                let content = match &source {
                    KeySource::File(path) => {
                        let path = path.clone();
                        // Reading a file can block.
                        let read = tokio::task::spawn_blocking(move || read(&path));
                        read.await.unwrap_or_else(|e| Err(e.to_string()))
                    }
                    KeySource::Url(url) => fetch(&client, &url.0).await.map_err(|why| why.0),
                };
                state.finish(&source, content, &counts);
            });
        }
    }
}

impl Source {
    /// Uses the keys in this content. Returns whether it is new.
    fn accept(&self, content: Vec<u8>) -> Result<bool, String> {
        let mut schedule = lock(&self.schedule);
        if schedule.content == content && self.keys.load().is_some() {
            return Ok(false);
        }
        let keys = KeySet::parse(&content).map_err(|e| e.to_string())?;
        self.keys.store(Some(Arc::new(keys)));
        schedule.content = content;
        Ok(true)
    }

    /// Ends an attempt, and logs news.
    fn finish(&self, source: &KeySource, content: Result<Vec<u8>, String>, counts: &Counts) {
        let outcome = content.and_then(|content| self.accept(content));
        let count = self.keys.load().as_ref().map_or(0, |keys| keys.len());
        let mut schedule = lock(&self.schedule);
        schedule.is_running = false;
        match outcome {
            Ok(is_new) => {
                if is_new || schedule.why.is_some() {
                    tracing::info!("key set loaded: {source} keys={count}");
                }
                counts.loaded.fetch_add(u64::from(is_new), Ordering::Relaxed);
                (schedule.failures, schedule.why) = (0, None);
            }
            Err(why) => {
                if schedule.why.as_ref() != Some(&why) {
                    tracing::warn!("key set not loaded: {source}: {why}; keys in use: {count}");
                }
                counts.failed.fetch_add(1, Ordering::Relaxed);
                (schedule.failures, schedule.why) =
                    (schedule.failures.saturating_add(1), Some(why));
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    small::read(path, MAX_SET).map_err(|e| e.to_string())
}

/// Fetches a key set. Redirections are not followed.
async fn fetch(client: &Client, url: &Url) -> Result<Vec<u8>, Failure> {
    let got = async {
        let headers = authorization(url);
        let sent = client.send(Reach::Anywhere, Method::GET, url, headers, bytes::Bytes::new());
        let response = sent.await?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(Failure(format!("status {status}, expected 200")));
        }
        let body = Limited::new(response.into_body(), MAX_SET).collect().await;
        let body = body.map_err(|e| Failure(format!("content: {e}")))?;
        Ok(body.to_bytes().to_vec())
    };
    timeout(FETCH_TIMEOUT, got).await.unwrap_or_else(|_| Err(no_answer(FETCH_TIMEOUT)))
}

#[cfg(test)]
mod tests;
