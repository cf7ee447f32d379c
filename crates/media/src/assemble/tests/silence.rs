//! Announced audio that is missing.

use super::hostile::Numbers;
use super::*;
use crate::amf0;

/// 48 kHz, two channels, AAC LC.
const HEADER: &[u8] = &[0xaf, 0, 0x11, 0x90];

/// 24 kHz with SBR to 48 kHz, two channels.
const HE_AAC: &[u8] = &[0xaf, 0, 0x2b, 0x11, 0x88, 0];

fn audio_frame(time: u32) -> Tag {
    tag(Kind::Audio, time, &[0xaf, 1, 0x21, 9])
}

fn is_silence(tag: &Tag) -> bool {
    tag.payload()[..] == [0xaf, 1, 0x21, 0, 0, 0, 0, 0x1c]
}

/// A publisher with 25 video frames per second and optional audio.
#[derive(Default)]
struct Publisher {
    assembler: Assembler,
    out: Vec<Tag>,
}

impl Publisher {
    fn new(start: &[Tag]) -> Self {
        let mut publisher = Self::default();
        publisher.push(AVC.start());
        start.iter().for_each(|tag| publisher.push(tag.clone()));
        publisher
    }

    fn push(&mut self, tag: Tag) {
        let before = self.out.len();
        self.assembler.push(tag, &mut self.out);
        assert!(self.out.len() - before <= 300, "one tag makes {}", self.out.len() - before);
    }

    /// Sends the tags of a time span. Audio arrives `lag` after video of the same time, in bursts.
    fn send(&mut self, span: core::ops::Range<u32>, audio: Option<(u32, u32)>) {
        for now in span.clone() {
            if now.is_multiple_of(40) {
                self.push(AVC.inter_frame(now));
            }
            let Some((lag, burst)) = audio else { continue };
            if now >= span.start + lag && (now - lag).is_multiple_of(burst) {
                let due = (now - lag).saturating_sub(burst)..now - lag;
                due.filter(|at| u64::from(*at) * 48 % 1_024 < 48)
                    .for_each(|at| self.push(audio_frame(at)));
            }
        }
    }

    fn count(&self, repair: Repair) -> u64 {
        self.assembler.repairs().find(|(kind, _)| *kind == repair).expect("listed").1
    }

    /// Returns the times of the audio frames.
    fn times(&self) -> Vec<u32> {
        let frames = self.out.iter().filter(|tag| tag.role() == Role::AudioFrame);
        frames.map(Tag::timestamp).collect()
    }
}

#[test]
fn stopped_audio_is_filled_with_silence_until_it_resumes() {
    let mut publisher = Publisher::new(&[tag(Kind::Audio, 0, HEADER)]);
    publisher.send(0..4_000, Some((0, 20)));
    assert_eq!(made(&publisher.assembler), []);
    publisher.send(4_000..14_000, None);
    publisher.send(14_000..18_000, Some((0, 20)));
    let times = publisher.times();
    assert!(times.windows(2).all(|pair| (15..=30).contains(&(pair[1] - pair[0]))), "{times:?}");
    let silent = publisher.count(Repair::Silence);
    assert!((460..=470).contains(&silent), "10 s of 48 kHz: {silent}");
    assert_eq!(made(&publisher.assembler), [Repair::Silence]);
    assert_eq!(publisher.out.iter().filter(|tag| is_silence(tag)).count() as u64, silent);
}

#[test]
fn late_or_bursty_audio_is_not_replaced() {
    for audio in [(0, 20), (90, 20), (400, 20), (1_500, 20), (0, 700), (300, 700), (4_000, 100)] {
        let mut publisher = Publisher::new(&[tag(Kind::Audio, 0, HEADER)]);
        publisher.send(0..10_000, Some(audio));
        let silent = publisher.out.iter().rposition(is_silence).map(|at| &publisher.out[at]);
        let last = silent.map_or(0, Tag::timestamp);
        assert!(last <= audio.0 + audio.1, "{audio:?}: silence at {last} ms");
        let times = publisher.times();
        assert!(times.windows(2).all(|pair| pair[1] + 22 > pair[0]), "{audio:?}");
        let lost = publisher.count(Repair::LateAudio) * 1_024 / 48;
        assert!(lost <= u64::from(audio.0 + audio.1), "{audio:?}: {lost} ms of audio lost");
    }
}

