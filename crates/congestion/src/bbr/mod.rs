//! BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00): a model of the path (bottleneck
//! bandwidth and round trip without queue) from delivery-rate samples, and pacing rate and window
//! from the model. Section numbers and names are the draft's.
//!
//! Differences from the draft:
//! - The application-limited mark of ProbeRTT (section 4.3.5) would belong to the sampler, which
//!   the connection owns. Instead, the controller keeps the range of delivery counts with
//!   application-limited samples, with the same effect.
//! - Startup has no round of packet conservation: lost bytes leave the window, delivered bytes
//!   enter it. Under conservation, a flight of ten packets with a random loss cannot grow for three
//!   rounds, which Startup takes for a full pipe (at a twentieth of the bandwidth, which ProbeBW
//!   takes half a minute to repair).
//! - Nor has an application-limited sender: its flight reflects the data written, not what the
//!   path holds. Under conservation, the next frame of a live stream would leave at the pace of the
//!   last one's acknowledgements, in samples that count as the path's, and the estimate would fall
//!   towards the stream's own rate (off-mode of `mendcast lab run autorec-fig17` shows it).
//! - The minimum window, four packets, also applies in recovery. Persistent congestion (RFC 9002,
//!   section 7.6.2) reduces the window to it instead of to one packet, without restoring it later.
//! - Startup's window is 2 bandwidth-delay products (`startup_cwnd_gain` of draft-ietf-ccwg-bbr),
//!   not 2.885. That suffices to double each round, and a queue of one bandwidth-delay product
//!   holds the overshoot. Alternating drops over a whole window exceed the gaps in a stream that
//!   clients track.
//! - ProbeRTT is skipped if the filter's time had round trips within an eighth of `RTprop` (the
//!   tolerance of Chromium and LSQUIC), and keeps half a bandwidth-delay product in flight
//!   (`BBRProbeRTTCwndGain` of draft-ietf-ccwg-bbr), not four packets. Without the first, a path of
//!   300 ms loses 4 % of its goodput; without the second, a path of 10 ms does (`mendcast lab run
//!   transport`).
//! - Outages and application-limited senders have rules of their own (`limited`, `full_pipe`),
//!   except under [`Algorithm::BbrDraft`](crate::Algorithm::BbrDraft).
//! - The model's window is extended for bunches of acknowledgements, and for live streams on paths
//!   that became longer (`room`), except under [`Algorithm::BbrDraft`](crate::Algorithm::BbrDraft).
//! - The rate of [`Controller::start`] holds until a packet sent after it is acknowledged.
//! - ECN-CE and loss signals are answered alike, by one round of packet conservation (RFC 9002,
//!   section 7.1); the draft does not cover ECN.

mod aggregation;
mod filter;
mod full_pipe;
mod limited;
mod longer;
mod probe_rtt;
mod recovery;
mod room;

use core::ops::Range;
use core::time::Duration;

use units::{PacketNumber, Rate, Timestamp};

use crate::controller::{
    AckBatch, Cap, CongestionEvent, CongestionKind, Controller, Snapshot, Start, StartRate,
    initial_window,
};
use crate::pacer::burst;
use filter::MaxFilter;
use full_pipe::FullPipe;
use limited::Limited;
use recovery::BbrRecovery;
use room::{Model, Room};

/// `BBRHighGain`, 2/ln 2: the smallest gain that doubles the rate each round (section 4.3.2.1).
const HIGH_GAIN: f64 = 2.885;
/// Window in bandwidth-delay products (section 4.2.3.2), normally and in ProbeRTT.
const CWND_GAIN: f64 = 2.0;
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
/// Pacing gains of the ProbeBW cycle, one per `RTprop` (section 4.3.4.2).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// `RTpropFilterLen`.
const RTPROP_FILTER_LEN: Duration = Duration::from_secs(10);
/// Divisor of `RTprop` for the excess up to which a round trip confirms it.
const SIMILAR_RTT_DIVISOR: u32 = 8;
/// `ProbeRTTDuration`.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

