//! What the parsers of frame perception share: a piece of a body with its place in it, a header
//! that may come in pieces, and the reasons to give up.

/// Why the size of a first frame will not be known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The body begins as none of the known formats does: an error page, an encrypted segment.
    Format,
    /// A header contradicts its format.
    Malformed,
    /// The media is encrypted, and so are the headers that would tell frames apart.
    Encrypted,
    /// The frame does not end within the limit.
    TooFar,
    /// A media segment of fMP4 came without the initialisation segment that says which track is video.
    NoInitialisation,
    /// An MP4 file whose sample table stands in `moov`: it is no live media.
    NotFragmented,
    /// More tracks, nested boxes or RTMP chunk streams than there is room for.
    Room,
    /// A lawful feature that is not read: aggregate RTMP messages, chunks below 32 bytes, video tags
    /// with long extensions.
    Unsupported,
}

impl Reason {
    /// All of them, in their order: a place for each in an array of counters.
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

    /// Its name in metrics.
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

/// Video frames that are still to come.
#[derive(Debug)]
pub(super) struct Frames(pub(super) u32);

impl Frames {
    /// Counts a frame; whether it is the last one of interest.
    pub(super) fn count(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 == 0
    }
}

/// The unread part of a piece of a body.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pub(super) bytes: &'a [u8],
    /// Where it stands in the body.
    pub(super) at: u64,
}

impl<'a> Input<'a> {
    /// Splits off at most `count` bytes.
    pub(super) fn take(&mut self, count: u64) -> Self {
        let taken = usize::try_from(count).map_or(self.bytes.len(), |n| n.min(self.bytes.len()));
        let (bytes, rest) = self.bytes.split_at(taken);
        let piece = Input { bytes, at: self.at };
        self.bytes = rest;
        self.at += taken as u64;
        piece
    }

    /// Skips what there is of `left` bytes, and lowers `left` by it.
    pub(super) fn skip(&mut self, left: &mut u64) {
        *left -= self.take(*left).bytes.len() as u64;
    }
}

/// A header of at most `N` bytes that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Head<N> {
    pub(super) const EMPTY: Self = Self { bytes: [0; N], len: 0 };

    /// Takes bytes until there are `need`, which is at most `N`. Returns whether there are.
    pub(super) fn fill(&mut self, input: &mut Input<'_>, need: usize) -> bool {
        let missing = need.saturating_sub(self.len);
        let piece = input.take(missing as u64).bytes;
        self.bytes[self.len..self.len + piece.len()].copy_from_slice(piece);
        self.len += piece.len();
        self.len >= need
    }

    /// The bytes that are there.
    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// The 32-bit number at this place, which must be filled.
    pub(super) fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes([0, 1, 2, 3].map(|i| self.bytes[at + i]))
    }

    /// The 64-bit number at this place, which must be filled.
    pub(super) fn u64_at(&self, at: usize) -> u64 {
        u64::from(self.u32_at(at)) << 32 | u64::from(self.u32_at(at + 4))
    }
}
