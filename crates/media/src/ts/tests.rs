//! Transport streams: packet format and round trips.

use bytes::Bytes;
use proptest::prelude::*;

use super::read::{Error, Item};
use super::write::Program;
use super::*;
use crate::codec::Codec;
use crate::deviation::Deviation;
use crate::fmp4::Sample;
use crate::fmp4::config::{Audio, Video};
use crate::fmp4::read::CodecConfig;
use crate::hls::fixture::AVCC;

fn video() -> Video {
    Video::new(Codec::Avc, Bytes::from_static(AVCC)).expect("a good record")
}

fn audio() -> Audio {
    Audio::new(Codec::Aac, Bytes::from_static(&[0x11, 0x90])).expect("a good record")
}

/// Returns a frame of one NAL unit with `size` non-zero bytes.
fn frame(dts: i64, composition: i32, sync: bool, size: usize) -> Sample {
    let mut data = (size as u32).to_be_bytes().to_vec();
    data.push(if sync { 0x65 } else { 0x41 });
    data.resize(4 + size, 7);
    Sample { data: Bytes::from(data), dts, composition, sync }
}

fn audio_frame(number: i64, size: usize) -> Sample {
    Sample { data: Bytes::from(vec![9; size]), dts: number * 1_024, composition: 0, sync: true }
}

/// Checks the packet format: sync bytes, counters, clock references.
fn check(stream: &[u8], counters: &mut [Option<u8>; 0x2000]) {
    assert!(stream.len().is_multiple_of(PACKET_LEN));
    for packet in stream.chunks(PACKET_LEN) {
        assert_eq!(packet[0], SYNC_BYTE);
        let pid = usize::from(u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff);
        let counter = packet[3] & 15;
        if let Some(before) = counters[pid].replace(counter) {
            assert_eq!(counter, (before + 1) & 15, "pid {pid}");
        }
        if packet[3] & 0x20 != 0 {
            assert!(packet[4] <= 183);
        }
    }
}

#[test]
fn access_units_of_all_sizes_round_trip() {
    let (video, audio) = (video(), audio());
    let mut writer = SegmentWriter::default();
    let mut reader = SegmentReader::default();
    let mut counters = [None; 0x2000];
    let mut first = None;
    for number in 0..500 {
        let size = 1 + number as usize;
        let frames =
            [frame(number * 40, 80, true, size), frame(number * 40 + 20, -10, false, size + 500)];
        let audio_frames = [audio_frame(number * 2, size), audio_frame(number * 2 + 1, size + 300)];
        let program =
            Program { video: Some((&video, &frames)), audio: Some((&audio, &audio_frames)) };
        let segment = writer.write(program);
        check(&segment, &mut counters);
        let items = reader.read(&segment).expect("readable");
        let mut got = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Config(CodecConfig::Video(config)) => {
                    assert_eq!((number, &config), (0, &video))
                }
                Item::Config(config) => {
                    assert_eq!((number, config), (0, CodecConfig::Audio(audio.clone())))
                }
                Item::Video(sample) => got.0.push(sample),
                Item::Audio(sample) => got.1.push(sample),
            }
        }
        let start = *first.get_or_insert(got.0[0].dts);
        for (got, wanted) in got.0.iter().zip(&frames) {
            assert_eq!((&got.data, got.sync), (&wanted.data, wanted.sync), "{number}");
            assert_eq!(got.dts - start, wanted.dts * 90, "{number}");
            assert_eq!(got.composition, wanted.composition * 90, "{number}");
        }
        for (got, wanted) in got.1.iter().zip(&audio_frames) {
            assert_eq!(got.data, wanted.data, "{number}");
            assert_eq!(got.dts - start, wanted.dts * 90 / 48, "{number}");
        }
        assert_eq!((got.0.len(), got.1.len()), (2, 2));
    }
}

