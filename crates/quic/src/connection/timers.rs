//! Timers (RFC 9002, section 6.2 and appendix A.8; RFC 9000, section 10): one deadline per
//! connection, the earliest of its parts.

use super::Connection;
use super::event::CloseReason;
use super::spaces::SpaceId;
use crate::detection::ProbeRule;
use crate::mtud::BASE;
use core::time::Duration;
use units::Timestamp;

/// Ack-eliciting datagrams per probe time-out (RFC 9002, section 6.2.4: one or two).
pub(super) const PROBES: u8 = 2;
/// Maximum probe time-out for the lifetime of state.
const MAX_LINGER_PTO: Duration = Duration::from_secs(3);

impl Connection {
    /// Returns the probe time-out without back-off, including the peer's delay (RFC 9002, section
    /// 6.2.1).
    pub(super) fn pto(&self) -> Duration {
        self.path.rtt.pto_base() + self.peer.max_ack_delay
    }

    /// [`Connection::pto`], capped, for waiting on a peer that may be gone. The peer controls its
    /// acknowledgement delay and so the round-trip time. It must not hold state for hours.
    pub(super) fn linger_pto(&self) -> Duration {
        self.pto().min(MAX_LINGER_PTO)
    }

    /// Returns how long closing connections, replaced keys and lost packets are remembered. RFC
    /// 9000, section 10.2: "at least three times the current PTO"; here at most 9 s.
    pub(super) fn linger(&self) -> Duration {
        3 * self.linger_pto()
    }

    /// Returns the time of the next time-out.
    pub fn deadline(&self) -> Option<Timestamp> {
        if !self.is_open() {
            return self.life.ends_at();
        }
        let mut deadline = self.idle_deadline();
        let mut soonest = |at: Option<Timestamp>| {
            if let Some(at) = at {
                deadline = deadline.min(at);
            }
        };
        if self.path.budget() > 0 {
            for id in SpaceId::ALL {
                soonest(self.space(id).and_then(|space| space.received.deadline()));
            }
            soonest(self.paced_until);
            // Replicas that were offered but could not leave wait for an acknowledgement, the pacer
            // or the guard.
            soonest(self.recovery.next_timeout().filter(|&at| at > self.replicas_asked));
        }
        soonest(self.probe_timer.tail());
        soonest(self.next_overdue());
        // RFC 9002, section 6.2.1: no probe time-out while the time threshold is pending.
        soonest(self.loss_deadline().or_else(|| self.pto_deadline()).map(|(at, _)| at));
        soonest(self.path.standing.challenge.as_ref().map(|challenge| challenge.deadline()));
        soonest(self.keep_alive_deadline());
        if let Some(handshake) = &self.handshake {
            soonest(Some(handshake.started + self.config.handshake_timeout));
        }
        Some(deadline)
    }

    /// Handles the timers due by `now`.
    pub(crate) fn on_timeout(&mut self, now: Timestamp) {
        let _span = self.span();
        if !self.is_open() {
            self.life.on_timeout(now);
            return;
        }
        if now >= self.idle_deadline() {
            self.enter_drained(now, CloseReason::IdleTimeout);
            return;
        }
        if let Some(handshake) = &self.handshake
            && now >= handshake.started + self.config.handshake_timeout
        {
            self.enter_drained(now, CloseReason::HandshakeTimeout);
            return;
        }
        if self.keep_alive_deadline().is_some_and(|at| now >= at) {
            self.control.ask_ping();
        }
        if self.probe_timer.take_tail(now) {
            self.on_tail();
        }
        self.find_overdue(now);
        self.on_challenge_timeout(now);
        if let Some((at, space)) = self.loss_deadline() {
            // RFC 9002, appendix A.9: time-threshold loss detection comes before probing.
            if now >= at {
                self.detect_lost(now, space);
                self.judge_ecn(now);
                self.trim(now, space);
                self.observe_metrics(now);
            }
        } else if let Some((at, space)) = self.pto_deadline()
            && now >= at
        {
            self.on_probe_timeout(now, space);
        }
    }

