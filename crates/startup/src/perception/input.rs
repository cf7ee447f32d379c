//! Shared by the parsers of frame perception: input with its position, headers that may arrive in
//! pieces, and error reasons.

/// Reason why the size of a first frame cannot be determined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// Unknown format, such as an error page or an encrypted segment.
    Format,
    /// A header violates its format.
    Malformed,
    /// The media is encrypted, including the headers that separate frames.
    Encrypted,
    /// The frame ends beyond the limit.
    TooFar,
    /// An fMP4 media segment without an initialization segment, which identifies the video track.
    NoInitialisation,
    /// An MP4 file with its sample table in `moov`, so not live media.
    NotFragmented,
    /// More tracks, nested boxes or RTMP chunk streams than supported.
    Room,
    /// A valid but unsupported feature: aggregate RTMP messages, chunks below 32 bytes, video tags
    /// with long extensions.
    Unsupported,
}

impl Reason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 8] = [
        Self::Format,
        Self::Malformed,
        Self::Encrypted,
        Self::TooFar,
        Self::NoInitialisation,
        Self::NotFragmented,
        Self::Room,
        Self::Unsupported,
    ];

    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Malformed => "malformed",
            Self::Encrypted => "encrypted",
            Self::TooFar => "too_far",
            Self::NoInitialisation => "no_initialisation",
            Self::NotFragmented => "not_fragmented",
            Self::Room => "room",
            Self::Unsupported => "unsupported",
        }
    }
}

/// Number of remaining video frames.
#[derive(Debug)]
pub(super) struct FrameCount(pub(super) u32);

impl FrameCount {
    /// Counts a frame. Returns true for the last one.
    pub(super) fn count(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 == 0
    }
}

/// The unread part of a chunk of a body.
#[derive(Debug)]
pub(super) struct ChunkInput<'a> {
    pub(super) bytes: &'a [u8],
    /// Offset in the body.
    pub(super) at: u64,
}

impl<'a> ChunkInput<'a> {
    /// Splits off at most `count` bytes.
    pub(super) fn take(&mut self, count: u64) -> Self {
        let taken = usize::try_from(count).map_or(self.bytes.len(), |n| n.min(self.bytes.len()));
        let (bytes, rest) = self.bytes.split_at(taken);
        let piece = ChunkInput { bytes, at: self.at };
        self.bytes = rest;
        self.at += taken as u64;
        piece
    }

    /// Skips up to `left` bytes and decreases `left` accordingly.
    pub(super) fn skip(&mut self, left: &mut u64) {
        *left -= self.take(*left).bytes.len() as u64;
    }
}

/// A header of at most `N` bytes that may arrive in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Head<N> {
    pub(super) const EMPTY: Self = Self { bytes: [0; N], len: 0 };

    /// Reads until the header has `need` bytes, at most `N`. Returns true once it has.
    pub(super) fn fill(&mut self, input: &mut ChunkInput<'_>, need: usize) -> bool {
        let missing = need.saturating_sub(self.len);
        let piece = input.take(missing as u64).bytes;
        self.bytes[self.len..self.len + piece.len()].copy_from_slice(piece);
        self.len += piece.len();
        self.len >= need
    }

    /// The received bytes.
    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the 32-bit number at an offset, which must be filled.
    pub(super) fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes([0, 1, 2, 3].map(|i| self.bytes[at + i]))
    }

    /// Returns the 64-bit number at an offset, which must be filled.
    pub(super) fn u64_at(&self, at: usize) -> u64 {
        u64::from(self.u32_at(at)) << 32 | u64::from(self.u32_at(at + 4))
    }
}
