//! The endpoint: finds the connection of a datagram, accepts new ones, and answers what belongs to
//! none: Version Negotiation, Retry, refusals and stateless resets (RFC 9000, sections 5.2, 6, 8.1
//! and 10.3).

use crate::config::{EndpointConfig, RetryPolicy};
use crate::connection::{Accepted, Connection, Context, Event, TokenUse, Transmit};
use crate::crypto::{
    AddressToken, CidPlain, InvalidToken, RetryToken, SingleUseLog, TAG_LEN, Token, initial_keys,
    open_token, retry_tag,
};
use crate::ids::{LOCAL_LEN, LocalIds};
use crate::mtud::BASE;
use crate::path::Addresses;
use crate::wire::{
    ConnectionId, Header, HeaderError, LongType, RETRY_INTEGRITY_TAG_LEN, TransportError,
    TransportErrorCode as Code, VERSION_1, Writer, parse_header, put_connection_close,
    put_long_header, put_packet_number, put_retry, version_negotiation,
};
use core::time::Duration;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{HashMap, VecDeque};
use units::{Ecn, Timestamp};

/// Stateless resets, and as many Version Negotiation packets, sent per second at most: they answer
/// unauthenticated datagrams.
const STATELESS_PER_SECOND: u32 = 1_000;
/// How long a client's own first destination ID leads to its connection when the handshake is over: a
/// late copy of its first packet would open another connection.
const FIRST_ID_LINGERS: Duration = Duration::from_secs(3);
/// Handshakes without proof of an address that may be unfinished before [`RetryPolicy::Above`] asks for
/// one, as a multiple of those that may begin in a second.
const UNFINISHED_PER_BEGUN: usize = 8;
/// Smallest and usual size of a stateless reset (RFC 9000, section 10.3).
const MIN_RESET: usize = 21;
const RESET: usize = 41;
/// Uses of NEW_TOKEN tokens that are remembered.
const TOKEN_LOG: usize = 65_536;

/// Names a connection of an endpoint; it can name another one after the connection was removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(pub u32);

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was for this connection, which now wants to be served.
    Connection(Handle),
    /// It opened this connection.
    Accepted(Handle),
    /// An answer of this many bytes stands in the reply buffer, for the datagram's sender.
    Reply(usize),
    /// It belongs to another core of this server.
    Foreign(u8),
    /// It was dropped.
    Dropped(DropReason),
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DropReason {
    /// Its header could not be read.
    Header(HeaderError),
    /// It names no connection, and is no first Initial.
    UnknownConnection,
    /// A first Initial in less than 1,200 bytes (RFC 9000, section 14.1).
    SmallInitial,
    /// A first Initial whose destination ID has less than 8 bytes (RFC 9000, section 7.2).
    ShortConnectionId,
    /// A first Initial that did not authenticate.
    Decrypt,
    /// No place for another connection.
    Full,
    /// The limit on answers without state was reached.
    RateLimited,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointStats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because the endpoint was full.
    pub refused: u64,
    /// Retry packets sent.
    pub retries: u64,
    /// Version Negotiation packets sent.
    pub version_negotiations: u64,
    /// Stateless resets sent.
    pub resets: u64,
    /// First Initials with a token that proved nothing.
    pub invalid_tokens: u64,
    /// Datagrams dropped: headers, unknown, small, short IDs, not authentic, full, rate-limited.
    pub dropped: [u64; 7],
}

impl EndpointStats {
    /// Adds the counters of another endpoint.
    pub fn add(&mut self, other: &Self) {
        let Self {
            accepted,
            refused,
            retries,
            version_negotiations,
            resets,
            invalid_tokens,
            dropped,
        } = self;
        *accepted += other.accepted;
        *refused += other.refused;
        *retries += other.retries;
        *version_negotiations += other.version_negotiations;
        *resets += other.resets;
        *invalid_tokens += other.invalid_tokens;
        dropped.iter_mut().zip(other.dropped).for_each(|(sum, more)| *sum += more);
    }
}

/// A client's own first destination ID.
#[derive(Clone, Copy)]
struct FirstId {
    id: ConnectionId,
    /// The handshake is under way.
    is_early: bool,
}

/// How often something happened in the present second.
#[derive(Clone, Copy, Default)]
struct PerSecond {
    second: u64,
    count: u32,
}

impl PerSecond {
    /// The count of the second of `now`.
    fn at(&mut self, now: Timestamp) -> &mut u32 {
        let second = now.as_nanos() / 1_000_000_000;
        if self.second != second {
            *self = Self { second, count: 0 };
        }
        &mut self.count
    }

