//! MPEG transport streams as HLS uses them: a writer and a reader of whole segments.
//!
//! Rec. ITU-T H.222.0 (ISO/IEC 13818-1), sections 2.4.3 (packets and PES) and 2.4.4 (tables), and
//! RFC 8216, section 3.2: one program, each segment starting with its tables. Our own, because what
//! HLS needs of it is a page of tables, and general crates copy payload per packet.

mod packed;
mod packets;
pub mod read;
mod sets;
mod tables;
pub mod write;

pub use read::Reader;
pub use write::Writer;

/// Bytes of a packet.
pub const PACKET_LEN: usize = 188;
/// Units per second of PTS, DTS and the base of PCR.
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
    /// Sound and pictures that FLV cannot carry; the last three as ATSC A/53 and Blu-ray have them.
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

/// The CRC of annex A; 0 over a section with its CRC.
fn crc_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests;
