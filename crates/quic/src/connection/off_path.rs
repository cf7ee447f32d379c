//! Addresses other than the present path's: frames owed to them, and the path to go back to.

use crate::path::{Addresses, Path};

/// A frame owed on a path that need not be the present one.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffPath {
    pub(super) addresses: Addresses,
    pub(super) frame: OffPathFrame,
    /// UDP payload bytes that may be sent there for it.
    pub(super) limit: u64,
}

/// Which frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum OffPathFrame {
    Challenge([u8; 8]),
    Response([u8; 8]),
}

/// Where to go back to when the new address does not answer.
#[derive(Debug)]
pub(super) struct Previous {
    pub(super) addresses: Addresses,
    /// The whole path, unless the new one has taken its estimates over.
    pub(super) path: Option<Box<Path>>,
}

/// Generations wrap before this value, which marks packets of no path in particular.
pub(super) const NO_PATH: u8 = u8::MAX;