#[test]
fn times_continue_across_the_33_bit_wrap() {
    let video = video();
    let (mut writer, mut reader) = (SegmentWriter::default(), SegmentReader::default());
    let wrap = (1i64 << 33) / 90;
    let mut times = Vec::new();
    for at in [wrap - 1_060, wrap - 1_020, wrap - 980, wrap - 940] {
        let frames = [frame(at, 0, true, 10)];
        let segment = writer.write(Program { video: Some((&video, &frames)), audio: None });
        for item in reader.read(&segment).expect("readable") {
            if let Item::Video(sample) = item {
                times.push(sample.dts);
            }
        }
    }
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 3_600), "{times:?}");
}

#[test]
fn audio_frames_may_span_pes_packets() {
    let audio = audio();
    let audio_frames: Vec<Sample> = (0..4).map(|number| audio_frame(number, 100)).collect();
    let program = Program { video: None, audio: Some((&audio, &audio_frames)) };
    let whole = SegmentWriter::default().write(program);
    let mut expected = SegmentReader::default().read(&whole).expect("readable");
    // The frames as one byte stream, split differently: 150 bytes, then the rest, 10 ms late. The
    // second frame starts before the split.
    for item in &mut expected[3..] {
        if let Item::Audio(sample) = item {
            sample.dts += 900;
        }
    }
    let adts: Vec<u8> = audio_frames
        .iter()
        .flat_map(|audio_frame| {
            [&[0xff, 0xf1, 0x4c, 0x80, 0x0d, 0x7f, 0xfc], &audio_frame.data[..]].concat()
        })
        .collect();
    let mut stream = whole[..2 * PACKET_LEN].to_vec();
    let mut counter = 0;
    for (pts, data) in [(0u64, &adts[..150]), (1_920 * 2 + 900, &adts[150..])] {
        let mut pes = vec![0, 0, 1, 0xc0, 0, 0, 0x80, 0x80, 5, 0x21];
        let pts = pts + 90_000;
        pes.extend([
            (pts >> 22) as u8,
            (pts >> 14) as u8 | 1,
            (pts >> 7) as u8,
            (pts << 1) as u8 | 1,
        ]);
        pes.extend_from_slice(data);
        for (number, piece) in pes.chunks(183).enumerate() {
            let start = if number == 0 { 0x41 } else { 0x01 };
            let adaptation = 183 - piece.len();
            stream.extend([SYNC_BYTE, start, 0x01, 0x30 | counter, adaptation as u8]);
            stream.extend((0..adaptation).map(|at| if at == 0 { 0 } else { 0xff }));
            stream.extend_from_slice(piece);
            counter += 1;
        }
    }
    let got = SegmentReader::default().read(&stream).expect("readable");
    assert_eq!(got, expected);
}

/// Returns the base of a packet's clock reference.
fn clock(packet: &[u8]) -> Option<i64> {
    let flags = packet[5] & 0x10 != 0;
    (packet[3] & 0x20 != 0 && packet[4] > 6 && flags).then(|| {
        let high = u32::from_be_bytes([packet[6], packet[7], packet[8], packet[9]]);
        i64::from(high) << 1 | i64::from(packet[10] >> 7)
    })
}

#[test]
fn clock_references_precede_decoding_times() {
    let (video, audio) = (video(), audio());
    let frames: Vec<Sample> = (0..50).map(|n| frame(n * 40, 80, n == 0, 900)).collect();
    let audio_frames: Vec<Sample> = (0..90).map(|n| audio_frame(n, 300)).collect();
    for video in [Some((&video, &frames[..])), None] {
        let program = Program { video, audio: Some((&audio, &audio_frames)) };
        let segment = SegmentWriter::default().write(program);
        let clocks: Vec<i64> = segment.chunks(PACKET_LEN).filter_map(clock).collect();
        // Section 2.7.2 of H.222.0: at most 0.1 s apart.
        assert!(clocks.windows(2).all(|pair| (1..=9_000).contains(&(pair[1] - pair[0]))));
        let items = SegmentReader::default().read(&segment).expect("readable");
        let times: Vec<i64> = items
            .iter()
            .filter_map(|item| match item {
                Item::Video(sample) => Some(sample.dts),
                Item::Audio(sample) if video.is_none() => Some(sample.dts),
                _ => None,
            })
            .collect();
        assert_eq!(clocks.len(), times.len());
        for (clock, time) in clocks.iter().zip(times) {
            assert!((1..90_000).contains(&(time - clock)), "{clock} for {time}");
        }
    }
}

