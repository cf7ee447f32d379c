//! A maximum over recent time, in two periods.

use core::time::Duration;

use units::Timestamp;

/// Maximum of the current and the previous period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentMax<T> {
    /// Index of the current period, counted from time 0.
    span: u64,
    present: T,
    /// Maximum of the previous period, or the default without samples.
    before: T,
}

impl<T: Copy + Ord + Default> RecentMax<T> {
    /// Adds a value. Periods last for `span`, which is above zero and constant.
    pub(crate) fn update(&mut self, now: Timestamp, span: Duration, value: T) {
        let index = now.as_nanos() / (span.as_nanos() as u64).max(1);
        match index.saturating_sub(self.span) {
            0 => self.present = self.present.max(value),
            1 => (self.before, self.present) = (self.present, value),
            _ => (self.before, self.present) = (T::default(), value),
        }
        self.span = self.span.max(index);
    }

    /// Returns the maximum.
    pub(crate) fn get(&self) -> T {
        self.present.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_for_one_to_two_periods() {
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
