//! Datagrams of Initial and Handshake packets, coalesced and expanded (RFC 9000, sections 12.2 and
//! 14.1), and CONNECTION_CLOSE in every space with keys (section 10.2.3).

use super::Transmit;
use super::packet::{ACK_DELAY_EXPONENT, Head, MIN_ROOM};
use crate::connection::spaces::SpaceId;
use crate::connection::{CloseReason, Connection, Context};
use crate::crypto::TAG_LEN;
use crate::ledger::SentFrame;
use crate::mtud::BASE;
use crate::wire::{
    TransportError, TransportErrorCode as Code, Writer, put_application_close,
    put_connection_close, put_long_header,
};
use units::{Ecn, Timestamp};

/// Packet-number length of long headers, in bytes.
const LONG_PN_LEN: usize = 2;

impl Connection {
    /// Writes one datagram of Initial and Handshake packets.
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
            // RFC 9000, section 14.1: datagrams with ack-eliciting Initial packets are expanded to
            // 1,200 bytes. With a smaller budget only an acknowledgement may be sent.
            let fits = id != SpaceId::Initial || limit == usize::from(BASE);
            // Handshake bytes ignore the window: 1-RTT data may fill it, and the client
            // acknowledges none of that before it has the handshake.
            let may_elicit = fits && (window || probes || due);
            pads |= id == SpaceId::Initial && may_elicit && (probes || due);
            let room_behind = limit - len > 200;
            let pad = pads && !(follows && room_behind);
            let pad_to = if pad { limit - len } else { 0 };
            let rest = &mut buf[len..limit];
            len += self.early_packet(now, id, rest, pad_to, may_elicit, ctx).unwrap_or(0);
        }
        if len == 0 {
            return None;
        }
        let (addresses, ecn) = (self.path.standing.addresses, Ecn::NotEct);
        Some(self.sent(Transmit { addresses, ecn, len, segment: len }))
    }

    fn wants_early(&self, id: SpaceId, now: Timestamp) -> bool {
        self.space(id).is_some_and(|space| {
            let ack = space.received.deadline().is_some_and(|at| at <= now);
            ack || space.probes > 0 || space.crypto_send.is_due()
        })
    }

    /// Starts an Initial or Handshake packet in `buf`, leaving room for the tag.
    fn begin_early<'a>(
        &mut self,
        id: SpaceId,
        buf: &'a mut [u8],
        ctx: &Context<'_>,
    ) -> Option<Head<'a>> {
        let number = self.handshake.as_ref()?.early(id)?.space.ledger.next_number();
        let dcid = self.control.remote_ids.active.id;
        let scid = self.control.local_ids.get(0, ctx.keys.cids());
        let end = buf.len().checked_sub(TAG_LEN).filter(|&end| end >= MIN_ROOM)?;
        let mut w = Writer::new(&mut buf[..end]);
        let length_at = put_long_header(&mut w, id.packet_type(), &dcid, &scid, &[], LONG_PN_LEN);
        Some(Head { w, length_at: Some(length_at), space: id, number, pn_len: LONG_PN_LEN })
    }

    /// Writes one Initial or Handshake packet of at least `pad_to` bytes. Returns its size.
    fn early_packet(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        buf: &mut [u8],
        pad_to: usize,
        may_elicit: bool,
        ctx: &mut Context<'_>,
    ) -> Option<usize> {
        let mut draft = self.begin_early(id, buf, ctx)?.draft(ctx.frames);
        let space = &mut self.handshake.as_mut()?.early_mut(id)?.space;
        if space.received.wants_ack()
            && let Some(largest) =
                space.received.write_ack(now, ACK_DELAY_EXPONENT, &mut draft.w, usize::MAX)
        {
            draft.frames.push(SentFrame::Ack { largest });
        }
        if may_elicit {
            if space.probes > 0 && !space.crypto_send.is_due() {
                // RFC 9002, section 6.2.4: every probe carries data if there is any, so that either
                // of two suffices.
                space.crypto_send.resend();
            }
            while let Some(frame) = space.crypto_send.write_frame(&mut draft.w) {
                draft.frames.push(frame);
                draft.built.eliciting = true;
            }
            if space.probes > 0 && !draft.built.eliciting {
                draft.write_ping();
            }
        }
        if draft.is_empty() {
            return None;
        }
        if draft.built.eliciting {
            space.probes = space.probes.saturating_sub(1);
        }
        draft.pad_to(pad_to.saturating_sub(TAG_LEN));
        draft.finish();
        let built = &draft.built;
        Some(self.end_packet(now, buf, built, ctx.frames, self.path.generation))
    }

    /// Writes CONNECTION_CLOSE in every space with keys (RFC 9000, section 10.2.3).
    pub(super) fn transmit_close(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        let budget = usize::try_from(self.path.budget()).unwrap_or(usize::MAX);
        let limit = usize::from(BASE).min(buf.len()).min(budget);
        let reason = self.life.reason()?.clone();
        let mut len = 0;
        for id in SpaceId::ALL {
            let rest = buf.get_mut(len..limit)?;
            len += self.close_packet(now, id, rest, &reason, ctx).unwrap_or(0);
        }
        if len == 0 {
            return None;
        }
        let addresses = self.path.standing.addresses;
        Some(self.sent(Transmit { addresses, ecn: Ecn::NotEct, len, segment: len }))
    }

    fn close_packet(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        buf: &mut [u8],
        reason: &CloseReason,
        ctx: &mut Context<'_>,
    ) -> Option<usize> {
        let head = match id {
            SpaceId::Data => self.begin_short(buf)?,
            _ => self.begin_early(id, buf, ctx)?,
        };
        let mut draft = head.draft(ctx.frames);
        match reason {
            CloseReason::Transport(error) => put_connection_close(&mut draft.w, error),
            CloseReason::Application { code, reason } if id == SpaceId::Data => {
                put_application_close(&mut draft.w, *code, reason);
            }
            // RFC 9000, section 10.2.3: Initial and Handshake packets must not reveal the
            // application's code and reason.
            CloseReason::Application { .. } => {
                let error = TransportError::new(Code::APPLICATION_ERROR, 0, "");
                put_connection_close(&mut draft.w, &error);
            }
            _ => return None,
        }
        draft.finish();
        let built = &draft.built;
        Some(self.end_packet(now, buf, built, ctx.frames, self.path.generation))
    }
}
