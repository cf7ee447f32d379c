//! Classification of audio and video tags by their first bytes: codec and role.
//!
//! Sources: Adobe's Flash Video File Format Specification 10.1, annex E.4 (AUDIODATA, VIDEODATA)
//! and Veovera's Enhanced RTMP v2 (ExAudioTagHeader, ExVideoTagHeader, FourCC). Codec ID 12 for
//! H.265 is not standardised, but common in Chinese encoders.

use core::fmt;

/// A codec in FLV.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Codec {
    /// H.264.
    Avc,
    /// H.265.
    Hevc,
    /// AV1.
    Av1,
    /// VP8.
    Vp8,
    /// VP9.
    Vp9,
    /// AAC.
    Aac,
    /// Opus.
    Opus,
    /// MP3.
    Mp3,
    /// FLAC.
    Flac,
    /// AC-3.
    Ac3,
    /// E-AC-3.
    Eac3,
    /// A legacy codec, by its 4-bit ID.
    Legacy(u8),
    /// An unsupported FourCC.
    FourCc([u8; 4]),
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Avc => "H.264",
            Self::Hevc => "H.265",
            Self::Av1 => "AV1",
            Self::Vp8 => "VP8",
            Self::Vp9 => "VP9",
            Self::Aac => "AAC",
            Self::Opus => "Opus",
            Self::Mp3 => "MP3",
            Self::Flac => "FLAC",
            Self::Ac3 => "AC-3",
            Self::Eac3 => "E-AC-3",
            Self::Legacy(id) => return write!(f, "FLV's codec {id}"),
            Self::FourCc(name) => return write!(f, "codec {}", name.escape_ascii()),
        })
    }
}

/// Role of a tag for joining viewers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Codec configuration, needed before the first frame and valid until the next one.
    SequenceHeader,
    /// A video frame at which playback can start.
    KeyFrame,
    /// Any other video frame.
    InterFrame,
    /// An audio frame.
    AudioFrame,
    /// `onMetaData`: needed by some players and valid until the next one.
    Metadata,
    /// End of sequence, commands and other tags without lasting effect.
    Other,
}

impl Role {
    /// Whether the tag is valid until the next one of its kind, so that joining viewers need it.
    pub const fn is_header(self) -> bool {
        matches!(self, Self::SequenceHeader | Self::Metadata)
    }
}

/// Codec and role declared in a tag's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// The codec; `None` if the payload is too short.
    pub codec: Option<Codec>,
    /// Role of the tag.
    pub role: Role,
    /// Offset of the codec data in the payload, after any composition time.
    pub data_at: usize,
    /// Offset from decoding to presentation, in milliseconds (24 bits, signed).
    pub composition_time: i32,
}

impl Class {
    const fn new(codec: Option<Codec>, role: Role, data_at: usize) -> Self {
        Self { codec, role, data_at, composition_time: 0 }
    }
}

/// Classifies a VIDEODATA payload. Truncated or unknown payloads are [`Role::Other`].
///
/// ```
/// use mendcast_media::codec::{self, Codec, Role};
///
/// // H.264 key frame with a composition time of 80 ms.
/// let class = codec::video(&[0x17, 1, 0, 0, 80]);
/// assert_eq!((class.codec, class.role), (Some(Codec::Avc), Role::KeyFrame));
/// assert_eq!(class.composition_time, 80);
/// ```
pub fn video(payload: &[u8]) -> Class {
    let Some(&first) = payload.first() else { return Class::new(None, Role::Other, 0) };
    if first & 0x80 != 0 {
        return enhanced_video(payload);
    }
    let codec = match first & 0x0f {
        7 => Codec::Avc,
        12 => Codec::Hevc,
        id => Codec::Legacy(id),
    };
    let frame = frame_role(first >> 4);
    if matches!(codec, Codec::Legacy(_)) {
        return Class::new(Some(codec), frame, 1);
    }
    match (payload.get(1), payload.get(2..5)) {
        (Some(0), Some(_)) => Class::new(Some(codec), Role::SequenceHeader, 5),
        (Some(1), Some(time)) => {
            Class { composition_time: signed_24(time), ..Class::new(Some(codec), frame, 5) }
        }
        _ => Class::new(Some(codec), Role::Other, payload.len().min(5)),
    }
}

/// Classifies an AUDIODATA payload. Truncated or unknown payloads are [`Role::Other`].
pub fn audio(payload: &[u8]) -> Class {
    let Some(&first) = payload.first() else { return Class::new(None, Role::Other, 0) };
    match first >> 4 {
        9 => enhanced_audio(payload),
        10 => match payload.get(1) {
            Some(0) => Class::new(Some(Codec::Aac), Role::SequenceHeader, 2),
            Some(1) => Class::new(Some(Codec::Aac), Role::AudioFrame, 2),
            _ => Class::new(Some(Codec::Aac), Role::Other, payload.len().min(2)),
        },
        2 | 14 => Class::new(Some(Codec::Mp3), Role::AudioFrame, 1),
        id => Class::new(Some(Codec::Legacy(id)), Role::AudioFrame, 1),
    }
}

