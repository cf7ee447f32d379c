//! Playback at the viewers of a stream: frame delays and freezes of three kinds of players. Every
//! frame published during the measurement counts. A frame that never arrived is later than any
//! bound.

use core::time::Duration;

use qoe::player::{FreezeRates, Freezes, Report};
use qoe::stats::Sample;
use qoe::{FrameKind, Player, Policy};
use units::Timestamp;

use crate::live::{Live, LiveOutcome};
use crate::setup::Setup;

/// Number of initial pictures with a recorded time.
const PICTURES: usize = 4;

/// Playback with one policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    pub freezes: Freezes,
    /// Freezes of 200 ms or more.
    pub noticed: Freezes,
    /// Viewing time, including freezes.
    pub time: Duration,
    /// Frames, and frames later than the player's buffer allows.
    pub frames: u64,
    pub late: u64,
}

/// Playback at the viewers of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Viewing {
    /// The configured player.
    pub player: Watched,
    /// The configured player from `measure_from` on.
    pub settled: Watched,
    /// Players of [`Policy::PRESETS`], in their order.
    pub presets: [Watched; 3],
    /// From capture of a frame until it is complete and in order, in milliseconds. Arrived frames
    /// only.
    pub delays: Vec<f64>,
    /// Frames published, including those that never arrived.
    pub frames: u64,
    /// From the request to the first frame, in milliseconds, by viewer.
    pub first_frames: Vec<f64>,
    /// Completion of the first pictures after the request's arrival, in milliseconds, by viewer.
    pub completions: Vec<Vec<f64>>,
    /// Packets lost, and packets with a known fate, until the first frame was acknowledged.
    pub first_loss: (u64, u64),
    /// Final distance to the live edge, in milliseconds, by viewer.
    pub behind: Vec<f64>,
    /// Skips to a newer key frame.
    pub skips: u64,
    /// Disposable pictures not sent.
    pub thinned: u64,
    /// Error of the server's playhead estimate at each report, in milliseconds: with earlier
    /// reports, and without.
    pub playhead_off: [Vec<f64>; 2],
}

impl Watched {
    /// Returns the rates of all freezes; `None` without viewing time.
    pub(crate) fn rates(&self) -> Option<FreezeRates> {
        FreezeRates::of(self.freezes, self.time)
    }

    fn add(&mut self, report: &Report) {
        self.freezes.count += report.freezes[0].count;
        self.freezes.total += report.freezes[0].total;
        self.noticed.count += report.noticed().count;
        self.noticed.total += report.noticed().total;
        self.time += report.watched();
        self.frames += report.frames;
        self.late += report.late;
    }

    /// Subtracts an earlier report of the same player.
    fn remove(&mut self, earlier: &Report) {
        self.freezes.count -= earlier.freezes[0].count;
        self.freezes.total -= earlier.freezes[0].total;
        self.noticed.count -= earlier.noticed().count;
        self.noticed.total -= earlier.noticed().total;
        self.time -= earlier.watched();
        self.frames -= earlier.frames;
        self.late -= earlier.late;
    }

    /// Share of viewing time that was frozen.
    pub(crate) fn frozen_share(&self) -> Option<f64> {
        let watched = self.time.as_secs_f64();
        (watched > 0.0).then(|| self.freezes.total.as_secs_f64() / watched)
    }
}

impl Viewing {
    /// Plays the received part of a stream. Frames published from `measure_from` on count.
    pub(crate) fn watch(
        &mut self,
        policy: Policy,
        live: &Live,
        seen: &LiveOutcome,
        measure_from: Duration,
    ) {
        let report = self.play(policy, seen, None);
        self.player.add(&report);
        let from = Timestamp::ZERO + measure_from;
        self.settled.add(&report);
        self.settled.remove(&self.play(policy, seen, Some(from)));
        self.first_frames.extend(report.first_frame.map(|time| time.as_secs_f64() * 1e3));
        self.behind.extend(report.live_latency.map(|time| time.as_secs_f64() * 1e3));
        for (place, (_, policy)) in Policy::PRESETS.into_iter().enumerate() {
            let report = self.play(policy, seen, None);
            self.presets[place].add(&report);
        }
        let pictures = seen.first_pictures(live).take(PICTURES);
        self.completions.push(pictures.map(|time| time.as_secs_f64() * 1e3).collect());
        let (lost, settled) = seen.picture_losses.first().copied().unwrap_or_default();
        self.first_loss.0 += lost;
        self.first_loss.1 += settled;
        let is_counted = |number: u32| live.is_measured(number, from);
        let counted = seen.arrivals.iter().filter(|arrival| is_counted(arrival.frame));
        self.delays.extend(counted.map(|arrival| arrival.delay.as_secs_f64() * 1e3));
        self.frames += (0..live.source.len()).filter(|&n| is_counted(n)).count() as u64;
        self.skips += seen.skips.count;
        self.thinned += seen.skips.thinned;
        self.playhead_off[0].extend(&seen.playhead_off_ms);
        self.playhead_off[1].extend(&seen.playhead_off_unheard_ms);
    }

