//! What a start costs the server: sealing and opening a cookie, judging it, and finding the end of a first frame.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use cpu_time::ThreadTime;
use media::{Kind, Tag, flv};
use quic::crypto::{KeyRing, Purpose};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng as _;
use startup::cookie::{Correlation, Rules, Verdict};
use startup::perception::DEFAULT_LIMIT;
use startup::{Carrier, Cookie, Perception, Prefix};
use units::Rate;

use crate::loopback::calibration;
use crate::report::{Report, Target};

const NOW: u64 = 1_800_000_000;
/// Bytes of the first frame that is looked for, and of a piece that is handed to the transport.
const FRAME: usize = 60_000;
const PIECE: usize = 1_200;

/// All benchmarks whose name is `wanted`.
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
    add("perception_ns_per_kb", "ns", 50.0, &perceive);
}

/// Nanoseconds of CPU time that each of so many takes.
fn each(times: u32, mut what: impl FnMut()) -> f64 {
    let start = ThreadTime::now();
    (0..times).for_each(|_| what());
    start.elapsed().as_nanos() as f64 / f64::from(times)
}

fn cookie() -> Cookie {
    Cookie {
        issued: NOW - 60,
        prefix: Prefix::of([192, 0, 2, 1].into()),
        min_rtt: Duration::from_millis(50),
        max_rate: Rate::from_mbps(8),
        usual_rate: Rate::from_mbps(6),
        samples: 10,
        loss: 0.01,
        retransmission_loss: Some(0.02),
        correlation: Correlation::default(),
        verdict: Verdict::Passed,
        unit: 7,
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

/// With the judgement.
fn open(times: u32) -> f64 {
    let (keys, mut rng) = keys();
    let sealed = keys.seal(Purpose::AddressToken, NOW, &cookie().encode(), &[], &mut rng);
    each(times, || {
        let opened = keys.open(Purpose::AddressToken, black_box(&sealed), &[]);
        let cookie = opened.and_then(|opened| Cookie::decode(&opened.plaintext).ok());
        let rules = Rules::default();
        black_box(cookie.map(|c| c.accept(Carrier::Token, [192, 0, 2, 9].into(), NOW, &rules)));
    })
}

/// Per kB of an FLV file up to the end of its first frame, in the pieces of packets.
fn perceive(times: u32) -> f64 {
    let tag = |kind, payload: &[u8]| Tag::new(kind, 0, payload).expect("short enough");
    let frame = [&[0x17, 1, 0, 0, 0][..], &vec![7; FRAME]].concat();
    let mut file = flv::file_header(true, true).to_vec();
    for tag in [
        tag(Kind::Video, &[0x17, 0, 0, 0, 0, 1]),
        tag(Kind::Audio, &[0xaf, 0, 0x12, 0x10]),
        tag(Kind::Video, &frame),
    ] {
        file.extend_from_slice(tag.bytes());
    }
    let cost = each(times / 20, || {
        let mut perception = Perception::new(NonZeroU32::MIN, DEFAULT_LIMIT);
        for piece in black_box(&file).chunks(PIECE) {
            black_box(perception.read(piece));
        }
        assert!(perception.progress().known().is_some(), "the frame is there");
    });
    cost * 1e3 / file.len() as f64
}
