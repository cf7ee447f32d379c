//! Players get valid output from any encoder; well-formed tags pass unchanged.

mod hostile;
mod silence;

use bytes::{Bytes, BytesMut};

use super::units::Units;
use super::*;
use crate::codec::{Codec, Role};
use crate::fmp4::config::{Audio, Video};
use crate::hls::fixture::AVCC;

/// x265: VPS, SPS, PPS; 318 x 178.
const HVCC: &[u8] = crate::fmp4::tests::HVCC;
const AAC: &[u8] = &[0xaf, 0, 0x12, 0x10];

/// A codec, and the format of its tags.
#[derive(Clone, Copy, Debug)]
struct Form {
    codec: Codec,
    header: &'static [u8],
    key: &'static [u8],
    inter: &'static [u8],
    record: &'static [u8],
}

const AVC: Form = Form {
    codec: Codec::Avc,
    header: &[0x17, 0, 0, 0, 0],
    key: &[0x17, 1, 0, 0, 80],
    inter: &[0x27, 1, 0, 0, 40],
    record: AVCC,
};
const HEVC: Form = Form {
    codec: Codec::Hevc,
    header: b"\x90hvc1",
    key: b"\x91hvc1\0\0\x50",
    inter: b"\xa1hvc1\0\0\x28",
    record: HVCC,
};
/// H.265 as codec 12, with the composition time in the header.
const CLASSIC_HEVC: Form = Form {
    codec: Codec::Hevc,
    header: &[0x1c, 0, 0, 0, 0],
    key: &[0x1c, 1, 0, 0, 80],
    inter: &[0x2c, 1, 0, 0, 40],
    record: HVCC,
};
const FORMS: [Form; 3] = [AVC, HEVC, CLASSIC_HEVC];

impl Form {
    fn unit(self, kinds: (u8, u8), rest: &[u8]) -> Bytes {
        match self.codec {
            Codec::Hevc => [&[kinds.1 << 1, 1][..], rest].concat().into(),
            _ => [&[0x60 | kinds.0][..], rest].concat().into(),
        }
    }

    fn idr(self) -> Bytes {
        self.unit((5, 19), &[0x88, 0x84, 0x21, 0xa0])
    }

    fn other(self) -> Bytes {
        self.unit((1, 1), &[0x9a, 0x24, 0x6c])
    }

    /// Returns a slice that is not the first of its frame.
    fn slice(self, is_key: bool) -> Bytes {
        self.unit(if is_key { (5, 19) } else { (1, 1) }, &[0x46, 0x21, 0x6c])
    }

    fn sei(self) -> Bytes {
        self.unit((6, 39), &[5, 1, 7, 0x80])
    }

    fn delimiter(self) -> Bytes {
        self.unit((9, 35), &[0xf0])
    }

    fn filler(self) -> Bytes {
        self.unit((12, 38), &[0xff, 0x80])
    }

    fn video(self) -> Video {
        Video::new(self.codec, Bytes::from_static(self.record)).expect("a good record")
    }

    fn sets(self) -> Vec<Bytes> {
        self.video().parameter_sets
    }

    fn start(self) -> Tag {
        tag(Kind::Video, 0, &[self.header, self.record].concat())
    }

    fn frame(self, time: u32, is_key: bool, units: &[Bytes]) -> Tag {
        tag(
            Kind::Video,
            time,
            &[if is_key { self.key } else { self.inter }, &lengths(units, 4)].concat(),
        )
    }

    fn key_frame(self, time: u32) -> Tag {
        self.frame(time, true, &[self.sei(), self.idr()])
    }

    fn inter_frame(self, time: u32) -> Tag {
        self.frame(time, false, &[self.other()])
    }
}

fn tag(kind: Kind, time: u32, payload: &[u8]) -> Tag {
    Tag::new(kind, time, payload).expect("short enough")
}

fn lengths(units: &[Bytes], size: usize) -> Vec<u8> {
    let unit = |unit: &Bytes| [&(unit.len() as u32).to_be_bytes()[4 - size..], unit].concat();
    units.iter().flat_map(unit).collect()
}

