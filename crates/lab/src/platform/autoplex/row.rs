//! Results of a session under a policy: one line of the table that an interrupted run resumes from.

use groups::Arm;

use super::paper::GoodputReading;
use crate::platform::run::CappedSession;
use crate::platform::session::Session;

macro_rules! row {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty,)+) => {
        /// Results of one session.
        #[derive(Clone, Copy, PartialEq, Debug, Default)]
        pub(super) struct GroupRow {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl GroupRow {
            /// Column names.
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
    /// Session number.
    session: u32,
    /// Period of the day.
    period: u32,
    /// Group, by size rank.
    group: u32,
    /// Index in [`Arm::ALL`].
    arm: usize,
    /// Rate of the path.
    rate_mbps: f64,
    /// Rate of the stream.
    bitrate_mbps: f64,
    /// Lowest cap applied; infinite if uncapped.
    cap_mbps: f64,
    /// First transmissions.
    packets: i64,
    /// First copies of lost data.
    retransmissions: i64,
    /// Goodput of media over the session.
    goodput_mbps: f64,
    /// Goodput of media over the time with data to send; NaN if it sent nothing.
    sending_mbps: f64,
    /// Final smoothed round-trip time.
    rtt_ms: f64,
    /// NaN if no picture arrived.
    first_frame_ms: f64,
    /// Playback time. From here on, values are the player's.
    played_s: f64,
    /// Number of freezes.
    freezes: i64,
    /// Total duration of freezes.
    frozen_s: f64,
    /// Frames due.
    frames: i64,
    /// Frames later than 400 ms.
    late_frames: i64,
    /// Media skipped because the viewer fell behind.
    skipped_ms: i64,
    /// Duration of the session.
    duration_s: f64,
    /// Whether the delivered rate was below the stream's for 10 s.
    is_starved: bool,
}

impl GroupRow {
    pub(super) fn new(session: &Session, period: u32, arm: Arm, capped: &CappedSession) -> Self {
        let record = &capped.record;
        Self {
            session: session.number,
            period,
            group: session.viewer.group,
            arm: arm as usize,
            rate_mbps: session.rate_mbps,
            bitrate_mbps: session.bitrate_mbps,
            cap_mbps: record.autoplex.cap_mbps.unwrap_or(f64::INFINITY),
            packets: record.recovery.first_transmissions.unwrap_or(0),
            retransmissions: record.recovery.retransmissions.unwrap_or(0),
            goodput_mbps: record.delivery.goodput_mbps.unwrap_or(0.0),
            sending_mbps: GoodputReading::Sending.of(record).unwrap_or(f64::NAN),
            rtt_ms: record.path.rtt_ms.unwrap_or(f64::NAN),
            first_frame_ms: record.player.player_first_frame_ms.unwrap_or(f64::NAN),
            played_s: record.player.player_played_s.unwrap_or(0.0),
            freezes: record.player.player_freezes.unwrap_or(0),
            frozen_s: record.player.player_freeze_s.unwrap_or(0.0),
            frames: record.player.player_frames.unwrap_or(0),
            late_frames: record.player.player_late_frames.unwrap_or(0),
            skipped_ms: record.delivery.skipped_ms.unwrap_or(0),
            duration_s: record.session.duration_s.unwrap_or(0.0),
            is_starved: capped.is_starved,
        }
    }

    /// Returns retransmissions ÷ first transmissions; `None` without first transmissions.
    pub(super) fn retransmission(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.retransmissions as f64 / self.packets as f64)
    }

    /// Returns goodput ÷ round-trip time in Mbps/s; `None` without either.
    pub(super) fn goodput_per_rtt(&self, reading: GoodputReading) -> Option<f64> {
        let mbps = match reading {
            GoodputReading::Session => self.goodput_mbps,
            GoodputReading::Sending => self.sending_mbps,
        };
        Some(mbps / (self.rtt_ms * 1e-3)).filter(|value| value.is_finite())
    }
}
