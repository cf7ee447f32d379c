//! Frame perception against ffprobe on clips made by ffmpeg. The packet offsets and sizes reported
//! by ffprobe determine the expected ends of first frames.
//!
//! Ignored by default, as it takes a minute and ffmpeg with x264, x265 and VP9:
//! `cargo test -p mendcast-startup --test clips -- --ignored`.

use core::num::NonZeroU32;
use std::path::Path;
use std::process::Command;

use mendcast_startup::perception::{DEFAULT_LIMIT, Perception, Progress};

/// Size of a video packet, and its offset in the file if the demuxer reports it.
type Packet = (u64, Option<u64>);

fn run(folder: &Path, program: &str, arguments: &str) -> String {
    let arguments = arguments.split_whitespace();
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

fn packets(folder: &Path, select: &str, file: &str) -> Vec<Packet> {
    let entries = "-show_entries packet=size,pos -of csv=p=0";
    let text = run(folder, "ffprobe", &format!("-v quiet {select} {entries} {file}"));
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let mut numbers = line.split(',').map(|field| field.parse().ok());
            (numbers.next().flatten().expect("a size"), numbers.next().flatten())
        })
        .collect()
}

/// Encoder options and file name of each clip.
fn clips() -> Vec<(String, String)> {
    let x264 = "-c:v libx264 -preset ultrafast -g 12";
    let x265 = "-c:v libx265 -preset ultrafast -x265-params log-level=none -tag:v hvc1";
    let long = "x".repeat(30_000);
    let mut clips = Vec::new();
    let mut add = |options: String, ending: &str| {
        clips.push((options, format!("clip{}.{ending}", clips.len())));
    };
    // B-frames, slices, several frame sizes; with AAC, other audio, and none.
    let videos = ["-bf 0", "-bf 3", "-bf 2 -slices 4", "-crf 2", "-crf 50 -tune zerolatency"];
    let audios = ["-c:a aac", "-c:a libmp3lame -ar 44100", "-an"];
    for (video, audio) in videos.iter().flat_map(|video| audios.map(|audio| (video, audio))) {
        add(format!("{x264} {video} {audio}"), "flv");
    }
    // Unusual headers and large metadata.
    for flags in ["no_metadata", "no_sequence_end", "no_duration_filesize", "aac_seq_header_detect"]
    {
        add(format!("{x264} -c:a aac -flvflags {flags}"), "flv");
    }
    add(format!("{x264} -c:a aac -metadata comment={long}"), "flv");
    add("-c:v flv1 -c:a libmp3lame -ar 22050".to_owned(), "flv");
    // Audio that starts before the video.
    add(format!("{x264} -c:a aac -vf setpts=PTS+0.4/TB"), "flv");
    let m2v = "-c:v mpeg2video";
    for video in [x264, &format!("{x264} -bf 3 -crf 5"), x265, m2v] {
        for audio in ["-c:a aac", "-c:a libmp3lame", "-an"] {
            add(format!("{video} {audio}"), "ts");
        }
    }
    for flags in [
        "-muxrate 8M",
        "-pes_payload_size 500",
        "-mpegts_flags +initial_discontinuity",
        "-mpegts_flags +pat_pmt_at_frames",
        "-omit_video_pes_length 0",
        "-mpegts_start_pid 4000 -streamid 0:5000",
        "-vf setpts=PTS+0.4/TB",
    ] {
        add(format!("{x264} -c:a aac {flags}"), "ts");
    }
    let vp9 = "-c:v libvpx-vp9 -deadline realtime -cpu-used 8";
    for (video, audio) in
        [(x264, "-c:a aac"), (x264, "-an"), (x265, "-c:a aac"), (vp9, "-c:a libopus")]
    {
        add(format!("{video} {audio} -movflags +frag_keyframe+empty_moov"), "mp4");
    }
    for flags in [
        "+cmaf",
        "+dash+delay_moov",
        "+frag_every_frame+empty_moov+default_base_moof",
        "+frag_keyframe+empty_moov+separate_moof",
        "+frag_keyframe+empty_moov+omit_tfhd_offset",
        "+frag_keyframe+empty_moov+default_base_moof+negative_cts_offsets",
        "+frag_keyframe+empty_moov+global_sidx",
    ] {
        add(format!("{x264} -bf 2 -c:a aac -movflags {flags}"), "mp4");
    }
    let meta = format!("-metadata comment={long} -movflags +frag_keyframe+empty_moov");
    add(format!("{x264} -c:a aac {meta}"), "mp4");
    clips
}

fn perceived(body: &[u8], frames: u32, piece: usize) -> Progress {
    let frames = NonZeroU32::new(frames).expect("above 0");
    let mut perception = Perception::new(frames, DEFAULT_LIMIT);
    for piece in body.chunks(piece) {
        perception.read(piece);
    }
    perception.end_body()
}

/// Returns the end of a frame according to ffprobe.
fn expected(folder: &Path, file: &str, body: &[u8], frame: usize) -> u64 {
    let video = packets(folder, "-select_streams v:0", file);
    let (size, at) = video[frame];
    match file.rsplit('.').next() {
        Some("mp4") => at.expect("a place") + size,
        Some("flv") => {
            // Offset of the tag. Its length is repeated after it.
            let at = at.expect("a place");
            let read = |at: usize| [1, 2, 3].map(|i| u64::from(body[at + i]));
            let [a, b, c] = read(at as usize);
            let length = a << 16 | b << 8 | c;
            let headers = length.checked_sub(size).expect("payload and headers");
            assert!((1..=8).contains(&headers), "{headers} bytes of header");
            at + 11 + length + 4
        }
        _ => {
            // The shortest whole number of packets that contains the frame. For H.265, ffprobe
            // counts a zero byte before the next start code as part of the frame.
            let complete = |bytes: usize| {
                std::fs::write(folder.join("cut.ts"), &body[..bytes]).expect("written");
                let cut = packets(folder, "-select_streams v:0", "cut.ts");
                cut.get(frame).is_some_and(|packet| packet.0 + 1 >= size)
            };
            let (mut low, mut high) = (0, body.len() / 188);
            while low + 1 < high {
                let middle = usize::midpoint(low, high);
                if complete(middle * 188) { high = middle } else { low = middle }
            }
            high as u64 * 188
        }
    }
}

#[test]
#[ignore = "makes 50 clips with ffmpeg, which takes a minute"]
fn perception_agrees_with_ffprobe_on_50_clips() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        println!("skipped: no ffmpeg");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let sources = "-v error -f lavfi -i testsrc2=size=320x180:rate=25:duration=1 \
                   -f lavfi -i sine=frequency=500:sample_rate=48000:duration=1";
    let clips = clips();
    assert!(clips.len() >= 50, "{}", clips.len());
    for (options, file) in &clips {
        let shown: String = options.chars().take(120).collect();
        run(folder, "ffmpeg", &format!("{sources} {options} {file}"));
        let body = std::fs::read(folder.join(file)).expect("written");
        for frame in [0, 2] {
            let known = Progress::Known(expected(folder, file, &body, frame));
            let frames = frame as u32 + 1;
            assert_eq!(perceived(&body, frames, usize::MAX), known, "{file} {frame}: {shown}");
            for piece in [1, 2, 3, 7, 100, 187, 189, 1_400, 65_536] {
                assert_eq!(perceived(&body, frames, piece), known, "{file} by {piece}: {shown}");
            }
        }
    }
    println!("{} clips", clips.len());
}
