//! Minimum over a sliding window of time, in bounded memory.

use core::time::Duration;

use units::Timestamp;

/// Maximum number of samples kept.
const SLOTS: usize = 4;

/// Minimum `T` of a recent period (the maximum, if `T` is a `Reverse`). Candidates for later minima
/// are kept at least a quarter of the period apart, so a sample may expire that much too early, but
/// never late.
#[derive(Clone, Debug)]
pub(super) struct Windowed<T> {
    /// Sorted by age and by value; the first is the minimum.
    samples: [Option<(Timestamp, T)>; SLOTS],
}

impl<T> Default for Windowed<T> {
    fn default() -> Self {
        Self { samples: [const { None }; SLOTS] }
    }
}

impl<T: Copy + Ord> Windowed<T> {
    /// Adds `sample` at `now`. Returns the minimum of the last `window`, including it.
    pub(super) fn update(&mut self, now: Timestamp, sample: T, window: Duration) -> T {
        let lives = |&(at, value): &(Timestamp, T)| now.since(at) <= window && value < sample;
        let mut kept = [None; SLOTS];
        let mut free = kept.iter_mut();
        let mut last = None;
        for old in self.samples.into_iter().flatten().filter(lives).zip(free.by_ref()) {
            *old.1 = Some(old.0);
            last = Some(old.0.0);
        }
        let spacing = window / SLOTS as u32;
        if last.is_none_or(|at| now.since(at) >= spacing)
            && let Some(slot) = free.next()
        {
            *slot = Some((now, sample));
        }
        self.samples = kept;
        self.get().unwrap_or(sample)
    }

    /// Returns the result of the last update.
    pub(super) fn get(&self) -> Option<T> {
        self.samples[0].map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use core::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_minimum_expires_with_the_window_and_the_next_one_follows() {
        let mut w = Windowed::default();
        assert_eq!(w.update(at(0), 5, WINDOW), 5);
        assert_eq!(w.update(at(50), 7, WINDOW), 5);
        assert_eq!(w.update(at(100), 9, WINDOW), 5);
        assert_eq!(w.update(at(101), 9, WINDOW), 7);
        assert_eq!(w.update(at(120), 3, WINDOW), 3);
        assert_eq!(w.update(at(900), 8, WINDOW), 8);
    }

    #[test]
    fn reversed_samples_give_the_maximum() {
        let mut w = Windowed::default();
        assert_eq!(w.update(at(0), Reverse(5), WINDOW), Reverse(5));
        assert_eq!(w.update(at(1), Reverse(9), WINDOW), Reverse(9));
        assert_eq!(w.update(at(60), Reverse(7), WINDOW), Reverse(9));
        assert_eq!(w.update(at(102), Reverse(2), WINDOW), Reverse(7));
    }

    proptest! {
        #![proptest_config(crate::properties(256))]

        #[test]
        fn the_result_lies_between_the_minima_of_three_quarters_and_of_the_whole_window(
            samples in prop::collection::vec((0u64..60, 0u32..1_000), 1..80),
        ) {
            let mut w = Windowed::default();
            let mut now = 0;
            let mut log: Vec<(u64, u32)> = Vec::new();
            for (wait, sample) in samples {
                now += wait;
                log.push((now, sample));
                let minimum = |span: u64| {
                    let recent = log.iter().filter(|(at, _)| at + span >= now);
                    recent.map(|(_, sample)| *sample).min().expect("the last one")
                };
                let found = w.update(at(now), sample, WINDOW);
                prop_assert!(found >= minimum(100) && found <= minimum(75), "{found}");
            }
        }
    }
}
