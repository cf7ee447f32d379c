use core::num::NonZeroU32;
use core::slice;

use media::fmp4::config::{Audio, Video};
use media::fmp4::{self, Sample, SampleRun};
use media::rtmp::{self, Client, Intent, Server};
use media::{Codec, Kind, Tag, flv, ts};
use proptest::prelude::*;

use super::*;

/// High profile, 318 x 178 pixels.
const AVCC: &[u8] = &[
    0x01, 0x64, 0x00, 0x0c, 0xff, 0xe1, 0x00, 0x1a, 0x67, 0x64, 0x00, 0x0c, 0xac, 0xd9, 0x41, 0x41,
    0x9e, 0xa2, 0x30, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00, 0x32, 0x0f, 0x14,
    0x29, 0x96, 0x01, 0x00, 0x06, 0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0, 0xfd, 0xf8, 0xf8, 0x00,
];
const PLAYLIST: &[u8] = b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MAP:URI=\"i.mp4\"\n1.m4s\n";

fn perception(frames: u32) -> Perception {
    Perception::new(NonZeroU32::new(frames).expect("above 0"), DEFAULT_LIMIT)
}

/// Result for bodies that are each cut into chunks of these sizes.
fn answer(mut perception: Perception, bodies: &[Vec<u8>], pieces: &[usize]) -> Progress {
    let mut sizes = pieces.iter().cycle();
    for body in bodies {
        let mut rest = &body[..];
        while !rest.is_empty() {
            let size = rest.len().min(*sizes.next().expect("endless"));
            let (piece, behind) = rest.split_at(size);
            perception.read(piece);
            rest = behind;
        }
        perception.end_body();
    }
    perception.progress()
}

fn whole(frames: u32, bodies: &[Vec<u8>]) -> Progress {
    answer(perception(frames), bodies, &[usize::MAX])
}

fn tag(kind: Kind, head: &[u8], size: usize) -> Vec<u8> {
    let payload = [head, &vec![7; size - head.len()]].concat();
    Tag::new(kind, 0, &payload).expect("short enough").bytes().to_vec()
}

/// The paper's example (section IV-A): script data, audio, an I frame, a P frame, three B frames,
/// plus the sequence headers of H.264 and AAC.
fn flv() -> Vec<u8> {
    let key = [0x17, 1, 0, 0, 0];
    let inter = [0x27, 1, 0, 0, 0];
    [
        flv::file_header(true, true).to_vec(),
        tag(Kind::Script, b"\x02\x00\x0aonMetaData", 300),
        tag(Kind::Video, &[0x17, 0, 0, 0, 0], 50),
        tag(Kind::Audio, &[0xaf, 0], 4),
        tag(Kind::Audio, &[0xaf, 1], 400),
        tag(Kind::Video, &key, 40_000),
        tag(Kind::Video, &inter, 5_000),
        tag(Kind::Video, &inter, 1_000),
        tag(Kind::Video, &inter, 900),
        tag(Kind::Video, &inter, 800),
    ]
    .concat()
}

#[test]
fn the_papers_example_counts_frames_and_adds_all_bytes() {
    // 15 bytes per tag for its header and size, and 13 before the first.
    let before = 13 + (300 + 15) + (50 + 15) + (4 + 15) + (400 + 15);
    let i_frame = before + 40_000 + 15;
    assert_eq!(whole(1, &[flv()]), Progress::Known(i_frame));
    assert_eq!(whole(3, &[flv()]), Progress::Known(i_frame + 5_015 + 1_015));
    assert_eq!(whole(5, &[flv()]), Progress::Known(flv().len() as u64));
    assert_eq!(whole(6, &[flv()]), Progress::Reading, "only five frames");
}

#[test]
fn an_flv_frame_is_known_from_its_header() {
    let body = flv();
    let mut perception = perception(1);
    let frame = 13 + 315 + 65 + 19 + 415;
    assert_eq!(perception.read(&body[..frame + 11 + 31]), Progress::Reading);
    let known = Progress::Known(frame as u64 + 40_015);
    assert_eq!(perception.read(&body[frame + 42..frame + 43]), known);
    assert_eq!(perception.read(b"later bytes"), known);
}