    /// Returns the smaller of both sides' idle time-outs (RFC 9000, section 10.1).
    fn idle_timeout(&self) -> Duration {
        let peer = Some(self.peer.max_idle_timeout).filter(|timeout| !timeout.is_zero());
        peer.map_or(self.config.idle_timeout, |peer| peer.min(self.config.idle_timeout))
    }

    fn idle_deadline(&self) -> Timestamp {
        self.idle.deadline(self.idle_timeout(), self.pto())
    }

    fn keep_alive_deadline(&self) -> Option<Timestamp> {
        let interval = self.config.keep_alive?;
        let is_busy = self.control.is_ping_due() || self.data.ledger.has_eliciting();
        if is_busy || self.handshake.is_some() || !self.streams.has_requests() {
            return None;
        }
        Some(self.idle.keep_alive(interval, self.idle_timeout()))
    }

    fn loss_deadline(&self) -> Option<(Timestamp, SpaceId)> {
        let times = SpaceId::ALL
            .into_iter()
            .filter_map(|id| self.space(id)?.ledger.loss_time.map(|at| (at, id)));
        times.min_by_key(|(at, _)| *at)
    }

    /// GetPtoTimeAndSpace of RFC 9002, appendix A.8.
    fn pto_deadline(&self) -> Option<(Timestamp, SpaceId)> {
        // A blocked server cannot probe. The client's next datagram rearms the timer (section
        // 6.2.2.1).
        if self.path.budget() == 0 {
            return None;
        }
        let (base, backoff) = self.probe_timeout();
        let mut soonest: Option<(Timestamp, SpaceId)> = None;
        for id in SpaceId::ALL {
            let Some(space) = self.space(id) else { continue };
            if !space.ledger.has_eliciting() {
                continue;
            }
            let mut timeout = base;
            if id == SpaceId::Data {
                // Section 6.2.1: not before the handshake is confirmed.
                if self.handshake.is_some() {
                    continue;
                }
                timeout += match self.config.detection.probe {
                    ProbeRule::Pto => self.peer.max_ack_delay,
                    ProbeRule::TlpThenRto => Duration::ZERO,
                };
            }
            let Some(last) = space.ledger.last_eliciting else { continue };
            let interval = match id {
                SpaceId::Data => self.probe_timer.capped(timeout, backoff, &self.config.detection),
                _ => timeout * backoff,
            };
            let at = last + interval;
            if soonest.is_none_or(|(first, _)| at < first) {
                soonest = Some((at, id));
            }
        }
        soonest
    }

    /// Returns the current probe time-out and its back-off multiplier.
    fn probe_timeout(&self) -> (Duration, u32) {
        let is_alone = self.handshake.is_none() && self.data.ledger.eliciting_in_flight == 1;
        let alone_delay = is_alone.then_some(self.peer.max_ack_delay);
        self.probe_timer.timeout(self.config.detection.probe, &self.path.rtt, alone_delay)
    }

    /// Sends the tail PING: nothing was sent since the packet that armed it.
    fn on_tail(&mut self) {
        let is_tail = !self.streams.has_sendable() && self.recovery.next_waiting().is_none();
        if is_tail && self.data.ledger.has_eliciting() {
            self.control.ask_ping();
        }
    }

    fn on_probe_timeout(&mut self, now: Timestamp, id: SpaceId) {
        self.probe_timer.on_timeout();
        self.stats.pto_count += 1;
        let in_flight = self.path.in_flight;
        tracing::debug!(space = ?id, count = self.probe_timer.count(), in_flight, "probe timeout");
        // If the path's datagram size shrinks under a busy connection, no acknowledgement arrives
        // to reveal the losses.
        let large = self.data.ledger.oldest_eliciting().is_some_and(|oldest| oldest.size > BASE);
        if id == SpaceId::Data && large && self.path.mtud.on_suspicion(now) {
            self.path.controller.on_mtu(BASE);
        }
        if let Some(space) = self.space_mut(id) {
            space.probes = PROBES;
            if id != SpaceId::Data {
                space.crypto_send.resend();
            }
        }
        // Section 6.2.4: Initial and Handshake probes are sent together.
        if id == SpaceId::Initial
            && let Some(space) = self.space_mut(SpaceId::Handshake)
        {
            space.crypto_send.resend();
            space.probes = PROBES;
        }
    }
}
