//! Choice of a rendition for viewers with a player that cannot choose (HTTP-FLV of a ladder).
//!
//! A choice is made at each key frame. Two measurements decide:
//!
//! - **The delivered rate**: bytes that the transport took per time while further data was waiting.
//!   If the viewer lags and this rate is below the rendition's bit rate, the viewer steps down to
//!   the highest rendition within [`SHARE`] of it.
//! - **The path's rate**, measured by the transport's congestion control. A viewer without lag
//!   steps up to the highest rendition within [`SHARE`] of it.
//!
//! A live stream seldom fills its path, so the path's rate may be far below the capacity. A viewer
//! without lag for a longer time therefore tries the next higher rendition. If it steps down soon
//! afterwards, the next attempt comes after twice the time.

use core::time::Duration;

use units::Rate;

/// Share of a measured rate that a rendition may need.
pub const SHARE: f64 = 0.8;
/// Lag above which a viewer may step down, in milliseconds.
const MAX_LAG_MS: u32 = 1_000;
/// Lag up to which a viewer may step up, in milliseconds.
const SMALL_LAG_MS: u32 = 250;
/// Minimum time with small lag before a step up.
const HOLD: Duration = Duration::from_secs(4);
/// The same without a sufficient rate of the path.
const TRIAL: Duration = Duration::from_secs(16);
/// Maximum of this time, after failures.
const MAX_TRIAL: Duration = Duration::from_secs(256);
/// Time after a step up within which a step down counts as its failure.
const RELAPSE: Duration = Duration::from_secs(30);
/// Minimum time over which a delivered rate is measured.
const MIN_SPAN: Duration = Duration::from_millis(250);

/// Data that the transport took while further data was waiting.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    since: Duration,
    bytes: u64,
}

/// State of one viewer's choice. Times are since any fixed start.
#[derive(Clone, Debug)]
pub struct RenditionChoice {
    /// Rate of the path, if measured.
    path: Option<Rate>,
    backlog: Option<Backlog>,
    /// Start of the time with small lag on the current rendition.
    calm_since: Duration,
    /// Last step up, until it has proved itself.
    stepped_up: Option<Duration>,
    /// Time with small lag before the next attempt.
    trial: Duration,
}

impl RenditionChoice {
    /// Starts at `now`.
    pub fn new(now: Duration) -> Self {
        Self { path: None, backlog: None, calm_since: now, stepped_up: None, trial: TRIAL }
    }

    /// Returns the first rendition of a viewer among those with these bit rates: the highest within
    /// four fifths of the path's rate, or the lowest one. The first in the list if the rate of the
    /// path or of a rendition is unknown.
    pub fn first(bitrates: &[Option<Rate>], path: Option<Rate>) -> usize {
        let is_known = bitrates.iter().all(Option::is_some);
        path.filter(|_| is_known).and_then(|path| within(bitrates, path)).unwrap_or(0)
    }

    /// Sets the rate of the path, as measured by the transport.
    pub fn on_path(&mut self, rate: Option<Rate>) {
        self.path = rate;
    }

    /// Counts a tag that the transport took.
    pub fn on_delivered(&mut self, now: Duration, bytes: usize) {
        let backlog = self.backlog.get_or_insert(Backlog { since: now, bytes: 0 });
        backlog.bytes += bytes as u64;
    }

    /// Notes that no data is waiting.
    pub fn on_idle(&mut self) {
        self.backlog = None;
    }

    /// Returns the rendition to be delivered from a key frame on, as an index of `bitrates`.
    /// `lag_ms` is the media between the last delivered and the newest frame.
    pub fn choose(
        &mut self,
        now: Duration,
        lag_ms: u32,
        current: usize,
        bitrates: &[Option<Rate>],
    ) -> usize {
        if lag_ms > SMALL_LAG_MS {
            self.calm_since = now;
        }
        let Some(bitrate) = bitrates.get(current).copied().flatten() else { return current };
        if lag_ms > MAX_LAG_MS {
            return self.lower(now, bitrate, bitrates).unwrap_or(current);
        }
        self.higher(now, bitrate, bitrates).unwrap_or(current)
    }

