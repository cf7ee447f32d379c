//! What lost units consist of: pieces of the transport's own data, which only the transport can look
//! into.

use crate::table::UnitKey;
use core::fmt::Debug;
use units::Mark;

/// The data that units are made of, as the transport keeps it: QUIC's streams.
pub trait Content {
    /// What one frame carries: a range of a stream.
    type Piece: Copy + Debug;

    /// Bytes of a piece.
    fn len(piece: &Self::Piece) -> u32;

    /// Appends the parts of a piece that the peer has not acknowledged, in order.
    fn missing(&self, piece: &Self::Piece, out: &mut Vec<Self::Piece>);

    /// Whether nobody waits for the piece any more, because its stream was reset.
    fn is_abandoned(&self, piece: &Self::Piece) -> bool;

    /// What the application said about the piece when it wrote it.
    fn mark(&self, piece: &Self::Piece) -> Option<Mark>;

    /// The piece may stay missing for long. The transport copies it out of the application's buffer,
    /// so that one missing packet does not keep all of the buffer in memory.
    fn detach(&mut self, piece: &Self::Piece);
}

/// How much of a piece a packet had room for.
#[derive(Clone, Copy, Debug)]
pub enum Fit<P> {
    /// All of it was written.
    Whole,
    /// The first part was written; the second one was not.
    Part(P, P),
    /// Nothing was written.
    None,
}

/// The pieces of each unit, by slot of the unit's table. The memory of a slot is used again.
#[derive(Debug)]
pub(crate) struct Contents<P> {
    pieces: Vec<Vec<P>>,
    /// What is missing of the unit that was asked about last.
    missing: Vec<P>,
}

impl<P> Default for Contents<P> {
    fn default() -> Self {
        Self { pieces: Vec::new(), missing: Vec::new() }
    }
}

impl<P: Copy + Debug> Contents<P> {
    pub(crate) fn get(&self, key: UnitKey) -> &[P] {
        &self.pieces[key.index()]
    }

    /// The slot's list, for a unit that begins or changes.
    pub(crate) fn slot(&mut self, key: UnitKey) -> &mut Vec<P> {
        if self.pieces.len() <= key.index() {
            self.pieces.resize_with(key.index() + 1, Vec::new);
        }
        &mut self.pieces[key.index()]
    }

    /// What is missing of pieces that belong to no unit yet.
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

    /// What is missing of the unit. The list is the caller's until [`Contents::give_back`].
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

    /// Makes what is missing of [`Contents::missing_of`] the content of a new unit.
    pub(crate) fn open(&mut self, key: UnitKey) {
        let missing = core::mem::take(&mut self.missing);
        let slot = self.slot(key);
        slot.clear();
        slot.extend_from_slice(&missing);
        self.missing = missing;
    }
}

/// Data that is never acknowledged, as numbers of bytes: for measurements of schemes alone.
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
