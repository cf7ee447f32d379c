//! Measures a view: arrival times, and playback with different buffers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use media::{Kind, Role, Tag, flv};
use qoe::{FrameKind, Player, Policy};
use units::Timestamp;

use super::client::ConnectStage;
use super::report::{PolicyPlayback, ViewEnd, WatchReport};
use super::target::Form;

/// Largest accepted FLV tag: the format's limit.
const MAX_TAG: usize = flv::MAX_PAYLOAD;

/// A view under way. Times count from just before the client's first packet.
#[derive(Debug)]
pub(super) struct Meter {
    start: Instant,
    report: WatchReport,
    /// When the last byte of a body came.
    last: Duration,
    reader: flv::Reader,
    has_video: bool,
    players: Vec<(Policy, Player)>,
}

impl Meter {
    /// A view of `url` by the preset players, and by `own` if it is not a preset.
    pub(super) fn new(url: &str, own: Policy) -> Self {
        let mut policies = Policy::PRESETS.map(|(_, policy)| policy).to_vec();
        if !policies.contains(&own) {
            policies.push(own);
        }
        let player = |policy| (policy, Player::new(policy, Timestamp::ZERO));
        Self {
            start: Instant::now(),
            report: WatchReport { url: url.to_owned(), ..WatchReport::default() },
            last: Duration::ZERO,
            reader: flv::Reader::new(MAX_TAG),
            has_video: false,
            players: policies.into_iter().map(player).collect(),
        }
    }

    /// The time of the players.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.start.elapsed()
    }

    pub(super) fn reached(&mut self, stage: ConnectStage) {
        let now = self.start.elapsed();
        match stage {
            ConnectStage::Requested => self.report.requested = now,
            ConnectStage::Connected { resumed, early_data } => {
                self.report.connected = now;
                self.report.resumed = resumed;
                self.report.early_data = early_data;
            }
        }
    }

    pub(super) fn status(&mut self, status: http::StatusCode) {
        self.report.status = Some(status);
    }

    /// A part of a body arrived.
    pub(super) fn bytes(&mut self, bytes: usize) {
        let (now, report) = (self.start.elapsed(), &mut self.report);
        if report.first_byte.is_some() {
            report.longest_gap = report.longest_gap.max(now.saturating_sub(self.last));
        }
        report.first_byte.get_or_insert(now);
        self.last = now;
        report.bytes += bytes as u64;
    }

    /// A part of an FLV body arrived.
    ///
    /// # Errors
    /// It is no FLV.
    pub(super) fn flv(&mut self, bytes: &[u8]) -> Result<(), flv::Error> {
        self.bytes(bytes.len());
        let result = self.reader.read(bytes);
        self.has_video |= self.reader.kinds().is_some_and(|(_, video)| video);
        while let Some(tag) = self.reader.next_tag() {
            self.tag(&tag);
        }
        result
    }

    /// Takes the tags of an HLS segment at the arrival of its last byte.
    pub(super) fn segment(&mut self, tags: &[Tag]) {
        self.has_video |= tags.iter().any(|tag| tag.kind() == Kind::Video);
        for tag in tags {
            self.tag(tag);
        }
    }

    fn tag(&mut self, tag: &Tag) {
        self.report.tags += 1;
        let kind = match tag.role() {
            Role::KeyFrame => FrameKind::Key,
            Role::InterFrame => FrameKind::Dependent,
            Role::AudioFrame if self.has_video => FrameKind::Dependent,
            Role::AudioFrame => FrameKind::Key,
            _ => return,
        };
        self.report.key_frames += u64::from(tag.role() == Role::KeyFrame);
        let now = self.now();
        for (_, player) in &mut self.players {
            player.on_media(now, tag.timestamp(), kind);
        }
    }

    /// A report of the player was taken by the server.
    pub(super) fn reported(&mut self) {
        self.report.beacons += 1;
    }

    /// Ends the view. Players still play their buffer after the stream's end.
    pub(super) fn end(&mut self, end: ViewEnd) {
        if end == ViewEnd::Complete {
            let now = self.now();
            for (_, player) in &mut self.players {
                player.on_end(now);
            }
        }
        self.report.end = Some(end);
        self.report.duration = self.start.elapsed();
    }

    /// Measurements of the view until now, or until its end.
    pub(super) fn report(&mut self, form: Form, transport: quinn::ConnectionStats) -> WatchReport {
        let now = self.now();
        if self.report.end.is_none() {
            self.report.duration = self.start.elapsed();
        }
        let until = match self.report.end {
            Some(ViewEnd::Complete) => Timestamp::MAX,
            Some(_) => Timestamp::ZERO + self.report.duration,
            None => now,
        };
        let mut report = self.report.clone();
        report.transport = transport;
        if form != Form::Bytes {
            let seen = |(policy, player): &mut (Policy, Player)| PolicyPlayback {
                policy: *policy,
                seen: player.report(until),
            };
            report.players = self.players.iter_mut().map(seen).collect();
        }
        report
    }
}