/// The state machine of section 4.3.
#[derive(Clone, Copy, Debug)]
enum BbrState {
    /// Doubles the rate each round until the pipe is full.
    Startup,
    /// Removes the queue that Startup built.
    Drain,
    /// Cruises, and probes for more bandwidth once per cycle.
    ProbeBw { phase: usize, since: Timestamp },
    /// Drains the pipe to measure the round trip without queue. `done` is the end of the state;
    /// `None` until the pipe is drained.
    ProbeRtt { done: Option<Timestamp>, round_done: bool },
}

/// BBRv1.
#[derive(Clone, Debug)]
pub struct Bbr {
    mtu: u16,
    /// Generator state for the first phase of a gain cycle; never 0.
    random: u64,
    state: BbrState,
    /// `BtlBw`.
    bandwidth: MaxFilter,
    rtprop: Option<Duration>,
    rtprop_stamp: Timestamp,
    /// Total bytes delivered, `C.delivered`.
    delivered: u64,
    round_count: u64,
    round_start: bool,
    /// Packets sent at or above this delivery count end the round when acknowledged.
    next_round_delivered: u64,
    full_pipe: FullPipe,
    /// Samples of packets sent at these delivery counts are limited by ProbeRTT.
    probe_rtt_limited: Range<u64>,
    /// Whether the newest sample is application-limited.
    is_app_limited: bool,
    limited: Limited,
    room: Room,
    /// Whether sending has restarted from idle since the last ACK.
    idle_restart: bool,
    recovery: BbrRecovery,
    window: u64,
    /// Window of the connection's first flight.
    initial_window: u64,
    /// `prior_cwnd`: restored after recovery and ProbeRTT.
    prior_window: u64,
    pacing_rate: Option<Rate>,
    /// Round trip assumed by [`Controller::start`] until one is measured.
    assumed_rtt: Option<Duration>,
    start_rate: StartRate,
    cap: Cap,
}

impl Bbr {
    /// Creates a controller for datagrams of `mtu` bytes; `seed` determines the first phases of
    /// gain cycles.
    pub fn new(mtu: u16, seed: u64) -> Self {
        Self {
            mtu,
            random: seed | 1,
            state: BbrState::Startup,
            bandwidth: MaxFilter::default(),
            rtprop: None,
            rtprop_stamp: Timestamp::ZERO,
            delivered: 0,
            round_count: 0,
            round_start: false,
            next_round_delivered: 0,
            full_pipe: FullPipe::default(),
            probe_rtt_limited: 0..0,
            is_app_limited: false,
            limited: Limited::ON,
            room: Room::default(),
            idle_restart: false,
            recovery: BbrRecovery::NONE,
            window: initial_window(mtu),
            initial_window: initial_window(mtu),
            prior_window: 0,
            pacing_rate: None,
            assumed_rtt: None,
            start_rate: StartRate::default(),
            cap: Cap::default(),
        }
    }

    /// Creates a controller without our own rules (`limited`, `full_pipe`), for comparison.
    pub fn draft(mtu: u16, seed: u64) -> Self {
        Self { limited: Limited::Never, ..Self::new(mtu, seed) }
    }

    /// `BBRMinPipeCwnd`: four packets.
    fn min_pipe_window(&self) -> u64 {
        4 * u64::from(self.mtu)
    }

    fn pacing_gain(&self) -> f64 {
        match self.state {
            BbrState::Startup => HIGH_GAIN,
            BbrState::Drain => 1.0 / HIGH_GAIN,
            BbrState::ProbeBw { phase, .. } => CYCLE[phase],
            BbrState::ProbeRtt { .. } => 1.0,
        }
    }

    /// `BBRInflight(gain)`: bytes in flight that keep the pipe full at `gain`, plus three send
    /// quanta queued in sender and receiver (section 4.2.3.2).
    fn inflight(&self, gain: f64) -> u64 {
        match (self.bandwidth.get(), self.rtprop) {
            (Some(bandwidth), Some(rtprop)) => {
                bandwidth.scale(gain).bytes_in(rtprop).saturating_add(3 * self.send_quantum())
            }
            _ => self.initial_window,
        }
    }

