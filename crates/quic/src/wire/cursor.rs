//! Cursors over byte slices, with the variable-length integers of RFC 9000, section 16.
//!
//! A [`Reader`] meets bytes of a peer and returns [`Truncated`] when they end early. A [`Writer`]
//! meets a buffer of ours: callers check [`Writer::remaining`] first, and writing past the end is
//! a bug that panics at the slice's bounds.

/// The largest value that a variable-length integer can carry: 2^62 − 1.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Bytes of the shortest encoding of `v`: 1, 2, 4 or 8 (RFC 9000, section 16, table 4).
///
/// # Panics
/// If `v` is above [`VARINT_MAX`].
#[inline]
pub const fn varint_len(v: u64) -> usize {
    match v {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        0x4000_0000..=VARINT_MAX => 8,
        _ => panic!("a value above 2^62 - 1 has no variable-length encoding"),
    }
}

/// Appends the shortest encoding of `v` (RFC 9000, section 16).
///
/// # Panics
/// If `v` is above [`VARINT_MAX`].
pub fn put_varint(out: &mut Vec<u8>, v: u64) {
    let start = out.len();
    out.resize(start + varint_len(v), 0);
    Writer::new(&mut out[start..]).varint(v);
}

/// The bytes ended before the value did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncated;

/// Reads integers and byte strings in network byte order from the front of a slice.
///
/// A failed read leaves the position where it was.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, len: bytes.len() }
    }

    /// Bytes not read yet.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Number of bytes read.
    #[inline]
    pub const fn position(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Returns true at the end of the input.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads `N` bytes, for fields of fixed size.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        self.array().map(u8::from_be_bytes)
    }

    /// Reads two bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads four bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a variable-length integer, in any of its encodings (RFC 9000, section 16).
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Truncated> {
        let (&first, rest) = self.rest.split_first().ok_or(Truncated)?;
        Ok(match first >> 6 {
            0 => {
                self.rest = rest;
                u64::from(first)
            }
            1 => u64::from(self.u16()? & 0x3fff),
            2 => u64::from(self.u32()? & 0x3fff_ffff),
            _ => u64::from_be_bytes(self.array()?) & VARINT_MAX,
        })
    }

    /// Reads `n` bytes without copying them.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Truncated> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads a byte string with a variable-length integer as its length prefix.
    #[inline]
    pub fn prefixed(&mut self) -> Result<&'a [u8], Truncated> {
        let before = self.rest;
        let len = self.varint()?;
        // A length beyond the address space is beyond the slice too.
        self.bytes(usize::try_from(len).unwrap_or(usize::MAX)).inspect_err(|_| self.rest = before)
    }

    /// Reads everything that is left.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// Skips bytes of value zero, none to all of them.
    #[inline]
    pub fn skip_zeros(&mut self) {
        let zeros = self.rest.iter().position(|&byte| byte != 0).unwrap_or(self.rest.len());
        self.rest = &self.rest[zeros..];
    }
}

/// Writes integers and byte strings in network byte order into a slice, from its front.
///
/// Every method panics when its bytes do not fit into [`remaining`](Self::remaining).
#[derive(Debug)]
pub struct Writer<'a> {
    buf: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the first byte of `buf`.
    #[inline]
    pub const fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, at: 0 }
    }

    /// Number of bytes written.
    #[inline]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Room left, in bytes.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.buf.len() - self.at
    }

    /// The written bytes, to be patched or encrypted in place.
    #[inline]
    pub fn written_mut(&mut self) -> &mut [u8] {
        &mut self.buf[..self.at]
    }

    /// Steps over `n` bytes and hands them out to be filled now; their old content stays.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> &mut [u8] {
        let start = self.at;
        self.at += n;
        &mut self.buf[start..self.at]
    }

    /// Writes `bytes`.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len()).copy_from_slice(bytes);
    }

    /// Writes `byte` `n` times.
    #[inline]
    pub fn fill(&mut self, byte: u8, n: usize) {
        self.reserve(n).fill(byte);
    }

    /// Writes one byte.
    #[inline]
    pub fn u8(&mut self, v: u8) {
        self.bytes(&[v]);
    }

    /// Writes two bytes.
    #[inline]
    pub fn u16(&mut self, v: u16) {
        self.bytes(&v.to_be_bytes());
    }

    /// Writes four bytes.
    #[inline]
    pub fn u32(&mut self, v: u32) {
        self.bytes(&v.to_be_bytes());
    }

    /// Writes eight bytes.
    #[inline]
    pub fn u64(&mut self, v: u64) {
        self.bytes(&v.to_be_bytes());
    }

    /// Writes the shortest encoding of `v` (RFC 9000, section 16).
    ///
    /// # Panics
    /// Also if `v` is above [`VARINT_MAX`].
    #[inline]
    pub fn varint(&mut self, v: u64) {
        match varint_len(v) {
            1 => self.u8(v as u8),
            2 => self.u16(v as u16 | 0x4000),
            4 => self.u32(v as u32 | 0x8000_0000),
            _ => self.u64(v | 0xc000_0000_0000_0000),
        }
    }

    /// Writes the two-byte encoding of `v`, for a Length that [`set_varint2`](Self::set_varint2)
    /// may overwrite when it is known.
    ///
    /// # Panics
    /// Also if `v` is above 2^14 − 1.
    #[inline]
    pub fn varint2(&mut self, v: u64) {
        self.u16(encode_varint2(v));
    }

    /// Overwrites the two bytes at `at`, counted from the start of the buffer, with the two-byte
    /// encoding of `v`.
    ///
    /// # Panics
    /// If these bytes are not written yet, or if `v` is above 2^14 − 1.
    #[inline]
    pub fn set_varint2(&mut self, at: usize, v: u64) {
        self.written_mut()[at..at + 2].copy_from_slice(&encode_varint2(v).to_be_bytes());
    }
}

#[inline]
fn encode_varint2(v: u64) -> u16 {
    assert!(v < 1 << 14, "a two-byte variable-length integer ends at 2^14 - 1");
    v as u16 | 0x4000
}
