//! Interoperability with ffmpeg: it decodes generated segments to the same packets, and its
//! segments are read as the same access units.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use mendcast_media::codec::Codec;
use mendcast_media::hls::Segmenter;
use mendcast_media::hls::segmenter::{Container, SegmenterConfig};
use mendcast_media::{Kind, Role, Tag};
use support::*;

/// Writes all output of a segmenter for these tags to one file.
fn write(folder: &Path, container: Container, tags: &[Tag], output: &str) -> Segmenter {
    let mut segmenter =
        Segmenter::new(SegmenterConfig { container, window: 1_000, ..SegmenterConfig::default() });
    for tag in tags {
        segmenter.push(tag, 1_800_000_000_000 + u64::from(tag.timestamp()));
    }
    segmenter.end();
    let inits: Vec<_> = segmenter.inits().filter_map(|id| segmenter.init(id)).collect();
    assert!(inits.len() <= 1, "one version");
    let mut file = inits.concat();
    for parts in segmenter.segments().filter_map(|name| segmenter.segment(name)) {
        parts.iter().for_each(|part| file.extend_from_slice(part));
    }
    std::fs::write(folder.join(output), file).expect("written");
    segmenter
}

fn master(segmenter: &Segmenter) -> String {
    String::from_utf8(segmenter.master().expect("a master playlist").to_vec()).expect("text")
}

#[test]
fn fmp4_of_an_flv_decodes_with_the_same_packets() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    for audio in ["-c:a aac -b:a 96k", "-c:a aac -ar 44100", "-c:a libmp3lame -ar 44100", "-an"] {
        let clip = encode(folder, 5, &format!("-y {H264} {audio}"), "clip.flv");
        let segmenter = write(folder, Container::Fmp4, &flv_tags(&clip), "out.mp4");
        assert_decodes(folder, "out.mp4");
        assert_same_packets(&probe(folder, "out.mp4"), &probe(folder, "clip.flv"));
        assert!(
            master(&segmenter).contains(",RESOLUTION=320x180,FRAME-RATE=25.000\n"),
            "{}",
            master(&segmenter)
        );
    }
}

#[test]
fn transport_streams_of_an_flv_decode_with_the_same_packets() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    for audio in ["-c:a aac -b:a 96k", "-c:a aac -ar 44100 -ac 1", "-c:a libmp3lame", "-an"] {
        let clip = encode(folder, 5, &format!("-y {H264} {audio}"), "clip.flv");
        write(folder, Container::Ts, &flv_tags(&clip), "out.ts");
        assert_decodes(folder, "out.ts");
        assert_same_packets(&probe(folder, "out.ts"), &probe(folder, "clip.flv"));
    }
}

#[test]
fn codecs_of_enhanced_tags_pass_through_fmp4_and_transport_streams() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let hevc = "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=25:bframes=2";
    for (options, codecs, ts) in [
        (format!("{hevc} -tag:v hvc1 -c:a libopus -strict -2"), "hvc1.1.6.L", false),
        (format!("{hevc} -tag:v hvc1 -c:a aac"), "hvc1.1.6.L", true),
        ("-c:v libsvtav1 -preset 12 -g 25 -c:a aac".to_owned(), "av01.0.00M.08,mp4a.40.2", false),
    ] {
        let hls = "-f hls -hls_time 1 -hls_list_size 0 -hls_segment_type fmp4";
        // SVT-AV1 has no other option to suppress its output.
        encode_quietly(folder, &format!("-y {options} {hls}"), "clip.m3u8");
        let tags = pull(folder, "clip.m3u8");
        let wanted = probe(folder, "clip.m3u8");
        assert_eq!(wanted[0].len(), 100, "{options}");
        let segmenter = write(folder, Container::Fmp4, &tags, "out.mp4");
        assert!(master(&segmenter).contains(codecs), "{}", master(&segmenter));
        assert!(
            master(&segmenter).contains(",RESOLUTION=320x180,FRAME-RATE=25.000\n"),
            "{}",
            master(&segmenter)
        );
        assert_decodes(folder, "out.mp4");
        let got = probe(folder, "out.mp4");
        assert_same_packets(&got, &trimmed(wanted.clone(), &got));
        if ts {
            write(folder, Container::Ts, &tags, "out.ts");
            assert_decodes(folder, "out.ts");
            let got = probe(folder, "out.ts");
            assert_same_packets(&got, &trimmed(wanted, &got));
        }
    }
}

/// Removes the audio before the first key frame, because segments start there.
fn trimmed(mut wanted: [Vec<Packet>; 2], got: &[Vec<Packet>; 2]) -> [Vec<Packet>; 2] {
    let early = wanted[1].len() - got[1].len();
    assert!(early <= 8, "{early} audio frames are missing");
    wanted[1].drain(..early);
    wanted
}

fn encode_quietly(folder: &Path, options: &str, output: &str) {
    let sources = "-v error -f lavfi -i testsrc2=size=320x180:rate=25:duration=4 \
                   -f lavfi -i sine=frequency=500:sample_rate=48000:duration=4";
    let arguments = format!("{sources} {options} {output}");
    let status = std::process::Command::new("ffmpeg")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env("SVT_LOG", "1")
        .output()
        .expect("ffmpeg starts")
        .status;
    assert!(status.success(), "{arguments}");
}

