//! Updates a viewer's session about once per second with the connection's statistics since the
//! session started.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ::quic::Connection;
use units::Timestamp;

use crate::sessions::{Session, TransportStats};

/// Interval of updates.
const PERIOD: Duration = Duration::from_secs(1);

/// Transport statistics for one open session.
#[derive(Debug)]
pub(super) struct Watch {
    session: Weak<Session>,
    due: Timestamp,
    /// Statistics at the start of the session, without reasons.
    before: TransportStats,
}

impl Watch {
    /// Starts at the beginning of a session.
    pub(super) fn new(session: &Arc<Session>, now: Timestamp, connection: &Connection) -> Self {
        let before = TransportStats { reasons: Vec::new(), ..TransportStats::of(now, connection) };
        Self { session: Arc::downgrade(session), due: now, before }
    }

    /// Whether the session is still open.
    pub(super) fn is_open(&self) -> bool {
        self.session.strong_count() > 0
    }

    /// Whether the statistics are for this session.
    pub(super) fn is_of(&self, session: &Arc<Session>) -> bool {
        core::ptr::eq(self.session.as_ptr(), Arc::as_ptr(session))
    }

    /// Updates the session if due, or if this is the `last` chance.
    pub(super) fn update(&mut self, now: Timestamp, connection: &Connection, last: bool) {
        if now >= self.due || last {
            self.due = now + PERIOD;
            if let Some(session) = self.session.upgrade() {
                session.on_transport(TransportStats::of(now, connection).since(&self.before));
            }
        }
    }
}