fn start_codes(units: &[Bytes]) -> Vec<u8> {
    let code = |at: usize| if at == 0 { &[0, 0, 0, 1][..] } else { &[0, 0, 1] };
    units.iter().enumerate().flat_map(|(at, unit)| [code(at), unit].concat()).collect()
}

/// Returns the output for these tags, and the corrections.
fn assemble(tags: &[Tag]) -> (Vec<Tag>, Vec<Repair>) {
    let (mut assembler, mut out) = (Assembler::default(), Vec::new());
    tags.iter().for_each(|tag| assembler.push(tag.clone(), &mut out));
    assembler.flush(&mut out);
    (out, made(&assembler))
}

fn made(assembler: &Assembler) -> Vec<Repair> {
    assembler.repairs().filter(|(_, count)| *count > 0).map(|(repair, _)| repair).collect()
}

#[test]
fn well_formed_streams_pass_unchanged_and_without_delay() {
    for form in FORMS {
        let in_band = [&form.sets()[..], &[form.idr(), form.slice(true)]].concat();
        let tags = [
            tag(Kind::Script, 0, b"\x02\x00\x0aonMetaData\x05"),
            form.start(),
            tag(Kind::Audio, 0, AAC),
            form.key_frame(0),
            tag(Kind::Audio, 10, &[0xaf, 1, 0x21, 9]),
            form.inter_frame(40),
            form.frame(80, false, &[form.delimiter(), form.other(), form.slice(false)]),
            form.frame(120, true, &in_band),
            form.start(),
            form.frame(160, false, &[form.other(), form.filler()]),
            tag(Kind::Video, 200, &[0x17, 2, 0, 0, 0]),
        ];
        let mut assembler = Assembler::default();
        for tag in &tags {
            let mut out = Vec::new();
            assembler.push(tag.clone(), &mut out);
            assert_eq!(out, core::slice::from_ref(tag), "{form:?}");
        }
        assert_eq!(made(&assembler), []);
    }
}

#[test]
fn empty_and_truncated_units_are_dropped() {
    for form in FORMS {
        let (idr, sei, empty) = (form.idr(), form.sei(), Bytes::new());
        for units in [
            vec![empty.clone(), sei.clone(), idr.clone()],
            vec![sei.clone(), empty.clone(), idr.clone()],
            vec![sei.clone(), idr.clone(), empty.clone(), empty.clone()],
        ] {
            let (out, repairs) = assemble(&[form.start(), form.frame(0, true, &units)]);
            assert_eq!(out, [form.start(), form.key_frame(0)]);
            assert_eq!(repairs, [Repair::Empty]);
        }
        let whole = form.key_frame(0).payload();
        for more in [&[0][..], &[0, 0, 0], &[0, 0, 0, 9, 1]] {
            let cut = tag(Kind::Video, 0, &[&whole, more].concat());
            let (out, repairs) = assemble(&[form.start(), cut]);
            assert_eq!(
                (out, repairs),
                (vec![form.start(), form.key_frame(0)], vec![Repair::Truncated])
            );
        }
        // Nothing remains of this frame.
        let cut = tag(Kind::Video, 0, &whole[..form.key.len() + 6]);
        let empty = form.frame(40, false, &[]);
        let (out, repairs) = assemble(&[form.start(), cut, empty, form.inter_frame(80)]);
        assert_eq!(out, [form.start(), form.inter_frame(80)]);
        assert_eq!(repairs, [Repair::Empty, Repair::Truncated]);
    }
}

