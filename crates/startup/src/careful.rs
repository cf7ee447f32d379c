//! Careful Resume (RFC 9959, section 3): from saved parameters to a jump of the congestion window that
//! is taken back as soon as anything contradicts it.
//!
//! Beside the congestion controller, which goes on as it does; [`Careful`] is told what that is told, and
//! says what is to be done about the window as an [`Order`]. Packets are told apart by the times at which
//! they left, because packet numbers of QUIC begin anew in each number space.
//!
//! Two bounds are added to those of the RFC. What is jumped to is scaled by the confidence in the saved
//! parameters, and is not more than the bytes that remain of the first frame: nobody waits for more.

use core::time::Duration;

use congestion::{AckBatch, CongestionEvent, CongestionKind};
use units::{Rate, Timestamp};

use crate::cookie::{Past, Verdict};

/// What a first frame takes more than its bytes, for the headers of packets and frames: one part
/// in sixteen.
const OVERHEAD: u64 = 16;

/// Saved parameters (section 2.2).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Saved {
    /// `jump_cwnd` in bytes: at most `max_jump` and half of `saved_cwnd`, less if confidence is low.
    pub jump: u64,
    /// `saved_rtt`.
    pub rtt: Duration,
    /// Bytes of the first frame; `None` if they are not known, and do not bound the jump.
    pub first_frame: Option<u64>,
}

impl Saved {
    /// What may be jumped to after this past.
    pub fn new(past: &Past, first_frame: Option<u64>, max_jump: u64) -> Self {
        let half = past.saved_window() / 2;
        let trusted = (half as f64 * past.confidence.clamp(0.0, 1.0)) as u64;
        let jump = trusted.min(half).min(max_jump);
        Self { jump, rtt: past.cookie.min_rtt, first_frame }
    }
}

/// The phases of section 3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The initial window is under way; the path is being compared with the saved one.
    Reconnaissance,
    /// The jump is being sent.
    Unvalidated,
    /// The jump was sent; its acknowledgements are awaited.
    Validating,
    /// The jump met congestion, and is being drained.
    SafeRetreat,
    /// Careful Resume is over: the congestion controller is alone.
    Normal(Exit),
}

impl Phase {
    /// Its name in logs (draft-ietf-tsvwg-careful-resume-qlog).
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

/// Why Careful Resume is over. The names are those of its qlog events
/// (draft-ietf-tsvwg-careful-resume-qlog) where those have one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Exit {
    /// Congestion was met before the jump.
    Congestion,
    /// The round trip is at most half of the saved one, or more than ten times as long.
    RttNotValidated,
    /// The window is as large already, or the rest of the first frame fits into it.
    NothingToGain,
    /// Less was sent than would have been needed to validate anything.
    RateLimited,
    /// The jump was acknowledged.
    LastUnvalidatedPacketAcknowledged,
    /// The retreat is over.
    ExitRecovery,
    /// Persistent congestion.
    PersistentCongestion,
}

/// What is to be done about the congestion window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Order {
    /// The window is `window` bytes, and all packets are paced at `rate` until the next order.
    Jump {
        /// Bytes.
        window: u64,
        /// `window` over the current round trip.
        rate: Rate,
    },
    /// The window is this many bytes, and goes on from there by the controller's own rules.
    Window(u64),
    /// The window is at most this many bytes, and may not grow until [`Order::Release`].
    Hold(u64),
    /// The window may grow again; the slow-start threshold is at most `ssthresh` bytes.
    Release {
        /// Bytes: PipeSize × β.
        ssthresh: u64,
    },
}

/// One connection's Careful Resume.
#[derive(Clone, Debug)]
pub struct Careful {
    saved: Saved,
    initial_window: u64,
    mtu: u64,
    /// The controller's reduction at a loss, from 0.5 to 1.
    beta: f64,
    phase: Phase,
    verdict: Verdict,
    /// Bytes sent so far.
    sent: u64,
    first_sent: Option<Timestamp>,
    last_sent: Timestamp,
    /// When the last packet of the initial data left: of what left before the first acknowledgement of
    /// any of it.
    initial_data: Option<Timestamp>,
    pipe_size: u64,
    /// The window of the unvalidated phase, when it began and how long it may last.
    jump: (u64, Timestamp, Duration),
    /// When the first unvalidated packet left.
    first_unvalidated: Option<Timestamp>,
    /// When the last one left.
    last_unvalidated: Timestamp,
}

