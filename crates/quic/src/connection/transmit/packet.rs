//! Writes one packet: header, frames in the order of docs/develop/architecture.md, protection (RFC
//! 9001, section 5), and ledger entry.

use super::Turn;
use crate::config::CopyAccounting;
use crate::connection::spaces::SpaceId;
use crate::connection::{Connection, Context};
use crate::crypto::{CidCipher, TAG_LEN};
use crate::ledger::{Carried, Fate, PacketContent, PacketKind, SentFrame, SentPacket};
use crate::observer;
use crate::streams::{StreamRange, Streams};
use crate::wire::{
    Writer, packet_number_len, put_packet_number, put_ping, put_short_header, put_stream_header,
    stream_header_len,
};
use congestion::RateStamp;
use recovery::{CopyKind, Fit, UnitKey, Written};
use units::{PacketNumber, Timestamp};

/// Exponent of the delay field in our ACK frames (the default of RFC 9000, section 18.2).
pub(super) const ACK_DELAY_EXPONENT: u32 = 3;
/// Minimum length of packet number and payload for header protection, in bytes (RFC 9001, section
/// 5.4.2).
const MIN_SAMPLE: usize = 4;
/// Minimum room for another STREAM frame, in bytes.
const MIN_STREAM_ROOM: usize = 32;
/// Minimum room for a packet's header and frames, in bytes.
pub(super) const MIN_ROOM: usize = 64;

/// A packet with a header, up to the packet number.
///
/// [`Head::draft`] is a step of its own, so that the larger draft is made in its final place: the
/// processor cannot forward fields that were just written to the wider reads of a move, and waits
/// until the header is in the cache.
pub(super) struct Head<'a> {
    pub(super) w: Writer<'a>,
    /// Offset of a long header's Length field.
    pub(super) length_at: Option<usize>,
    pub(super) space: SpaceId,
    pub(super) number: u64,
    pub(super) pn_len: usize,
}

/// A packet under construction.
pub(super) struct Draft<'a> {
    pub(super) w: Writer<'a>,
    /// Offset of a long header's Length field.
    length_at: Option<usize>,
    pub(super) built: Built,
    /// Must be sent in its own transmission.
    pub(super) alone: bool,
    /// Frames with consequences, except for the first STREAM frame ([`Built::content`]).
    pub(super) frames: &'a mut Vec<SentFrame>,
}

/// Properties of a packet. [`Draft::finish`] sets `end`.
pub(super) struct Built {
    space: SpaceId,
    number: u64,
    pn_offset: usize,
    payload_at: usize,
    end: usize,
    pub(super) kind: PacketKind,
    unit: Option<UnitKey>,
    /// The first STREAM frame.
    content: PacketContent,
    pub(super) eliciting: bool,
    /// Sent with an ECN-capable codepoint.
    pub(super) ect: bool,
}

impl<'a> Head<'a> {
    /// Writes the packet number.
    #[inline(always)]
    pub(super) fn draft(self, frames: &'a mut Vec<SentFrame>) -> Draft<'a> {
        frames.clear();
        let Head { mut w, length_at, space, number, pn_len } = self;
        let pn_offset = w.position();
        put_packet_number(&mut w, number, pn_len);
        let built = Built {
            space,
            number,
            pn_offset,
            payload_at: w.position(),
            end: w.position(),
            kind: PacketKind::Original,
            unit: None,
            content: PacketContent::NOTHING,
            eliciting: false,
            ect: false,
        };
        Draft { w, length_at, built, alone: false, frames }
    }
}

impl Draft<'_> {
    /// Ends the frames, padded to the minimum for header protection.
    #[inline(always)]
    pub(super) fn finish(&mut self) {
        let pn_offset = self.built.pn_offset;
        self.pad_to(pn_offset + MIN_SAMPLE);
        self.built.end = self.w.position();
        if let Some(at) = self.length_at {
            self.w.set_varint2(at, (self.built.end + TAG_LEN - pn_offset) as u64);
        }
    }

