//! Copa (V. Arun, H. Balakrishnan: "Copa: Practical Delay-Based Congestion Control for the
//! Internet", NSDI 2018). The window moves towards a rate of `1/(δ·d_q)` packets per second, where
//! `d_q` is the queueing delay, so one flow keeps about `1/δ` packets in the queue. Section numbers
//! are the paper's. Windows are fractional bytes; the paper's packets are datagrams.
//!
//! Choices that the paper leaves open:
//! - Velocity is reset to 1 as soon as the window turns (as in mvfst), not only after the next
//!   comparison of windows.
//! - A velocity above 1 removes at most half of the excess packets in the queue per round trip.
//!   Feedback is a round trip old: without this limit, a window of 3000 packets oscillates between
//!   half and one and a half of the path's capacity.
//! - A window at most doubles or halves per round trip at any velocity and `1/δ`.
//! - A queue also counts as nearly empty if it holds less than one and a half packets of this flow,
//!   or if round trips do not vary. The oscillation of default mode is about five packets, and a
//!   tenth of that is less than the one packet that each flow always has in transit.
//! - The five round trips without an empty queue restart when the window turns after slow start
//!   (the queue was the flow's own) and when a flight starts with nothing in flight.
//! - In competitive mode `1/δ` is halved at most once per round trip, as RFC 9002, section 7.3.2
//!   reduces windows, and grows only while the window is used. CE marks count as losses.
//! - In default mode, losses and CE marks are not signals (loss: as in the paper; ECN has nothing
//!   to mark in a queue of a few packets). Persistent congestion collapses the window as RFC 9002,
//!   section 7.6.2 demands, and restarts slow start.
//! - An unused or capped window does not grow, but shrinks if the queue demands it.
//! - Round trips include the peer's acknowledgement delay; the minima remove its variation.
//!
//! Known limits of the algorithm:
//! - If the queue holds fewer than `1/δ` packets, no delay stops the flow: with a queue of two
//!   packets half of its packets are lost (and the link is full).
//! - Against one CUBIC flow it gets 0.3 to 0.5 of a link with a queue of 1 or 2 bandwidth-delay
//!   products, and 0.15 with a queue of 4, or with a product of 1000 packets: `1/δ` grows by 1 per
//!   round trip, and CUBIC's window faster.
//! - A flow that mistakes its own queue for a competitor's adds to it until packets are lost or the
//!   queue empties by chance. A single flow does so only briefly. Two flows do on paths of fewer
//!   than about 40 packets, where their oscillations interleave and the queue seldom empties.
//! - A path that became longer seems congested until the old minimum is 10 s old.

mod windowed;

use core::cmp::{Ordering, Reverse};
use core::time::Duration;

use units::{PacketNumber, Rate, Timestamp};

use crate::controller::{
    AckBatch, Cap, CongestionEvent, CongestionKind, Controller, Snapshot, Start, StartRate,
    initial_window, minimum_window,
};
use crate::pacer::burst;
use windowed::Windowed;

/// `1/δ` of the default mode and minimum of the competitive mode (sections 2.1 and 2.2).
const DEFAULT_INVERSE_DELTA: f64 = 2.0;
/// `τ` of `RTTmin` (section 2.1).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// Round trips that `RTTmax` covers (section 2.2).
const MAX_RTT_ROUNDS: u32 = 4;
/// Fraction of `RTTmax − RTTmin` up to which a queueing delay counts as nearly empty (section 2.2).
const NEARLY_EMPTY_DIVISOR: u32 = 10;
/// Round trips without a nearly empty queue after which a competitor is assumed.
const EMPTY_QUEUE_ROUNDS: u32 = 5;
/// Round trips in one direction after which the velocity doubles (section 2.1).
const VELOCITY_ROUNDS: u32 = 3;
/// Pacing rate in windows per `RTTstanding` (section 2.1).
const PACING_GAIN: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopaState {
    /// The window doubles per round trip until its rate exceeds the target.
    SlowStart,
    /// Removes the queue that slow start built; ends when the window turns.
    Drain,
    /// `δ` is 0.5.
    Default,
    /// `1/δ` follows additive increase, multiplicative decrease, against flows that fill queues.
    Competitive,
}

