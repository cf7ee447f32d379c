//! Writer and reader of MPEG transport streams, in whole HLS segments.
//!
//! Rec. ITU-T H.222.0 (ISO/IEC 13818-1), sections 2.4.3 (packets and PES) and 2.4.4 (tables), and
//! RFC 8216, section 3.2: one program, and tables at the start of each segment. HLS needs only a
//! small part of the standard, and general-purpose crates copy the payload per packet.

mod packed;
mod packets;
pub mod read;
mod sets;
mod tables;
pub mod write;

pub use read::SegmentReader;
pub use write::SegmentWriter;

/// Size of a packet, in bytes.
pub const PACKET_LEN: usize = 188;
/// Units per second of PTS, DTS and the PCR base.
pub const TIMESCALE: u32 = 90_000;

const SYNC_BYTE: u8 = 0x47;
const PAT_PID: u16 = 0;

/// stream_type (table 2-34).
mod stream_type {
    pub(super) const MPEG1_AUDIO: u8 = 0x03;
    pub(super) const MPEG2_AUDIO: u8 = 0x04;
    pub(super) const ADTS: u8 = 0x0f;
    pub(super) const AVC: u8 = 0x1b;
    pub(super) const HEVC: u8 = 0x24;
    /// Audio and video types that FLV cannot carry. The last three are defined by ATSC A/53 and
    /// Blu-ray.
    pub(super) const UNSUPPORTED: [(u8, &str); 8] = [
        (0x01, "MPEG-1 video"),
        (0x02, "MPEG-2 video"),
        (0x10, "MPEG-4 part 2 video"),
        (0x11, "LATM AAC"),
        (0x33, "VVC"),
        (0x81, "AC-3"),
        (0x82, "DTS"),
        (0x87, "E-AC-3"),
    ];
}

/// Returns the CRC of annex A, which is 0 for a section that includes its CRC.
fn crc_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests;
