//! Model of a live encoder: times and sizes of its frames.
//!
//! Rate control gives each group of pictures exactly the bytes of its duration at the configured
//! rate, less at most two bytes per frame. Within a group, sizes depend on the frame type. A key
//! frame is [`Encoder::key_ratio`] times as large as a P-frame, a B-frame half as large. (Test
//! Model 5 of MPEG-2 gives P-frames X_p K_b ÷ X_b = 60 · 1.4 ÷ 42 = 2 times the bits of B-frames.)
//! Each size is multiplied by a lognormal factor (Krunz and Tripathi, SIGMETRICS 1997) whose
//! logarithm is a first-order autoregressive process.
//!
//! Frames are published in decoding order, one per interval. With b consecutive B-frames, a B-frame
//! waits for the later frame that it refers to, so a frame is published up to b + 1 intervals after
//! its capture. This is part of the delay from capture to screen, as it is for real viewers.

use core::time::Duration;

use recovery::Random;
use units::Rate;

/// Size ratio of a B-frame to a P-frame.
const B_RATIO: f64 = 0.5;
/// Samples per AAC frame, and per second.
const SOUND_SAMPLES: u64 = 1_024;
const SOUND_RATE: u64 = 48_000;
/// Minimum payload: up to ten bytes of codec headers and a four-byte frame number.
const MIN_FRAME_SIZE: u32 = 14;
/// Seed of this random stream, distinct from others of a run.
const ROLE: u64 = 0x656e_636f_6465_7200;

/// Parameters of a live encoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Encoder {
    /// Rate of all media including sound: payloads of tags, without FLV headers.
    pub rate: Rate,
    /// Interval between pictures, above zero. Usual: 1 ÷ 60 to 1 ÷ 15 s.
    pub interval: Duration,
    /// Pictures per group, from 1. The first one is a key frame; no picture refers to another
    /// group.
    pub group: u32,
    /// Size ratio of a key frame to a P-frame, above 0.
    pub key_ratio: f64,
    /// Standard deviation of the logarithm of sizes; 0 for one size per frame type.
    pub size_variation: f64,
    /// Correlation of that logarithm between consecutive frames, from 0 to below 1.
    pub size_correlation: f64,
    /// Consecutive B-frames.
    pub b_frames: u32,
    /// Mean time between scene changes, where a P-frame is as large as a key frame and the size
    /// correlation restarts; zero for none.
    pub scene: Duration,
    /// Rate of the sound: AAC frames of equal size, 1,024 samples at 48 kHz. Zero for no sound;
    /// below `rate`.
    pub audio: Rate,
}

impl Default for Encoder {
    /// 4 Mbps, 30 pictures per second in groups of 2 s, one size per frame type, no B-frames, no
    /// sound.
    fn default() -> Self {
        Self {
            rate: Rate::from_mbps(4),
            interval: Duration::from_secs(1) / 30,
            group: 60,
            key_ratio: 6.0,
            size_variation: 0.0,
            size_correlation: 0.0,
            b_frames: 0,
            scene: Duration::ZERO,
            audio: Rate::ZERO,
        }
    }
}

/// Role of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EncodedTrack {
    Key,
    /// A picture that others refer to.
    Needed,
    /// A picture that no other refers to.
    Disposable,
    Sound,
}

/// A frame as the encoder publishes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodedFrame {
    pub track: EncodedTrack,
    /// Publication (and decoding) time since the first frame.
    pub published: Duration,
    /// From capture to publication.
    pub encoding: Duration,
    /// From decoding to presentation.
    pub composition: Duration,
    /// Payload size in bytes.
    pub size: u32,
}

/// Position of a picture within its group.
struct Picture {
    /// Position in capture order.
    shown: u32,
    is_b: bool,
}

impl Encoder {
    /// Returns this many pictures, and the sound of their duration, in publication order.
    pub(super) fn frames(&self, seed: u64, pictures: u32) -> Vec<EncodedFrame> {
        let mut sizes = Sizes::new(self, seed);
        let mut frames = Vec::with_capacity(pictures as usize);
        let longest = self.interval * self.reordering() * (self.b_frames + 1);
        for first in (0..pictures).step_by(self.group.max(1) as usize) {
            for (place, size) in (0..).zip(sizes.group()).take((pictures - first) as usize) {
                let picture = self.picture(place);
                let later = (picture.shown + 1 - place) * self.reordering();
                let composition = self.interval * later;
                let track = match picture.is_b {
                    _ if place == 0 => EncodedTrack::Key,
                    false => EncodedTrack::Needed,
                    true => EncodedTrack::Disposable,
                };
                frames.push(EncodedFrame {
                    track,
                    published: self.interval * (first + place),
                    encoding: longest - composition,
                    composition,
                    size: size.max(MIN_FRAME_SIZE),
                });
            }
        }
        frames.extend(self.sound(self.interval * pictures));
        // At equal times the picture precedes the sound.
        frames.sort_by_key(|frame| frame.published);
        frames
    }

