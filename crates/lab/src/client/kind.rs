//! The third-party libraries that a viewer may be.

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
