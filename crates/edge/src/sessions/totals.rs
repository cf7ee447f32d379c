//! Sums and distributions over many sessions by cohort, protocol and format, for metrics and
//! the dashboard.

use std::sync::atomic::Ordering;
use std::time::Duration;

use recovery::Latencies;

use records::Record;

use super::player::Words;
use super::{Opening, Session};
use crate::viewer::Protocol;

/// The key that sessions are summed under. Few values each, and no client can add one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The cohort; empty where none can act.
    pub cohort: String,
    /// HTTP version, or RTMP.
    pub protocol: Protocol,
    /// "flv", "hls" or "rtmp".
    pub format: &'static str,
}

impl From<&Opening> for Key {
    fn from(opening: &Opening) -> Self {
        let Opening { cohort, protocol, format, .. } = opening;
        Self { cohort: cohort.clone(), protocol: *protocol, format }
    }
}

/// Sums over sessions.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Sessions that are open.
    pub open: u64,
    /// Sessions altogether.
    pub sessions: u64,
    /// Sessions on a resumed connection.
    pub resumed: u64,
    /// Sessions that began with 0-RTT data.
    pub early_data: u64,
    /// Bytes of media handed to transports.
    pub bytes: u64,
    /// Skips of viewers who were too slow.
    pub skips: u64,
    /// Pictures that no other needs and that viewers did not get who were behind.
    pub thinned: u64,
    /// Media skipped.
    pub skipped: Duration,
    /// From request to acknowledgement of the first frame.
    pub first_frames: Latencies,
    /// Loss recovery's counters.
    pub recovery: recovery::Totals,
    /// Recovery latencies.
    pub latencies: Latencies,
    /// Players that reported.
    pub players: u64,
    /// Seconds played, by the players.
    pub played_s: f64,
    /// Freezes, by the players.
    pub freezes: u64,
    /// Seconds frozen, by the players.
    pub freeze_s: f64,
    /// The players' own first-frame times.
    pub player_first_frames: Latencies,
}

impl Totals {
    /// Adds a session.
    pub(super) fn add(&mut self, session: &Session) {
        self.sessions += 1;
        self.bytes += session.bytes.load(Ordering::Relaxed);
        self.skips += session.skips.load(Ordering::Relaxed);
        self.thinned += session.thinned.load(Ordering::Relaxed);
        self.skipped += Duration::from_millis(session.skipped_ms.load(Ordering::Relaxed));
        let state = session.state();
        let t = &state.transport;
        self.resumed += u64::from(t.resumed);
        self.early_data += u64::from(t.early_data);
        self.recovery.add(&t.totals);
        self.latencies.merge(&t.latencies);
        state.first_frame.into_iter().for_each(|time| self.first_frames.add(time));
        state.player.words().into_iter().for_each(|words| self.add_player(words));
    }

    /// Adds the sums of others.
    pub fn merge(&mut self, other: &Self) {
        self.open += other.open;
        self.sessions += other.sessions;
        self.resumed += other.resumed;
        self.early_data += other.early_data;
        self.bytes += other.bytes;
        self.skips += other.skips;
        self.thinned += other.thinned;
        self.skipped += other.skipped;
        self.first_frames.merge(&other.first_frames);
        self.recovery.add(&other.recovery);
        self.latencies.merge(&other.latencies);
        self.players += other.players;
        self.played_s += other.played_s;
        self.freezes += other.freezes;
        self.freeze_s += other.freeze_s;
        self.player_first_frames.merge(&other.player_first_frames);
    }

    /// A player speaks again after its session was added with `record`.
    pub(super) fn on_last_words(&mut self, record: &Record, words: &Words) {
        let player = &record.player;
        if player.player_played_s.is_none() {
            return self.add_player(words);
        }
        let more = |now: f64, before: Option<f64>| (now - before.unwrap_or(0.0)).max(0.0);
        let freezes = player.player_freezes.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        self.played_s += more(words.played_s, player.player_played_s);
        self.freezes += words.freezes.saturating_sub(freezes);
        self.freeze_s += more(words.freeze_s, player.player_freeze_s);
    }

    fn add_player(&mut self, player: &Words) {
        self.players += 1;
        self.played_s += player.played_s;
        self.freezes += player.freezes;
        self.freeze_s += player.freeze_s;
        if let Some(ms) = player.first_frame_ms {
            self.player_first_frames.add(Duration::from_secs_f64(ms * 1e-3));
        }
    }
}