#[test]
fn a_pes_packet_without_a_time_continues_the_previous_one() {
    let (video, frames) = (video(), [frame(0, 0, true, 300)]);
    let whole =
        SegmentWriter::default().write(Program { video: Some((&video, &frames)), audio: None });
    let mut split = whole.to_vec();
    // The last packet becomes the start of a PES packet without a timestamp.
    let last = split.len() - PACKET_LEN;
    let body: Vec<u8> = split[last + 4..last + PACKET_LEN].to_vec();
    assert_eq!(split[last + 3] & 0x20, 0x20, "it has stuffing to spare");
    let stuffing = usize::from(body[0]);
    let payload = &body[1 + stuffing..];
    let mut packet = vec![SYNC_BYTE, 0x41, 0, split[last + 3], (stuffing - 9) as u8, 0];
    packet.resize(4 + 1 + stuffing - 9, 0xff);
    packet.extend([0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0]);
    packet.extend_from_slice(payload);
    assert_eq!(packet.len(), PACKET_LEN);
    split[last..last + PACKET_LEN].copy_from_slice(&packet);
    let read = |stream: &[u8]| SegmentReader::default().read(stream).expect("readable");
    assert_eq!(read(&split), read(&whole));
}

#[test]
fn other_formats_than_transport_streams_are_rejected() {
    let mut reader = SegmentReader::default();
    assert_eq!(reader.read(&[]), Err(Error::Sync));
    assert_eq!(reader.read(&[0; 1_000]), Err(Error::Sync));
    let mut tables = SegmentWriter::default().write(Program { video: None, audio: None }).to_vec();
    assert_eq!(reader.read(&tables), Err(Error::NoStream));
    let audio = audio();
    let audio_frames = [audio_frame(0, 10)];
    tables = SegmentWriter::default()
        .write(Program { video: None, audio: Some((&audio, &audio_frames)) })
        .to_vec();
    tables[2 * PACKET_LEN + 3] |= 0x80;
    assert_eq!(reader.read(&tables), Err(Error::Encrypted));
}

#[test]
fn unsupported_codecs_are_dropped() {
    let record = Bytes::from_static(b"OpusHead\x01\x02\x38\x01\x80\xbb\0\0\0\0\0");
    let opus = Audio::new(Codec::Opus, record).expect("a good record");
    assert!(!write::carries_audio(&opus));
    let (video, frames, audio_frames) = (video(), [frame(0, 0, true, 9)], [audio_frame(0, 10)]);
    let program = Program { video: Some((&video, &frames)), audio: Some((&opus, &audio_frames)) };
    let items =
        SegmentReader::default().read(&SegmentWriter::default().write(program)).expect("readable");
    assert_eq!(items.len(), 2, "configuration and frame");
}

#[test]
fn unsupported_audio_and_video_codecs_are_reported() {
    let (video, audio, frames, audio_frames) =
        (video(), audio(), [frame(0, 0, true, 9)], [audio_frame(0, 10)]);
    let program = Program { video: Some((&video, &frames)), audio: Some((&audio, &audio_frames)) };
    let mut segment = SegmentWriter::default().write(program).to_vec();
    // The program's table is in the second packet, after an adaptation field and a pointer field.
    let adaptation = match segment[PACKET_LEN + 3] & 0x20 {
        0 => 0,
        _ => 1 + usize::from(segment[PACKET_LEN + 4]),
    };
    let table = &mut segment[PACKET_LEN + 5 + adaptation..2 * PACKET_LEN];
    let end = 3 + usize::from(u16::from_be_bytes([table[1], table[2]]) & 0x0fff) - 4;
    let entry = (12..end).step_by(5).find(|&at| table[at] == 0x0f).expect("an audio entry");
    table[entry] = 0x81;
    let crc = crc_32(&table[..end]);
    table[end..end + 4].copy_from_slice(&crc.to_be_bytes());
    let mut reader = SegmentReader::default();
    let items = reader.read(&segment).expect("readable");
    assert_eq!((items.len(), reader.unsupported()), (2, &["AC-3"][..]));
}

