//! A player of a video in segments: its requests, its buffer and its rebuffering.

use core::time::Duration;

use units::{Rate, Timestamp};

use super::Dash;
use super::adaptation::{Adaptation, Adapter};
use super::video::{Ladder, Video};

/// Settings of a player.
#[derive(Clone, Copy, Debug)]
pub struct DashPlayer {
    /// Rule that chooses bitrates.
    pub adaptation: Adaptation,
    /// Buffered media required to start playback.
    pub start_after: Duration,
    /// Buffered media required to resume playback after rebuffering.
    pub resume_after: Duration,
    /// Maximum of buffered media: at least one segment. The next segment is requested once it fits.
    pub max_buffer: Duration,
}

/// A segment that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentArrival {
    /// Index in the ladder.
    pub rung: usize,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the request at the client.
    pub asked: Timestamp,
    /// Arrival of the last byte.
    pub at: Timestamp,
}

/// A playback as the viewer saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DashOutcome {
    /// Segments in order.
    pub segments: Vec<SegmentArrival>,
    /// From the client's first packet to the start of playback; `None` if it did not start.
    pub startup: Option<Duration>,
    /// Number of times that the buffer ran empty before the end of the video. The wait before
    /// playback starts does not count.
    pub rebufferings: u64,
    /// Total time of rebuffering.
    pub rebuffering: Duration,
}

impl DashOutcome {
    /// Returns the mean bitrate of the played segments, which last equally long; `None` without
    /// segments.
    pub fn bitrate(&self, ladder: &Ladder) -> Option<Rate> {
        let sum: f64 = self.segments.iter().map(|segment| ladder.bps(segment.rung)).sum();
        let count = self.segments.len() as f64;
        (count > 0.0).then(|| Rate::from_bps((sum / count).round() as u64))
    }

    /// Returns the number of changes of the bitrate.
    pub fn switches(&self) -> usize {
        self.segments.windows(2).filter(|pair| pair[0].rung != pair[1].rung).count()
    }

    /// Returns the mean download rate while segments were requested; `None` without segments.
    pub fn download_rate(&self) -> Option<Rate> {
        let bytes = self.segments.iter().map(|segment| segment.bytes).sum();
        let time: Duration =
            self.segments.iter().map(|segment| segment.at.since(segment.asked)).sum();
        (!time.is_zero()).then(|| Rate::from_bytes_in(bytes, time))
    }
}

/// Whether media is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Playback has not started.
    Starting,
    Playing,
    /// Rebuffering since this time.
    Stalled(Timestamp),
}

/// A request for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub rung: usize,
    pub segment: u32,
    pub at: Timestamp,
}

/// A player at work.
#[derive(Clone, Debug)]
pub(super) struct Playback {
    dash: Dash,
    adapter: Adapter,
    begins: Timestamp,
    state: State,
    /// Buffered media at `at`.
    level: Duration,
    at: Timestamp,
    asked: Option<Asked>,
    pub outcome: DashOutcome,
}

impl Playback {
    /// Creates a player. The client's first packet leaves at `begins`.
    pub(super) fn new(dash: Dash, begins: Timestamp) -> Self {
        Self {
            adapter: Adapter::new(dash.player.adaptation),
            dash,
            begins,
            state: State::Starting,
            level: Duration::ZERO,
            at: begins,
            asked: None,
            outcome: DashOutcome::default(),
        }
    }

    pub(super) fn video(&self) -> &Video {
        &self.dash.video
    }

    /// The segment requested and not yet received.
    pub(super) fn asked(&self) -> Option<Asked> {
        self.asked
    }

    fn received(&self) -> u32 {
        self.outcome.segments.len() as u32
    }

