//! Deadlines of an RTMP connection.

use std::time::Duration;

use tokio::time::Instant;

use super::{CLOSE_TIMEOUT, RtmpConnection, RtmpRole};
use crate::fronts::rtmp::transport::AbnormalEnd;
use crate::limits::Fault;

/// Handshake bytes from the peer: C0, C1 and C2 (specification 1.0, section 5.2).
const HANDSHAKE_BYTES: u64 = 1 + 2 * 1_536;

/// Token bucket for messages without media (acknowledgements, pongs, commands): burst, and rate per
/// second.
const MAX_IDLE_MESSAGES: u32 = 500;
const IDLE_MESSAGES_PER_SECOND: f64 = 100.0;

impl RtmpConnection {
    /// Refills the peer's allowance of messages without media.
    pub(super) fn allow_messages(&mut self) {
        let now = Instant::now();
        let passed = now.duration_since(self.times.allowed).as_secs_f64();
        let more = (passed * IDLE_MESSAGES_PER_SECOND) as u32;
        if more > 0 {
            self.times.allowed = now;
        }
        self.server.allow(more, MAX_IDLE_MESSAGES);
    }

    /// Whether the handshake is complete.
    fn is_open(&self) -> bool {
        self.received >= HANDSHAKE_BYTES
    }

    /// Whether the peer has yet to take data.
    pub(super) fn has_unsent(&self) -> bool {
        !self.output.is_empty() || !self.is_flushed
    }

    /// Returns how long a player may be silent before it is pinged.
    fn silence(&self) -> Duration {
        self.state.config.rtmp.timeout / 2
    }

    /// Returns when [`RtmpConnection::on_deadline`] is due at the latest.
    pub(super) fn deadline(&self) -> Instant {
        let (config, times) = (&self.state.config.rtmp, &self.times);
        if self.ending {
            return times.last_sent + CLOSE_TIMEOUT;
        }
        let of_role = match self.role {
            RtmpRole::Nothing if !self.is_open() => times.idle + config.handshake_timeout,
            RtmpRole::Nothing => times.idle + config.request_timeout,
            RtmpRole::Publishes(_) => times.last_received + config.timeout,
            RtmpRole::Waits(_) | RtmpRole::Plays(_) => match times.pinged {
                None => times.last_received + self.silence(),
                Some(pinged) => pinged + config.timeout,
            },
        };
        let taken = self.has_unsent().then(|| times.last_sent + config.timeout);
        taken.map_or(of_role, |taken| taken.min(of_role))
    }

    /// Ends the connection on timeout, or pings a silent player.
    pub(super) fn on_deadline(&mut self) -> Result<(), AbnormalEnd> {
        let now = Instant::now();
        if now < self.deadline() {
            return Ok(());
        }
        let config = &self.state.config.rtmp;
        let silent =
            || AbnormalEnd::Late(Fault::RtmpSilent, format!("silent for {:?}", config.timeout));
        if self.ending || self.has_unsent() && now >= self.times.last_sent + config.timeout {
            return Err(silent());
        }
        match self.role {
            RtmpRole::Nothing if !self.is_open() => {
                let why = format!("no handshake within {:?}", config.handshake_timeout);
                Err(AbnormalEnd::Late(Fault::RtmpHandshake, why))
            }
            RtmpRole::Nothing => {
                let why = format!("neither publish nor play within {:?}", config.request_timeout);
                Err(AbnormalEnd::Late(Fault::RtmpRequest, why))
            }
            RtmpRole::Waits(_) | RtmpRole::Plays(_) if self.times.pinged.is_none() => {
                self.server.ping();
                self.times.pinged = Some(now);
                Ok(())
            }
            RtmpRole::Publishes(_) => {
                Err(AbnormalEnd::Peer(format!("no data for {:?}", config.timeout)))
            }
            _ => Err(silent()),
        }
    }
}
