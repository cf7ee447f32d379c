//! Careful Resume (RFC 9959, section 3): a jump of the congestion window to saved parameters, which
//! is undone on any sign of congestion.
//!
//! Runs next to the congestion controller. [`Careful`] sees the same events and returns an
//! [`Order`] for the window. It identifies packets by send time, as QUIC packet numbers restart in
//! each number space.
//!
//! Two bounds are stricter than in the RFC. The jump is scaled by the confidence in the saved
//! parameters, and does not exceed the rest of the first frame.

use core::time::Duration;

use congestion::{AckBatch, CongestionEvent, CongestionKind};
use units::{Rate, Timestamp};

use crate::cookie::{PathState, Verdict};

/// Overhead of packet and frame headers: 1/16 of the first frame's bytes.
const OVERHEAD: u64 = 16;

/// Saved parameters (section 2.2).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Saved {
    /// `jump_cwnd` in bytes: at most `max_jump` and half of `saved_cwnd`, less if confidence is
    /// low.
    pub jump: u64,
    /// `saved_rtt`.
    pub rtt: Duration,
    /// Bytes of the first frame. `None` if unknown; the jump is then not limited by it.
    pub first_frame: Option<u64>,
}

impl Saved {
    /// Derives the saved parameters from path state.
    pub fn new(past: &PathState, first_frame: Option<u64>, max_jump: u64) -> Self {
        let half = past.saved_window() / 2;
        let trusted = (half as f64 * past.confidence.clamp(0.0, 1.0)) as u64;
        let jump = trusted.min(half).min(max_jump);
        Self { jump, rtt: past.cookie.min_rtt, first_frame }
    }
}

/// Phase of section 3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CarefulPhase {
    /// The initial window is in flight; the path is compared with the saved one.
    Reconnaissance,
    /// The jump is being sent.
    Unvalidated,
    /// The jump was sent and awaits acknowledgements.
    Validating,
    /// The jump met congestion and is being drained.
    SafeRetreat,
    /// Careful Resume has ended: only the congestion controller is active.
    Normal(Exit),
}

impl CarefulPhase {
    /// Name in logs (draft-ietf-tsvwg-careful-resume-qlog).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reconnaissance => "reconnaissance",
            Self::Unvalidated => "unvalidated",
            Self::Validating => "validating",
            Self::SafeRetreat => "safe_retreat",
            Self::Normal(_) => "normal",
        }
    }
}

/// Reason why Careful Resume ended, named as in its qlog events
/// (draft-ietf-tsvwg-careful-resume-qlog) where these have a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Exit {
    /// Congestion before the jump.
    Congestion,
    /// The round trip is at most half of the saved one, or more than ten times as long.
    RttNotValidated,
    /// The window already suffices for the jump or the rest of the first frame.
    NothingToGain,
    /// Too little was sent to validate the jump.
    RateLimited,
    /// The jump was acknowledged.
    LastUnvalidatedPacketAcknowledged,
    /// The retreat is complete.
    ExitRecovery,
    /// Persistent congestion.
    PersistentCongestion,
}

/// Instruction for the congestion window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Order {
    /// Set the window and pace all packets at `rate` until the next order.
    Jump {
        /// Bytes.
        window: u64,
        /// `window` over the current round trip.
        rate: Rate,
    },
    /// Set the window. It then follows the controller's own rules.
    Window(u64),
    /// Limit the window and prevent growth until [`Order::Release`].
    Hold(u64),
    /// Allow growth again, with a slow-start threshold of at most `ssthresh` bytes.
    Release {
        /// Bytes: PipeSize × β.
        ssthresh: u64,
    },
}