    /// Whether all segments have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.received() >= self.dash.video.segments
    }

    /// Requests the next segment.
    pub(super) fn ask(&mut self, now: Timestamp) -> Asked {
        self.play(now);
        let Dash { video, player } = &self.dash;
        let max = player.max_buffer.saturating_sub(video.segment).as_secs_f64();
        let rung = self.adapter.choose(&video.ladder, self.level.as_secs_f64(), max);
        *self.asked.insert(Asked { rung, segment: self.received(), at: now })
    }

    /// Takes the requested segment of this size. Returns the time of the next request; `None` after
    /// the last segment.
    pub(super) fn take(&mut self, now: Timestamp, bytes: u64) -> Option<Timestamp> {
        let Asked { rung, at: asked, .. } = self.asked.take()?;
        self.play(now);
        self.adapter.on_segment(bytes, now.since(asked));
        self.outcome.segments.push(SegmentArrival { rung, bytes, asked, at: now });
        let Dash { video, player } = &self.dash;
        self.level += video.segment;
        let is_complete = self.is_complete();
        // With a full buffer, waiting for more would be endless.
        let excess = (self.level + video.segment).saturating_sub(player.max_buffer);
        let needed = match self.state {
            State::Starting => player.start_after,
            _ => player.resume_after,
        };
        if self.level >= needed || is_complete || !excess.is_zero() {
            match self.state {
                State::Starting => self.outcome.startup = Some(now.since(self.begins)),
                State::Stalled(since) => self.outcome.rebuffering += now.since(since),
                State::Playing => {}
            }
            self.state = State::Playing;
        }
        (!is_complete).then_some(now + excess)
    }

    /// Plays until `now`. An empty buffer stalls playback.
    fn play(&mut self, now: Timestamp) {
        let elapsed = now.since(self.at);
        if self.state == State::Playing {
            if elapsed > self.level && !self.is_complete() {
                self.state = State::Stalled(self.at + self.level);
                self.outcome.rebufferings += 1;
            }
            self.level = self.level.saturating_sub(elapsed);
        }
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A player of five segments of 2 s at 100 kbps (25,000 B).
    fn player(start_s: u32, resume_s: u32, max_s: u32) -> Playback {
        let ladder = Ladder::new(vec![Rate::from_kbps(100)]).expect("valid");
        let video = Video { ladder, segment: SECOND * 2, segments: 5, variation: 0.0, seed: 1 };
        let player = DashPlayer {
            adaptation: Adaptation::Throughput,
            start_after: SECOND * start_s,
            resume_after: SECOND * resume_s,
            max_buffer: SECOND * max_s,
        };
        Playback::new(Dash { video, player }, Timestamp::ZERO)
    }

    /// Downloads all segments, each in its time in seconds. Returns the times of all requests in
    /// seconds, and the outcome.
    fn played(mut player: Playback, downloads: [f64; 5]) -> (Vec<f64>, DashOutcome) {
        let (mut at, mut requests) = (Timestamp::ZERO, Vec::new());
        for download in downloads {
            requests.push(at.since(Timestamp::ZERO).as_secs_f64());
            player.ask(at);
            let end = at + Duration::from_secs_f64(download);
            at = player.take(end, 25_000).unwrap_or(end);
        }
        assert!(player.is_complete());
        (requests, player.outcome)
    }

    #[test]
    fn fast_downloads_fill_the_buffer_and_wait_for_room() {
        // Plays from 0.5 s on. After three segments 6 s are buffered less 1 s played: the fourth
        // fits in 6 s once another second is played.
        let (requests, outcome) = played(player(2, 2, 6), [0.5; 5]);
        assert_eq!(requests, [0.0, 0.5, 1.0, 2.5, 4.5]);
        assert_eq!(outcome.startup, Some(SECOND / 2));
        assert_eq!((outcome.rebufferings, outcome.rebuffering), (0, Duration::ZERO));
        assert_eq!(outcome.download_rate(), Some(Rate::from_kbps(400)));
        assert_eq!(outcome.switches(), 0);
    }

    #[test]
    fn slow_downloads_stall_playback_for_their_excess() {
        // Each download lasts 1 s longer than its segment. All but the first cost 1 s.
        let (_, outcome) = played(player(2, 2, 20), [3.0; 5]);
        assert_eq!(outcome.startup, Some(SECOND * 3));
        assert_eq!((outcome.rebufferings, outcome.rebuffering), (4, SECOND * 4));
    }

    #[test]
    fn a_segment_at_the_end_of_the_buffer_is_in_time() {
        let (_, outcome) = played(player(2, 2, 20), [2.0; 5]);
        assert_eq!((outcome.rebufferings, outcome.rebuffering), (0, Duration::ZERO));
    }

    #[test]
    fn thresholds_delay_the_start_and_the_resumption() {
        // Starts at 6 s with 4 s, stalls at 10 s, has 2 s at 11 s, and resumes with 4 s at 14 s.
        let (_, outcome) = played(player(4, 4, 20), [3.0, 3.0, 5.0, 3.0, 3.0]);
        assert_eq!(outcome.startup, Some(SECOND * 6));
        assert_eq!((outcome.rebufferings, outcome.rebuffering), (1, SECOND * 4));
        // Resumes with 2 s at 11 s, stalls from 13 s to 14 s, and from 16 s to the last segment.
        let (_, outcome) = played(player(4, 2, 20), [3.0, 3.0, 5.0, 3.0, 3.0]);
        assert_eq!((outcome.rebufferings, outcome.rebuffering), (3, SECOND * 3));
        // Stalls at 14 s. At 15 s the last segment arrives, which needs no threshold.
        let (_, outcome) = played(player(4, 4, 20), [3.0; 5]);
        assert_eq!((outcome.rebufferings, outcome.rebuffering), (1, SECOND));
    }

    #[test]
    fn a_full_buffer_starts_playback_before_its_threshold() {
        let (requests, outcome) = played(player(5, 5, 5), [1.0; 5]);
        assert_eq!(outcome.startup, Some(SECOND * 2), "4 s buffered, no room for a third segment");
        assert_eq!(requests, [0.0, 1.0, 3.0, 5.0, 7.0]);
    }

    #[test]
    fn the_wait_after_the_last_segment_is_no_rebuffering() {
        let mut player = player(2, 2, 20);
        for second in 0..5 {
            player.ask(Timestamp::from_secs(second));
            let next = player.take(Timestamp::from_secs(second + 1), 25_000);
            assert_eq!(next.is_none(), second == 4);
        }
        player.play(Timestamp::from_secs(100));
        assert_eq!((player.outcome.rebufferings, player.level), (0, Duration::ZERO));
    }
}