/// Copa with mode switching.
#[derive(Clone, Debug)]
pub struct Copa {
    mtu: u16,
    state: CopaState,
    /// `cwnd`.
    window: f64,
    inverse_delta: f64,
    /// `v`.
    velocity: f64,
    /// Direction of the window in the last round.
    direction: Ordering,
    /// Rounds in that direction, including the last one.
    direction_rounds: u32,
    /// The next packet when the round started. Its acknowledgement ends the round.
    round_end: PacketNumber,
    /// Window when the round started.
    round_window: f64,
    /// Whether `1/δ` was halved in this round.
    round_has_loss: bool,
    next: PacketNumber,
    /// `RTTmin`.
    min_rtt: Windowed<Duration>,
    /// `RTTstanding`.
    standing_rtt: Windowed<Duration>,
    /// `RTTmax`.
    max_rtt: Windowed<Reverse<Duration>>,
    /// Time when the queue was last nearly empty.
    nearly_empty: Timestamp,
    /// Losses of packets sent up to then are already answered.
    loss_answered: Option<Timestamp>,
    /// Round trip assumed by [`Controller::start`] until one is measured.
    assumed_rtt: Option<Duration>,
    start_rate: StartRate,
    cap: Cap,
}

impl Copa {
    /// Creates a controller for datagrams of `mtu` bytes.
    pub fn new(mtu: u16) -> Self {
        let window = initial_window(mtu) as f64;
        Self {
            mtu,
            state: CopaState::SlowStart,
            window,
            inverse_delta: DEFAULT_INVERSE_DELTA,
            velocity: 1.0,
            direction: Ordering::Equal,
            direction_rounds: 0,
            round_end: PacketNumber(0),
            round_window: window,
            round_has_loss: false,
            next: PacketNumber(0),
            min_rtt: Windowed::default(),
            standing_rtt: Windowed::default(),
            max_rtt: Windowed::default(),
            nearly_empty: Timestamp::ZERO,
            loss_answered: None,
            assumed_rtt: None,
            start_rate: StartRate::default(),
            cap: Cap::default(),
        }
    }

    fn minimum(&self) -> f64 {
        minimum_window(self.mtu) as f64
    }

    /// Returns the pacing rate before caps.
    fn own_rate(&self) -> Option<Rate> {
        self.start_rate.get().or_else(|| {
            let rtt = self.standing_rtt.get().or(self.assumed_rtt)?;
            Some(Rate::from_bytes_in((self.window * PACING_GAIN) as u64, rtt))
        })
    }

    fn enter(&mut self, state: CopaState) {
        if state != self.state {
            tracing::debug!(from = ?self.state, to = ?state, window = self.window, "copa state");
        }
        self.state = state;
        self.inverse_delta = DEFAULT_INVERSE_DELTA;
    }

    /// Restarts slow start from `window` bytes.
    fn begin_slow_start(&mut self, window: f64) {
        self.enter(CopaState::SlowStart);
        self.window = window.max(self.minimum());
        self.begin_round();
        self.forget_direction();
    }

    fn forget_direction(&mut self) {
        self.velocity = 1.0;
        self.direction = Ordering::Equal;
        self.direction_rounds = 0;
    }

    fn begin_round(&mut self) {
        self.round_end = self.next;
        self.round_window = self.window;
        self.round_has_loss = false;
    }

    /// Selects the mode (section 2.2).
    fn choose_mode(&mut self, now: Timestamp, is_nearly_empty: bool, srtt: Duration) {
        if matches!(self.state, CopaState::SlowStart | CopaState::Drain) || is_nearly_empty {
            self.nearly_empty = now;
            if self.state == CopaState::Competitive {
                self.enter(CopaState::Default);
            }
        } else if self.state == CopaState::Default
            && now.since(self.nearly_empty) > EMPTY_QUEUE_ROUNDS * srtt
        {
            self.enter(CopaState::Competitive);
        }
    }

    /// Ends a round: section 2.1, step 4, and the additive increase of section 2.2.
    fn end_round(&mut self, in_use: bool) {
        let direction = self.window.total_cmp(&self.round_window);
        if direction == Ordering::Equal || direction != self.direction {
            self.forget_direction();
            self.direction = direction;
            self.direction_rounds = 1;
        } else {
            self.direction_rounds = self.direction_rounds.saturating_add(1);
            let step = self.velocity * self.inverse_delta * f64::from(self.mtu);
            if self.direction_rounds >= VELOCITY_ROUNDS && step < self.window {
                self.velocity *= 2.0;
            }
        }
        if self.state == CopaState::Competitive && in_use && !self.round_has_loss {
            self.inverse_delta += 1.0;
        }
        self.begin_round();
    }

    /// Moves the window by `v/(δ·cwnd)` packets per acknowledged packet (section 2.1, step 3).
    fn step(&mut self, towards: Ordering, acked: u64) {
        if self.velocity > 1.0 && towards != self.direction {
            self.forget_direction();
        }
        let (mtu, acked) = (f64::from(self.mtu), acked as f64);
        let step = self.velocity * self.inverse_delta * mtu * acked / self.window;
        if towards == Ordering::Greater {
            self.window += step.min(acked);
        } else {
            self.window = (self.window - step.min(acked / 2.0)).max(self.minimum());
        }
    }
}

