//! A measured session: the integers that queries see, their order in files, and their bounds.
//!
//! No sum of a query can overflow 64 bits as long as a group has fewer than 80 million sessions in a window: the largest
//! summands are bytes in flight ([`MAX_BYTES`]) and rates ([`MAX_KBPS`]) times 100, and squares of milliseconds of the
//! first frame and of seconds played, all below 1.1e11.

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

/// The largest rate: 100 Gbit/s.
pub const MAX_KBPS: f64 = 1e8;
/// The largest round-trip time: a minute.
pub const MAX_RTT_MS: f64 = 60_000.0;
/// Most bytes in flight, and the largest window: what a table can say.
pub const MAX_BYTES: i64 = 1 << 30;
/// Most packets, and retransmissions.
pub const MAX_PACKETS: i64 = 1_000_000_000;
/// The longest session: a day.
pub const MAX_SECONDS: f64 = 86_400.0;
/// The latest first frame.
pub const MAX_FIRST_FRAME_MS: f64 = 60_000.0;

/// The number of a session's part in AutoPlex: its place among [`Arm::ALL`] from 1; 0 for none.
pub fn arm(name: Option<&str>) -> i64 {
    Arm::ALL.iter().position(|arm| Some(arm.name()) == name).map_or(0, |place| place as i64 + 1)
}

/// A measured session. What the player did not say, or nobody can believe, is -1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// As decisions see it.
    pub sample: Sample,
    /// The number of its part in AutoPlex: see [`arm`].
    pub arm: i64,
    /// Freezes; known if `played_ms` is.
    pub freezes: i64,
    /// Milliseconds played.
    pub played_ms: i64,
    /// Milliseconds frozen; known if `played_ms` is.
    pub frozen_ms: i64,
    /// The player's first-frame time in milliseconds.
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

/// Rows as a table.
pub fn table<'a>(rows: impl IntoIterator<Item = &'a Measured>) -> Integers {
    let mut table = Integers::empty(&COLUMNS);
    rows.into_iter().for_each(|row| table.push(&row.values()));
    table
}
