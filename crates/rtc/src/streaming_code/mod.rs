//! Tambur's streaming code (Rudow et al., NSDI 2023, section 4): parity packets protect frames
//! over time, so that a burst is repaired by the frames after it.
//!
//! Each frame's data is split into two parts, U and V. The parity of frame *i* combines V of the
//! frames *i* − τ to *i*, and U of the frames *i* − τ and *i* alone. V is repaired first, from the
//! parities before frame *i* + τ; U then from the parity τ frames later. [`recoverable`] decides
//! from counts which data is determined; `bytes` computes it.

mod bytes;
#[cfg(test)]
mod tests;

pub use bytes::{CodedFrame, Decoder, Encoder, ReceivedFrame, Symbol};

use crate::error::BadValue;

/// The parts of a frame.
pub const PARTS: [Part; 2] = [Part::U, Part::V];

/// A part of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// In the parities of its frame and of τ frames later.
    U,
    /// In the parities of its frame and of the next τ frames.
    V,
}

/// Symbols of a frame known to a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameLoss {
    /// Missing symbols of U and V.
    pub lost: [u32; 2],
    /// Received parity symbols.
    pub parity: u32,
}

/// Checks the delay τ of a code.
///
/// # Errors
/// τ is 0 or above 16.
pub fn checked_tau(tau: u32) -> Result<u32, BadValue> {
    BadValue::unless((1..=16).contains(&tau), "tau", tau, "1 to 16 frames")
}

/// Number of frames that a receiver considers: the parities of 2τ + 1 frames, and the τ frames
/// before them that these parities cover.
pub const fn window(tau: u32) -> usize {
    3 * tau as usize + 1
}

/// Whether the parity of frame `i` covers a part of frame `j`.
pub(crate) fn covers(tau: usize, i: usize, j: usize, part: Part) -> bool {
    match part {
        Part::U => j == i || j + tau == i,
        Part::V => j <= i && i <= j + tau,
    }
}

/// Returns for the parts U and V of each frame whether its missing symbols are determined by the
/// received parities, for coefficients without special relations. `frames` ends with the newest
/// frame; parities of its first τ frames are not used, because frames before them are unknown.
///
/// Then the rank of a matrix is its largest matching (Edmonds 1967), and a symbol is determined if
/// every largest matching covers it (Dulmage and Mendelsohn 1958). Symbols of a part and parities
/// of a frame are interchangeable, so that a flow between these classes finds the matching.
pub fn recoverable(tau: u32, frames: &[FrameLoss]) -> Vec<[bool; 2]> {
    let tau = tau as usize;
    let classes: Vec<(usize, Part, u32)> = frames
        .iter()
        .enumerate()
        .flat_map(|(j, frame)| PARTS.map(|part| (j, part, frame.lost[part as usize])))
        .collect();
    let mut flow = Flow {
        left: classes.iter().map(|class| class.2).collect(),
        room: frames.iter().map(|frame| frame.parity).collect(),
        carried: vec![vec![0; frames.len()]; classes.len()],
        joined: classes
            .iter()
            .map(|&(j, part, _)| {
                let usable = tau..frames.len();
                usable.filter(|&i| frames[i].parity > 0 && covers(tau, i, j, part)).collect()
            })
            .collect(),
    };
    flow.fill();
    let open = flow.reached_from_unmatched();
    let is_known = |class: usize| !open[class];
    (0..frames.len()).map(|j| [is_known(2 * j), is_known(2 * j + 1)]).collect()
}

/// A flow from classes of missing symbols to frames with parities.
struct Flow {
    /// Unmatched symbols of each class.
    left: Vec<u32>,
    /// Unmatched parities of each frame.
    room: Vec<u32>,
    /// Matched symbols, by class and frame.
    carried: Vec<Vec<u32>>,
    /// Frames with parities that cover a class.
    joined: Vec<Vec<usize>>,
}

impl Flow {
    fn fill(&mut self) {
        for class in 0..self.left.len() {
            while self.left[class] > 0 {
                let mut seen = vec![false; self.room.len()];
                let moved = self.augment(class, self.left[class], &mut seen);
                if moved == 0 {
                    break;
                }
                self.left[class] -= moved;
            }
        }
    }

    /// Matches up to `wanted` symbols of the class, moving others to other frames if necessary.
    fn augment(&mut self, class: usize, wanted: u32, seen: &mut [bool]) -> u32 {
        for at in 0..self.joined[class].len() {
            let frame = self.joined[class][at];
            if core::mem::replace(&mut seen[frame], true) {
                continue;
            }
            let free = self.room[frame].min(wanted);
            if free > 0 {
                self.room[frame] -= free;
                self.carried[class][frame] += free;
                return free;
            }
            for other in 0..self.left.len() {
                let here = self.carried[other][frame];
                if other == class || here == 0 {
                    continue;
                }
                let moved = self.augment(other, wanted.min(here), seen);
                if moved > 0 {
                    self.carried[other][frame] -= moved;
                    self.carried[class][frame] += moved;
                    return moved;
                }
            }
        }
        0
    }

    /// Returns the classes that some largest matching leaves uncovered.
    fn reached_from_unmatched(&self) -> Vec<bool> {
        let mut open: Vec<bool> = self.left.iter().map(|&left| left > 0).collect();
        let mut next: Vec<usize> = (0..open.len()).filter(|&class| open[class]).collect();
        while let Some(class) = next.pop() {
            for &frame in &self.joined[class] {
                for (other, is_open) in open.iter_mut().enumerate() {
                    if !*is_open && self.carried[other][frame] > 0 {
                        *is_open = true;
                        next.push(other);
                    }
                }
            }
        }
        open
    }
}