proptest! {
    #[test]
    fn random_packets_never_panic(
        packets in proptest::collection::vec(
            (0..4u8, proptest::collection::vec(any::<u8>(), 184)), 0..20),
    ) {
        let audio = audio();
        let audio_frames = [audio_frame(0, 10)];
        let (video, audio) = (video(), Some((&audio, &audio_frames[..])));
        let program = Program { video: Some((&video, &[])), audio };
        let mut stream = SegmentWriter::default().write(program).to_vec();
        for (pid, body) in packets {
            let head = match pid {
                0 => [SYNC_BYTE, 0x40, 0, 0x10],
                1 => [SYNC_BYTE, 0x50, 0, 0x10],
                2 => [SYNC_BYTE, 0x41, 0, 0x30],
                _ => [SYNC_BYTE, 0x01, 1, 0x10],
            };
            stream.extend(head);
            stream.extend(body);
        }
        let _ = SegmentReader::default().read(&stream);
    }
}

#[test]
fn continuity_counters_restart_with_a_discontinuity_indicator() {
    let (video, audio) = (video(), audio());
    let frames = [frame(0, 0, true, 300), frame(40, 0, false, 300)];
    let audio_frames = [audio_frame(0, 50), audio_frame(1, 50)];
    let program = Program { video: Some((&video, &frames)), audio: Some((&audio, &audio_frames)) };
    let mut writer = SegmentWriter::default();
    let (first, second) = (writer.write(program), writer.write(program));
    assert_eq!(first, SegmentWriter::default().write(program), "whatever was before");
    let mut counters = [None; 0x2000];
    check(&first, &mut counters);
    check(&second, &mut counters);
    let mut begun = [false; 0x2000];
    for packet in first.chunks(PACKET_LEN).chain(second.chunks(PACKET_LEN)) {
        let pid = usize::from(u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff);
        let says = packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x80 != 0;
        assert_eq!(says, !core::mem::replace(&mut begun[pid], true), "pid {pid}");
        assert!(!says || packet[3] & 15 == 0);
    }
}

#[test]
fn a_program_with_different_tracks_has_a_new_version() {
    let (video, audio) = (video(), audio());
    let mp3 = Audio::mp3(&[0xff, 0xfb, 0x90, 0x00, 0, 0, 0, 0]).expect("a frame");
    let mut versions = std::collections::BTreeSet::new();
    let programs = [
        (Some(&video), None),
        (None, Some(&audio)),
        (Some(&video), Some(&audio)),
        (Some(&video), Some(&mp3)),
        (None, Some(&mp3)),
    ];
    for (video, audio) in programs {
        let program = Program {
            video: video.map(|video| (video, &[][..])),
            audio: audio.map(|audio| (audio, &[][..])),
        };
        let tables = SegmentWriter::default().write(program);
        let pmt = &tables[PACKET_LEN..2 * PACKET_LEN];
        // After the packet's header, its adaptation field and the pointer; current_next_indicator
        // is set.
        let byte = pmt[4 + 2 + 1 + 5];
        assert_eq!((pmt[7], byte & 0xc1), (2, 0xc1));
        assert!(versions.insert(byte >> 1 & 0x1f), "{video:?} {audio:?}");
    }
}