#[test]
fn flv_with_only_audio_counts_audio_frames_and_enhanced_headers_are_parsed() {
    let sound = [
        flv::file_header(true, false).to_vec(),
        tag(Kind::Audio, &[0xaf, 0], 4),
        tag(Kind::Audio, &[0xaf, 1], 400),
    ]
    .concat();
    assert_eq!(whole(1, slice::from_ref(&sound)), Progress::Known(sound.len() as u64));
    let enhanced = [
        flv::file_header(true, true).to_vec(),
        tag(Kind::Video, b"\xd0\x00", 2),
        tag(Kind::Video, b"\x90hvc1", 60),
        tag(Kind::Video, b"\x91hvc1\0\0\0", 600),
    ]
    .concat();
    assert_eq!(whole(1, slice::from_ref(&enhanced)), Progress::Known(enhanced.len() as u64));
    // A ModEx header that exceeds the inspected bytes.
    let long = [&[0x97, 60][..], &[0; 61]].concat();
    let body = [flv::file_header(true, true).to_vec(), tag(Kind::Video, &long, 600)].concat();
    assert_eq!(whole(1, &[body]), Progress::GaveUp(Reason::Unsupported));
}

fn sample(dts: i64, size: usize) -> Sample {
    let nal = [&(size as u32 - 4).to_be_bytes()[..], &[0x65], &vec![7; size - 5]].concat();
    Sample { data: nal.into(), dts, composition: 0, sync: dts == 0 }
}

fn video() -> Video {
    Video::new(Codec::Avc, AVCC.to_vec().into()).expect("a good record")
}

fn audio() -> Audio {
    Audio::new(Codec::Aac, vec![0x11, 0x90].into()).expect("a good record")
}

fn sounds() -> Vec<Sample> {
    (0..5)
        .map(|i| Sample {
            data: vec![0x21; 200].into(),
            dts: i * 1_024,
            composition: 0,
            sync: true,
        })
        .collect()
}

fn fmp4() -> Vec<Vec<u8>> {
    let frames = [sample(0, 20_000), sample(40, 3_000), sample(80, 2_000)];
    let sounds = sounds();
    let sound = SampleRun { track: fmp4::AUDIO_TRACK, samples: &sounds, end: 5_120 };
    let picture = SampleRun { track: fmp4::VIDEO_TRACK, samples: &frames, end: 120 };
    let init = fmp4::init(Some(&video()), Some(&audio())).to_vec();
    let quiet = fmp4::fragment(1, &[sound]).to_vec();
    let both = fmp4::fragment(2, &[sound, picture]).to_vec();
    vec![PLAYLIST.to_vec(), init, [quiet, both].concat()]
}

fn transport_stream() -> Vec<u8> {
    let frames = [sample(0, 20_000), sample(40, 3_000), sample(80, 2_000)];
    let (video, audio, sounds) = (video(), audio(), sounds());
    let program =
        ts::write::Program { video: Some((&video, &frames)), audio: Some((&audio, &sounds)) };
    ts::SegmentWriter::default().write(program).to_vec()
}

#[test]
fn hls_of_fmp4_adds_playlist_init_and_segment_up_to_the_frames_last_byte() {
    let bodies = fmp4();
    let before = bodies[0].len() + bodies[1].len();
    let data = sample(0, 20_000).data;
    let at = bodies[2].windows(data.len()).position(|part| part == data).expect("it is there");
    let end = (before + at + data.len()) as u64;
    assert_eq!(whole(1, &bodies), Progress::Known(end));
    assert_eq!(whole(2, &bodies), Progress::Known(end + 3_000));
    // A single file gives the same result without the playlist.
    let file = [&bodies[1][..], &bodies[2]].concat();
    assert_eq!(whole(1, &[file]), Progress::Known(end - bodies[0].len() as u64));
    // The answer precedes the data.
    let mut perception = perception(1);
    for body in &bodies[..2] {
        perception.read(body);
        perception.end_body();
    }
    assert_eq!(perception.bytes_before(), before as u64);
    assert_eq!(perception.read(&bodies[2][..at]), Progress::Known(end));
    assert_eq!(whole(1, &bodies[2..]), Progress::GaveUp(Reason::NoInitialisation));
}

