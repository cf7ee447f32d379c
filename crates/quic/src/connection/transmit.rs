//! Sending: what goes into the next datagrams, in the order that docs/architecture.md gives:
//! probes, control frames and first copies, due replicas, new data, off-mode replicas.

use super::migration::{NO_PATH, OffPathFrame};
use super::spaces::SpaceId;
use super::{CloseReason, Connection, Context, State};
use crate::crypto::TAG_LEN;
use crate::ledger::{Carried, Content, Fate, PacketKind, SentPacket, Token};
use crate::mtud::BASE;
use crate::observer;
use crate::path::Addresses;
use crate::streams::StreamRange;
use crate::wire::{
    TransportError, TransportErrorCode as Code, Writer, max_len, new_token_len, packet_number_len,
    put_application_close, put_connection_close, put_handshake_done, put_long_header,
    put_new_connection_id, put_new_token, put_packet_number, put_path_challenge, put_path_response,
    put_ping, put_retire_connection_id, put_short_header, put_stream_header, stream_header_len,
};
use congestion::RateStamp;
use rand_chacha::rand_core::Rng;
use recovery::{CopyKind, SendOpportunity, UnitKey};
use units::{Ecn, PacketNumber, Timestamp};

/// Exponent of the delay field in our ACK frames (the default of RFC 9000, section 18.2).
const ACK_DELAY_EXPONENT: u32 = 3;
/// Packet number and payload must make up this much for header protection (RFC 9001, section
/// 5.4.2).
const MIN_SAMPLE: usize = 4;
/// Packet-number bytes of long headers.
const LONG_PN_LEN: usize = 2;
/// The least room that makes another STREAM frame worthwhile.
const MIN_STREAM_ROOM: usize = 32;
/// Packets that only acknowledge before one of them carries a PING.
const PING_EVERY: u32 = 32;
/// The least room for a packet's header and frames.
const MIN_ROOM: usize = 64;

/// Datagrams to send: all of `segment` bytes, but the last, which may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where to, and from which of our addresses.
    pub addresses: Addresses,
    /// Codepoint for all of them.
    pub ecn: Ecn,
    /// Bytes written to the buffer.
    pub len: usize,
    /// Bytes of each datagram.
    pub segment: usize,
}

/// What congestion control grants to one batch, in bytes.
#[derive(Clone, Copy)]
struct Allowance {
    window: u64,
    pacing: u64,
}

/// A packet whose frames are being written.
struct Draft<'a> {
    w: Writer<'a>,
    number: u64,
    pn_offset: usize,
    payload_at: usize,
    kind: PacketKind,
    unit: Option<UnitKey>,
    /// The first STREAM frame; whatever else there is stands in the connection's scratch list.
    content: Content,
    eliciting: bool,
    /// Goes out in a transmission of its own.
    alone: bool,
}

/// A packet whose frames are written; what is left is to seal it.
#[derive(Clone, Copy)]
struct Built {
    number: u64,
    pn_offset: usize,
    payload_at: usize,
    end: usize,
    kind: PacketKind,
    unit: Option<UnitKey>,
    content: Content,
    eliciting: bool,
}

impl Draft<'_> {
    /// Ends the frames, padded so far as header protection needs it.
    #[inline(always)]
    fn build(mut self) -> Built {
        let least = self.pn_offset + MIN_SAMPLE;
        let missing = least.saturating_sub(self.w.position());
        self.w.fill(0, missing);
        Built {
            number: self.number,
            pn_offset: self.pn_offset,
            payload_at: self.payload_at,
            end: self.w.position(),
            kind: self.kind,
            unit: self.unit,
            content: self.content,
            eliciting: self.eliciting,
        }
    }

    /// Fills the packet up with PADDING.
    fn pad(&mut self) {
        self.w.fill(0, self.w.remaining());
    }
}

