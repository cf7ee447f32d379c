//! Extraction of the default track from multitrack packets (Veovera's Enhanced RTMP v2, "Multitrack
//! Streaming via Enhanced RTMP").
//!
//! A stream has one video and one audio track: players of FLV, RTMP and HLS play one of each, and
//! would mistake sequence headers and frames of other tracks for their own. The server therefore
//! keeps the default track (ID 0), rewritten as single-track packets, and drops the others.
//!
//! Codecs with an FLV codec ID are written with it, and others with their FourCC of Enhanced RTMP.
//! Players know `hvc1`, `av01` and `Opus`, but few know `avc1` or `mp4a`.

use bytes::BufMut;

use crate::codec::{
    CODED_FRAMES, CODED_FRAMES_X, MANY_CODECS, MULTITRACK_AUDIO, MULTITRACK_VIDEO, SEQUENCE_END,
    SEQUENCE_START, packet_type,
};
use crate::flv::{Kind, Tag};

/// AvMultitrackType: one track, with data up to the end.
const ONE_TRACK: u8 = 0;
/// ID of the default track.
const DEFAULT_TRACK: u8 = 0;

/// Returns the tag reduced to its default track, with an FLV codec ID if the codec has one. `None`
/// if the tag lacks the default track, or if FLV cannot express it.
///
/// Single-track tags belong to the default track.
pub fn default_track(tag: Tag) -> Option<Tag> {
    let payload = tag.payload();
    let Some(first) = payload.first().copied() else { return Some(tag) };
    let multitrack = match tag.kind() {
        Kind::Video if first & 0x80 != 0 && first >> 4 & 7 != 5 => MULTITRACK_VIDEO,
        Kind::Audio if first >> 4 == 9 => MULTITRACK_AUDIO,
        _ => return Some(tag),
    };
    let Some((packet, at)) = packet_type(&payload) else { return Some(tag) };
    let is_multitrack = packet == multitrack;
    let (packet, codec, data) = if is_multitrack {
        track(&payload, at)?
    } else {
        let Some((codec, data)) = payload.get(at..).and_then(|rest| rest.split_at_checked(4))
        else {
            return Some(tag);
        };
        (packet, codec, data)
    };
    let mut buffer = Tag::buffer(5 + data.len());
    match (tag.kind(), codec) {
        (Kind::Video, b"avc1") => buffer.put_slice(&avc_head(first, packet)?),
        (Kind::Audio, b"mp4a") if packet <= CODED_FRAMES => buffer.put_slice(&[0xaf, packet]),
        (Kind::Audio, b".mp3") if packet == CODED_FRAMES => buffer.put_u8(0x2f),
        (Kind::Audio, b"mp4a" | b".mp3") => return None,
        _ if is_multitrack => {
            buffer.put_u8(first & 0xf0 | packet);
            buffer.put_slice(codec);
        }
        _ => return Some(tag),
    }
    buffer.put_slice(data);
    Tag::assemble(buffer, tag.kind(), tag.timestamp())
}

/// Returns the legacy header of an H.264 packet (VIDEODATA, AVCVIDEOPACKET): frame type and codec,
/// packet type, and the composition time unless `data` starts with it.
fn avc_head(first: u8, packet: u8) -> Option<Vec<u8>> {
    let frame = first & 0x70 | 7;
    Some(match packet {
        SEQUENCE_START => vec![frame, 0, 0, 0, 0],
        CODED_FRAMES => vec![frame, 1],
        CODED_FRAMES_X => vec![frame, 1, 0, 0, 0],
        SEQUENCE_END => vec![frame, 2, 0, 0, 0],
        _ => return None,
    })
}