impl Controller for Copa {
    fn on_sent(&mut self, now: Timestamp, pn: PacketNumber, _bytes: u64, in_flight: u64) {
        self.next = pn.next();
        self.start_rate.on_sent(now);
        if in_flight == 0 {
            self.nearly_empty = self.nearly_empty.max(now);
        }
    }

    fn on_ack(&mut self, batch: &AckBatch) {
        self.start_rate.on_ack(batch);
        let (now, rtt, srtt) = (batch.now, batch.rtt_sample(), batch.rtt.smoothed);
        let min_rtt = self.min_rtt.update(now, rtt, MIN_RTT_WINDOW);
        let standing_rtt = self.standing_rtt.update(now, rtt, srtt / 2);
        let Reverse(max_rtt) = self.max_rtt.update(now, Reverse(rtt), MAX_RTT_ROUNDS * srtt);
        // Equation 2.
        let d_q = standing_rtt.saturating_sub(min_rtt);
        // Packets of this flow in the queue.
        let queued = self.window / f64::from(self.mtu) * d_q.as_secs_f64()
            / standing_rtt.as_secs_f64().max(f64::MIN_POSITIVE);
        let is_nearly_empty =
            queued <= 1.5 || d_q <= max_rtt.saturating_sub(min_rtt) / NEARLY_EMPTY_DIVISOR;
        self.choose_mode(now, is_nearly_empty, srtt);

        let in_use = batch.cwnd_limited && !self.cap.binds(self.window as u64, self.own_rate());
        // Section 2.1, step 3: compares the rate cwnd / RTTstanding with equation 1, 1 / (δ·d_q).
        let excess = queued - self.inverse_delta;
        if excess > 0.0 {
            if self.state == CopaState::SlowStart {
                self.enter(CopaState::Drain);
            }
            self.velocity = self.velocity.min((excess / 2.0 / self.inverse_delta).max(1.0));
            self.step(Ordering::Less, batch.acked_bytes);
        } else {
            if self.state == CopaState::Drain {
                self.enter(CopaState::Default);
            }
            if in_use && self.state == CopaState::SlowStart {
                self.window += batch.acked_bytes as f64;
            } else if in_use {
                self.step(Ordering::Greater, batch.acked_bytes);
            }
        }
        if batch.largest_acked >= self.round_end {
            self.end_round(in_use);
        }
    }

    /// A loss alone is not a signal.
    fn on_packets_lost(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        if event.kind == CongestionKind::Persistent {
            // RFC 9002, section 7.6.2: "the sender's congestion window MUST be reduced to the
            // minimum congestion window".
            self.begin_slow_start(self.minimum());
            self.start_rate = StartRate::default();
        } else if self.state == CopaState::Competitive
            && self.loss_answered.is_none_or(|at| event.largest_lost_sent_time > at)
        {
            self.loss_answered = Some(event.now);
            self.round_has_loss = true;
            self.inverse_delta = (self.inverse_delta / 2.0).max(DEFAULT_INVERSE_DELTA);
        }
    }

    fn window(&self) -> u64 {
        self.cap.window(self.window as u64, minimum_window(self.mtu))
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.cap.rate(self.own_rate(), self.mtu)
    }

    fn send_quantum(&self) -> u64 {
        burst(self.pacing_rate(), self.mtu)
    }

    fn start(&mut self, start: Start) {
        self.begin_slow_start(start.window.map_or(self.window, |window| window as f64));
        self.start_rate.set(start.rate);
        self.assumed_rtt = start.rtt.or(self.assumed_rtt);
    }

    fn resume(&mut self, window: u64, _threshold: u64) {
        self.begin_slow_start(window as f64);
        self.enter(CopaState::Default);
        self.start_rate = StartRate::default();
    }

    fn cap(&mut self, cap: Cap) {
        self.cap = cap;
    }

    fn on_mtu(&mut self, mtu: u16) {
        // RFC 9002, section 7.2: the initial window is recalculated when the datagram size changes.
        if self.window == initial_window(self.mtu) as f64 {
            self.window = initial_window(mtu) as f64;
            self.round_window = self.window;
        }
        self.mtu = mtu;
        self.window = self.window.max(self.minimum());
    }

    fn name(&self) -> &'static str {
        "copa"
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: match self.state {
                CopaState::SlowStart => "slow_start",
                CopaState::Drain => "drain",
                CopaState::Default => "default",
                CopaState::Competitive => "competitive",
            },
            window: self.window(),
            pacing_rate: self.pacing_rate(),
            min_rtt: self.min_rtt.get(),
            standing_rtt: self.standing_rtt.get(),
            delta: Some(1.0 / self.inverse_delta),
            velocity: Some(self.velocity),
            ..Snapshot::default()
        }
    }
}

#[cfg(test)]
mod tests;