#[test]
fn announced_audio_that_never_arrives_becomes_silence() {
    let metadata = |name: &str, codec: amf0::Value, rate: f64| {
        let mut payload = BytesMut::from(&b"\x02\x00\x0aonMetaData"[..]);
        amf0::object([(name, codec), ("audiosamplerate", rate.into())]).write(&mut payload);
        tag(Kind::Script, 0, &payload)
    };
    let four_cc = f64::from(u32::from_be_bytes(*b"mp4a"));
    for (start, expected) in [
        (tag(Kind::Audio, 0, HEADER), Some(HEADER)),
        (metadata("audiocodecid", 10.0.into(), 48_000.0), Some(HEADER)),
        (metadata("audiocodecid", "mp4a".into(), 48_000.0), Some(HEADER)),
        (metadata("audiocodecid", four_cc.into(), 44_100.0), Some(AAC)),
        (metadata("audiocodecid", 2.0.into(), 44_100.0), None),
        (metadata("audiocodecid", 0.0.into(), 44_100.0), None),
        (metadata("videocodecid", 10.0.into(), 48_000.0), None),
        // HE-AAC has an AAC LC core; there is no silent frame of AAC Main.
        (tag(Kind::Audio, 0, HE_AAC), Some(HE_AAC)),
        (tag(Kind::Audio, 0, &[0xaf, 0, 0x0a, 0x10]), None),
    ] {
        let mut publisher = Publisher::new(core::slice::from_ref(&start));
        publisher.send(0..120, None);
        assert!(publisher.times().is_empty(), "audio may still come");
        publisher.send(120..2_000, None);
        let header = publisher.out.iter().find(|tag| tag.payload().starts_with(&[0xaf, 0]));
        let times = publisher.times();
        assert_eq!(times.is_empty(), expected.is_none(), "{start:?}");
        if let Some(expected) = expected {
            assert_eq!(header.map(Tag::payload).as_deref(), Some(expected));
            assert!(times[0] == 0 && times.last() >= Some(&1_900), "{times:?}");
        }
        // Audio starts later, with its own header.
        publisher.push(tag(Kind::Audio, 2_000, HEADER));
        publisher.send(2_000..4_000, Some((0, 20)));
        assert!(publisher.times().ends_with(&[3_968]), "{start:?} {:?}", publisher.times());
    }
}

#[test]
fn pauses_and_jumps_of_the_clock_are_not_filled() {
    for jump in [5_000, 1_000_000, u32::MAX / 2 - 10_000] {
        for is_back in [false, true] {
            let at = if is_back { u32::MAX / 2 - jump } else { u32::MAX / 2 + jump };
            let mut publisher = Publisher::new(&[tag(Kind::Audio, 0, HEADER)]);
            let start = u32::MAX / 2 / 40 * 40;
            publisher.send(start - 2_000..start, Some((0, 20)));
            publisher.send(at / 40 * 40..at / 40 * 40 + 2_000, Some((0, 20)));
            assert_eq!(made(&publisher.assembler), [], "{jump} {is_back}");
        }
    }
    // Audio and video have unrelated clocks.
    let mut publisher = Publisher::new(&[tag(Kind::Audio, 0, HEADER), audio_frame(7)]);
    for number in 0..100 {
        publisher.push(AVC.inter_frame(1_000_000_000 + number * 40));
        publisher.push(audio_frame(number * 40));
    }
    assert_eq!(made(&publisher.assembler), []);
}

#[test]
fn a_stream_without_video_has_no_silence() {
    let mut publisher = Publisher::new(&[tag(Kind::Audio, 0, HEADER)]);
    for at in [0, 21, 5_000, 5_021, 60_000] {
        publisher.push(audio_frame(at));
    }
    assert_eq!(publisher.times(), [0, 21, 5_000, 5_021, 60_000]);
}

#[test]
fn one_tag_adds_little_silence_for_any_times() {
    for seed in 1..=20 {
        let mut numbers = Numbers(seed);
        let rates = [&[0xaf, 0, 0x10, 0x10][..], HEADER, AAC];
        let mut publisher = Publisher::new(&[tag(Kind::Audio, 0, rates[seed as usize % 3])]);
        let mut now = 0u32;
        for _ in 0..5_000 {
            let steps = [0, 20, 40, 900, 1_100, 4_000, 100_000, 1 << 31];
            let step = steps[numbers.below(steps.len())] + numbers.below(50) as u32;
            now = match numbers.below(5) {
                0 => now.wrapping_sub(step),
                _ => now.wrapping_add(step),
            };
            let next = match numbers.below(4) {
                0 => AVC.inter_frame(now),
                1 => audio_frame(now),
                2 => AVC.key_frame(now),
                _ => tag(Kind::Audio, now, rates[numbers.below(3)]),
            };
            publisher.push(next);
            publisher.out.clear();
        }
    }
}