    /// Returns 1 if decoding order differs from presentation order, else 0.
    fn reordering(&self) -> u32 {
        u32::from(self.b_frames > 0)
    }

    /// Returns the picture at this decoding position of a group: first the key frame, then
    /// repeatedly a P-frame and the B-frames that precede it in presentation order.
    fn picture(&self, place: u32) -> Picture {
        let Some(place) = place.checked_sub(1) else { return Picture { shown: 0, is_b: false } };
        let run = self.b_frames + 1;
        let (start, within) = (place / run * run, place % run);
        match within {
            0 => Picture { shown: (start + run).min(self.group - 1), is_b: false },
            _ => Picture { shown: start + within, is_b: true },
        }
    }

    /// Returns the sound for this duration.
    fn sound(&self, length: Duration) -> Vec<EncodedFrame> {
        let bits = u128::from(self.audio.as_bps());
        if bits == 0 {
            return Vec::new();
        }
        let at =
            |frame: u64| Duration::from_nanos(frame * SOUND_SAMPLES * 1_000_000_000 / SOUND_RATE);
        let bytes =
            |frames: u64| (bits * u128::from(frames * SOUND_SAMPLES) / 8) as u64 / SOUND_RATE;
        let frame = |number: u64| EncodedFrame {
            track: EncodedTrack::Sound,
            published: at(number),
            encoding: Duration::ZERO,
            composition: Duration::ZERO,
            size: ((bytes(number + 1) - bytes(number)) as u32).max(MIN_FRAME_SIZE),
        };
        (0..).map(frame).take_while(|frame| frame.published < length).collect()
    }
}

/// Generator of picture sizes, group by group.
struct Sizes<'a> {
    encoder: &'a Encoder,
    random: Random,
    /// Logarithm of the last factor, in standard deviations.
    state: f64,
    /// Bytes of a group.
    bytes: f64,
}

impl<'a> Sizes<'a> {
    fn new(encoder: &'a Encoder, seed: u64) -> Self {
        let mut random = Random::new(seed ^ ROLE);
        let video = encoder.rate.as_bps().saturating_sub(encoder.audio.as_bps());
        let time = encoder.interval * encoder.group;
        let bytes = Rate::from_bps(video).bytes_in(time) as f64;
        Self { encoder, state: gaussian(&mut random), random, bytes }
    }

    /// Returns the sizes of the next group's pictures.
    fn group(&mut self) -> Vec<u32> {
        let weights: Vec<f64> = (0..self.encoder.group).map(|place| self.weight(place)).collect();
        let unit = (self.bytes / weights.iter().sum::<f64>()).floor();
        weights.iter().map(|weight| (unit * weight) as u32).collect()
    }

    fn weight(&mut self, place: u32) -> f64 {
        let Encoder { key_ratio, size_variation, size_correlation, interval, scene, .. } =
            *self.encoder;
        let is_b = self.encoder.picture(place).is_b;
        let (step, draw) = (gaussian(&mut self.random), self.random.fraction());
        let is_new =
            !is_b && place > 0 && !scene.is_zero() && draw < interval.div_duration_f64(scene);
        let kept = if is_new { 0.0 } else { size_correlation };
        self.state = kept * self.state + (1.0 - kept * kept).sqrt() * step;
        let by_type = match (place, is_b) {
            (0, _) => key_ratio,
            (_, true) => B_RATIO,
            (_, false) if is_new => key_ratio,
            _ => 1.0,
        };
        by_type * (size_variation * self.state).exp()
    }
}