/// Returns video with 25 frames per second and a key frame per second, and audio.
fn program(seconds: i64) -> Vec<u8> {
    let (video, audio) = (video(), audio());
    let frames: Vec<Sample> =
        (0..25 * seconds).map(|n| frame(n * 40, 80, n % 25 == 0, 900)).collect();
    let audio_frames: Vec<Sample> = (0..46 * seconds).map(|n| audio_frame(n, 300)).collect();
    let program = Program { video: Some((&video, &frames)), audio: Some((&audio, &audio_frames)) };
    SegmentWriter::default().write(program).to_vec()
}

/// Returns the numbers of video and audio frames that a reader finds, and its deviations.
fn count(reader: &mut SegmentReader, segment: &[u8]) -> ([usize; 2], Vec<(Deviation, u32)>) {
    let items = reader.read(segment).expect("tolerated");
    let videos = items.iter().filter(|item| matches!(item, Item::Video(_))).count();
    let audios = items.iter().filter(|item| matches!(item, Item::Audio(_))).count();
    ([videos, audios], reader.deviations().take().collect())
}

fn packets(segment: &[u8]) -> Vec<Vec<u8>> {
    segment.chunks(PACKET_LEN).map(<[u8]>::to_vec).collect()
}

fn pid(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff
}

#[test]
fn a_reader_resynchronises_after_damage() {
    let good = program(2);
    let whole = [50, 92];
    assert_eq!(count(&mut SegmentReader::default(), &good), (whole, vec![]));
    let half = good.len() / PACKET_LEN / 2 * PACKET_LEN;
    for (number, lost) in [(0, 1), (1, 1), (2, 1), (half / PACKET_LEN, 1), (7, 3)] {
        let mut bad = good.clone();
        for packet in 0..lost {
            bad[(number + packet) * PACKET_LEN] = 0;
        }
        // The reader knows the program: a damaged packet may be part of a table.
        let mut reader = SegmentReader::default();
        count(&mut reader, &good);
        let (got, seen) = count(&mut reader, &bad);
        assert!(got[0] + got[1] + 2 * lost >= whole[0] + whole[1] - 2, "{number} {lost}: {got:?}");
        let kinds: Vec<Deviation> = seen.iter().map(|seen| seen.0).collect();
        let expects = |kind: Deviation| number == 0 || kinds.contains(&kind);
        assert!(expects(Deviation::TsSync) && kinds.len() <= 3, "{number}: {kinds:?}");
    }
    for noise in [&[0; 100][..], &[0x47; 100], &[0x47; 187], b"<html>GGG</html>", &good[..77]] {
        for at in [0, half] {
            let bad = [&good[..at], noise, &good[at..]].concat();
            let (got, _) = count(&mut SegmentReader::default(), &bad);
            assert!(got[0] >= 49 && got[1] >= 91, "{at} {noise:?}: {got:?}");
            // Noise that looks like a packet is read as one.
            assert!(noise[0] == SYNC_BYTE || got == whole, "{at} {noise:?}: {got:?}");
        }
    }
    // Truncated in the middle of a packet, here and at the end.
    let short = [&good[..half - 100], &good[half..good.len() - 77]].concat();
    let (got, seen) = count(&mut SegmentReader::default(), &short);
    assert!(got[0] >= 49 && got[1] >= 90, "{got:?}");
    assert_eq!(seen[0], (Deviation::TsSync, 1));
}

#[test]
fn packets_may_have_a_leading_time_or_a_trailing_code() {
    let good = program(2);
    let before: Vec<u8> = good
        .chunks(PACKET_LEN)
        .zip(0u32..)
        .flat_map(|(p, n)| [&n.to_be_bytes(), p].concat())
        .collect();
    let behind: Vec<u8> = good.chunks(PACKET_LEN).flat_map(|p| [p, &[0x47; 16]].concat()).collect();
    for other in [before, behind] {
        let got = count(&mut SegmentReader::default(), &other);
        assert_eq!(got, ([50, 92], vec![(Deviation::TsPacketSize, 1)]));
    }
}

