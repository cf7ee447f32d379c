//! The table of pulls, by stream.
//!
//! Anybody can ask for any name under a rule, and an upstream may take its time to have none. So
//! pulls that gave no frame yet have a small budget for each rule, and a name that could not be had
//! is refused for a while. What is remembered of names is bounded, and costs no scan.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::sync::lock;

/// How long a stream that could not be had is not asked for again.
const REFUSED_FOR: Duration = Duration::from_secs(3);
/// Names that are remembered for that; the oldest is forgotten for a further one.
const MAX_REFUSED: usize = 10_000;
/// How long something that went wrong is shown when the pull goes on.
const SHOWN_FOR: Duration = Duration::from_secs(60);

/// How a pull does.
#[derive(Clone, Debug, Default)]
pub struct PullStatus {
    /// The upstream that is tried or used, without secrets.
    pub upstream: String,
    /// What went wrong last and matters still.
    pub error: Option<String>,
}

#[derive(Debug)]
struct Running {
    status: PullStatus,
    /// Until when the error is shown; `None`: until there is another or none.
    shown_until: Option<Instant>,
    /// The rule whose budget it is in, while it gave no frame.
    pending: Option<Arc<str>>,
    /// Tells the one who pulls that it is to end.
    end: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    running: HashMap<String, Running>,
    /// Pulls of each rule that gave no frame yet.
    pending: HashMap<Arc<str>, usize>,
    /// When each name could not be had, and the names in that order.
    refused: HashMap<Arc<str>, Instant>,
    order: VecDeque<Arc<str>>,
}

/// All pulls, by stream.
#[derive(Debug, Default)]
pub struct Pulls(Mutex<Table>);

/// What a request for a stream finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pull {
    /// The stream is being pulled.
    Running,
    /// Nobody pulls it; the caller may.
    Free,
}

/// Why a stream is not there for somebody who may play it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// Nobody has it, or it could not be had a moment ago.
    Unknown,
    /// Too many others are waited for.
    Full,
    /// The client's network asks for unknown names too often.
    Often,
    /// Its upstream is not asked, because there is no memory for another stream.
    NoMemory,
}

impl Missing {
    /// The reason, in words for a player.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Unknown => "no such stream",
            Self::Full => "too many streams are waited for",
            Self::Often => "too many requests for unknown streams",
            Self::NoMemory => "no memory is left for another stream",
        }
    }
}

/// The rule that a pull belongs to: its pattern, and how many of its pulls may be without a frame.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// The pattern.
    pub rule: &'a str,
    /// Pulls at the same time.
    pub max_pending: usize,
}

impl Pulls {
    /// Enters a pull that nobody runs yet, and opens its stream.
    ///
    /// # Errors
    /// It is refused.
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
            let running = Running { status, shown_until: None, pending: Some(rule), end };
            table.running.insert(name.to_owned(), running);
        }
        Ok((opened, found))
    }

    /// Whether [`Pulls::begin`] would enter or find a pull, if not now then as soon as there is room.
    pub fn may_begin(&self, name: &str, budget: Budget<'_>) -> bool {
        self.lock().look(name, budget) != Err(Missing::Unknown)
    }

    /// Whether the stream is being pulled.
    pub fn is_running(&self, name: &str) -> bool {
        self.lock().running.contains_key(name)
    }

    /// Pulls now.
    #[cfg(test)]
    pub fn running(&self) -> usize {
        self.lock().running.len()
    }

    /// Has the pull of this stream end, which ends the stream. Returns whether there is one.
    pub fn cancel(&self, name: &str) -> bool {
        let table = self.lock();
        let running = table.running.get(name);
        running.iter().for_each(|running| running.end.notify_one());
        running.is_some()
    }

    /// What tells the one who pulls this stream that it is to end, also if that was before.
    pub fn cancelled(&self, name: &str) -> Option<Arc<Notify>> {
        Some(self.lock().running.get(name)?.end.clone())
    }

    /// The pull gave a frame.
    pub fn gave_frames(&self, name: &str) {
        self.lock().settle(name);
    }

    /// The pull is over. One that never gave a frame is not tried again for a while.
    pub fn end(&self, name: &str) {
        let mut table = self.lock();
        if table.settle(name) {
            table.refuse(name.into());
        }
        table.running.remove(name);
    }

    /// How the pull of this stream does, if there is one.
    pub fn status(&self, name: &str) -> Option<PullStatus> {
        let table = self.lock();
        let running = table.running.get(name)?;
        let over = running.shown_until.is_some_and(|until| until <= Instant::now());
        let status = running.status.clone();
        Some(if over { PullStatus { error: None, ..status } } else { status })
    }

    /// The pull turns to this upstream.
    pub fn turn_to(&self, name: &str, upstream: String) {
        if let Some(running) = self.lock().running.get_mut(name) {
            running.status.upstream = upstream;
        }
    }

    /// What keeps the pull from going on, until it does: then `None`.
    pub fn fail(&self, name: &str, error: Option<String>) {
        if let Some(running) = self.lock().running.get_mut(name) {
            (running.status.error, running.shown_until) = (error, None);
        }
    }

    /// Something went wrong, and the pull goes on.
    pub fn note(&self, name: &str, error: String) {
        if let Some(running) = self.lock().running.get_mut(name) {
            running.status.error = Some(error);
            running.shown_until = Some(Instant::now() + SHOWN_FOR);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.0)
    }
}