/// Approximately normal with variance 1: the sum of twelve uniform numbers less 6.
pub(crate) fn gaussian(random: &mut Random) -> f64 {
    (0..12).map(|_| random.fraction()).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Encoder {
        Encoder {
            rate: Rate::from_kbps(1_500),
            interval: Duration::from_millis(40),
            group: 50,
            ..Encoder::default()
        }
    }

    fn pictures(encoder: &Encoder, seed: u64, count: u32) -> Vec<EncodedFrame> {
        let frames = encoder.frames(seed, count).into_iter();
        frames.filter(|frame| frame.track != EncodedTrack::Sound).collect()
    }

    #[test]
    fn without_variation_sizes_go_by_frame_type_and_add_up_to_the_rate() {
        let frames = live().frames(1, 125);
        assert_eq!(frames.len(), 125);
        for (place, frame) in frames.iter().enumerate() {
            let size = if place % 50 == 0 { 40_908 } else { 6_818 };
            assert_eq!((frame.size, frame.encoding), (size, Duration::ZERO), "{place}");
            assert_eq!(frame.published, Duration::from_millis(40 * place as u64));
        }
    }

    #[test]
    fn each_group_has_its_rate_however_sizes_vary() {
        let encoder = Encoder {
            size_variation: 0.5,
            size_correlation: 0.8,
            b_frames: 2,
            scene: Duration::from_secs(5),
            audio: Rate::from_kbps(128),
            ..live()
        };
        for seed in 0..20 {
            let frames = encoder.frames(seed, 500);
            let sum = |sound: bool| {
                let of =
                    frames.iter().filter(|frame| (frame.track == EncodedTrack::Sound) == sound);
                of.map(|frame| u64::from(frame.size)).sum::<u64>()
            };
            // 20 s at 1,372 and 128 kbps. The last sound frame extends beyond them.
            let video = 20 * 1_372_000 / 8;
            assert!((video - 1_000..=video).contains(&sum(false)), "seed {seed}: {}", sum(false));
            assert!((320_000..320_400).contains(&sum(true)), "seed {seed}: {}", sum(true));
            for group in pictures(&encoder, seed, 500).chunks(50) {
                let bytes: u32 = group.iter().map(|frame| frame.size).sum();
                assert!((342_900..=343_000).contains(&bytes), "seed {seed}: {bytes}");
            }
        }
    }

    #[test]
    fn the_logarithms_of_sizes_have_their_variation_and_their_correlation() {
        let encoder = Encoder { size_variation: 0.4, size_correlation: 0.7, ..live() };
        let (mut logs, mut products, mut count) = (Vec::new(), 0.0, 0.0);
        for seed in 0..40 {
            for group in pictures(&encoder, seed, 500).chunks(50) {
                let group: Vec<f64> = group[1..].iter().map(|f| f64::from(f.size).ln()).collect();
                let mean = group.iter().sum::<f64>() / group.len() as f64;
                logs.extend(group.iter().map(|log| log - mean));
                products += group.windows(2).map(|p| (p[0] - mean) * (p[1] - mean)).sum::<f64>();
                count += group.len() as f64 - 1.0;
            }
        }
        let variance = logs.iter().map(|log| log * log).sum::<f64>() / logs.len() as f64;
        let correlation = products / count / variance;
        // The group's own mean absorbs part of the variance: about a tenth for 49 correlated
        // values.
        assert!((0.34..0.42).contains(&variance.sqrt()), "{}", variance.sqrt());
        assert!((0.6..0.75).contains(&correlation), "{correlation}");
    }

    #[test]
    fn b_frames_follow_the_frame_they_refer_to() {
        let encoder = Encoder { b_frames: 2, group: 6, ..live() };
        let frames = pictures(&encoder, 1, 12);
        let ms = |of: fn(&EncodedFrame) -> Duration| -> Vec<u128> {
            frames.iter().map(|frame| of(frame).as_millis()).collect()
        };
        // Captured as 0 3 1 2 5 4, and so on. Three intervals is the minimum capture lead.
        let captured: Vec<i64> = frames
            .iter()
            .map(|f| f.published.as_millis() as i64 - f.encoding.as_millis() as i64 + 80)
            .collect();
        assert_eq!(captured, [0, 120, 40, 80, 200, 160, 240, 360, 280, 320, 440, 400]);
        assert_eq!(ms(|f| f.composition), [40, 120, 0, 0, 80, 0, 40, 120, 0, 0, 80, 0]);
        assert_eq!(ms(|f| f.encoding)[..6], [80, 0, 120, 120, 40, 120]);
        let sizes: Vec<u32> = frames[..4].iter().map(|frame| frame.size).collect();
        assert_eq!(sizes[0], 6 * sizes[1]);
        assert_eq!(sizes[2], sizes[1] / 2);
    }

    #[test]
    fn a_change_of_scene_makes_large_frames_and_the_group_no_larger() {
        let calm = live();
        let cuts = Encoder { scene: Duration::from_secs(4), ..calm };
        let large = |encoder: &Encoder| {
            let frames = pictures(encoder, 3, 5_000);
            let own = |group: &[EncodedFrame]| {
                let least = group.iter().map(|frame| frame.size).min().expect("frames");
                group[1..].iter().filter(|frame| frame.size > 3 * least).count()
            };
            frames.chunks(50).map(own).sum::<usize>()
        };
        assert_eq!(large(&calm), 0);
        // 200 s.
        assert!((35..=65).contains(&large(&cuts)), "{}", large(&cuts));
    }

    #[test]
    fn a_seed_gives_the_same_sizes_and_another_one_others() {
        let encoder = Encoder { size_variation: 0.4, ..live() };
        let sizes = |seed| encoder.frames(seed, 100).iter().map(|f| f.size).collect::<Vec<_>>();
        assert_eq!(sizes(1), sizes(1));
        assert_ne!(sizes(1), sizes(2));
    }
}
