//! Synthetic sessions.

#![allow(dead_code)]

use groups::select::{Sample, group_id};
use mendcast_autoplex::rows::{MAX_BYTES, MAX_PACKETS, Measured};

/// SplitMix64, seeded.
pub struct Rng(pub u64);

impl Rng {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws from `0..below`.
    pub fn below(&mut self, below: i64) -> i64 {
        (self.next() % below as u64) as i64
    }

    /// Draws from `0.0..1.0`.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws from a log-normal distribution. `deviation` is the standard deviation of the
    /// logarithm.
    pub fn lognormal(&mut self, median: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        median * (deviation * radius * (core::f64::consts::TAU * self.uniform()).cos()).exp()
    }
}

/// Returns the name of a synthetic group.
pub fn name(group: i64) -> String {
    format!("C{}/AS{}/S{}/City {group}", group % 7, group % 31, group % 3)
}

/// Draws a typical session that ended in `begin..end`.
pub fn session(rng: &mut Rng, group: i64, begin: i64, end: i64) -> Measured {
    let packets = rng.lognormal(20_000.0, 1.0).clamp(500.0, 1e8) as i64;
    let ratio = rng.lognormal(0.02, 1.0).min(1.0);
    let kbps = rng.lognormal(3_000.0, 0.6) as i64;
    let in_flight = (rng.lognormal(60_000.0, 0.6) as i64).min(MAX_BYTES);
    let arm = [1, 2, 3, 4, 4, 4, 4, 4, 4, 4][rng.below(10) as usize];
    let plays = rng.below(3) > 0;
    // Low network numbers are more frequent.
    let network = 1 + rng.below(250);
    let network = rng.below(network);
    Measured {
        sample: Sample {
            group: group_id(&name(group)),
            session: (rng.next() >> 1) as i64,
            prefix: group_id(&format!("10.{}.{network}.0/24", group % 250)),
            ended: begin + rng.below(end - begin),
            explorer: i64::from(arm == 1),
            packets,
            retransmitted: (packets as f64 * ratio) as i64,
            goodput_kbps: kbps,
            rtt_us: rng.lognormal(50_000.0, 0.5) as i64,
            in_flight,
            window: 2 * in_flight.min(MAX_BYTES / 2),
            open_kbps: if rng.below(5) > 0 { 3 * kbps } else { 0 },
        },
        arm,
        freezes: if plays { rng.below(4) } else { -1 },
        played_ms: if plays { 1 + rng.below(600_000) } else { -1 },
        frozen_ms: if plays { rng.below(9_000) } else { -1 },
        first_frame_ms: if plays { rng.below(2_000) } else { -1 },
    }
}

/// Draws sessions of `groups` groups of all sizes. Some groups have values at their bounds, only
/// ties, or a single session. Some sessions ended outside `begin..end`.
pub fn sessions(seed: u64, count: usize, groups: i64, begin: i64, end: i64) -> Vec<Measured> {
    let mut rng = Rng(seed);
    let mut all = Vec::with_capacity(count);
    for index in 0..count as i64 {
        let group = (groups as f64 * rng.uniform().powi(2)) as i64;
        let mut row = session(&mut rng, group, begin - 5, end + 5);
        let sample = &mut row.sample;
        match group % 10 {
            3 => sample.retransmitted = 0,
            4 => {
                sample.retransmitted = 10 * (sample.session % 3);
                (sample.packets, sample.goodput_kbps, sample.rtt_us) = (1_000, 1_000, 50_000);
                sample.open_kbps = 4_000;
            }
            5 => {
                (sample.retransmitted, sample.packets) = (MAX_PACKETS, 500);
                (sample.goodput_kbps, sample.rtt_us) = (100_000_000, 1);
                (sample.in_flight, sample.window) = (MAX_BYTES, MAX_BYTES);
                sample.open_kbps = 100_000_000;
                (row.freezes, row.played_ms, row.first_frame_ms) = (86_400, 86_400_000, 60_000);
            }
            6 => {
                sample.retransmitted = sample.retransmitted.min(1 << (index % 20));
                sample.packets = 1_000_000;
                sample.open_kbps = 1 << (index % 27);
            }
            _ => {}
        }
        all.push(row);
    }
    for lone in 0..5 {
        all.push(session(&mut rng, groups + lone, begin, end));
    }
    all
}
