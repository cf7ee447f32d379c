//! Receiving: from datagrams to packets to frames to their handlers (RFC 9000, sections 12 and 13;
//! RFC 9001, section 5).

use super::arrival::{Arrival, EarlyPacket};
use super::event::CloseReason;
use super::off_path::{OffPath, OffPathFrame};
use super::opening::{Opened, Unopened, open_early, open_long, open_short};
use super::spaces::SpaceId;
use super::{Connection, Context, violation};
use crate::datagram::Datagram;
use crate::drops::PacketDropReason;
use crate::ids::{LOCAL_LEN, RemoteId};
use crate::mtud::BASE;
use crate::observer;
use crate::wire::{ConnectionId, Frame, Frames, Header, PacketType, TransportError, parse_header};
use core::time::Duration;
use units::Timestamp;

/// Maximum stored length of a peer's reason phrase, in bytes.
const MAX_REASON: usize = 128;
/// Reserved bits of long and short headers (RFC 9000, sections 17.2 and 17.3.1).
const RESERVED_LONG: u8 = 0x0c;
const RESERVED_SHORT: u8 = 0x18;

/// Effects of a packet beyond its frames.
#[derive(Clone, Copy, Default)]
struct Effects {
    eliciting: bool,
    /// Contains a non-probing frame (RFC 9000, section 9.1).
    non_probing: bool,
    crypto: bool,
}

/// Maximum number of unacknowledged ACK-only packets. More than a round trip's worth at the largest
/// receive window.
const MAX_UNANSWERED: u32 = 8_192;

impl Connection {
    /// Processes a datagram that belongs to this connection. `local_id` is the sequence number of
    /// the connection ID in its first packet, 0 for the client's own choice.
    pub(crate) fn on_datagram(
        &mut self,
        now: Timestamp,
        datagram: Datagram<&mut [u8]>,
        local_id: u64,
        ctx: &mut Context<'_>,
    ) {
        let Datagram { addresses, ecn, payload: datagram } = datagram;
        let arrival = Arrival { now, addresses, ecn, datagram: datagram.len(), local_id };
        let _span = self.span();
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += datagram.len() as u64;
        if addresses.remote == self.path.standing.addresses.remote {
            self.path.standing.received += datagram.len() as u64;
        }
        if !self.is_open() {
            self.life.on_datagram();
            self.look_for_close(datagram);
            return;
        }
        let early = self
            .handshake
            .as_mut()
            .map(|h| core::mem::take(&mut h.early_packets))
            .unwrap_or_default();
        self.on_packets(&arrival, datagram, ctx);
        if let Some(handshake) = &mut self.handshake {
            handshake.early_packets.splice(..0, early);
        } else {
            for EarlyPacket { arrival, pn_offset, mut packet } in early {
                let arrival = Arrival { now, ..arrival };
                if self.is_open()
                    && let Err(dropped) =
                        self.on_packet(&arrival, PacketType::OneRtt, &mut packet, pn_offset, ctx)
                {
                    self.drop_packet(PacketType::OneRtt, dropped);
                }
            }
        }
    }

    fn drop_packet(&mut self, ty: PacketType, reason: PacketDropReason) {
        tracing::trace!(?ty, reason = reason.name(), "packet dropped");
        self.stats.dropped.count(reason);
    }

