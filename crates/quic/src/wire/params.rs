//! Transport parameters (RFC 9000, section 18), with `grease_quic_bit` (RFC 9287) and the
//! `initial_rtt` hint that Chromium's clients send.

use super::connection_id::ConnectionId;
use super::cursor::{Reader, put_varint, varint_len};
use super::error::{TransportError, TransportErrorCode};
use super::frame::types;
use core::time::Duration;

/// Identifiers (RFC 9000, section 18.2).
mod id {
    pub const ORIGINAL_DESTINATION_CONNECTION_ID: u64 = 0x00;
    pub const MAX_IDLE_TIMEOUT: u64 = 0x01;
    pub const STATELESS_RESET_TOKEN: u64 = 0x02;
    pub const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
    pub const INITIAL_MAX_DATA: u64 = 0x04;
    pub const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
    pub const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
    pub const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
    pub const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
    pub const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;
    pub const ACK_DELAY_EXPONENT: u64 = 0x0a;
    pub const MAX_ACK_DELAY: u64 = 0x0b;
    pub const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
    pub const PREFERRED_ADDRESS: u64 = 0x0d;
    pub const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
    pub const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
    pub const RETRY_SOURCE_CONNECTION_ID: u64 = 0x10;
    pub const GREASE_QUIC_BIT: u64 = 0x2ab2;
    pub const INITIAL_RTT: u64 = 0x3127;
}

/// The transport parameters of one endpoint; [`Default`] gives the values of absent ones.
///
/// Integers are at most 2^62 − 1. `preferred_address` is missing: we never send one, and a
/// server must not receive one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportParameters {
    /// Server only: the Destination Connection ID of the client's first Initial packet.
    pub original_destination_connection_id: Option<ConnectionId>,
    /// Idle time after which this endpoint gives up, in whole milliseconds; zero: never.
    pub max_idle_timeout: Duration,
    /// Server only: the stateless reset token of the connection ID used in the handshake.
    pub stateless_reset_token: Option<[u8; 16]>,
    /// Largest UDP payload that this endpoint takes, in bytes, at least 1200; default 65527.
    pub max_udp_payload_size: u64,
    /// Bytes that may be sent to this endpoint on all streams together.
    pub initial_max_data: u64,
    /// Bytes on each bidirectional stream that this endpoint opens.
    pub initial_max_stream_data_bidi_local: u64,
    /// Bytes on each bidirectional stream that its peer opens.
    pub initial_max_stream_data_bidi_remote: u64,
    /// Bytes on each unidirectional stream that its peer opens.
    pub initial_max_stream_data_uni: u64,
    /// Bidirectional streams that its peer may open, at most 2^60.
    pub initial_max_streams_bidi: u64,
    /// Unidirectional streams that its peer may open, at most 2^60.
    pub initial_max_streams_uni: u64,
    /// The ACK Delay field is shifted left by this to give microseconds: 0 to 20, default 3.
    pub ack_delay_exponent: u8,
    /// Longest deliberate delay of acknowledgements, whole milliseconds below 2^14, default 25.
    pub max_ack_delay: Duration,
    /// The peer must not migrate away from the address used in the handshake.
    pub disable_active_migration: bool,
    /// Connection IDs of the peer that this endpoint stores, at least 2, the default.
    pub active_connection_id_limit: u64,
    /// The Source Connection ID of this endpoint's first Initial packet.
    pub initial_source_connection_id: Option<ConnectionId>,
    /// Server only: the Source Connection ID of the Retry packet, if one was sent.
    pub retry_source_connection_id: Option<ConnectionId>,
    /// This endpoint accepts packets with a zero fixed bit (RFC 9287, section 3).
    pub grease_quic_bit: bool,
    /// Client only: the round-trip time that it remembers for this server, in microseconds on the
    /// wire. A hint: unverified, and any value from 0 on may come.
    pub initial_rtt: Option<Duration>,
}

