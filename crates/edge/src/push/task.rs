//! The task of a push: connects until the stream ends.

use std::sync::Arc;
use std::time::Duration;

use relay::{Lags, Start, Stream, Viewer};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::connection::{Failure, Pushing, connect};
use super::counts::{PushEvent, TargetCounts};
use crate::client::Client;
use crate::config;
use crate::entropy::jitter;

/// Wait before the second attempt; each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// A connection that lasted for this time resets the wait.
const STABLE: Duration = Duration::from_secs(30);
/// Interval of log lines about failures for the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(600);

/// Sends a stream to a target.
pub(super) struct PushTask {
    pub stream: Arc<Stream>,
    pub rule: config::Push,
    pub client: Client,
    /// Servers that the stream passed, and this one, as a CDN-Loop field.
    pub passed: String,
    pub counts: Arc<TargetCounts>,
}

impl PushTask {
    /// Runs until the stream ends, or `end` is notified.
    pub(super) async fn run(self, end: Arc<Notify>) {
        let name = self.stream.name().to_owned();
        let target = self.rule.url.as_ref().map(ToString::to_string).unwrap_or_default();
        tokio::select! {
            () = self.push(&name, &target) => {
                self.counts.count(PushEvent::Ended);
                tracing::info!("{name}: push ended with the stream target={target}");
            }
            () = end.notified() => {
                tracing::info!("{name}: push ended, no rule target={target}");
            }
        }
    }

    async fn push(&self, name: &str, target: &str) {
        let mut wait = FIRST_WAIT.min(self.rule.retry);
        let mut logged: Option<(PushEvent, Instant)> = None;
        loop {
            let start = Instant::now();
            let Err(Failure { event, text }) = self.attempt(name, target).await else { return };
            self.counts.count(event);
            if start.elapsed() >= STABLE {
                wait = FIRST_WAIT.min(self.rule.retry);
            }
            let is_known =
                logged.is_some_and(|(known, at)| known == event && at.elapsed() < LOG_INTERVAL);
            if !is_known {
                logged = Some((event, Instant::now()));
                let text = self.rule.key.as_ref().map_or(text.clone(), |key| key.hidden_in(&text));
                let reason = event.name();
                tracing::warn!("{name}: push failed target={target} reason={reason}: {text}");
            }
            sleep(jittered(wait)).await;
            wait = (wait * 2).min(self.rule.retry);
        }
    }

    /// Returns `Ok` at the end of the stream.
    async fn attempt(&self, name: &str, target: &str) -> Result<(), Failure> {
        let url = self
            .rule
            .url
            .as_ref()
            .and_then(|url| url.url(name, tail(&self.rule, name), self.rule.key.as_ref()));
        let invalid = || Failure::new(PushEvent::Unreachable, "no URL for this stream");
        let url = url.ok_or_else(invalid)?;
        let limit = self.rule.timeout;
        let connection = connect(&self.client, &url, limit).await?;
        let max_lag = u32::try_from(self.rule.max_lag.as_millis()).unwrap_or(u32::MAX);
        let lags = Lags { thin: u32::MAX, skip: max_lag };
        let mut viewer = Viewer::attendant(self.stream.clone(), Start::LatestGop, lags);
        let mut pushing = Pushing::new(url, self.passed.clone(), &self.counts, limit);
        let result = pushing.run(connection, &mut viewer).await;
        if pushing.is_accepted() {
            tracing::debug!("{name}: push was accepted target={target}");
        }
        result
    }
}

/// Returns the part of the stream's name that the `*` of the rule matches.
fn tail<'a>(rule: &config::Push, name: &'a str) -> &'a str {
    rule.stream.strip_suffix('*').and_then(|start| name.strip_prefix(start)).unwrap_or(name)
}

/// Returns a random time between half of `wait` and `wait`, so that many pushes do not return to a
/// restarted target at once.
fn jittered(wait: Duration) -> Duration {
    (wait / 2).mul_f64(1.0 + jitter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_over_their_second_half() {
        let wait = Duration::from_secs(8);
        let all: Vec<Duration> = (0..200).map(|_| jittered(wait)).collect();
        assert!(all.iter().all(|time| (wait / 2..=wait).contains(time)), "{all:?}");
        let late = all.iter().filter(|time| **time > wait * 3 / 4).count();
        assert!((40..=160).contains(&late), "{late}");
    }
}