    /// Processes the packets of a datagram in order.
    fn on_packets(&mut self, arrival: &Arrival, datagram: &mut [u8], ctx: &mut Context<'_>) {
        let mut first_dcid = None;
        let mut at = 0;
        while at < datagram.len() && self.is_open() {
            let rest = &mut datagram[at..];
            let (ty, dcid, scid, pn_offset, end) = match parse_header(rest, LOCAL_LEN) {
                Ok(Header::Long { ty, dcid, scid, pn_offset, end, .. }) => {
                    (ty, dcid, Some(scid), pn_offset, end)
                }
                Ok(Header::Short { dcid, pn_offset }) => {
                    (PacketType::OneRtt, dcid, None, pn_offset, rest.len())
                }
                Ok(Header::UnknownVersion { .. }) | Err(_) => {
                    tracing::trace!(at, "packet dropped: unreadable header");
                    self.stats.dropped.count(PacketDropReason::Header);
                    return;
                }
            };
            // RFC 9000, section 12.2: packets with another destination ID "MUST be ignored".
            if *first_dcid.get_or_insert(dcid) != dcid {
                self.drop_packet(ty, PacketDropReason::Header);
                return;
            }
            if ty == PacketType::Initial && !self.takes_initial(arrival, scid) {
                self.drop_packet(ty, PacketDropReason::Header);
                at += end;
                continue;
            }
            let packet = &mut rest[..end];
            if let Err(dropped) = self.on_packet(arrival, ty, packet, pn_offset, ctx) {
                self.drop_packet(ty, dropped);
                // The tail of an undecryptable 1-RTT packet may be a stateless reset token.
                if ty == PacketType::OneRtt && dropped != PacketDropReason::Duplicate {
                    self.look_for_reset(arrival.now, &datagram[at..]);
                }
            }
            at += end;
        }
    }

    /// Returns true if an Initial may be processed. RFC 9000, section 14.1: "A server MUST discard
    /// an Initial packet that is carried in a UDP datagram with a payload that is smaller than the
    /// smallest allowed maximum datagram size of 1200 bytes"; section 7.2: "if subsequent Initial
    /// packets include a different Source Connection ID, they MUST be discarded".
    fn takes_initial(&self, arrival: &Arrival, scid: Option<ConnectionId>) -> bool {
        let known = self.handshake.as_ref().map(|handshake| handshake.client_scid);
        arrival.datagram >= usize::from(BASE) && known == scid
    }

    fn look_for_reset(&mut self, now: Timestamp, packet: &[u8]) {
        if let Some(tail) = packet.last_chunk::<16>()
            && self.control.remote_ids.is_reset(tail)
        {
            self.enter_draining(now, CloseReason::StatelessReset);
        }
    }

    /// Looks for the peer's CONNECTION_CLOSE in the closing state, which ends our answers (RFC
    /// 9000, section 10.2.2). Only 1-RTT packets are examined; otherwise the time-out ends them.
    fn look_for_close(&mut self, datagram: &mut [u8]) {
        let Some(until) = self.life.closing_until() else { return };
        let Ok(Header::Short { pn_offset, .. }) = parse_header(datagram, LOCAL_LEN) else { return };
        let Some(keys) = &mut self.keys else { return };
        let opened =
            open_short(keys, &self.data.received, datagram, pn_offset, until, Duration::ZERO);
        if let Ok(opened) = opened {
            let closes = Frames::new(&datagram[opened.payload]).flatten().any(|frame| {
                matches!(frame, Frame::ConnectionClose { .. } | Frame::ApplicationClose { .. })
            });
            if closes {
                self.life.enter_draining(until);
            }
        }
    }