/// Returns the role for FrameType of legacy and enhanced tags. A "generated key frame", reserved
/// for servers, is a key frame.
fn frame_role(frame_type: u8) -> Role {
    match frame_type {
        1 | 4 => Role::KeyFrame,
        2 | 3 => Role::InterFrame,
        _ => Role::Other,
    }
}

fn signed_24(bytes: &[u8]) -> i32 {
    let value = bytes.iter().fold(0i32, |value, byte| value << 8 | i32::from(*byte));
    (value << 8) >> 8
}

pub(crate) const SEQUENCE_START: u8 = 0;
pub(crate) const CODED_FRAMES: u8 = 1;
pub(crate) const SEQUENCE_END: u8 = 2;
pub(crate) const CODED_FRAMES_X: u8 = 3;
pub(crate) const MULTITRACK_AUDIO: u8 = 5;
pub(crate) const MULTITRACK_VIDEO: u8 = 6;
pub(crate) const MOD_EX: u8 = 7;
/// AvMultitrackType: a FourCC per track.
pub(crate) const MANY_CODECS: u8 = 2;

/// Header of an enhanced tag after its ModEx and multitrack headers.
struct Enhanced {
    packet: u8,
    codec: Option<Codec>,
    /// Offset after the FourCC; `None` for multitrack packets, which have headers per track.
    data_at: Option<usize>,
}

/// Returns the packet type of an enhanced tag after its ModEx headers, and the offset of the rest.
pub(crate) fn packet_type(payload: &[u8]) -> Option<(u8, usize)> {
    let mut packet = payload.first()? & 0x0f;
    let mut at = 1;
    // Each iteration consumes at least three bytes.
    while packet == MOD_EX {
        let mut size = usize::from(*payload.get(at)?) + 1;
        at += 1;
        if size == 256 {
            size = usize::from(u16::from_be_bytes(payload.get(at..at + 2)?.try_into().ok()?)) + 1;
            at += 2;
        }
        at += size;
        packet = payload.get(at)? & 0x0f;
        at += 1;
    }
    Some((packet, at))
}

fn enhanced(payload: &[u8], multitrack: u8) -> Option<Enhanced> {
    let (packet, at) = packet_type(payload)?;
    if packet != multitrack {
        let codec = four_cc(payload.get(at..at + 4)?.try_into().ok()?);
        return Some(Enhanced { packet, codec: Some(codec), data_at: Some(at + 4) });
    }
    let byte = payload.get(at)?;
    let (kind, packet) = (byte >> 4, byte & 0x0f);
    let codec = match kind {
        MANY_CODECS => None,
        _ => Some(four_cc(payload.get(at + 1..at + 5)?.try_into().ok()?)),
    };
    Some(Enhanced { packet, codec, data_at: None })
}

fn four_cc(name: [u8; 4]) -> Codec {
    match &name {
        b"avc1" => Codec::Avc,
        b"hvc1" => Codec::Hevc,
        b"av01" => Codec::Av1,
        b"vp08" => Codec::Vp8,
        b"vp09" => Codec::Vp9,
        b"mp4a" => Codec::Aac,
        b"Opus" => Codec::Opus,
        b".mp3" => Codec::Mp3,
        b"fLaC" => Codec::Flac,
        b"ac-3" => Codec::Ac3,
        b"ec-3" => Codec::Eac3,
        _ => Codec::FourCc(name),
    }
}

fn enhanced_video(payload: &[u8]) -> Class {
    let none = Class::new(None, Role::Other, payload.len());
    // FrameType 5 is a command without a FourCC.
    let frame_type = payload.first().map_or(0, |first| first >> 4 & 0x07);
    if frame_type == 5 {
        return none;
    }
    let Some(head) = enhanced(payload, MULTITRACK_VIDEO) else { return none };
    let data_at = head.data_at.unwrap_or(payload.len());
    match head.packet {
        SEQUENCE_START => Class::new(head.codec, Role::SequenceHeader, data_at),
        CODED_FRAMES | CODED_FRAMES_X => {
            let has_time = head.packet == CODED_FRAMES
                && matches!(head.codec, Some(Codec::Avc | Codec::Hevc))
                && head.data_at.is_some();
            let class = Class::new(head.codec, frame_role(frame_type), data_at);
            match payload.get(data_at..data_at + 3) {
                Some(time) if has_time => {
                    Class { composition_time: signed_24(time), data_at: data_at + 3, ..class }
                }
                _ if has_time => none,
                _ => class,
            }
        }
        _ => Class::new(head.codec, Role::Other, data_at),
    }
}