impl Default for TransportParameters {
    fn default() -> Self {
        Self {
            original_destination_connection_id: None,
            max_idle_timeout: Duration::ZERO,
            stateless_reset_token: None,
            max_udp_payload_size: 65_527,
            initial_max_data: 0,
            initial_max_stream_data_bidi_local: 0,
            initial_max_stream_data_bidi_remote: 0,
            initial_max_stream_data_uni: 0,
            initial_max_streams_bidi: 0,
            initial_max_streams_uni: 0,
            ack_delay_exponent: 3,
            max_ack_delay: Duration::from_millis(25),
            disable_active_migration: false,
            active_connection_id_limit: 2,
            initial_source_connection_id: None,
            retry_source_connection_id: None,
            grease_quic_bit: false,
            initial_rtt: None,
        }
    }
}

impl TransportParameters {
    /// Parses a client's TLS extension. Ignores unknown parameters.
    ///
    /// # Errors
    /// TRANSPORT_PARAMETER_ERROR for parameters that are badly formatted, out of range, repeated or
    /// reserved for servers, or for a missing `initial_source_connection_id` (RFC 9000, sections
    /// 7.3, 7.4 and 18.2). The caller checks that this one matches the packets.
    pub fn decode_client(bytes: &[u8]) -> Result<Self, TransportError> {
        let mut params = Self::default();
        let mut seen = 0u32;
        let mut r = Reader::new(bytes);
        while !r.is_empty() {
            let id = r.varint().map_err(|_| error("an identifier is cut short"))?;
            let value = r.prefixed().map_err(|_| error("a value is cut short"))?;
            // RFC 9000, section 7.4: duplicates SHOULD be treated as TRANSPORT_PARAMETER_ERROR.
            // Those that we ignore are not remembered, which keeps this pass free of memory.
            let bit = match id {
                0..=id::RETRY_SOURCE_CONNECTION_ID => 1 << id,
                id::GREASE_QUIC_BIT => 1 << 30,
                id::INITIAL_RTT => 1 << 31,
                _ => continue,
            };
            if seen & bit != 0 {
                return Err(error("a parameter came twice"));
            }
            seen |= bit;
            params.set_from_client(id, value)?;
        }
        // RFC 9000, section 7.3: the absence of this parameter is a connection error.
        match params.initial_source_connection_id {
            Some(_) => Ok(params),
            None => Err(error("initial_source_connection_id is missing")),
        }
    }

