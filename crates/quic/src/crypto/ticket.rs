//! TLS session tickets that carry our own bytes and need no server state (RFC 8446, section 4.6.1;
//! RFC 9001, section 4.6).
//!
//! **Content and lifetime.** A ticket is sealed and carries its time of issue, the early-data
//! context, the TLS session and up to [`MAX_OWN_BYTES`] of the application; the edge adds 31 bytes
//! of path state (`startup::Cookie`). It resumes sessions for
//! [`ticket_lifetime`](super::TlsSettings::ticket_lifetime), at most seven days, 24 h in the edge.
//! It permits 0-RTT once, and only while the context is the same.
//!
//! The TLS library refuses 0-RTT with its stateless tickets, so its *stateful* sessions are used
//! with a store that stores nothing. When the library stores a session under a random 32-byte ID,
//! the session is kept beside the connection, and the NewSessionTicket with that ID is withheld
//! from the output. When the connection sends it, a sealed blob replaces the ID: the session and
//! our own bytes. When a client returns the blob, the store opens it and returns the session. The
//! blob's random nonce identifies the ticket in the [`SingleUseLog`], which replaces the replay
//! protection of the library's store.

use core::fmt;
use core::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::server::StoresServerSessions;
use rustls::time_provider::TimeProvider;

use super::CryptoRng;
use super::keyring::{KeyRing, Purpose};
use super::single_use::SingleUseLog;

/// The most bytes of our own that a ticket or a token carries.
pub const MAX_OWN_BYTES: usize = 1024;

/// Ticket settings of one [`TlsConfig`](super::TlsConfig).
pub(super) struct TicketPolicy {
    pub(super) keys: Arc<KeyRing>,
    pub(super) single_use: Arc<SingleUseLog>,
    pub(super) time: Arc<dyn TimeProvider>,
    /// Seconds.
    pub(super) lifetime: u32,
    pub(super) early_data_context: u64,
}

/// One connection's side of the exchange with the TLS library.
pub(super) struct SessionStore {
    policy: Arc<TicketPolicy>,
    exchange: Mutex<Exchange>,
}

#[derive(Default)]
struct Exchange {
    issued: Vec<TlsSession>,
    own: Option<Vec<u8>>,
}

/// A session as the TLS library encodes it, and the id that stands for it.
struct TlsSession {
    id: Vec<u8>,
    value: Vec<u8>,
}

/// Where the encoded session has the creation time (8 bytes, Unix seconds) and, last, the offset of
/// the obfuscated ticket age (4 bytes), counted from its end.
const CREATED_FROM_END: usize = 12;
const AGE_OFFSET_FROM_END: usize = 4;

/// Returns the creation time of an encoded session, in Unix seconds.
fn created(session: &[u8]) -> Option<u64> {
    let at = session.len().checked_sub(CREATED_FROM_END)?;
    session[at..].first_chunk().map(|seconds| u64::from_be_bytes(*seconds))
}

impl SessionStore {
    pub(super) fn new(policy: Arc<TicketPolicy>) -> Self {
        Self { policy, exchange: Mutex::default() }
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Our own bytes in the last ticket that opened. The library stops at the ticket that it
    /// resumes, so if it resumes one, it is that one.
    pub(super) fn take_own(&self) -> Option<Vec<u8>> {
        self.exchange().own.take()
    }

    /// Returns the withheld tickets in `output`, the handshake's output after its end.
    pub(super) fn withhold(&self, mut output: &[u8]) -> Vec<PendingTicket> {
        let issued = core::mem::take(&mut self.exchange().issued);
        let mut tickets = Vec::new();
        while let Some((message, rest)) = split_message(output) {
            output = rest;
            let Some(ticket) = ticket_field(message) else {
                debug_assert!(false, "a server's handshake ends with NewSessionTicket messages");
                continue;
            };
            let Some(session) = issued.iter().find(|session| session.id == message[ticket.clone()])
            else {
                continue;
            };
            tickets.push(PendingTicket {
                message: message.to_vec(),
                ticket,
                session: session.value.clone(),
                lifetime: self.policy.lifetime,
                early_data_context: self.policy.early_data_context,
            });
        }
        tickets
    }

    /// The session in a returned ticket.
    fn open(&self, blob: &[u8]) -> Option<Vec<u8>> {
        let policy = &*self.policy;
        let now = policy.time.current_time()?.as_secs();
        let unsealed = policy.keys.open(Purpose::Ticket, blob, &[])?;
        let content = TicketContent::decode(&unsealed.plaintext)?;
        if now.saturating_sub(content.issued) > u64::from(policy.lifetime) {
            return None;
        }
        let mut session = content.session.to_vec();
        // RFC 9000, section 7.4.1: no early data if limits that the client remembers may have been
        // lowered. RFC 9001, section 9.2: none twice. The log is asked last, since asking counts as
        // a use, and before the binder is verified, since two threads may see the same ticket: who
        // has only overheard a ticket can cost its owner the early data, nothing else.
        let early_data = content.early_data_context == policy.early_data_context
            && policy.single_use.first_use(unsealed.id, content.issued, now);
        if !early_data {
            // The library decides about early data by the age that the client reports
            // (RFC 8446, section 8.3). An offset that is wrong by 2^31 ms makes any report wrong by
            // 24 days, which refuses the early data and leaves the resumption as it is.
            let at = session.len().checked_sub(AGE_OFFSET_FROM_END)?;
            session[at] ^= 0x80;
        }
        self.exchange().own = Some(content.own.to_vec());
        Some(session)
    }
}

impl StoresServerSessions for SessionStore {
    fn put(&self, id: Vec<u8>, value: Vec<u8>) -> bool {
        // The encoding is internal to the library. A session without a creation time in the
        // expected place gets no ticket.
        let now = self.policy.time.current_time().map(|now| now.as_secs());
        let known = created(&value).zip(now).is_some_and(|(at, now)| at.abs_diff(now) <= 1);
        if known {
            self.exchange().issued.push(TlsSession { id, value });
        }
        known
    }

    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, blob: &[u8]) -> Option<Vec<u8>> {
        self.open(blob)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionStore")
    }
}

