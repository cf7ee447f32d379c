//! FLV tags for access units: legacy tags for H.264, AAC and MP3, and enhanced tags with a FourCC
//! for other codecs (Veovera's Enhanced RTMP v2).

use bytes::BufMut;

use crate::codec::Codec;
use crate::flv::Tag;
use crate::fmp4::read::CodecConfig;

/// First byte of an AAC tag: always 44.1 kHz, 16 bits, stereo, regardless of content (annex
/// E.4.2.1).
const AAC: u8 = 0xaf;
const MP3: u8 = 0x2f;
const ENHANCED_AUDIO: u8 = 0x90;
const CODED_FRAMES: u8 = 1;

/// Returns the sequence header of a track, with a timestamp in milliseconds. `None` if the codec
/// has none.
pub(super) fn header(config: &CodecConfig, timestamp: u32) -> Option<Tag> {
    let (head, record): (&[u8], _) = match config {
        CodecConfig::Video(video) => match video.codec {
            Codec::Hevc => (b"\x90hvc1", &video.record),
            Codec::Av1 => (b"\x90av01", &video.record),
            _ => (&[0x17, 0, 0, 0, 0], &video.record),
        },
        CodecConfig::Audio(audio) if audio.codec == Codec::Opus => (b"\x90Opus", &audio.record),
        CodecConfig::Audio(audio) => (&[AAC, 0], &audio.record),
        CodecConfig::Mp3 => return None,
    };
    let mut buffer = Tag::buffer(head.len() + record.len());
    buffer.put_slice(head);
    buffer.put_slice(record);
    Tag::assemble(buffer, config.kind(), timestamp)
}

/// Returns the tag of a frame, with both times in milliseconds. `None` if it is too long.
pub(super) fn frame(
    config: &CodecConfig,
    data: &[u8],
    sync: bool,
    timestamp: u32,
    composition: i64,
) -> Option<Tag> {
    let mut buffer = Tag::buffer(8 + data.len());
    let time = (composition.clamp(-0x80_0000, 0x7f_ffff) as u32).to_be_bytes();
    let frame_type = if sync { 1 } else { 2 };
    match config {
        CodecConfig::Video(video) => match video.codec {
            Codec::Av1 => {
                buffer.put_u8(0x80 | frame_type << 4 | CODED_FRAMES);
                buffer.put_slice(b"av01");
            }
            Codec::Hevc => {
                buffer.put_u8(0x80 | frame_type << 4 | CODED_FRAMES);
                buffer.put_slice(b"hvc1");
                buffer.put_slice(&time[1..]);
            }
            _ => {
                buffer.put_slice(&[frame_type << 4 | 7, 1]);
                buffer.put_slice(&time[1..]);
            }
        },
        CodecConfig::Audio(audio) if audio.codec == Codec::Opus => {
            buffer.put_u8(ENHANCED_AUDIO | CODED_FRAMES);
            buffer.put_slice(b"Opus");
        }
        CodecConfig::Audio(_) => buffer.put_slice(&[AAC, 1]),
        CodecConfig::Mp3 => buffer.put_u8(MP3),
    }
    buffer.put_slice(data);
    Tag::assemble(buffer, config.kind(), timestamp)
}