#[test]
fn start_codes_become_lengths() {
    for form in FORMS {
        // 300 bytes: this length looks like a start code.
        let long = form.unit((1, 1), &[0x9a; 299]);
        let long = long.slice(..300);
        let units = [form.sei(), form.idr()];
        let code = |time, is_key: bool, units: &[Bytes], more: &[u8]| {
            let head = if is_key { form.key } else { form.inter };
            tag(Kind::Video, time, &[head, &start_codes(units), more].concat())
        };
        let (out, repairs) = assemble(&[
            form.start(),
            code(0, true, &units, &[0, 0]),
            code(40, false, &[form.other()], &[]),
            code(80, false, core::slice::from_ref(&long), &[]),
        ]);
        let long = form.frame(80, false, &[long]);
        assert_eq!(out, [form.start(), form.key_frame(0), form.inter_frame(40), long.clone()]);
        assert_eq!(repairs, [Repair::AnnexB]);
        // A truncated frame does not change the detected format: it stays length-prefixed.
        let cut = tag(Kind::Video, 80, &[&long.payload()[..], &[0, 0, 0, 9]].concat());
        let (out, repairs) = assemble(&[form.start(), form.key_frame(0), cut]);
        assert_eq!(out, [form.start(), form.key_frame(0), long]);
        assert_eq!(repairs, [Repair::Truncated]);
    }
}

#[test]
fn shorter_lengths_become_four_bytes() {
    for form in FORMS {
        for size in 1..=3 {
            let mut record = form.record.to_vec();
            let at = if form.codec == Codec::Hevc { 21 } else { 4 };
            record[at] = record[at] & 0xfc | (size as u8 - 1);
            let units = [form.sei(), form.idr()];
            let (out, repairs) = assemble(&[
                tag(Kind::Video, 0, &[form.header, &record].concat()),
                tag(Kind::Video, 0, &[form.key, &lengths(&units, size)].concat()),
                // A frame that contradicts the header.
                form.inter_frame(40),
            ]);
            assert_eq!(out, [form.start(), form.key_frame(0), form.inter_frame(40)]);
            assert_eq!(repairs, [Repair::LengthSize]);
        }
    }
}

#[test]
fn tags_without_a_slice_join_the_next_frame() {
    for form in FORMS {
        let own = |unit: Bytes| form.frame(40, true, &[unit]);
        let mut tags = vec![form.start(), form.key_frame(0)];
        tags.extend(form.sets().into_iter().map(own));
        tags.extend([form.filler(), form.sei(), form.unit((10, 36), &[])].map(own));
        tags.push(form.frame(40, true, &[form.delimiter(), form.idr()]));
        tags.push(form.inter_frame(80));
        let (out, repairs) = assemble(&tags);
        let sets = form.sets();
        let units = [&[form.delimiter()], &sets[..], &[form.sei(), form.idr()]].concat();
        assert_eq!(out[2..], [form.frame(40, true, &units), form.inter_frame(80)]);
        assert_eq!((out.len(), repairs), (4, vec![Repair::NoSlice]));
    }
}

#[test]
fn frames_in_several_tags_are_joined() {
    for form in FORMS {
        let mut assembler = Assembler::default();
        let mut out = Vec::new();
        let mut push = |tag: &Tag| {
            out.clear();
            assembler.push(tag.clone(), &mut out);
            out.clone()
        };
        push(&form.start());
        let first = form.frame(0, true, &[form.idr()]);
        assert_eq!(push(&first), [first]);
        // The key frame was emitted before the splitting was detected; it is emitted again,
        // complete.
        assert_eq!(push(&form.frame(0, true, &[form.slice(true)])), []);
        assert_eq!(push(&form.frame(5, true, &[form.slice(true)])), []);
        let key = [form.idr(), form.slice(true), form.slice(true)];
        assert_eq!(push(&form.frame(40, false, &[form.other()])), [form.frame(0, true, &key)]);
        assert_eq!(push(&tag(Kind::Audio, 50, &[0x2f, 9])).len(), 1);
        assert_eq!(push(&form.frame(40, false, &[form.slice(false)])), []);
        let inter = form.frame(40, false, &[form.other(), form.slice(false)]);
        assert_eq!(push(&form.frame(80, false, &[form.other()])), [inter]);
        // Much later audio, or units of the next frame, release a frame.
        let late = tag(Kind::Audio, 580, &[0x2f, 9]);
        assert_eq!(push(&late), [form.inter_frame(80), late]);
        assert_eq!(push(&form.frame(120, false, &[form.other()])), []);
        assert_eq!(push(&form.frame(160, false, &[form.sei()])), [form.inter_frame(120)]);
        assert_eq!(push(&form.frame(160, false, &[form.other()])), []);
        let mut rest = Vec::new();
        assembler.flush(&mut rest);
        assert_eq!(rest, [form.frame(160, false, &[form.sei(), form.other()])]);
        assert_eq!(made(&assembler), [Repair::NoSlice, Repair::Joined]);
    }
}

