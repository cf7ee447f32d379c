//! A bounded queue of handshake datagrams.
//!
//! A handshake costs a hundred times as much as an ordinary datagram, and any client can start one.
//! So datagrams with a long header, which all handshakes consist of (RFC 9000, section 17.2), are
//! queued. Established connections come first, and while they have work, handshakes get only a
//! share of the loop's time.
//!
//! The queue is fair between networks (IPv4 /24, IPv6 /56): a keyed hash assigns each to a lane,
//! and lanes are served round-robin. When the queue is full, the longest lane loses its newest
//! datagram. A single active network may use the whole queue.

use core::time::Duration;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use ::quic::Datagram;
use units::Timestamp;

/// Maximum number of queued datagrams: a few MB.
const CAPACITY: usize = 1_024;
const LANES: usize = 256;
/// Capacity above which an empty lane releases memory.
const KEPT_CAPACITY: usize = 16;

/// The handshake queue of a loop.
#[derive(Debug)]
pub(super) struct Handshakes {
    lanes: Vec<VecDeque<Datagram<Vec<u8>>>>,
    /// Non-empty lanes in service order.
    turns: VecDeque<usize>,
    len: usize,
    /// The lane that was longest at its last insertion.
    longest: usize,
    hasher: RandomState,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self {
            lanes: (0..LANES).map(|_| VecDeque::new()).collect(),
            turns: VecDeque::new(),
            len: 0,
            longest: 0,
            hasher: RandomState::new(),
        }
    }
}

impl Handshakes {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues a datagram. Returns false if this or another one was dropped.
    pub(super) fn push(&mut self, datagram: Datagram<Vec<u8>>) -> bool {
        let network = network(datagram.addresses.remote.ip());
        let lane = self.hasher.hash_one(network) as usize % LANES;
        let is_full = self.len == CAPACITY;
        if is_full {
            // The longest lane grew last, and was noted then.
            if self.lanes[lane].len() + 1 >= self.lanes[self.longest].len() {
                return false;
            }
            self.lanes[self.longest].pop_back();
            self.len -= 1;
        }
        self.lanes[lane].push_back(datagram);
        self.len += 1;
        if self.lanes[lane].len() == 1 {
            self.turns.push_back(lane);
        }
        if self.lanes[lane].len() > self.lanes[self.longest].len() {
            self.longest = lane;
        }
        !is_full
    }

    /// Takes the oldest datagram of the next lane.
    pub(super) fn pop(&mut self) -> Option<Datagram<Vec<u8>>> {
        let lane = self.turns.pop_front()?;
        let waiting = &mut self.lanes[lane];
        let datagram = waiting.pop_front()?;
        self.len -= 1;
        if !waiting.is_empty() {
            self.turns.push_back(lane);
        } else if waiting.capacity() > KEPT_CAPACITY {
            *waiting = VecDeque::new();
        }
        Some(datagram)
    }
}

/// Returns the network of an address: a household or small site.
fn network(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
        // The top bit keeps IPv6 networks distinct from IPv4.
        IpAddr::V6(ip) => (ip.to_bits() >> 72) as u64 | 1 << 63,
    }
}

/// Maximum time for handshakes per turn.
const MAX_TURN_TIME: Duration = Duration::from_millis(2);
/// While a loop has other work, handshakes get 1/4 of its time.
const TIME_SHARE: u64 = 4;

/// Time budget of handshakes while there is other work.
#[derive(Debug, Default)]
pub(super) struct HandshakeBudget {
    /// Nanoseconds. Negative after a long handshake, which delays the next one.
    left: i64,
    counted: Timestamp,
}

impl HandshakeBudget {
    /// Returns the time for handshakes in this turn. `other_work` means that there is other work.
    pub(super) fn grant(&mut self, now: Timestamp, other_work: bool) -> Duration {
        let most = MAX_TURN_TIME.as_nanos() as i64;
        let passed = now.since(self.counted).as_nanos() as u64 / TIME_SHARE;
        self.counted = now;
        self.left = self.left.saturating_add(i64::try_from(passed).unwrap_or(most)).min(most);
        let granted = if other_work { self.left.max(0) } else { most };
        Duration::from_nanos(granted as u64)
    }

