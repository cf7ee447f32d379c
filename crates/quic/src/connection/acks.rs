//! Acknowledgements and losses (RFC 9002, sections 5 to 7): what an ACK frame does to the ledger,
//! the round-trip time, streams, lost units and the congestion controller.

use super::spaces::SpaceId;
use super::{Connection, violation};
use crate::crypto_stream::CryptoSend;
use crate::detection::TimeRule;
use crate::ids::{LocalIds, RemoteIds};
use crate::ledger::{
    BadAck, Carried, Content, Ledger, PacketKind, Patience, SentPacket, Thresholds, Token,
};
use crate::mtud::BASE;
use crate::observer;
use crate::path::Path;
use crate::received::Received;
use crate::streams::{StreamRange, Streams};
use crate::wire::{AckFrame, TransportError, types};
use congestion::{AckBatch, CongestionEvent, CongestionKind};
use core::time::Duration;
use recovery::{Arrival, PathState, Recovery, UnitKey};
use units::{PacketNumber, Timestamp};

/// A unit that was lost in more rounds than this, over a longer time than this, ends the connection:
/// in each of the rounds the peer acknowledged something later, and with 70 % loss one unit in ten
/// million gets here. An outage makes no rounds.
const MAX_ROUNDS: u32 = 45;
const MAX_UNIT_AGE: Duration = Duration::from_secs(30);
/// Persistent congestion: this many probe time-outs (RFC 9002, section 7.6.1).
const PERSISTENT_THRESHOLD: u32 = 3;

/// The rooms that care about what a packet carried.
struct Owners<'a> {
    streams: &'a mut Streams,
    recovery: &'a mut Recovery,
    contents: &'a mut Vec<Vec<StreamRange>>,
    missing: &'a mut Vec<StreamRange>,
    crypto: &'a mut CryptoSend,
    received: &'a mut Received,
    local_ids: &'a mut LocalIds,
    remote_ids: &'a mut RemoteIds,
    handshake_done_due: &'a mut bool,
    new_tokens: &'a mut Vec<(bool, Vec<u8>)>,
    /// Acknowledged in this ACK, and not yet told to its stream: packets that follow each other mostly
    /// carry data that does.
    run: Option<StreamRange>,
}

impl Owners<'_> {
    fn range_acked(&mut self, range: StreamRange) {
        if !self.run.as_mut().is_some_and(|run| run.join(&range)) {
            self.end_run();
            self.run = Some(range);
        }
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.streams.on_acked(&run);
        }
    }

    fn acked(&mut self, token: &Token) {
        match *token {
            Token::Stream(range) => self.range_acked(range),
            Token::Control(frame) => self.streams.on_control_acked(frame),
            Token::Crypto { offset, len } => self.crypto.on_acked(offset, len),
            Token::Ack { largest } => self.received.on_ack_acked(largest),
            Token::RetireConnectionId(_) => self.remote_ids.on_acked(),
            Token::AddressProof(place) => {
                if let Some(slot) = self.new_tokens.get_mut(place as usize) {
                    *slot = (false, Vec::new());
                }
            }
            Token::NewConnectionId(_) | Token::HandshakeDone => {}
        }
    }

    fn lost(&mut self, token: &Token) {
        match *token {
            Token::Control(frame) => self.streams.on_control_lost(frame),
            Token::Crypto { offset, len } => self.crypto.on_lost(offset, len),
            Token::NewConnectionId(sequence) => self.local_ids.on_lost(sequence),
            Token::RetireConnectionId(sequence) => self.remote_ids.on_lost(sequence),
            Token::HandshakeDone => *self.handshake_done_due = true,
            Token::AddressProof(place) => {
                if let Some(slot) = self.new_tokens.get_mut(place as usize) {
                    slot.0 = !slot.1.is_empty();
                }
            }
            // Stream data becomes a unit; an acknowledgement is never repeated as it was.
            Token::Stream(_) | Token::Ack { .. } => {}
        }
    }

    /// Finishes the unit if nothing of it is missing any more; `by` is the packet that brought this
    /// about, if one did. Returns whether it is over.
    fn settle_unit(&mut self, now: Timestamp, key: UnitKey, by: Option<Arrival>) -> bool {
        if self.recovery.unit(key).is_none() {
            return true;
        }
        self.missing.clear();
        for range in &self.contents[key.index()] {
            self.streams.unacked(range, self.missing);
        }
        if self.missing.is_empty() {
            self.contents[key.index()].clear();
            self.recovery.on_finished(now, key, by);
        }
        self.missing.is_empty()
    }

    /// A whole round of a unit was lost: what it consists of gets memory of its own. Returns whether the
    /// peer acknowledges everything but this.
    fn lost_again(&mut self, now: Timestamp, key: UnitKey) -> bool {
        let Some(unit) = self.recovery.unit(key) else { return false };
        if unit.round == 2 {
            for range in &self.contents[key.index()] {
                self.streams.detach(range);
            }
        }
        unit.round > MAX_ROUNDS && now.since(unit.detected) > MAX_UNIT_AGE
    }

    /// Opens a unit of what is still missing of a packet's stream data, if anything is.
    fn open_unit(
        &mut self,
        now: Timestamp,
        first_sent: Timestamp,
        content: Content,
        tokens: &[Token],
    ) -> Option<UnitKey> {
        self.missing.clear();
        match content.get() {
            Carried::Stream(range) => self.streams.unacked(&range, self.missing),
            Carried::List(_) => {
                for token in tokens {
                    if let Token::Stream(range) = token {
                        self.streams.unacked(range, self.missing);
                    }
                }
            }
            Carried::Nothing => {}
        }
        if self.missing.is_empty() {
            return None;
        }
        let bytes = self.missing.iter().map(|range| u32::from(range.len)).sum();
        let key = self.recovery.open(now, first_sent, bytes);
        if self.contents.len() <= key.index() {
            self.contents.resize(key.index() + 1, Vec::new());
        }
        let place = &mut self.contents[key.index()];
        place.clear();
        place.extend_from_slice(self.missing);
        Some(key)
    }
}

