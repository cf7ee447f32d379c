//! Playback of a video by an adaptive player: means over the playbacks of a run.

use crate::dash::{DashOutcome, Ladder};
use crate::traffic::Traffic;

/// Playbacks of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Playbacks {
    ladder: Ladder,
    all: Vec<DashOutcome>,
}

impl Playbacks {
    /// Adds the outcome of this traffic, if it is a video.
    pub(crate) fn add(&mut self, traffic: &Traffic, outcome: Option<DashOutcome>) {
        if let (Traffic::Dash(dash), Some(outcome)) = (traffic, outcome) {
            self.ladder = dash.video.ladder.clone();
            self.all.push(outcome);
        }
    }

    /// Returns the mean of a value over the playbacks that have it.
    fn mean(&self, value: impl Fn(&DashOutcome) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.all.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Mean bitrate of the played segments, in kbps.
    pub(crate) fn bitrate_kbps(&self) -> Option<f64> {
        self.mean(|one| Some(one.bitrate(&self.ladder)?.as_mbps_f64() * 1e3))
    }

    /// Number of rebuffering events.
    pub(crate) fn rebufferings(&self) -> Option<f64> {
        self.mean(|one| Some(one.rebufferings as f64))
    }

    /// Rebuffering time in seconds.
    pub(crate) fn rebuffering_s(&self) -> Option<f64> {
        self.mean(|one| Some(one.rebuffering.as_secs_f64()))
    }

    /// From the client's first packet to the start of playback, in milliseconds.
    pub(crate) fn startup_ms(&self) -> Option<f64> {
        self.mean(|one| Some(one.startup?.as_secs_f64() * 1e3))
    }

    /// Number of changes of the bitrate.
    pub(crate) fn switches(&self) -> Option<f64> {
        self.mean(|one| Some(one.switches() as f64))
    }

    /// Download rate while a segment was requested, in kbps.
    pub(crate) fn download_kbps(&self) -> Option<f64> {
        self.mean(|one| Some(one.download_rate()?.as_mbps_f64() * 1e3))
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use units::{Rate, Timestamp};

    use super::*;
    use crate::dash::{Adaptation, Dash, DashPlayer, SegmentArrival, Video};

    fn video() -> Traffic {
        let second = Duration::from_secs(1);
        let ladder = Ladder::new([100, 300, 800].map(Rate::from_kbps).to_vec()).expect("valid");
        Traffic::Dash(Dash {
            video: Video { ladder, segment: second, segments: 4, variation: 0.0, seed: 1 },
            player: DashPlayer {
                adaptation: Adaptation::Throughput,
                start_after: second,
                resume_after: second,
                max_buffer: second * 10,
            },
        })
    }

    /// A playback of these rungs. Each download has 100 kB in a second.
    fn outcome(rungs: &[usize], rebufferings: u64, rebuffering_s: u64) -> DashOutcome {
        let arrival = |(place, &rung): (u64, &usize)| SegmentArrival {
            rung,
            bytes: 100_000,
            asked: Timestamp::from_secs(2 * place),
            at: Timestamp::from_secs(2 * place + 1),
        };
        DashOutcome {
            segments: (0..).zip(rungs).map(arrival).collect(),
            startup: Some(Duration::from_secs(1)),
            rebufferings,
            rebuffering: Duration::from_secs(rebuffering_s),
        }
    }

    #[test]
    fn measures_are_means_over_playbacks() {
        let mut playbacks = Playbacks::default();
        playbacks.add(&Traffic::Unbounded, None);
        assert_eq!(playbacks.rebufferings(), None);
        playbacks.add(&video(), Some(outcome(&[0, 1, 1, 2], 3, 5)));
        assert_eq!(playbacks.bitrate_kbps(), Some(375.0));
        assert_eq!(playbacks.switches(), Some(2.0));
        assert_eq!(playbacks.download_kbps(), Some(800.0));
        playbacks.add(&video(), Some(outcome(&[2, 2, 2, 2], 0, 0)));
        assert_eq!(playbacks.bitrate_kbps(), Some(587.5));
        assert_eq!(playbacks.switches(), Some(1.0));
        assert_eq!(playbacks.rebufferings(), Some(1.5));
        assert_eq!(playbacks.rebuffering_s(), Some(2.5));
        assert_eq!(playbacks.startup_ms(), Some(1_000.0));
    }
}