    /// Deducts the time used. Without other work it is free.
    pub(super) fn spend(&mut self, took: Duration, other_work: bool) {
        if other_work {
            self.left = self.left.saturating_sub(took.as_nanos() as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::quic::Addresses;
    use std::collections::HashMap;
    use units::Ecn;

    fn from(ip: &str, number: u16) -> Datagram<Vec<u8>> {
        let remote = (ip.parse::<IpAddr>().expect("an address"), 1_000).into();
        let addresses = Addresses::of(remote);
        let payload = number.to_be_bytes().to_vec();
        Datagram { addresses, ecn: Ecn::NotEct, payload }
    }

    fn number(datagram: &Datagram<Vec<u8>>) -> u16 {
        u16::from_be_bytes([datagram.payload[0], datagram.payload[1]])
    }

    #[test]
    fn single_network_may_fill_the_queue_in_order() {
        let mut queue = Handshakes::default();
        let all = CAPACITY as u16 + 10;
        let taken = (0..all).filter(|n| queue.push(from("192.0.2.7", *n))).count();
        assert_eq!(taken, CAPACITY);
        let order: Vec<u16> = std::iter::from_fn(|| queue.pop()).map(|d| number(&d)).collect();
        assert_eq!(order, (0..CAPACITY as u16).collect::<Vec<_>>());
        assert!(
            queue.is_empty() && queue.lanes.iter().all(|lane| lane.capacity() <= KEPT_CAPACITY)
        );
    }

    #[test]
    fn flood_from_one_network_does_not_starve_others() {
        // A few of the 40 networks may share a lane with the flood by chance.
        let mut queue = Handshakes::default();
        for n in 0..5_000 {
            queue.push(from(&format!("198.51.100.{}", n % 250), n));
        }
        for n in 0..40 {
            queue.push(from(&format!("203.0.{n}.9"), n));
            queue.push(from(&format!("2001:db8:0:{:x}00::1", n + 1), n));
            for n in 0..100 {
                queue.push(from("198.51.100.1", n));
            }
        }
        assert_eq!(queue.len, CAPACITY);
        let first: Vec<Datagram<Vec<u8>>> = (0..120).filter_map(|_| queue.pop()).collect();
        let mut by: HashMap<u64, usize> = HashMap::new();
        first.iter().for_each(|d| *by.entry(network(d.addresses.remote.ip())).or_default() += 1);
        assert!(by.len() > 70, "{} of 80 others are among the first 120", by.len() - 1);
    }

    #[test]
    fn full_queue_reports_drops_and_stays_bounded() {
        let mut queue = Handshakes::default();
        let mut dropped = 0;
        for n in 0..10_000u32 {
            let ip = std::net::Ipv4Addr::from(n.wrapping_mul(2_654_435_761)).to_string();
            dropped += usize::from(!queue.push(from(&ip, 0)));
            assert!(queue.len <= CAPACITY);
        }
        assert_eq!(dropped, 10_000 - CAPACITY);
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), CAPACITY);
    }

    #[test]
    fn networks_are_distinguished_by_site_prefix() {
        let of = |ip: &str| network(ip.parse().expect("an address"));
        assert_eq!(of("192.0.2.1"), of("192.0.2.200"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:0:4411::1"), of("2001:db8:0:44ff::2"));
        assert_ne!(of("2001:db8:0:4411::1"), of("2001:db8:0:4511::1"));
    }

    #[test]
    fn handshakes_get_their_share_of_time_beside_other_work() {
        let mut allowance = HandshakeBudget::default();
        let (mut now, mut spent) = (Timestamp::from_secs(1), Duration::ZERO);
        let start = now;
        // Each handshake takes 1.5 ms, and so does the other work of each turn.
        let one = Duration::from_micros(1_500);
        for _ in 0..1_000 {
            if !allowance.grant(now, true).is_zero() {
                allowance.spend(one, true);
                spent += one;
                now += one;
            }
            now += one;
        }
        let share = spent.as_secs_f64() / now.since(start).as_secs_f64();
        assert!((0.24..0.26).contains(&share), "{share}");
        assert_eq!(
            allowance.grant(now, false),
            MAX_TURN_TIME,
            "without other work there is no limit"
        );
    }
}
