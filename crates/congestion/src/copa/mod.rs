//! Copa (V. Arun, H. Balakrishnan: "Copa: Practical Delay-Based Congestion Control for the
//! Internet", NSDI 2018): the window moves towards a rate of `1/(δ·d_q)` packets per second, where
//! `d_q` is the queueing delay; one flow keeps about `1/δ` packets in the queue. Section numbers
//! below are the paper's. Windows are bytes, kept with their fraction; the paper's packets are
//! datagrams.
//!
//! What the paper does not say, and what was chosen:
//! - A velocity earned in one direction is not used in the other: when the window turns, the
//!   velocity is 1 at once (as in mvfst), not only after the next comparison of windows.
//! - A velocity above 1 takes at most half of the packets per round trip that are too many in the
//!   queue. Feedback is a round trip old: without this bound a window of 3000 packets swings
//!   between half and one and a half of what the path holds, and never settles.
//! - Per round trip a window at most doubles or halves, whatever velocity and `1/δ` are.
//! - A queue is nearly empty, too, when it holds less than one and a half packets of this flow, or
//!   when round trips do not vary at all. The oscillation of default mode is about five packets; a
//!   tenth of that is less than the one packet that each flow always has on its way.
//! - The five round trips without an empty queue begin anew when the window turns after slow start
//!   (that queue was no competitor's) and when a flight begins with nothing in flight.
//! - In competitive mode `1/δ` is halved at most once per round trip, as RFC 9002, section 7.3.2
//!   cuts windows, and grows only while the window is in use. CE marks count as losses.
//! - In default mode neither losses nor CE marks are signals (loss: the paper; its queue of a few
//!   packets gives ECN nothing to mark). Persistent congestion collapses the window as RFC 9002,
//!   section 7.6.2 demands, and slow start begins again.
//! - A window that is not in use, or under a cap, does not grow, but shrinks when the queue asks
//!   for it.
//! - Round trips include the peer's acknowledgement delay; the minima take out what varies of it.
//!
//! Known of the algorithm:
//! - Where the queue holds fewer than `1/δ` packets no delay tells it to stop: with a queue of two
//!   packets half of what it sends is lost (and the link is full).
//! - Against one CUBIC flow it gets 0.3 to 0.5 of a link whose queue holds 1 or 2 bandwidth-delay
//!   products, 0.15 with a queue of 4, and as little where that product is 1000 packets: `1/δ`
//!   grows by 1 per round trip, CUBIC's window faster.
//! - A flow that takes its own queue for a competitor's adds to it until packets are lost or the
//!   queue empties by chance. One flow alone does so for moments only; two flows do on paths of
//!   fewer than about 40 packets, where their oscillations interleave and the queue seldom empties.
//! - A path that got longer looks congested until the old minimum is 10 s old.

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

/// `1/δ` of the default mode, and the least of the competitive mode (sections 2.1 and 2.2).
const DEFAULT_INVERSE_DELTA: f64 = 2.0;
/// `τ` of `RTTmin` (section 2.1).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// `RTTmax` is that of this many round trips (section 2.2).
const MAX_RTT_ROUNDS: u32 = 4;
/// A queue is nearly empty when its delay is this fraction of `RTTmax − RTTmin` (section 2.2).
const NEARLY_EMPTY_DIVISOR: u32 = 10;
/// When the queue was not nearly empty for this many round trips, somebody else fills it.
const EMPTY_QUEUE_ROUNDS: u32 = 5;
/// The velocity doubles only after this many round trips of one direction (section 2.1).
const VELOCITY_ROUNDS: u32 = 3;
/// Packets leave at this many times the window per `RTTstanding` (section 2.1).
const PACING_GAIN: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The window doubles per round trip until its rate exceeds the target.
    SlowStart,
    /// Removes the queue that slow start made; ends when the window turns.
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
    state: State,
    /// `cwnd`.
    window: f64,
    inverse_delta: f64,
    /// `v`.
    velocity: f64,
    /// Where the window went in the last round.
    direction: Ordering,
    /// Rounds in that direction, the last one included.
    direction_rounds: u32,
    /// The round ends when this packet, the next one to be sent when it began, is acknowledged.
    round_end: PacketNumber,
    /// The window when the round began.
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
    /// When the queue was nearly empty for the last time.
    nearly_empty: Timestamp,
    /// Losses of packets sent up to then have halved `1/δ` already.
    loss_answered: Option<Timestamp>,
    /// A round trip supposed by [`Controller::start`], until one is measured.
    supposed_rtt: Option<Duration>,
    start_rate: StartRate,
    cap: Cap,
}