    /// Updates rounds and bandwidth from a sample (section 4.1.1).
    fn update_bandwidth(&mut self, batch: &AckBatch) {
        self.round_start = false;
        self.limited.on_ack(batch, self.round_count);
        let Some(sample) = batch.rate else {
            self.delivered = self.delivered.saturating_add(batch.acked_bytes);
            return;
        };
        self.delivered = sample.prior_delivered.saturating_add(sample.delivered);
        self.is_app_limited = sample.is_app_limited;
        if sample.prior_delivered >= self.next_round_delivered {
            self.next_round_delivered = self.delivered;
            self.round_count += 1;
            self.round_start = true;
        }
        // Section 4.1.1.4: an application-limited sample is a lower bound.
        let raises = self.bandwidth.get().is_none_or(|max| sample.delivery_rate >= max);
        if raises || !self.is_limited(batch) {
            let keeps = self.limited.holds(batch.now);
            self.bandwidth.update(self.round_count, batch.now, sample.delivery_rate, keeps);
        }
    }

    /// Returns whether the sample of `batch` is only a lower bound of the path's rate.
    fn is_limited(&self, batch: &AckBatch) -> bool {
        batch.rate.is_none_or(|sample| {
            sample.is_app_limited || self.probe_rtt_limited.contains(&sample.prior_delivered)
        })
    }

    fn enter(&mut self, state: BbrState) {
        let (window, bandwidth) = (self.window, self.bandwidth.get());
        tracing::debug!(from = ?self.state, to = ?state, window, ?bandwidth, "BBR state");
        self.state = state;
    }

    /// `BBRCheckCyclePhase` (section 4.3.4.3).
    fn check_cycle_phase(&mut self, batch: &AckBatch) {
        let BbrState::ProbeBw { phase, since } = self.state else { return };
        let is_full_length = self.rtprop.is_some_and(|rtprop| batch.now.since(since) > rtprop);
        let gain = CYCLE[phase];
        let is_over = if gain > 1.0 {
            // A probe lasts until it fills the pipe to its gain, or until that causes loss.
            is_full_length
                && (batch.lost_bytes > 0 || batch.in_flight_before >= self.inflight(gain))
        } else if gain < 1.0 {
            is_full_length || batch.in_flight_before <= self.inflight(1.0)
        } else {
            is_full_length
        };
        if is_over {
            self.enter(BbrState::ProbeBw { phase: (phase + 1) % CYCLE.len(), since: batch.now });
        }
    }

    /// `BBRCheckDrain` (section 4.3.3).
    fn check_drain(&mut self, batch: &AckBatch) {
        if matches!(self.state, BbrState::Startup) && self.full_pipe.is_filled() {
            self.enter(BbrState::Drain);
        }
        if matches!(self.state, BbrState::Drain) && batch.in_flight <= self.inflight(1.0) {
            self.enter_probe_bw(batch.now);
        }
    }

    /// `BBREnterProbeBW`: starts at a random phase other than the draining one.
    fn enter_probe_bw(&mut self, now: Timestamp) {
        // xorshift64 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let phase = [0, 2, 3, 4, 5, 6, 7][(self.random % 7) as usize];
        self.enter(BbrState::ProbeBw { phase, since: now });
    }

    /// `BBRSetPacingRate` (section 4.2.1): until the pipe is full, the rate only rises.
    fn set_pacing_rate(&mut self, gain: f64, rtt: Duration) {
        let floor = *self.pacing_rate.get_or_insert_with(|| {
            Rate::from_bytes_in((self.window as f64 * HIGH_GAIN) as u64, rtt)
        });
        if let Some(bandwidth) = self.bandwidth.get() {
            let rate = bandwidth.scale(gain);
            self.pacing_rate =
                Some(if self.full_pipe.is_filled() { rate } else { rate.max(floor) });
        }
    }

