//! What frame perception and cookies cost: `cargo run --release -p mendcast-startup --example speed`.

use core::hint::black_box;
use core::num::NonZeroU32;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use media::fmp4::{self, Run, Sample};
use media::{Codec, Kind, Tag, flv, ts};
use mendcast_startup::cookie::{Carrier, Cookie, Correlation, Rules, Sealer, Verdict};
use mendcast_startup::decision::{Known, Limits, Mode, decide};
use mendcast_startup::perception::Perception;
use mendcast_startup::{History, Prefix, Spent};
use quic::crypto::{KeyRing, Purpose};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use units::Rate;

/// High profile, 318 x 178 pixels.
const AVCC: &[u8] = &[
    0x01, 0x64, 0x00, 0x0c, 0xff, 0xe1, 0x00, 0x1a, 0x67, 0x64, 0x00, 0x0c, 0xac, 0xd9, 0x41, 0x41,
    0x9e, 0xa2, 0x30, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00, 0x32, 0x0f, 0x14,
    0x29, 0x96, 0x01, 0x00, 0x06, 0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0, 0xfd, 0xf8, 0xf8, 0x00,
];
/// A second of 4 Mbit/s: a key frame of 43 KB, frames of 17 KB, and sound.
const FRAMES: [usize; 25] = {
    let mut sizes = [17_000; 25];
    sizes[0] = 43_000;
    sizes
};

struct Keys(Arc<KeyRing>, ChaCha20Rng);

impl Sealer for Keys {
    fn seal(&mut self, now: u64, plain: &[u8], context: &[u8]) -> Vec<u8> {
        self.0.seal(Purpose::Application, now, plain, context, &mut self.1)
    }

    fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        Some(self.0.open(Purpose::Application, sealed, context)?.plaintext)
    }
}

/// The shortest mean time of a call, of some batches.
fn nanos(mut call: impl FnMut()) -> f64 {
    let batch = |calls: u32, call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    let once = batch(10, &mut call).max(1.0);
    let calls = (20e6 / once).clamp(3.0, 1e6) as u32;
    (0..15).map(|_| batch(calls, &mut call)).fold(f64::INFINITY, f64::min)
}

fn flv_body() -> Vec<u8> {
    let tag = |kind, head: &[u8], size: usize| {
        Tag::new(kind, 0, &[head, &vec![7; size]].concat()).expect("short enough").bytes().to_vec()
    };
    let mut body = flv::file_header(true, true).to_vec();
    for size in FRAMES {
        body.extend(tag(Kind::Audio, &[0xaf, 1], 400));
        body.extend(tag(Kind::Video, &[0x27, 1, 0, 0, 0], size));
    }
    body
}

fn samples(sizes: &[usize], duration: i64) -> Vec<Sample> {
    let one = |(n, size): (usize, &usize)| {
        let nal = [&(*size as u32 - 4).to_be_bytes()[..], &[0x65], &vec![7; size - 5]].concat();
        Sample { data: nal.into(), dts: n as i64 * duration, composition: 0, sync: n == 0 }
    };
    sizes.iter().enumerate().map(one).collect()
}

fn main() {
    let video = fmp4::config::Video::new(Codec::Avc, AVCC.into()).expect("a good record");
    let audio = fmp4::config::Audio::new(Codec::Aac, vec![0x11, 0x90].into()).expect("good");
    let (frames, sounds) = (samples(&FRAMES, 40), samples(&[400; 46], 1_024));
    let program =
        ts::write::Program { video: Some((&video, &frames)), audio: Some((&audio, &sounds)) };
    let parts = fmp4::fragment(
        1,
        &[
            Run { track: fmp4::VIDEO_TRACK, samples: &frames, end: 1_000 },
            Run { track: fmp4::AUDIO_TRACK, samples: &sounds, end: 48_000 },
        ],
    );
    let bodies = [
        ("FLV", flv_body()),
        ("MPEG-TS", ts::Writer::default().write(program).to_vec()),
        ("fMP4", [&fmp4::init(Some(&video), Some(&audio))[..], &parts].concat()),
    ];
    println!("perception of a whole second of 4 Mbit/s, ns per kB (at most 50 wanted):");
    for (name, body) in &bodies {
        print!("  {name:8}");
        for piece in [1_200, 16_384, usize::MAX] {
            let time = nanos(|| {
                let mut perception = Perception::new(NonZeroU32::MAX, u64::MAX);
                body.chunks(piece).for_each(|piece| {
                    black_box(perception.read(black_box(piece)));
                });
            });
            print!("{:8.2}", time / (body.len() as f64 / 1e3));
        }
        println!("   in pieces of 1,200 B, of 16 KiB, and whole");
    }
    costs();
}

fn costs() {
    let client = "192.0.2.7".parse().expect("an address");
    let cookie = Cookie {
        issued: 1_800_000_000,
        prefix: Prefix::of(client),
        min_rtt: Duration::from_millis(50),
        max_rate: Rate::from_mbps(8),
        usual_rate: Rate::from_mbps(6),
        samples: 12,
        loss: 0.03,
        retransmission_loss: Some(0.25),
        correlation: Correlation::default(),
        verdict: Verdict::None,
        unit: 7,
    };
    let ring = Arc::new(KeyRing::new(&[1; 32], &[(0, [2; 32])]));
    let mut keys = Keys(ring, ChaCha20Rng::seed_from_u64(1));
    let sealed = cookie.seal(&mut keys);
    let now = cookie.issued + 60;
    let accept = |cookie: Cookie| cookie.accept(Carrier::Http, client, now, &Rules::default());
    let past = accept(cookie).expect("good");
    let known = Known { first_frame: Some(43_100), past: Some(past), handshake_rtt: None };
    let (spent, mut history) = (Spent::new(1 << 20), History::new(1 << 16));
    let mut unit = 0u64;
    println!("a cookie of {} B, sealed {} B; ns (at most 2,000 wanted):", 31, sealed.len());
    println!("  seal     {:8.0}", nanos(|| drop(black_box(black_box(&cookie).seal(&mut keys)))));
    let open = || Cookie::open(black_box(&sealed), &keys).and_then(accept);
    println!("  open     {:8.0}", nanos(|| assert!(black_box(open()).is_ok())));
    println!(
        "  decide   {:8.0}",
        nanos(|| {
            black_box(decide(Mode::Wira, black_box(&known), &Limits::default()));
        })
    );
    println!(
        "  spent    {:8.0}",
        nanos(|| {
            unit = unit.wrapping_add(0x9e37_79b9_7f4a_7c15);
            black_box(spent.buy(&Cookie { unit, ..cookie }, now));
        })
    );
    println!(
        "  history  {:8.0}",
        nanos(|| {
            unit = unit.wrapping_add(1);
            let [.., b, c, d] = unit.to_be_bytes();
            let prefix = Prefix::of([10, b, c, d].into());
            history.record(&Cookie { prefix, issued: unit >> 8, ..cookie });
        })
    );
}
