//! The endpoint: routes datagrams to connections, and answers others with Version Negotiation and
//! stateless resets (RFC 9000, sections 5.2, 6 and 10.3). New connections are in `admission`.

mod admission;
mod first_ids;
mod per_second;

use crate::config::EndpointConfig;
use crate::connection::{Connection, Context, Event, Transmit};
use crate::crypto::{AddressToken, SingleUseLog};
use crate::datagram::Datagram;
use crate::drops::{Counts, DropReason};
use crate::ecn::Networks;
use crate::ids::LOCAL_LEN;
use crate::ledger::SentFrame;
use crate::mtud::BASE;
use crate::wire::{ConnectionId, Header, PacketType, VERSION_1, parse_header, version_negotiation};
use first_ids::FirstIds;
use per_second::PerSecond;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use units::Timestamp;

/// Maximum stateless resets, and Version Negotiation packets, per second. They answer
/// unauthenticated datagrams.
const STATELESS_PER_SECOND: u32 = 1_000;
/// Smallest and usual size of a stateless reset (RFC 9000, section 10.3).
const MIN_RESET: usize = 21;
const RESET: usize = 41;
/// Maximum number of remembered NEW_TOKEN uses.
const TOKEN_LOG: usize = 65_536;
/// Slot number in connection IDs without a slot.
const MAX_SLOT: u32 = u32::MAX;

/// Identifies a connection of an endpoint. Reused after the connection is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(pub u32);

/// Outcome of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Belonged to this connection, which now needs service.
    Connection(Handle),
    /// Opened this connection.
    Accepted(Handle),
    /// The reply buffer has an answer of this many bytes for the datagram's sender.
    Reply(usize),
    /// Belongs to another core of this server.
    Foreign(u8),
    /// Was dropped.
    Dropped(DropReason),
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
    /// First Initials with an invalid token.
    pub invalid_tokens: u64,
    /// Paths that dropped ECN-marked packets, or marked everything CE.
    pub ecn_failed: u64,
    /// Datagrams dropped.
    pub dropped: Counts<DropReason, { DropReason::ALL.len() }>,
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
            ecn_failed,
            dropped,
        } = self;
        *accepted += other.accepted;
        *refused += other.refused;
        *retries += other.retries;
        *version_negotiations += other.version_negotiations;
        *resets += other.resets;
        *invalid_tokens += other.invalid_tokens;
        *ecn_failed += other.ecn_failed;
        dropped.add(&other.dropped);
    }
}