impl Connection {
    /// Writes the next datagrams, at most `max_segments`, into `buf`; `None` when nothing may or
    /// needs to be sent now. To be called until then, after every event and time-out.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        max_segments: usize,
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        match self.state {
            State::Open => {}
            State::Closing { ref mut due, .. } => {
                return core::mem::take(due).then(|| self.transmit_close(now, buf, ctx)).flatten();
            }
            State::Draining { .. } | State::Drained => return None,
        }
        self.paced_until = None;
        if let Some(transmit) = self.transmit_off_path(now, buf) {
            return Some(transmit);
        }
        let budget = self.path.amplification_budget();
        if budget == 0 {
            return None;
        }
        if self.handshake.is_some()
            && let Some(transmit) = self.transmit_handshake(now, buf, budget, ctx)
        {
            return Some(transmit);
        }
        self.keys.as_ref()?;
        if let Err(error) = self.maintain_keys(now) {
            self.fail(now, error);
            return self.poll_transmit(now, buf, max_segments, ctx);
        }
        if let Some(transmit) = self.transmit_mtu_probe(now, buf) {
            return Some(transmit);
        }
        self.transmit_data(now, buf, max_segments, budget, ctx)
    }

    /// One or more datagrams of 1-RTT packets.
    fn transmit_data(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        max_segments: usize,
        mut budget: u64,
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        let mtu = usize::from(self.path.mtud.current());
        let mut allowance = Allowance {
            window: self.path.controller.window(),
            pacing: self.path.pacing_budget(now),
        };
        let mut len = 0;
        for count in 0..max_segments {
            let room = mtu.min(usize::try_from(budget).unwrap_or(mtu));
            let Some(slice) = buf.get_mut(len..len + room) else { break };
            let Some((size, alone)) = self.data_packet(now, slice, allowance, count == 0, ctx)
            else {
                break;
            };
            len += size;
            budget -= size as u64;
            allowance.pacing = allowance.pacing.saturating_sub(size as u64);
            if size < mtu || alone {
                break;
            }
        }
        if len == 0 {
            return None;
        }
        Some(self.sent(Transmit {
            addresses: self.path.addresses,
            ecn: self.path.ecn.codepoint(),
            len,
            segment: mtu.min(len),
        }))
    }

    /// Counts what leaves on the present path.
    fn sent(&mut self, transmit: Transmit) -> Transmit {
        self.path.sent += transmit.len as u64;
        self.stats.bytes_sent += transmit.len as u64;
        self.stats.datagrams_sent += transmit.len.div_ceil(transmit.segment.max(1)) as u64;
        transmit
    }

    /// One 1-RTT packet; `first` of its batch. Returns its size, and whether nothing may follow in
    /// the batch.
    fn data_packet(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        allowance: Allowance,
        first: bool,
        ctx: &mut Context<'_>,
    ) -> Option<(usize, bool)> {
        let probing = self.data.probes > 0;
        if probing && !first {
            return None;
        }
        let mtu = u64::from(self.path.mtud.current());
        let in_flight = self.path.in_flight;
        let window = probing || in_flight == 0 || in_flight + mtu <= allowance.window;
        let paced = !probing && allowance.pacing < mtu;
        let ack_due = self.data.received.deadline().is_some_and(|at| at <= now);
        let may_elicit = window && !paced;
        let urgent = self.has_control();
        let waiting = self.recovery.next_waiting().is_some();
        let fresh = self.streams.has_sendable();
        let wants = probing || urgent || waiting || fresh;
        let off_mode = !waiting && !fresh;
        self.recovery.set_off_mode(now, off_mode, off_mode && self.streams.is_flow_blocked());
        if !may_elicit && wants {
            self.path.limited = true;
            if paced {
                let rate = self.path.pacing_rate();
                let at = self.path.pacer.time_until(mtu, now, rate);
                self.paced_until = Some(at.unwrap_or(now));
            }
        }
        if may_elicit && !wants && self.handshake.is_none() {
            self.path.limited = false;
            self.path.sampler.set_app_limited(in_flight);
        }
        let beyond = !window && !paced && self.may_pass_window(in_flight, allowance.window, mtu);
        let replica = if (may_elicit || beyond) && !probing {
            self.recovery.poll_replica(now, &SendOpportunity { off_mode })
        } else {
            None
        };
        if !(may_elicit && wants || replica.is_some() || ack_due) {
            return None;
        }
        if replica.is_some() && !first {
            return None;
        }

        self.skip_number(ctx);
        let mut draft = self.begin_short(buf)?;
        if self.data.received.wants_ack() {
            self.write_ack(now, &mut draft);
        }
        if may_elicit {
            self.fill(now, &mut draft, probing, replica, ctx);
        } else if let Some(key) = replica {
            draft.alone = true;
            self.write_unit(now, &mut draft, key, CopyKind::Replica);
        }
        if draft.w.position() == draft.payload_at {
            return None;
        }
        // RFC 9000, section 13.2.4: a PING now and then among packets that only acknowledge, so
        // that the peer's answer lets both sides forget.
        if may_elicit
            && !draft.eliciting
            && self.data.ledger.plain_run >= PING_EVERY
            && draft.w.remaining() > 0
        {
            put_ping(&mut draft.w);
            draft.eliciting = true;
        }
        if draft.eliciting {
            self.data.probes = self.data.probes.saturating_sub(1);
        }
        let alone = draft.alone;
        let built = draft.build();
        Some((self.end_short(now, buf, built, self.path.generation), alone))
    }

    /// ART's opportunism (section 6.4): a replica may pass the window by 2 packets or a quarter of it,
    /// but not where the network may be in trouble or the peer somebody else.
    fn may_pass_window(&self, in_flight: u64, window: u64, mtu: u64) -> bool {
        self.recovery.passes_window()
            && self.pto_count == 0
            && self.handshake.is_none()
            && self.path.validated
            && in_flight + mtu <= window + (2 * mtu).max(window / 4)
    }

    /// Frames that are no stream data wait.
    fn has_control(&self) -> bool {
        self.handshake_done_due
            || self.ping_due
            || self.data.crypto_send.is_due()
            || self.local_ids.is_due()
            || self.remote_ids.is_due()
            || self.new_tokens.iter().any(|(due, _)| *due)
            || self.streams.has_control()
    }

    /// Writes frames in the order of the house.
    fn fill(
        &mut self,
        now: Timestamp,
        draft: &mut Draft<'_>,
        probing: bool,
        replica: Option<UnitKey>,
        ctx: &mut Context<'_>,
    ) {
        if probing {
            draft.alone = true;
            self.write_probe(now, draft);
            return;
        }
        if self.has_control() {
            self.write_control(draft, ctx);
        }
        while let Some(key) = self.recovery.next_waiting() {
            if draft.eliciting {
                // Control frames leave in a packet of their own: a copy carries no other content.
                return;
            }
            if self.write_unit(now, draft, key, CopyKind::Retransmission) {
                return;
            }
        }
        if let Some(key) = replica {
            draft.alone = true;
            if draft.eliciting || self.write_unit(now, draft, key, CopyKind::Replica) {
                return;
            }
        }
        self.write_new_data(draft);
    }

    fn write_new_data(&mut self, draft: &mut Draft<'_>) {
        while draft.w.remaining() >= MIN_STREAM_ROOM {
            let Some(range) = self.streams.next_range(draft.w.remaining()) else { return };
            self.write_range(draft, &range);
        }
    }

    /// Writes a STREAM frame that is known to fit.
    #[inline]
    fn write_range(&mut self, draft: &mut Draft<'_>, range: &StreamRange) -> bool {
        let len = usize::from(range.len);
        put_stream_header(&mut draft.w, range.id, range.offset, Some(len), range.fin);
        if !self.streams.copy(range, draft.w.reserve(len)) {
            return false;
        }
        draft.eliciting = true;
        if draft.content.is_nothing() {
            draft.content = Content::stream(*range);
        } else {
            self.scratch.push(Token::Stream(*range));
        }
        true
    }

    /// Writes what is still missing of a unit. Of a retransmission, what does not fit becomes a unit of
    /// its own.
    /// Returns whether anything was written; if nothing is missing any more, the unit is over.
    fn write_unit(
        &mut self,
        now: Timestamp,
        draft: &mut Draft<'_>,
        key: UnitKey,
        kind: CopyKind,
    ) -> bool {
        let content = core::mem::take(&mut self.contents[key.index()]);
        let mut missing = Vec::with_capacity(content.len());
        for range in &content {
            self.streams.unacked(range, &mut missing);
        }
        if missing.is_empty() {
            if content.iter().any(|range| self.streams.is_reset(range)) {
                self.recovery.on_abandoned(now, key);
            } else {
                self.recovery.on_finished(now, key, None);
            }
            return false;
        }
        let mut kept = Vec::with_capacity(missing.len());
        let mut rest = Vec::new();
        for range in missing {
            let fit =
                if rest.is_empty() { fitting(&range, draft.w.remaining()) } else { Fit::None };
            match fit {
                Fit::Whole => kept.push(range),
                Fit::Part(len) => {
                    let (head, tail) = split_range(&range, len);
                    kept.push(head);
                    rest.push(tail);
                }
                Fit::None => {
                    rest.push(range);
                    continue;
                }
            }
            if let Some(range) = kept.last() {
                self.write_range(draft, range);
            }
        }
        if kept.is_empty() {
            kept = rest;
        } else if kind != CopyKind::Retransmission {
            // Other copies of the rest may be outstanding under this key: it stays one unit, and
            // this copy carries a part of it.
            kept.append(&mut rest);
        } else if !rest.is_empty() {
            let bytes = rest.iter().map(|range| u32::from(range.len)).sum();
            if let Some(other) = self.recovery.split(key, bytes) {
                self.set_content(other, rest);
            }
        }
        let written = draft.eliciting;
        self.contents[key.index()] = kept;
        if written {
            draft.kind = PacketKind::Copy(kind);
            draft.unit = Some(key);
            self.recovery.on_copy_sent(now, key, kind);
        }
        written
    }

    /// RFC 9002, section 6.2.4: a probe carries the oldest unfinished unit, else the oldest
    /// unacknowledged data, else new data, else a PING.
    fn write_probe(&mut self, now: Timestamp, draft: &mut Draft<'_>) {
        if self.data.crypto_send.is_due() || self.handshake_done_due {
            self.write_transport_control(draft);
        }
        while !draft.eliciting
            && let Some(key) = self.recovery.oldest()
        {
            self.write_unit(now, draft, key, CopyKind::Probe);
        }
        if !draft.eliciting {
            let room = draft.w.remaining().saturating_sub(MIN_STREAM_ROOM);
            if let Some(range) = self.streams.oldest_unacked(room) {
                if let Some(first_sent) = self.data.ledger.oldest_eliciting() {
                    self.recovery.on_probed(now, first_sent);
                }
                draft.kind = PacketKind::Copy(CopyKind::Probe);
                self.write_range(draft, &range);
            } else {
                self.write_new_data(draft);
            }
        }
        if !draft.eliciting {
            put_ping(&mut draft.w);
            draft.eliciting = true;
        }
    }

    fn write_ack(&mut self, now: Timestamp, draft: &mut Draft<'_>) {
        let received = &mut self.data.received;
        if let Some(largest) = received.write_ack(now, ACK_DELAY_EXPONENT, &mut draft.w) {
            self.scratch.push(Token::Ack { largest });
        }
    }

    /// HANDSHAKE_DONE and handshake bytes.
    fn write_transport_control(&mut self, draft: &mut Draft<'_>) {
        if self.handshake_done_due && draft.w.remaining() >= max_len::HANDSHAKE_DONE {
            put_handshake_done(&mut draft.w);
            self.handshake_done_due = false;
            self.scratch.push(Token::HandshakeDone);
            draft.eliciting = true;
        }
        while let Some(token) = self.data.crypto_send.write_frame(&mut draft.w) {
            self.scratch.push(token);
            draft.eliciting = true;
        }
    }

    fn write_control(&mut self, draft: &mut Draft<'_>, ctx: &mut Context<'_>) {
        self.write_transport_control(draft);
        if core::mem::take(&mut self.ping_due) {
            put_ping(&mut draft.w);
            draft.eliciting = true;
        }
        let before = self.scratch.len();
        while draft.w.remaining() >= max_len::NEW_CONNECTION_ID
            && let Some(sequence) = self.local_ids.next_due()
        {
            let id = self.local_ids.get(sequence, ctx.keys.cids());
            let reset_token = ctx.keys.cids().reset_token(id.as_slice());
            put_new_connection_id(&mut draft.w, sequence, 0, &id, &reset_token);
            self.local_ids.sent();
            self.scratch.push(Token::NewConnectionId(sequence));
        }
        while draft.w.remaining() >= max_len::RETIRE_CONNECTION_ID
            && let Some(sequence) = self.remote_ids.next_due()
        {
            put_retire_connection_id(&mut draft.w, sequence);
            self.remote_ids.sent();
            self.scratch.push(Token::RetireConnectionId(sequence));
        }
        for (place, (due, token)) in self.new_tokens.iter_mut().enumerate() {
            if *due && draft.w.remaining() >= new_token_len(token.len()) {
                put_new_token(&mut draft.w, token);
                *due = false;
                self.scratch.push(Token::AddressProof(place as u32));
            }
        }
        let scratch = &mut self.scratch;
        self.streams.write_control(&mut draft.w, &mut |frame| scratch.push(Token::Control(frame)));
        draft.eliciting |= self.scratch.len() > before;
    }

    /// Leaves out a packet number now and then (RFC 9000, section 21.4).
    fn skip_number(&mut self, ctx: &mut Context<'_>) {
        if self.data.ledger.next_number() == self.next_skip {
            self.data.ledger.skip_number();
            // The distance grows with the numbers, so that skipping stays cheap and a peer that
            // acknowledges ahead is still caught soon.
            let spread = self.next_skip.clamp(64, 65_536);
            self.next_skip += spread + ctx.rng.next_u64() % spread;
        }
    }

    /// Starts a 1-RTT packet in `buf`; it leaves room for the tag.
    #[inline(always)]
    fn begin_short<'a>(&mut self, buf: &'a mut [u8]) -> Option<Draft<'a>> {
        self.scratch.clear();
        let keys = self.keys.as_ref()?;
        let number = self.data.ledger.next_number();
        let pn_len = packet_number_len(number, self.data.ledger.largest_acked);
        let end = buf.len().checked_sub(TAG_LEN).filter(|&end| end >= MIN_ROOM)?;
        let mut w = Writer::new(&mut buf[..end]);
        // RFC 9287, section 3.1: the fixed bit is greased towards peers that allow it.
        let fixed_bit = !self.peer.grease_quic_bit || number & 0x3f != 0x2a;
        let id = &self.remote_ids.active.id;
        put_short_header(&mut w, id, false, keys.local_phase(), pn_len, fixed_bit);
        let pn_offset = w.position();
        put_packet_number(&mut w, number, pn_len);
        Some(Draft {
            payload_at: w.position(),
            w,
            number,
            pn_offset,
            kind: PacketKind::Original,
            unit: None,
            content: Content::NOTHING,
            eliciting: false,
            alone: false,
        })
    }

    /// Seals and books the packet at the start of `buf`. Returns its size.
    fn end_short(&mut self, now: Timestamp, buf: &mut [u8], built: Built, generation: u8) -> usize {
        let Built { number, pn_offset, payload_at, end, .. } = built;
        let size = end + TAG_LEN;
        self.observe_sent(now, SpaceId::Data, &built, &buf[payload_at..end]);
        if let Some(keys) = &mut self.keys {
            keys.seal(number, &mut buf[..size], pn_offset, payload_at - pn_offset);
        }
        self.book(now, SpaceId::Data, &built, generation);
        size
    }

    fn observe_sent(&mut self, now: Timestamp, id: SpaceId, built: &Built, payload: &[u8]) {
        if let Some(observer) = &mut self.observer {
            observer.on_event(
                now,
                &observer::Event::PacketSent {
                    ty: id.packet_type(),
                    number: built.number,
                    size: built.end + TAG_LEN,
                    payload,
                    purpose: built.kind.into(),
                },
            );
        }
    }

    /// Enters a packet in the books of its space and of the path.
    #[inline]
    fn book(&mut self, now: Timestamp, id: SpaceId, built: &Built, generation: u8) {
        let size = built.end + TAG_LEN;
        self.stats.packets_sent += 1;
        let (mut stamp, mut ect) = (RateStamp::default(), false);
        if generation == self.path.generation {
            let path = &mut self.path;
            ect = path.ecn.codepoint() != Ecn::NotEct;
            path.ecn.on_sent();
            if built.eliciting {
                let number = PacketNumber(built.number);
                stamp = path.sampler.on_sent(now, path.in_flight);
                path.controller.on_sent(now, number, size as u64, path.in_flight);
                path.pacer.consumed(size as u64);
                path.in_flight += size as u64;
            }
        }
        if built.eliciting && id == SpaceId::Data {
            match built.kind.copy() {
                Some(kind) => self.recovery.on_copy_bytes(kind, size as u16),
                None => self.recovery.on_first_transmission(size as u16),
            }
        }
        if built.eliciting && !self.eliciting_since_received {
            self.eliciting_since_received = true;
            self.idle_reference = now;
        }
        let record = |content| SentPacket {
            time_sent: now,
            stamp,
            content,
            unit: built.unit,
            kind: built.kind,
            size: size as u16,
            path: generation,
            ack_eliciting: built.eliciting,
            ect,
            fate: Fate::Outstanding,
        };
        if self.scratch.is_empty() {
            if let Some(space) = self.space_mut(id) {
                space.ledger.push(record(built.content));
            }
            return;
        }
        let mut tokens = core::mem::take(&mut self.scratch);
        if let Carried::Stream(range) = built.content.get() {
            tokens.push(Token::Stream(range));
        }
        if let Some(space) = self.space_mut(id) {
            let content = space.ledger.keep(&tokens);
            space.ledger.push(record(content));
        }
        tokens.clear();
        self.scratch = tokens;
    }

    /// One datagram of Initial and Handshake packets.
    fn transmit_handshake(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        budget: u64,
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        let limit = usize::from(BASE).min(buf.len()).min(usize::try_from(budget).unwrap_or(0));
        let window = self.path.window_room() >= limit as u64;
        let mut len = 0;
        let mut pads = false;
        for id in [SpaceId::Initial, SpaceId::Handshake] {
            let follows = id == SpaceId::Initial && self.wants_early(SpaceId::Handshake, now);
            if !self.wants_early(id, now) {
                continue;
            }
            let probes = self.space(id).is_some_and(|s| s.probes > 0);
            let due = self.space(id).is_some_and(|s| s.crypto_send.is_due());
            // RFC 9000, section 14.1: datagrams with ack-eliciting Initial packets are expanded
            // to 1,200 bytes; without the budget for that only an acknowledgement may leave.
            let fits = id != SpaceId::Initial || limit == usize::from(BASE);
            let may_elicit = fits && (window || probes);
            pads |= id == SpaceId::Initial && may_elicit && (probes || due);
            let room_behind = limit - len > 200;
            let pad = pads && !(follows && room_behind);
            let pad_to = if pad { limit - len } else { 0 };
            len += self.early_packet(now, id, &mut buf[len..limit], pad_to, may_elicit, ctx);
        }
        if len == 0 {
            return None;
        }
        let ecn = self.path.ecn.codepoint();
        Some(self.sent(Transmit { addresses: self.path.addresses, ecn, len, segment: len }))
    }

    fn wants_early(&self, id: SpaceId, now: Timestamp) -> bool {
        self.space(id).is_some_and(|space| {
            let ack = space.received.deadline().is_some_and(|at| at <= now);
            ack || space.probes > 0 || space.crypto_send.is_due()
        })
    }

    /// One Initial or Handshake packet, of at least `pad_to` bytes. Returns its size.
    fn early_packet(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        buf: &mut [u8],
        pad_to: usize,
        may_elicit: bool,
        ctx: &mut Context<'_>,
    ) -> usize {
        let dcid = self.remote_ids.active.id;
        let scid = self.local_ids.get(0, ctx.keys.cids());
        self.scratch.clear();
        let Some(handshake) = &mut self.handshake else { return 0 };
        let early = match id {
            SpaceId::Initial => &mut handshake.initial,
            _ => &mut handshake.handshake,
        };
        let Some(early) = early else { return 0 };
        let space = &mut early.space;
        let number = space.ledger.next_number();
        let end = buf.len().checked_sub(TAG_LEN).filter(|&end| end >= MIN_ROOM);
        let Some(end) = end else { return 0 };
        let mut w = Writer::new(&mut buf[..end]);
        let length_at = put_long_header(&mut w, early.ty, &dcid, &scid, &[], LONG_PN_LEN);
        let pn_offset = w.position();
        put_packet_number(&mut w, number, LONG_PN_LEN);
        let payload_at = w.position();
        if space.received.wants_ack()
            && let Some(largest) = space.received.write_ack(now, ACK_DELAY_EXPONENT, &mut w)
        {
            self.scratch.push(Token::Ack { largest });
        }
        let mut eliciting = false;
        if may_elicit {
            if space.probes > 0 && !space.crypto_send.is_due() {
                // RFC 9002, section 6.2.4: every probe carries data where there is some, so that
                // either of two is enough.
                space.crypto_send.resend();
            }
            while let Some(token) = space.crypto_send.write_frame(&mut w) {
                self.scratch.push(token);
                eliciting = true;
            }
            if space.probes > 0 && !eliciting {
                put_ping(&mut w);
                eliciting = true;
            }
        }
        if w.position() == payload_at {
            return 0;
        }
        if eliciting {
            space.probes = space.probes.saturating_sub(1);
        }
        let least = pad_to.saturating_sub(TAG_LEN).max(pn_offset + MIN_SAMPLE).min(end);
        w.fill(0, least.saturating_sub(w.position()));
        let end = w.position();
        w.set_varint2(length_at, (end + TAG_LEN - pn_offset) as u64);
        let kind = PacketKind::Original;
        let (unit, content) = (None, Content::NOTHING);
        let built = Built { number, pn_offset, payload_at, end, kind, unit, content, eliciting };
        self.observe_sent(now, id, &built, &buf[payload_at..end]);
        self.seal_early(id, buf, &built);
        self.book(now, id, &built, self.path.generation);
        end + TAG_LEN
    }

    fn seal_early(&self, id: SpaceId, buf: &mut [u8], built: &Built) {
        let Some(handshake) = &self.handshake else { return };
        let early = if id == SpaceId::Initial { &handshake.initial } else { &handshake.handshake };
        let Some(early) = early else { return };
        let Built { number, pn_offset, payload_at, end, .. } = *built;
        let packet = &mut buf[..end + TAG_LEN];
        let (header, payload) = packet.split_at_mut(payload_at);
        early.keys.local.packet.seal(number, header, payload);
        early.keys.local.header.protect(packet, pn_offset, payload_at - pn_offset);
    }

    /// A padded datagram with PATH_CHALLENGE or PATH_RESPONSE.
    fn transmit_off_path(&mut self, now: Timestamp, buf: &mut [u8]) -> Option<Transmit> {
        self.keys.as_ref()?;
        let own_challenge = self.path.challenge.as_mut().filter(|c| c.due).map(|challenge| {
            challenge.due = false;
            challenge.data
        });
        let (addresses, frame, limit) = match own_challenge {
            Some(data) => {
                let limit = self.path.amplification_budget();
                (self.path.addresses, OffPathFrame::Challenge(data), limit)
            }
            None => {
                let owed = self.off_path.pop_front()?;
                (owed.addresses, owed.frame, owed.limit)
            }
        };
        let on_path = addresses.remote == self.path.addresses.remote;
        let limit = if on_path { limit.min(self.path.amplification_budget()) } else { limit };
        // RFC 9000, section 8.2.1: expanded to 1,200 bytes unless the anti-amplification limit
        // does not permit it.
        let size = usize::from(BASE).min(usize::try_from(limit).unwrap_or(usize::MAX));
        let buf = buf.get_mut(..size)?;
        let mut draft = self.begin_short(buf)?;
        match frame {
            OffPathFrame::Challenge(data) => put_path_challenge(&mut draft.w, data),
            OffPathFrame::Response(data) => put_path_response(&mut draft.w, data),
        }
        draft.pad();
        draft.eliciting = true;
        let built = draft.build();
        // Booked on no path: its fate says nothing about the present one.
        self.end_short(now, buf, built, NO_PATH);
        let transmit = Transmit { addresses, ecn: Ecn::NotEct, len: size, segment: size };
        Some(if on_path { self.sent(transmit) } else { transmit })
    }

    /// A padded PING that tests a larger datagram size (RFC 8899).
    fn transmit_mtu_probe(&mut self, now: Timestamp, buf: &mut [u8]) -> Option<Transmit> {
        if self.handshake.is_some() || !self.path.validated || self.data.probes > 0 {
            return None;
        }
        let size = self.path.mtud.probe_due(now)?;
        if self.path.window_room() < u64::from(size) {
            return None;
        }
        let len = usize::from(size);
        let buf = buf.get_mut(..len)?;
        let mut draft = self.begin_short(buf)?;
        put_ping(&mut draft.w);
        draft.pad();
        draft.eliciting = true;
        draft.kind = PacketKind::MtuProbe;
        self.path.mtud.on_probe_sent(size);
        let built = draft.build();
        self.end_short(now, buf, built, self.path.generation);
        let ecn = self.path.ecn.codepoint();
        Some(self.sent(Transmit { addresses: self.path.addresses, ecn, len, segment: len }))
    }

    /// CONNECTION_CLOSE in every space that has keys (RFC 9000, section 10.2.3).
    fn transmit_close(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        let budget = usize::try_from(self.path.amplification_budget()).unwrap_or(usize::MAX);
        let limit = usize::from(BASE).min(buf.len()).min(budget);
        let reason = self.close.as_deref()?.clone();
        let mut len = 0;
        for id in SpaceId::ALL {
            let rest = buf.get_mut(len..limit)?;
            let size = match id {
                SpaceId::Data => self.close_packet(now, rest, &reason),
                _ => self.early_close_packet(id, rest, &reason, ctx),
            };
            len += size.unwrap_or(0);
        }
        if len == 0 {
            return None;
        }
        let addresses = self.path.addresses;
        Some(self.sent(Transmit { addresses, ecn: Ecn::NotEct, len, segment: len }))
    }

    fn close_packet(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        reason: &CloseReason,
    ) -> Option<usize> {
        let mut draft = self.begin_short(buf)?;
        match reason {
            CloseReason::Application { code, reason } => {
                put_application_close(&mut draft.w, *code, reason);
            }
            CloseReason::Transport(error) => put_connection_close(&mut draft.w, error),
            _ => return None,
        }
        let built = draft.build();
        Some(self.end_short(now, buf, built, self.path.generation))
    }

    fn early_close_packet(
        &mut self,
        id: SpaceId,
        buf: &mut [u8],
        reason: &CloseReason,
        ctx: &mut Context<'_>,
    ) -> Option<usize> {
        let error = match reason {
            CloseReason::Transport(error) => *error,
            // RFC 9000, section 10.2.3: the application's code and reason are not for Initial and
            // Handshake packets.
            CloseReason::Application { .. } => TransportError::new(Code::APPLICATION_ERROR, 0, ""),
            _ => return None,
        };
        let dcid = self.remote_ids.active.id;
        let scid = self.local_ids.get(0, ctx.keys.cids());
        let handshake = self.handshake.as_mut()?;
        let early = match id {
            SpaceId::Initial => handshake.initial.as_mut(),
            _ => handshake.handshake.as_mut(),
        }?;
        let number = early.space.ledger.next_number();
        early.space.ledger.skip_number();
        let end = buf.len().checked_sub(TAG_LEN).filter(|&end| end >= MIN_ROOM)?;
        let mut w = Writer::new(&mut buf[..end]);
        let length_at = put_long_header(&mut w, early.ty, &dcid, &scid, &[], LONG_PN_LEN);
        let pn_offset = w.position();
        put_packet_number(&mut w, number, LONG_PN_LEN);
        let payload_at = w.position();
        put_connection_close(&mut w, &error);
        let end = w.position();
        w.set_varint2(length_at, (end + TAG_LEN - pn_offset) as u64);
        let kind = PacketKind::Original;
        let (unit, content, eliciting) = (None, Content::NOTHING, false);
        let built = Built { number, pn_offset, payload_at, end, kind, unit, content, eliciting };
        self.seal_early(id, buf, &built);
        Some(end + TAG_LEN)
    }
}

enum Fit {
    Whole,
    Part(u16),
    None,
}

/// How much of a range fits into `room` bytes, frame header included.
fn fitting(range: &StreamRange, room: usize) -> Fit {
    let header = stream_header_len(range.id, range.offset, Some(usize::from(range.len)));
    match room.checked_sub(header) {
        Some(room) if room >= usize::from(range.len) => Fit::Whole,
        Some(room) if room >= MIN_STREAM_ROOM => Fit::Part(room as u16),
        _ => Fit::None,
    }
}

/// The first `len` bytes of a range, and the rest, which keeps the FIN.
fn split_range(range: &StreamRange, len: u16) -> (StreamRange, StreamRange) {
    let head = StreamRange { len, fin: false, ..*range };
    let tail =
        StreamRange { offset: range.offset + u64::from(len), len: range.len - len, ..*range };
    (head, tail)
}
