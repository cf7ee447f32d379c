//! Server cost of startup: sealing and opening a cookie, validating it, storing networks and jumps,
//! and finding the end of a first frame in each format.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use cpu_time::ThreadTime;
use media::fmp4::{self, Sample, SampleRun};
use media::{Codec, Kind, Tag, flv, ts};
use quic::crypto::{KeyRing, Purpose};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng as _;
use startup::cookie::CookieRules;
use startup::{Carrier, Cookie, History, JumpLedger, Perception, Prefix};
use units::Rate;

use crate::loopback::calibration;
use crate::report::{Report, Target};

const NOW: u64 = 1_800_000_000;
/// Bytes per write to the transport.
const PIECE: usize = 1_200;
/// One second at 4 Mbit/s: a key frame of 43 KB, and frames of 17 KB.
const FRAMES: [usize; 25] = {
    let mut sizes = [17_000; 25];
    sizes[0] = 43_000;
    sizes
};
/// Size of the sound frame that accompanies each of them.
const SOUND: usize = 400;
/// High profile, 318 x 178 pixels.
const AVCC: &[u8] = &[
    0x01, 0x64, 0x00, 0x0c, 0xff, 0xe1, 0x00, 0x1a, 0x67, 0x64, 0x00, 0x0c, 0xac, 0xd9, 0x41, 0x41,
    0x9e, 0xa2, 0x30, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00, 0x32, 0x0f, 0x14,
    0x29, 0x96, 0x01, 0x00, 0x06, 0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0, 0xfd, 0xf8, 0xf8, 0x00,
];

/// Runs all benchmarks with a name that is `wanted`.
pub(crate) fn measure(report: &mut Report, wanted: &dyn Fn(&str) -> bool, quick: bool) {
    let (rounds, times) = if quick { (2, 2_000) } else { (5, 20_000) };
    let mut add = |name: &str, unit, most: f64, cost: &dyn Fn(u32) -> f64| {
        if wanted(name) {
            let rounds: Vec<_> = (0..rounds).map(|_| (cost(times), calibration())).collect();
            report.add_pairs((name, unit), "sealing a packet", &rounds, Target::AtMost(most));
        }
    };
    add("cookie_seal_ns", "ns", 2_000.0, &seal);
    add("cookie_open_ns", "ns", 2_000.0, &open);
    add("jump_bought_ns", "ns", 2_000.0, &buy);
    add("network_recorded_ns", "ns", 2_000.0, &record);
    for (name, body) in [
        ("perception_ns_per_kb", flv_body as fn() -> Vec<u8>),
        ("perception_ts_ns_per_kb", ts_body),
        ("perception_fmp4_ns_per_kb", fmp4_body),
    ] {
        add(name, "ns", 50.0, &|times| perceive(times, &body()));
    }
}

/// Returns the CPU time per call in nanoseconds, over `times` calls.
fn each(times: u32, mut what: impl FnMut()) -> f64 {
    let start = ThreadTime::now();
    (0..times).for_each(|_| what());
    start.elapsed().as_nanos() as f64 / f64::from(times)
}

fn cookie() -> Cookie {
    Cookie {
        min_rtt: Duration::from_millis(50),
        max_rate: Rate::from_mbps(8),
        usual_rate: Rate::from_mbps(6),
        samples: 10,
        ..Cookie::unmeasured(NOW - 60, Prefix::of([192, 0, 2, 1].into()), 7)
    }
}

fn keys() -> (KeyRing, ChaCha12Rng) {
    (KeyRing::new(&[1; 32], &[(0, [2; 32])]), ChaCha12Rng::seed_from_u64(1))
}

fn seal(times: u32) -> f64 {
    let ((keys, mut rng), cookie) = (keys(), cookie());
    each(times, || {
        let bytes = black_box(&cookie).encode();
        black_box(keys.seal(Purpose::AddressToken, NOW, &bytes, &[], &mut rng));
    })
}

