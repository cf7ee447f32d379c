//! A maximum of recent values in two slots of time.

use core::time::Duration;

use units::Timestamp;

/// Largest value of the last one to two spans of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentMax<T> {
    /// Index of the present span, counted from time 0.
    span: u64,
    present: T,
    /// Maximum of the span before; the default if that had none.
    before: T,
}

impl<T: Copy + Ord + Default> RecentMax<T> {
    /// Takes a value; spans last for `span`, above zero and the same in each call.
    pub(crate) fn update(&mut self, now: Timestamp, span: Duration, value: T) {
        let index = now.as_nanos() / (span.as_nanos() as u64).max(1);
        match index.saturating_sub(self.span) {
            0 => self.present = self.present.max(value),
            1 => (self.before, self.present) = (self.present, value),
            _ => (self.before, self.present) = (T::default(), value),
        }
        self.span = self.span.max(index);
    }

    /// The maximum.
    pub(crate) fn get(&self) -> T {
        self.present.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_for_one_to_two_spans() {
        let mut max = RecentMax::default();
        let mut at = |millis, value| {
            max.update(Timestamp::from_millis(millis), Duration::from_secs(1), value);
            max.get()
        };
        assert_eq!(at(1_200, 7), 7);
        assert_eq!(at(1_900, 3), 7);
        assert_eq!(at(2_990, 2), 7);
        assert_eq!(at(3_000, 1), 2);
        assert_eq!(at(9_000, 0), 0);
    }
}