fn enhanced_audio(payload: &[u8]) -> Class {
    let Some(head) = enhanced(payload, MULTITRACK_AUDIO) else {
        return Class::new(None, Role::Other, payload.len());
    };
    let role = match head.packet {
        SEQUENCE_START => Role::SequenceHeader,
        CODED_FRAMES => Role::AudioFrame,
        _ => Role::Other,
    };
    Class::new(head.codec, role, head.data_at.unwrap_or(payload.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legacy_video_tags_are_classified() {
        let header = video(&[0x17, 0, 0, 0, 0, 1, 0x64]);
        assert_eq!((header.codec, header.role), (Some(Codec::Avc), Role::SequenceHeader));
        let key = video(&[0x17, 1, 0, 0, 80, 9]);
        assert_eq!((key.role, key.composition_time, key.data_at), (Role::KeyFrame, 80, 5));
        assert_eq!(video(&[0x27, 1, 0xff, 0xff, 0xff]).composition_time, -1);
        assert_eq!(video(&[0x27, 1, 0, 0, 0]).role, Role::InterFrame);
        // End of sequence has the frame type of a key frame.
        assert_eq!(video(&[0x17, 2, 0, 0, 0]).role, Role::Other);
        assert_eq!(video(&[0x1c, 1, 0, 0, 0]).codec, Some(Codec::Hevc));
        assert_eq!(video(&[0x12, 1]).codec, Some(Codec::Legacy(2)));
        assert_eq!(video(&[0x57]).role, Role::Other);
    }

    #[test]
    fn enhanced_video_tags_are_classified() {
        let header = video(b"\x90av01\x81");
        assert_eq!((header.codec, header.role), (Some(Codec::Av1), Role::SequenceHeader));
        let key = video(b"\x91hvc1\x00\x00\x50data");
        assert_eq!((key.role, key.composition_time, key.data_at), (Role::KeyFrame, 80, 8));
        let key = video(b"\x93hvc1data");
        assert_eq!((key.role, key.composition_time, key.data_at), (Role::KeyFrame, 0, 5));
        assert_eq!(video(b"\xa1av01data").role, Role::InterFrame);
        assert_eq!(video(b"\x94av01\x02\x00").role, Role::Other);
        assert_eq!(video(b"\xd1\x00").role, Role::Other, "a command");
    }

    #[test]
    fn modifiers_and_tracks_precede_the_type() {
        // Two bytes of modifier data, then packet type 1.
        let key = video(b"\x97\x01ab\x01av01data");
        assert_eq!((key.codec, key.role, key.data_at), (Some(Codec::Av1), Role::KeyFrame, 9));
        // 300 bytes of modifier data.
        let long = [&b"\x97\xff\x01\x2b"[..], &[0; 300], &b"\x03hvc1x"[..]].concat();
        assert_eq!(video(&long).role, Role::KeyFrame);
        assert_eq!(video(b"\x96\x00hvc1").role, Role::SequenceHeader);
        assert_eq!(video(b"\x96\x21").role, Role::KeyFrame, "many tracks, many codecs");
        assert_eq!(audio(b"\x95\x11Opus").role, Role::AudioFrame);
    }

    #[test]
    fn audio_tags_are_classified() {
        assert_eq!(audio(&[0xaf, 0, 0x12, 0x10]).role, Role::SequenceHeader);
        let frame = audio(&[0xaf, 1, 0x21]);
        assert_eq!(
            (frame.codec, frame.role, frame.data_at),
            (Some(Codec::Aac), Role::AudioFrame, 2)
        );
        assert_eq!(audio(&[0x2f, 0xff]).codec, Some(Codec::Mp3));
        assert_eq!(audio(b"\x90OpusOpusHead").role, Role::SequenceHeader);
        assert_eq!(audio(b"\x91Opusdata").codec, Some(Codec::Opus));
        assert_eq!(audio(b"\x94Opus").role, Role::Other);
    }

    #[test]
    fn short_tags_have_no_role() {
        for payload in [&b""[..], b"\x17", b"\x17\x00\x00", b"\x97\xff", b"\x91hvc1\x00", b"\x90av"]
        {
            assert_eq!(video(payload).role, Role::Other, "{payload:?}");
        }
        for payload in [&b""[..], b"\xaf", b"\x90Op", b"\x95\x01Op"] {
            assert_eq!(audio(payload).role, Role::Other, "{payload:?}");
        }
    }
}