    /// Counts once more, up to `limit`. Returns whether there was room.
    fn take(&mut self, now: Timestamp, limit: u32) -> bool {
        let count = self.at(now);
        let has_room = *count < limit;
        *count += u32::from(has_room);
        has_room
    }
}

/// All connections of one socket loop.
pub struct Endpoint {
    config: EndpointConfig,
    rng: ChaCha12Rng,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    /// By the clients' own first destination IDs, until some time after the handshake.
    first_ids: HashMap<ConnectionId, u32>,
    /// Which of those belongs to which place, to remove it, and whether the handshake goes on.
    places_of_ids: HashMap<u32, FirstId>,
    /// IDs of finished handshakes, by the time to forget them.
    lingering_ids: VecDeque<(Timestamp, u32, ConnectionId)>,
    /// Handshakes that are not finished.
    unfinished: usize,
    /// Handshakes without proof of the client's address that began this second.
    unproven: PerSecond,
    token_log: SingleUseLog,
    resets: PerSecond,
    negotiations: PerSecond,
    stats: EndpointStats,
}

impl Endpoint {
    /// An endpoint without connections. `seed` must be secret and unique outside of a testbed.
    pub fn new(config: EndpointConfig, seed: [u8; 32]) -> Self {
        let lifetime = config.token_lifetime.as_secs();
        Self {
            token_log: SingleUseLog::new(config.unix_origin, lifetime, TOKEN_LOG),
            rng: ChaCha12Rng::from_seed(seed),
            connections: Vec::new(),
            free: Vec::new(),
            first_ids: HashMap::new(),
            places_of_ids: HashMap::new(),
            lingering_ids: VecDeque::new(),
            unfinished: 0,
            unproven: PerSecond::default(),
            resets: PerSecond::default(),
            negotiations: PerSecond::default(),
            stats: EndpointStats::default(),
            config,
        }
    }

    /// New connections get these settings; running ones keep theirs.
    pub fn set_config(&mut self, config: EndpointConfig) {
        self.config = config;
    }

    /// Counters.
    pub fn stats(&self) -> &EndpointStats {
        &self.stats
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The connection of a handle.
    pub fn connection(&mut self, handle: Handle) -> Option<&mut Connection> {
        self.connections.get_mut(handle.0 as usize)?.as_deref_mut()
    }

    /// Handles of all connections.
    pub fn handles(&self) -> impl Iterator<Item = Handle> + use<'_> {
        let places = self.connections.iter().enumerate();
        places.filter(|(_, place)| place.is_some()).map(|(index, _)| Handle(index as u32))
    }

    fn unix(&self, now: Timestamp) -> u64 {
        self.config.unix_origin + now.as_nanos() / 1_000_000_000
    }

    /// Takes a datagram. It is decrypted in place; an answer without state goes to `reply`.
    pub fn handle_datagram(
        &mut self,
        now: Timestamp,
        addresses: Addresses,
        ecn: Ecn,
        datagram: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let outcome = self.route(now, addresses, ecn, datagram, reply);
        if let Outcome::Dropped(reason) = outcome {
            let place = match reason {
                DropReason::Header(_) => 0,
                DropReason::UnknownConnection => 1,
                DropReason::SmallInitial => 2,
                DropReason::ShortConnectionId => 3,
                DropReason::Decrypt => 4,
                DropReason::Full => 5,
                DropReason::RateLimited => 6,
            };
            self.stats.dropped[place] += 1;
        }
        outcome
    }

    fn route(
        &mut self,
        now: Timestamp,
        addresses: Addresses,
        ecn: Ecn,
        datagram: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let header = match parse_header(datagram, LOCAL_LEN) {
            Ok(header) => header,
            Err(error) => return Outcome::Dropped(DropReason::Header(error)),
        };
        let (dcid, long) = match header {
            Header::Short { dcid, .. } => (dcid, None),
            Header::Long { ty, dcid, .. } => (dcid, Some(ty)),
            Header::UnknownVersion { dcid, scid, .. } => {
                // RFC 9000, section 6.1: only for datagrams that could be a first Initial.
                if datagram.len() < usize::from(BASE) {
                    return Outcome::Dropped(DropReason::SmallInitial);
                }
                if !self.negotiations.take(now, STATELESS_PER_SECOND) {
                    return Outcome::Dropped(DropReason::RateLimited);
                }
                reply.clear();
                let random = self.rng.next_u32();
                let greased = random & 0xf0f0_f0f0 | 0x0a0a_0a0a;
                version_negotiation(reply, random as u8, scid, dcid, &[VERSION_1, greased]);
                self.stats.version_negotiations += 1;
                return Outcome::Reply(reply.len());
            }
        };
        if let Some((index, local_id)) = self.find(&dcid) {
            self.deliver(now, index, addresses, ecn, local_id, datagram);
            return Outcome::Connection(Handle(index));
        }
        if let Some(core) = self.other_core(&dcid) {
            return Outcome::Foreign(core);
        }
        match long {
            None => self.answer_unknown(now, &dcid, datagram.len(), reply),
            Some(LongType::Initial) => self.accept(now, addresses, ecn, datagram, reply),
            Some(_) => Outcome::Dropped(DropReason::UnknownConnection),
        }
    }