#[test]
fn late_single_and_changing_tables_are_tolerated() {
    let good = packets(&program(2));
    let (tables, media): (Vec<_>, Vec<_>) = good.iter().cloned().partition(|packet| {
        let payload_at = if packet[3] & 0x20 != 0 { 5 + usize::from(packet[4]) } else { 4 };
        pid(packet) == 0 || packet[payload_at..].starts_with(&[0, 2])
    });
    assert_eq!(tables.len(), 2);
    let late = [&media[..40], &tables, &media[40..]].concat().concat();
    let late_only = vec![(Deviation::TsTables, 1)];
    assert_eq!(count(&mut SegmentReader::default(), &late), ([50, 92], late_only.clone()));
    let mut reader = SegmentReader::default();
    assert_eq!(reader.read(&media.concat()), Err(Error::NoStream), "unknown without tables");
    reader.deviations();
    assert_eq!(count(&mut reader, &good.concat()).0, [50, 92]);
    for _ in 0..3 {
        assert_eq!(count(&mut reader, &media.concat()), ([50, 92], late_only.clone()));
    }
    // Audio starts in the middle, with other PIDs.
    let (video, audio) = (video(), audio());
    let frames = [frame(0, 0, true, 300), frame(40, 0, false, 300)];
    let audio_frames = [audio_frame(0, 100), audio_frame(1, 100)];
    let mut alone = SegmentWriter::default()
        .write(Program { video: Some((&video, &frames)), audio: None })
        .to_vec();
    let both = Program { video: Some((&video, &frames)), audio: Some((&audio, &audio_frames)) };
    alone.extend_from_slice(&SegmentWriter::default().write(both));
    assert_eq!(count(&mut SegmentReader::default(), &alone).0, [4, 2]);
    let moved = [program(1), program(1)].concat();
    let half = moved.len() / 2;
    let mut moved = packets(&moved);
    let video_pid = pid(&media[0]);
    let count_half = half / PACKET_LEN;
    for packet in moved[count_half..].iter_mut().filter(|packet| pid(packet) == video_pid) {
        packet[2] ^= 0x40;
    }
    let pmt = moved[count_half + 1].as_mut_slice();
    let start = 5 + usize::from(pmt[4]) * usize::from(pmt[3] & 0x20 != 0);
    let section = if pmt[3] & 0x20 != 0 { start + 1 } else { 5 };
    let length = 3 + usize::from(u16::from_be_bytes([pmt[section + 1], pmt[section + 2]]) & 0xfff);
    let entry = (section..section + length).find(|at| pmt[*at] == stream_type::AVC).expect("AVC");
    pmt[entry + 2] ^= 0x40;
    let crc = crc_32(&pmt[section..section + length - 4]).to_be_bytes();
    pmt[section + length - 4..section + length].copy_from_slice(&crc);
    assert_eq!(count(&mut SegmentReader::default(), &moved.concat()).0, [50, 92]);
}

#[test]
fn duplicate_packets_are_skipped_and_missing_ones_counted() {
    let good = packets(&program(1));
    let twice: Vec<u8> = good.iter().flat_map(|packet| [&packet[..], packet].concat()).collect();
    let expected = SegmentReader::default().read(&good.concat()).expect("readable");
    assert_eq!(SegmentReader::default().read(&twice).expect("readable"), expected);
    let mut missing = good;
    missing.remove(20);
    let (got, seen) = count(&mut SegmentReader::default(), &missing.concat());
    assert!(got[0] >= 24, "{got:?}");
    assert_eq!(seen, [(Deviation::TsContinuity, 1)]);
}