    /// Returns a lower rendition for a viewer that lags, unless it catches up.
    fn lower(&mut self, now: Duration, bitrate: Rate, bitrates: &[Option<Rate>]) -> Option<usize> {
        let delivered = self.delivered(now)?;
        // The transport's buffers were filled in this span, so the next one is more accurate.
        self.backlog = None;
        if delivered > bitrate {
            return None;
        }
        within(bitrates, delivered).filter(|&index| bitrates[index] < Some(bitrate))
    }

    fn higher(&self, now: Duration, bitrate: Rate, bitrates: &[Option<Rate>]) -> Option<usize> {
        let calm = now.saturating_sub(self.calm_since);
        let is_higher = |index: &usize| bitrates[*index] > Some(bitrate);
        let has_failed = self.trial > TRIAL;
        let fitting = self.path.and_then(|path| within(bitrates, path)).filter(is_higher);
        if fitting.is_some() && !has_failed && calm >= HOLD {
            return fitting;
        }
        let next = (0..bitrates.len()).filter(is_higher).min_by_key(|index| bitrates[*index]);
        next.filter(|_| calm >= self.trial)
    }

    /// Notes that the viewer has changed to a higher or lower rendition.
    pub fn on_change(&mut self, now: Duration, is_higher: bool) {
        self.calm_since = now;
        self.backlog = None;
        let last = self.stepped_up.take();
        match last.map(|at| now.saturating_sub(at) < RELAPSE) {
            Some(true) if !is_higher => self.trial = (self.trial * 2).min(MAX_TRIAL),
            Some(false) => self.trial = TRIAL,
            _ => {}
        }
        self.stepped_up = is_higher.then_some(now);
    }

    /// Notes that the chosen rendition was not available at the key frame. The next attempt to step
    /// up comes after the time of a failed one.
    pub fn on_missed(&mut self, now: Duration) {
        self.calm_since = now;
        self.trial = (self.trial * 2).min(MAX_TRIAL);
    }

    /// Returns the rate at which the transport took data, if it was measured for long enough.
    fn delivered(&self, now: Duration) -> Option<Rate> {
        let Backlog { since, bytes } = self.backlog?;
        let span = now.saturating_sub(since);
        (span >= MIN_SPAN).then(|| Rate::from_bytes_in(bytes, span))
    }
}

