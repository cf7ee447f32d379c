//! Events of a qlog.

use serde::Deserialize;

/// An event; all members are optional, because lines may be damaged or come from other programs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    pub time: Option<f64>,
    pub name: Option<String>,
    pub data: EventData,
    pub trace: Option<Header>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    common_fields: CommonFields,
}

impl Header {
    /// Start of the log in ms since 1970.
    pub(super) fn reference_time(&self) -> Option<f64> {
        self.common_fields.reference_time
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CommonFields {
    reference_time: Option<f64>,
}

/// Members of all events.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EventData {
    pub header: PacketHeader,
    pub frames: Vec<Frame>,
    pub trigger: Option<String>,
    pub min_rtt: Option<f64>,
    pub smoothed_rtt: Option<f64>,
    pub latest_rtt: Option<f64>,
    pub rtt_variance: Option<f64>,
    pub congestion_window: Option<f64>,
    pub bytes_in_flight: Option<f64>,
    pub rounds: Option<f64>,
    pub after: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PacketHeader {
    pub packet_type: String,
    pub packet_number: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Frame {
    pub frame_type: String,
    pub stream_id: Option<u64>,
    pub offset: Option<u64>,
    pub length: Option<u64>,
    pub acked_ranges: Vec<Vec<u64>>,
}