    /// The place of a connection ID, and its sequence number.
    fn find(&self, dcid: &ConnectionId) -> Option<(u32, u64)> {
        if let Ok(id) = <&[u8; LOCAL_LEN]>::try_from(dcid.as_slice()) {
            let plain = self.config.keys.cids().decode(id);
            if let Some(Some(connection)) = self.connections.get(plain.slot as usize)
                && let Some(sequence) = connection.accepts(&plain)
            {
                return Some((plain.slot, sequence));
            }
        }
        self.first_ids.get(dcid).map(|&index| (index, 0))
    }

    fn deliver(
        &mut self,
        now: Timestamp,
        index: u32,
        addresses: Addresses,
        ecn: Ecn,
        local_id: u64,
        datagram: &mut [u8],
    ) {
        let Self { connections, rng, config, .. } = self;
        let Some(Some(connection)) = connections.get_mut(index as usize) else { return };
        let mut ctx = Context { rng, keys: &config.keys };
        connection.on_datagram(now, addresses, ecn, local_id, datagram, &mut ctx);
        if !connection.is_early() {
            self.on_handshake_over(now, index);
        }
    }

    /// The handshake in this place is finished: the client's own first ID is forgotten some time later.
    fn on_handshake_over(&mut self, now: Timestamp, index: u32) {
        if let Some(first) = self.places_of_ids.get_mut(&index)
            && core::mem::take(&mut first.is_early)
        {
            self.unfinished -= 1;
            self.lingering_ids.push_back((now + FIRST_ID_LINGERS, index, first.id));
        }
    }

    fn forget_first_id(&mut self, index: u32) {
        if let Some(FirstId { id, is_early }) = self.places_of_ids.remove(&index) {
            self.first_ids.remove(&id);
            self.unfinished -= usize::from(is_early);
        }
    }

    /// Forgets the first IDs whose time is over.
    fn forget_old_ids(&mut self, now: Timestamp) {
        while let Some(&(_, index, id)) = self.lingering_ids.front().filter(|old| old.0 <= now) {
            self.lingering_ids.pop_front();
            // The place may have another tenant.
            if self.places_of_ids.get(&index).is_some_and(|first| first.id == id) {
                self.forget_first_id(index);
            }
        }
    }

    /// The other core of this server that a connection ID of ours names, in a packet of any kind: a
    /// client's address may change during the handshake as well.
    fn other_core(&self, dcid: &ConnectionId) -> Option<u8> {
        let id = <&[u8; LOCAL_LEN]>::try_from(dcid.as_slice()).ok()?;
        let plain = self.config.keys.cids().decode(id);
        let elsewhere = plain.server == self.config.server_id
            && plain.core != self.config.core
            && plain.slot < MAX_SLOT;
        elsewhere.then_some(plain.core)
    }

    /// A 1-RTT packet that names no connection of this endpoint.
    fn answer_unknown(
        &mut self,
        now: Timestamp,
        dcid: &ConnectionId,
        size: usize,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let Ok(id) = <&[u8; LOCAL_LEN]>::try_from(dcid.as_slice()) else {
            return Outcome::Dropped(DropReason::UnknownConnection);
        };
        let plain = self.config.keys.cids().decode(id);
        // RFC 9000, section 21.11: no stateless reset if "a connection with the corresponding
        // connection ID could be active on any endpoint that uses the same static key".
        if plain.server != self.config.server_id {
            return Outcome::Dropped(DropReason::UnknownConnection);
        }
        // RFC 9000, section 10.3: a stateless reset is smaller than what it answers, so that two
        // endpoints cannot answer each other for ever.
        if size <= MIN_RESET {
            return Outcome::Dropped(DropReason::UnknownConnection);
        }
        if !self.resets.take(now, STATELESS_PER_SECOND) {
            return Outcome::Dropped(DropReason::RateLimited);
        }
        let len = RESET.min(size - 1);
        reply.clear();
        reply.resize(len, 0);
        self.rng.fill_bytes(reply);
        reply[0] = reply[0] & 0x3f | 0x40;
        reply[len - 16..].copy_from_slice(&self.config.keys.cids().reset_token(dcid.as_slice()));
        self.stats.resets += 1;
        Outcome::Reply(len)
    }

