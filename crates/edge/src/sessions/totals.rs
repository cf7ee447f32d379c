//! Sums and distributions over sessions by cohort, protocol and format, for metrics and the
//! dashboard.

use std::sync::atomic::Ordering;
use std::time::Duration;

use recovery::Latencies;

use records::Record;

use super::player::PlayerTotals;
use super::{Opening, Session};
use crate::viewer::Protocol;

/// Key of the sums. Each field has few values, and clients cannot add any.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The cohort; empty over TCP.
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
    /// Open sessions.
    pub open: u64,
    /// All sessions, open or ended.
    pub sessions: u64,
    /// Sessions on a resumed connection.
    pub resumed: u64,
    /// Sessions that began with 0-RTT data.
    pub early_data: u64,
    /// Bytes of media handed to transports.
    pub bytes: u64,
    /// Skips of slow viewers.
    pub skips: u64,
    /// Pictures without dependents dropped for viewers behind live.
    pub thinned: u64,
    /// Skipped media time.
    pub skipped: Duration,
    /// Time from the request to the acknowledgement of the first frame.
    pub first_frames: Latencies,
    /// Loss recovery's counters.
    pub recovery: recovery::Totals,
    /// Recovery latencies.
    pub latencies: Latencies,
    /// Players that reported.
    pub players: u64,
    /// Reported seconds played.
    pub played_s: f64,
    /// Reported freezes.
    pub freezes: u64,
    /// Reported seconds frozen.
    pub freeze_s: f64,
    /// Reported first-frame times.
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
        state.player.totals().into_iter().for_each(|player| self.add_player(player));
    }

    /// Adds other totals.
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

    /// Adds a report that arrived after its session was added with `record`.
    pub(super) fn add_late_report(&mut self, record: &Record, player: &PlayerTotals) {
        let before = &record.player;
        if before.player_played_s.is_none() {
            return self.add_player(player);
        }
        let more = |now: f64, old: Option<f64>| (now - old.unwrap_or(0.0)).max(0.0);
        let freezes = before.player_freezes.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        self.played_s += more(player.played_s, before.player_played_s);
        self.freezes += player.freezes.saturating_sub(freezes);
        self.freeze_s += more(player.freeze_s, before.player_freeze_s);
    }

    fn add_player(&mut self, player: &PlayerTotals) {
        self.players += 1;
        self.played_s += player.played_s;
        self.freezes += player.freezes;
        self.freeze_s += player.freeze_s;
        if let Some(ms) = player.first_frame_ms {
            self.player_first_frames.add(Duration::from_secs_f64(ms * 1e-3));
        }
    }
}
