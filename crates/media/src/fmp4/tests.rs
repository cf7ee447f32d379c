//! Configuration records, and round trips of segments.

use proptest::prelude::*;

use super::read::{CodecConfig, Error, Movie};
use super::*;
use crate::hls::fixture::AVCC;

/// x265: VPS, SPS, PPS; 318 x 178.
pub(crate) const HVCC: &[u8] = &[
    0x01, 0x01, 0x60, 0x00, 0x00, 0x00, 0x90, 0x00, 0x00, 0x00, 0x00, 0x00, 0x3c, 0xf0, 0x00, 0xfc,
    0xfd, 0xf8, 0xf8, 0x00, 0x00, 0x0f, 0x03, 0xa0, 0x00, 0x01, 0x00, 0x18, 0x40, 0x01, 0x0c, 0x01,
    0xff, 0xff, 0x01, 0x60, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00, 0x00, 0x03, 0x00,
    0x3c, 0x95, 0x98, 0x09, 0xa1, 0x00, 0x01, 0x00, 0x2a, 0x42, 0x01, 0x01, 0x01, 0x60, 0x00, 0x00,
    0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00, 0x00, 0x03, 0x00, 0x3c, 0xa0, 0x0a, 0x08, 0x0b, 0x9d,
    0x49, 0x96, 0x56, 0x69, 0x24, 0xca, 0xf0, 0x16, 0x80, 0x80, 0x00, 0x00, 0x03, 0x00, 0x80, 0x00,
    0x00, 0x0c, 0x84, 0xa2, 0x00, 0x01, 0x00, 0x07, 0x44, 0x01, 0xc1, 0x72, 0xb4, 0x62, 0x40,
];
/// SVT-AV1, 318 x 178.
const AV1C: &[u8] = &[
    0x81, 0x00, 0x0c, 0x00, 0x0a, 0x0b, 0x00, 0x00, 0x00, 0x04, 0x3c, 0xf6, 0xc4, 0x02, 0xf8, 0x00,
    0x40,
];
const OPUS: &[u8] = b"OpusHead\x01\x02\x38\x01\x80\xbb\0\0\0\0\0";

fn video(codec: Codec, record: &'static [u8]) -> Video {
    Video::new(codec, Bytes::from_static(record)).expect("a good record")
}

fn audio(codec: Codec, record: &'static [u8]) -> Audio {
    Audio::new(codec, Bytes::from_static(record)).expect("a good record")
}

#[test]
fn records_define_codecs_and_size() {
    for (codec, record, codecs, sets) in [
        (Codec::Avc, AVCC, "avc1.64000c", 2),
        (Codec::Hevc, HVCC, "hvc1.1.6.L60.90", 3),
        (Codec::Av1, AV1C, "av01.0.00M.08", 0),
    ] {
        let video = video(codec, record);
        assert_eq!(video.codecs, codecs);
        assert_eq!((video.width, video.height), (318, 178), "{codecs}");
        assert_eq!((video.parameter_sets.len(), video.length_size), (sets, 4), "{codecs}");
    }
    for (record, rate, channels, codecs) in [
        (&[0x11, 0x90][..], 48_000, 2, "mp4a.40.2"),
        (&[0x12, 0x08], 44_100, 1, "mp4a.40.2"),
        // Explicit SBR: 24 kHz core, 48 kHz output.
        (&[0x2b, 0x11, 0x88, 0x00], 24_000, 2, "mp4a.40.5"),
        // An explicit rate: 12,345 Hz.
        (&[0x17, 0x80, 0x18, 0x1c, 0x90], 12_345, 2, "mp4a.40.2"),
    ] {
        let audio = Audio::new(Codec::Aac, Bytes::copy_from_slice(record)).expect("a good record");
        assert_eq!((audio.sample_rate, audio.channels), (rate, channels), "{record:02x?}");
        assert_eq!((&audio.codecs[..], audio.frame_samples), (codecs, 1_024));
    }
    let opus = audio(Codec::Opus, OPUS);
    assert_eq!((opus.sample_rate, opus.channels, &opus.codecs[..]), (48_000, 2, "opus"));
    // CELT of 20 ms; SILK of 60 ms, two frames; three frames of 2.5 ms.
    assert_eq!([&[0xfc][..], &[0x19], &[0xe3, 3]].map(|p| opus.samples(p)), [960, 5_760, 360]);
    let mp3 = Audio::mp3(&[0xff, 0xfb, 0x90, 0xc0]).expect("a frame header");
    assert_eq!((mp3.sample_rate, mp3.channels, mp3.frame_samples), (44_100, 1, 1_152));
}

