//! What a viewer's session is told of the transport under it: about once a second, how the connection
//! does since the session began.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ::quic::Connection;
use recovery::{Latencies, Totals};
use units::Timestamp;

use crate::sessions::{Session, Transport};

/// How often the session is told.
const PERIOD: Duration = Duration::from_secs(1);

/// Watches the connection for one session, for as long as that is open.
#[derive(Debug)]
pub(super) struct Watch {
    session: Weak<Session>,
    due: Timestamp,
    totals: Totals,
    recovery: Latencies,
    off_mode: (Duration, u64),
}

impl Watch {
    /// The session begins.
    pub(super) fn new(session: &Arc<Session>, now: Timestamp, connection: &Connection) -> Self {
        Self {
            session: Arc::downgrade(session),
            due: now,
            totals: *connection.recovery().totals(),
            recovery: connection.recovery().latencies().clone(),
            off_mode: connection.recovery().off_mode(now),
        }
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
                session.on_transport(self.transport(now, connection));
            }
        }
    }

    fn transport(&self, now: Timestamp, connection: &Connection) -> Transport {
        let (stats, totals) = (connection.stats(), connection.recovery().totals());
        let off_mode = connection.recovery().off_mode(now);
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let settled = |t: &Totals| t.acked + t.lost;
        Transport {
            rtt_min: connection.rtt().min(),
            rtt: connection.rtt().smoothed(),
            max_window: stats.max_window,
            max_in_flight: stats.max_in_flight,
            settled: since(settled(totals), settled(&self.totals)),
            lost: since(totals.lost, self.totals.lost),
            first_transmissions: since(totals.first_transmissions, self.totals.first_transmissions),
            retransmissions: since(totals.retransmissions, self.totals.retransmissions),
            repeated: since(totals.repeated, self.totals.repeated),
            replicas: since(totals.replicas, self.totals.replicas),
            recovery: connection.recovery().latencies().since(&self.recovery),
            off_mode: (
                off_mode.0.saturating_sub(self.off_mode.0),
                since(off_mode.1, self.off_mode.1),
            ),
            t_unit: connection.recovery().unit_times().mean(),
            finished: since(totals.finished, self.totals.finished),
            finished_late: since(totals.finished_late, self.totals.finished_late),
            reasons: {
                let mut reasons = Vec::new();
                connection.recovery().explain(&mut |name, value| reasons.push((name, value)));
                reasons
            },
            resumed: stats.resumed,
            early_data: stats.early_data,
        }
    }
}
