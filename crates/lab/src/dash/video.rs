//! A video in several bitrates, cut into segments of equal duration.

use core::time::Duration;

use recovery::Random;
use units::{Rate, mix64};

use crate::ends::PATTERN;
use crate::live::gaussian;

/// Bitrates of a video in rising order: 1 to [`Ladder::MAX_RUNGS`], each from 1 bps to
/// [`Ladder::MAX_RATE`].
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub struct Ladder(Vec<Rate>);

impl Ladder {
    /// Maximum number of bitrates.
    pub const MAX_RUNGS: usize = 32;
    /// Maximum bitrate.
    pub const MAX_RATE: Rate = Rate::from_mbps(1_000);

    /// Creates a ladder; `None` if the rates are not valid.
    pub fn new(rates: Vec<Rate>) -> Option<Self> {
        let is_rising = rates.windows(2).all(|pair| pair[0] < pair[1]);
        let (lowest, highest) = (*rates.first()?, *rates.last()?);
        let is_valid = is_rising
            && lowest > Rate::ZERO
            && highest <= Self::MAX_RATE
            && rates.len() <= Self::MAX_RUNGS;
        is_valid.then_some(Self(rates))
    }

    /// Returns all bitrates.
    pub fn rates(&self) -> &[Rate] {
        &self.0
    }

    /// Returns the bitrate of a rung, in bits per second.
    pub(super) fn bps(&self, rung: usize) -> f64 {
        self.0[rung].as_bps() as f64
    }

    /// Returns the highest rung of at most `bps` bits per second, or the lowest one.
    pub(super) fn within(&self, bps: f64) -> usize {
        self.0.partition_point(|rate| rate.as_bps() as f64 <= bps).saturating_sub(1)
    }

    /// Returns the highest rung.
    pub(super) fn top(&self) -> usize {
        self.0.len() - 1
    }
}

impl Default for Ladder {
    /// Big Buck Bunny in segments of 4 s, of the DASH dataset of the University of Klagenfurt
    /// (Lederer, Müller and Timmerer, MMSys 2012; release of 2014).
    fn default() -> Self {
        let bps = [
            45_226, 88_783, 128_503, 177_437, 217_761, 255_865, 323_047, 378_355, 509_091, 577_751,
            782_553, 1_008_699, 1_207_152, 1_473_801, 2_087_347, 2_409_742, 2_944_291, 3_340_509,
            3_613_836, 3_936_261,
        ];
        Self(bps.map(Rate::from_bps).to_vec())
    }
}

/// A video: sizes of its segments in each bitrate.
#[derive(Clone, Debug)]
pub struct Video {
    /// Bitrates.
    pub ladder: Ladder,
    /// Duration of a segment, above 0.
    pub segment: Duration,
    /// Number of segments, at least 1.
    pub segments: u32,
    /// Standard deviation of the logarithm of segment sizes; 0 for equal sizes. All bitrates of a
    /// segment vary alike, because its content makes them vary. The mean stays at the bitrate.
    pub variation: f64,
    /// Seed of the sizes.
    pub seed: u64,
}

impl Video {
    /// Returns the size of a segment in bytes, at least 1.
    ///
    /// # Panics
    /// The ladder has no such rung.
    pub fn size(&self, rung: usize, segment: u32) -> u64 {
        let mean = self.ladder.rates()[rung].bytes_in(self.segment) as f64;
        let mut random = Random::new(mix64(self.seed).wrapping_add(mix64(segment.into())));
        // A lognormal variable with the mean 1.
        let exponent = self.variation * gaussian(&mut random) - self.variation.powi(2) / 2.0;
        (mean * exponent.exp()).round().max(1.0) as u64
    }

    /// Returns the offset of a segment's content in the testbed's pattern. It differs between
    /// segments, so that a wrong segment is detected.
    pub(super) fn offset(rung: usize, segment: u32) -> usize {
        (rung * 7_919 + segment as usize * 104_729) % PATTERN
    }

