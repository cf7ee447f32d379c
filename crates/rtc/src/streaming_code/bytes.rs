//! The code with bytes: an encoder, and a decoder by elimination.

use std::collections::VecDeque;

use units::mix64;

use super::{PARTS, Part, checked_tau, covers, window};
use crate::error::BadValue;
use crate::galois::{add_scaled, inverse, multiply};

/// Data or parity of the code's symbol size, in words of 4 bytes.
pub type Symbol = Vec<u32>;

/// The symbols of a frame, by part.
pub type CodedFrame = [Vec<Symbol>; 2];

/// A frame at the receiver.
#[derive(Clone, Debug, Default)]
pub struct ReceivedFrame {
    /// Symbols by part; `None` if lost.
    pub data: [Vec<Option<Symbol>>; 2],
    /// Received parities with their index.
    pub parity: Vec<(u32, Symbol)>,
}

/// Place of a coefficient: parity `row` of frame `to`, symbol `index` of a part of frame `from`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub to: u64,
    pub row: u32,
    pub from: u64,
    pub part: Part,
    pub index: usize,
}

/// Returns a non-zero coefficient. Coefficients of different places have no relation, so that
/// patterns are recoverable as counts say.
pub(super) fn coefficient(place: Place) -> u32 {
    let Place { to, row, from, part, index } = place;
    let mixed = mix64(mix64(to) ^ u64::from(row) << 32 ^ index as u64 ^ (part as u64) << 63);
    (mix64(mixed ^ (to - from)) as u32).max(1)
}

type Coefficient = fn(Place) -> u32;

/// Makes the parities of consecutive frames.
#[derive(Debug)]
pub struct Encoder {
    tau: usize,
    words: usize,
    /// The newest frame is the last.
    recent: VecDeque<CodedFrame>,
    next: u64,
    pub(super) coefficient: Coefficient,
}

fn checked_words(bytes: usize) -> Result<usize, BadValue> {
    let is_allowed = bytes > 0 && bytes.is_multiple_of(4);
    BadValue::unless(is_allowed, "symbol_bytes", bytes, "a positive multiple of 4")?;
    Ok(bytes / 4)
}

impl Encoder {
    /// Creates an encoder for symbols of this size.
    ///
    /// # Errors
    /// τ or the size is out of range.
    pub fn new(tau: u32, symbol_bytes: usize) -> Result<Self, BadValue> {
        let words = checked_words(symbol_bytes)?;
        let tau = checked_tau(tau)? as usize;
        Ok(Self { tau, words, recent: VecDeque::new(), next: 0, coefficient })
    }

    /// Returns `parity` parity symbols of the next frame.
    ///
    /// # Panics
    /// If a symbol has another size.
    pub fn push(&mut self, frame: CodedFrame, parity: u32) -> Vec<Symbol> {
        assert!(frame.iter().flatten().all(|symbol| symbol.len() == self.words), "symbol size");
        self.recent.push_back(frame);
        if self.recent.len() > self.tau + 1 {
            self.recent.pop_front();
        }
        let to = self.next;
        self.next += 1;
        (0..parity).map(|row| self.parity(to, row)).collect()
    }

    fn parity(&self, to: u64, row: u32) -> Symbol {
        let mut sum = vec![0; self.words];
        let newest = self.recent.len() - 1;
        for (at, frame) in self.recent.iter().enumerate() {
            let age = newest - at;
            for part in PARTS.into_iter().filter(|&part| covers(self.tau, age, 0, part)) {
                for (index, symbol) in frame[part as usize].iter().enumerate() {
                    let place = Place { to, row, from: to - age as u64, part, index };
                    add_scaled(&mut sum, symbol, (self.coefficient)(place));
                }
            }
        }
        sum
    }
}

/// Restores lost symbols from parities of the last 2τ + 1 frames.
#[derive(Debug)]
pub struct Decoder {
    tau: usize,
    words: usize,
    window: VecDeque<ReceivedFrame>,
    /// Number of the window's first frame. Frames before the first one count as empty.
    first: i64,
    pub(super) coefficient: Coefficient,
}

/// A symbol by frame in the window, part and index.
type Unknown = (usize, Part, usize);