    /// Opens one packet and processes its frames.
    fn on_packet(
        &mut self,
        arrival: &Arrival,
        ty: PacketType,
        packet: &mut [u8],
        pn_offset: usize,
        ctx: &mut Context<'_>,
    ) -> Result<(), PacketDropReason> {
        let now = arrival.now;
        // RFC 9001, section 5.7: a server "MUST NOT process incoming 1-RTT protected packets
        // before the TLS handshake is complete" and "MAY" keep them.
        if ty == PacketType::OneRtt
            && self.keys.is_some()
            && let Some(handshake) = &mut self.handshake
        {
            return handshake.keep(arrival, pn_offset, packet);
        }
        let Opened { first, number, duplicate, payload, key_updated } =
            match self.open_packet(now, ty, packet, pn_offset) {
                Ok(opened) => opened,
                Err(Unopened::Dropped(reason)) => return Err(reason),
                Err(Unopened::Fatal(error)) => {
                    self.fail(now, error);
                    return Ok(());
                }
            };
        if duplicate {
            return Err(PacketDropReason::Duplicate);
        }
        // RFC 9000, section 17.2: nonzero reserved bits, seen after both protections are removed,
        // are a PROTOCOL_VIOLATION.
        let reserved = if ty == PacketType::OneRtt { RESERVED_SHORT } else { RESERVED_LONG };
        if first & reserved != 0 {
            self.fail(now, violation(0, "reserved header bits are not zero"));
            return Ok(());
        }
        if key_updated {
            self.stats.key_updates += 1;
            tracing::debug!(updates = self.stats.key_updates, "key update of the client");
            self.observe(now, &observer::Event::KeyUpdated);
        }
        let (space, size, payload) = (SpaceId::of(ty), packet.len(), &packet[payload]);
        self.observe(now, &observer::Event::PacketReceived { ty, number, size, payload });
        self.idle.on_received(now);
        if ty == PacketType::Handshake {
            self.on_handshake_packet();
        }
        match self.on_frames(arrival, ty, space, number, payload) {
            Ok(effects) => self.after_packet(arrival, ty, space, number, effects, ctx),
            Err(error) => self.fail(now, error),
        }
        Ok(())
    }

    /// Removes a packet's protection with the keys of its type.
    #[inline]
    fn open_packet(
        &mut self,
        now: Timestamp,
        ty: PacketType,
        packet: &mut [u8],
        pn_offset: usize,
    ) -> Result<Opened, Unopened> {
        let (retain, handshake) = (self.linger(), self.handshake.as_ref());
        let received = &self.data.received;
        let opened = match ty {
            PacketType::OneRtt => {
                let keys = self.keys.as_mut().ok_or(PacketDropReason::NoKeys)?;
                return open_short(keys, received, packet, pn_offset, now, retain);
            }
            PacketType::ZeroRtt => {
                let keys = handshake.and_then(|handshake| handshake.zero_rtt.as_ref());
                open_long(keys, received, packet, pn_offset)
            }
            PacketType::Initial | PacketType::Handshake => {
                let early = handshake.and_then(|handshake| handshake.early(SpaceId::of(ty)));
                open_early(early, packet, pn_offset)
            }
        };
        Ok(opened?)
    }

    fn on_frames(
        &mut self,
        arrival: &Arrival,
        ty: PacketType,
        space: SpaceId,
        number: u64,
        payload: &[u8],
    ) -> Result<Effects, TransportError> {
        let mut effects = Effects::default();
        let mut frames = Frames::new(payload);
        while let Some(frame) = frames.next() {
            let frame = frame?;
            let frame_type = frames.frame_type();
            if !frame.allowed_in(ty) {
                return Err(violation(frame_type, "frame not allowed in this packet"));
            }
            effects.eliciting |= frame.is_ack_eliciting();
            effects.non_probing |= !frame.is_probing();
            effects.crypto |= matches!(frame, Frame::Crypto { .. });
            self.on_frame(arrival, space, frame).map_err(|mut error| {
                if error.frame_type == 0 {
                    error.frame_type = frame_type;
                }
                error
            })?;
            if !self.is_open() {
                break;
            }
        }
        if ty == PacketType::ZeroRtt && self.data.received.largest().is_none_or(|l| l < number) {
            self.stats.early_data = true;
        }
        Ok(effects)
    }

