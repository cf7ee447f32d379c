//! Sign of life of an event loop: the start of its last turn and the durations of its turns.
//! Lock-free; only the loop writes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;

use units::Timestamp;

/// Upper bounds of the buckets of turn durations.
const BUCKETS: [Duration; 19] = {
    const fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }
    [
        micros(10),
        micros(20),
        micros(50),
        micros(100),
        micros(200),
        micros(500),
        micros(1_000),
        micros(2_000),
        micros(5_000),
        micros(10_000),
        micros(20_000),
        micros(50_000),
        micros(100_000),
        micros(200_000),
        micros(500_000),
        micros(1_000_000),
        micros(2_000_000),
        micros(5_000_000),
        micros(10_000_000),
    ]
};

/// A loop's sign of life.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// The name of the loop's thread.
    name: String,
    origin: Instant,
    /// Start of the last turn, in nanoseconds after `origin`.
    beat: AtomicU64,
    /// Whether the loop ended normally.
    is_over: AtomicBool,
    /// Turns by duration; the last entry counts those above all buckets.
    turns: [AtomicU64; BUCKETS.len() + 1],
    /// Total duration of all turns, in nanoseconds.
    busy: AtomicU64,
}

impl Pulse {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            origin: Instant::now(),
            beat: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            turns: Default::default(),
            busy: AtomicU64::new(0),
        }
    }

    /// Returns the name of the loop's thread.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the time since creation, which is the loop's clock.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// Starts a turn.
    pub(crate) fn begin(&self, now: Timestamp) {
        self.beat.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Ends the turn that started at `start`. Called by the loop only.
    pub(crate) fn end(&self, start: Timestamp, now: Timestamp) {
        let took = now.since(start);
        let bucket = BUCKETS.partition_point(|end| *end < took);
        // With a single writer no atomic addition is needed.
        let add = |counter: &AtomicU64, n| {
            counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        };
        add(&self.turns[bucket], 1);
        add(&self.busy, took.as_nanos() as u64);
    }

    /// Notes that the loop ended normally.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the start of the last turn.
    pub(crate) fn last(&self) -> Timestamp {
        Timestamp::ZERO + Duration::from_nanos(self.beat.load(Ordering::Relaxed))
    }

    /// Returns the time since the start of the last turn; zero once the loop has ended.
    pub(crate) fn silence(&self) -> Duration {
        if self.is_over() { Duration::ZERO } else { self.now().since(self.last()) }
    }

    /// Returns the upper bound in seconds and the count of each bucket (not cumulative), and the
    /// total duration in seconds.
    pub(crate) fn turns(&self) -> (Vec<(f64, u64)>, f64) {
        let ends = BUCKETS.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
        let counts = self.turns.iter().map(|count| count.load(Ordering::Relaxed));
        let busy = Duration::from_nanos(self.busy.load(Ordering::Relaxed));
        (ends.zip(counts).collect(), busy.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_duration() {
        let pulse = Pulse::new("quic-0".into());
        let start = Timestamp::from_secs(1);
        for micros in [1, 10, 11, 3_000, 60_000_000] {
            pulse.end(start, start + Duration::from_micros(micros));
        }
        let (buckets, sum) = pulse.turns();
        let filled: Vec<_> = buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(1e-5, 2), (2e-5, 1), (5e-3, 1), (f64::INFINITY, 1)]);
        assert!((sum - 60.003_022).abs() < 1e-9);
    }

    #[test]
    fn silence_ends_with_a_turn_or_with_the_loop() {
        let pulse = Pulse::new("quic-0".into());
        std::thread::sleep(Duration::from_millis(2));
        assert!(pulse.silence() >= Duration::from_millis(2));
        let now = pulse.now();
        pulse.begin(now);
        assert_eq!(pulse.last(), now);
        pulse.finish();
        assert_eq!(pulse.silence(), Duration::ZERO);
    }
}