#[test]
fn default_sizes_in_trex_and_tfhd_apply_to_all_samples_of_a_run() {
    let atom = |name: &[u8], body: &[u8]| {
        [&(body.len() as u32 + 8).to_be_bytes()[..], name, body].concat()
    };
    let numbers = |list: &[u32]| list.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>();
    let hdlr = atom(b"hdlr", &[&numbers(&[0, 0])[..], b"vide", &[0; 13]].concat());
    let tkhd = atom(b"tkhd", &numbers(&[0x0100_0003, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0]));
    let trak = atom(b"trak", &[tkhd, atom(b"mdia", &hdlr)].concat());
    let trex = |size| atom(b"mvex", &atom(b"trex", &numbers(&[0, 9, 1, 0, size, 0])));
    let moof = |tfhd: &[u32], trun: &[u32]| {
        let traf = [atom(b"tfhd", &numbers(tfhd)), atom(b"trun", &numbers(trun))].concat();
        atom(b"moof", &atom(b"traf", &traf))
    };
    let file = |size, moof: Vec<u8>| [atom(b"moov", &[trak.clone(), trex(size)].concat()), moof];
    // Size in trex; the data starts 200 bytes after the start of the moof.
    let [moov, first] = file(1_000, moof(&[0x0002_0000, 9], &[1, 3, 200]));
    let start = moov.len() as u64;
    let body = [moov, first].concat();
    assert_eq!(whole(1, slice::from_ref(&body)), Progress::Known(start + 1_200));
    assert_eq!(whole(3, slice::from_ref(&body)), Progress::Known(start + 3_200));
    assert_eq!(whole(4, &[body]), Progress::Reading);
    // Size in tfhd, with a base relative to the start of the body.
    let [moov, moof_1] = file(5, moof(&[0x11, 9, 0, 10_000, 700], &[1, 1, 50]));
    assert_eq!(whole(1, &[[moov, moof_1].concat()]), Progress::Known(10_000 + 50 + 700));
    // Four billion samples cost no more than one, and empty samples are not frames.
    for size in [0, 1] {
        let [moov, moof] = file(size, moof(&[0x0002_0000, 9], &[1, u32::MAX, 200]));
        let found = whole(u32::MAX, &[[moov, moof].concat()]);
        assert_eq!(found == Progress::Reading, size == 0, "{found:?}");
    }
}

#[test]
fn a_transport_stream_frame_ends_with_its_last_packet() {
    let body = transport_stream();
    let pid = |packet: &[u8]| u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff;
    let packets: Vec<_> = body.chunks(188).collect();
    // Most packets carry video.
    let count = |of: u16| packets.iter().filter(|packet| pid(packet) == of).count();
    let video_pid = packets.iter().map(|packet| pid(packet)).max_by_key(|pid| count(*pid));
    let video: Vec<_> =
        packets.iter().enumerate().filter(|(_, packet)| Some(pid(packet)) == video_pid).collect();
    let second = video.iter().skip(1).position(|(_, packet)| packet[1] & 0x40 != 0);
    let end = |index: usize| (video[index].0 as u64 + 1) * 188;
    let first_end = end(second.expect("another frame"));
    assert!((20_000..25_000).contains(&first_end), "{first_end}");
    assert_eq!(whole(1, slice::from_ref(&body)), Progress::Known(first_end));
    // The last frame ends with the segment.
    let mut open = perception(3);
    assert_eq!(open.read(&body), Progress::Reading);
    assert_eq!(open.end_body(), Progress::Known(end(video.len() - 1)));
}

#[test]
fn segments_without_video_only_count_as_bytes() {
    let (audio, sounds) = (audio(), sounds());
    let program = ts::write::Program { video: None, audio: Some((&audio, &sounds)) };
    let quiet = ts::SegmentWriter::default().write(program).to_vec();
    let loud = transport_stream();
    let Progress::Known(alone) = whole(1, slice::from_ref(&loud)) else { panic!("not known") };
    let bytes = (PLAYLIST.len() + quiet.len()) as u64;
    assert_eq!(whole(1, &[PLAYLIST.to_vec(), quiet, loud]), Progress::Known(bytes + alone));
}