    fn on_frame(
        &mut self,
        arrival: &Arrival,
        space: SpaceId,
        frame: Frame<'_>,
    ) -> Result<(), TransportError> {
        let now = arrival.now;
        match frame {
            Frame::Padding | Frame::Ping => {}
            Frame::Ack(ack) => self.on_ack_frame(now, space, &ack)?,
            Frame::Stream { id, offset, data, fin } => {
                let srtt = self.path.rtt.smoothed();
                self.streams.on_stream(id, offset, data, fin, now, srtt)?;
            }
            Frame::Crypto { offset, data } => {
                if let Some(space) = self.space_mut(space) {
                    space.crypto_receive.on_frame(offset, data)?;
                }
            }
            Frame::ResetStream { id, error_code, final_size } => {
                self.streams.on_reset_stream(id, error_code, final_size)?;
            }
            Frame::StopSending { id, error_code } => {
                self.streams.on_stop_sending(id, error_code)?;
            }
            Frame::MaxData(max) => self.streams.on_max_data(max),
            Frame::MaxStreamData { id, max } => self.streams.on_max_stream_data(id, max)?,
            Frame::MaxStreams { direction, max } => self.streams.on_max_streams(direction, max),
            Frame::DataBlocked(_) | Frame::StreamsBlocked { .. } => {}
            Frame::StreamDataBlocked { id, .. } => self.streams.on_stream_data_blocked(id)?,
            Frame::NewConnectionId { sequence, retire_prior_to, id, reset_token } => {
                let new = RemoteId { sequence, id, reset_token: Some(reset_token) };
                self.control.remote_ids.on_new(new, retire_prior_to)?;
            }
            Frame::RetireConnectionId { sequence } => {
                let limit = self.peer.active_connection_id_limit;
                self.control.local_ids.on_retire(sequence, arrival.local_id, limit)?;
            }
            Frame::PathChallenge(data) => {
                // Answered on the receiving path (RFC 9000, section 8.2.2), with at most three
                // times the received bytes, even if the address is validated.
                self.owe_off_path(OffPath {
                    addresses: arrival.addresses,
                    frame: OffPathFrame::Response(data),
                    limit: 3 * arrival.datagram as u64,
                });
            }
            Frame::PathResponse(data) => self.on_path_response(now, data),
            Frame::ConnectionClose { error_code, reason, .. } => {
                let reason = CloseReason::PeerTransport { code: error_code, reason: text(reason) };
                self.enter_draining(now, reason);
            }
            Frame::ApplicationClose { error_code, reason } => {
                let reason =
                    CloseReason::PeerApplication { code: error_code, reason: text(reason) };
                self.enter_draining(now, reason);
            }
            // RFC 9000, sections 19.7 and 19.20: only servers send these.
            Frame::NewToken { .. } => return Err(violation(0, "NEW_TOKEN from a client")),
            Frame::HandshakeDone => return Err(violation(0, "HANDSHAKE_DONE from a client")),
        }
        Ok(())
    }

    fn after_packet(
        &mut self,
        arrival: &Arrival,
        ty: PacketType,
        space: SpaceId,
        number: u64,
        effects: Effects,
        ctx: &mut Context<'_>,
    ) {
        let now = arrival.now;
        if !self.is_open() {
            return;
        }
        // RFC 9000, section 13.2.1: Initial and Handshake packets are acknowledged immediately.
        let (every, delay) = match space {
            SpaceId::Data => (self.config.ack_every, self.config.max_ack_delay),
            _ => (1, Duration::ZERO),
        };
        let newest = self
            .space(space)
            .is_some_and(|s| s.received.largest().is_none_or(|largest| number > largest));
        if let Some(space) = self.space_mut(space) {
            space.received.on_packet(now, number, effects.eliciting, arrival.ecn, every, delay);
        }
        // RFC 9000, section 13.2.1: ack-eliciting packets "MUST be acknowledged", and every few
        // packets of ours elicit one. A peer that sends ack-eliciting packets but acknowledges none
        // would fill the ledger.
        if self.space(space).is_some_and(|s| s.ledger.unanswered > MAX_UNANSWERED) {
            self.fail(now, violation(0, "acknowledges nothing"));
            return;
        }
        if effects.crypto {
            self.advance_handshake(now);
        }
        if ty == PacketType::OneRtt && self.is_open() {
            self.after_one_rtt(arrival, newest && effects.non_probing, ctx);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_REASON)]).into_owned()
}