/// Returns packet type, FourCC and data of the default track in a packet with a multitrack header
/// at `at`. `None` if the track is missing or the packet is truncated.
fn track(payload: &[u8], mut at: usize) -> Option<(u8, &[u8], &[u8])> {
    let mut take = |count: usize| {
        let taken = payload.get(at..at.checked_add(count)?)?;
        at += count;
        Some(taken)
    };
    let head = *take(1)?.first()?;
    let (form, packet) = (head >> 4, head & 0x0f);
    let shared = if form == MANY_CODECS { None } else { Some(take(4)?) };
    // Each iteration consumes at least a byte.
    loop {
        let codec = match shared {
            Some(codec) => codec,
            None => take(4)?,
        };
        let is_default = take(1)? == [DEFAULT_TRACK];
        if form == ONE_TRACK {
            let data = payload.get(at..)?;
            return is_default.then_some((packet, codec, data));
        }
        let &[s0, s1, s2] = take(3)? else { return None };
        let data = take(u32::from_be_bytes([0, s0, s1, s2]) as usize)?;
        if is_default {
            return Some((packet, codec, data));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{Codec, Role};

    fn default_of(kind: Kind, payload: &[u8]) -> Option<Tag> {
        default_track(Tag::new(kind, 7, payload).expect("short enough"))
    }

    #[test]
    fn single_track_packets_pass_unchanged() {
        for payload in
            [&b"\x17\0\0\0\0\x01"[..], b"\x91hvc1\0\0\0x", b"", b"\x97\0a\x01av01x", b"\xd6"]
        {
            let tag = Tag::new(Kind::Video, 7, payload).expect("short enough");
            assert_eq!(default_track(tag.clone()), Some(tag));
        }
        for payload in [&b"\xaf\x01x"[..], b"\x91Opusx"] {
            let tag = Tag::new(Kind::Audio, 7, payload).expect("short enough");
            assert_eq!(default_track(tag.clone()), Some(tag));
        }
        let script = Tag::new(Kind::Script, 7, b"\x95\x00mp4a\x01x").expect("short enough");
        assert_eq!(default_track(script.clone()), Some(script));
    }

    #[test]
    fn the_default_track_becomes_a_single_track_packet() {
        let tag = default_of(Kind::Audio, b"\x95\x00mp4a\x00\x12\x10").expect("track 0");
        assert_eq!((&tag.payload()[..], tag.timestamp()), (&b"\xaf\x00\x12\x10"[..], 7));
        assert_eq!((tag.role(), tag.class().codec), (Role::SequenceHeader, Some(Codec::Aac)));
        // One codec for all tracks, each preceded by its ID and size; the default track is second.
        let packet = b"\x96\x11hvc1\x02\0\0\x04\0\0\0a\x00\0\0\x05\0\0\x50bc";
        let tag = default_of(Kind::Video, packet).expect("track 0");
        assert_eq!(&tag.payload()[..], b"\x91hvc1\0\0\x50bc");
        assert_eq!((tag.role(), tag.class().composition_time), (Role::KeyFrame, 80));
        // A codec per track, after modifiers.
        let packet = b"\xa7\x00a\x06\x23hvc1\x01\0\0\x01aav01\x00\0\0\x02bc";
        let tag = default_of(Kind::Video, packet).expect("track 0");
        assert_eq!((&tag.payload()[..], tag.role()), (&b"\xa3av01bc"[..], Role::InterFrame));
    }

    #[test]
    fn codecs_with_an_flv_number_use_it() {
        for (kind, enhanced, own) in [
            (Kind::Video, &b"\x90avc1\x01\x64"[..], &b"\x17\0\0\0\0\x01\x64"[..]),
            (Kind::Video, b"\x91avc1\0\0\x50ab", b"\x17\x01\0\0\x50ab"),
            (Kind::Video, b"\xa3avc1ab", b"\x27\x01\0\0\0ab"),
            (Kind::Video, b"\x92avc1", b"\x17\x02\0\0\0"),
            (Kind::Video, b"\x97\0a\x01avc1\0\0\x50ab", b"\x17\x01\0\0\x50ab"),
            (Kind::Video, b"\x96\x01avc1\x00\0\0\x50ab", b"\x17\x01\0\0\x50ab"),
            (Kind::Audio, b"\x90mp4a\x12\x10", b"\xaf\0\x12\x10"),
            (Kind::Audio, b"\x91mp4aab", b"\xaf\x01ab"),
            (Kind::Audio, b"\x91.mp3\xff\xfb", b"\x2f\xff\xfb"),
        ] {
            let tag = default_of(kind, enhanced).expect("track 0");
            assert_eq!((&tag.payload()[..], tag.timestamp()), (own, 7));
        }
        // FLV cannot express colour information and channel layouts.
        assert_eq!(default_of(Kind::Video, b"\x94avc1\x02\0"), None);
        assert_eq!(default_of(Kind::Audio, b"\x94mp4a\x01"), None);
    }

    #[test]
    fn other_tracks_are_dropped() {
        assert_eq!(default_of(Kind::Audio, b"\x95\x00mp4a\x01\x12\x10"), None);
        assert_eq!(default_of(Kind::Video, b"\x96\x11hvc1\x01\0\0\x04\0\0\0a"), None);
        for cut in [&b"\x96"[..], b"\x96\x11hv", b"\x96\x11hvc1\x00\0\0\x04\0\0", b"\x97\xff"] {
            let got = default_of(Kind::Video, cut);
            assert!(got.is_none_or(|tag| tag.role() == Role::Other), "{cut:?}");
        }
    }

    proptest! {
        #[test]
        fn any_input_gives_a_tag_or_nothing(
            payload in proptest::collection::vec(any::<u8>(), 0..60),
            forms in 0..4usize,
        ) {
            let head: [&[u8]; 4] = [b"\x96\x01av01", b"\x96\x21", b"\x95\x11Opus", b"\x97"];
            let payload = [head[forms], &payload].concat();
            for kind in [Kind::Video, Kind::Audio] {
                if let Some(tag) = default_of(kind, &payload) {
                    prop_assert!(tag.payload().len() <= payload.len());
                }
            }
        }
    }
}
