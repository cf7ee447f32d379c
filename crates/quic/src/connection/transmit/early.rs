//! Datagrams of Initial and Handshake packets, coalesced and expanded (RFC 9000, sections 12.2 and
//! 14.1), and the CONNECTION_CLOSE that ends a connection in every space that has keys (section
//! 10.2.3).

use super::Transmit;
use super::packet::{ACK_DELAY_EXPONENT, Built, MIN_ROOM, MIN_SAMPLE};
use crate::connection::spaces::SpaceId;
use crate::connection::{CloseReason, Connection, Context};
use crate::crypto::TAG_LEN;
use crate::ledger::{Content, PacketKind, SentFrame};
use crate::mtud::BASE;
use crate::wire::{
    TransportError, TransportErrorCode as Code, Writer, put_application_close,
    put_connection_close, put_long_header, put_packet_number, put_ping,
};
use units::{Ecn, Timestamp};

/// Packet-number bytes of long headers.
const LONG_PN_LEN: usize = 2;

impl Connection {
    /// One datagram of Initial and Handshake packets.
    pub(super) fn transmit_handshake(
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
            // Handshake bytes pass the window: 1-RTT data may fill it, and the client acknowledges none
            // of that before it has them.
            let may_elicit = fits && (window || probes || due);
            pads |= id == SpaceId::Initial && may_elicit && (probes || due);
            let room_behind = limit - len > 200;
            let pad = pads && !(follows && room_behind);
            let pad_to = if pad { limit - len } else { 0 };
            len += self.early_packet(now, id, &mut buf[len..limit], pad_to, may_elicit, ctx);
        }
        if len == 0 {
            return None;
        }
        let (addresses, ecn) = (self.path.addresses, Ecn::NotEct);
        Some(self.sent(Transmit { addresses, ecn, len, segment: len }))
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
        let length_at = put_long_header(&mut w, id.packet_type(), &dcid, &scid, &[], LONG_PN_LEN);
        let pn_offset = w.position();
        put_packet_number(&mut w, number, LONG_PN_LEN);
        let payload_at = w.position();
        if space.received.wants_ack()
            && let Some(largest) =
                space.received.write_ack(now, ACK_DELAY_EXPONENT, &mut w, usize::MAX)
        {
            self.scratch.push(SentFrame::Ack { largest });
        }
        let mut eliciting = false;
        if may_elicit {
            if space.probes > 0 && !space.crypto_send.is_due() {
                // RFC 9002, section 6.2.4: every probe carries data where there is some, so that
                // either of two is enough.
                space.crypto_send.resend();
            }
            while let Some(frame) = space.crypto_send.write_frame(&mut w) {
                self.scratch.push(frame);
                eliciting = true;
            }
            if space.probes > 0 && !eliciting && w.remaining() > 0 {
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

    /// CONNECTION_CLOSE in every space that has keys (RFC 9000, section 10.2.3).
    pub(super) fn transmit_close(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        let budget = usize::try_from(self.path.budget()).unwrap_or(usize::MAX);
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
        let length_at = put_long_header(&mut w, id.packet_type(), &dcid, &scid, &[], LONG_PN_LEN);
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
