//! HTTP hooks: an operator's own server is asked before somebody publishes or plays, and told when a
//! viewer has left.
//!
//! The request is a POST of JSON; any status from 200 to 299 grants, every other refuses. With a
//! secret, `x-mendcast-signature: sha256=HEX` is the HMAC of the body. What a hook that does not
//! answer means is the operator's choice. One that closes a connection that was kept instead of
//! answering is asked once more, so that the same request may come twice.

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

use crate::client::Client;
use crate::config::{self, HttpUrl};
use crate::hex::hex;
use crate::redacted::Redacted;
use crate::sync::lock;
pub(crate) use turns::Asker;
use turns::{QueueFull, Turn, Turns};

/// The most of an answer that is read.
const MAX_ANSWER: usize = 4_096;

/// What is asked or told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hook {
    /// Somebody wants to publish.
    Publish,
    /// Somebody wants to play.
    Play,
    /// A viewer's session is over.
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

/// Who let somebody in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant {
    /// The operator's server.
    Hook,
    /// There is no hook, or it fails and that means yes.
    Nobody,
}

/// The reason why something may not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denied {
    /// The hook refuses it, or fails.
    Refused(String),
    /// Too many questions wait for this hook.
    Busy(Hook),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Busy(hook) => write!(f, "too many questions wait for the {} hook", hook.name()),
        }
    }
}

/// The questions of one kind.
#[derive(Debug, Default)]
struct Questions {
    turns: Turns,
    /// Refused because the queue was full.
    full: AtomicU64,
    /// Had no turn in time.
    late: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct Outcome {
    url: String,
    ok: u64,
    failed: u64,
    last_error: Option<String>,
}

/// What is told at the same time: the end of a stream is told once for each of its viewers.
const AT_ONCE: usize = 32;
/// What is being told or waits for that. How fast sessions end is their viewers' choice, and a hook that does
/// not answer is told no more than [`AT_ONCE`] in each `[hooks] timeout`.
const MAX_TELLING: usize = 10_000;
/// Why something is not told.
const TOO_MANY: &str = "too many wait to be told";

/// What holds for all hooks at once, also where a connection has an older configuration.
#[derive(Debug, Default)]
struct Terms {
    secret: Option<String>,
    timeout: Duration,
    max_at_once: usize,
}

/// How the hooks did so far, and what is still to be told.
#[derive(Debug)]
pub struct Hooks {
    terms: ArcSwap<Terms>,
    outcomes: Mutex<BTreeMap<Hook, Outcome>>,
    telling: Mutex<JoinSet<()>>,
    places: Arc<Semaphore>,
    play: Questions,
    publish: Questions,
}

impl Default for Hooks {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Self {
            terms: ArcSwap::default(),
            outcomes: Mutex::default(),
            telling: Mutex::default(),
            places,
            play: Questions::default(),
            publish: Questions::default(),
        }
    }
}

impl Hooks {
    /// From now on requests are signed with this configuration's secret, and waited for as long as it says.
    pub fn follow(&self, config: &config::Hooks) {
        let terms = Terms {
            secret: config.secret.clone(),
            timeout: config.timeout,
            max_at_once: config.max_at_once as usize,
        };
        self.terms.store(Arc::new(terms));
    }

    /// Asks whether something may be; without such a hook it may. A question waits for its turn at most
    /// half of the time-out, so that the hook has the other half to answer.
    ///
    /// # Errors
    /// The reason why not, for the log and for the publisher's user.
    pub(crate) async fn ask(
        &self,
        config: &config::Hooks,
        hook: Hook,
        asker: Asker,
        what: Value,
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
        let (answered, why) = match self.call(hook, url, what, limit).await {
            Ok(status @ 200..=299) => {
                tracing::debug!("{} granted with {status}", hook.name());
                return Ok(Grant::Hook);
            }
            Ok(status) => (true, format!("the {} hook answers {status}", hook.name())),
            Err(why) => (false, format!("the {} hook fails: {why}", hook.name())),
        };
        match config.on_failure {
            config::OnFailure::Allow if !answered => Ok(Grant::Nobody),
            _ => Err(Denied::Refused(why)),
        }
    }