#[test]
fn key_frames_are_marked() {
    for form in FORMS {
        let (out, repairs) = assemble(&[form.start(), form.frame(0, false, &[form.idr()])]);
        assert_eq!((out[1].role(), repairs), (Role::KeyFrame, vec![Repair::KeyFrame]));
        assert_eq!(out[1].class().composition_time, 40);
    }
}

#[test]
fn a_header_is_built_from_in_band_parameter_sets() {
    for form in FORMS {
        let key = |time, sets: &[Bytes]| form.frame(time, true, &[sets, &[form.idr()]].concat());
        let sets = form.sets();
        let tags = [form.inter_frame(0), form.key_frame(20), key(40, &sets), key(80, &sets)];
        let (out, repairs) = assemble(&tags);
        assert_eq!(
            out.iter().map(Tag::role).collect::<Vec<_>>(),
            [Role::SequenceHeader, Role::KeyFrame, Role::KeyFrame]
        );
        assert_eq!(out[0].payload()[..form.header.len()], *form.header);
        let built = out[0].payload().slice(form.header.len()..);
        let built = Video::new(form.codec, built).expect("a good record");
        let known = form.video();
        assert_eq!((built.width, &built.codecs), (known.width, &known.codecs));
        assert_eq!(built.parameter_sets, sets);
        assert_eq!(
            (out[1..].to_vec(), repairs),
            (tags[2..].to_vec(), vec![Repair::Sets, Repair::VideoHeader])
        );
        // Another PPS with a different ID is kept as well; one with the same ID replaces it.
        let pps = sets.last().expect("a PPS").clone();
        let (mut second, mut third) = (BytesMut::from(&pps[..]), BytesMut::from(&pps[..]));
        let at = if form.codec == Codec::Hevc { 2 } else { 1 };
        second[at] = 0x40 | second[at] & 0x1f;
        *third.last_mut().expect("some") ^= 0x10;
        let (second, third) = (second.freeze(), third.freeze());
        let tags = [
            form.start(),
            key(0, core::slice::from_ref(&second)),
            key(40, core::slice::from_ref(&third)),
            form.start(),
        ];
        let (out, _) = assemble(&tags);
        let headers: Vec<_> = out.iter().filter(|tag| tag.role() == Role::SequenceHeader).collect();
        let kept = |at: usize| {
            let record = headers[at].payload().slice(form.header.len()..);
            Video::new(form.codec, record).expect("a good record").parameter_sets
        };
        assert_eq!(headers.len(), 3, "the publisher's own that was corrected comes once");
        assert_eq!(kept(1).len(), sets.len() + 1);
        assert!(kept(1).contains(&second) && kept(1).contains(&pps));
        assert!(kept(2).contains(&third) && kept(2).contains(&second) && !kept(2).contains(&pps));
    }
}

#[test]
fn headers_without_content_are_dropped() {
    for form in FORMS {
        let sets = form.sets();
        let mut none = form.record[..form.record.len().min(23)].to_vec();
        let at = if form.codec == Codec::Hevc { 22 } else { 5 };
        none[at] &= if form.codec == Codec::Hevc { 0 } else { 0xe0 };
        for record in [&[][..], &none, &start_codes(&sets)] {
            let (out, _) = assemble(&[
                tag(Kind::Video, 0, &[form.header, record].concat()),
                form.frame(0, true, &[&sets[..], &[form.idr()]].concat()),
                form.inter_frame(40),
            ]);
            let record = out[0].payload().slice(form.header.len()..);
            let video = Video::new(form.codec, record).expect("a good record");
            assert_eq!((video.parameter_sets, out.len()), (sets.clone(), 3));
        }
        // A header that cannot be parsed passes unchanged, and so do later frames.
        let strange = tag(Kind::Video, 0, &[form.header, &[9, 9]].concat());
        let frame = tag(Kind::Video, 0, &[form.key, &[9]].concat());
        assert_eq!(assemble(&[strange.clone(), frame.clone()]).0, [strange, frame]);
    }
}

