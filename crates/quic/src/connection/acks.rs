//! Acknowledgements (RFC 9002, section 5): effects of an ACK frame on the ledger, the round-trip
//! time, streams, lost units and the congestion controller.

use super::ecn::fate;
use super::owners::packet;
use super::spaces::SpaceId;
use super::{Connection, violation};
use crate::config::CopyAccounting;
use crate::detection::TimeRule;
use crate::ledger::{BadAck, Carried, PacketKind, SentPacket};
use crate::observer;
use crate::path::Path;
use crate::wire::TransportError;
use crate::wire::{AckFrame, types};
use congestion::{AckBatch, CongestionKind, RateSample};
use core::time::Duration;
use recovery::{Acked, PathState};
use units::{PacketNumber, Rate, Timestamp};

/// Effects of an ACK frame on a path.
#[derive(Default)]
struct AckPass {
    bytes: u64,
    /// Acknowledged packets with and without an ECN mark.
    marked: u64,
    unmarked: u64,
    spurious: u64,
    /// Number and send time of the lowest-numbered spurious loss.
    lowest_spurious: Option<(u64, Timestamp)>,
    /// The largest packet number acknowledged before.
    largest_before: Option<u64>,
    /// All losses that raised a congestion event turned out to be spurious.
    void: bool,
    mtu: Option<u16>,
    newest: Option<(u64, Timestamp)>,
    any_new: bool,
    any_eliciting: bool,
    /// Raises the largest acknowledged packet number.
    raises_largest: bool,
    /// Send time of the largest acknowledged packet, if newly acknowledged and sent on this path.
    rtt_sample: Option<Timestamp>,
}

/// Effects of an ACK frame on the present path, and ECN marks on other paths.
#[derive(Default)]
struct AckPasses {
    present: AckPass,
    left: Vec<(u8, AckPass)>,
}

impl AckPasses {
    #[inline]
    fn of(&mut self, present: u8, mark: u8) -> &mut AckPass {
        if mark == present {
            return &mut self.present;
        }
        let place = self.left.iter().position(|(left, _)| *left == mark);
        let place = place.unwrap_or_else(|| {
            self.left.push((mark, AckPass::default()));
            self.left.len() - 1
        });
        &mut self.left[place].1
    }
}

impl Connection {
    pub(super) fn on_ack_frame(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        ack: &AckFrame<'_>,
    ) -> Result<(), TransportError> {
        let in_flight_before = self.path.in_flight;
        let AckPasses { present: pass, left } = self.book_ack(now, id, ack).map_err(|bad| {
            let reason = match bad {
                BadAck::Unsent => "acknowledges a packet that was not sent",
                BadAck::Skipped => "acknowledges a packet number that was left out",
            };
            violation(types::ACK, reason)
        })?;
        if id == SpaceId::Data
            && let Some(keys) = &mut self.keys
        {
            keys.on_acked(ack.largest);
        }
        if !pass.any_new {
            return Ok(());
        }
        if pass.spurious > 0 {
            self.on_spurious_losses(now, ack.largest, &pass);
        }
        if let (Some(sent), true) = (pass.rtt_sample, pass.any_eliciting) {
            self.path.rtt.update(now, now.since(sent), self.ack_delay(id, ack.delay));
        }
        if let Some(mtu) = pass.mtu {
            self.path.controller.on_mtu(mtu);
        }
        // RFC 9002, section 6.2.1: an acknowledgement resets the back-off; on a server, always.
        self.probe_timer.reset_backoff();
        // RFC 9000, section 13.4.2: counts are per packet number space, and only 1-RTT packets are
        // marked; section 13.4.2.1: validation MUST NOT fail because of "an ACK frame that does not
        // increase the largest acknowledged packet number".
        let ce = match id {
            SpaceId::Data if pass.raises_largest => self.on_ecn_counts(pass.marked, ack.ecn),
            _ => 0,
        };
        let lost = self.detect_lost(now, id);
        if !self.known.is_empty() {
            let bytes = pass.bytes + left.iter().map(|(_, pass)| pass.bytes).sum::<u64>();
            self.throughput.on_acked(now, bytes, self.path.rtt.smoothed());
        }
        if ce > 0
            && let Some((largest, sent)) = pass.newest
        {
            self.signal(now, CongestionKind::Ecn, 0, largest, sent);
        }
        if pass.bytes > 0 {
            let most = self.throughput.rate();
            let flight = Flight { before: in_flight_before, lost, ce, most };
            let rate = credit(&mut self.path, now, &pass, &flight);
            self.stats.max_window = self.stats.max_window.max(self.path.controller.window());
            self.stats.max_in_flight = self.stats.max_in_flight.max(in_flight_before);
            let delivered = rate.map(|sample| sample.delivery_rate);
            self.stats.max_delivery_rate = self.stats.max_delivery_rate.max(delivered);
            let open = rate.filter(|sample| !sample.is_app_limited);
            let open = open.map(|sample| sample.delivery_rate);
            self.stats.max_open_rate = self.stats.max_open_rate.max(open);
        }
        left.iter().for_each(|(mark, pass)| self.credit_left(now, *mark, ack, pass));
        self.judge_ecn(now);
        self.trim(now, id);
        self.tick_recovery(now);
        self.observe_metrics(now);
        Ok(())
    }

