//! What a viewer's session is told of the transport under it: about once a second, how the connection
//! does since the session began.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ::quic::Connection;
use units::Timestamp;

use crate::sessions::{Session, Transport};

/// How often the session is told.
const PERIOD: Duration = Duration::from_secs(1);

/// Watches the connection for one session, for as long as that is open.
#[derive(Debug)]
pub(super) struct Watch {
    session: Weak<Session>,
    due: Timestamp,
    /// How the connection did when the session began.
    before: Transport,
}

impl Watch {
    /// The session begins.
    pub(super) fn new(session: &Arc<Session>, now: Timestamp, connection: &Connection) -> Self {
        Self { session: Arc::downgrade(session), due: now, before: Transport::of(now, connection) }
    }

    /// Whether the session goes on.
    pub(super) fn is_open(&self) -> bool {
        self.session.strong_count() > 0
    }

    /// Whether it is this one.
    pub(super) fn is_of(&self, session: &Arc<Session>) -> bool {
        core::ptr::eq(self.session.as_ptr(), Arc::as_ptr(session))
    }

    /// Tells the session how the connection does, if it is time or the `last` chance.
    pub(super) fn look(&mut self, now: Timestamp, connection: &Connection, last: bool) {
        if now >= self.due || last {
            self.due = now + PERIOD;
            if let Some(session) = self.session.upgrade() {
                session.on_transport(Transport::of(now, connection).since(&self.before));
            }
        }
    }
}