/// Returns an AAC frame with an ADTS header: LC, 44.1 kHz, stereo.
fn adts(frame: &[u8]) -> Vec<u8> {
    let length = frame.len() + 7;
    let size = [0x80 | (length >> 11) as u8, (length >> 3) as u8, (length << 5) as u8 | 0x1f];
    [&[0xff, 0xf1, 0x50], &size[..], &[0xfc], frame].concat()
}

#[test]
fn aac_frames_are_raw_and_follow_a_header() {
    let audio_frame = |time, data: &[u8]| tag(Kind::Audio, time, &[&[0xaf, 1], data].concat());
    let header = tag(Kind::Audio, 0, AAC);
    let one = audio_frame(0, &[0x21, 1, 2]);
    let other = audio_frame(23, &[0x21, 7]);
    let both = audio_frame(0, &[adts(&[0x21, 1, 2]), adts(&[0x21, 7])].concat());
    let all = vec![header.clone(), one.clone(), other.clone()];
    assert_eq!(assemble(core::slice::from_ref(&both)), (all.clone(), vec![Repair::Adts]));
    assert_eq!(assemble(&[header.clone(), both.clone()]), (all.clone(), vec![Repair::Adts]));
    // A contradicting header, repeated; a truncated frame.
    let wrong = tag(Kind::Audio, 0, &[0xaf, 0, 0x11, 0x90]);
    let cut = audio_frame(0, &[adts(&[0x21, 1, 2]), adts(&[0x21, 7])[..8].to_vec()].concat());
    let (out, _) = assemble(&[wrong.clone(), both, wrong.clone(), cut]);
    assert_eq!(out, [&[wrong], &all[..], core::slice::from_ref(&one)].concat());
    // Headers without content, and frames without a header.
    let empty = [&[0xaf, 0][..], &[0xaf, 0, 0], &[0xaf, 1]].map(|p| tag(Kind::Audio, 0, p));
    let (out, repairs) =
        assemble(&[&empty[..], &[one.clone(), header.clone(), one.clone()]].concat());
    assert_eq!(out, [header, one]);
    assert_eq!(repairs, [Repair::Empty, Repair::Header, Repair::AudioHeader]);
    // HE-AAC: the header also has the output's rate, ADTS only the core's.
    let he = tag(Kind::Audio, 0, &[0xaf, 0, 0x2b, 0x92, 0x08, 0x00]);
    let record = he.payload().slice(2..);
    let start = Audio::new(Codec::Aac, record).and_then(|audio| audio.adts()).expect("ADTS");
    let mut frame = adts(&[0x21, 1, 2]);
    frame[2..4].copy_from_slice(&[start[0], start[1]]);
    assert_eq!(
        assemble(&[he.clone(), audio_frame(0, &frame)]).0,
        [he, audio_frame(0, &[0x21, 1, 2])]
    );
}

#[test]
fn other_codecs_pass() {
    let tags = [
        tag(Kind::Video, 0, b"\x90vp09\x01"),
        tag(Kind::Video, 0, b"\x91vp09\0\0\0\0"),
        tag(Kind::Audio, 0, b"\x90OpusOpusHead"),
        tag(Kind::Audio, 0, b"\x91Opus\xff\xf1abcdefgh"),
        tag(Kind::Audio, 0, &[0x2f, 0xff, 0xfb, 1, 2, 3, 4, 5]),
        tag(Kind::Video, 0, &[0x12, 0]),
    ];
    assert_eq!(assemble(&tags), (tags.to_vec(), vec![]));
}