#[test]
fn records_round_trip_through_parameter_sets() {
    let avc = video(Codec::Avc, AVCC);
    let [sps, pps] = &avc.parameter_sets[..] else { panic!("two sets") };
    assert_eq!(Video::from_h264(sps, core::slice::from_ref(pps)), Some(avc.clone()));
    let hevc = video(Codec::Hevc, HVCC);
    let [vps, sps, pps] = &hevc.parameter_sets[..] else { panic!("three sets") };
    let made = Video::from_h265(vps, sps, core::slice::from_ref(pps)).expect("good sets");
    assert_eq!(made.parameter_sets, hevc.parameter_sets);
    assert_eq!((made.width, made.codecs), (318, hevc.codecs));
}

#[test]
fn initialisation_segments_round_trip() {
    let videos = [(Codec::Avc, AVCC), (Codec::Hevc, HVCC), (Codec::Av1, AV1C)];
    for (codec, record) in videos {
        for audio in [audio(Codec::Aac, &[0x11, 0x90]), audio(Codec::Opus, OPUS)] {
            let video = video(codec, record);
            let movie = Movie::new(&init(Some(&video), Some(&audio))).expect("readable");
            let [v, a] = &movie.tracks[..] else { panic!("two tracks") };
            assert_eq!((v.id, v.timescale, &v.config), (1, 1_000, &CodecConfig::Video(video)));
            assert_eq!((a.id, a.timescale, &a.config), (2, 48_000, &CodecConfig::Audio(audio)));
        }
    }
    let mp3 = Audio::mp3(&[0xff, 0xfb, 0x90, 0xc0]).expect("a frame header");
    let movie = Movie::new(&init(None, Some(&mp3))).expect("readable");
    assert_eq!((movie.tracks.len(), &movie.tracks[0].config), (1, &CodecConfig::Mp3));
    assert_eq!(Movie::new(&init(None, None)), Err(Error::NoTrack));
}

#[test]
fn unsupported_audio_and_video_codecs_are_reported() {
    let whole = init(Some(&video(Codec::Avc, AVCC)), Some(&audio(Codec::Aac, &[0x11, 0x90])));
    let at = whole.windows(4).rposition(|name| name == b"mp4a").expect("an audio entry");
    let mut foreign = whole.to_vec();
    foreign[at..at + 4].copy_from_slice(b"ec-3");
    let movie = Movie::new(&Bytes::from(foreign)).expect("readable");
    assert_eq!((movie.tracks.len(), &movie.unsupported[..]), (1, &["ec-3".to_owned()][..]));
    assert!(Movie::new(&whole).expect("readable").unsupported.is_empty());
}

#[test]
fn only_a_file_with_one_track_claims_to_be_a_cmaf_track() {
    let (video, audio) = (video(Codec::Avc, AVCC), audio(Codec::Aac, &[0x11, 0x90]));
    let claims = |init: Bytes| {
        let size = u32::from_be_bytes(init[..4].try_into().expect("four bytes")) as usize;
        init[8..size].chunks(4).any(|brand| brand == b"cmfc")
    };
    assert!(claims(init(Some(&video), None)) && claims(init(None, Some(&audio))));
    assert!(!claims(init(Some(&video), Some(&audio))));
}

fn sample(dts: i64, composition: i32, sync: bool, size: usize) -> Sample {
    Sample { data: Bytes::from(vec![dts as u8; size]), dts, composition, sync }
}

