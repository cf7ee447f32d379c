//! Admission of clients (RFC 9000, sections 5.2.2 and 8.1): checks the token of a first Initial,
//! sends Retry, refuses clients, and assigns slots to connections.
//!
//! With [`RetryPolicy::Above`] the number of handshakes with unvalidated addresses is limited: from
//! `limit` new ones per second, or 8 × `limit` unfinished ones, clients get a Retry. The module
//! `connection::spaces` states how much each may hold.

use super::{Endpoint, Handle, MAX_SLOT, Outcome};
use crate::config::RetryPolicy;
use crate::connection::{Accepted, Connection, Context, Proof, TokenUse};
use crate::crypto::{
    CidPlain, InvalidToken, RetryToken, TAG_LEN, Token, initial_keys, open_token, retry_tag,
};
use crate::datagram::Datagram;
use crate::drops::DropReason;
use crate::ids::{LOCAL_LEN, LocalIds};
use crate::mtud::BASE;
use crate::path::Addresses;
use crate::wire::{
    ConnectionId, Header, PacketType, RETRY_INTEGRITY_TAG_LEN, TransportError,
    TransportErrorCode as Code, Writer, parse_header, put_connection_close, put_long_header,
    put_packet_number, put_retry,
};
use rand_chacha::rand_core::Rng;
use units::Timestamp;

/// Maximum unfinished handshakes without proof of an address before [`RetryPolicy::Above`] asks for
/// one, as a multiple of the handshakes per second.
const UNFINISHED_PER_BEGUN: usize = 8;

/// Source of a first Initial, and the IDs in its header.
#[derive(Clone, Copy)]
struct FirstInitial {
    addresses: Addresses,
    dcid: ConnectionId,
    scid: ConnectionId,
}

/// Decision about a client.
enum AdmissionVerdict {
    Admit(Proof),
    Retry,
    Refuse(TransportError),
}

impl Endpoint {
    /// A client's first Initial.
    pub(super) fn accept(
        &mut self,
        now: Timestamp,
        datagram: Datagram<&mut [u8]>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let addresses = datagram.addresses;
        if datagram.payload.len() < usize::from(BASE) {
            return Outcome::Dropped(DropReason::SmallInitial);
        }
        let Ok(Header::Long { dcid, scid, token, pn_offset, end, .. }) =
            parse_header(datagram.payload, LOCAL_LEN)
        else {
            return Outcome::Dropped(DropReason::UnknownConnection);
        };
        if dcid.len() < 8 {
            return Outcome::Dropped(DropReason::ShortConnectionId);
        }
        let initial = FirstInitial { addresses, dcid, scid };
        let unix_now = self.unix(now);
        let wants_proof = self.wants_proof(now);
        let token = (!token.is_empty()).then(|| {
            let lifetime = self.config.token_lifetime.as_secs();
            let (keys, remote) = (&self.config.keys, addresses.remote);
            open_token(keys, token, remote, dcid.as_slice(), unix_now, lifetime)
        });
        // Under a flood, the cheapest answer comes first. A foreign token changes nothing.
        if wants_proof && matches!(token, None | Some(Token::Invalid(InvalidToken::NotOurs))) {
            return self.retry(&initial, unix_now, reply);
        }
        // State is made, and a token used up, only by packets that authenticate: a copy,
        // so that the connection can open it again.
        let mut copy = datagram.payload[..end].to_vec();
        if !opens(&dcid, &mut copy, pn_offset) {
            return Outcome::Dropped(DropReason::Decrypt);
        }
        match self.judge_token(token, wants_proof, unix_now) {
            AdmissionVerdict::Retry => self.retry(&initial, unix_now, reply),
            AdmissionVerdict::Refuse(error) => self.refuse(&initial, error, reply),
            AdmissionVerdict::Admit(proof) => {
                let slot = self.seat(now, &initial, proof);
                self.deliver(now, datagram, slot, 0);
                Outcome::Accepted(Handle(slot))
            }
        }
    }

    /// Returns true if clients must prove their addresses now.
    fn wants_proof(&mut self, now: Timestamp) -> bool {
        match self.config.retry {
            RetryPolicy::Never => false,
            RetryPolicy::Always => true,
            RetryPolicy::Above(limit) => {
                *self.unproven.at(now) >= limit
                    || self.first_ids.unfinished() >= limit as usize * UNFINISHED_PER_BEGUN
            }
        }
    }

