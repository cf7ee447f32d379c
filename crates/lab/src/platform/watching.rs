//! Playback of a session, and the moment at which the viewer leaves: after a wait or a freeze
//! beyond the viewer's patience.

use core::time::Duration;

use qoe::{FrameKind, Player, Policy, player::Report};
use serde::{Deserialize, Serialize};
use units::Timestamp;

use super::scenario::ViewedFrame;

/// Bounds of frame delays, in milliseconds.
pub(super) const BOUNDS: [u64; 5] = [100, 200, 400, 600, 1_000];
/// Frames count if published at least this long before a viewer left early.
const EARLY_LEAVE_MARGIN: Duration = Duration::from_millis(400);
/// Delay charged for a frame that never arrived, and the upper limit of delays in percentiles, in
/// milliseconds.
const NEVER_ARRIVED_MS: f64 = 10_000.0;

/// Length of a window of delivery, and the distance of windows.
const STARVATION_WINDOW: Duration = Duration::from_secs(10);
const STARVATION_STEP: Duration = Duration::from_secs(1);
/// A stream is starved below this share of its own rate. Half a second of media in a window may
/// arrive later, in one outage.
const STARVED_SHARE: f64 = 0.95;

/// Playback at a viewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Watched {
    /// Frames that count.
    pub frames: u64,
    /// Frames later than each of [`BOUNDS`], including those that never arrived.
    pub late: [u64; BOUNDS.len()],
    /// Frames later than the player's buffer allows, including those that never arrived.
    pub late_for_player: u64,
    /// Percentiles of frame delays, in milliseconds.
    pub delay_ms: [f64; 3],
    /// From the request to the first picture; `None` if none was shown.
    pub first_frame_ms: Option<f64>,
    pub freezes: u64,
    pub frozen_s: f64,
    pub played_s: f64,
    /// Final distance to the live edge.
    pub behind_ms: Option<f64>,
}

impl Watched {
    /// Playback time, including freezes.
    pub(super) fn seconds(&self) -> f64 {
        self.played_s + self.frozen_s
    }
}

/// Plays the received `frames` until `end`.
fn play(policy: Policy, frames: &[(ViewedFrame, bool)], end: Timestamp) -> (Report, Player) {
    let mut player = Player::new(policy, Timestamp::ZERO);
    for (frame, _) in frames.iter().take_while(|(frame, _)| frame.at <= end) {
        let kind = if frame.is_key { FrameKind::Key } else { FrameKind::Dependent };
        player.on_media(frame.at, frame.media_ms, kind);
    }
    (player.report(end), player)
}

/// Returns when a viewer who plans to stay until `stay` loses patience, if ever.
pub(super) fn leaves(
    policy: Policy,
    frames: &[(ViewedFrame, bool)],
    stay: Duration,
    patience: Duration,
) -> Option<Duration> {
    let end = Timestamp::ZERO + stay;
    let (report, player) = play(policy, frames, end);
    let first = report.first_frame.unwrap_or(stay);
    if first > patience {
        return Some(patience);
    }
    let listed = player.freezes();
    if let Some(freeze) = listed.iter().find(|freeze| freeze.duration > patience) {
        return Some(freeze.start.since(Timestamp::ZERO) + patience);
    }
    // Freezes beyond the listed ones extend to the end.
    let over: Duration = listed.iter().map(|freeze| freeze.duration).sum();
    let open = report.freezes[0].total.saturating_sub(over);
    (open > patience).then(|| stay.saturating_sub(open) + patience)
}

/// Returns the playback of a viewer that leaves at `end`; `published` frames count.
pub(super) fn watch(
    policy: Policy,
    frames: &[(ViewedFrame, bool)],
    published: u64,
    end: Duration,
    is_early: bool,
) -> Watched {
    let (report, _) = play(policy, frames, Timestamp::ZERO + end);
    let last = Timestamp::ZERO + counted_until(end, is_early);
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let counted = frames.iter().filter(|(frame, counts)| *counts && frame.due <= last);
    let mut delays: Vec<f64> = counted.map(|(frame, _)| ms(frame.delay)).collect();
    delays.sort_by(f64::total_cmp);
    let never = published.saturating_sub(delays.len() as u64);
    let late = BOUNDS.map(|bound| {
        let in_time = delays.partition_point(|delay| *delay <= bound as f64) as u64;
        published.saturating_sub(in_time)
    });
    let delay = |p: f64| {
        let place = (p * published.saturating_sub(1) as f64).round() as usize;
        delays.get(place).copied().unwrap_or(NEVER_ARRIVED_MS).min(NEVER_ARRIVED_MS)
    };
    Watched {
        frames: published,
        late,
        late_for_player: (report.late + never).min(published),
        delay_ms: if published > 0 { [0.5, 0.95, 0.99].map(delay) } else { [0.0; 3] },
        first_frame_ms: report.first_frame.map(ms),
        freezes: report.freezes[0].count,
        frozen_s: report.freezes[0].total.as_secs_f64(),
        played_s: report.played.as_secs_f64(),
        behind_ms: report.live_latency.map(ms),
    }
}