#[test]
fn fragments_round_trip() {
    let (video, audio) = (video(Codec::Avc, AVCC), audio(Codec::Aac, &[0x11, 0x90]));
    let movie = Movie::new(&init(Some(&video), Some(&audio))).expect("readable");
    let frames = [sample(1 << 40, -40, true, 5), sample((1 << 40) + 40, 80, false, 0)];
    let audio_frames: Vec<Sample> = (0..3).map(|n| sample(n * 1_024, 0, true, 7)).collect();
    let video = SampleRun { track: VIDEO_TRACK, samples: &frames, end: (1 << 40) + 80 };
    let audio = SampleRun { track: AUDIO_TRACK, samples: &audio_frames, end: 3_072 };
    for runs in
        [&[video, audio][..], &[audio], &[SampleRun { samples: &[], ..video }, audio], &[video]]
    {
        // Two fragments in a segment.
        let segment = [fragment(1, runs), fragment(2, runs)].concat();
        let got = movie.samples(&Bytes::from(segment)).expect("readable");
        let once: Vec<Sample> = runs.iter().flat_map(|run| run.samples).cloned().collect();
        let samples: Vec<Sample> = got.into_iter().map(|(_, sample)| sample).collect();
        assert_eq!(samples, [once.clone(), once].concat());
    }
}

#[test]
fn samples_that_overlap_do_not_multiply_memory() {
    let video = video(Codec::Avc, AVCC);
    let movie = Movie::new(&init(Some(&video), None)).expect("readable");
    // 1,000 runs, all with the same data.
    let mut segment = BytesMut::new();
    atom(&mut segment, b"moof", |out| {
        atom(out, b"traf", |out| {
            full_atom(out, b"tfhd", 0, 0x10, |out| put_u32s(out, &[1, 1_000]));
            for _ in 0..1_000 {
                full_atom(out, b"trun", 0, 1, |out| put_u32s(out, &[1, 0]));
            }
        });
    });
    assert_eq!(movie.samples(&segment.freeze()), Err(Error::TooMany));
    // Four billion empty samples.
    let mut segment = BytesMut::new();
    atom(&mut segment, b"moof", |out| {
        atom(out, b"traf", |out| {
            full_atom(out, b"tfhd", 0, 0, |out| out.put_u32(1));
            full_atom(out, b"trun", 0, 0, |out| out.put_u32(u32::MAX));
        });
    });
    assert_eq!(movie.samples(&segment.freeze()), Err(Error::TooMany));
}

#[test]
fn records_with_an_invalid_length_size_are_rejected() {
    for codec in [Codec::Avc, Codec::Hevc, Codec::Av1, Codec::Vp9] {
        assert_eq!(Video::new(codec, Bytes::new()), None);
    }
    for codec in [Codec::Aac, Codec::Opus, Codec::Mp3] {
        assert_eq!(Audio::new(codec, Bytes::new()), None);
    }
    assert_eq!(Audio::mp3(&[]), None);
    let no_sets = Bytes::from_static(&[1, 100, 0, 12, 0xff, 0xe0, 0]);
    assert_eq!(Video::new(Codec::Avc, no_sets), None);
}

proptest! {
    #[test]
    fn damaged_records_never_panic(
        kind in 0..4usize, at in any::<proptest::sample::Index>(), bytes in any::<[u8; 2]>(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let (codec, record) = [
            (Codec::Avc, AVCC), (Codec::Hevc, HVCC), (Codec::Av1, AV1C), (Codec::Opus, OPUS),
        ][kind];
        let mut record = record.to_vec();
        let at = at.index(record.len() - 1);
        record[at..at + 2].copy_from_slice(&bytes);
        record.truncate(record.len() - cut.index(record.len() * 2).min(record.len()) / 2);
        let record = Bytes::from(record);
        if let Some(video) = Video::new(codec, record.clone()) {
            init(Some(&video), None);
            let _ = video.nal_units(&record).count();
        }
        if let Some(audio) = Audio::new(codec, record) {
            init(None, Some(&audio));
        }
    }

    #[test]
    fn random_audio_records_never_panic(record in proptest::collection::vec(any::<u8>(), 0..200)) {
        let record = Bytes::from(record);
        let _ = Audio::mp3(&record);
        if let Some(audio) = Audio::new(Codec::Aac, record) {
            prop_assert!(audio.sample_rate > 0);
            init(None, Some(&audio));
            let _ = audio.adts();
        }
    }
}
