//! Third-party client libraries.

use serde::{Deserialize, Serialize};

/// A third-party client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientKind {
    /// `quinn-proto`.
    Quinn,
    /// `noq-proto`; requires [`Cipher::Real`](crate::Cipher::Real).
    Noq,
}

impl ClientKind {
    /// Largest supported flow-control window in bytes. `noq-proto` 1.4 closes the connection ("too
    /// many gaps in stream buffer") when more than 2,048 packets wait behind a gap, contiguous or
    /// not. quinn-rs/quinn#2814 describes and fixes the bug in `quinn-proto`.
    pub fn largest_window(self) -> u64 {
        match self {
            Self::Quinn => u64::MAX,
            Self::Noq => 2_000_000,
        }
    }
}
