//! Connection IDs of QUIC version 1: at most 20 bytes (RFC 9000, sections 5.1 and 17.2).

use core::fmt;

/// The longest connection ID of QUIC version 1, in bytes.
pub const MAX_CID_LEN: usize = 20;

/// A connection ID of 0 to 20 bytes; the default is [`ConnectionId::EMPTY`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    len: u8,
    // Bytes behind `len` are zero, so that the derived comparisons hold.
    bytes: [u8; MAX_CID_LEN],
}

impl ConnectionId {
    /// The connection ID of length zero.
    pub const EMPTY: Self = Self { len: 0, bytes: [0; MAX_CID_LEN] };

    /// The connection ID that consists of `id`; `None` if that is longer than 20 bytes.
    #[inline]
    pub fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_CID_LEN];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(Self { len: id.len() as u8, bytes })
    }

    /// Its bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Its length in bytes, 0 to 20.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true for the zero-length connection ID.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cid ")?;
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