/// Content of a ticket's blob.
struct TicketContent<'a> {
    issued: u64,
    early_data_context: u64,
    session: &'a [u8],
    own: &'a [u8],
}

impl<'a> TicketContent<'a> {
    fn encode(&self) -> Vec<u8> {
        let session_len = u16::try_from(self.session.len()).expect("sessions are short");
        [
            &self.issued.to_be_bytes()[..],
            &self.early_data_context.to_be_bytes(),
            &session_len.to_be_bytes(),
            self.session,
            self.own,
        ]
        .concat()
    }

    fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (issued, rest) = bytes.split_first_chunk()?;
        let (context, rest) = rest.split_first_chunk()?;
        let (session_len, rest) = rest.split_first_chunk()?;
        let (session, own) =
            rest.split_at_checked(usize::from(u16::from_be_bytes(*session_len)))?;
        Some(Self {
            issued: u64::from_be_bytes(*issued),
            early_data_context: u64::from_be_bytes(*context),
            session,
            own,
        })
    }
}

/// A NewSessionTicket that has not been sent; about 300 bytes.
pub struct PendingTicket {
    message: Vec<u8>,
    /// Returns the position of the ticket field's content in `message`.
    ticket: Range<usize>,
    session: Vec<u8>,
    lifetime: u32,
    early_data_context: u64,
}

impl PendingTicket {
    /// The message to send as 1-RTT CRYPTO data (RFC 9001, section 4.1.3), with a ticket that is
    /// valid from `now` (Unix seconds) and brings `own` back with the client's next connection.
    ///
    /// # Panics
    /// If `own` is longer than [`MAX_OWN_BYTES`]: a bug of the caller.
    pub fn release(
        mut self,
        keys: &KeyRing,
        own: &[u8],
        now: u64,
        rng: &mut impl CryptoRng,
    ) -> Vec<u8> {
        assert!(own.len() <= MAX_OWN_BYTES, "too many own bytes for a ticket");
        // The client counts the ticket's age from its arrival: time spent withheld is no part of
        // it, and would make the library refuse early data.
        if let Some(at) = self.session.len().checked_sub(CREATED_FROM_END) {
            self.session[at..at + 8].copy_from_slice(&now.to_be_bytes());
        }
        let content = TicketContent {
            issued: now,
            early_data_context: self.early_data_context,
            session: &self.session,
            own,
        };
        let blob = keys.seal(Purpose::Ticket, now, &content.encode(), &[], rng);
        let blob_len = u16::try_from(blob.len()).expect("session and own bytes are short");

        let Range { start, end } = self.ticket;
        let mut message = Vec::with_capacity(self.message.len() + blob.len());
        message.extend_from_slice(&self.message[..start - 2]);
        message.extend_from_slice(&blob_len.to_be_bytes());
        message.extend_from_slice(&blob);
        message.extend_from_slice(&self.message[end..]);
        let body_len = u32::try_from(message.len() - HEADER_LEN).expect("a ticket is short");
        message[1..HEADER_LEN].copy_from_slice(&body_len.to_be_bytes()[1..]);
        message[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&self.lifetime.to_be_bytes());
        message
    }
}

/// RFC 8446, section 4: type and 24-bit length.
const HEADER_LEN: usize = 4;
const NEW_SESSION_TICKET: u8 = 4;

/// The first handshake message of `bytes`, header included, and the rest.
fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let &[_, a, b, c, ..] = bytes else { return None };
    bytes.split_at_checked(HEADER_LEN + u32::from_be_bytes([0, a, b, c]) as usize)
}

/// Where a NewSessionTicket message has the ticket field's content (RFC 8446, section 4.6.1:
/// 32-bit lifetime, 32-bit age_add, nonce<0..255>, ticket<1..2^16-1>, extensions).
fn ticket_field(message: &[u8]) -> Option<Range<usize>> {
    if *message.first()? != NEW_SESSION_TICKET {
        return None;
    }
    let nonce_len_at = HEADER_LEN + 8;
    let ticket_len_at = nonce_len_at + 1 + usize::from(*message.get(nonce_len_at)?);
    let start = ticket_len_at + 2;
    let &[high, low] = message.get(ticket_len_at..start)? else { return None };
    let end = start + usize::from(u16::from_be_bytes([high, low]));
    (end <= message.len()).then_some(start..end)
}
