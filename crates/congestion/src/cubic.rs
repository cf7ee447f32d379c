//! CUBIC (RFC 9438). After a congestion event the window returns along a cubic curve to its former
//! maximum, stays there for a while and probes beyond, never slower than Reno. Slow start follows
//! HyStart++ (RFC 9406); recovery periods and persistent congestion follow RFC 9002, section 7.
//! Windows are fractional bytes (the RFC's segments times the datagram size).
//!
//! [`Cubic::for_live`] is a variant of our own. Under a random loss rate p, the RFC's window is
//! about √(1.5 ÷ p) packets: six packets per round trip at 5 %, which freezes a live viewer half of
//! the time. While the sender's data has a pace of its own and round trips show no queue, losses
//! do not come from a queue that this sender fills. The variant then keeps a window that carries
//! the recent delivered rate.

use core::time::Duration;

use units::{PacketNumber, Rate, Timestamp};

use crate::controller::{
    AckBatch, Cap, CongestionEvent, CongestionKind, Controller, Snapshot, Start, StartRate,
    initial_window, minimum_window,
};
use crate::floor::{Floor, is_queue};
use crate::hystart::{CSS_GROWTH_FRACTION, CSS_GROWTH_LIMIT, GrowthPhase, HyStart};
use crate::pacer::burst;

/// `C`, in segments per second cubed (RFC 9438, section 5).
const C: f64 = 0.4;
/// `beta_cubic` (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// `alpha_cubic` while the Reno-friendly window is below the last maximum (RFC 9438, section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// RFC 9002, section 7.7: the pacing rate is N windows per smoothed round trip. A small surplus
/// keeps the window, not the pacer, in control.
const PACING_GAIN: f64 = 1.25;
/// In slow start the window doubles per round trip, and the next window must fit.
const SLOW_START_PACING_GAIN: f64 = 2.0;

/// Time for which a sender counts as live after it last wrote live data, and maximum round trip
/// over which its window carries the delivered rate.
const LIVE_MEMORY: Duration = Duration::from_secs(4);
const MAX_FLOOR_RTT: Duration = Duration::from_secs(1);

/// A stage of congestion avoidance (the RFC's epoch).
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// `t`: time in this stage while the window was used.
    elapsed: Duration,
    /// Time up to which `elapsed` was counted.
    counted_to: Timestamp,
    /// `K` in seconds: the time at which the curve reaches `w_max`.
    k: f64,
    /// `W_est`: Reno's window.
    w_est: f64,
}

/// State before a congestion event.
#[derive(Clone, Copy, Debug)]
struct Before {
    window: f64,
    ssthresh: f64,
    w_max: f64,
    prior_window: f64,
    epoch: Option<Epoch>,
}

/// State of the variant for live streams.
#[derive(Clone, Copy, Debug, Default)]
struct LiveVariant {
    floor: Floor,
    /// Time until which the sender counts as live.
    until: Timestamp,
    min_rtt: Duration,
}

impl LiveVariant {
    fn on_ack(&mut self, batch: &AckBatch) {
        self.floor.on_ack(batch.now, batch.acked_bytes, batch.rtt_sample());
        self.min_rtt = batch.rtt.min;
        if batch.source_paced {
            self.until = batch.now + LIVE_MEMORY;
        }
    }

    /// Returns the window floor; 0 if losses may come from a queue.
    fn window(&self, now: Timestamp) -> u64 {
        let shows_queue = |rtt| is_queue(rtt, self.min_rtt);
        match self.floor.present_rtt() {
            Some(rtt) if now < self.until && !shows_queue(rtt) => {
                self.floor.window((rtt + rtt / 4).min(MAX_FLOOR_RTT))
            }
            _ => 0,
        }
    }
}

/// CUBIC with HyStart++.
#[derive(Clone, Debug)]
pub struct Cubic {
    mtu: u16,
    /// `cwnd`.
    window: f64,
    /// Infinite until the initial slow start ends.
    ssthresh: f64,
    /// `W_max`; 0 before the first congestion event and after persistent congestion.
    w_max: f64,
    /// `cwnd_prior`: window when `ssthresh` was last set.
    prior_window: f64,
    epoch: Option<Epoch>,
    /// Start of the current or last recovery period.
    recovery_start: Option<Timestamp>,
    in_recovery: bool,
    /// State before the last congestion event, while it can be restored.
    before: Option<Before>,
    hystart: HyStart,
    next: PacketNumber,
    /// Smoothed round trip, or the one assumed by [`Controller::start`].
    rtt: Option<Duration>,
    start_rate: StartRate,
    cap: Cap,
    /// `None` for standard CUBIC.
    live: Option<LiveVariant>,
}