/// Returns the rendition with the highest bit rate within [`SHARE`] of `rate`, or the lowest one.
/// Those with unknown bit rates are left out.
fn within(bitrates: &[Option<Rate>], rate: Rate) -> Option<usize> {
    let known = || (0..bitrates.len()).filter(|index| bitrates[*index].is_some());
    let limit = Some(rate.scale(SHARE));
    let fitting = known().filter(|index| bitrates[*index] <= limit);
    // Of equals, the first in the list.
    let best = fitting.rev().max_by_key(|index| bitrates[*index]);
    best.or_else(|| known().min_by_key(|index| bitrates[*index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbps(rates: &[u64]) -> Vec<Option<Rate>> {
        rates.iter().map(|&rate| Some(Rate::from_mbps(rate))).collect()
    }

    #[test]
    fn the_first_rendition_fits_the_path() {
        let rates = mbps(&[3, 6, 1]);
        for (path, first) in [(None, 0), (Some(20), 1), (Some(7), 0), (Some(3), 2), (Some(1), 2)] {
            let path = path.map(Rate::from_mbps);
            assert_eq!(RenditionChoice::first(&rates, path), first, "{path:?}");
        }
        let unknown = [None, Some(Rate::from_mbps(1))];
        assert_eq!(RenditionChoice::first(&unknown, Some(Rate::from_mbps(9))), 0);
    }

    /// A viewer of a stream with a key frame every 2 s, on a path with changing capacity.
    struct Viewer {
        choice: RenditionChoice,
        now: Duration,
        /// Media that waits, in milliseconds.
        lag_ms: f64,
        current: usize,
        changes: Vec<(u64, usize)>,
    }

    impl Viewer {
        fn new() -> Self {
            let choice = RenditionChoice::new(Duration::ZERO);
            Self { choice, now: Duration::ZERO, lag_ms: 0.0, current: 0, changes: vec![] }
        }

        /// Watches for some seconds at this capacity in Mbit/s.
        fn watch(&mut self, seconds: u64, capacity: f64, rates: &[Option<Rate>]) {
            for _ in 0..seconds * 25 {
                self.now += Duration::from_millis(40);
                let bitrate = rates[self.current].expect("known").as_mbps_f64();
                // Media delivered in these 40 ms.
                let ms = (40.0 * capacity / bitrate).min(self.lag_ms + 40.0);
                self.lag_ms += 40.0 - ms;
                self.choice.on_delivered(self.now, (ms * bitrate * 125.0) as usize);
                if self.lag_ms < 1.0 {
                    self.choice.on_idle();
                }
                if !self.now.as_millis().is_multiple_of(2_000) {
                    continue;
                }
                let lag = self.lag_ms as u32;
                let chosen = self.choice.choose(self.now, lag, self.current, rates);
                if chosen != self.current {
                    self.choice.on_change(self.now, rates[chosen] > rates[self.current]);
                    self.current = chosen;
                    self.changes.push((self.now.as_secs(), chosen));
                }
            }
        }
    }

    #[test]
    fn a_viewer_follows_the_capacity_down_and_up() {
        let rates = mbps(&[6, 3, 1]);
        let mut viewer = Viewer::new();
        viewer.watch(20, 10.0, &rates);
        assert_eq!(viewer.changes, []);
        // Shorter than the time to the next attempt.
        viewer.watch(15, 1.5, &rates);
        assert_eq!(viewer.current, 2, "{:?}", viewer.changes);
        let down = viewer.changes[0];
        assert!((20..=24).contains(&down.0) && down.1 == 2, "{down:?}");
        // The lag is made up for on the lower rendition.
        assert!(viewer.lag_ms < 1.0, "{}", viewer.lag_ms);
        viewer.choice.on_path(Some(Rate::from_mbps(10)));
        viewer.watch(10, 10.0, &rates);
        assert_eq!(viewer.current, 0, "{:?}", viewer.changes);
    }

    #[test]
    fn attempts_without_a_known_rate_become_rare() {
        let rates = mbps(&[3, 1]);
        let mut viewer = Viewer::new();
        viewer.watch(600, 1.5, &rates);
        let ups = viewer.changes.iter().filter(|(_, to)| *to == 0).count();
        assert!((2..=6).contains(&ups), "{:?}", viewer.changes);
        // Also with a rate that the path does not keep.
        viewer.choice.on_path(Some(Rate::from_mbps(50)));
        let before = viewer.changes.len();
        viewer.watch(600, 1.5, &rates);
        assert!(viewer.changes.len() - before <= 8, "{:?}", viewer.changes);
        // After the capacity has grown, one attempt succeeds.
        viewer.watch(300, 9.0, &rates);
        assert_eq!(viewer.current, 0, "{:?}", viewer.changes);
    }

    #[test]
    fn a_viewer_that_catches_up_stays() {
        let rates = mbps(&[3, 1]);
        let mut viewer = Viewer::new();
        viewer.lag_ms = 4_000.0;
        viewer.watch(4, 4.0, &rates);
        assert_eq!(viewer.changes, []);
        // A rendition without a known bit rate is no choice.
        let unknown = [rates[0], None];
        viewer.watch(20, 1.0, &unknown);
        assert_eq!(viewer.changes, []);
    }
}
