//! A video source: frames by number, with key frames and sizes that vary.

use core::time::Duration;

use units::{GOLDEN_GAMMA, Timestamp, mix64};

use crate::error::BadValue;

/// A video source.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Source {
    /// Frames per second. 1 to 240.
    pub fps: u32,
    /// Mean packets of a delta frame. 1 to 48.
    pub packets: u32,
    /// Packets of a key frame per packet of a delta frame. 1 to 9 (Ringmaster's limit of 900 %).
    pub key_factor: f64,
    /// Frames from one key frame to the next; 0 for one at the start and on request.
    pub key_every: u32,
    /// Largest relative deviation of a size from its mean, uniform. 0 to below 1.
    pub variation: f64,
}

impl Source {
    /// Returns the source if all values are in range.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn checked(self) -> Result<Self, BadValue> {
        BadValue::unless((1..=240).contains(&self.fps), "fps", self.fps, "1 to 240")?;
        BadValue::unless((1..=48).contains(&self.packets), "packets", self.packets, "1 to 48")?;
        let factor = self.key_factor;
        BadValue::unless((1.0..=9.0).contains(&factor), "key_factor", factor, "1 to 9")?;
        let variation = self.variation;
        let is_allowed = (0.0..1.0).contains(&variation);
        BadValue::unless(is_allowed, "variation", variation, "0 to below 1")?;
        Ok(self)
    }

    /// Time when frame `n` is captured.
    pub fn at(&self, n: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_nanos(n * 1_000_000_000 / u64::from(self.fps))
    }

    /// Whether frame `n` is a key frame unasked.
    pub fn is_key(&self, n: u64) -> bool {
        n == 0 || self.key_every > 0 && n.is_multiple_of(self.key_every.into())
    }

    /// Packets of the largest frame.
    pub fn largest(&self) -> usize {
        let mean = f64::from(self.packets) * self.key_factor;
        (mean * (1.0 + self.variation)).round() as usize
    }

    /// Packets of frame `n`, at least one.
    pub fn size(&self, n: u64, is_key: bool, seed: u64) -> u32 {
        let draw = mix64(seed.wrapping_add(n.wrapping_mul(GOLDEN_GAMMA)));
        let centred = (draw >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        let mean = f64::from(self.packets) * if is_key { self.key_factor } else { 1.0 };
        (mean * (1.0 + self.variation * centred)).round().max(1.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_mean_and_vary_within_their_range() {
        let source =
            Source { fps: 60, packets: 20, key_factor: 4.0, key_every: 120, variation: 0.5 };
        let source = source.checked().expect("in range");
        let sizes: Vec<_> = (0..10_000).map(|n| source.size(n, false, 7)).collect();
        let mean = sizes.iter().sum::<u32>() as f64 / 10_000.0;
        assert!((mean - 20.0).abs() < 0.3, "{mean}");
        assert!(sizes.iter().all(|size| (10..=30).contains(size)));
        assert!(source.size(120, true, 7) >= 40 && source.is_key(120) && !source.is_key(121));
        assert_eq!(source.at(60), Timestamp::from_secs(1));
        let bad = Source { fps: 0, ..source }.checked().expect_err("rejected");
        assert_eq!(bad.to_string(), "fps = 0: expected 1 to 240");
    }
}
