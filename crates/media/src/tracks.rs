//! Tracks of multitrack packets (Veovera's Enhanced RTMP v2, "Multitrack Streaming via Enhanced
//! RTMP").
//!
//! A stream has one video and one audio track: players of FLV, RTMP and HLS play one of each, and
//! would mistake sequence headers and frames of other tracks for their own. [`tracks`] therefore
//! splits a packet into single-track tags. An ordinary stream keeps the default track (ID 0) and
//! drops the others ([`default_track`]); a ladder has a stream per video track.
//!
//! Codecs with an FLV codec ID are written with it, and others with their FourCC of Enhanced RTMP.
//! Players know `hvc1`, `av01` and `Opus`, but few know `avc1` or `mp4a`.

use bytes::{BufMut, Bytes, BytesMut};

use crate::amf0::{self, Value};
use crate::codec::{
    CODED_FRAMES, CODED_FRAMES_X, MANY_CODECS, MOD_EX, MULTITRACK_AUDIO, MULTITRACK_VIDEO,
    SEQUENCE_END, SEQUENCE_START, packet_type,
};
use crate::flv::{Kind, Tag};

/// AvMultitrackType: one track, with data up to the end.
const ONE_TRACK: u8 = 0;
/// ID of the default track. Single-track tags belong to it.
pub const DEFAULT_TRACK: u8 = 0;
/// Video properties of the default track in `onMetaData` that other tracks do not inherit.
const OWN_PROPERTIES: [&str; 3] = ["width", "height", "videodatarate"];
/// Properties of other tracks in `onMetaData`, by track ID.
const VIDEO_TRACKS: &str = "videoTrackIdInfoMap";
const AUDIO_TRACKS: &str = "audioTrackIdInfoMap";

/// Returns the tag reduced to its default track, with an FLV codec ID if the codec has one. `None`
/// if the tag lacks the default track, or if FLV cannot express it.
///
/// Single-track tags belong to the default track.
pub fn default_track(tag: Tag) -> Option<Tag> {
    tracks(tag).find(|(id, _)| *id == DEFAULT_TRACK)?.1
}

/// Returns the ID of the first track in the tag other than the default track.
pub fn other_track(tag: &Tag) -> Option<u8> {
    let split = tracks(tag.clone());
    split.multitrack.as_ref()?;
    split.map(|(id, _)| id).find(|id| *id != DEFAULT_TRACK)
}

/// Splits a tag into its tracks.
///
/// ```
/// use mendcast_media::tracks::tracks;
/// use mendcast_media::{Kind, Tag};
///
/// // ManyTracks, coded frames without composition time: tracks 0 and 2.
/// let packet = b"\x96\x13hvc1\x00\0\0\x01a\x02\0\0\x02bc";
/// let tag = Tag::new(Kind::Video, 40, packet).unwrap();
/// let found: Vec<_> = tracks(tag).map(|(id, tag)| (id, tag.unwrap().payload())).collect();
/// assert_eq!(found, [(0, b"\x93hvc1a"[..].into()), (2, b"\x93hvc1bc"[..].into())]);
/// ```
pub fn tracks(tag: Tag) -> Tracks {
    let payload = tag.payload();
    let multitrack = Multitrack::read(tag.kind(), &payload);
    Tracks { tag: Some(tag), payload, multitrack, seen: [0; 4], is_malformed: false }
}

/// The tracks of a tag in turn: ID, and the single-track tag, or `None` if FLV cannot express it.
///
/// Each ID occurs at most once, so a tag has at most 256 tracks. A track that is cut off or
/// repeated, a nested multitrack packet and an unknown AvMultitrackType end the iteration.
#[derive(Debug)]
pub struct Tracks {
    /// `None` after the last track.
    tag: Option<Tag>,
    payload: Bytes,
    /// `None` for a single-track tag.
    multitrack: Option<Multitrack>,
    /// IDs seen, one bit each.
    seen: [u64; 4],
    is_malformed: bool,
}

/// Header of a multitrack packet, and the offset of its next track.
#[derive(Clone, Copy, Debug)]
struct Multitrack {
    at: usize,
    /// AvMultitrackType and packet type; `None` if the packet ends before.
    head: Option<(u8, u8)>,
    /// `None` if each track has its own.
    codec: Option<[u8; 4]>,
}