    /// Returns true if the packet has no frames.
    pub(super) fn is_empty(&self) -> bool {
        self.w.position() == self.built.payload_at
    }

    /// Writes a PING if there is room. Returns true on success.
    pub(super) fn write_ping(&mut self) -> bool {
        let fits = self.w.remaining() > 0;
        if fits {
            put_ping(&mut self.w);
            self.built.eliciting = true;
        }
        fits
    }

    /// Fills the packet with PADDING.
    pub(super) fn pad(&mut self) {
        self.w.fill(0, self.w.remaining());
    }

    /// Writes PADDING up to this offset.
    #[inline(always)]
    pub(super) fn pad_to(&mut self, least: usize) {
        self.w.fill(0, least.saturating_sub(self.w.position()));
    }
}

impl Connection {
    /// Skips a packet number occasionally (RFC 9000, section 21.4).
    pub(super) fn skip_number(&mut self, ctx: &mut Context<'_>) {
        let number = self.data.ledger.next_number();
        let path = &self.path;
        let window = || path.controller.window() / u64::from(path.mtud.current());
        if self.header.skips(number, window, ctx.rng) {
            self.data.ledger.skip_number();
        }
    }

    /// Starts a 1-RTT packet in `buf`, leaving room for the tag.
    #[inline(always)]
    pub(super) fn begin_short<'a>(&mut self, buf: &'a mut [u8]) -> Option<Head<'a>> {
        let keys = self.keys.as_ref()?;
        let number = self.data.ledger.next_number();
        // At least 2 bytes, so that a copy fits wherever its original just fitted.
        let pn_len = packet_number_len(number, self.data.ledger.largest_acked).max(2);
        let end = buf.len().checked_sub(TAG_LEN).filter(|&end| end >= MIN_ROOM)?;
        let mut w = Writer::new(&mut buf[..end]);
        let fixed_bit = !self.peer.grease_quic_bit || self.header.fixed_bit(number);
        let id = &self.control.remote_ids.active.id;
        put_short_header(&mut w, id, false, keys.local_phase(), pn_len, fixed_bit);
        Some(Head { w, length_at: None, space: SpaceId::Data, number, pn_len })
    }

    /// Seals the packet at the start of `buf` and enters it in the ledger. Returns its size.
    pub(super) fn end_packet(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        built: &Built,
        frames: &mut Vec<SentFrame>,
        generation: u8,
    ) -> usize {
        let Built { space, number, pn_offset, payload_at, end, .. } = *built;
        let size = end + TAG_LEN;
        if let Some(observer) = &mut self.observer {
            let sent = observer::Event::PacketSent {
                ty: space.packet_type(),
                number,
                size,
                payload: &buf[payload_at..end],
                purpose: built.kind.into(),
            };
            observer.on_event(now, &sent);
        }
        let (packet, pn_len) = (&mut buf[..size], payload_at - pn_offset);
        if space == SpaceId::Data {
            if let Some(keys) = &mut self.keys {
                keys.seal(number, packet, pn_offset, pn_len);
            }
        } else if let Some(early) = self.handshake.as_ref().and_then(|h| h.early(space)) {
            let (header, payload) = packet.split_at_mut(payload_at);
            early.keys.local.packet.seal(number, header, payload);
            early.keys.local.header.protect(packet, pn_offset, pn_len);
        }
        self.book(now, built, frames, generation);
        if let Some(key) = built.unit
            && self.config.accounting == CopyAccounting::Newest
        {
            self.supersede(now, key, number);
        }
        size
    }

    /// Enters a packet in its space's ledger and the path's counts.
    #[inline]
    fn book(&mut self, now: Timestamp, built: &Built, frames: &mut Vec<SentFrame>, generation: u8) {
        let (id, size) = (built.space, built.end + TAG_LEN);
        self.stats.packets_sent += 1;
        let mut stamp = RateStamp::default();
        if built.ect {
            self.ecn.on_sent();
        }
        if generation == self.path.generation {
            let path = &mut self.path;
            if id == SpaceId::Data {
                path.last_sent = Some(built.number);
            }
            if built.eliciting {
                if id == SpaceId::Data {
                    path.ecn.on_sent(now, built.ect);
                }
                let number = PacketNumber(built.number);
                stamp = path.sampler.on_sent(now, path.in_flight);
                path.controller.on_sent(now, number, size as u64, path.in_flight);
                path.pacer.consumed(size as u64);
                path.in_flight += size as u64;
            }
        }
        if built.eliciting && id == SpaceId::Data {
            self.recovery.sent(now, size as u16, built.kind.copy());
        }
        if built.eliciting {
            self.idle.on_eliciting_sent(now);
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
            ect: built.ect,
            fate: Fate::Outstanding,
        };
        if frames.is_empty() {
            if let Some(space) = self.space_mut(id) {
                space.ledger.push(record(built.content));
            }
            return;
        }
        if let Carried::Stream(range) = built.content.get() {
            frames.push(SentFrame::Stream(range));
        }
        if let Some(space) = self.space_mut(id) {
            let content = space.ledger.keep(frames);
            space.ledger.push(record(content));
        }
    }

    /// Writes the frames of a packet.
    pub(super) fn fill(
        &mut self,
        now: Timestamp,
        draft: &mut Draft<'_>,
        turn: Turn,
        cids: &CidCipher,
    ) {
        match turn {
            Turn::Ack { .. } => return,
            Turn::Probe => return self.write_probe(now, draft),
            Turn::Control => self.write_control(draft, cids),
            Turn::Replica { key, beyond_window } => {
                if self.write_replica(now, draft, key) == Written::Copy || beyond_window {
                    return;
                }
            }
            Turn::Retransmission | Turn::Data => {}
        }
        // Each pass finishes a unit or ends the loop.
        while let Some(key) = self.recovery.next_waiting() {
            if draft.built.eliciting {
                // Control frames are sent in a separate packet: a copy carries no other content.
                return;
            }
            match self.write_unit(now, draft, key, CopyKind::Retransmission) {
                Written::Over => {}
                Written::Copy | Written::NoRoom => return,
            }
        }
        self.write_new_data(draft);
    }

    /// Writes a replica. Two copies of a unit are never sent in one batch: they would be lost
    /// together.
    fn write_replica(&mut self, now: Timestamp, draft: &mut Draft<'_>, key: UnitKey) -> Written {
        draft.alone = true;
        self.write_unit(now, draft, key, CopyKind::Replica)
    }

    fn write_new_data(&mut self, draft: &mut Draft<'_>) {
        while draft.w.remaining() >= MIN_STREAM_ROOM {
            let Some(range) = self.streams.next_range(draft.w.remaining()) else { return };
            self.write_range(draft, &range);
        }
    }

    /// Writes a STREAM frame that fits.
    #[inline]
    fn write_range(&mut self, draft: &mut Draft<'_>, range: &StreamRange) {
        put_range(&self.streams, draft, range);
    }

    /// Writes a copy of a unit's missing data.
    fn write_unit(
        &mut self,
        now: Timestamp,
        draft: &mut Draft<'_>,
        key: UnitKey,
        kind: CopyKind,
    ) -> Written {
        let Self { recovery, streams, .. } = self;
        let written = recovery.copy(now, key, kind, streams, |range| {
            let fit = fitting(range, draft.w.remaining());
            match &fit {
                Fit::Whole => put_range(streams, draft, range),
                Fit::Part(head, _) => put_range(streams, draft, head),
                Fit::None => {}
            }
            fit
        });
        if written == Written::Copy {
            draft.built.kind = PacketKind::Copy(kind);
            draft.built.unit = Some(key);
        }
        written
    }

    /// Writes a probe (RFC 9002, section 6.2.4): the oldest unfinished unit, else the oldest
    /// unacknowledged data, else new data, else a PING.
    fn write_probe(&mut self, now: Timestamp, draft: &mut Draft<'_>) {
        draft.alone = true;
        if self.data.crypto_send.is_due() || self.control.is_handshake_done_due() {
            self.write_transport_control(draft);
        }
        while !draft.built.eliciting
            && let Some(key) = self.recovery.oldest()
            && self.write_unit(now, draft, key, CopyKind::Probe) == Written::Over
        {}
        if !draft.built.eliciting {
            let room = draft.w.remaining().saturating_sub(MIN_STREAM_ROOM);
            if let Some(range) = self.streams.oldest_unacked(room) {
                if let Some(oldest) = self.data.ledger.oldest_eliciting() {
                    self.recovery.probed(now, oldest.time_sent);
                }
                draft.built.kind = PacketKind::Copy(CopyKind::Probe);
                self.write_range(draft, &range);
            } else {
                self.write_new_data(draft);
            }
        }
        if !draft.built.eliciting {
            draft.write_ping();
        }
    }

    /// Writes an ACK frame. Drops ranges if needed to leave `reserved` bytes free.
    pub(super) fn write_ack(&mut self, now: Timestamp, draft: &mut Draft<'_>, reserved: usize) {
        let limit = draft.w.remaining().saturating_sub(reserved);
        let received = &mut self.data.received;
        if let Some(largest) = received.write_ack(now, ACK_DELAY_EXPONENT, &mut draft.w, limit) {
            draft.frames.push(SentFrame::Ack { largest });
        }
    }

    /// Writes HANDSHAKE_DONE and handshake bytes.
    fn write_transport_control(&mut self, draft: &mut Draft<'_>) {
        let done = self.control.write_handshake_done(&mut draft.w, draft.frames);
        draft.built.eliciting |= done;
        while let Some(frame) = self.data.crypto_send.write_frame(&mut draft.w) {
            draft.frames.push(frame);
            draft.built.eliciting = true;
        }
    }

    fn write_control(&mut self, draft: &mut Draft<'_>, cids: &CidCipher) {
        self.write_transport_control(draft);
        draft.built.eliciting |= self.control.write_ping(&mut draft.w);
        let (before, frames) = (draft.frames.len(), &mut *draft.frames);
        self.control.write_ids_and_tokens(&mut draft.w, cids, frames);
        self.streams
            .write_control(&mut draft.w, &mut |frame| frames.push(SentFrame::Control(frame)));
        draft.built.eliciting |= draft.frames.len() > before;
    }
}

