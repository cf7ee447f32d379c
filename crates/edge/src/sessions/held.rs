//! What is known of a session's stream and of how AutoPlex holds it.

use groups::Arm;
use records::Record;
use units::Rate;

/// The columns of the record that AutoPlex needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// The session's part; `None` where AutoPlex is off.
    pub arm: Option<Arm>,
    /// The smallest rate that it was held to.
    pub cap: Option<Rate>,
    /// The rate at which the stream was published.
    pub bitrate: Option<Rate>,
}

impl Held {
    pub(super) fn write_to(self, record: &mut Record) {
        let columns = &mut record.autoplex;
        columns.autoplex = self.arm.map(|arm| arm.to_string());
        columns.cap_mbps = self.cap.map(Rate::as_mbps_f64);
        columns.stream_mbps = self.bitrate.map(Rate::as_mbps_f64);
    }
}
