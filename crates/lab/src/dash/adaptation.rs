//! Choice of the next segment's bitrate: our own models of published rules.

use core::time::Duration;

use super::video::Ladder;

config::words! {
    /// Rule of bitrate adaptation.
    Adaptation {
        /// Rate-based, as the ThroughputRule of dash.js with its documented defaults: highest
        /// bitrate of at most 0.9 of the estimate. The estimate is the smaller one of two moving
        /// averages of the download rate, with half-lives of 3 s and 8 s of download time.
        Throughput = "throughput",
        /// Rate-based, as the basic scheme in the evaluation of SARA (Juluri, Tamarapalli and
        /// Medhi, ICCW 2015): highest bitrate of at most the mean download rate since the start
        /// divided by 1.2. ART's evaluation refers to it.
        Average = "average",
        /// Buffer-based: BBA-0 (Huang et al., SIGCOMM 2014, Algorithm 1). The reservoir is 37.5 %
        /// of the highest buffer level at a request, and the highest bitrate begins at 90 %, as in
        /// its deployment (90 s and 216 s of 240 s). That level is the maximum buffer less a
        /// segment: otherwise a short buffer never allows the highest bitrate.
        Buffer = "bba",
    }
}

/// Share of the estimate that "throughput" uses.
const SAFETY: f64 = 0.9;
/// Half-lives of the two averages of "throughput", in seconds of download time.
const HALF_LIVES: [f64; 2] = [3.0, 8.0];
/// Excess of the mean download rate over the chosen bitrate in "average".
const HEADROOM: f64 = 1.2;
/// End of the reservoir of "bba", with the lowest bitrate, as share of the highest buffer level.
const RESERVOIR: f64 = 0.375;
/// Start of the highest bitrate of "bba", as share of the highest buffer level.
const FULL: f64 = 0.9;

/// Exponentially weighted moving average, corrected for its start at zero.
#[derive(Clone, Copy, Debug, Default)]
struct MovingAverage {
    sum: f64,
    /// Weight of all samples, in seconds.
    weight: f64,
}

impl MovingAverage {
    fn add(&mut self, value: f64, weight: f64, half_life: f64) {
        let kept = 0.5_f64.powf(weight / half_life);
        self.sum = kept * self.sum + (1.0 - kept) * value;
        self.weight += weight;
    }

    fn value(&self, half_life: f64) -> Option<f64> {
        let seen = 1.0 - 0.5_f64.powf(self.weight / half_life);
        (seen > 0.0).then(|| self.sum / seen)
    }
}

/// State of a rule.
#[derive(Clone, Debug)]
pub(super) struct Adapter {
    rule: Adaptation,
    /// Moving averages of the download rate in bits per second.
    averages: [MovingAverage; 2],
    /// Total download size in bits, and total download time in seconds.
    total: (f64, f64),
    /// Rung of the last segment.
    last: usize,
}

impl Adapter {
    pub(super) fn new(rule: Adaptation) -> Self {
        Self { rule, averages: Default::default(), total: (0.0, 0.0), last: 0 }
    }

    /// Adds a downloaded segment. `time` is the time from its request to its last byte.
    pub(super) fn on_segment(&mut self, bytes: u64, time: Duration) {
        // A download takes at least the clock's resolution.
        let (bits, seconds) = (bytes as f64 * 8.0, time.as_secs_f64().max(1e-9));
        for (average, half_life) in self.averages.iter_mut().zip(HALF_LIVES) {
            average.add(bits / seconds, seconds, half_life);
        }
        self.total = (self.total.0 + bits, self.total.1 + seconds);
    }

    /// Chooses the rung of the next segment with `level` seconds buffered, of at most `max` at a
    /// request. The first segment has the lowest bitrate.
    pub(super) fn choose(&mut self, ladder: &Ladder, level: f64, max: f64) -> usize {
        self.last = match self.rule {
            Adaptation::Throughput => {
                let values = self.averages.iter().zip(HALF_LIVES);
                let estimate = values.filter_map(|(average, half)| average.value(half));
                ladder.within(SAFETY * estimate.reduce(f64::min).unwrap_or(0.0))
            }
            Adaptation::Average => match self.total {
                (_, 0.0) => 0,
                (bits, seconds) => ladder.within(bits / seconds / HEADROOM),
            },
            // Without room for a second segment, the level is always 0.
            Adaptation::Buffer if max <= 0.0 => 0,
            Adaptation::Buffer => self.by_buffer(ladder, level / max),
        };
        self.last
    }