/// Writes a STREAM frame that fits.
#[inline]
fn put_range(streams: &Streams, draft: &mut Draft<'_>, range: &StreamRange) {
    let len = usize::from(range.len);
    put_stream_header(&mut draft.w, range.id, range.offset, Some(len), range.fin);
    if !streams.copy(range, draft.w.reserve(len)) {
        return;
    }
    draft.built.eliciting = true;
    if draft.built.content.is_nothing() {
        draft.built.content = PacketContent::stream(*range);
    } else {
        draft.frames.push(SentFrame::Stream(*range));
    }
}

/// Returns the part of a range that fits into `room` bytes, frame header included. A part takes the
/// first bytes; the rest keeps the FIN.
fn fitting(range: &StreamRange, room: usize) -> Fit<StreamRange> {
    let header = stream_header_len(range.id, range.offset, Some(usize::from(range.len)));
    match room.checked_sub(header) {
        Some(room) if room >= usize::from(range.len) => Fit::Whole,
        Some(room) if room >= MIN_STREAM_ROOM => {
            let len = room as u16;
            let head = StreamRange { len, fin: false, ..*range };
            let offset = range.offset + u64::from(len);
            Fit::Part(head, StreamRange { offset, len: range.len - len, ..*range })
        }
        _ => Fit::None,
    }
}