impl Table {
    fn look(&mut self, name: &str, budget: Budget<'_>) -> Result<Pull, Missing> {
        while let Some(oldest) = self.order.front() {
            let over = self.refused.get(oldest).is_none_or(|at| at.elapsed() >= REFUSED_FOR);
            if !over {
                break;
            }
            self.forget();
        }
        let pending = self.pending.get(budget.rule).copied().unwrap_or(0);
        if self.running.contains_key(name) {
            Ok(Pull::Running)
        } else if self.refused.contains_key(name) {
            Err(Missing::Unknown)
        } else if pending >= budget.max_pending {
            Err(Missing::Full)
        } else {
            Ok(Pull::Free)
        }
    }

    fn refuse(&mut self, name: Arc<str>) {
        if self.order.len() >= MAX_REFUSED {
            self.forget();
        }
        if self.refused.insert(name.clone(), Instant::now()).is_none() {
            self.order.push_back(name);
        }
    }

    fn forget(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.refused.remove(&oldest);
        }
    }

    /// Takes a pull out of its rule's budget. Returns whether it was there.
    fn settle(&mut self, name: &str) -> bool {
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
    fn a_rule_has_a_budget_of_pulls_without_a_frame() {
        let pulls = Pulls::default();
        assert_eq!(begin(&pulls, "live/a", RULE), Ok(Pull::Free));
        assert_eq!(begin(&pulls, "live/b", RULE), Ok(Pull::Free));
        assert_eq!(begin(&pulls, "live/c", RULE), Err(Missing::Full));
        assert!(pulls.may_begin("live/c", RULE), "as soon as there is room");
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
    async fn a_name_that_could_not_be_had_is_refused_for_a_while() {
        let pulls = Pulls::default();
        begin(&pulls, "live/a", RULE).expect("room");
        pulls.end("live/a");
        assert_eq!(begin(&pulls, "live/a", RULE), Err(Missing::Unknown));
        assert!(!pulls.may_begin("live/a", RULE));
        assert_eq!(begin(&pulls, "live/b", RULE), Ok(Pull::Free));
        tokio::time::advance(REFUSED_FOR).await;
        assert_eq!(begin(&pulls, "live/a", RULE), Ok(Pull::Free));
        pulls.gave_frames("live/a");
        pulls.end("live/a");
        assert_eq!(begin(&pulls, "live/a", RULE), Ok(Pull::Free), "it was there");
    }

    #[test]
    fn a_hundred_thousand_names_are_not_all_remembered_and_shut_nobody_out() {
        let pulls = Pulls::default();
        for name in 0..100_000 {
            let name = format!("live/{name}");
            assert_eq!(begin(&pulls, &name, RULE), Ok(Pull::Free), "{name}");
            pulls.end(&name);
        }
        let table = pulls.lock();
        assert!(table.refused.len() <= MAX_REFUSED && table.order.len() <= MAX_REFUSED);
        assert!(table.running.is_empty() && table.pending.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_went_wrong_is_shown_for_a_while_or_until_it_is_over() {
        let pulls = Pulls::default();
        let error = || pulls.status("live/a").expect("it runs").error;
        begin(&pulls, "live/a", RULE).expect("room");
        pulls.fail("live/a", Some("no answer".into()));
        tokio::time::advance(SHOWN_FOR * 2).await;
        assert_eq!(error().as_deref(), Some("no answer"));
        pulls.fail("live/a", None);
        assert_eq!(error(), None);
        pulls.note("live/a", "status 404".into());
        assert_eq!(error().as_deref(), Some("status 404"));
        tokio::time::advance(SHOWN_FOR).await;
        assert_eq!(error(), None);
    }
}
