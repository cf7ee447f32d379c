//! The bitmap queue (ART, section 6.1 and figure 13): the fates of the last copies, of which the
//! replica loss rate p_r = c ÷ L_queue follows.

use std::collections::VecDeque;

/// The shortest queue that the paper advises: shorter ones leave p_r to chance.
pub const MIN_LENGTH: usize = 10;

/// The last fates, "1" for a copy that was lost again.
#[derive(Clone, Debug)]
pub struct Bitmap {
    fates: VecDeque<bool>,
    length: usize,
    lost: u32,
}

impl Bitmap {
    /// A queue of the last `length` fates, at least 10.
    pub fn new(length: usize) -> Self {
        let length = length.max(MIN_LENGTH);
        Self { fates: VecDeque::with_capacity(length), length, lost: 0 }
    }

    /// A copy was lost again, or acknowledged.
    pub fn push(&mut self, lost: bool) {
        if self.fates.len() == self.length {
            self.lost -= u32::from(self.fates.pop_front() == Some(true));
        }
        self.fates.push_back(lost);
        self.lost += u32::from(lost);
    }

    /// How many of the fates that are known are losses, and how many are known. The paper leaves p_r
    /// undefined for a queue that is not full yet; as in its code, that is the share of what there
    /// is, and 0 of nothing.
    pub fn counts(&self) -> (u32, u32) {
        (self.lost, self.fates.len() as u32)
    }

    /// p_r, from 0 to 1.
    pub fn loss_rate(&self) -> f64 {
        let (lost, known) = self.counts();
        if known == 0 { 0.0 } else { f64::from(lost) / f64::from(known) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_last_fates_and_of_what_there_is_before() {
        let mut bitmap = Bitmap::new(3);
        assert_eq!(bitmap.loss_rate(), 0.0);
        bitmap.push(true);
        assert_eq!(bitmap.loss_rate(), 1.0);
        (0..3).for_each(|_| bitmap.push(false));
        assert_eq!(bitmap.loss_rate(), 0.25);
        (0..6).for_each(|_| bitmap.push(false));
        assert_eq!(bitmap.counts(), (1, 10));
        bitmap.push(true);
        assert_eq!(bitmap.counts(), (1, 10), "the oldest left");
        (0..99).for_each(|_| bitmap.push(true));
        assert_eq!(bitmap.loss_rate(), 1.0);
    }
}