/// Returns whether the delivered rate was below the stream's own rate for 10 s: from the first
/// arrival on, fewer than 95 % as many frames arrived in some window as were published in it.
/// `published` are the ascending publication times of counted frames. False for shorter sessions.
pub(super) fn is_starved(
    frames: &[(ViewedFrame, bool)],
    published: &[Timestamp],
    end: Duration,
) -> bool {
    let arrived: Vec<Timestamp> =
        frames.iter().filter(|(_, counts)| *counts).map(|(frame, _)| frame.at).collect();
    let within = |times: &[Timestamp], start: Timestamp| {
        let until = |at: Timestamp| times.partition_point(|time| *time <= at);
        (until(start + STARVATION_WINDOW) - until(start)) as f64
    };
    let end = Timestamp::ZERO + end;
    let mut start = frames.first().map_or(Timestamp::ZERO, |(frame, _)| frame.at);
    while start + STARVATION_WINDOW <= end {
        if within(&arrived, start) < STARVED_SHARE * within(published, start) {
            return true;
        }
        start += STARVATION_STEP;
    }
    false
}

/// Publication time up to which frames count: all frames, unless the viewer left early.
pub(super) fn counted_until(end: Duration, is_early: bool) -> Duration {
    if is_early { end.saturating_sub(EARLY_LEAVE_MARGIN) } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 40;

    /// Frames 40 ms apart for 20 s, each with a delay of 50 ms unless `delay` gives another.
    fn frames(delay: impl Fn(u64) -> Option<u64>) -> Vec<(ViewedFrame, bool)> {
        let mut latest = Timestamp::ZERO;
        let mut all = Vec::new();
        for n in 0..500 {
            let Some(delay) = delay(n) else { continue };
            let due = Timestamp::from_millis(n * INTERVAL);
            latest = latest.max(due + Duration::from_millis(delay));
            let frame = ViewedFrame {
                at: latest,
                due,
                media_ms: (n * INTERVAL) as u32,
                is_key: n % 50 == 0,
                delay: latest.since(due),
            };
            all.push((frame, true));
        }
        all
    }

    const STAY: Duration = Duration::from_secs(20);
    const PATIENCE: Duration = Duration::from_secs(3);

    #[test]
    fn a_viewer_without_freezes_stays() {
        let smooth = frames(|_| Some(50));
        assert_eq!(leaves(Policy::LOW_LATENCY, &smooth, STAY, PATIENCE), None);
        let watched = watch(Policy::LOW_LATENCY, &smooth, 500, STAY, false);
        assert_eq!((watched.frames, watched.late, watched.freezes), (500, [0; 5], 0));
        assert_eq!((watched.delay_ms, watched.first_frame_ms), ([50.0; 3], Some(50.0)));
    }

    #[test]
    fn a_long_freeze_makes_the_viewer_leave() {
        // From 8 s on nothing arrives for 5 s, then everything at once.
        let outage =
            frames(|n| Some(if (200..325).contains(&n) { (325 - n) * INTERVAL } else { 50 }));
        let left = leaves(Policy::LOW_LATENCY, &outage, STAY, PATIENCE).expect("it leaves");
        // The buffer of at least 200 ms runs empty after 8 s. The viewer leaves 3 s later.
        assert!((11.0..11.6).contains(&left.as_secs_f64()), "{left:?}");
        let published = counted_until(left, true).as_millis() as u64 / INTERVAL + 1;
        let watched = watch(Policy::LOW_LATENCY, &outage, published, left, true);
        assert!((2.9..3.1).contains(&watched.frozen_s) && watched.freezes == 1, "{watched:?}");
        assert!(watched.late[2] > 60, "{watched:?}");
        assert_eq!(leaves(Policy::LOW_LATENCY, &outage, STAY, Duration::from_secs(9)), None);
    }

    #[test]
    fn a_long_wait_makes_the_viewer_leave() {
        let nothing = frames(|_| None);
        assert_eq!(leaves(Policy::MOBILE, &nothing, STAY, PATIENCE), Some(PATIENCE));
        let watched = watch(Policy::MOBILE, &nothing, 65, PATIENCE, true);
        assert_eq!((watched.first_frame_ms, watched.late), (None, [65; 5]));
        assert_eq!(watched.delay_ms, [NEVER_ARRIVED_MS; 3]);
    }

    #[test]
    fn a_stream_below_its_own_rate_for_ten_seconds_is_starved() {
        let published: Vec<Timestamp> =
            (0..500).map(|n| Timestamp::from_millis(n * INTERVAL)).collect();
        let starved = |frames: &[_], end| is_starved(frames, &published, end);
        assert!(!starved(&frames(|_| Some(50)), STAY));
        // 90 % of the rate: the delay grows by a ninth of the time.
        let slow = |n: u64| Some(50 + n * INTERVAL / 9);
        assert!(starved(&frames(slow), STAY) && !starved(&frames(slow), Duration::from_secs(9)));
        // 97 % of the rate, and a delay of 2 s that does not grow, are no starvation.
        assert!(!starved(&frames(|n| Some(50 + n * INTERVAL / 32)), STAY));
        assert!(!starved(&frames(|_| Some(2_000)), STAY));
        // Skipped frames are not delivered.
        assert!(starved(&frames(|n| (!(200..220).contains(&n)).then_some(50)), STAY));
        assert!(starved(&[], STAY));
    }

    #[test]
    fn a_freeze_that_goes_on_at_the_end_counts() {
        let stopped = frames(|n| (n < 250).then_some(50));
        let left = leaves(Policy::LOW_LATENCY, &stopped, STAY, PATIENCE).expect("it leaves");
        assert!((12.9..14.0).contains(&left.as_secs_f64()), "{left:?}");
    }
}