/// Careful Resume of one connection.
#[derive(Clone, Debug)]
pub struct Careful {
    saved: Saved,
    initial_window: u64,
    mtu: u64,
    /// The controller's multiplicative decrease, from 0.5 to 1.
    beta: f64,
    phase: CarefulPhase,
    verdict: Verdict,
    /// Bytes sent.
    sent: u64,
    first_sent: Option<Timestamp>,
    last_sent: Timestamp,
    /// Send time of the last packet of the initial data, the data sent before its first
    /// acknowledgement.
    initial_data: Option<Timestamp>,
    pipe_size: u64,
    /// Window, start and maximum duration of the unvalidated phase.
    jump: (u64, Timestamp, Duration),
    /// Send time of the first unvalidated packet.
    first_unvalidated: Option<Timestamp>,
    /// Send time of the last unvalidated packet.
    last_unvalidated: Timestamp,
}

impl Careful {
    /// Starts in reconnaissance, before the first packet of the response. `initial_window` is in
    /// bytes. `beta` is the controller's multiplicative decrease, from 0.5 to 1 (section 2.2: 0.5
    /// by default; CUBIC: 0.7).
    pub fn new(saved: Saved, initial_window: u64, mtu: u16, beta: f64) -> Self {
        Self {
            saved,
            initial_window,
            mtu: mtu.into(),
            beta: beta.clamp(0.5, 1.0),
            phase: CarefulPhase::Reconnaissance,
            verdict: Verdict::None,
            sent: 0,
            first_sent: None,
            last_sent: Timestamp::ZERO,
            initial_data: None,
            pipe_size: 0,
            jump: (0, Timestamp::ZERO, Duration::ZERO),
            first_unvalidated: None,
            last_unvalidated: Timestamp::ZERO,
        }
    }

    /// Current phase.
    pub fn phase(&self) -> CarefulPhase {
        self.phase
    }

    /// Outcome of the jump, for the next cookie. After [`Verdict::Failed`], path state saved
    /// elsewhere must be removed ([`History::forget`](crate::History::forget)).
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// PipeSize: acknowledged bytes that the path carried; 0 before the jump.
    pub fn pipe_size(&self) -> u64 {
        self.pipe_size
    }

    /// Sets the size of the first frame, which limits a later jump.
    pub fn set_first_frame(&mut self, bytes: u64) {
        self.saved.first_frame = Some(bytes);
    }