    /// Algorithm 1 of BBA-0. `level` is a share of the highest one.
    fn by_buffer(&self, ladder: &Ladder, level: f64) -> usize {
        let (top, last) = (ladder.top(), self.last);
        if level <= RESERVOIR {
            return 0;
        }
        if level >= FULL {
            return top;
        }
        let (low, high) = (ladder.bps(0), ladder.bps(top));
        let mapped = low + (high - low) * (level - RESERVOIR) / (FULL - RESERVOIR);
        let rates = 0..=top;
        if mapped >= ladder.bps((last + 1).min(top)) {
            rates.rev().find(|&rung| ladder.bps(rung) < mapped).unwrap_or(0)
        } else if mapped <= ladder.bps(last.saturating_sub(1)) {
            rates.into_iter().find(|&rung| ladder.bps(rung) > mapped).unwrap_or(top)
        } else {
            last
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Rate;

    fn ladder() -> Ladder {
        Ladder::new([500, 1_000, 2_000, 4_000].map(Rate::from_kbps).to_vec()).expect("valid")
    }

    /// Chosen rung after downloads of these sizes in kilobits and times in seconds.
    fn after(rule: Adaptation, downloads: &[(u64, f64)]) -> usize {
        let mut adapter = Adapter::new(rule);
        for &(kilobits, seconds) in downloads {
            adapter.on_segment(kilobits * 125, Duration::from_secs_f64(seconds));
        }
        adapter.choose(&ladder(), 10.0, 30.0)
    }

    #[test]
    fn the_first_segment_has_the_lowest_bitrate() {
        for rule in [Adaptation::Throughput, Adaptation::Average, Adaptation::Buffer] {
            assert_eq!(after(rule, &[]), 0, "{rule:?}");
        }
    }

    #[test]
    fn throughput_leaves_a_tenth_of_the_estimate() {
        // 2,000 kbps need 2,222 kbps.
        assert_eq!(after(Adaptation::Throughput, &[(2_223, 1.0)]), 2);
        assert_eq!(after(Adaptation::Throughput, &[(2_221, 1.0)]), 1);
    }

    #[test]
    fn throughput_takes_the_smaller_average() {
        // 24 s at 4,600 kbps, then 3 s at 1,000 kbps. The fast average halves: (4,600 * 255/256
        // + 1,000) / 2 over 511/512 = 2,796. The slow one keeps 77 %: 3,690.
        let mut adapter = Adapter::new(Adaptation::Throughput);
        adapter.on_segment(24 * 4_600 * 125, Duration::from_secs(24));
        assert_eq!(adapter.choose(&ladder(), 10.0, 30.0), 3);
        adapter.on_segment(3 * 1_000 * 125, Duration::from_secs(3));
        let [fast, slow] = [0, 1].map(|n| adapter.averages[n].value(HALF_LIVES[n]).expect("one"));
        assert!((fast / 1e3 - 2_796.5).abs() < 1.0, "{fast}");
        assert!(slow > 3.6e6, "{slow}");
        assert_eq!(adapter.choose(&ladder(), 10.0, 30.0), 2);
        // After 24 s more at 4,600 kbps the slow average is the smaller one.
        adapter.on_segment(24 * 4_600 * 125, Duration::from_secs(24));
        let [fast, slow] = [0, 1].map(|n| adapter.averages[n].value(HALF_LIVES[n]).expect("one"));
        assert!(fast > slow, "{fast} {slow}");
    }

    #[test]
    fn average_is_over_all_downloads_and_leaves_a_sixth() {
        // 2,400 kilobits in 1 s and 2,400 in 3 s are 1,200 kbps, 1.2 times 1,000.
        assert_eq!(after(Adaptation::Average, &[(2_400, 1.0), (2_400, 3.0)]), 1);
        assert_eq!(after(Adaptation::Average, &[(2_400, 1.0), (2_390, 3.0)]), 0);
        assert_eq!(after(Adaptation::Average, &[(4_801, 1.0)]), 3);
    }

    #[test]
    fn bba_maps_the_buffer_linearly_and_keeps_its_rung_in_between() {
        // Of 40 s: the reservoir ends at 15 s, the top begins at 36 s, and 1 s is 166.7 kbps.
        let mut adapter = Adapter::new(Adaptation::Buffer);
        let chosen: Vec<usize> = [
            15.0, // reservoir: lowest
            17.9, // 983 kbps, below the next rung: stays
            18.1, // 1,017 kbps: 1,000
            23.9, // 1,983 kbps, between the neighbours: stays
            24.1, // 2,017 kbps: 2,000
            35.0, // 3,833 kbps, below 4,000: stays
            36.0, // top
            24.1, // 2,017 kbps, above the lower neighbour, 2,000: stays
            23.9, // 1,983 kbps: lowest rung above it, 2,000
            18.1, // 1,017 kbps, above 1,000: stays
            17.9, // 983 kbps: lowest rung above it, 1,000
            14.9,
        ]
        .into_iter()
        .map(|level| adapter.choose(&ladder(), level, 40.0))
        .collect();
        assert_eq!(chosen, [0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 1, 0]);
    }

    #[test]
    fn one_bitrate_is_always_chosen() {
        let ladder = Ladder::new(vec![Rate::from_kbps(500)]).expect("valid");
        for rule in [Adaptation::Throughput, Adaptation::Average, Adaptation::Buffer] {
            let mut adapter = Adapter::new(rule);
            for level in [0.0, 15.0, 20.0, 30.0] {
                adapter.on_segment(0, Duration::ZERO);
                assert_eq!(adapter.choose(&ladder, level, 30.0), 0, "{rule:?}");
            }
            assert_eq!(adapter.choose(&ladder, 0.0, 0.0), 0, "{rule:?}: room for one segment");
        }
    }
}