impl Cubic {
    /// Creates a controller for datagrams of `mtu` bytes.
    pub fn new(mtu: u16) -> Self {
        Self {
            mtu,
            window: initial_window(mtu) as f64,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            prior_window: 0.0,
            epoch: None,
            recovery_start: None,
            in_recovery: false,
            before: None,
            hystart: HyStart::default(),
            next: PacketNumber(0),
            rtt: None,
            start_rate: StartRate::default(),
            cap: Cap::default(),
            live: None,
        }
    }

    /// Creates the variant that keeps the window above a live stream's delivered rate if there is
    /// no queue.
    pub fn for_live(mtu: u16) -> Self {
        Self { live: Some(LiveVariant::default()), ..Self::new(mtu) }
    }

    /// Raises the window to the floor of a live stream.
    fn raise_to_floor(&mut self, now: Timestamp) {
        let floor = self.live.map_or(0, |live| live.window(now)) as f64;
        if self.window < floor {
            self.window = floor;
            self.ssthresh = self.ssthresh.max(floor);
            self.epoch = None;
        }
    }

    fn minimum(&self) -> f64 {
        minimum_window(self.mtu) as f64
    }

    fn in_slow_start(&self) -> bool {
        self.window < self.ssthresh
    }

    /// Returns the pacing rate before caps.
    fn own_rate(&self) -> Option<Rate> {
        self.start_rate.get().or_else(|| {
            let gain = if self.in_slow_start() { SLOW_START_PACING_GAIN } else { PACING_GAIN };
            Some(Rate::from_bytes_in((self.window * gain) as u64, self.rtt?))
        })
    }

    fn grow_in_slow_start(&mut self, batch: &AckBatch) {
        let acked = batch.acked_bytes as f64;
        // RFC 9406, section 4.2: HyStart++ is for the initial slow start only.
        let phase = if self.ssthresh.is_finite() {
            GrowthPhase::SlowStart
        } else {
            self.hystart.on_ack(batch.largest_acked, self.next, batch.rtt_sample())
        };
        match phase {
            GrowthPhase::SlowStart => self.window += acked,
            GrowthPhase::ConservativeSlowStart => {
                let limit = CSS_GROWTH_LIMIT * f64::from(self.mtu) / self.window;
                self.window += acked * CSS_GROWTH_FRACTION.min(limit);
            }
            GrowthPhase::Done => {
                tracing::debug!(window = self.window, "CUBIC: slow start over");
                self.ssthresh = self.window;
                self.prior_window = self.window;
            }
        }
    }

    /// RFC 9438, sections 4.2 to 4.5.
    fn grow_in_congestion_avoidance(&mut self, batch: &AckBatch) {
        let mtu = f64::from(self.mtu);
        let mut epoch = self.epoch.unwrap_or_else(|| {
            // Sections 4.8 and 4.10: without a former maximum, the curve starts at its flat point.
            self.w_max = self.w_max.max(self.window);
            Epoch {
                elapsed: Duration::ZERO,
                counted_to: batch.now,
                k: ((self.w_max - self.window) / mtu / C).cbrt(),
                w_est: self.window,
            }
        });
        epoch.elapsed += batch.now.since(epoch.counted_to);
        epoch.counted_to = batch.now;

        let segments_acked_per_window = batch.acked_bytes as f64 / self.window;
        let alpha = if epoch.w_est < self.prior_window { ALPHA } else { 1.0 };
        epoch.w_est += alpha * segments_acked_per_window * mtu;

        let w_cubic = |t: Duration| C * (t.as_secs_f64() - epoch.k).powi(3) * mtu + self.w_max;
        self.window = if w_cubic(epoch.elapsed) < epoch.w_est {
            self.window.max(epoch.w_est)
        } else {
            let target =
                w_cubic(epoch.elapsed + batch.rtt.smoothed).clamp(self.window, 1.5 * self.window);
            self.window + (target - self.window) * segments_acked_per_window.min(1.0)
        };
        self.epoch = Some(epoch);
    }
}

impl Controller for Cubic {
    fn on_sent(&mut self, now: Timestamp, pn: PacketNumber, _bytes: u64, in_flight: u64) {
        self.next = pn.next();
        self.start_rate.on_sent(now);
        // RFC 9438, section 5.8: t excludes idle time.
        if in_flight == 0
            && let Some(epoch) = &mut self.epoch
        {
            epoch.counted_to = epoch.counted_to.max(now);
        }
    }

    fn on_ack(&mut self, batch: &AckBatch) {
        self.rtt = Some(batch.rtt.smoothed);
        self.start_rate.on_ack(batch);
        if let Some(live) = &mut self.live {
            live.on_ack(batch);
            self.raise_to_floor(batch.now);
        }
        // RFC 9002, section 7.3.2: "A recovery period ends and the sender enters congestion
        // avoidance when a packet sent during the recovery period is acknowledged."
        if self.recovery_start.is_some_and(|start| batch.largest_sent_time <= start) {
            return;
        }
        self.in_recovery = false;
        // RFC 9002, section 7.8: an underused window is not increased.
        if !batch.cwnd_limited || self.cap.binds(self.window as u64, self.own_rate()) {
            if let Some(epoch) = &mut self.epoch {
                epoch.counted_to = batch.now;
            }
        } else if self.in_slow_start() {
            self.grow_in_slow_start(batch);
        } else {
            self.grow_in_congestion_avoidance(batch);
        }
    }

