//! What a viewer's session is told of the transport under it: when the first frame had arrived, and,
//! about once a second, how the connection does since the session began.

use std::sync::Arc;
use std::time::Duration;

use ::quic::streams::SendProgress;
use ::quic::{Connection, Stats};
use recovery::Totals;
use units::Timestamp;

use crate::sessions::{Session, Transport};

/// How often the session is told.
const PERIOD: Duration = Duration::from_secs(1);

/// The first frame of a session on its way.
#[derive(Clone, Copy, Debug)]
enum FirstFrame {
    /// Not handed to the transport yet.
    Ahead,
    /// Ends at this offset of the stream.
    Sent(u64),
    Acked,
}

/// Watches the connection for one session.
#[derive(Debug)]
pub(super) struct Watch {
    session: Arc<Session>,
    first_frame: FirstFrame,
    due: Timestamp,
    stats: Stats,
    totals: Totals,
    off_mode: (Duration, u64),
}

impl Watch {
    /// The session begins.
    pub(super) fn new(session: &Arc<Session>, now: Timestamp, connection: &Connection) -> Self {
        Self {
            session: session.clone(),
            first_frame: FirstFrame::Ahead,
            due: now,
            stats: *connection.stats(),
            totals: *connection.recovery_totals(),
            off_mode: connection.off_mode(now),
        }
    }

    /// Looks at the connection; `has_frame` when the first frame is in the stream.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        connection: &Connection,
        progress: SendProgress,
        has_frame: bool,
    ) {
        match self.first_frame {
            FirstFrame::Ahead if has_frame => {
                self.first_frame = FirstFrame::Sent(progress.written);
            }
            FirstFrame::Sent(end) if progress.acked >= end => {
                self.first_frame = FirstFrame::Acked;
                self.session.on_first_frame();
            }
            _ => {}
        }
        if now >= self.due {
            self.due = now + PERIOD;
            self.session.on_transport(self.transport(now, connection));
        }
    }

    fn transport(&self, now: Timestamp, connection: &Connection) -> Transport {
        let (stats, totals) = (connection.stats(), connection.recovery_totals());
        let off_mode = connection.off_mode(now);
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let copies = |t: &Totals| t.retransmissions + t.replicas + t.probes;
        let sent = since(stats.packets_sent, self.stats.packets_sent);
        let settled = |t: &Totals| t.acked + t.lost;
        Transport {
            rtt_min: connection.rtt().min(),
            rtt: connection.rtt().smoothed(),
            max_window: stats.max_window,
            max_in_flight: stats.max_in_flight,
            settled: since(settled(totals), settled(&self.totals)),
            lost: since(totals.lost, self.totals.lost),
            first_transmissions: since(sent, copies(totals) - copies(&self.totals)),
            retransmissions: since(totals.retransmissions, self.totals.retransmissions),
            repeated: since(totals.repeated, self.totals.repeated),
            replicas: since(totals.replicas, self.totals.replicas),
            recovery: connection.recovery_latencies().clone(),
            off_mode: (
                off_mode.0.saturating_sub(self.off_mode.0),
                since(off_mode.1, self.off_mode.1),
            ),
            resumed: stats.resumed,
            early_data: stats.early_data,
        }
    }
}
