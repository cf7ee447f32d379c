//! Sessions that are made up, from a seed.

#![allow(dead_code)]

use groups::select::{Sample, group_id};
use mendcast_autoplex::rows::{MAX_BYTES, MAX_PACKETS, Measured};

/// SplitMix64: seeded, and the same everywhere.
pub struct Chance(pub u64);

impl Chance {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to less than `below`.
    pub fn below(&mut self, below: i64) -> i64 {
        (self.next() % below as u64) as i64
    }

    /// From 0 to less than 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// As `median` times e to the power of a normal of this standard deviation.
    pub fn lognormal(&mut self, median: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        median * (deviation * radius * (core::f64::consts::TAU * self.uniform()).cos()).exp()
    }
}

/// The name of a made-up group.
pub fn name(group: i64) -> String {
    format!("C{}/AS{}/S{}/City {group}", group % 7, group % 31, group % 3)
}

/// A session like many, which ended from `begin` on and before `end`.
pub fn session(chance: &mut Chance, group: i64, begin: i64, end: i64) -> Measured {
    let packets = chance.lognormal(20_000.0, 1.0).clamp(500.0, 1e8) as i64;
    let ratio = chance.lognormal(0.02, 1.0).min(1.0);
    let kbps = chance.lognormal(3_000.0, 0.6) as i64;
    let in_flight = (chance.lognormal(60_000.0, 0.6) as i64).min(MAX_BYTES);
    let arm = [1, 2, 3, 4, 4, 4, 4, 4, 4, 4][chance.below(10) as usize];
    let plays = chance.below(3) > 0;
    // Some networks come more often than others.
    let network = 1 + chance.below(250);
    let network = chance.below(network);
    Measured {
        sample: Sample {
            group: group_id(&name(group)),
            session: (chance.next() >> 1) as i64,
            prefix: group_id(&format!("10.{}.{network}.0/24", group % 250)),
            ended: begin + chance.below(end - begin),
            explorer: i64::from(arm == 1),
            packets,
            retransmitted: (packets as f64 * ratio) as i64,
            goodput_kbps: kbps,
            rtt_us: chance.lognormal(50_000.0, 0.5) as i64,
            in_flight,
            window: 2 * in_flight.min(MAX_BYTES / 2),
            open_kbps: if chance.below(5) > 0 { 3 * kbps } else { 0 },
        },
        arm,
        freezes: if plays { chance.below(4) } else { -1 },
        played_ms: if plays { 1 + chance.below(600_000) } else { -1 },
        frozen_ms: if plays { chance.below(9_000) } else { -1 },
        first_frame_ms: if plays { chance.below(2_000) } else { -1 },
    }
}

/// Sessions of `groups` groups of all sizes, of which every few are odd: with values at their bounds, with nothing but
/// ties, and with a single session. A few ended outside the time.
pub fn sessions(seed: u64, count: usize, groups: i64, begin: i64, end: i64) -> Vec<Measured> {
    let mut chance = Chance(seed);
    let mut all = Vec::with_capacity(count);
    for place in 0..count as i64 {
        let group = (groups as f64 * chance.uniform().powi(2)) as i64;
        let mut row = session(&mut chance, group, begin - 5, end + 5);
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
                sample.retransmitted = sample.retransmitted.min(1 << (place % 20));
                sample.packets = 1_000_000;
                sample.open_kbps = 1 << (place % 27);
            }
            _ => {}
        }
        all.push(row);
    }
    for lone in 0..5 {
        all.push(session(&mut chance, groups + lone, begin, end));
    }
    all
}
