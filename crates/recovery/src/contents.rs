//! Contents of lost units: pieces of the transport's data, opaque to this crate.

use crate::table::UnitKey;
use core::fmt::Debug;
use units::Mark;

/// The transport's data, such as QUIC streams.
pub trait Content {
    /// Content of one frame: a range of a stream.
    type Piece: Copy + Debug + 'static;

    /// Returns the length of a piece in bytes.
    fn len(piece: &Self::Piece) -> u32;

    /// Appends the unacknowledged parts of a piece to `out`, in order.
    fn missing(&self, piece: &Self::Piece, out: &mut Vec<Self::Piece>);

    /// Returns whether the piece is no longer needed because its stream was reset.
    fn is_abandoned(&self, piece: &Self::Piece) -> bool;

    /// Returns the application's mark of the piece.
    fn mark(&self, piece: &Self::Piece) -> Option<Mark>;

    /// Copies the piece out of the application's buffer, because it may stay missing for long. The
    /// rest of the buffer can then be freed.
    fn detach(&mut self, piece: &Self::Piece);
}

/// How much of a piece fitted into a packet.
#[derive(Clone, Copy, Debug)]
pub enum Fit<P> {
    /// All of it.
    Whole,
    /// The first part, but not the second.
    Part(P, P),
    /// Nothing.
    None,
}

/// Pieces of each unit, by slot of the unit table. The memory of slots is reused.
#[derive(Debug)]
pub(crate) struct Contents<P> {
    pieces: Vec<Vec<P>>,
    /// Result of the last query for missing parts.
    missing: Vec<P>,
}

impl<P> Contents<P> {
    pub(crate) const fn new() -> Self {
        Self { pieces: Vec::new(), missing: Vec::new() }
    }
}

impl<P: Copy + Debug> Contents<P> {
    pub(crate) fn get(&self, key: UnitKey) -> &[P] {
        &self.pieces[key.index()]
    }

    pub(crate) fn slot(&mut self, key: UnitKey) -> &mut Vec<P> {
        if self.pieces.len() <= key.index() {
            self.pieces.resize_with(key.index() + 1, Vec::new);
        }
        &mut self.pieces[key.index()]
    }

    /// Returns the missing parts of pieces that belong to no unit yet.
    pub(crate) fn missing_of<C: Content<Piece = P>>(
        &mut self,
        content: &C,
        pieces: impl IntoIterator<Item = P>,
    ) -> &[P] {
        self.missing.clear();
        for piece in pieces {
            content.missing(&piece, &mut self.missing);
        }
        &self.missing
    }

    /// Returns the missing parts of the unit. The list goes back with [`Contents::give_back`].
    pub(crate) fn take_missing<C: Content<Piece = P>>(
        &mut self,
        content: &C,
        key: UnitKey,
    ) -> Vec<P> {
        let mut missing = core::mem::take(&mut self.missing);
        missing.clear();
        for piece in &self.pieces[key.index()] {
            content.missing(piece, &mut missing);
        }
        missing
    }

    pub(crate) fn give_back(&mut self, missing: Vec<P>) {
        self.missing = missing;
    }

    /// Makes the result of [`Contents::missing_of`] the content of a new unit.
    pub(crate) fn open(&mut self, key: UnitKey) {
        let missing = core::mem::take(&mut self.missing);
        let slot = self.slot(key);
        slot.clear();
        slot.extend_from_slice(&missing);
        self.missing = missing;
    }
}

/// Data that is never acknowledged, as byte counts. For tests and benchmarks of schemes.
impl Content for () {
    type Piece = u32;

    fn len(piece: &u32) -> u32 {
        *piece
    }

    fn missing(&self, piece: &u32, out: &mut Vec<u32>) {
        out.push(*piece);
    }

    fn is_abandoned(&self, _: &u32) -> bool {
        false
    }

    fn mark(&self, _: &u32) -> Option<Mark> {
        None
    }

    fn detach(&mut self, _: &u32) {}
}