/// Bytes from a server to a player, starting with the handshake, and the end of the first video
/// frame.
fn rtmp_body() -> (Vec<u8>, u64) {
    let url = rtmp::Url::parse("rtmp://example.org/live/demo").expect("a good URL");
    let mut server = Server::new(rtmp::Config::default(), &[1; 1_528]);
    let mut client = Client::new(url, Intent::Play, rtmp::Config::default(), &[2; 1_528]);
    let mut sent = Vec::new();
    let mut exchange = |server: &mut Server| {
        loop {
            let up: Vec<u8> = core::iter::from_fn(|| client.poll_output()).flatten().collect();
            server.handle(&up).expect("an honest client");
            let down: Vec<u8> = core::iter::from_fn(|| server.poll_output()).flatten().collect();
            client.handle(&down).expect("an honest server");
            sent.extend_from_slice(&down);
            if up.is_empty() && down.is_empty() {
                return sent.len() as u64;
            }
        }
    };
    exchange(&mut server);
    server.accept();
    exchange(&mut server);
    let tag = |kind, payload: &[u8]| Tag::new(kind, 0, payload).expect("short enough");
    server.send_tag(&tag(Kind::Video, &[&[0x17, 0, 0, 0, 0], AVCC].concat()));
    server.send_tag(&tag(Kind::Audio, &[0xaf, 0, 0x12, 0x10]));
    server.send_tag(&tag(Kind::Audio, &[0xaf, 1, 9, 9]));
    server.send_tag(&tag(Kind::Video, &[&[0x17, 1, 0, 0, 0][..], &[7; 50_000]].concat()));
    let end = exchange(&mut server);
    server.send_tag(&tag(Kind::Video, &[&[0x27, 1, 0, 0, 0][..], &[7; 500]].concat()));
    exchange(&mut server);
    (sent, end)
}

#[test]
fn rtmp_of_a_real_server_is_read_from_the_handshake_on() {
    let (body, end) = rtmp_body();
    assert_eq!(whole(1, slice::from_ref(&body)), Progress::Known(end));
    assert_eq!(whole(2, slice::from_ref(&body)), Progress::Known(body.len() as u64));
}

/// Chunks of 128 bytes: a header on chunk stream 6 interleaved with audio on 4, then a frame with
/// an extended timestamp on chunk stream 70.
fn rtmp_chunks() -> Vec<u8> {
    let mut header = vec![6, 0, 0, 0, 0, 0, 200, 9, 1, 0, 0, 0, 0x17, 0, 0, 0, 0];
    header.extend([1; 123]);
    header.extend([4, 0, 0, 0, 0, 0, 3, 8, 1, 0, 0, 0, 0xaf, 1, 2]);
    header.push(0xc6);
    header.extend([1; 72]);
    let time = [1, 0, 0, 0];
    let mut frame = vec![0, 6, 0xff, 0xff, 0xff, 0, 1, 44, 9, 1, 0, 0, 0];
    frame.extend(time);
    frame.extend([&[0x17, 1, 0, 0, 0][..], &[2; 123]].concat());
    for rest in [128, 44] {
        frame.extend([0xc0, 6]);
        frame.extend(time);
        frame.extend(vec![2; rest]);
    }
    [header, frame].concat()
}

#[test]
fn rtmp_chunks_may_alternate_before_the_frame_and_carry_extended_timestamps() {
    let body = rtmp_chunks();
    let of = |frames| Perception::of_chunks(NonZeroU32::new(frames).expect("1"), DEFAULT_LIMIT);
    let known = Progress::Known(body.len() as u64);
    assert_eq!(answer(of(1), slice::from_ref(&body), &[usize::MAX]), known);
    // The answer is known after the frame's first 32 bytes.
    let frame = 12 + 128 + 15 + 73;
    assert_eq!(of(1).read(&body[..frame + 17 + 31]), Progress::Reading);
    assert_eq!(of(1).read(&body[..frame + 17 + 32]), known);
    // A new chunk size applies from the next message on.
    let large = [&[2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 16, 0][..], &{
        let mut frame = vec![6, 0, 0, 0, 0, 1, 44, 9, 1, 0, 0, 0, 0x17, 1, 0, 0, 0];
        frame.extend([2; 295]);
        frame
    }]
    .concat();
    let known = Progress::Known(large.len() as u64);
    assert_eq!(answer(of(1), &[large], &[usize::MAX]), known);
}