impl Multitrack {
    /// Reads the header; `None` for a single-track tag.
    fn read(kind: Kind, payload: &[u8]) -> Option<Self> {
        let first = payload.first()?;
        let multitrack = match kind {
            Kind::Video if first & 0x80 != 0 && first >> 4 & 7 != 5 => MULTITRACK_VIDEO,
            Kind::Audio if first >> 4 == 9 => MULTITRACK_AUDIO,
            _ => return None,
        };
        let (_, at) = packet_type(payload).filter(|(packet, _)| *packet == multitrack)?;
        let head = payload.get(at).map(|head| (head >> 4, head & 0x0f));
        // Neither a multitrack packet nor modifiers may follow.
        let is_valid = |(form, packet): &(u8, u8)| {
            *form <= MANY_CODECS && *packet != multitrack && *packet != MOD_EX
        };
        let (head, mut at) = (head.filter(is_valid), at + 1);
        let mut codec = None;
        if head.is_some_and(|(form, _)| form != MANY_CODECS) {
            codec = payload.get(at..at + 4).and_then(|name| name.try_into().ok());
            at += 4;
        }
        let is_whole = |(form, _): &(u8, u8)| *form == MANY_CODECS || codec.is_some();
        Some(Self { at, head: head.filter(is_whole), codec })
    }

    /// Reads the next track: ID, FourCC, and range of its data. `None` if it is cut off.
    fn next(&mut self, payload: &[u8]) -> Option<(u8, [u8; 4], core::ops::Range<usize>)> {
        let (form, _) = self.head?;
        let mut take = |count: usize| {
            let taken = payload.get(self.at..self.at.checked_add(count)?)?;
            self.at += count;
            Some(taken)
        };
        let codec = match self.codec {
            Some(codec) => codec,
            None => take(4)?.try_into().ok()?,
        };
        let id = *take(1)?.first()?;
        let size = match form {
            ONE_TRACK => None,
            _ => {
                let &[s0, s1, s2] = take(3)? else { return None };
                Some(u32::from_be_bytes([0, s0, s1, s2]) as usize)
            }
        };
        let size = size.unwrap_or(payload.len() - self.at);
        let end = self.at.checked_add(size).filter(|end| *end <= payload.len())?;
        Some((id, codec, core::mem::replace(&mut self.at, end)..end))
    }
}