/// Opens and validates cookies.
fn open(times: u32) -> f64 {
    let (keys, mut rng) = keys();
    let sealed = keys.seal(Purpose::AddressToken, NOW, &cookie().encode(), &[], &mut rng);
    each(times, || {
        let opened = keys.open(Purpose::AddressToken, black_box(&sealed), &[]);
        let cookie = opened.and_then(|opened| Cookie::decode(&opened.plaintext).ok());
        let rules = CookieRules::default();
        black_box(cookie.map(|c| c.accept(Carrier::Token, [192, 0, 2, 9].into(), NOW, &rules)));
    })
}

/// Spends a jump for each of many viewers, in the server's table.
fn buy(times: u32) -> f64 {
    let (spent, mut unit) = (JumpLedger::new(1 << 17), 0u64);
    each(times, || {
        unit = unit.wrapping_add(0x9e37_79b9_7f4a_7c15);
        black_box(spent.claim(&Cookie { unit, ..cookie() }, NOW));
    })
}

/// Stores the measurement of one viewer of each of many networks.
fn record(times: u32) -> f64 {
    let (mut history, mut number) = (History::new(16_384), 0u32);
    each(times, || {
        number = number.wrapping_add(0x100);
        let prefix = Prefix::of(std::net::Ipv4Addr::from(number).into());
        history.record(&Cookie { prefix, ..cookie() });
    })
}

/// Time per kB of a whole body in packet-sized pieces, with all frames counted.
fn perceive(times: u32, body: &[u8]) -> f64 {
    let cost = each(times / 200, || {
        let mut perception = Perception::new(NonZeroU32::MAX, u64::MAX);
        for piece in black_box(body).chunks(PIECE) {
            black_box(perception.read(piece));
        }
    });
    let mut perception = Perception::new(NonZeroU32::MIN, u64::MAX);
    perception.read(body);
    assert!(perception.end_body().known().is_some(), "the first frame is there");
    cost * 1e3 / body.len() as f64
}

fn flv_body() -> Vec<u8> {
    let tag = |kind, head: &[u8], size: usize| {
        Tag::new(kind, 0, &[head, &vec![7; size]].concat()).expect("short enough").bytes().to_vec()
    };
    let mut body = flv::file_header(true, true).to_vec();
    for size in FRAMES {
        body.extend(tag(Kind::Audio, &[0xaf, 1], SOUND));
        body.extend(tag(Kind::Video, &[0x27, 1, 0, 0, 0], size));
    }
    body
}

/// Samples of these sizes, each with one NAL unit of a key frame.
fn samples(sizes: &[usize], duration: i64) -> Vec<Sample> {
    let one = |(n, size): (usize, &usize)| {
        let nal = [&(*size as u32 - 4).to_be_bytes()[..], &[0x65], &vec![7; size - 5]].concat();
        Sample { data: nal.into(), dts: n as i64 * duration, composition: 0, sync: n == 0 }
    };
    sizes.iter().enumerate().map(one).collect()
}

fn tracks() -> (fmp4::config::Video, Vec<Sample>, fmp4::config::Audio, Vec<Sample>) {
    let video = fmp4::config::Video::new(Codec::Avc, AVCC.into()).expect("a good record");
    let audio = fmp4::config::Audio::new(Codec::Aac, vec![0x11, 0x90].into()).expect("good");
    (video, samples(&FRAMES, 40), audio, samples(&[SOUND; 46], 1_024))
}

fn ts_body() -> Vec<u8> {
    let (video, frames, audio, sounds) = tracks();
    let program =
        ts::write::Program { video: Some((&video, &frames)), audio: Some((&audio, &sounds)) };
    ts::SegmentWriter::default().write(program).to_vec()
}

fn fmp4_body() -> Vec<u8> {
    let (video, frames, audio, sounds) = tracks();
    let runs = [
        SampleRun { track: fmp4::VIDEO_TRACK, samples: &frames, end: 1_000 },
        SampleRun { track: fmp4::AUDIO_TRACK, samples: &sounds, end: 48_000 },
    ];
    [&fmp4::init(Some(&video), Some(&audio))[..], &fmp4::fragment(1, &runs)].concat()
}