impl Copa {
    /// A controller for datagrams of `mtu` bytes.
    pub fn new(mtu: u16) -> Self {
        let window = initial_window(mtu) as f64;
        Self {
            mtu,
            state: State::SlowStart,
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
            supposed_rtt: None,
            start_rate: StartRate::default(),
            cap: Cap::default(),
        }
    }

    fn minimum(&self) -> f64 {
        minimum_window(self.mtu) as f64
    }

    /// The rate that the window asks for, before caps.
    fn own_rate(&self) -> Option<Rate> {
        self.start_rate.get().or_else(|| {
            let rtt = self.standing_rtt.get().or(self.supposed_rtt)?;
            Some(Rate::from_bytes_in((self.window * PACING_GAIN) as u64, rtt))
        })
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.inverse_delta = DEFAULT_INVERSE_DELTA;
    }

    /// The window is `window`, and doubles from there.
    fn begin_slow_start(&mut self, window: f64) {
        self.enter(State::SlowStart);
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

    /// Section 2.2: which mode the queue calls for.
    fn choose_mode(&mut self, now: Timestamp, is_nearly_empty: bool, srtt: Duration) {
        if matches!(self.state, State::SlowStart | State::Drain) || is_nearly_empty {
            self.nearly_empty = now;
            if self.state == State::Competitive {
                self.enter(State::Default);
            }
        } else if self.state == State::Default
            && now.since(self.nearly_empty) > EMPTY_QUEUE_ROUNDS * srtt
        {
            self.enter(State::Competitive);
        }
    }

    /// Section 2.1, step 4, and the additive increase of section 2.2: once per round.
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
        if self.state == State::Competitive && in_use && !self.round_has_loss {
            self.inverse_delta += 1.0;
        }
        self.begin_round();
    }

    /// Section 2.1, step 3: one step of `v/(δ·cwnd)` packets for each packet acknowledged.
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
        // What this flow has in the queue, in packets.
        let queued = self.window / f64::from(self.mtu) * d_q.as_secs_f64()
            / standing_rtt.as_secs_f64().max(f64::MIN_POSITIVE);
        let is_nearly_empty =
            queued <= 1.5 || d_q <= max_rtt.saturating_sub(min_rtt) / NEARLY_EMPTY_DIVISOR;
        self.choose_mode(now, is_nearly_empty, srtt);

        let in_use = batch.cwnd_limited && !self.cap.binds(self.window as u64, self.own_rate());
        // Section 2.1, step 3: the rate cwnd / RTTstanding against equation 1, 1 / (δ·d_q).
        let excess = queued - self.inverse_delta;
        if excess > 0.0 {
            if self.state == State::SlowStart {
                self.enter(State::Drain);
            }
            self.velocity = self.velocity.min((excess / 2.0 / self.inverse_delta).max(1.0));
            self.step(Ordering::Less, batch.acked_bytes);
        } else {
            if self.state == State::Drain {
                self.enter(State::Default);
            }
            if in_use && self.state == State::SlowStart {
                self.window += batch.acked_bytes as f64;
            } else if in_use {
                self.step(Ordering::Greater, batch.acked_bytes);
            }
        }
        if batch.largest_acked >= self.round_end {
            self.end_round(in_use);
        }
    }

    /// A lost packet leaves the flight, and is no signal by itself.
    fn on_packets_lost(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        if event.kind == CongestionKind::Persistent {
            // RFC 9002, section 7.6.2: "the sender's congestion window MUST be reduced to the
            // minimum congestion window".
            self.begin_slow_start(self.minimum());
            self.start_rate = StartRate::default();
        } else if self.state == State::Competitive
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
        self.supposed_rtt = start.rtt.or(self.supposed_rtt);
    }

    fn resume(&mut self, window: u64, _threshold: u64) {
        self.begin_slow_start(window as f64);
        self.enter(State::Default);
        self.start_rate = StartRate::default();
    }

    fn cap(&mut self, cap: Cap) {
        self.cap = cap;
    }

    fn on_mtu(&mut self, mtu: u16) {
        // RFC 9002, section 7.2: an initial window is recalculated when the datagram size changes.
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
                State::SlowStart => "slow_start",
                State::Drain => "drain",
                State::Default => "default",
                State::Competitive => "competitive",
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
