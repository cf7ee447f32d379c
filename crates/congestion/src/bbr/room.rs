//! Extensions of the model's window: for bunches ([`Aggregation`]), for the recent rate of a live
//! stream ([`Floor`]), and for paths that became longer ([`Longer`]).
//!
//! They are computed with each acknowledgement and do not enter the model's window, so they end
//! with their cause. Recovery and ProbeRTT, which drain the network, have none.

use core::time::Duration;

use units::{Rate, Timestamp};

use super::aggregation::Aggregation;
use super::longer::{Longer, Observation};
use crate::controller::AckBatch;
use crate::floor::{Floor, tolerance};

/// Minimum time for which a live stream's window carries the recent delivered rate: some frames,
/// since acknowledgements may be delayed that much at any time.
const FLOOR_TIME: Duration = Duration::from_millis(100);

/// Estimates of the model at an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub rtprop: Duration,
    pub bandwidth: Rate,
    /// Pacing rate.
    pub rate: Rate,
    /// Extended window.
    pub window: u64,
    /// Number of rounds.
    pub round: u64,
    /// Whether the application limits the sender.
    pub is_live: bool,
}

/// The estimators, and the resulting window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    aggregation: Aggregation,
    floor: Floor,
    longer: Longer,
    /// Minimum window in bytes; 0 for none.
    window: u64,
}

impl Room {
    /// Notes that a packet leaves with nothing in flight.
    pub(super) fn on_restart(&mut self, now: Timestamp, rtprop: Duration) {
        self.aggregation.on_restart(now, rtprop);
    }

    /// Handles an acknowledgement.
    pub(super) fn on_ack(&mut self, batch: &AckBatch, model: &Model, mtu: u16) {
        let Model { rtprop, bandwidth, rate, window, round, is_live } = *model;
        // Without bunches, acknowledgements arrive no faster than packets leave.
        self.aggregation.on_ack(batch.now, batch.acked_bytes, rate.max(bandwidth), window);
        let rtt = batch.rtt_sample();
        self.floor.on_ack(batch.now, batch.acked_bytes, rtt);
        self.longer.on_ack(&Observation {
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

    /// Extends the model's window.
    pub(super) fn open(&mut self, window: u64, is_live: bool) {
        let time = FLOOR_TIME.max(self.longer.time());
        let floor = if is_live { self.floor.window(time) } else { 0 };
        self.window = window.saturating_add(self.aggregation.bytes()).max(floor);
    }

    /// Removes the extension.
    pub(super) fn close(&mut self) {
        self.window = 0;
    }

    /// Returns the minimum window in bytes; 0 for none.
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Returns the longest round trip without a queue, on a longer path and with a wait for
    /// bunches.
    pub(super) fn unqueued_rtt(&self, rtprop: Duration, bandwidth: Rate) -> Duration {
        let path = rtprop.max(self.longer.rtt());
        // A small bunch is within the tolerance of round trips.
        path + bandwidth.time_for(self.aggregation.bytes()).saturating_sub(tolerance(path))
    }
}
