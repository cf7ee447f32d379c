//! Transport errors (RFC 9000, section 20.1), carried by CONNECTION_CLOSE frames of type 0x1c.

use core::fmt;

/// A transport error code, 0 to 2^62 − 1 (RFC 9000, section 20.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransportErrorCode(pub u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl TransportErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The name that RFC 9000 gives to the code, if it gives one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The connection is closed without an error.
    NO_ERROR = 0x00;
    /// This endpoint met an internal error and cannot go on.
    INTERNAL_ERROR = 0x01;
    /// The server refuses a new connection.
    CONNECTION_REFUSED = 0x02;
    /// The peer sent more data than its limits allowed.
    FLOW_CONTROL_ERROR = 0x03;
    /// The peer opened more streams than its limit allowed.
    STREAM_LIMIT_ERROR = 0x04;
    /// A frame came for a stream in a state that does not permit it.
    STREAM_STATE_ERROR = 0x05;
    /// Data came beyond a stream's final size, or the final size changed.
    FINAL_SIZE_ERROR = 0x06;
    /// A frame was badly formatted.
    FRAME_ENCODING_ERROR = 0x07;
    /// The transport parameters were badly formatted, out of range, or contradict the packets.
    TRANSPORT_PARAMETER_ERROR = 0x08;
    /// The peer exceeded the limit of active connection IDs.
    CONNECTION_ID_LIMIT_ERROR = 0x09;
    /// The peer broke the protocol in a way that no other code describes.
    PROTOCOL_VIOLATION = 0x0a;
    /// A client's Initial packet carried an invalid token.
    INVALID_TOKEN = 0x0b;
    /// The application closed the connection during the handshake.
    APPLICATION_ERROR = 0x0c;
    /// More CRYPTO data came than can be buffered.
    CRYPTO_BUFFER_EXCEEDED = 0x0d;
    /// The peer made a mistake in a key update (RFC 9001, section 6).
    KEY_UPDATE_ERROR = 0x0e;
    /// The limit of packets under one key was reached (RFC 9001, section 6.6).
    AEAD_LIMIT_REACHED = 0x0f;
    /// The network path cannot carry QUIC.
    NO_VIABLE_PATH = 0x10;
}

impl TransportErrorCode {
    /// The code that reports a TLS alert: 0x0100 to 0x01ff (RFC 9001, section 4.8).
    pub const fn crypto(alert: u8) -> Self {
        Self(0x100 | alert as u64)
    }
}

impl fmt::Debug for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.0) {
            (Some(name), _) => f.write_str(name),
            (None, 0x100..=0x1ff) => write!(f, "CRYPTO_ERROR(alert {})", self.0 & 0xff),
            (None, code) => write!(f, "{code:#x}"),
        }
    }
}

impl fmt::Display for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An error that closes a connection with a CONNECTION_CLOSE frame of type 0x1c (RFC 9000,
/// sections 11.1 and 19.19).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportError {
    /// Error code.
    pub code: TransportErrorCode,
    /// The type of the frame that triggered it; 0 (PADDING) if unknown.
    pub frame_type: u64,
    /// Why, for the peer's log.
    pub reason: &'static str,
}

impl TransportError {
    /// An error of kind `code`, triggered by a frame of type `frame_type` (0 if unknown).
    pub const fn new(code: TransportErrorCode, frame_type: u64, reason: &'static str) -> Self {
        Self { code, frame_type, reason }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)?;
        match self.frame_type {
            0 => Ok(()),
            ty => write!(f, " (frame type {ty:#x})"),
        }
    }
}

impl core::error::Error for TransportError {}
