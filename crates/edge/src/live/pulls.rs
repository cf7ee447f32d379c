//! The table of pulls, by stream.
//!
//! Clients can request any name under a rule, and an upstream may be slow to reject it. Therefore
//! each rule has a small budget of pulls without a frame, and names of failed pulls are rejected
//! for [`RETRY_AFTER`]. The memory of failed names is bounded and never scanned.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::sync::lock;

/// Time until upstreams are asked again after a failed pull.
const RETRY_AFTER: Duration = Duration::from_secs(3);
/// Maximum number of remembered failed names. A further one evicts the oldest.
const MAX_FAILED_NAMES: usize = 10_000;
/// Time for which a warning is shown while the pull continues.
const WARNING_SHOWN: Duration = Duration::from_secs(60);

/// Status of a pull.
#[derive(Clone, Debug, Default)]
pub struct PullStatus {
    /// The current upstream, without secrets.
    pub upstream: String,
    /// The last error, while it is relevant.
    pub error: Option<String>,
}

#[derive(Debug)]
struct RunningPull {
    status: PullStatus,
    /// End of the error's display; `None` until it is replaced or cleared.
    shown_until: Option<Instant>,
    /// The rule that counts it in its budget, before the first frame.
    pending: Option<Arc<str>>,
    /// Asks the pull's task to stop.
    end: Arc<Notify>,
}

#[derive(Debug, Default)]
struct PullTable {
    running: HashMap<String, RunningPull>,
    /// Pulls without a frame, by rule.
    pending: HashMap<Arc<str>, usize>,
    /// Time of each failure, and the names in that order.
    failed: HashMap<Arc<str>, Instant>,
    order: VecDeque<Arc<str>>,
}

/// All pulls, by stream.
#[derive(Debug, Default)]
pub struct Pulls(Mutex<PullTable>);

/// Result of [`Pulls::begin`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pull {
    /// The stream is being pulled.
    Running,
    /// The caller has to pull it.
    Free,
}

/// Reason why a stream is unavailable to an authorized player.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The stream does not exist, or its pull failed a moment ago.
    Unknown,
    /// Too many look-ups or pulls are pending.
    Full,
    /// The client's network requests unknown names too often.
    RateLimited,
    /// No memory for another stream.
    NoMemory,
}

impl Missing {
    /// Returns the reason as text for a player.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "no such stream",
            Self::Full => "too many pending streams",
            Self::RateLimited => "too many requests for unknown streams",
            Self::NoMemory => "no memory is left for another stream",
        }
    }
}

/// The rule of a pull, and its budget of pulls without a frame.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// The pattern.
    pub rule: &'a str,
    /// Maximum concurrent pulls without a frame.
    pub max_pending: usize,
}

impl Pulls {
    /// Finds or registers the pull of a stream, and opens the stream.
    ///
    /// # Errors
    /// The pull failed a moment ago, or the budget is exhausted.
    pub fn begin<T>(
        &self,
        name: &str,
        budget: Budget<'_>,
        open: impl FnOnce() -> T,
    ) -> Result<(T, Pull), Missing> {
        let mut table = self.lock();
        let found = table.look(name, budget)?;
        let opened = open();
        if found == Pull::Free {
            let rule: Arc<str> = budget.rule.into();
            *table.pending.entry(rule.clone()).or_default() += 1;
            let status = PullStatus::default();
            let end = Arc::new(Notify::new());
            let running = RunningPull { status, shown_until: None, pending: Some(rule), end };
            table.running.insert(name.to_owned(), running);
        }
        Ok((opened, found))
    }

    /// Returns true if [`Pulls::begin`] would succeed, now or once the budget allows.
    pub fn may_begin(&self, name: &str, budget: Budget<'_>) -> bool {
        self.lock().look(name, budget) != Err(Missing::Unknown)
    }

    /// Returns true if the stream is being pulled.
    pub fn is_running(&self, name: &str) -> bool {
        self.lock().running.contains_key(name)
    }

    /// Returns the number of pulls.
    #[cfg(test)]
    pub fn running(&self) -> usize {
        self.lock().running.len()
    }

    /// Stops the pull of this stream, which ends the stream. Returns false if there is none.
    pub fn cancel(&self, name: &str) -> bool {
        let table = self.lock();
        let running = table.running.get(name);
        running.iter().for_each(|running| running.end.notify_one());
        running.is_some()
    }

    /// Returns the notification of [`Pulls::cancel`]. An earlier cancellation is not lost.
    pub fn cancelled(&self, name: &str) -> Option<Arc<Notify>> {
        Some(self.lock().running.get(name)?.end.clone())
    }

    /// Releases the budget of a pull at its first frame.
    pub fn gave_frames(&self, name: &str) {
        self.lock().leave_budget(name);
    }

    /// Removes a pull. Without a frame, its name is rejected for a while.
    pub fn end(&self, name: &str) {
        let mut table = self.lock();
        if table.leave_budget(name) {
            table.remember_failure(name.into());
        }
        table.running.remove(name);
    }

    /// Returns the status of the stream's pull, if there is one.
    pub fn status(&self, name: &str) -> Option<PullStatus> {
        let table = self.lock();
        let running = table.running.get(name)?;
        let over = running.shown_until.is_some_and(|until| until <= Instant::now());
        let status = running.status.clone();
        Some(if over { PullStatus { error: None, ..status } } else { status })
    }

    /// Sets the current upstream of the pull.
    pub fn turn_to(&self, name: &str, upstream: String) {
        if let Some(running) = self.lock().running.get_mut(name) {
            running.status.upstream = upstream;
        }
    }