    /// Credits a path that the client has left but may return to.
    fn credit_left(&mut self, now: Timestamp, mark: u8, ack: &AckFrame<'_>, pass: &AckPass) {
        let delay = self.ack_delay(SpaceId::Data, ack.delay);
        let Some(path) = self.known.path_mut(mark) else { return };
        if let (Some(sent), true) = (pass.rtt_sample, pass.any_eliciting) {
            path.rtt.update(now, now.since(sent), delay);
        }
        if let Some(mtu) = pass.mtu {
            path.controller.on_mtu(mtu);
        }
        self.stats.spurious_losses += pass.spurious;
        let (before, most) = (path.in_flight + pass.bytes, self.throughput.rate());
        let flight = Flight { before, lost: 0, ce: 0, most };
        credit(path, now, pass, &flight);
    }

    /// Adapts the loss-detection thresholds after packets declared lost were acknowledged: the
    /// thresholds were too strict for this path.
    fn on_spurious_losses(&mut self, now: Timestamp, largest: u64, pass: &AckPass) {
        self.stats.spurious_losses += pass.spurious;
        tracing::debug!(packets = pass.spurious, undone = pass.void, "spurious losses");
        let path = &mut self.path;
        if let Some((number, sent)) = pass.lowest_spurious {
            let newest = match self.config.detection.time {
                TimeRule::SinceSent { .. } => largest,
                TimeRule::BetweenSendings => pass.largest_before.unwrap_or(number),
            };
            let (behind, rtt) = (newest.saturating_sub(number), path.rtt.conservative());
            path.reordering.on_spurious(&self.config.detection, behind, now.since(sent), rtt);
        }
        if pass.void {
            self.stats.congestion_undone += 1;
            path.controller.on_spurious_congestion(now);
        }
    }

    /// Counts what the acknowledgement finished, and ends a decision interval if it is over.
    fn tick_recovery(&mut self, now: Timestamp) {
        let path = &self.path;
        let state = PathState {
            smoothed_rtt: path.rtt.smoothed(),
            min_rtt: path.rtt.min(),
            latest_rtt: path.rtt.adjusted(),
            peak_rtt: path.rtt.peak(),
            trough_rtt: path.rtt.trough(),
            pacing_rate: path.controller.pacing_rate(),
            delivery_rate: path.rate_peak.get(),
            window: path.controller.window(),
            in_flight: path.in_flight,
            packet: path.mtud.current(),
        };
        let Self { recovery, observer, .. } = self;
        let decided = recovery.ack_done(now, state, |at, unit| {
            if let Some(observer) = observer {
                observer.on_event(at, &observer::Event::UnitFinished { unit });
            }
        });
        if let (Some(metrics), Some(observer)) = (decided, observer) {
            let mut reasons = Vec::new();
            recovery.explain(&mut |name, value| reasons.push((name, value)));
            let decision = observer::Event::RecoveryDecision {
                scheme: recovery.scheme(),
                metrics: &metrics,
                smoothed_rtt: state.smoothed_rtt,
                reasons: &reasons,
            };
            observer.on_event(now, &decision);
        }
    }

    /// Marks packets as acknowledged and tells the owners of their content.
    fn book_ack(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        ack: &AckFrame<'_>,
    ) -> Result<AckPasses, BadAck> {
        let mut passes = AckPasses::default();
        let next = self.data.ledger.next_number();
        let accounting = self.config.accounting;
        let Some((ledger, mut paths, mut owners)) = self.split(id) else { return Ok(passes) };
        let present = paths.present.generation;
        let largest_before = ledger.largest_acked;
        let outcome =
            ledger.on_ack(ack.largest, ack.ranges(), |number, record, frames, acked| {
                if let Some(path) = paths.of(record.path) {
                    if let Some(fate) = fate(id, number, record, false) {
                        match acked {
                            Acked::InTime => path.ecn.on_fate(fate),
                            Acked::AfterLoss | Acked::Superseded => path.ecn.on_late(fate),
                        }
                    }
                    let pass = passes.of(present, record.path);
                    on_path_acked(now, number, record, acked, path, pass);
                }
                match record.content.get() {
                    Carried::Stream(range) => owners.range_acked(range),
                    _ => frames.iter().for_each(|frame| owners.acked(frame)),
                }
                if id == SpaceId::Data && record.ack_eliciting {
                    if record.unit.is_some() {
                        owners.end_run();
                    }
                    owners.recovery.acked(now, &packet(number, record), acked, owners.streams);
                }
            })?;
        owners.end_run();
        if accounting == CopyAccounting::Newest {
            let next = ledger.next_number();
            for copy in
                owners.recovery.just_finished().filter_map(|key| ledger.supersede(key, next))
            {
                paths.take_out(&copy);
            }
        }
        let pass = &mut passes.present;
        pass.largest_before = largest_before;
        pass.any_new = outcome.newly_acked > 0;
        pass.raises_largest = outcome.raises_largest;
        if let Some(newest) = outcome.newly_largest
            && paths.of(newest.path).is_some()
        {
            let pass = passes.of(present, newest.path);
            (pass.rtt_sample, pass.any_eliciting) = (Some(newest.time), outcome.any_eliciting);
        }
        let pass = &passes.present;
        if id == SpaceId::Data && pass.marked + pass.unmarked > 0 {
            paths.present.ecn.on_heard(pass.marked == 0, next);
        }
        Ok(passes)
    }