    /// Returns the longest round trip without a queue.
    fn unqueued_rtt(&self) -> Option<Duration> {
        Some(self.room.unqueued_rtt(self.rtprop?, self.bandwidth.get()?))
    }

    /// Updates the extensions of the model's window.
    fn update_room(&mut self, batch: &AckBatch) {
        let (Some(bandwidth), Some(rtprop)) = (self.bandwidth.get(), self.rtprop) else { return };
        if self.limited.is_on() {
            let model = Model {
                rtprop,
                bandwidth,
                rate: self.pacing_rate.unwrap_or(bandwidth),
                window: self.window.max(self.room.window()),
                round: self.round_count,
                is_live: self.limited.holds(batch.now),
            };
            self.room.on_ack(batch, &model, self.mtu);
        }
    }

    fn set_room(&mut self, now: Timestamp) {
        let drains = self.recovery.is_active() || matches!(self.state, BbrState::ProbeRtt { .. });
        if self.limited.is_on() && !drains {
            self.room.open(self.window, self.limited.holds(now));
        } else {
            self.room.close();
        }
    }

    /// `BBRSetCwnd` (section 4.2.3).
    fn set_window(&mut self, batch: &AckBatch) {
        if self.round_start && self.recovery.on_round_start() {
            self.restore_window();
        }
        let target = self.inflight(CWND_GAIN);
        let grown = self.window.saturating_add(batch.acked_bytes);
        if self.recovery.conserves() {
            self.window = self.window.max(batch.in_flight.saturating_add(batch.acked_bytes));
        } else if self.full_pipe.is_filled() {
            self.window = grown.min(target);
        } else if self.window < target || self.delivered < self.initial_window {
            self.window = grown;
        }
        self.window = self.window.max(self.min_pipe_window());
        if matches!(self.state, BbrState::ProbeRtt { .. }) {
            self.window = self.window.min(self.probe_rtt_window());
        }
    }
}

impl Controller for Bbr {
    fn on_sent(&mut self, now: Timestamp, _pn: PacketNumber, _bytes: u64, in_flight: u64) {
        self.start_rate.on_sent(now);
        if in_flight > 0 {
            return;
        }
        if let Some(rtprop) = self.rtprop {
            self.room.on_restart(now, rtprop);
        }
        // Section 4.3.4.4: the pipe is empty, so pacing at BtlBw fills it without a queue.
        self.idle_restart = true;
        match (self.state, self.rtprop) {
            (BbrState::ProbeBw { .. }, Some(rtprop)) => self.set_pacing_rate(1.0, rtprop),
            (BbrState::ProbeRtt { .. }, _) => self.exit_probe_rtt_if_done(now),
            _ => {}
        }
    }

    fn on_ack(&mut self, batch: &AckBatch) {
        self.start_rate.on_ack(batch);
        self.update_bandwidth(batch);
        self.check_cycle_phase(batch);
        if self.round_start && !self.is_limited(batch) {
            self.full_pipe.on_round(self.bandwidth.get(), self.limited.is_on());
        }
        let was_idle = self.limited.was_idle(batch.now);
        let unqueued = self.unqueued_rtt();
        self.full_pipe.on_rtt(self.round_start, batch.rtt_sample(), unqueued, was_idle);
        self.check_drain(batch);
        self.update_rtprop_and_check_probe_rtt(batch);
        self.update_room(batch);
        self.set_pacing_rate(self.pacing_gain(), batch.rtt.smoothed);
        self.set_window(batch);
        self.set_room(batch.now);
    }

