//! Types and sources of columns.

use serde_json::Value;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Integer.
    Int,
    /// Floating-point number.
    Float,
}

/// Source of a column, which decides the sessions that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The server's session: every session.
    Server,
    /// The QUIC connection, once the fate of one packet is known.
    Quic,
    /// The same, or statistics of the kernel's TCP connection.
    Transport,
    /// The response in HTTP-FLV, over any protocol.
    Flv,
    /// Player reports.
    Player,
    /// The testbed only.
    Testbed,
}

impl Source {
    /// Returns the name in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Quic => "QUIC",
            Self::Transport => "QUIC, TCP",
            Self::Flv => "FLV",
            Self::Player => "player",
            Self::Testbed => "testbed",
        }
    }
}

/// Rust type of a column.
pub(crate) trait Cell {
    /// Type of the column.
    const KIND: Kind;
    /// Returns the value in JSON.
    fn value(&self) -> Value;
}

impl Cell for String {
    const KIND: Kind = Kind::Text;

    fn value(&self) -> Value {
        self.as_str().into()
    }
}

impl Cell for i64 {
    const KIND: Kind = Kind::Int;

    fn value(&self) -> Value {
        (*self).into()
    }
}

impl Cell for f64 {
    const KIND: Kind = Kind::Float;

    /// Six decimals suffice for ratios, and more than suffice for times and rates.
    fn value(&self) -> Value {
        ((self * 1e6).round() / 1e6).into()
    }
}
