//! A model of WebRTC's error correction (Holmer, Shemer and Paniconi, "Handling packet loss in
//! WebRTC", ICIP 2013, and its present version): how many repair packets go with a frame.
//!
//! WebRTC reads protection factors from a table by loss rate and bits per frame. This model has the
//! table's shape at 4 Mbps and 60 frames per second: a floor of a quarter of the data packets, four
//! times the loss rate above it, and at most one repair packet per data packet (50 % of all).

use core::time::Duration;

use crate::error::BadValue;

/// Version of the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Of 2013/14: protection grows with the round-trip time, because retransmissions suffice on
    /// short paths.
    Of14,
    /// The present one: full protection from 20 ms on.
    Now,
}

/// Round-trip time below which the present version protects no delta frames.
const MIN_RTT: Duration = Duration::from_millis(20);
/// Lowest share of repair packets while there is loss: 51 ÷ 255 of all packets.
const FLOOR: f64 = 0.25;
/// Share of repair packets per loss rate.
const PER_LOSS: f64 = 4.0;
/// Midpoint and slope of the weight of the version of '14.
const MIDPOINT_MS: f64 = 36.9;
const SLOPE_PER_MS: f64 = 0.195;

/// Weight of a round-trip time, 0 to 1 (version of '14).
pub fn rtt_weight(rtt: Duration) -> f64 {
    let above = rtt.as_secs_f64() * 1e3 - MIDPOINT_MS;
    1.0 / (1.0 + (-SLOPE_PER_MS * above).exp())
}

/// Returns repair packets per data packet, 0 to 1.
pub fn protection(version: Version, loss: f64, rtt: Duration) -> f64 {
    if loss <= 0.0 {
        return 0.0;
    }
    let full = (PER_LOSS * loss).clamp(FLOOR, 1.0);
    match version {
        Version::Now if rtt < MIN_RTT => 0.0,
        Version::Now => full,
        Version::Of14 => full * rtt_weight(rtt),
    }
}

/// Returns the repair packets of a frame: rounded, and at least one if there is any protection
/// (a factor of 1/255 or more).
pub fn repairs(version: Version, loss: f64, rtt: Duration, packets: usize) -> usize {
    // WebRTC's integers: factors of 255, packets by shifts of 8 bits.
    let factor = (protection(version, loss, rtt) * 255.0).round() as usize;
    if factor == 0 || packets == 0 {
        return 0;
    }
    ((packets * factor + 128) >> 8).clamp(1, packets)
}

/// The interleaved mask of XOR repair packets: repair packet *r* of *f* covers the data packets
/// with index *r* modulo *f*. WebRTC uses it for groups of more than 12 packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mask {
    data: usize,
    repairs: usize,
}

impl Mask {
    /// Most data packets of a group.
    pub const MAX_DATA: usize = 48;

    /// Creates the mask of a group.
    ///
    /// # Errors
    /// There are more repair than data packets, or more than 48 data packets.
    pub fn new(data: usize, repairs: usize) -> Result<Self, BadValue> {
        BadValue::unless(
            (1..=Self::MAX_DATA).contains(&data),
            "mask.data",
            data,
            "1 to 48 packets",
        )?;
        let allowed = format!("at most the group's {data} data packets");
        BadValue::unless(repairs <= data, "mask.repairs", repairs, &allowed)?;
        Ok(Self { data, repairs })
    }

    /// Returns whether all data is known, from the received data and repair packets.
    pub fn restores(self, data: &[bool], repairs: &[bool]) -> bool {
        let missing =
            |class: usize| (class..self.data).step_by(self.repairs).filter(|&at| !data[at]).count();
        if self.repairs == 0 {
            return data.iter().all(|&arrived| arrived);
        }
        (0..self.repairs).all(|class| missing(class) <= usize::from(repairs[class]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_published_packet_counts_at_4_mbps_are_met() {
        // Of the array for groups of 5 packets: 1 packet up to 6 %, 2 from 8 % to 10 %, 3 at 15 %,
        // 4 at 20 %, 5 from 30 % on.
        for (percent, packets) in
            [(1, 1), (3, 1), (6, 1), (8, 2), (10, 2), (15, 3), (20, 4), (30, 5), (50, 5)]
        {
            let loss = f64::from(percent) / 100.0;
            assert_eq!(repairs(Version::Now, loss, MS(30), 5), packets, "{percent} %");
        }
        // AutoRec, figure 19 a and b: 32.81 % and 16.16 % with 6 packets per frame.
        assert_eq!(repairs(Version::Now, 0.01, MS(30), 6), 2);
        assert_eq!(repairs(Version::Of14, 0.01, MS(30), 6), 1);
        assert_eq!(repairs(Version::Now, 0.0, MS(30), 6), 0, "no loss, no protection");
        assert_eq!(repairs(Version::Now, 0.1, MS(19), 6), 0, "retransmissions suffice");
    }

    #[test]
    fn the_weight_of_14_follows_the_published_points() {
        for (rtt, percent) in [
            (10, 0),
            (15, 1),
            (20, 3),
            (25, 9),
            (27, 12),
            (30, 21),
            (32, 28),
            (35, 41),
            (37, 51),
            (40, 66),
            (45, 84),
            (50, 92),
            (60, 99),
            (64, 100),
        ] {
            let weight = rtt_weight(MS(rtt)) * 100.0;
            assert!((weight - f64::from(percent)).abs() < 2.0, "{rtt} ms: {weight}");
        }
    }

    #[test]
    fn a_mask_restores_one_loss_per_class() {
        let mask = Mask::new(6, 2).expect("in range");
        let all = [true; 6];
        let without = |lost: &[usize]| core::array::from_fn::<_, 6, _>(|i| !lost.contains(&i));
        assert!(mask.restores(&all, &[false, false]));
        assert!(mask.restores(&without(&[0, 1]), &[true, true]));
        assert!(!mask.restores(&without(&[0, 2]), &[true, true]), "both in one class");
        assert!(!mask.restores(&without(&[0]), &[false, true]));
        let bad = Mask::new(4, 5).expect_err("rejected").to_string();
        assert_eq!(bad, "mask.repairs = 5: expected at most the group's 4 data packets");
    }
}
