//! The bitmap queue (ART, section 6.1 and figure 13): fates of recent copies, which give the
//! replica loss rate p_r = c ÷ L_queue.

use std::collections::VecDeque;

/// Minimum length that the paper advises. In shorter queues p_r is random.
pub const MIN_LENGTH: usize = 10;

/// Fates of recent copies; true if lost.
#[derive(Clone, Debug)]
pub struct Bitmap {
    fates: VecDeque<bool>,
    length: usize,
    lost: u32,
}

impl Bitmap {
    /// Creates a queue of `length` fates, at least 10.
    pub fn new(length: usize) -> Self {
        let length = length.max(MIN_LENGTH);
        Self { fates: VecDeque::with_capacity(length), length, lost: 0 }
    }

    /// Adds the fate of a copy.
    pub fn push(&mut self, lost: bool) {
        if self.fates.len() == self.length {
            self.lost -= u32::from(self.fates.pop_front() == Some(true));
        }
        self.fates.push_back(lost);
        self.lost += u32::from(lost);
    }

    /// Returns the numbers of losses and of known fates. The paper does not define p_r of a queue
    /// that is not full; as in its code, it is the lost fraction of known fates, and 0 without any.
    pub fn counts(&self) -> (u32, u32) {
        (self.lost, self.fates.len() as u32)
    }

    /// Returns p_r, 0 to 1.
    pub fn loss_rate(&self) -> f64 {
        let (lost, known) = self.counts();
        if known == 0 { 0.0 } else { f64::from(lost) / f64::from(known) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_covers_known_fates_until_the_queue_is_full() {
        let mut bitmap = Bitmap::new(3);
        assert_eq!(bitmap.loss_rate(), 0.0);
        bitmap.push(true);
        assert_eq!(bitmap.loss_rate(), 1.0);
        (0..3).for_each(|_| bitmap.push(false));
        assert_eq!(bitmap.loss_rate(), 0.25);
        (0..6).for_each(|_| bitmap.push(false));
        assert_eq!(bitmap.counts(), (1, 10));
        bitmap.push(true);
        assert_eq!(bitmap.counts(), (1, 10), "the oldest loss is replaced");
        (0..99).for_each(|_| bitmap.push(true));
        assert_eq!(bitmap.loss_rate(), 1.0);
    }
}