    /// Waits for a turn to ask; `None` if there is none within `limit`.
    async fn turn(
        &self,
        hook: Hook,
        asker: Asker,
        limit: Duration,
    ) -> Result<Option<Turn>, Denied> {
        let questions = match hook {
            Hook::Publish => &self.publish,
            Hook::Play | Hook::Close => &self.play,
        };
        let turn = questions.turns.take(asker, self.terms.load().max_at_once);
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        match timeout(limit, turn).await {
            Ok(Ok(turn)) => Ok(Some(turn)),
            Ok(Err(QueueFull)) => {
                count(&questions.full);
                Err(Denied::Busy(hook))
            }
            Err(_) => {
                count(&questions.late);
                Ok(None)
            }
        }
    }

    /// Questions that were not asked, by reason.
    pub(crate) fn unasked(&self) -> [(&'static str, u64); 4] {
        let Self { play, publish, .. } = self;
        [
            ("on_play_full", &play.full),
            ("on_play_late", &play.late),
            ("on_publish_full", &publish.full),
            ("on_publish_late", &publish.late),
        ]
        .map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
    }

    /// Tells something; nobody waits for the answer. Where too much waits already, it fails at once.
    pub fn tell(self: &Arc<Self>, config: &config::Hooks, hook: Hook, what: Value) {
        if hook.url(config).is_none() {
            return;
        }
        let (hooks, config) = (self.clone(), config.clone());
        let mut telling = lock(&self.telling);
        while telling.try_join_next().is_some() {}
        if telling.len() >= MAX_TELLING {
            self.count_failure(hook, TOO_MANY);
            return;
        }
        telling.spawn(async move {
            let _place = hooks.places.acquire().await;
            if let Some(url) = hook.url(&config) {
                let limit = hooks.terms.load().timeout;
                // The outcome is counted.
                let _ = hooks.call(hook, url, what, limit).await;
            }
        });
    }

    fn count_failure(&self, hook: Hook, why: &str) {
        let mut outcomes = self.lock();
        let outcome = outcomes.entry(hook).or_default();
        outcome.failed += 1;
        // One line, however many there are of the same.
        if outcome.last_error.as_deref() != Some(why) {
            tracing::warn!("{}: {why}", hook.name());
            outcome.last_error = Some(why.to_owned());
        }
    }

    /// Waits until all is told, at most for `limit`.
    pub async fn told(&self, limit: Duration) {
        let telling = core::mem::take(&mut *lock(&self.telling));
        let count = telling.len();
        if timeout(limit, telling.join_all()).await.is_err() {
            tracing::warn!("not all of {count} hooks could be told within {limit:?}");
        }
    }

    async fn call(
        &self,
        hook: Hook,
        HttpUrl(url): &HttpUrl,
        mut what: Value,
        limit: Duration,
    ) -> Result<u16, String> {
        what["event"] = hook.name().into();
        let body = what.to_string();
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
                Err(failure.to_string())
            }
        }
    }

    /// For the dashboard.
    pub fn describe(&self) -> Value {
        let describe = |(hook, outcome): (&Hook, &Outcome)| {
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Hook, Outcome>> {
        lock(&self.outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn what_waits_for_a_hook_that_does_not_answer_is_bounded() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = silent.local_addr().expect("bound");
        let text = format!("[hooks]\non_close = \"http://{address}/\"\ntimeout = \"60s\"");
        let config = Config::parse("edge.toml", &text).expect("valid").hooks;
        let hooks = Arc::new(Hooks::default());
        hooks.follow(&config);
        let tell = |count| (0..count).for_each(|_| hooks.tell(&config, Hook::Close, json!({})));
        tell(MAX_TELLING + 7);
        assert_eq!(lock(&hooks.telling).len(), MAX_TELLING);
        let described = hooks.describe();
        assert_eq!((&described[0]["failed"], &described[0]["ok"]), (&7.into(), &0.into()));
        assert_eq!(described[0]["last_error"], TOO_MANY);
        // Who is told makes room.
        lock(&hooks.telling).abort_all();
        while lock(&hooks.telling).try_join_next().is_none() {
            tokio::task::yield_now().await;
        }
        tell(1);
        assert_eq!(hooks.describe()[0]["failed"], 7);
    }
}
