//! The record columns of a session that AutoPlex needs.

use groups::Arm;
use records::Record;
use units::Rate;

/// AutoPlex columns of a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct AutoPlexColumns {
    /// The session's arm; `None` without AutoPlex.
    pub arm: Option<Arm>,
    /// The lowest cap applied to the session.
    pub cap: Option<Rate>,
    /// The stream's bitrate.
    pub bitrate: Option<Rate>,
}

impl AutoPlexColumns {
    pub(super) fn write_to(self, record: &mut Record) {
        let columns = &mut record.autoplex;
        columns.autoplex = self.arm.map(|arm| arm.to_string());
        columns.cap_mbps = self.cap.map(Rate::as_mbps_f64);
        columns.stream_mbps = self.bitrate.map(Rate::as_mbps_f64);
    }
}
