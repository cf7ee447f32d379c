//! HTTP hooks: the operator's server is asked before a client publishes or plays, and notified
//! after a viewer has left.
//!
//! Requests are POSTs of JSON. A status of 200 to 299 grants, any other rejects. With a secret,
//! `x-mendcast-signature: sha256=HEX` is the HMAC of the body. `[hooks] on_failure` sets the
//! effect of a failing hook. If a kept-alive connection is closed instead of answered, the request
//! is sent once more, so a hook may see it twice.

mod turns;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use hyper::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Client, Failure};
use crate::config::{self, HttpUrl};
use crate::hex::hex;
use crate::redacted::Redacted;
use crate::sync::lock;
pub(crate) use turns::Asker;
use turns::{QueueFull, Turn, Turns};

/// Maximum bytes read of a response.
const MAX_ANSWER: usize = 4_096;

/// The event of a hook.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hook {
    /// A client wants to publish.
    Publish,
    /// A client wants to play.
    Play,
    /// A viewer's session ended.
    Close,
}

impl Hook {
    const fn name(self) -> &'static str {
        match self {
            Self::Publish => "on_publish",
            Self::Play => "on_play",
            Self::Close => "on_close",
        }
    }

    fn url(self, config: &config::Hooks) -> Option<&HttpUrl> {
        match self {
            Self::Publish => config.on_publish.as_ref(),
            Self::Play => config.on_play.as_ref(),
            Self::Close => config.on_close.as_ref(),
        }
    }
}

/// The source of a permission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant {
    /// The operator's server.
    Hook,
    /// No hook is configured, or it failed and `on_failure` allows.
    Nobody,
}

/// Reason for a rejection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denied {
    /// The hook rejects, or fails.
    Refused(String),
    /// Too many queries are queued for this hook.
    Busy(Hook),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Busy(hook) => write!(f, "too many queries wait for the {} hook", hook.name()),
        }
    }
}

/// Queries of one kind.
#[derive(Debug, Default)]
struct Queries {
    turns: Turns,
    /// Rejected because the queue was full.
    full: AtomicU64,
    /// Timed out in the queue.
    late: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct HookOutcome {
    url: String,
    ok: u64,
    failed: u64,
    last_error: Option<String>,
}

/// Maximum concurrent notifications: the end of a stream causes one per viewer.
const MAX_CONCURRENT_NOTIFICATIONS: usize = 32;
/// Maximum pending notifications. Viewers choose how fast sessions end, and an unresponsive hook
/// takes only [`MAX_CONCURRENT_NOTIFICATIONS`] per `[hooks] timeout`.
const MAX_NOTIFICATIONS: usize = 10_000;
/// Error of a dropped notification.
const TOO_MANY_PENDING: &str = "too many pending notifications";

/// Settings that apply to all hooks at once, even on connections with an older configuration.
#[derive(Debug, Default)]
struct Terms {
    secret: Option<String>,
    timeout: Duration,
    max_at_once: usize,
}

/// The state of all hooks.
#[derive(Debug)]
pub struct Hooks {
    terms: ArcSwap<Terms>,
    outcomes: Mutex<BTreeMap<Hook, HookOutcome>>,
    notifications: Mutex<JoinSet<()>>,
    places: Arc<Semaphore>,
    play: Queries,
    publish: Queries,
}

impl Default for Hooks {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(MAX_CONCURRENT_NOTIFICATIONS));
        Self {
            terms: ArcSwap::default(),
            outcomes: Mutex::default(),
            notifications: Mutex::default(),
            places,
            play: Queries::default(),
            publish: Queries::default(),
        }
    }
}

impl Hooks {
    /// Applies this configuration's secret and timeout from now on.
    pub fn follow(&self, config: &config::Hooks) {
        let terms = Terms {
            secret: config.secret.clone(),
            timeout: config.timeout,
            max_at_once: config.max_at_once as usize,
        };
        self.terms.store(Arc::new(terms));
    }

    /// Asks for a permission, which is granted if there is no such hook. Waiting in the queue takes
    /// at most half of the timeout, so that the hook has the other half to answer.
    ///
    /// # Errors
    /// The reason, for the log and the publisher's user.
    pub(crate) async fn ask(
        &self,
        config: &config::Hooks,
        hook: Hook,
        asker: Asker,
        content: Value,
    ) -> Result<Grant, Denied> {
        let Some(url) = hook.url(config) else { return Ok(Grant::Nobody) };
        let (begun, limit) = (Instant::now(), self.terms.load().timeout);
        let Some(_turn) = self.turn(hook, asker, limit / 2).await? else {
            return match config.on_failure {
                config::OnFailure::Allow => Ok(Grant::Nobody),
                config::OnFailure::Refuse => Err(Denied::Busy(hook)),
            };
        };
        let limit = limit.saturating_sub(begun.elapsed());
        let (answered, why) = match self.call(hook, url, content, limit).await {
            Ok(status @ 200..=299) => {
                tracing::debug!("{} granted with {status}", hook.name());
                return Ok(Grant::Hook);
            }
            Ok(status) => (true, format!("the {} hook answered {status}", hook.name())),
            Err(why) => (false, format!("the {} hook failed: {why}", hook.name())),
        };
        match config.on_failure {
            config::OnFailure::Allow if !answered => Ok(Grant::Nobody),
            _ => Err(Denied::Refused(why)),
        }
    }