    /// Records a packet of `bytes` bytes sent at `now`. `in_flight` includes them.
    pub fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64) -> Option<Order> {
        self.sent = self.sent.saturating_add(bytes);
        self.first_sent.get_or_insert(now);
        self.last_sent = now;
        let CarefulPhase::Unvalidated = self.phase else { return None };
        let (window, since, rtt) = self.jump;
        // Packets after the time limit are no longer unvalidated.
        if now.since(since) > rtt {
            return self.leave_unvalidated(in_flight);
        }
        self.first_unvalidated.get_or_insert(now);
        self.last_unvalidated = now;
        // "This condition is also true when the remaining unused CWND is less than one
        // maximum-sized packet."
        (in_flight + self.mtu > window).then(|| self.leave_unvalidated(in_flight)).flatten()
    }

    /// Processes an acknowledgement. `window` is the controller's window after it. As for
    /// controllers, revealed losses come first ([`Careful::on_congestion_event`]).
    pub fn on_ack(&mut self, batch: &AckBatch, window: u64) -> Option<Order> {
        match self.phase {
            CarefulPhase::Reconnaissance => self.reconnoitre(batch, window),
            CarefulPhase::Unvalidated => {
                self.pipe_size = self.pipe_size.saturating_add(batch.acked_bytes);
                if batch.rtt_sample() <= self.saved.rtt / 2 {
                    return self.retreat();
                }
                let is_acked =
                    self.first_unvalidated.is_some_and(|first| batch.largest_sent_time >= first);
                let (_, since, rtt) = self.jump;
                let is_over = is_acked || batch.now.since(since) > rtt;
                is_over.then(|| self.leave_unvalidated(batch.in_flight)).flatten()
            }
            CarefulPhase::Validating => {
                self.pipe_size = self.pipe_size.saturating_add(batch.acked_bytes);
                if batch.largest_sent_time >= self.last_unvalidated {
                    self.verdict = Verdict::Passed;
                    self.phase = CarefulPhase::Normal(Exit::LastUnvalidatedPacketAcknowledged);
                }
                None
            }
            CarefulPhase::SafeRetreat => {
                self.pipe_size = self.pipe_size.saturating_add(batch.acked_bytes);
                (batch.largest_sent_time >= self.last_unvalidated).then(|| {
                    self.phase = CarefulPhase::Normal(Exit::ExitRecovery);
                    Order::Release { ssthresh: (self.pipe_size as f64 * self.beta) as u64 }
                })
            }
            CarefulPhase::Normal(_) => None,
        }
    }

    /// Processes a congestion event: a loss or an ECN mark.
    pub fn on_congestion_event(&mut self, event: &CongestionEvent) -> Option<Order> {
        let is_persistent = event.kind == CongestionKind::Persistent;
        match self.phase {
            CarefulPhase::Normal(_) => None,
            CarefulPhase::Reconnaissance => {
                self.phase = CarefulPhase::Normal(Exit::Congestion);
                None
            }
            phase if is_persistent => {
                self.verdict = Verdict::Failed;
                self.phase = CarefulPhase::Normal(Exit::PersistentCongestion);
                let ssthresh = (self.pipe_size as f64 * self.beta) as u64;
                (phase == CarefulPhase::SafeRetreat).then_some(Order::Release { ssthresh })
            }
            CarefulPhase::Unvalidated | CarefulPhase::Validating => self.retreat(),
            CarefulPhase::SafeRetreat => None,
        }
    }

    fn reconnoitre(&mut self, batch: &AckBatch, window: u64) -> Option<Order> {
        // Ignores acknowledgements of the handshake.
        if self.first_sent.is_none_or(|first| batch.largest_sent_time < first) {
            return None;
        }
        let initial_data = *self.initial_data.get_or_insert(self.last_sent);
        // At half the round trip, the saved window would mean twice the saved rate. At ten times
        // the round trip, it is another path (section 4.2.1).
        let (saved, min) = (self.saved.rtt, batch.rtt.min);
        if min <= saved / 2 || min > saved.saturating_mul(10) {
            self.phase = CarefulPhase::Normal(Exit::RttNotValidated);
            return None;
        }
        // All initial data was acknowledged, and the window limits the sender.
        let is_confirmed = batch.largest_sent_time >= initial_data;
        if !is_confirmed || !batch.cwnd_limited {
            return None;
        }
        let wanted = self.saved.first_frame.map_or(u64::MAX, |bytes| {
            let wire = bytes.saturating_add(bytes / OVERHEAD);
            let remaining = wire.saturating_sub(self.sent);
            batch.in_flight.saturating_add(remaining)
        });
        let jump = self.saved.jump.min(wanted);
        if jump <= window {
            self.phase = CarefulPhase::Normal(Exit::NothingToGain);
            return None;
        }
        // Pace by the current round trip: the minimum might be too fast.
        let rtt = batch.rtt_sample().max(min);
        self.phase = CarefulPhase::Unvalidated;
        self.pipe_size = batch.in_flight;
        self.jump = (jump, batch.now, rtt);
        Some(Order::Jump { window: jump, rate: Rate::from_bytes_in(jump, rtt) })
    }

    /// Leaves the unvalidated phase ("Upon any of these events").
    fn leave_unvalidated(&mut self, in_flight: u64) -> Option<Order> {
        if in_flight < self.initial_window || in_flight <= self.pipe_size {
            self.phase = CarefulPhase::Normal(Exit::RateLimited);
            return Some(Order::Window(self.pipe_size.max(self.initial_window)));
        }
        self.phase = CarefulPhase::Validating;
        Some(Order::Window(in_flight))
    }

    fn retreat(&mut self) -> Option<Order> {
        // Recovery ends with the last packet sent in the unvalidated or validating phase.
        self.last_unvalidated = self.last_sent;
        self.verdict = Verdict::Failed;
        self.phase = CarefulPhase::SafeRetreat;
        Some(Order::Hold((self.pipe_size / 2).max(2 * self.mtu)))
    }
}

#[cfg(test)]
mod tests;