impl Tracks {
    /// Whether a track ended the iteration because it is malformed.
    pub fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// Notes the ID. Returns false if it was seen before.
    fn is_new(&mut self, id: u8) -> bool {
        let (word, bit) = (&mut self.seen[usize::from(id / 64)], 1 << (id % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

impl Iterator for Tracks {
    type Item = (u8, Option<Tag>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.tag.take()?;
        let Some(multitrack) = &mut self.multitrack else {
            return Some((DEFAULT_TRACK, single(tag)));
        };
        let found = multitrack.next(&self.payload);
        let (head, at) = (multitrack.head, multitrack.at);
        let found = found.filter(|(id, ..)| self.is_new(*id)).zip(head);
        let Some(((id, codec, data), (form, packet))) = found else {
            self.is_malformed = true;
            return None;
        };
        let first = *self.payload.first()?;
        let track = rewrite(&tag, first, packet, (&codec, &self.payload[data]));
        if form != ONE_TRACK && at < self.payload.len() {
            self.tag = Some(tag);
        }
        Some((id, track))
    }
}

/// Returns a single-track tag with an FLV codec ID, if its codec has one.
fn single(tag: Tag) -> Option<Tag> {
    let payload = tag.payload();
    let Some(first) = payload.first().copied() else { return Some(tag) };
    let is_enhanced = match tag.kind() {
        Kind::Video => first & 0x80 != 0 && first >> 4 & 7 != 5,
        Kind::Audio => first >> 4 == 9,
        Kind::Script => false,
    };
    if !is_enhanced {
        return Some(tag);
    }
    let Some((packet, at)) = packet_type(&payload) else { return Some(tag) };
    let Some((codec, data)) = payload.get(at..).and_then(|rest| rest.split_first_chunk()) else {
        return Some(tag);
    };
    let is_renamed =
        matches!((tag.kind(), codec), (Kind::Video, b"avc1") | (Kind::Audio, b"mp4a" | b".mp3"));
    if is_renamed { rewrite(&tag, first, packet, (codec, data)) } else { Some(tag) }
}

/// Writes a single-track tag of a track with this FourCC and data. `None` if FLV cannot express it.
fn rewrite(tag: &Tag, first: u8, packet: u8, (codec, data): (&[u8; 4], &[u8])) -> Option<Tag> {
    let mut buffer = Tag::buffer(5 + data.len());
    match (tag.kind(), codec) {
        (Kind::Video, b"avc1") => buffer.put_slice(&avc_head(first, packet)?),
        (Kind::Audio, b"mp4a") if packet <= CODED_FRAMES => buffer.put_slice(&[0xaf, packet]),
        (Kind::Audio, b".mp3") if packet == CODED_FRAMES => buffer.put_u8(0x2f),
        (Kind::Audio, b"mp4a" | b".mp3") => return None,
        _ => {
            buffer.put_u8(first & 0xf0 | packet);
            buffer.put_slice(codec);
        }
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

/// Returns `onMetaData` as a stream with video track `id` and the default audio track has it.
/// Properties of the track replace those of the default track. If the publisher states none for it,
/// size and bit rate are left out. Other tags are returned unchanged.
pub fn track_metadata(tag: Tag, id: u8) -> Tag {
    let payload = tag.payload();
    let is_metadata = tag.kind() == Kind::Script && tag.role().is_header();
    let Some(mut values) = is_metadata.then(|| amf0::read(&payload).ok()).flatten() else {
        return tag;
    };
    for value in &mut values {
        if let Value::Object(members) | Value::EcmaArray(members) = value {
            reduce(members, id);
        }
    }
    let mut out = BytesMut::new();
    values.iter().for_each(|value| value.write(&mut out));
    Tag::new(Kind::Script, tag.timestamp(), &out).unwrap_or(tag)
}

fn reduce(members: &mut Vec<(String, Value)>, id: u8) {
    let maps = members.extract_if(.., |(name, _)| name == VIDEO_TRACKS || name == AUDIO_TRACKS);
    let video = maps.filter(|(name, _)| name == VIDEO_TRACKS).map(|(_, map)| map).last();
    if id == DEFAULT_TRACK {
        return;
    }
    let own = video.as_ref().and_then(|map| map.get(&id.to_string()));
    let own = match own {
        Some(Value::Object(own) | Value::EcmaArray(own)) => own.as_slice(),
        _ => &[],
    };
    members.retain(|(name, _)| match own {
        [] => !OWN_PROPERTIES.contains(&name.as_str()),
        own => own.iter().all(|(other, _)| other != name),
    });
    members.extend_from_slice(own);
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

        #[test]
        fn any_input_gives_each_track_once_and_within_the_packet(
            payload in proptest::collection::vec(any::<u8>(), 0..3_000),
            head in 0..7usize,
        ) {
            let heads: [&[u8]; 7] = [
                b"\x96\x11hvc1", b"\x96\x10avc1", b"\x95\x21", b"\x96\x21", b"\x95\x00mp4a",
                b"\x97\x01ab\x06\x13av01", b"",
            ];
            let payload = [heads[head], &payload].concat();
            for kind in [Kind::Video, Kind::Audio, Kind::Script] {
                let tag = Tag::new(kind, 7, &payload).expect("short enough");
                let is_multitrack = Multitrack::read(kind, &payload).is_some();
                let (mut seen, mut bytes) = ([false; 256], 0);
                for (id, track) in tracks(tag.clone()) {
                    prop_assert!(!core::mem::replace(&mut seen[usize::from(id)], true));
                    let Some(track) = track else { continue };
                    prop_assert_eq!((track.kind(), track.timestamp()), (kind, 7));
                    // A track is a single-track tag, and splits into itself.
                    let again: Vec<_> = tracks(track.clone()).collect();
                    prop_assert_eq!(again, [(0, Some(track.clone()))]);
                    if is_multitrack {
                        bytes += track.payload().len().saturating_sub(5);
                    }
                }
                prop_assert!(bytes <= payload.len());
                let first = (0..=255u8).find(|id| *id > 0 && seen[usize::from(*id)]);
                prop_assert_eq!(other_track(&tag).is_some(), first.is_some());
            }
        }
    }

    /// ID and payload of each track, and whether the packet is malformed.
    fn split(kind: Kind, packet: &[u8]) -> (Vec<(u8, Vec<u8>)>, bool) {
        let mut split = tracks(Tag::new(kind, 7, packet).expect("short enough"));
        let found = split.by_ref().map(|(id, tag)| (id, tag.expect("expressible")));
        let found = found.map(|(id, tag)| (id, tag.payload().to_vec())).collect();
        (found, split.is_malformed())
    }

    #[test]
    fn each_track_becomes_a_single_track_tag() {
        for (packet, expected) in [
            // As OBS sends a second rendition: sequence start and coded frames of one track.
            (&b"\x96\x00avc1\x01\x01\x64"[..], vec![(1, &b"\x17\0\0\0\0\x01\x64"[..])]),
            (b"\xa6\x01avc1\x02\0\0\x50ab", vec![(2, b"\x27\x01\0\0\x50ab")]),
            (b"\x96\x02hvc1\xff", vec![(255, b"\x92hvc1")]),
            (
                b"\x96\x11hvc1\x02\0\0\x04\0\0\0a\x00\0\0\x05\0\0\x50bc",
                vec![(2, b"\x91hvc1\0\0\0a"), (0, b"\x91hvc1\0\0\x50bc")],
            ),
            (
                b"\xa6\x23hvc1\x01\0\0\x01aav01\x00\0\0\x02bcavc1\x07\0\0\x01d",
                vec![(1, b"\xa3hvc1a"), (0, b"\xa3av01bc"), (7, b"\x27\x01\0\0\0d")],
            ),
            (b"\x96\x13qqqq\x03\0\0\0", vec![(3, b"\x93qqqq")]),
            (b"\x93av01ab", vec![(0, b"\x93av01ab")]),
        ] {
            let expected = expected.into_iter().map(|(id, data)| (id, data.to_vec())).collect();
            assert_eq!(split(Kind::Video, packet), (expected, false), "{packet:?}");
        }
        let packet = b"\x95\x21mp4a\x00\0\0\x01aOpus\x01\0\0\x02bc";
        let expected = vec![(0, b"\xaf\x01a".to_vec()), (1, b"\x91Opusbc".to_vec())];
        assert_eq!(split(Kind::Audio, packet), (expected, false));
    }

    #[test]
    fn malformed_packets_give_the_tracks_before_the_fault() {
        let good = b"\x96\x13hvc1\x01\0\0\x01a";
        let first = vec![(1, b"\x93hvc1a".to_vec())];
        for rest in [
            // Longer than the packet; no size; a repeated ID.
            &b"\x00\xff\xff\xffbc"[..],
            b"\x00\0\0\x03bc",
            b"\x00",
            b"\x00\0\0",
            b"\x01\0\0\x01b",
        ] {
            let packet = [&good[..], rest].concat();
            assert_eq!(split(Kind::Video, &packet), (first.clone(), true), "{rest:?}");
        }
        for packet in [
            // Nested; modifiers within; unknown forms; cut off.
            &b"\x96\x06hvc1\x00\x00hvc1\x00a"[..],
            b"\x96\x16hvc1\x00\0\0\x01a",
            b"\x96\x07\x00a\x01hvc1\x00a",
            b"\x96\x31hvc1\x00\0\0\x01a",
            b"\x96\xf1hvc1\x00\0\0\x01a",
            b"\x96",
            b"\x96\x01",
            b"\x96\x01hvc",
            b"\x96\x01hvc1",
            b"\x96\x21",
            b"\x96\x21hvc1",
        ] {
            assert_eq!(split(Kind::Video, packet), (vec![], true), "{packet:?}");
        }
        assert_eq!(split(Kind::Audio, b"\x95\x05mp4a\x00\x00mp4a\x00a"), (vec![], true));
        // A million repeated empty tracks.
        let many = [&b"\x96\x11hvc1"[..], &[0; 4_000_000]].concat();
        assert_eq!(split(Kind::Video, &many), (vec![(0, b"\x91hvc1".to_vec())], true));
        let ids: Vec<u8> = (0..=255).flat_map(|id| [id, 0, 0, 0]).collect();
        let all = split(Kind::Video, &[&b"\x96\x11hvc1"[..], &ids, &ids].concat());
        assert_eq!((all.0.len(), all.1), (256, true));
    }

    #[test]
    fn metadata_of_a_track_has_its_properties() {
        let member = |name: &str, value: Value| (name.to_owned(), value);
        let track = amf0::object([("width", 640.0.into()), ("height", 360.0.into())]);
        let maps = [
            member(AUDIO_TRACKS, amf0::object([("1", amf0::object([]))])),
            member(VIDEO_TRACKS, amf0::object([("1", track), ("2", Value::Null)])),
        ];
        let common = [
            member("width", 1_920.0.into()),
            member("framerate", 30.0.into()),
            member("videodatarate", 6_000.0.into()),
        ];
        let mut payload = BytesMut::new();
        Value::String("onMetaData".into()).write(&mut payload);
        Value::EcmaArray([&common[..], &maps].concat()).write(&mut payload);
        let tag = Tag::new(Kind::Script, 7, &payload).expect("short");
        let of = |id| {
            let tag = track_metadata(tag.clone(), id);
            assert_eq!((tag.timestamp(), tag.role()), (7, Role::Metadata));
            let values = amf0::read(&tag.payload()).expect("valid");
            let number = |name| values[1].get(name).and_then(Value::number);
            assert!(values[1].get(VIDEO_TRACKS).or(values[1].get(AUDIO_TRACKS)).is_none());
            ["width", "height", "framerate", "videodatarate"].map(number)
        };
        assert_eq!(of(0), [Some(1_920.0), None, Some(30.0), Some(6_000.0)]);
        assert_eq!(of(1), [Some(640.0), Some(360.0), Some(30.0), Some(6_000.0)]);
        for id in [2, 3] {
            assert_eq!(of(id), [None, None, Some(30.0), None]);
        }
        for other in [&b"\x02\x00\x0aonMetaData\x08\0"[..], b"\x02\0\x01a"] {
            let tag = Tag::new(Kind::Script, 7, other).expect("short");
            assert_eq!(track_metadata(tag.clone(), 1), tag);
        }
    }
}
