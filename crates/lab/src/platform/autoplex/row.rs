//! What is kept of a session under a way to hold it: a line of a table that a stopped run goes on from.

use groups::Arm;
use records::Record;

use crate::platform::session::Session;

macro_rules! row {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty,)+) => {
        /// A session.
        #[derive(Clone, Copy, PartialEq, Debug, Default)]
        pub(super) struct Row {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Row {
            /// The names of the columns.
            pub(super) const HEADER: &[&str] = &[$(stringify!($name),)+];

            pub(super) fn line(&self) -> String {
                [$(self.$name.to_string(),)+].join(",")
            }

            pub(super) fn parse(line: &str) -> Option<Self> {
                let mut cells = line.split(',');
                let row = Self { $($name: cells.next()?.parse().ok()?,)+ };
                cells.next().is_none().then_some(row)
            }
        }
    };
}

row! {
    /// The session's number.
    session: u32,
    /// Of the day.
    period: u32,
    /// Its place by size.
    group: u32,
    /// Place in [`Arm::ALL`].
    arm: usize,
    /// The path's rate.
    rate_mbps: f64,
    /// The stream's rate.
    bitrate_mbps: f64,
    /// The smallest rate that it was held to; infinite if to none.
    cap_mbps: f64,
    /// First transmissions.
    packets: i64,
    /// First copies of lost data.
    retransmissions: i64,
    /// Of media.
    goodput_mbps: f64,
    /// Smoothed, at the end.
    rtt_ms: f64,
    /// Not a number where no picture came.
    first_frame_ms: f64,
    /// By the player, as all that follows.
    played_s: f64,
    /// How many.
    freezes: i64,
    /// How long.
    frozen_s: f64,
    /// Frames that were due.
    frames: i64,
    /// Those later than 400 ms.
    late_frames: i64,
    /// Media that the viewer was too slow for.
    skipped_ms: i64,
    /// Of the session.
    duration_s: f64,
}

impl Row {
    pub(super) fn new(session: &Session, period: u32, arm: Arm, record: &Record) -> Self {
        Self {
            session: session.number,
            period,
            group: session.viewer.group,
            arm: arm as usize,
            rate_mbps: session.rate_mbps,
            bitrate_mbps: session.bitrate_mbps,
            cap_mbps: record.cap_mbps.unwrap_or(f64::INFINITY),
            packets: record.first_transmissions.unwrap_or(0),
            retransmissions: record.retransmissions.unwrap_or(0),
            goodput_mbps: record.goodput_mbps.unwrap_or(0.0),
            rtt_ms: record.rtt_ms.unwrap_or(f64::NAN),
            first_frame_ms: record.player_first_frame_ms.unwrap_or(f64::NAN),
            played_s: record.player_played_s.unwrap_or(0.0),
            freezes: record.player_freezes.unwrap_or(0),
            frozen_s: record.player_freeze_s.unwrap_or(0.0),
            frames: record.player_frames.unwrap_or(0),
            late_frames: record.player_late_frames.unwrap_or(0),
            skipped_ms: record.skipped_ms.unwrap_or(0),
            duration_s: record.duration_s.unwrap_or(0.0),
        }
    }

    /// Retransmissions ÷ first transmissions; `None` of a session without any.
    pub(super) fn retransmission(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.retransmissions as f64 / self.packets as f64)
    }

    /// Whether it was held to less than its stream has.
    pub(super) fn is_starved(&self) -> bool {
        self.cap_mbps < self.bitrate_mbps
    }
}
