//! Clips encoded by ffmpeg, and analysis of files by ffprobe.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use bytes::Bytes;
use mendcast_media::flv::{Reader, Tag};
use mendcast_media::hls::pull::{Action, Pull, Selection, Url};
use units::Timestamp;

/// Returns a temporary folder, or `None` with a message if ffmpeg is not installed.
pub fn folder() -> Option<tempfile::TempDir> {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        println!("left out: no ffmpeg");
        return None;
    }
    Some(tempfile::tempdir().expect("a temporary folder"))
}

/// Runs a program in a folder, with arguments separated by spaces.
pub fn run(folder: &Path, program: &str, arguments: &str) -> Output {
    let arguments = arguments.split_whitespace();
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{program}: {error}");
    output
}

/// Encodes a test picture and a tone of some seconds to `output`.
pub fn encode(folder: &Path, seconds: u32, options: &str, output: &str) -> PathBuf {
    let sources = format!(
        "-v error -f lavfi -i testsrc2=size=320x180:rate=25:duration={seconds} \
         -f lavfi -i sine=frequency=500:sample_rate=48000:duration={seconds}"
    );
    run(folder, "ffmpeg", &format!("{sources} {options} {output}"));
    folder.join(output)
}

/// Encoder options for short groups of pictures with B-frames.
pub const H264: &str = "-c:v libx264 -preset ultrafast -bf 2 -g 25 -keyint_min 25 -sc_threshold 0";

pub fn flv_tags(file: &Path) -> Vec<Tag> {
    let mut reader = Reader::new(1 << 24);
    reader.read(&std::fs::read(file).expect("the file")).expect("FLV");
    core::iter::from_fn(|| reader.next_tag()).collect()
}

/// A packet reported by ffprobe: decoding and presentation time in microseconds.
pub type Packet = (i64, i64);

/// Returns the video and audio packets of a file.
pub fn probe(folder: &Path, file: &str) -> [Vec<Packet>; 2] {
    ["v", "a"].map(|stream| {
        let entries = "-show_entries packet=dts_time,pts_time -of csv=p=0";
        let output =
            run(folder, "ffprobe", &format!("-v error -select_streams {stream} {entries} {file}"));
        let text = String::from_utf8(output.stdout).expect("text");
        let micros = |text: &str| (text.parse::<f64>().expect("a time") * 1e6).round() as i64;
        text.lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let mut times = line.split(',').map(micros);
                let (pts, dts) = (times.next(), times.next());
                (dts.expect("a time"), pts.expect("a time"))
            })
            .collect()
    })
}

/// Checks that two lists of packets are equal except for a constant offset and rounding of times.
pub fn assert_same_packets(got: &[Vec<Packet>; 2], wanted: &[Vec<Packet>; 2]) {
    let offset = got[0].first().map_or(0, |p| p.0) - wanted[0].first().map_or(0, |p| p.0);
    assert!(wanted[0].len() >= 100);
    for (got, wanted) in got.iter().zip(wanted) {
        assert_eq!(got.len(), wanted.len(), "packets");
        for (number, (got, wanted)) in got.iter().zip(wanted).enumerate() {
            for (got, wanted) in [(got.0, wanted.0), (got.1, wanted.1)] {
                let off = got - offset - wanted;
                assert!(off.abs() <= 1_500, "packet {number} is {off} us off");
            }
        }
    }
}

/// Decodes a file; any message is a failure.
pub fn assert_decodes(folder: &Path, file: &str) {
    run(folder, "ffmpeg", &format!("-v error -xerror -i {file} -f null -"));
}

/// Pulls an HLS folder to its end.
pub fn pull(folder: &Path, playlist: &str) -> Vec<Tag> {
    let base = "http://origin.test/live/";
    let url = Url::parse(&format!("{base}{playlist}")).expect("a URL");
    let mut pull = Pull::new(url, Selection::default());
    let mut now = Timestamp::from_nanos(0);
    let mut tags = Vec::new();
    for _ in 0..10_000 {
        match pull.next(now) {
            Action::Fetch(request) => {
                let name = request.url.as_str().strip_prefix(base).expect("a file of the folder");
                let mut body = Bytes::from(std::fs::read(folder.join(name)).expect(name));
                if let Some((from, length)) = request.range {
                    body = body.slice(from as usize..(from + length) as usize);
                }
                tags.extend(pull.on_response(&body).expect("a good response"));
            }
            Action::Wait(time) => now += time.max(Duration::from_millis(1)),
            Action::End => return tags,
        }
    }
    panic!("the pull does not end");
}