    /// Returns the path of a segment in requests, at most 30 bytes.
    pub(super) fn path(rung: usize, segment: u32) -> String {
        format!("/dash/{rung}/{segment}.m4s")
    }

    /// Parses the path of a segment of this video.
    pub(super) fn parse(&self, path: &[u8]) -> Option<(usize, u32)> {
        let path = core::str::from_utf8(path).ok()?;
        let (rung, segment) = path.strip_prefix("/dash/")?.strip_suffix(".m4s")?.split_once('/')?;
        let (rung, segment) = (rung.parse().ok()?, segment.parse().ok()?);
        (rung <= self.ladder.top() && segment < self.segments).then_some((rung, segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(kbps: &[u64]) -> Vec<Rate> {
        kbps.iter().copied().map(Rate::from_kbps).collect()
    }

    fn video(variation: f64, seed: u64) -> Video {
        let ladder = Ladder::new(rates(&[400, 800])).expect("valid");
        Video { ladder, segment: Duration::from_secs(2), segments: 400, variation, seed }
    }

    #[test]
    fn a_ladder_is_rising_and_has_one_to_32_rates_above_zero() {
        for wrong in [&[][..], &[0], &[0, 5], &[5, 5], &[5, 4], &[5, 6, 6], &[1_000_001]] {
            assert_eq!(Ladder::new(rates(wrong)), None, "{wrong:?}");
        }
        let long: Vec<u64> = (1..=33).collect();
        assert_eq!(Ladder::new(rates(&long)), None);
        assert!(Ladder::new(rates(&long[..32])).is_some());
        let ladder = Ladder::new(rates(&[5, 9, 1_000_000])).expect("valid");
        let within = [0.0, 4_999.0, 5_000.0, 8_999.0, 9_000.0, 1e12].map(|bps| ladder.within(bps));
        assert_eq!(within, [0, 0, 0, 0, 1, 2]);
        assert_eq!(Ladder::new(Ladder::default().0), Some(Ladder::default()));
    }

    #[test]
    fn sizes_have_the_bitrate_as_mean_and_vary_alike_in_all_bitrates() {
        let constant = video(0.0, 1);
        assert_eq!((constant.size(0, 7), constant.size(1, 8)), (100_000, 200_000));
        let varied = video(0.3, 1);
        let sizes: Vec<f64> = (0..400).map(|n| varied.size(0, n) as f64).collect();
        let mean = sizes.iter().sum::<f64>() / 400.0;
        assert!((mean - 1e5).abs() < 5e3, "{mean}");
        let logs: Vec<f64> = sizes.iter().map(|size| (size / mean).ln()).collect();
        let deviation = (logs.iter().map(|log| log * log).sum::<f64>() / 400.0).sqrt();
        assert!((deviation - 0.3).abs() < 0.04, "{deviation}");
        for segment in 0..400 {
            let [low, high] = [0, 1].map(|rung| varied.size(rung, segment) as f64);
            assert!((high / low - 2.0).abs() < 1e-4, "{low} {high}");
        }
    }

    #[test]
    fn sizes_depend_on_the_seed_alone() {
        let sizes = |seed| (0..400).map(|n| video(0.3, seed).size(1, n)).collect::<Vec<_>>();
        assert_eq!(sizes(1), sizes(1));
        assert_ne!(sizes(1), sizes(2));
    }

    #[test]
    fn paths_name_segments_of_the_video_only() {
        let video = video(0.0, 1);
        assert_eq!(video.parse(Video::path(1, 399).as_bytes()), Some((1, 399)));
        for wrong in ["/dash/2/0.m4s", "/dash/0/400.m4s", "/dash/0.m4s", "/dash/-1/0.m4s", "/", ""]
        {
            assert_eq!(video.parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(Video::path(31, u32::MAX).len() <= 30);
        assert_ne!(Video::offset(0, 1), Video::offset(1, 0));
    }
}