impl Decoder {
    /// Creates a decoder for symbols of this size.
    ///
    /// # Errors
    /// τ or the size is out of range.
    pub fn new(tau: u32, symbol_bytes: usize) -> Result<Self, BadValue> {
        let words = checked_words(symbol_bytes)?;
        let length = window(checked_tau(tau)?);
        let window = (0..length).map(|_| ReceivedFrame::default()).collect();
        Ok(Self { tau: tau as usize, words, window, first: -(length as i64), coefficient })
    }

    /// Takes the next frame and restores all determined symbols of the window.
    ///
    /// # Panics
    /// If a symbol has another size.
    pub fn push(&mut self, frame: ReceivedFrame) {
        let symbols = frame.data.iter().flatten().flatten();
        let mut symbols = symbols.chain(frame.parity.iter().map(|parity| &parity.1));
        assert!(symbols.all(|symbol| symbol.len() == self.words), "symbol size");
        self.window.pop_front();
        self.window.push_back(frame);
        self.first += 1;
        let unknown = self.unknown();
        let mut rows = self.equations(&unknown);
        for (column, value) in solved(&mut rows, unknown.len()) {
            let (frame, part, index) = unknown[column];
            self.window[frame].data[part as usize][index] = Some(value);
        }
    }

    /// Returns the frames of the window, the newest last.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = &ReceivedFrame> {
        self.window.iter()
    }

    fn unknown(&self) -> Vec<Unknown> {
        let mut all = Vec::new();
        for (at, frame) in self.window.iter().enumerate() {
            for part in PARTS {
                let symbols = frame.data[part as usize].iter().enumerate();
                all.extend(
                    symbols.filter(|(_, s)| s.is_none()).map(|(index, _)| (at, part, index)),
                );
            }
        }
        all
    }

    /// Returns an equation per usable parity: coefficients of the unknown symbols, then the value.
    fn equations(&self, unknown: &[Unknown]) -> Vec<Vec<u32>> {
        let mut rows = Vec::new();
        for to in self.tau..self.window.len() {
            for (row, parity) in &self.window[to].parity {
                let mut equation = vec![0; unknown.len()];
                let mut value = parity.clone();
                for from in to - self.tau..=to {
                    self.cover(Covered { to, row: *row, from }, unknown, &mut equation, &mut value);
                }
                equation.extend(value);
                rows.push(equation);
            }
        }
        rows
    }

    /// Adds the covered symbols of one frame to an equation.
    fn cover(
        &self,
        Covered { to, row, from }: Covered,
        unknown: &[Unknown],
        equation: &mut [u32],
        value: &mut [u32],
    ) {
        let number = |at: usize| (self.first + at as i64) as u64;
        for part in PARTS.into_iter().filter(|&part| covers(self.tau, to, from, part)) {
            for (index, symbol) in self.window[from].data[part as usize].iter().enumerate() {
                let place = Place { to: number(to), row, from: number(from), part, index };
                let factor = (self.coefficient)(place);
                match symbol {
                    Some(symbol) => add_scaled(value, symbol, factor),
                    None => {
                        let column = unknown
                            .binary_search_by_key(&(from, part as u8, index), |u| {
                                (u.0, u.1 as u8, u.2)
                            });
                        equation[column.expect("listed in order of frame and part")] = factor;
                    }
                }
            }
        }
    }
}

/// A parity and a frame that it may cover, by their places in the window.
#[derive(Clone, Copy)]
struct Covered {
    to: usize,
    row: u32,
    from: usize,
}

/// Eliminates, and returns the unknowns with a unique value.
fn solved(rows: &mut [Vec<u32>], columns: usize) -> Vec<(usize, Symbol)> {
    let mut pivots = Vec::new();
    for column in 0..columns {
        let done = pivots.len();
        let Some(found) = (done..rows.len()).find(|&row| rows[row][column] != 0) else { continue };
        rows.swap(done, found);
        let scale = inverse(rows[done][column]);
        rows[done].iter_mut().for_each(|word| *word = multiply(*word, scale));
        let pivot = rows[done].clone();
        for (at, row) in rows.iter_mut().enumerate() {
            if at != done {
                let factor = row[column];
                add_scaled(row, &pivot, factor);
            }
        }
        pivots.push(column);
    }
    let unique = |row: &Vec<u32>| row[..columns].iter().filter(|word| **word != 0).count() == 1;
    let solved = pivots.into_iter().zip(&*rows).filter(|(_, row)| unique(row));
    solved.map(|(column, row)| (column, row[columns..].to_vec())).collect()
}
