//! Identifiers of RFC 9000: packet numbers (section 12.3), stream identifiers (section 2.1) and
//! the ECN codepoints of RFC 3168 (section 5).

use core::fmt;

/// A QUIC packet number, 0 to 2^62 − 1 (RFC 9000, section 12.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PacketNumber(pub u64);

impl PacketNumber {
    /// The next number.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Debug for PacketNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Initiator of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Side {
    /// The endpoint that initiated the connection.
    Client,
    /// The endpoint that accepted it.
    Server,
}

/// Direction of data on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Direction {
    /// Data flows both ways.
    Bidirectional,
    /// Data flows from the initiator only.
    Unidirectional,
}

/// A QUIC stream identifier, 0 to 2^62 − 1 (RFC 9000, section 2.1).
///
/// ```
/// use mendcast_units::{Direction, Side, StreamId};
///
/// // Third request stream of a client.
/// let id = StreamId::new(Side::Client, Direction::Bidirectional, 2);
/// assert_eq!(id, StreamId(8));
/// assert_eq!((id.initiator(), id.index()), (Side::Client, 2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The `index`-th stream (from 0) of its kind.
    pub const fn new(initiator: Side, direction: Direction, index: u64) -> Self {
        let kind = match (direction, initiator) {
            (Direction::Bidirectional, Side::Client) => 0,
            (Direction::Bidirectional, Side::Server) => 1,
            (Direction::Unidirectional, Side::Client) => 2,
            (Direction::Unidirectional, Side::Server) => 3,
        };
        Self(index << 2 | kind)
    }

    /// Initiator of the stream.
    pub const fn initiator(self) -> Side {
        if self.0 & 1 == 0 { Side::Client } else { Side::Server }
    }

    /// Direction of its data.
    pub const fn direction(self) -> Direction {
        if self.0 & 2 == 0 { Direction::Bidirectional } else { Direction::Unidirectional }
    }

    /// Index among the streams of its kind, from 0.
    pub const fn index(self) -> u64 {
        self.0 >> 2
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// The ECN field of an IP header (RFC 3168, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Ecn {
    /// The sender does not support ECN.
    #[default]
    NotEct,
    /// ECN-capable, codepoint ECT(1).
    Ect1,
    /// ECN-capable, codepoint ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_identifiers_follow_table_1_of_rfc_9000() {
        let id = StreamId::new(Side::Server, Direction::Unidirectional, 2);
        assert_eq!(id, StreamId(11));
        assert_eq!(id.initiator(), Side::Server);
        assert_eq!(id.direction(), Direction::Unidirectional);
        assert_eq!(id.index(), 2);
        assert_eq!(StreamId(0).initiator(), Side::Client);
        assert_eq!(StreamId(0).direction(), Direction::Bidirectional);
    }
}