    /// Waits for a turn; `None` after `limit`.
    async fn turn(
        &self,
        hook: Hook,
        asker: Asker,
        limit: Duration,
    ) -> Result<Option<Turn>, Denied> {
        let queries = match hook {
            Hook::Publish => &self.publish,
            Hook::Play | Hook::Close => &self.play,
        };
        let turn = queries.turns.take(asker, self.terms.load().max_at_once);
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        match timeout(limit, turn).await {
            Ok(Ok(turn)) => Ok(Some(turn)),
            Ok(Err(QueueFull)) => {
                count(&queries.full);
                Err(Denied::Busy(hook))
            }
            Err(_) => {
                count(&queries.late);
                Ok(None)
            }
        }
    }

    /// Returns the queries that were never sent, by reason.
    pub(crate) fn limited(&self) -> [(&'static str, u64); 4] {
        let Self { play, publish, .. } = self;
        [
            ("on_play_full", &play.full),
            ("on_play_late", &play.late),
            ("on_publish_full", &publish.full),
            ("on_publish_late", &publish.late),
        ]
        .map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
    }

    /// Sends a notification without waiting for the response. Fails at once if too many are
    /// pending.
    pub fn notify(self: &Arc<Self>, config: &config::Hooks, hook: Hook, content: Value) {
        if hook.url(config).is_none() {
            return;
        }
        let (hooks, config) = (self.clone(), config.clone());
        let mut notifications = lock(&self.notifications);
        while notifications.try_join_next().is_some() {}
        if notifications.len() >= MAX_NOTIFICATIONS {
            self.count_failure(hook, TOO_MANY_PENDING);
            return;
        }
        notifications.spawn(async move {
            let _place = hooks.places.acquire().await;
            if let Some(url) = hook.url(&config) {
                let limit = hooks.terms.load().timeout;
                // The outcome is counted.
                let _ = hooks.call(hook, url, content, limit).await;
            }
        });
    }

    fn count_failure(&self, hook: Hook, why: &str) {
        let mut outcomes = self.lock();
        let outcome = outcomes.entry(hook).or_default();
        outcome.failed += 1;
        // Repeated errors are logged once.
        if outcome.last_error.as_deref() != Some(why) {
            tracing::warn!("{}: {why}", hook.name());
            outcome.last_error = Some(why.to_owned());
        }
    }

    /// Waits until all notifications are sent, for at most `limit`.
    pub async fn finish_notifications(&self, limit: Duration) {
        let notifications = core::mem::take(&mut *lock(&self.notifications));
        let count = notifications.len();
        if timeout(limit, notifications.join_all()).await.is_err() {
            tracing::warn!("hooks: not all of {count} notifications sent within {limit:?}");
        }
    }

    async fn call(
        &self,
        hook: Hook,
        HttpUrl(url): &HttpUrl,
        mut content: Value,
        limit: Duration,
    ) -> Result<u16, Failure> {
        content["event"] = hook.name().into();
        let body = content.to_string();
        let mut headers = HeaderMap::new();
        let terms = self.terms.load_full();
        if let Some(secret) = &terms.secret {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            let tag = hmac::sign(&key, body.as_bytes());
            let signature = HeaderValue::try_from(format!("sha256={}", hex(tag.as_ref())));
            headers.insert("x-mendcast-signature", signature.expect("digits"));
        }
        let asked = Client::system().post_json(url, headers, body, MAX_ANSWER, limit);
        let result = asked.await;
        let mut outcomes = self.lock();
        let outcome = outcomes.entry(hook).or_default();
        outcome.url = Redacted(url).to_string();
        match result {
            Ok(status) => {
                outcome.ok += 1;
                Ok(status)
            }
            Err(failure) => {
                outcome.failed += 1;
                outcome.last_error = Some(failure.to_string());
                tracing::warn!("{}: {failure}", hook.name());
                Err(failure)
            }
        }
    }

    /// Returns the state of all hooks for the dashboard.
    pub fn describe(&self) -> Value {
        let describe = |(hook, outcome): (&Hook, &HookOutcome)| {
            json!({
                "event": hook.name(),
                "url": outcome.url,
                "ok": outcome.ok,
                "failed": outcome.failed,
                "last_error": outcome.last_error,
            })
        };
        self.lock().iter().map(describe).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Hook, HookOutcome>> {
        lock(&self.outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn notifications_for_a_silent_hook_are_bounded() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = silent.local_addr().expect("bound");
        let text = format!("[hooks]\non_close = \"http://{address}/\"\ntimeout = \"60s\"");
        let config = Config::parse("edge.toml", &text).expect("valid").hooks;
        let hooks = Arc::new(Hooks::default());
        hooks.follow(&config);
        let notify = |count| (0..count).for_each(|_| hooks.notify(&config, Hook::Close, json!({})));
        notify(MAX_NOTIFICATIONS + 7);
        assert_eq!(lock(&hooks.notifications).len(), MAX_NOTIFICATIONS);
        let described = hooks.describe();
        assert_eq!((&described[0]["failed"], &described[0]["ok"]), (&7.into(), &0.into()));
        assert_eq!(described[0]["last_error"], TOO_MANY_PENDING);
        // Finished notifications free their places.
        lock(&hooks.notifications).abort_all();
        while lock(&hooks.notifications).try_join_next().is_none() {
            tokio::task::yield_now().await;
        }
        notify(1);
        assert_eq!(hooks.describe()[0]["failed"], 7);
    }
}
