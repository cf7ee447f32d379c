//! Measured sessions: their columns in files and queries, and the bounds of their values.
//!
//! Sums of queries fit 64 bits if a group has fewer than 80 million sessions in a window. The
//! largest summands are below 1.1e11: bytes in flight ([`MAX_BYTES`]) and rates ([`MAX_KBPS`])
//! times 100, and squares of first-frame milliseconds and of seconds played.

use groups::Arm;
use groups::select::Sample;

use crate::integers::Integers;

/// Columns of a sessions file. Two are renamed, because `group` and `window` are SQL keywords.
pub const COLUMNS: [&str; 17] = [
    "user_group",
    "session",
    "prefix",
    "ended",
    "explorer",
    "packets",
    "retransmitted",
    "goodput_kbps",
    "rtt_us",
    "in_flight",
    "cwnd",
    "open_kbps",
    "arm",
    "freezes",
    "played_ms",
    "frozen_ms",
    "first_frame_ms",
];

/// Maximum rate: 100 Gbit/s.
pub const MAX_KBPS: f64 = 1e8;
/// Maximum round-trip time: 1 min.
pub const MAX_RTT_MS: f64 = 60_000.0;
/// Maximum bytes in flight and congestion window: the limit of a table.
pub const MAX_BYTES: i64 = 1 << 30;
/// Maximum packets, and retransmissions.
pub const MAX_PACKETS: i64 = 1_000_000_000;
/// Maximum duration of a session: one day.
pub const MAX_SECONDS: f64 = 86_400.0;
/// Maximum first-frame time.
pub const MAX_FIRST_FRAME_MS: f64 = 60_000.0;

/// Returns the number of a session's arm: its position in [`Arm::ALL`] from 1, or 0 without an arm.
pub fn arm(name: Option<&str>) -> i64 {
    Arm::ALL.iter().position(|arm| Some(arm.name()) == name).map_or(0, |index| index as i64 + 1)
}

/// A measured session. Missing and implausible values of the player are -1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Input of decisions.
    pub sample: Sample,
    /// Number of the arm: see [`arm`].
    pub arm: i64,
    /// Freezes; valid if `played_ms` is.
    pub freezes: i64,
    /// Time played in milliseconds.
    pub played_ms: i64,
    /// Time frozen in milliseconds; valid if `played_ms` is.
    pub frozen_ms: i64,
    /// First-frame time in milliseconds.
    pub first_frame_ms: i64,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            sample: Sample::default(),
            arm: 0,
            freezes: -1,
            played_ms: -1,
            frozen_ms: -1,
            first_frame_ms: -1,
        }
    }
}

impl Measured {
    /// Returns the values in the order of [`COLUMNS`].
    pub fn values(&self) -> [i64; 17] {
        let Sample { group, session, prefix, ended, explorer, packets, retransmitted, .. } =
            self.sample;
        let Sample { goodput_kbps, rtt_us, in_flight, window, open_kbps, .. } = self.sample;
        [
            group,
            session,
            prefix,
            ended,
            explorer,
            packets,
            retransmitted,
            goodput_kbps,
            rtt_us,
            in_flight,
            window,
            open_kbps,
            self.arm,
            self.freezes,
            self.played_ms,
            self.frozen_ms,
            self.first_frame_ms,
        ]
    }
}

/// Collects sessions into a table.
pub fn table<'a>(rows: impl IntoIterator<Item = &'a Measured>) -> Integers {
    let mut table = Integers::empty(&COLUMNS);
    rows.into_iter().for_each(|row| table.push(&row.values()));
    table
}
