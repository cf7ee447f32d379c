//! Measured sessions: their columns in files and queries, and the bounds of their values.
//!
//! Sums of queries fit 64 bits if a group has fewer than 80 million sessions in a window. The
//! largest summands are below 1.1e11: bytes in flight ([`MAX_BYTES`]) and rates ([`MAX_KBPS`])
//! times 100, and squares of first-frame milliseconds and of seconds played.

use groups::Arm;
use groups::select::Sample;
use records::Column;

use crate::integers::Integers;

/// Declares the columns of a sessions file in order: name, value, and the columns of records that
/// the value comes from.
macro_rules! columns {
    ($($name:ident: $($field:ident).+ from [$($source:ident),*],)+) => {
        const COUNT: usize = [$(stringify!($name)),+].len();

        /// Columns of a sessions file. Two are renamed, because `group` and `window` are SQL
        /// keywords.
        pub const COLUMNS: [&str; COUNT] = [$(stringify!($name)),+];

        /// Columns of records that each column comes from.
        pub const SOURCES: [&[Column]; COUNT] = [$(&[$(Column::$source),*]),+];

        impl Measured {
            /// Returns the values in the order of [`COLUMNS`].
            pub fn values(&self) -> [i64; COUNT] {
                [$(self.$($field).+),+]
            }
        }
    };
}

columns! {
    user_group: sample.group from [group, prefix],
    session: sample.session from [],
    prefix: sample.prefix from [prefix],
    ended: sample.ended from [started_ms, duration_s],
    explorer: sample.explorer from [autoplex],
    packets: sample.packets from [first_transmissions],
    retransmitted: sample.retransmitted from [retransmissions],
    goodput_kbps: sample.goodput_kbps from [goodput_mbps],
    rtt_us: sample.rtt_us from [rtt_ms],
    in_flight: sample.in_flight from [max_in_flight],
    cwnd: sample.window from [max_window],
    open_kbps: sample.open_kbps from [open_rate_mbps],
    arm: arm from [autoplex],
    freezes: freezes from [player_freezes],
    played_ms: played_ms from [player_played_s],
    frozen_ms: frozen_ms from [player_freeze_s],
    first_frame_ms: first_frame_ms from [player_first_frame_ms],
}

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

/// Collects sessions into a table, ordered by group: queries take an eighth less time if the
/// sessions of a group are together.
pub fn table(rows: &[Measured]) -> Integers {
    let mut sorted: Vec<&Measured> = rows.iter().collect();
    sorted.sort_by_key(|row| row.sample.group);
    let mut table = Integers::empty(&COLUMNS);
    sorted.iter().for_each(|row| table.push(&row.values()));
    table
}