    /// A client's first Initial.
    fn accept(
        &mut self,
        now: Timestamp,
        addresses: Addresses,
        ecn: Ecn,
        datagram: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Outcome {
        if datagram.len() < usize::from(BASE) {
            return Outcome::Dropped(DropReason::SmallInitial);
        }
        let Ok(Header::Long { dcid, scid, token, pn_offset, end, .. }) =
            parse_header(datagram, LOCAL_LEN)
        else {
            return Outcome::Dropped(DropReason::UnknownConnection);
        };
        if dcid.len() < 8 {
            return Outcome::Dropped(DropReason::ShortConnectionId);
        }
        let unix_now = self.unix(now);
        let remote = addresses.remote;
        let retry = match self.config.retry {
            RetryPolicy::Never => false,
            RetryPolicy::Always => true,
            RetryPolicy::Above(limit) => {
                *self.unproven.at(now) >= limit
                    || self.unfinished >= limit as usize * UNFINISHED_PER_BEGUN
            }
        };
        let lifetime = self.config.token_lifetime.as_secs();
        let token = (!token.is_empty()).then(|| {
            open_token(&self.config.keys, token, remote, dcid.as_slice(), unix_now, lifetime)
        });
        // Under a flood, the cheapest answer comes first; a token that is none changes nothing.
        if retry && matches!(token, None | Some(Token::Invalid(InvalidToken::NotOurs))) {
            return self.retry(remote, &dcid, &scid, unix_now, reply);
        }
        // State is made, and a token used up, only by packets that authenticate: a copy,
        // so that the connection can open it again.
        let mut copy = datagram[..end].to_vec();
        if !opens(&dcid, &mut copy, pn_offset) {
            return Outcome::Dropped(DropReason::Decrypt);
        }
        let mut original_dcid = None;
        let mut token_use = TokenUse::None;
        let mut own = None;
        if let Some(token) = token {
            match token {
                Token::Retry(retry) => match ConnectionId::new(&retry.original_dcid) {
                    Some(id) => {
                        original_dcid = Some(id);
                        token_use = TokenUse::Retry;
                    }
                    None => token_use = TokenUse::Invalid,
                },
                Token::Address { token: address, id } => {
                    // RFC 9000, section 8.1.4: a token used before proves nothing; the connection
                    // goes on as one without a token.
                    let fresh = self.token_log.first_use(id, address.issued, unix_now);
                    token_use = if fresh { TokenUse::NewToken } else { TokenUse::Invalid };
                    own = fresh.then_some(address.own);
                }
                Token::Invalid(InvalidToken::ExpiredRetry) => {
                    self.stats.invalid_tokens += 1;
                    // RFC 9000, section 8.1.2: SHOULD be answered with INVALID_TOKEN.
                    let error = TransportError::new(Code::INVALID_TOKEN, 0, "invalid Retry token");
                    return self.refuse(&dcid, &scid, error, reply);
                }
                Token::Invalid(_) => token_use = TokenUse::Invalid,
            }
        }
        self.stats.invalid_tokens += u64::from(token_use == TokenUse::Invalid);
        let validated = matches!(token_use, TokenUse::Retry | TokenUse::NewToken);
        if self.len() >= self.config.max_connections {
            self.stats.refused += 1;
            let error = TransportError::new(Code::CONNECTION_REFUSED, 0, "too many connections");
            return self.refuse(&dcid, &scid, error, reply);
        }
        if retry && !validated {
            return self.retry(remote, &dcid, &scid, unix_now, reply);
        }

        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() as u32 - 1
        });
        let plain = CidPlain {
            server: self.config.server_id,
            core: self.config.core,
            sequence: 0,
            slot,
            nonce: self.rng.next_u64(),
        };
        let accepted = Accepted {
            config: &self.config.transport,
            tls: &self.config.tls,
            addresses,
            dcid,
            scid,
            original_dcid,
            token_use,
            token: own,
            local_ids: LocalIds::new(plain),
            seed: self.rng.next_u64(),
        };
        let mut ctx = Context { rng: &mut self.rng, keys: &self.config.keys };
        let connection = Connection::accept(now, accepted, &mut ctx);
        self.connections[slot as usize] = Some(Box::new(connection));
        self.forget_old_ids(now);
        self.first_ids.insert(dcid, slot);
        self.places_of_ids.insert(slot, FirstId { id: dcid, is_early: true });
        self.unfinished += 1;
        *self.unproven.at(now) += u32::from(!validated);
        self.stats.accepted += 1;
        self.deliver(now, slot, addresses, ecn, 0, datagram);
        Outcome::Accepted(Handle(slot))
    }

    fn retry(
        &mut self,
        remote: std::net::SocketAddr,
        dcid: &ConnectionId,
        scid: &ConnectionId,
        unix_now: u64,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        // An ID without a place: the next Initial is routed as a first one.
        let plain = CidPlain {
            server: self.config.server_id,
            core: self.config.core,
            sequence: 0,
            slot: MAX_SLOT,
            nonce: self.rng.next_u64(),
        };
        let Some(new_scid) = ConnectionId::new(&self.config.keys.cids().encode(&plain)) else {
            return Outcome::Dropped(DropReason::Full);
        };
        let token = RetryToken { original_dcid: dcid.as_slice().to_vec(), issued: unix_now };
        let token = token.seal(&self.config.keys, remote, new_scid.as_slice(), &mut self.rng);
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
        dcid: &ConnectionId,
        scid: &ConnectionId,
        error: TransportError,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let keys = initial_keys(dcid.as_slice()).local;
        reply.clear();
        reply.resize(200 + 2 * LOCAL_LEN, 0);
        let mut w = Writer::new(reply);
        let length_at = put_long_header(&mut w, LongType::Initial, scid, dcid, &[], 1);
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

    /// Writes the connection's next datagrams; see [`Transmit`].
    pub fn poll_transmit(
        &mut self,
        handle: Handle,
        now: Timestamp,
        buf: &mut [u8],
        max_segments: usize,
    ) -> Option<Transmit> {
        let Self { connections, rng, config, .. } = self;
        let connection = connections.get_mut(handle.0 as usize)?.as_mut()?;
        let mut ctx = Context { rng, keys: &config.keys };
        connection.poll_transmit(now, buf, max_segments, &mut ctx)
    }

    /// Does what the connection's deadline was for.
    pub fn handle_timeout(&mut self, handle: Handle, now: Timestamp) {
        if let Some(connection) = self.connection(handle) {
            connection.on_timeout(now);
            let (is_early, is_alive) = (connection.is_early(), connection.is_alive());
            if !is_alive {
                self.forget_first_id(handle.0);
            } else if !is_early {
                self.on_handshake_over(now, handle.0);
            }
        }
    }

    /// The connection's next event.
    pub fn poll_event(&mut self, handle: Handle) -> Option<Event> {
        self.connection(handle)?.poll_event()
    }

    /// Sends the session ticket that the connection holds back, with `own` bytes sealed into it.
    pub fn release_ticket(&mut self, handle: Handle, now: Timestamp, own: &[u8]) {
        let unix_now = self.unix(now);
        let Self { connections, rng, config, .. } = self;
        if let Some(Some(connection)) = connections.get_mut(handle.0 as usize) {
            connection.release_ticket(&config.keys, own, unix_now, rng);
        }
    }

    /// Sends a NEW_TOKEN token for the client's address, with `own` bytes sealed into it. Does
    /// nothing while the address is not validated.
    pub fn send_new_token(&mut self, handle: Handle, now: Timestamp, own: &[u8]) {
        let unix_now = self.unix(now);
        let Self { connections, rng, config, .. } = self;
        if let Some(Some(connection)) = connections.get_mut(handle.0 as usize)
            && connection.is_validated()
        {
            let token = AddressToken { issued: unix_now, own: own.to_vec() };
            let ip = connection.addresses().remote.ip();
            connection.send_new_token(token.seal(&config.keys, ip, rng));
        }
    }

    /// Forgets a connection; to be called once it is drained.
    pub fn remove(&mut self, handle: Handle) {
        self.forget_first_id(handle.0);
        if let Some(place) = self.connections.get_mut(handle.0 as usize)
            && place.take().is_some()
        {
            self.free.push(handle.0);
        }
    }
}

/// Stands in connection IDs that belong to no place.
const MAX_SLOT: u32 = u32::MAX;

/// Whether a first Initial authenticates.
fn opens(dcid: &ConnectionId, packet: &mut [u8], pn_offset: usize) -> bool {
    let keys = initial_keys(dcid.as_slice()).remote;
    let Ok((_, number, len)) = keys.header.unprotect(packet, pn_offset) else { return false };
    let (header, payload) = packet.split_at_mut(pn_offset + len);
    // The number of a first packet is small: its truncated form is the whole.
    payload.len() >= TAG_LEN && keys.packet.open(number, header, payload).is_ok()
}