    fn on_packets_lost(&mut self, _now: Timestamp, bytes: u64, _in_flight: u64) {
        self.recovery.on_loss();
        self.full_pipe.on_loss();
        if self.recovery.is_active() {
            self.window = self.window.saturating_sub(bytes).max(self.min_pipe_window());
        }
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        let starts = matches!(self.state, BbrState::Startup) && !self.full_pipe.was_lossy();
        if self.limited.excuses(event, self.unqueued_rtt(), starts) {
            return;
        }
        self.room.close();
        if event.kind == CongestionKind::Persistent {
            self.start_rate = StartRate::default();
            self.recovery.enter_growth();
            self.window = self.min_pipe_window();
            self.prior_window = self.window;
        } else if self.recovery.is_active() {
            // This recovery has already responded.
        } else if matches!(self.state, BbrState::Startup) || self.is_app_limited {
            self.save_window();
            self.recovery.enter_growth();
            self.window = self.window.saturating_sub(event.lost_bytes).max(self.min_pipe_window());
        } else {
            self.save_window();
            self.recovery.enter_conservation();
            // The current ACK, if any, adds its delivered bytes.
            self.window =
                event.in_flight.saturating_add(self.mtu.into()).max(self.min_pipe_window());
            self.next_round_delivered = self.delivered;
        }
    }

    fn on_spurious_congestion(&mut self, _now: Timestamp) {
        if self.recovery.is_active() {
            self.recovery = BbrRecovery::NONE;
            self.restore_window();
        }
    }

    fn window(&self) -> u64 {
        self.cap.window(self.window.max(self.room.window()), self.min_pipe_window())
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let assumed = || {
            let bytes = (self.window as f64 * HIGH_GAIN) as u64;
            Some(Rate::from_bytes_in(bytes, self.assumed_rtt?))
        };
        let own = self.start_rate.get().or(self.pacing_rate);
        self.cap.rate(own.or_else(assumed), self.mtu)
    }

    fn send_quantum(&self) -> u64 {
        burst(self.pacing_rate(), self.mtu)
    }

    /// The rate holds until a packet sent at it is acknowledged, and then until Startup measures
    /// that `BBRHighGain` times the bandwidth is more. Only measurements enter the bandwidth
    /// filter, where an assumed value would stay for ten rounds.
    fn start(&mut self, start: Start) {
        self.enter(BbrState::Startup);
        self.full_pipe = FullPipe::default();
        self.recovery = BbrRecovery::NONE;
        self.room = Room::default();
        if let Some(window) = start.window {
            self.window = window.max(self.min_pipe_window());
            self.initial_window = self.window;
        }
        self.pacing_rate = start.rate.or(self.pacing_rate);
        self.start_rate.set(start.rate);
        self.assumed_rtt = start.rtt.or(self.assumed_rtt);
    }

    /// Keeps the measured bandwidth, and drains the queue first as after Startup.
    fn resume(&mut self, window: u64, _threshold: u64) {
        self.enter(BbrState::Drain);
        self.full_pipe = FullPipe::filled();
        self.recovery = BbrRecovery::NONE;
        self.room.close();
        self.window = window.max(self.min_pipe_window());
        self.start_rate = StartRate::default();
    }

    fn cap(&mut self, cap: Cap) {
        self.cap = cap;
    }

    fn on_mtu(&mut self, mtu: u16) {
        // RFC 9002, section 7.2: the initial window is recalculated when the datagram size changes.
        if self.window == initial_window(self.mtu) {
            self.window = initial_window(mtu);
            self.initial_window = self.window;
        }
        self.mtu = mtu;
        self.window = self.window.max(self.min_pipe_window());
    }

    fn name(&self) -> &'static str {
        match self.limited {
            Limited::Until { .. } => "bbr",
            Limited::Never => "bbr-draft",
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: match self.state {
                BbrState::Startup => "startup",
                BbrState::Drain => "drain",
                BbrState::ProbeBw { .. } => "probe_bw",
                BbrState::ProbeRtt { .. } => "probe_rtt",
            },
            window: self.window(),
            pacing_rate: self.pacing_rate(),
            bandwidth: self.bandwidth.get(),
            min_rtt: self.rtprop,
            ..Snapshot::default()
        }
    }
}

#[cfg(test)]
mod tests;
