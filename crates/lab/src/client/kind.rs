//! Third-party client libraries.

config::words! {
    /// A third-party client library.
    ClientKind {
        /// `quinn-proto`.
        Quinn = "quinn",
        /// `noq-proto`; requires [`Cipher::Real`](crate::Cipher::Real).
        Noq = "noq",
    }
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