/// What a pass of loss detection found on the present path.
#[derive(Default)]
struct LossPass {
    bytes: u64,
    packets: u64,
    /// Of these, packets whose loss signals congestion.
    signals: u32,
    /// Number and time of the newest lost packet whose loss signals congestion.
    newest: Option<(u64, Timestamp)>,
    persistent: Option<Duration>,
    any: bool,
    /// Number and time of each lost packet, if there is an observer.
    lost: Vec<(u64, Timestamp)>,
    /// A packet was lost that is larger than every path must carry.
    any_large: bool,
    /// A unit was lost in so many rounds that the peer does not want it acknowledged.
    hopeless: bool,
}

/// What an ACK frame did to the present path.
#[derive(Default)]
struct AckPass {
    bytes: u64,
    marked: u32,
    spurious: u64,
    /// Of these, the one with the lowest number, and when it was sent.
    latest: Option<(u64, Timestamp)>,
    /// All that raised a congestion event turned out to be none.
    void: bool,
    mtu: Option<u16>,
    newest: Option<(u64, Timestamp)>,
    any_new: bool,
    any_eliciting: bool,
    /// No packet with a larger number was acknowledged before.
    raises_largest: bool,
    /// The largest acknowledged packet, when newly acknowledged and sent on the present path.
    rtt_sample: Option<Timestamp>,
}