impl Careful {
    /// Begins the reconnaissance, before the first packet of the response. `initial_window` is in
    /// bytes, `beta` is the controller's multiplicative decrease, from 0.5 to 1 (section 2.2: 0.5 unless
    /// the controller has its own; CUBIC 0.7).
    pub fn new(saved: Saved, initial_window: u64, mtu: u16, beta: f64) -> Self {
        Self {
            saved,
            initial_window,
            mtu: mtu.into(),
            beta: beta.clamp(0.5, 1.0),
            phase: Phase::Reconnaissance,
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

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What became of the jump, for the next cookie. [`Verdict::Failed`] also means that what is saved
    /// for the path elsewhere is to be forgotten ([`History::forget`](crate::History::forget)).
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// PipeSize: bytes that the path has carried, validated by acknowledgements; 0 before the jump.
    pub fn pipe_size(&self) -> u64 {
        self.pipe_size
    }

    /// The size of the first frame is known: a bound of the jump, unless that was made already.
    pub fn set_first_frame(&mut self, bytes: u64) {
        self.saved.first_frame = Some(bytes);
    }

    /// A packet of `bytes` bytes left at `now`; `in_flight` bytes are in flight with it.
    pub fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64) -> Option<Order> {
        self.sent = self.sent.saturating_add(bytes);
        self.first_sent.get_or_insert(now);
        self.last_sent = now;
        let Phase::Unvalidated = self.phase else { return None };
        let (window, since, rtt) = self.jump;
        // What leaves behind the limit of time is not unvalidated any more.
        if now.since(since) > rtt {
            return self.leave_unvalidated(in_flight);
        }
        self.first_unvalidated.get_or_insert(now);
        self.last_unvalidated = now;
        // "This condition is also true when the remaining unused CWND is less than one maximum-sized
        // packet."
        (in_flight + self.mtu > window).then(|| self.leave_unvalidated(in_flight)).flatten()
    }

    /// An acknowledgement came, and `window` is the controller's congestion window after it. The losses
    /// that it reveals come first ([`Careful::on_congestion_event`]), as controllers are told.
    pub fn on_ack(&mut self, batch: &AckBatch, window: u64) -> Option<Order> {
        match self.phase {
            Phase::Reconnaissance => self.reconnoitre(batch, window),
            Phase::Unvalidated => {
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
            Phase::Validating => {
                self.pipe_size = self.pipe_size.saturating_add(batch.acked_bytes);
                if batch.largest_sent_time >= self.last_unvalidated {
                    self.verdict = Verdict::Passed;
                    self.phase = Phase::Normal(Exit::LastUnvalidatedPacketAcknowledged);
                }
                None
            }
            Phase::SafeRetreat => {
                self.pipe_size = self.pipe_size.saturating_add(batch.acked_bytes);
                (batch.largest_sent_time >= self.last_unvalidated).then(|| {
                    self.phase = Phase::Normal(Exit::ExitRecovery);
                    Order::Release { ssthresh: (self.pipe_size as f64 * self.beta) as u64 }
                })
            }
            Phase::Normal(_) => None,
        }
    }

    /// Congestion is signalled: a loss, or a mark.
    pub fn on_congestion_event(&mut self, event: &CongestionEvent) -> Option<Order> {
        let is_persistent = event.kind == CongestionKind::Persistent;
        match self.phase {
            Phase::Normal(_) => None,
            Phase::Reconnaissance => {
                self.phase = Phase::Normal(Exit::Congestion);
                None
            }
            phase if is_persistent => {
                self.verdict = Verdict::Failed;
                self.phase = Phase::Normal(Exit::PersistentCongestion);
                let ssthresh = (self.pipe_size as f64 * self.beta) as u64;
                (phase == Phase::SafeRetreat).then_some(Order::Release { ssthresh })
            }
            Phase::Unvalidated | Phase::Validating => self.retreat(),
            Phase::SafeRetreat => None,
        }
    }

    fn reconnoitre(&mut self, batch: &AckBatch, window: u64) -> Option<Order> {
        // Packets of the handshake are acknowledged on the way.
        if self.first_sent.is_none_or(|first| batch.largest_sent_time < first) {
            return None;
        }
        let initial_data = *self.initial_data.get_or_insert(self.last_sent);
        // A path that is twice as short would get the saved window at twice the saved rate; one that is
        // ten times as long is another path (section 4.2.1).
        let (saved, min) = (self.saved.rtt, batch.rtt.min);
        if min <= saved / 2 || min > saved.saturating_mul(10) {
            self.phase = Phase::Normal(Exit::RttNotValidated);
            return None;
        }
        // All initial data must have arrived, and more must be waiting than the window lets out.
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
            self.phase = Phase::Normal(Exit::NothingToGain);
            return None;
        }
        // The current round trip, which paces the jump: not the minimum, which might be too fast.
        let rtt = batch.rtt_sample().max(min);
        self.phase = Phase::Unvalidated;
        self.pipe_size = batch.in_flight;
        self.jump = (jump, batch.now, rtt);
        Some(Order::Jump { window: jump, rate: Rate::from_bytes_in(jump, rtt) })
    }

    /// "Upon any of these events": whether enough was sent to validate anything.
    fn leave_unvalidated(&mut self, in_flight: u64) -> Option<Order> {
        if in_flight < self.initial_window || in_flight <= self.pipe_size {
            self.phase = Phase::Normal(Exit::RateLimited);
            return Some(Order::Window(self.pipe_size.max(self.initial_window)));
        }
        self.phase = Phase::Validating;
        Some(Order::Window(in_flight))
    }

    fn retreat(&mut self) -> Option<Order> {
        // The recovery ends with the last packet sent in the unvalidated or validating phase.
        self.last_unvalidated = self.last_sent;
        self.verdict = Verdict::Failed;
        self.phase = Phase::SafeRetreat;
        Some(Order::Hold((self.pipe_size / 2).max(2 * self.mtu)))
    }
}

#[cfg(test)]
mod tests;
