//! `RTprop` and ProbeRTT (draft-cardwell-iccrg-bbr-congestion-control-00, sections 4.1.2.3 and
//! 4.3.5).

use units::Timestamp;

use super::{
    Bbr, BbrState, PROBE_RTT_CWND_GAIN, PROBE_RTT_DURATION, RTPROP_FILTER_LEN, SIMILAR_RTT_DIVISOR,
};
use crate::controller::AckBatch;

impl Bbr {
    /// Returns the window in ProbeRTT.
    pub(super) fn probe_rtt_window(&self) -> u64 {
        let model = self.bandwidth.get().zip(self.rtprop);
        let window = model
            .map_or(0, |(bandwidth, rtprop)| bandwidth.scale(PROBE_RTT_CWND_GAIN).bytes_in(rtprop));
        window.max(self.min_pipe_window())
    }

    /// `BBRUpdateRTprop` (section 4.1.2.3) and `BBRCheckProbeRTT` (section 4.3.5).
    pub(super) fn update_rtprop_and_check_probe_rtt(&mut self, batch: &AckBatch) {
        let expired =
            self.rtprop.is_some() && batch.now.since(self.rtprop_stamp) > RTPROP_FILTER_LEN;
        let rtt = batch.rtt_sample();
        if expired || self.rtprop.is_none_or(|rtprop| rtt <= rtprop) {
            self.rtprop = Some(rtt);
        }
        if self.rtprop.is_some_and(|rtprop| rtt <= rtprop + rtprop / SIMILAR_RTT_DIVISOR) {
            self.rtprop_stamp = batch.now;
        }
        if expired && !self.idle_restart && !matches!(self.state, BbrState::ProbeRtt { .. }) {
            self.save_window();
            self.enter(BbrState::ProbeRtt { done: None, round_done: false });
            self.probe_rtt_limited.start = self.delivered;
        }
        if matches!(self.state, BbrState::ProbeRtt { .. }) {
            self.handle_probe_rtt(batch);
        }
        self.idle_restart = false;
    }

    /// `BBRHandleProbeRTT`.
    pub(super) fn handle_probe_rtt(&mut self, batch: &AckBatch) {
        // The mark lasts until the data in flight is delivered.
        self.probe_rtt_limited.end =
            self.delivered.saturating_add(batch.in_flight).saturating_add(1);
        let is_drained = batch.in_flight <= self.probe_rtt_window();
        let BbrState::ProbeRtt { done, round_done } = &mut self.state else { return };
        if done.is_some() {
            *round_done |= self.round_start;
            self.exit_probe_rtt_if_done(batch.now);
        } else if is_drained {
            *done = Some(batch.now + PROBE_RTT_DURATION);
            self.next_round_delivered = self.delivered;
        }
    }

    pub(super) fn exit_probe_rtt_if_done(&mut self, now: Timestamp) {
        let BbrState::ProbeRtt { done: Some(done), round_done: true } = self.state else { return };
        if now <= done {
            return;
        }
        self.rtprop_stamp = now;
        self.restore_window();
        if self.full_pipe.is_filled() {
            self.enter_probe_bw(now);
        } else {
            self.enter(BbrState::Startup);
        }
    }

    /// `BBRSaveCwnd`: saves the last window before recovery or ProbeRTT reduced it.
    pub(super) fn save_window(&mut self) {
        let is_cut = self.recovery.is_active() || matches!(self.state, BbrState::ProbeRtt { .. });
        self.prior_window = if is_cut { self.prior_window.max(self.window) } else { self.window };
    }

    pub(super) fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }
}