impl Connection {
    pub(super) fn on_ack_frame(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        ack: &AckFrame<'_>,
    ) -> Result<(), TransportError> {
        let in_flight_before = self.path.in_flight;
        let pass = self.book_ack(now, id, ack).map_err(|bad| {
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
        // RFC 9002, section 6.2.1: the back-off is reset by an acknowledgement; for a server always.
        self.pto_count = 0;
        // RFC 9000, section 13.4.2: counts are per packet number space, and only 1-RTT packets are
        // marked; section 13.4.2.1: validation MUST NOT fail because of "an ACK frame that does not
        // increase the largest acknowledged packet number".
        let ce = match id {
            SpaceId::Data if pass.raises_largest => self.path.ecn.on_ack(pass.marked, ack.ecn),
            _ => 0,
        };
        let lost = self.detect_lost(now, id);
        if ce > 0
            && let Some((largest, sent)) = pass.newest
        {
            self.signal(now, CongestionKind::Ecn, 0, largest, sent);
        }
        if let (Some((largest, sent)), true) = (pass.newest, pass.bytes > 0) {
            let path = &mut self.path;
            let rate = path.sampler.finish_batch(now, path.rtt.min());
            let batch = AckBatch {
                now,
                acked_bytes: pass.bytes,
                largest_acked: PacketNumber(largest),
                largest_sent_time: sent,
                in_flight_before,
                in_flight: path.in_flight,
                rtt: path.rtt_snapshot(),
                rate,
                cwnd_limited: path.limited,
                lost_bytes: lost,
                ecn_ce: ce,
            };
            path.controller.on_ack(&batch);
            self.stats.max_window = self.stats.max_window.max(path.controller.window());
            self.stats.max_in_flight = self.stats.max_in_flight.max(in_flight_before);
        }
        self.trim(now, id);
        self.tick_recovery(now);
        self.observe_metrics(now);
        Ok(())
    }

    /// Packets that had been declared lost were acknowledged: the thresholds of loss detection were too
    /// strict for this path.
    fn on_spurious_losses(&mut self, now: Timestamp, largest: u64, pass: &AckPass) {
        self.stats.spurious_losses += pass.spurious;
        let path = &mut self.path;
        if let Some((number, sent)) = pass.latest {
            let (behind, rtt) = (largest - number, path.rtt.conservative());
            path.reordering.on_spurious(&self.config.detection, behind, now.since(sent), rtt);
        }
        if pass.void {
            self.stats.congestion_undone += 1;
            path.controller.on_spurious_congestion(now);
        }
    }

    /// An acknowledgement has been taken: what it finished is counted, and a decision interval may end.
    fn tick_recovery(&mut self, now: Timestamp) {
        let path = &self.path;
        let state = PathState {
            smoothed_rtt: path.rtt.smoothed(),
            min_rtt: path.rtt.min(),
            pacing_rate: path.controller.pacing_rate(),
            window: path.controller.window(),
            in_flight: path.in_flight,
            packet: path.mtud.current(),
        };
        self.recovery.on_ack_taken();
        if self.recovery.on_tick(now, state)
            && let Some(observer) = &mut self.observer
        {
            let mut reasons = Vec::new();
            self.recovery.explain(&mut |name, value| reasons.push((name, value)));
            let scheme = self.recovery.scheme();
            observer
                .on_event(now, &observer::Event::RecoveryDecision { scheme, reasons: &reasons });
        }
    }

    /// The ledger of a space, the path, and everybody who cares about content.
    fn split(&mut self, id: SpaceId) -> Option<(&mut Ledger, &mut Path, Owners<'_>)> {
        let handshake = self.handshake.as_mut();
        let space = match id {
            SpaceId::Data => &mut self.data,
            SpaceId::Initial => &mut handshake?.initial.as_mut()?.space,
            SpaceId::Handshake => &mut handshake?.handshake.as_mut()?.space,
        };
        let owners = Owners {
            streams: &mut self.streams,
            recovery: &mut self.recovery,
            contents: &mut self.contents,
            missing: &mut self.missing,
            crypto: &mut space.crypto_send,
            received: &mut space.received,
            local_ids: &mut self.local_ids,
            remote_ids: &mut self.remote_ids,
            handshake_done_due: &mut self.handshake_done_due,
            new_tokens: &mut self.new_tokens,
            run: None,
        };
        Some((&mut space.ledger, &mut self.path, owners))
    }

    /// Marks packets as acknowledged and tells the owners of their content.
    fn book_ack(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        ack: &AckFrame<'_>,
    ) -> Result<AckPass, BadAck> {
        let mut pass = AckPass::default();
        let Some((ledger, path, mut owners)) = self.split(id) else { return Ok(pass) };
        let outcome =
            ledger.on_ack(ack.largest, ack.ranges(), |number, record, tokens, after_loss| {
                on_path_acked(now, number, record, after_loss, path, &mut pass);
                if id == SpaceId::Data && record.ack_eliciting {
                    let (sent, copy) = (record.time_sent, record.kind.copy());
                    let recovery = &mut *owners.recovery;
                    recovery.on_packet_acked(now, sent, record.size, copy.is_some(), after_loss);
                    if let (Some(kind), Some(key), false) = (copy, record.unit, after_loss) {
                        recovery.on_copy_acked(now, key, kind, sent);
                    }
                }
                match record.content.get() {
                    Carried::Stream(range) => owners.range_acked(range),
                    _ => tokens.iter().for_each(|token| owners.acked(token)),
                }
                if let Some(key) = record.unit {
                    owners.end_run();
                    let by = Arrival { sent: record.time_sent, copy: record.kind.copy() };
                    if !owners.settle_unit(now, key, Some(by)) && !after_loss {
                        owners.recovery.on_partly_acked(key);
                    }
                }
            })?;
        owners.end_run();
        pass.any_new = outcome.newly_acked > 0;
        pass.any_eliciting = outcome.any_eliciting;
        pass.raises_largest = outcome.raises_largest;
        pass.rtt_sample = outcome
            .newly_largest
            .filter(|newest| newest.path == path.generation)
            .map(|newest| newest.time);
        Ok(pass)
    }

    /// RFC 9002, section 5.3: how much of the sample is the peer's own delay.
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

    fn thresholds(&self) -> Thresholds {
        let rtt = &self.path.rtt;
        let rules = self.path.reordering.adapt(self.config.detection);
        Thresholds {
            packets: rules.packets,
            time: match rules.time {
                TimeRule::SinceSent { eighths } => {
                    Patience::Since(rtt.conservative() * eighths / 8)
                }
                TimeRule::BetweenSendings => Patience::Between(rtt.smoothed()),
            },
            first_rtt_sample: rtt.first_sample(),
        }
    }

    /// Declares packets lost and tells everybody. Returns the bytes that left flight.
    pub(super) fn detect_lost(&mut self, now: Timestamp, id: SpaceId) -> u64 {
        let thresholds = self.thresholds();
        let pass = self.book_losses(now, id, &thresholds);
        if !pass.any {
            return 0;
        }
        let ty = id.packet_type();
        for &(number, sent) in &pass.lost {
            self.observe(now, &observer::Event::PacketLost { ty, number, sent });
        }
        self.stats.packets_lost += pass.packets;
        if pass.hopeless {
            self.fail(now, violation(types::ACK, "never acknowledges a part of a stream"));
            return pass.bytes;
        }
        if pass.any_large && self.path.mtud.on_suspicion(now) {
            self.path.controller.on_mtu(BASE);
        }
        if pass.bytes > 0 {
            let in_flight = self.path.in_flight;
            self.path.controller.on_packets_lost(now, pass.bytes, in_flight);
        }
        if let Some((number, sent)) = pass.newest {
            let pto = self.path.rtt.pto_base() + self.peer.max_ack_delay;
            let persistent = pass.persistent.is_some_and(|d| d >= pto * PERSISTENT_THRESHOLD);
            self.path.reordering.on_congestion(now, sent, pass.signals);
            self.signal(now, CongestionKind::Loss, pass.bytes, number, sent);
            if persistent {
                self.path.reordering.forget_episode();
                self.signal(now, CongestionKind::Persistent, pass.bytes, number, sent);
            }
        }
        pass.bytes
    }

    fn book_losses(&mut self, now: Timestamp, id: SpaceId, thresholds: &Thresholds) -> LossPass {
        let mut pass = LossPass::default();
        let observed = self.observer.is_some();
        let Some((ledger, path, mut owners)) = self.split(id) else { return pass };
        let data = id == SpaceId::Data;
        pass.persistent = ledger.detect_lost(now, thresholds, |number, record, tokens| {
            pass.any = true;
            if observed {
                pass.lost.push((number, record.time_sent));
            }
            let on_path = record.path == path.generation;
            if record.kind == PacketKind::MtuProbe {
                // RFC 9000, section 14.4: the loss of a probe is no sign of congestion.
                if on_path {
                    path.in_flight -= u64::from(record.size);
                    path.mtud.on_probe_lost();
                }
                return None;
            }
            if record.ack_eliciting {
                pass.packets += 1;
                if on_path {
                    path.in_flight -= u64::from(record.size);
                    pass.bytes += u64::from(record.size);
                    pass.any_large |= record.size > BASE;
                }
                if data {
                    owners.recovery.on_packet_lost(now, number, record.time_sent);
                }
            }
            let mut wholly = false;
            tokens.iter().for_each(|token| owners.lost(token));
            let unit = match (record.kind, record.unit) {
                (PacketKind::Copy(kind), Some(key)) => {
                    owners.settle_unit(now, key, None);
                    wholly = owners.recovery.on_copy_lost(now, key, kind);
                    pass.hopeless |= wholly && owners.lost_again(now, key);
                    None
                }
                // A probe that carried data without a unit: the data's own packet speaks for it.
                (PacketKind::Copy(_) | PacketKind::MtuProbe, _) => None,
                (PacketKind::Original, _) => {
                    owners.open_unit(now, record.time_sent, record.content, tokens)
                }
            };
            let copy = record.kind.copy();
            if record.ack_eliciting && on_path && owners.recovery.signals(copy, wholly) {
                pass.newest = Some((number, record.time_sent));
                pass.signals += 1;
            }
            unit
        });
        pass
    }

    fn signal(
        &mut self,
        now: Timestamp,
        kind: CongestionKind,
        lost_bytes: u64,
        largest_lost: u64,
        largest_lost_sent_time: Timestamp,
    ) {
        self.stats.congestion_events += 1;
        let in_flight = self.path.in_flight;
        self.path.controller.on_congestion_event(&CongestionEvent {
            now,
            lost_bytes,
            largest_lost_sent_time,
            largest_lost: PacketNumber(largest_lost),
            in_flight,
            kind,
        });
    }

    pub(super) fn trim(&mut self, now: Timestamp, id: SpaceId) {
        // Declared-lost packets are remembered for about 3 PTO: later than that an acknowledgement tells
        // nothing about the present path.
        let keep = self.linger();
        if let Some(space) = self.space_mut(id) {
            space.ledger.trim(now, keep);
        }
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

/// The effects of an acknowledged packet on the present path.
#[inline]
fn on_path_acked(
    now: Timestamp,
    number: u64,
    record: &SentPacket,
    after_loss: bool,
    path: &mut Path,
    pass: &mut AckPass,
) {
    if record.path != path.generation {
        return;
    }
    pass.marked += u32::from(record.ect);
    if after_loss {
        // It completes its content, but gives no rate sample and no window growth.
        pass.spurious += 1;
        if pass.latest.is_none_or(|(lowest, _)| number < lowest) {
            pass.latest = Some((number, record.time_sent));
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
    path.in_flight -= size;
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