/// Locks the meter. No holder panics or waits.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(kind: Kind, timestamp: u32, payload: &[u8]) -> Tag {
        Tag::new(kind, timestamp, payload).expect("short")
    }

    fn fresh() -> Meter {
        Meter::new("u", Policy::LOW_LATENCY)
    }

    #[test]
    fn a_custom_player_plays_beside_the_presets() {
        let own = "buffer:300ms".parse().expect("a player");
        let policies = |own| {
            let report = seen(&mut Meter::new("u", own));
            report.players.iter().map(|player| player.policy.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(policies(own), ["low-latency", "mobile", "cautious", "buffer:300ms"]);
        assert_eq!(policies(Policy::MOBILE).len(), 3);
    }

    fn seen(meter: &mut Meter) -> WatchReport {
        meter.report(Form::Flv, quinn::ConnectionStats::default())
    }

    #[test]
    fn audio_alone_starts_a_player_unless_video_is_announced() {
        let sound = tag(Kind::Audio, 0, &[0xaf, 1, 0]);
        let mut body = flv::file_header(true, false).to_vec();
        body.extend_from_slice(sound.bytes());
        let mut meter = fresh();
        meter.flv(&body).expect("FLV");
        assert!(seen(&mut meter).players[0].seen.first_frame.is_some());
        body[4] |= 1;
        let mut meter = fresh();
        meter.flv(&body).expect("FLV");
        let report = seen(&mut meter);
        assert_eq!((report.players[0].seen.first_frame, report.tags), (None, 1));
        meter.segment(&[tag(Kind::Video, 40, &[0x17, 1, 0, 0, 0])]);
        let report = seen(&mut meter);
        assert!(report.players[0].seen.first_frame.is_some() && report.key_frames == 1);
    }

    #[test]
    fn the_buffer_is_played_after_a_clean_end_only() {
        let mut meter = fresh();
        let key = tag(Kind::Video, 0, &[0x17, 1, 0, 0, 0]);
        let frames = (1..=100).map(|k| tag(Kind::Video, k * 40, &[0x27, 1, 0, 0, 0]));
        meter.segment(&[key].into_iter().chain(frames).collect::<Vec<_>>());
        let mut cut = Meter { players: meter.players.clone(), ..fresh() };
        meter.end(ViewEnd::Complete);
        let report = seen(&mut meter);
        // The low-latency player plays 3.2 s of the 4 s at 120 %.
        let played = report.players.iter().map(|player| player.seen.played.as_millis());
        assert!(played.eq([3_466, 4_000, 4_000]), "{report}");
        cut.end(ViewEnd::Time);
        assert!(seen(&mut cut).players.iter().all(|player| player.seen.played.as_millis() < 500));
    }

    #[test]
    fn malformed_flv_is_an_error() {
        assert_eq!(fresh().flv(b"<!doctype html>"), Err(flv::Error::Signature));
    }
}