    /// Sets the error that blocks the pull; `None` when it continues.
    pub fn set_error(&self, name: &str, error: Option<String>) {
        if let Some(running) = self.lock().running.get_mut(name) {
            (running.status.error, running.shown_until) = (error, None);
        }
    }

    /// Sets a warning of a pull that continues.
    pub fn set_warning(&self, name: &str, error: String) {
        if let Some(running) = self.lock().running.get_mut(name) {
            running.status.error = Some(error);
            running.shown_until = Some(Instant::now() + WARNING_SHOWN);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PullTable> {
        lock(&self.0)
    }
}

impl PullTable {
    fn look(&mut self, name: &str, budget: Budget<'_>) -> Result<Pull, Missing> {
        while let Some(oldest) = self.order.front() {
            let over = self.failed.get(oldest).is_none_or(|at| at.elapsed() >= RETRY_AFTER);
            if !over {
                break;
            }
            self.forget_oldest();
        }
        let pending = self.pending.get(budget.rule).copied().unwrap_or(0);
        if self.running.contains_key(name) {
            Ok(Pull::Running)
        } else if self.failed.contains_key(name) {
            Err(Missing::Unknown)
        } else if pending >= budget.max_pending {
            Err(Missing::Full)
        } else {
            Ok(Pull::Free)
        }
    }

    fn remember_failure(&mut self, name: Arc<str>) {
        if self.order.len() >= MAX_FAILED_NAMES {
            self.forget_oldest();
        }
        if self.failed.insert(name.clone(), Instant::now()).is_none() {
            self.order.push_back(name);
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.failed.remove(&oldest);
        }
    }

    /// Removes a pull from its rule's budget. Returns true if it was in it.
    fn leave_budget(&mut self, name: &str) -> bool {
        let running = self.running.get_mut(name);
        let Some(rule) = running.and_then(|running| running.pending.take()) else { return false };
        if let Some(count) = self.pending.get_mut(&rule) {
            *count -= 1;
            if *count == 0 {
                self.pending.remove(&rule);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Budget<'_> = Budget { rule: "live/*", max_pending: 2 };

    fn begin(pulls: &Pulls, name: &str, budget: Budget<'_>) -> Result<Pull, Missing> {
        pulls.begin(name, budget, || ()).map(|((), found)| found)
    }

    #[test]
    fn a_rule_limits_its_pulls_without_a_frame() {
        let pulls = Pulls::default();
        assert_eq!(begin(&pulls, "live/a", RULE), Ok(Pull::Free));
        assert_eq!(begin(&pulls, "live/b", RULE), Ok(Pull::Free));
        assert_eq!(begin(&pulls, "live/c", RULE), Err(Missing::Full));
        assert!(pulls.may_begin("live/c", RULE), "once the budget allows");
        assert_eq!(begin(&pulls, "live/a", RULE), Ok(Pull::Running), "for further viewers");
        let other = Budget { rule: "other/*", max_pending: 1 };
        assert_eq!(begin(&pulls, "other/a", other), Ok(Pull::Free));
        pulls.gave_frames("live/a");
        pulls.gave_frames("live/a");
        assert_eq!(begin(&pulls, "live/c", RULE), Ok(Pull::Free));
        assert_eq!(begin(&pulls, "live/d", RULE), Err(Missing::Full));
        pulls.end("live/b");
        pulls.end("live/a");
        assert_eq!(begin(&pulls, "live/d", RULE), Ok(Pull::Free));
        assert_eq!(begin(&pulls, "live/a", RULE), Err(Missing::Full), "two without a frame");
        assert_eq!(pulls.lock().pending.values().sum::<usize>(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_whose_pull_failed_is_rejected_for_a_while() {
        let pulls = Pulls::default();
        begin(&pulls, "live/a", RULE).expect("room");
        pulls.end("live/a");
        assert_eq!(begin(&pulls, "live/a", RULE), Err(Missing::Unknown));
        assert!(!pulls.may_begin("live/a", RULE));
        assert_eq!(begin(&pulls, "live/b", RULE), Ok(Pull::Free));
        tokio::time::advance(RETRY_AFTER).await;
        assert_eq!(begin(&pulls, "live/a", RULE), Ok(Pull::Free));
        pulls.gave_frames("live/a");
        pulls.end("live/a");
        assert_eq!(begin(&pulls, "live/a", RULE), Ok(Pull::Free), "the pull had succeeded");
    }

    #[test]
    fn a_hundred_thousand_failed_names_are_bounded_and_block_no_other() {
        let pulls = Pulls::default();
        for name in 0..100_000 {
            let name = format!("live/{name}");
            assert_eq!(begin(&pulls, &name, RULE), Ok(Pull::Free), "{name}");
            pulls.end(&name);
        }
        let table = pulls.lock();
        assert!(table.failed.len() <= MAX_FAILED_NAMES && table.order.len() <= MAX_FAILED_NAMES);
        assert!(table.running.is_empty() && table.pending.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn warnings_expire_and_errors_stay_until_cleared() {
        let pulls = Pulls::default();
        let error = || pulls.status("live/a").expect("it runs").error;
        begin(&pulls, "live/a", RULE).expect("room");
        pulls.set_error("live/a", Some("no answer".into()));
        tokio::time::advance(WARNING_SHOWN * 2).await;
        assert_eq!(error().as_deref(), Some("no answer"));
        pulls.set_error("live/a", None);
        assert_eq!(error(), None);
        pulls.set_warning("live/a", "status 404".into());
        assert_eq!(error().as_deref(), Some("status 404"));
        tokio::time::advance(WARNING_SHOWN).await;
        assert_eq!(error(), None);
    }
}