    /// The window responds to signals only.
    fn on_packets_lost(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        // RFC 9002, section 7.3.2: one reduction per recovery period.
        if self.recovery_start.is_none_or(|start| event.largest_lost_sent_time > start) {
            self.recovery_start = Some(event.now);
            self.in_recovery = true;
            let Self { window, ssthresh, w_max, prior_window, epoch, .. } = *self;
            let undoable = event.kind == CongestionKind::Loss;
            self.before =
                undoable.then_some(Before { window, ssthresh, w_max, prior_window, epoch });
            // RFC 9438, section 4.7: fast convergence releases bandwidth to new flows.
            self.w_max = if self.window < self.w_max {
                self.window * (1.0 + BETA) / 2.0
            } else {
                self.window
            };
            // RFC 9438, section 4.6, allows reducing cwnd or flight. The window is reduced: it
            // grows only while it is used.
            self.prior_window = self.window;
            // Rounded to whole packets: only four packets fit a window of 4.9, which costs 2 % of
            // goodput on a path that holds seven.
            let mtu = f64::from(self.mtu);
            self.ssthresh = ((self.window * BETA / mtu).round() * mtu).max(self.minimum());
            self.window = self.ssthresh;
            tracing::debug!(from = window, to = self.window, "CUBIC: recovery");
            self.epoch = None;
            if event.kind == CongestionKind::Loss {
                self.raise_to_floor(event.now);
            }
        }
        if event.kind == CongestionKind::Persistent {
            // RFC 9002, section 7.6.2: "the sender's congestion window MUST be reduced to the
            // minimum congestion window". RFC 9438, section 4.8: the next curve starts flat.
            self.window = self.minimum();
            self.before = None;
            self.start_rate = StartRate::default();
            self.w_max = 0.0;
            self.epoch = None;
            self.recovery_start = None;
            self.in_recovery = false;
        }
    }

    /// Restores the state before the event, unless the window has outgrown it (RFC 9438, section
    /// 4.9.2).
    fn on_spurious_congestion(&mut self, now: Timestamp) {
        let Some(before) = self.before.take() else { return };
        self.in_recovery = false;
        if before.window <= self.window {
            return;
        }
        let Before { window, ssthresh, w_max, prior_window, mut epoch } = before;
        tracing::debug!(from = self.window, to = window, "CUBIC: reduction undone");
        // The curve continues without the time of the recovery.
        if let Some(epoch) = &mut epoch {
            epoch.counted_to = now;
        }
        (self.window, self.ssthresh, self.w_max) = (window, ssthresh, w_max);
        (self.prior_window, self.epoch) = (prior_window, epoch);
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
        self.ssthresh = f64::INFINITY;
        self.live = self.live.map(|live| LiveVariant { floor: Floor::default(), ..live });
        self.before = None;
        self.hystart = HyStart::default();
        self.epoch = None;
        self.w_max = 0.0;
        if let Some(window) = start.window {
            self.window = (window as f64).max(self.minimum());
        }
        self.start_rate.set(start.rate);
        self.rtt = self.rtt.or(start.rtt);
    }

    fn resume(&mut self, window: u64, threshold: u64) {
        self.start(Start { window: Some(window), ..Start::default() });
        self.ssthresh = (threshold as f64).max(self.window);
        self.prior_window = self.ssthresh;
        self.start_rate = StartRate::default();
    }

    fn cap(&mut self, cap: Cap) {
        self.cap = cap;
    }

    fn on_mtu(&mut self, mtu: u16) {
        // RFC 9002, section 7.2: the initial window is recalculated when the datagram size changes.
        if self.window == initial_window(self.mtu) as f64 {
            self.window = initial_window(mtu) as f64;
        }
        self.mtu = mtu;
        self.window = self.window.max(self.minimum());
    }

    fn beta(&self) -> f64 {
        BETA
    }

    fn name(&self) -> &'static str {
        if self.live.is_some() { "cubic-live" } else { "cubic" }
    }

    fn snapshot(&self) -> Snapshot {
        let state = if self.in_recovery {
            "recovery"
        } else if !self.in_slow_start() {
            "congestion_avoidance"
        } else if self.hystart.phase() == GrowthPhase::ConservativeSlowStart
            && self.ssthresh.is_infinite()
        {
            "conservative_slow_start"
        } else {
            "slow_start"
        };
        Snapshot {
            state,
            window: self.window(),
            pacing_rate: self.pacing_rate(),
            ssthresh: self.ssthresh.is_finite().then_some(self.ssthresh as u64),
            ..Snapshot::default()
        }
    }
}

#[cfg(test)]
mod tests;