    fn set_from_client(&mut self, id: u64, value: &[u8]) -> Result<(), TransportError> {
        match id {
            id::MAX_IDLE_TIMEOUT => self.max_idle_timeout = Duration::from_millis(integer(value)?),
            id::MAX_UDP_PAYLOAD_SIZE => {
                self.max_udp_payload_size =
                    in_range(value, 1_200, u64::MAX, "max_udp_payload_size is below 1200")?;
            }
            id::INITIAL_MAX_DATA => self.initial_max_data = integer(value)?,
            id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL => {
                self.initial_max_stream_data_bidi_local = integer(value)?;
            }
            id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE => {
                self.initial_max_stream_data_bidi_remote = integer(value)?;
            }
            id::INITIAL_MAX_STREAM_DATA_UNI => self.initial_max_stream_data_uni = integer(value)?,
            // RFC 9000, section 4.6: more streams than 2^60 have no identifiers.
            id::INITIAL_MAX_STREAMS_BIDI => {
                self.initial_max_streams_bidi =
                    in_range(value, 0, 1 << 60, "initial_max_streams_bidi is above 2^60")?;
            }
            id::INITIAL_MAX_STREAMS_UNI => {
                self.initial_max_streams_uni =
                    in_range(value, 0, 1 << 60, "initial_max_streams_uni is above 2^60")?;
            }
            id::ACK_DELAY_EXPONENT => {
                self.ack_delay_exponent =
                    in_range(value, 0, 20, "ack_delay_exponent is above 20")? as u8;
            }
            id::MAX_ACK_DELAY => {
                let millis = in_range(value, 0, (1 << 14) - 1, "max_ack_delay is 2^14 or more")?;
                self.max_ack_delay = Duration::from_millis(millis);
            }
            id::DISABLE_ACTIVE_MIGRATION => self.disable_active_migration = flag(value)?,
            id::ACTIVE_CONNECTION_ID_LIMIT => {
                self.active_connection_id_limit =
                    in_range(value, 2, u64::MAX, "active_connection_id_limit is below 2")?;
            }
            id::INITIAL_SOURCE_CONNECTION_ID => {
                let id = ConnectionId::new(value)
                    .ok_or(error("initial_source_connection_id is above 20 bytes"))?;
                self.initial_source_connection_id = Some(id);
            }
            id::GREASE_QUIC_BIT => self.grease_quic_bit = flag(value)?,
            id::INITIAL_RTT => self.initial_rtt = Some(Duration::from_micros(integer(value)?)),
            // RFC 9000, section 18.2: "A client MUST NOT include any server-only transport
            // parameter".
            id::ORIGINAL_DESTINATION_CONNECTION_ID
            | id::STATELESS_RESET_TOKEN
            | id::PREFERRED_ADDRESS
            | id::RETRY_SOURCE_CONNECTION_ID => {
                return Err(error("a client sent a parameter that is for servers"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends a server's TLS extension: each parameter that differs from its default, and an empty
    /// one with the identifier `grease`, of the form 31 × N + 27 and below 2^62, which peers must
    /// ignore (RFC 9000, section 18.1). `initial_rtt` is not for servers.
    pub fn encode_server(&self, out: &mut Vec<u8>, grease: u64) {
        let default = Self::default();
        let ids = [
            (id::ORIGINAL_DESTINATION_CONNECTION_ID, &self.original_destination_connection_id),
            (id::INITIAL_SOURCE_CONNECTION_ID, &self.initial_source_connection_id),
            (id::RETRY_SOURCE_CONNECTION_ID, &self.retry_source_connection_id),
        ];
        for (id, value) in ids {
            if let Some(value) = value {
                put(out, id, value.as_slice());
            }
        }
        if let Some(token) = &self.stateless_reset_token {
            put(out, id::STATELESS_RESET_TOKEN, token);
        }
        type Field = fn(&TransportParameters) -> u64;
        let integers: [(u64, Field); 11] = [
            (id::MAX_IDLE_TIMEOUT, |p| p.max_idle_timeout.as_millis() as u64),
            (id::MAX_UDP_PAYLOAD_SIZE, |p| p.max_udp_payload_size),
            (id::INITIAL_MAX_DATA, |p| p.initial_max_data),
            (id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL, |p| p.initial_max_stream_data_bidi_local),
            (id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE, |p| p.initial_max_stream_data_bidi_remote),
            (id::INITIAL_MAX_STREAM_DATA_UNI, |p| p.initial_max_stream_data_uni),
            (id::INITIAL_MAX_STREAMS_BIDI, |p| p.initial_max_streams_bidi),
            (id::INITIAL_MAX_STREAMS_UNI, |p| p.initial_max_streams_uni),
            (id::ACK_DELAY_EXPONENT, |p| u64::from(p.ack_delay_exponent)),
            (id::MAX_ACK_DELAY, |p| p.max_ack_delay.as_millis() as u64),
            (id::ACTIVE_CONNECTION_ID_LIMIT, |p| p.active_connection_id_limit),
        ];
        for (id, field) in integers {
            if field(self) != field(&default) {
                put_integer(out, id, field(self));
            }
        }
        if self.disable_active_migration {
            put(out, id::DISABLE_ACTIVE_MIGRATION, &[]);
        }
        if self.grease_quic_bit {
            put(out, id::GREASE_QUIC_BIT, &[]);
        }
        put(out, grease, &[]);
    }
}

const fn error(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::TRANSPORT_PARAMETER_ERROR, types::CRYPTO, reason)
}

/// A variable-length integer that fills its value.
fn integer(value: &[u8]) -> Result<u64, TransportError> {
    let mut r = Reader::new(value);
    match r.varint() {
        Ok(v) if r.is_empty() => Ok(v),
        _ => Err(error("a value is not one integer")),
    }
}

fn in_range(value: &[u8], min: u64, max: u64, why: &'static str) -> Result<u64, TransportError> {
    integer(value).and_then(|v| if (min..=max).contains(&v) { Ok(v) } else { Err(error(why)) })
}

fn flag(value: &[u8]) -> Result<bool, TransportError> {
    if value.is_empty() { Ok(true) } else { Err(error("a flag has a value")) }
}

fn put(out: &mut Vec<u8>, id: u64, value: &[u8]) {
    put_varint(out, id);
    put_varint(out, value.len() as u64);
    out.extend(value);
}

fn put_integer(out: &mut Vec<u8>, id: u64, value: u64) {
    put_varint(out, id);
    put_varint(out, varint_len(value) as u64);
    put_varint(out, value);
}