    /// Returns the part of the sample that is the peer's own delay (RFC 9002, section 5.3).
    fn ack_delay(&self, id: SpaceId, raw: u64) -> Duration {
        if id != SpaceId::Data {
            return Duration::ZERO;
        }
        let micros = raw.saturating_mul(1 << self.peer.ack_delay_exponent);
        let delay = Duration::from_micros(micros);
        // "SHOULD ignore the peer's max_ack_delay until the handshake is confirmed", "MUST use the
        // lesser of the acknowledgment delay and the peer's max_ack_delay after" it.
        if self.handshake.is_some() { delay } else { delay.min(self.peer.max_ack_delay) }
    }

    pub(super) fn trim(&mut self, now: Timestamp, id: SpaceId) {
        // Lost packets are remembered for about 3 PTO. A later acknowledgement says nothing about
        // the present path.
        let keep = self.linger();
        if let Some(space) = self.space_mut(id) {
            space.ledger.trim(now, keep);
        }
        self.known.expire(now);
    }

    pub(super) fn observe_metrics(&mut self, now: Timestamp) {
        if let Some(observer) = &mut self.observer {
            let controller = self.path.controller.snapshot();
            observer.on_event(
                now,
                &observer::Event::Metrics {
                    rtt: &self.path.rtt,
                    window: controller.window,
                    in_flight: self.path.in_flight,
                    pacing_rate: controller.pacing_rate,
                    controller: &controller,
                },
            );
        }
    }
}

/// Bytes in flight before an ACK frame, bytes lost with it, and packets reported as CE.
struct Flight {
    before: u64,
    lost: u64,
    ce: u64,
    /// Delivery rate of all paths combined.
    most: Rate,
}

/// Passes acknowledged bytes to a path's congestion controller. Returns the delivery-rate sample.
fn credit(path: &mut Path, now: Timestamp, pass: &AckPass, flight: &Flight) -> Option<RateSample> {
    let (largest, sent) = pass.newest?;
    let rate = path.sampler.finish_batch(now, path.rtt.min());
    let rate = rate.map(|sample| path.presence.correct(sample, sent, flight.most));
    let batch = AckBatch {
        now,
        acked_bytes: pass.bytes,
        largest_acked: PacketNumber(largest),
        largest_sent_time: sent,
        in_flight_before: flight.before,
        in_flight: path.in_flight,
        rtt: path.rtt_snapshot(),
        rate,
        cwnd_limited: path.limited,
        source_paced: core::mem::take(&mut path.source_paced),
        lost_bytes: flight.lost,
        ecn_ce: flight.ce,
    };
    path.controller.on_ack(&batch);
    rate.iter().for_each(|sample| path.rate_peak.update(sample));
    rate
}

/// Applies an acknowledged packet to its path.
#[inline]
fn on_path_acked(
    now: Timestamp,
    number: u64,
    record: &SentPacket,
    acked: Acked,
    path: &mut Path,
    pass: &mut AckPass,
) {
    pass.marked += u64::from(record.ect);
    pass.unmarked += u64::from(!record.ect && record.ack_eliciting);
    if acked == Acked::AfterLoss {
        // A spurious loss completes its content, but gives no rate sample and no window growth.
        pass.spurious += 1;
        if pass.lowest_spurious.is_none_or(|(lowest, _)| number < lowest) {
            pass.lowest_spurious = Some((number, record.time_sent));
        }
        if record.ack_eliciting && record.kind != PacketKind::MtuProbe {
            pass.void |= path.reordering.on_taken_back(record.time_sent);
        }
        return;
    }
    if !record.ack_eliciting {
        return;
    }
    let size = u64::from(record.size);
    if acked == Acked::InTime {
        path.in_flight -= size;
    }
    pass.bytes += size;
    path.sampler.on_acked(now, &record.stamp, record.time_sent, size);
    path.mtud.on_acked(record.size);
    if record.kind == PacketKind::MtuProbe {
        pass.mtu = path.mtud.on_probe_acked(record.size);
    }
    if pass.newest.is_none_or(|(newest, _)| newest < number) {
        pass.newest = Some((number, record.time_sent));
    }
}