/// Role, time in milliseconds relative to the first key frame, composition time, codec data.
type Unit = (Role, i64, i64, Vec<u8>);

/// Returns the access units of tags, by kind (audio or not) and number.
fn units(tags: &[Tag]) -> BTreeMap<(bool, usize), Unit> {
    let start = tags.iter().find(|tag| tag.role() == Role::KeyFrame).map_or(0, Tag::timestamp);
    let mut counts = [0; 2];
    let frames = tags
        .iter()
        .filter(|tag| matches!(tag.role(), Role::KeyFrame | Role::InterFrame | Role::AudioFrame));
    frames
        .map(|tag| {
            let class = tag.class();
            let audio = tag.kind() == Kind::Audio;
            let count = &mut counts[usize::from(audio)];
            *count += 1;
            let time = i64::from(tag.timestamp()) - i64::from(start);
            let data = tag.payload()[class.data_at..].to_vec();
            ((audio, *count), (tag.role(), time, i64::from(class.composition_time), data))
        })
        .collect()
}

/// Checks for equal headers and access units, with time differences of at most a millisecond.
fn assert_same_units(got: &[Tag], wanted: &[Tag]) {
    for kind in [Kind::Video, Kind::Audio] {
        let header = |tags: &[Tag]| {
            let headers = tags.iter().filter(|tag| tag.role() == Role::SequenceHeader);
            let of_kind: Vec<_> = headers.filter(|t| t.kind() == kind).map(Tag::payload).collect();
            assert!(of_kind.len() <= 1, "one header: {of_kind:?}");
            of_kind.first().cloned()
        };
        let (got, wanted) = (header(got), header(wanted));
        assert_eq!(got.is_some(), wanted.is_some());
        if let (Some(got), Some(wanted)) = (got, wanted) {
            // Extensions after the first two bytes of an AudioSpecificConfig are optional.
            let used = if kind == Kind::Audio { 4 } else { wanted.len() };
            assert_eq!(got[..used], wanted[..used], "{kind:?}");
        }
    }
    let (got, wanted) = (units(got), units(wanted));
    assert_eq!(got.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (place, (role, time, composition, data)) in &wanted {
        let (got_role, got_time, got_composition, got_data) = &got[place];
        assert_eq!((got_role, got_data), (role, data), "{place:?}");
        assert!((got_time - time).abs() <= 1, "{place:?}: {got_time} for {time}");
        assert!((got_composition - composition).abs() <= 1, "{place:?}");
    }
}

#[test]
fn a_pulled_folder_has_the_access_units_of_the_flv() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    for audio in ["aac", "libmp3lame"] {
        let clip = encode(folder, 6, &format!("-y {H264} -c:a {audio}"), "clip.flv");
        let wanted = flv_tags(&clip);
        let copy = "-v error -y -i clip.flv -c copy -f hls -hls_time 2 -hls_list_size 0";
        for (number, form) in [
            "-hls_segment_type mpegts",
            "-hls_segment_type fmp4",
            "-hls_segment_type mpegts -hls_flags single_file",
            "-hls_segment_type fmp4 -hls_flags single_file",
            "-hls_segment_type mpegts -master_pl_name master.m3u8",
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("{audio}-{number}.m3u8");
            run(folder, "ffmpeg", &format!("{copy} {form} {name}"));
            let name = if form.contains("master") { "master.m3u8" } else { &name };
            println!("{audio} {form}");
            assert_same_units(&pull(folder, name), &wanted);
        }
    }
}

#[test]
fn generated_segments_can_be_pulled() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let clip = encode(folder, 5, &format!("{H264} -c:a aac"), "clip.flv");
    let tags = flv_tags(&clip);
    for container in [Container::Fmp4, Container::Ts] {
        let segmenter = write(folder, container, &tags, "all");
        let extension = if container == Container::Ts { "ts" } else { "m4s" };
        for name in segmenter.segments() {
            let parts = segmenter.segment(name).expect("complete");
            std::fs::write(folder.join(format!("{name}.{extension}")), parts.concat())
                .expect("written");
        }
        for id in segmenter.inits() {
            let init = segmenter.init(id).expect("an init");
            std::fs::write(folder.join(format!("init-{id:016x}.mp4")), init).expect("written");
        }
        let playlist = segmenter.playlist(false).expect("a playlist");
        std::fs::write(folder.join("media.m3u8"), playlist).expect("written");
        std::fs::write(folder.join("index.m3u8"), segmenter.master().expect("a master"))
            .expect("written");
        let frames: Vec<Tag> = tags
            .iter()
            .filter(|tag| tag.class().codec != Some(Codec::Legacy(0)))
            .cloned()
            .collect();
        assert_same_units(&pull(folder, "index.m3u8"), &frames);
        // Players of plain HLS use the same playlist.
        assert_decodes(folder, "index.m3u8");
        assert_same_packets(&probe(folder, "index.m3u8"), &probe(folder, "clip.flv"));
    }
}
