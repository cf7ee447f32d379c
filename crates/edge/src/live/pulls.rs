//! The table of pulls, by stream.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// How long a stream that could not be had is not asked for again.
const REFUSED_FOR: Duration = Duration::from_secs(3);
/// Names that are remembered.
const MAX_NAMES: usize = 10_000;
/// How a pull does.
#[derive(Clone, Debug, Default)]
pub struct PullStatus {
    /// The upstream that is tried or used.
    pub upstream: String,
    /// The last failure.
    pub error: Option<String>,
    /// When it ended without a frame; `None` while it goes on.
    failed: Option<Instant>,
}

/// All pulls, by stream.
#[derive(Debug, Default)]
pub struct Pulls(Mutex<HashMap<String, PullStatus>>);

/// What a request for a stream finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pull {
    /// The stream is being pulled.
    Running,
    /// Nobody pulls it; the caller may.
    Free,
    /// It could not be had a moment ago, or there are too many.
    Refused,
}

impl Pulls {
    /// Enters a pull that nobody runs yet if `open` gives its stream.
    pub fn begin<T>(&self, name: &str, open: impl FnOnce() -> Option<T>) -> Option<(T, Pull)> {
        let mut pulls = self.lock();
        let found = look(&mut pulls, name);
        if found == Pull::Refused {
            return None;
        }
        let opened = open()?;
        if found == Pull::Free {
            pulls.insert(name.to_owned(), PullStatus::default());
        }
        Some((opened, found))
    }

    /// Whether [`Pulls::begin`] would enter or find a pull.
    pub fn may_begin(&self, name: &str) -> bool {
        look(&mut self.lock(), name) != Pull::Refused
    }

    /// The pull is over. One that never gave a frame is not tried again for a while.
    pub fn end(&self, name: &str, gave_frames: bool) {
        if gave_frames {
            self.lock().remove(name);
        } else {
            self.update(name, |pull| pull.failed = Some(Instant::now()));
        }
    }

    /// How the pull of this stream does, if there is one.
    pub fn status(&self, name: &str) -> Option<PullStatus> {
        self.lock().get(name).cloned()
    }

    /// Changes the status of a pull, if there is one.
    pub fn update(&self, name: &str, update: impl FnOnce(&mut PullStatus)) {
        if let Some(status) = self.lock().get_mut(name) {
            update(status);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PullStatus>> {
        lock(&self.0)
    }
}

fn look(pulls: &mut HashMap<String, PullStatus>, name: &str) -> Pull {
    pulls.retain(|_, pull| pull.failed.is_none_or(|at| at.elapsed() < REFUSED_FOR));
    match pulls.get(name) {
        Some(pull) if pull.failed.is_none() => Pull::Running,
        None if pulls.len() < MAX_NAMES => Pull::Free,
        _ => Pull::Refused,
    }
}