    /// Mean time from the request to the numbered picture, in milliseconds, including the request's
    /// transit.
    pub(crate) fn completion(&self, number: usize, setup: &Setup) -> Option<f64> {
        let all: Vec<f64> =
            self.completions.iter().filter_map(|of| of.get(number).copied()).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        (!all.is_empty()).then_some(mean + setup.rtt_ms() / 2.0)
    }

    /// Plays arrived frames until `end`, or all of them.
    fn play(&self, policy: Policy, seen: &LiveOutcome, end: Option<Timestamp>) -> Report {
        let mut player = Player::new(policy, Timestamp::ZERO);
        let in_time =
            seen.arrivals.iter().take_while(|arrival| end.is_none_or(|end| arrival.at <= end));
        for arrival in in_time {
            let kind = if arrival.is_key { FrameKind::Key } else { FrameKind::Dependent };
            player.on_media(arrival.at, arrival.media_ms, kind);
        }
        let last = seen.arrivals.last().map_or(Timestamp::ZERO, |last| last.at);
        player.report(end.map_or(last, |end| end.min(last)))
    }

    /// Share of frames that took longer than `bound` milliseconds or never arrived.
    pub(crate) fn late(&self, bound: f64) -> Option<f64> {
        let in_time = self.delays.iter().filter(|delay| **delay <= bound).count() as u64;
        (self.frames > 0).then(|| (self.frames - in_time) as f64 / self.frames as f64)
    }

    /// Delay that a share `p` of frames does not exceed; `None` if fewer arrived.
    pub(crate) fn delay(&self, p: f64) -> Option<f64> {
        let missing = self.frames.saturating_sub(self.delays.len() as u64);
        let never = (0..missing).map(|_| f64::MAX);
        let value = Sample::new(self.delays.iter().copied().chain(never))?.quantile(p);
        // An interpolation with a frame that never arrived is no delay.
        (value < 1e9).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{Encoder, FrameArrival, Skips};

    fn ten_frames() -> Live {
        let interval = Duration::from_millis(40);
        let encoder = Encoder { interval, group: 10, ..Encoder::default() };
        Live::encoded(&encoder, 1, 0, 10)
    }

    /// Ten frames, 40 ms apart. All but the `lost` arrive, each after 50 ms, the last after 500 ms.
    fn seen(live: &Live, lost: &[u32]) -> LiveOutcome {
        let came = (0..10).filter(|frame| !lost.contains(frame));
        let arrival = |frame| {
            let delay = Duration::from_millis(if frame == 9 { 500 } else { 50 });
            let (is_key, media_ms) = (frame == 0, 40 * frame);
            FrameArrival { frame, is_key, media_ms, delay, at: live.published(frame) + delay }
        };
        LiveOutcome {
            arrivals: came.map(arrival).collect(),
            skips: Skips { count: 1, ms: 0, thinned: 0 },
            ..LiveOutcome::default()
        }
    }

    fn aiming_at_300_ms() -> Policy {
        Policy::with_buffer(Duration::from_millis(300)).expect("within the range")
    }

    #[test]
    fn a_frame_that_never_came_is_later_than_any_bound() {
        let live = ten_frames();
        let mut viewing = Viewing::default();
        viewing.watch(Policy::LOW_LATENCY, &live, &seen(&live, &[4]), Duration::ZERO);
        assert_eq!((viewing.frames, viewing.delays.len(), viewing.skips), (10, 9, 1));
        assert_eq!(viewing.late(400.0), Some(0.2));
        assert_eq!(viewing.late(1_000.0), Some(0.1));
        // 450 ms more than the others is within the 800 ms of this player.
        assert_eq!((viewing.player.frames, viewing.player.late), (8, 0));
        let mut tight = Viewing::default();
        tight.watch(aiming_at_300_ms(), &live, &seen(&live, &[4]), Duration::ZERO);
        assert_eq!((tight.player.frames, tight.player.late), (8, 1));
        assert_eq!(viewing.delay(0.5), Some(50.0));
        assert_eq!(viewing.delay(0.99), None);
        assert_eq!(viewing.first_frames, [50.0]);
    }

    #[test]
    fn frames_before_the_measurement_do_not_count() {
        let live = ten_frames();
        let mut viewing = Viewing::default();
        viewing.watch(Policy::MOBILE, &live, &seen(&live, &[]), Duration::from_millis(200));
        assert_eq!((viewing.frames, viewing.late(400.0)), (5, Some(0.2)));
    }
}