/// All connections of one socket loop. The loop supplies datagrams and the time:
///
/// ```
/// use std::net::SocketAddr;
///
/// use mendcast_quic::{Addresses, Datagram, Endpoint, Outcome};
/// use units::{Ecn, Timestamp};
///
/// fn on_datagram(endpoint: &mut Endpoint, now: Timestamp, from: SocketAddr, payload: &mut [u8]) {
///     let (mut reply, mut batch) = (Vec::new(), vec![0; 65_507]);
///     let datagram = Datagram { addresses: Addresses::of(from), ecn: Ecn::NotEct, payload };
///     match endpoint.handle_datagram(now, datagram, &mut reply) {
///         Outcome::Connection(handle) | Outcome::Accepted(handle) => {
///             while let Some(event) = endpoint.poll_event(handle) {
///                 println!("{event:?}");
///             }
///             while let Some(sent) = endpoint.poll_transmit(handle, now, &mut batch, 10) {
///                 println!("{} bytes for {}", sent.len, sent.addresses.remote);
///             }
///         }
///         Outcome::Reply(len) => println!("{len} bytes of {reply:?} go back"),
///         Outcome::Foreign(_) | Outcome::Dropped(_) => {}
///     }
/// }
/// ```
///
/// See `crates/http3/examples/serve_files.rs` for a whole server.
pub struct Endpoint {
    config: EndpointConfig,
    rng: ChaCha12Rng,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    first_ids: FirstIds,
    /// Handshakes without proof of the client's address that started this second.
    unproven: PerSecond,
    token_log: SingleUseLog,
    resets: PerSecond,
    negotiations: PerSecond,
    /// Networks where ECN failed.
    ecn: Networks,
    /// Memory for packets under construction.
    frames: Vec<SentFrame>,
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
            first_ids: FirstIds::default(),
            unproven: PerSecond::default(),
            resets: PerSecond::default(),
            negotiations: PerSecond::default(),
            ecn: Networks::default(),
            frames: Vec::new(),
            stats: EndpointStats::default(),
            config,
        }
    }

    /// New connections get these settings; running ones keep theirs.
    pub fn set_config(&mut self, config: EndpointConfig) {
        self.config = config;
    }

    /// Sets the Unix time of the clock's origin for tickets and tokens, in seconds, after the wall
    /// clock was set.
    pub fn set_unix_origin(&mut self, unix_origin: u64) {
        self.config.unix_origin = unix_origin;
    }

    /// Counters.
    pub fn stats(&self) -> &EndpointStats {
        &self.stats
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Returns true if there is no connection.
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

    /// Processes a datagram, decrypting it in place. A stateless answer goes to `reply`.
    pub fn handle_datagram(
        &mut self,
        now: Timestamp,
        datagram: Datagram<&mut [u8]>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let (remote, size) = (datagram.addresses.remote, datagram.payload.len());
        let outcome = self.route(now, datagram, reply);
        if let Outcome::Dropped(reason) = outcome {
            let reason_name = reason.name();
            tracing::trace!(%remote, size, reason = reason_name, "datagram dropped");
            self.stats.dropped.count(reason);
        }
        outcome
    }

    fn route(
        &mut self,
        now: Timestamp,
        datagram: Datagram<&mut [u8]>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        self.first_ids.expire(now);
        let size = datagram.payload.len();
        let Ok(header) = parse_header(datagram.payload, LOCAL_LEN) else {
            return Outcome::Dropped(DropReason::Header);
        };
        let (dcid, ty) = match header {
            Header::Short { dcid, .. } => (dcid, PacketType::OneRtt),
            Header::Long { ty, dcid, .. } => (dcid, ty),
            Header::UnknownVersion { dcid, scid, .. } => {
                // RFC 9000, section 6.1: only for datagrams that could be a first Initial.
                if size < usize::from(BASE) {
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
            self.deliver(now, datagram, index, local_id);
            return Outcome::Connection(Handle(index));
        }
        if let Some(core) = self.other_core(&dcid) {
            return Outcome::Foreign(core);
        }
        match ty {
            PacketType::OneRtt => self.answer_unknown(now, &dcid, size, reply),
            PacketType::Initial => self.accept(now, datagram, reply),
            PacketType::ZeroRtt | PacketType::Handshake => {
                Outcome::Dropped(DropReason::UnknownConnection)
            }
        }
    }

    /// Returns the slot and sequence number of a connection ID.
    fn find(&self, dcid: &ConnectionId) -> Option<(u32, u64)> {
        if let Ok(id) = <&[u8; LOCAL_LEN]>::try_from(dcid.as_slice()) {
            let plain = self.config.keys.cids().decode(id);
            if let Some(Some(connection)) = self.connections.get(plain.slot as usize)
                && let Some(sequence) = connection.accepts(&plain)
            {
                return Some((plain.slot, sequence));
            }
        }
        // The slot may have another tenant now.
        let ours = self.first_ids.find(dcid)?;
        let connection = self.connections.get(ours.slot as usize)?.as_ref()?;
        connection.is_named(ours).then_some((ours.slot, 0))
    }

    fn deliver(
        &mut self,
        now: Timestamp,
        datagram: Datagram<&mut [u8]>,
        index: u32,
        local_id: u64,
    ) {
        let Self { connections, rng, config, ecn, stats, frames, .. } = self;
        let Some(Some(connection)) = connections.get_mut(index as usize) else { return };
        let mut ctx = Context { rng, keys: &config.keys, ecn, frames };
        connection.on_datagram(now, datagram, local_id, &mut ctx);
        if let Some(ip) = connection.take_ecn_failure() {
            ecn.remember(now, ip);
            stats.ecn_failed += 1;
        }
        if !connection.is_early() {
            self.first_ids.on_handshake_over(now, index);
        }
    }

    /// Returns the other core of this server that a connection ID of any packet type names. A
    /// client's address may change during the handshake too.
    fn other_core(&self, dcid: &ConnectionId) -> Option<u8> {
        let id = <&[u8; LOCAL_LEN]>::try_from(dcid.as_slice()).ok()?;
        let plain = self.config.keys.cids().decode(id);
        let elsewhere = plain.server == self.config.server_id
            && plain.core != self.config.core
            && usize::from(plain.core) < self.config.cores
            && plain.slot < MAX_SLOT;
        elsewhere.then_some(plain.core)
    }

    /// Answers a 1-RTT packet of an unknown connection.
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
        // RFC 9000, section 10.3: a stateless reset is smaller than the packet it answers, so that
        // two endpoints cannot loop.
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

    /// Writes the connection's next datagrams; see [`Transmit`].
    pub fn poll_transmit(
        &mut self,
        handle: Handle,
        now: Timestamp,
        buf: &mut [u8],
        max_segments: usize,
    ) -> Option<Transmit> {
        let Self { connections, rng, config, ecn, frames, .. } = self;
        let connection = connections.get_mut(handle.0 as usize)?.as_mut()?;
        let mut ctx = Context { rng, keys: &config.keys, ecn, frames };
        connection.poll_transmit(now, buf, max_segments, &mut ctx)
    }

    /// Handles the connection's time-out.
    pub fn handle_timeout(&mut self, handle: Handle, now: Timestamp) {
        if let Some(connection) = self.connection(handle) {
            connection.on_timeout(now);
            let (is_early, is_alive) = (connection.is_early(), connection.is_alive());
            if let Some(ip) = connection.take_ecn_failure() {
                self.ecn.remember(now, ip);
                self.stats.ecn_failed += 1;
            }
            if !is_alive {
                self.first_ids.forget(handle.0);
            } else if !is_early {
                self.first_ids.on_handshake_over(now, handle.0);
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

    /// Removes a connection. Call it once drained.
    pub fn remove(&mut self, handle: Handle) {
        self.first_ids.forget(handle.0);
        if let Some(place) = self.connections.get_mut(handle.0 as usize)
            && place.take().is_some()
        {
            self.free.push(handle.0);
        }
    }
}