#[test]
fn unknown_or_distant_frames_are_given_up_with_a_reason() {
    let ftyp = b"\0\0\0\x10ftypisom\0\0\0\0".to_vec();
    let cases: Vec<(Vec<u8>, Reason)> = vec![
        (b"<html>".to_vec(), Reason::Format),
        (b"FLX\x01\x05\0\0\0\x09".to_vec(), Reason::Format),
        (b"#EXTINF:1\n".to_vec(), Reason::Format),
        (b"\0\0\0\x10abcdisom\0\0\0\0".to_vec(), Reason::Format),
        ([&ftyp[..], b"\0\0\0\x10mdat12345678"].concat(), Reason::NotFragmented),
        ([&ftyp[..], b"\0\0\0\x04free"].concat(), Reason::Malformed),
        ([&flv::file_header(true, true)[..], &[7; 11]].concat(), Reason::Malformed),
        ([&flv::file_header(true, true)[..], &[0x29; 11]].concat(), Reason::Encrypted),
        ([&b"G\x40\x00\x10"[..], &[0xff; 184], b"X123"].concat(), Reason::Malformed),
    ];
    for (body, reason) in cases {
        let shown = body.escape_ascii().to_string();
        assert_eq!(whole(1, slice::from_ref(&body)), Progress::GaveUp(reason), "{shown}");
        assert_eq!(answer(perception(1), &[body], &[1]), Progress::GaveUp(reason), "{shown}");
    }
    let one = NonZeroU32::MIN;
    let size = whole(1, &[flv()]).known().expect("known");
    assert_eq!(Perception::new(one, size).read(&flv()), Progress::Known(size));
    assert_eq!(Perception::new(one, size - 1).read(&flv()), Progress::GaveUp(Reason::TooFar));
    assert_eq!(Perception::new(one, 0).read(&flv()), Progress::GaveUp(Reason::TooFar));
}

#[test]
fn a_reader_is_small_and_reasons_have_distinct_names() {
    assert!(size_of::<Perception>() <= 512, "{}", size_of::<Perception>());
    assert!(size_of::<Rtmp>() <= 512, "{}", size_of::<Rtmp>());
    let names: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|r| r.name()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    for (index, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
    }
}

/// All bodies of the tests above.
fn corpus() -> Vec<Vec<Vec<u8>>> {
    vec![vec![flv()], fmp4(), vec![transport_stream()], vec![rtmp_body().0], vec![rtmp_chunks()]]
}

fn reader(index: usize, frames: u32, limit: u64) -> Perception {
    let frames = NonZeroU32::new(frames).expect("above 0");
    match index {
        4 => Perception::of_chunks(frames, limit),
        _ => Perception::new(frames, limit),
    }
}

#[test]
fn chunks_of_one_byte_give_the_same_results() {
    for (index, bodies) in corpus().iter().enumerate() {
        for frames in 1..4 {
            let all = answer(reader(index, frames, DEFAULT_LIMIT), bodies, &[usize::MAX]);
            let bytes = answer(reader(index, frames, DEFAULT_LIMIT), bodies, &[1]);
            assert_eq!(bytes, all, "{index} {frames}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn results_do_not_depend_on_chunks_limits_or_damage(
        index in 0..5usize,
        frames in 1..5u32,
        pieces in prop::collection::vec(1..3_000usize, 1..20),
        limit in prop_oneof![Just(DEFAULT_LIMIT), 0..30_000u64],
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bodies = corpus().swap_remove(index);
        let last = bodies.len() - 1;
        for (index, byte) in damage {
            // Most bytes are payload, and headers are near the start.
            let body = &mut bodies[last];
            let near = index.index(body.len().min(600));
            body[near] = byte;
        }
        if let Some(cut) = cut {
            let len = cut.index(bodies[last].len());
            bodies[last].truncate(len);
        }
        let all = answer(reader(index, frames, limit), &bodies, &[usize::MAX]);
        prop_assert_eq!(answer(reader(index, frames, limit), &bodies, &pieces), all);
        prop_assert_eq!(answer(reader(index, frames, limit), &bodies, &[1]), all);
        if let Progress::Known(size) = all {
            prop_assert!(size <= limit);
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(first in 0..7usize, bytes: Vec<u8>, pieces in 1..50usize) {
        let start: &[u8] = [
            &b"FLV\x01\x05\0\0\0\x09\0\0\0\0"[..],
            b"G\x40\x00\x10\0",
            b"#EXTM3U",
            b"\0\0\0\x10ftypisom\0\0\0\0\0\0\0\xffmoov",
            b"\0\0\0\x08moov\0\0\0\xffmoof\0\0\0\xf0traf\0\0\0\x20tfhd",
            b"\x03",
            b"",
        ][first];
        let body = [start, &bytes].concat();
        let all = whole(2, slice::from_ref(&body));
        prop_assert_eq!(answer(perception(2), &[body], &[pieces]), all);
    }
}
