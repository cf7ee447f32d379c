//! Counts per target, for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::config;
use crate::sync::lock;

/// Event of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PushEvent {
    /// The target accepted the stream.
    Connected,
    /// No connection, or TLS failed.
    Unreachable,
    /// The target rejected the stream or its key.
    Refused,
    /// The target closed the connection.
    Closed,
    /// The target sent invalid data.
    Invalid,
    /// The target did not answer, or took no data, for the rule's `timeout`.
    Late,
    /// The stream ended.
    Ended,
}

impl PushEvent {
    /// All events.
    pub(crate) const ALL: [Self; 7] = [
        Self::Connected,
        Self::Unreachable,
        Self::Refused,
        Self::Closed,
        Self::Invalid,
        Self::Late,
        Self::Ended,
    ];

    /// Returns the name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::Invalid => "invalid",
            Self::Late => "timeout",
            Self::Ended => "ended",
        }
    }
}

/// A rule without its secrets: pattern of streams, and URL.
pub(crate) type Target = (String, String);

/// Counts of a target, over all streams of its rule.
#[derive(Debug, Default)]
pub(crate) struct TargetCounts {
    /// Current connections that the target accepted.
    pub connected: AtomicU64,
    /// Bytes of tags passed to its connections.
    pub bytes: AtomicU64,
    /// Skips to a key frame because the target was slow.
    pub skips: AtomicU64,
    events: [AtomicU64; PushEvent::ALL.len()],
}

impl TargetCounts {
    pub(super) fn count(&self, event: PushEvent) {
        self.events[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of these events.
    pub(crate) fn of(&self, event: PushEvent) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }
}

/// Counts of all targets. Targets of removed rules stay.
#[derive(Debug, Default)]
pub(crate) struct PushCounts(Mutex<BTreeMap<Target, Arc<TargetCounts>>>);

impl PushCounts {
    pub(super) fn of(&self, rule: &config::Push) -> Arc<TargetCounts> {
        let url = rule.url.as_ref().map(ToString::to_string).unwrap_or_default();
        lock(&self.0).entry((rule.stream.clone(), url)).or_default().clone()
    }

    pub(super) fn all(&self) -> Vec<(Target, Arc<TargetCounts>)> {
        lock(&self.0).iter().map(|(target, counts)| (target.clone(), counts.clone())).collect()
    }
}