    /// Decides about a client by its token.
    fn judge_token(
        &mut self,
        token: Option<Token>,
        wants_proof: bool,
        unix_now: u64,
    ) -> AdmissionVerdict {
        let invalid = || Proof { token_use: TokenUse::Invalid, ..Proof::default() };
        let proof = match token {
            None => Proof::default(),
            Some(Token::Retry(retry)) => match ConnectionId::new(&retry.original_dcid) {
                Some(id) => {
                    Proof { token_use: TokenUse::Retry, original_dcid: Some(id), own: None }
                }
                None => invalid(),
            },
            Some(Token::Address { token, id }) => {
                // RFC 9000, section 8.1.4: a reused token proves nothing. The connection continues
                // as if without one.
                if self.token_log.first_use(id, token.issued, unix_now) {
                    let own = Some(token.own);
                    Proof { token_use: TokenUse::NewToken, original_dcid: None, own }
                } else {
                    invalid()
                }
            }
            Some(Token::Invalid(InvalidToken::ExpiredRetry)) => {
                self.stats.invalid_tokens += 1;
                // RFC 9000, section 8.1.2: SHOULD be answered with INVALID_TOKEN.
                let reason = "invalid Retry token";
                return AdmissionVerdict::Refuse(TransportError::new(
                    Code::INVALID_TOKEN,
                    0,
                    reason,
                ));
            }
            Some(Token::Invalid(_)) => invalid(),
        };
        self.stats.invalid_tokens += u64::from(proof.token_use == TokenUse::Invalid);
        if self.len() >= self.config.max_connections {
            self.stats.refused += 1;
            let reason = "too many connections";
            return AdmissionVerdict::Refuse(TransportError::new(
                Code::CONNECTION_REFUSED,
                0,
                reason,
            ));
        }
        if wants_proof && !proof.is_valid() {
            AdmissionVerdict::Retry
        } else {
            AdmissionVerdict::Admit(proof)
        }
    }

    /// Makes a connection. Returns its slot.
    fn seat(&mut self, now: Timestamp, initial: &FirstInitial, proof: Proof) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() as u32 - 1
        });
        *self.unproven.at(now) += u32::from(!proof.is_valid());
        let ours = self.new_id(slot);
        let accepted = Accepted {
            config: &self.config.transport,
            tls: &self.config.tls,
            addresses: initial.addresses,
            dcid: initial.dcid,
            scid: initial.scid,
            proof,
            local_ids: LocalIds::new(ours),
            seed: self.rng.next_u64(),
        };
        let Self { rng, ecn, frames, .. } = self;
        let mut ctx = Context { rng, keys: &self.config.keys, ecn, frames };
        let connection = Connection::accept(now, accepted, &mut ctx);
        self.connections[slot as usize] = Some(Box::new(connection));
        self.first_ids.insert(initial.dcid, ours);
        self.stats.accepted += 1;
        slot
    }

    /// The first ID of ours for a slot.
    fn new_id(&mut self, slot: u32) -> CidPlain {
        CidPlain {
            server: self.config.server_id,
            core: self.config.core,
            sequence: 0,
            slot,
            nonce: self.rng.next_u64(),
        }
    }

    /// Sends a Retry, so that the client proves its address with a token (RFC 9000, section 8.1.2).
    fn retry(&mut self, initial: &FirstInitial, unix_now: u64, reply: &mut Vec<u8>) -> Outcome {
        let FirstInitial { addresses, dcid, scid } = initial;
        // An ID without a slot: the next Initial is routed as a first one.
        let plain = self.new_id(MAX_SLOT);
        let Some(new_scid) = ConnectionId::new(&self.config.keys.cids().encode(&plain)) else {
            return Outcome::Dropped(DropReason::Full);
        };
        let token = RetryToken { original_dcid: dcid.as_slice().to_vec(), issued: unix_now };
        let token =
            token.seal(&self.config.keys, addresses.remote, new_scid.as_slice(), &mut self.rng);
        reply.clear();
        put_retry(reply, scid, &new_scid, &token, self.rng.next_u32() as u8);
        let tag: [u8; RETRY_INTEGRITY_TAG_LEN] = retry_tag(dcid.as_slice(), reply);
        reply.extend_from_slice(&tag);
        self.stats.retries += 1;
        Outcome::Reply(reply.len())
    }

    /// CONNECTION_CLOSE in an Initial packet, without state.
    fn refuse(
        &mut self,
        initial: &FirstInitial,
        error: TransportError,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let FirstInitial { dcid, scid, .. } = initial;
        let keys = initial_keys(dcid.as_slice()).local;
        reply.clear();
        reply.resize(200 + 2 * LOCAL_LEN, 0);
        let mut w = Writer::new(reply);
        let length_at = put_long_header(&mut w, PacketType::Initial, scid, dcid, &[], 1);
        let pn_offset = w.position();
        put_packet_number(&mut w, 0, 1);
        let payload_at = w.position();
        put_connection_close(&mut w, &error);
        let size = w.position() + TAG_LEN;
        w.set_varint2(length_at, (size - pn_offset) as u64);
        reply.truncate(size);
        let (header, payload) = reply.split_at_mut(payload_at);
        keys.packet.seal(0, header, payload);
        keys.header.protect(reply, pn_offset, 1);
        Outcome::Reply(size)
    }
}

/// Returns true if a first Initial authenticates.
fn opens(dcid: &ConnectionId, packet: &mut [u8], pn_offset: usize) -> bool {
    let keys = initial_keys(dcid.as_slice()).remote;
    let Ok((_, number, len)) = keys.header.unprotect(packet, pn_offset) else { return false };
    let (header, payload) = packet.split_at_mut(pn_offset + len);
    // The number of a first packet is small: its truncated form is the whole.
    payload.len() >= TAG_LEN && keys.packet.open(number, header, payload).is_ok()
}