#[test]
fn all_parameter_sets_are_kept_by_id() {
    // The same sets with ID 1: the first bit after the level, and after the header, is 0.
    let sets = video().parameter_sets;
    let [sps, pps] = &sets[..] else { panic!("two sets") };
    let with_id_1 = |set: &Bytes, at: usize| {
        // `1` becomes `010`: two bits more.
        let bits: Vec<u8> =
            set[at..].iter().flat_map(|b| (0..8).map(move |n| b >> (7 - n) & 1)).collect();
        let mut bits = [&[0, 1, 0][..], &bits[1..]].concat();
        bits.resize(bits.len().next_multiple_of(8), 0);
        let bytes = bits.chunks(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit));
        Bytes::from([&set[..at], &bytes.collect::<Vec<u8>>()].concat())
    };
    let (other_sps, other_pps) = (with_id_1(sps, 4), with_id_1(pps, 1));
    let mut kept = sets::ParameterSets::default();
    let (a, b) = kept.with(core::slice::from_ref(sps), core::slice::from_ref(pps));
    assert_eq!((&a[..], &b[..]), (&sets[..1], &sets[1..]));
    let both = (vec![sps.clone(), other_sps.clone()], vec![pps.clone(), other_pps.clone()]);
    let other = |kept: &mut sets::ParameterSets| {
        kept.with(core::slice::from_ref(&other_sps), core::slice::from_ref(&other_pps))
    };
    assert_eq!(other(&mut kept), both);
    // Each of them alone changes nothing from then on.
    assert_eq!(kept.with(core::slice::from_ref(sps), &[]), both);
    assert_eq!(kept.with(&[], core::slice::from_ref(&other_pps)), both);
    let record = Video::from_h264_sets(&both.0, &both.1).expect("a record");
    assert_eq!(record.parameter_sets.len(), 4);
    // A set of another encoder with the same ID.
    let mut new_sps = sps.to_vec();
    new_sps[3] += 1;
    let new_sps = Bytes::from(new_sps);
    let (a, b) = kept.with(core::slice::from_ref(&new_sps), core::slice::from_ref(pps));
    assert_eq!((a, b), (vec![new_sps], vec![pps.clone()]));
}

#[test]
fn packed_audio_starts_at_its_id3_timestamp() {
    let adts =
        |number: u8| [&[0xff, 0xf1, 0x4c, 0x80, 0x0d, 0x7f, 0xfc], &[number; 100][..]].concat();
    let frames: Vec<u8> = (0..10).flat_map(adts).collect();
    let tag = |time: u64| {
        let owner = b"com.apple.streaming.transportStreamTimestamp\0";
        let data = [&owner[..], &time.to_be_bytes()].concat();
        let frame = [&b"PRIV"[..], &(data.len() as u32).to_be_bytes(), &[0, 0], &data].concat();
        [&b"ID3\x04\0\0\0\0\0"[..], &[frame.len() as u8], &frame].concat()
    };
    let times = |reader: &mut SegmentReader, segment: &[u8]| -> Vec<i64> {
        let items = reader.read(segment).expect("packed audio");
        let times = items.iter().filter_map(|item| match item {
            Item::Audio(sample) => Some(sample.dts),
            _ => None,
        });
        times.collect()
    };
    let mut reader = SegmentReader::default();
    let first = times(&mut reader, &[tag(90_000), frames.clone()].concat());
    assert_eq!((first.len(), first[0], first[9]), (10, 90_000, 90_000 + 9 * 1_920));
    let foreign = b"ID3\x03\0\0\0\0\0\x05hello".to_vec();
    let second = times(&mut reader, &[foreign, tag(190_000), frames.clone()].concat());
    assert_eq!((second.len(), second[0]), (10, 190_000));
    // Without a timestamp, playback continues.
    assert!(times(&mut reader, &frames)[0].abs_diff(190_000 + 19_200) < 400);
    let mp3 = [&[0xff, 0xfb, 0x90, 0xc0][..], &[0; 413]].concat();
    assert_eq!(times(&mut SegmentReader::default(), &mp3.repeat(3)).len(), 3);
    for (end, start) in [(5, &b"ID3\x04\0\0\x7f\x7f\x7f\x7f"[..]), (0, &b"ID3"[..])] {
        let broken = [start, &frames[..end]].concat();
        assert!(SegmentReader::default().read(&broken).is_err(), "{broken:?}");
    }
}
