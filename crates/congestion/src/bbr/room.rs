//! Room beside the model's window: for bunches ([`Aggregation`]), for what a live stream delivered before ([`Floor`]), and
//! for a path that became longer ([`Longer`]).
//!
//! The room is computed with each acknowledgement and is no part of the model's window, so that it ends with its reason.
//! There is none in recovery and in ProbeRTT, which take packets out of the network.

use core::time::Duration;

use units::{Rate, Timestamp};

use super::aggregation::Aggregation;
use super::longer::{Longer, Seen};
use crate::controller::AckBatch;
use crate::floor::{Floor, tolerance};

/// Time for which a live stream's window carries the rate that was delivered before: some frames, since acknowledgements
/// may come that late from one moment to the next.
const FLOOR: Duration = Duration::from_millis(100);

/// The model's estimates at an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub rtprop: Duration,
    pub bandwidth: Rate,
    /// Rate at which packets leave.
    pub rate: Rate,
    /// Window with its room.
    pub window: u64,
    /// Count of rounds.
    pub round: u64,
    /// Whether the application limits the sender.
    pub is_live: bool,
}

/// The estimators, and the window that follows from them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    aggregation: Aggregation,
    floor: Floor,
    longer: Longer,
    /// Least window in bytes; 0 for none.
    window: u64,
}

impl Room {
    /// A packet leaves while nothing is in flight.
    pub(super) fn on_restart(&mut self, now: Timestamp, rtprop: Duration) {
        self.aggregation.on_restart(now, rtprop);
    }

    /// Takes an acknowledgement.
    pub(super) fn on_ack(&mut self, batch: &AckBatch, model: &Model, mtu: u16) {
        let Model { rtprop, bandwidth, rate, window, round, is_live } = *model;
        // Without bunches acknowledgements come no faster than packets leave.
        self.aggregation.on_ack(batch.now, batch.acked_bytes, rate.max(bandwidth), window);
        let rtt = batch.rtt_sample();
        self.floor.on_ack(batch.now, batch.acked_bytes, rtt);
        self.longer.on_ack(&Seen {
            now: batch.now,
            rtprop,
            rtt,
            present_rtt: self.floor.present_rtt().unwrap_or(rtt),
            rate: batch.rate.map_or(Rate::ZERO, |sample| sample.delivery_rate),
            proven_rate: self.floor.rate(),
            own_queue: bandwidth.time_for(window),
            round,
            is_window_full: is_live && batch.in_flight_before + 2 * u64::from(mtu) > window,
        });
    }

    /// Makes room beside a model's window.
    pub(super) fn open(&mut self, window: u64, is_live: bool) {
        let time = FLOOR.max(self.longer.time());
        let floor = if is_live { self.floor.window(time) } else { 0 };
        self.window = window.saturating_add(self.aggregation.bytes()).max(floor);
    }

    /// Leaves the window to the model.
    pub(super) fn close(&mut self) {
        self.window = 0;
    }

    /// Least window in bytes; 0 for none.
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Longest round trip without a queue: the path may be longer than `rtprop`, and packets wait for their bunch.
    pub(super) fn unqueued_rtt(&self, rtprop: Duration, bandwidth: Rate) -> Duration {
        let path = rtprop.max(self.longer.rtt());
        // A small bunch is part of what round trips may vary.
        path + bandwidth.time_for(self.aggregation.bytes()).saturating_sub(tolerance(path))
    }
}
