//! The third-party libraries that a viewer may be.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// A third-party client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientKind {
    /// `quinn-proto`.
    Quinn,
    /// `noq-proto`; with [`Cipher::Real`](crate::Cipher::Real) only.
    Noq,
}

impl ClientKind {
    /// The name in specifications and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quinn => "quinn",
            Self::Noq => "noq",
        }
    }

    /// The largest flow-control window in bytes that the client's code bears. `noq-proto` 1.4
    /// closes the connection ("too many gaps in stream buffer") when more than 2,048 packets wait
    /// behind a gap, contiguous or not; quinn-rs/quinn#2814 describes the fault and mends it in
    /// `quinn-proto`.
    pub fn largest_window(self) -> u64 {
        match self {
            Self::Quinn => u64::MAX,
            Self::Noq => 2_000_000,
        }
    }
}

impl FromStr for ClientKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "quinn" => Ok(Self::Quinn),
            "noq" => Ok(Self::Noq),
            _ => Err(format!("no client `{text}`; there are `quinn` and `noq`")),
        }
    }
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
