//! The policer: exact bytes, no delay, and counters.

use core::time::Duration;

use units::Ecn;

use super::*;
use crate::{Link, LinkConfig, Packet};

fn link(policer: &str) -> Link<()> {
    let policer = Some(policer.parse().unwrap());
    Link::new(&LinkConfig { policer, ..LinkConfig::default() }, 1, "test")
}

fn packet(size: u32) -> Packet<()> {
    Packet { size, ecn: Ecn::NotEct, payload: () }
}

/// Sends a packet and returns true if it passes.
fn passes(link: &mut Link<()>, now: Timestamp, size: u32) -> bool {
    link.send(now, packet(size));
    let arrived = link.poll(now);
    assert!(arrived.as_ref().is_none_or(|arrived| arrived.at == now));
    arrived.is_some()
}

#[test]
fn a_burst_passes_and_then_exactly_the_rate() {
    // 7 Mbps: 1,250 bytes take 1,428,571.43 ns, so rounding errors would add up.
    let mut link = link("7mbps,burst=20kB");
    let at_once = (0..100).filter(|_| passes(&mut link, Timestamp::ZERO, 1_250)).count();
    assert_eq!(at_once, 16);
    let mut passed = 0_u64;
    let step = Duration::from_nanos(1_000_003);
    let mut now = Timestamp::ZERO;
    for _ in 0..100_000 {
        now += step;
        passed += u64::from(passes(&mut link, now, 1_250));
    }
    let earned = u128::from(now.as_nanos()) * 7_000_000 / 10_000_000_000_000;
    assert_eq!(u128::from(passed), earned);
    let counters = link.counters();
    assert_eq!(counters.policed.packets, 100_100 - 16 - passed);
    link.check_conservation().unwrap();
}

#[test]
fn a_pause_fills_the_bucket_to_its_size() {
    let mut link = link("1mbps,burst=3000B");
    for minute in 0..3 {
        let now = Timestamp::from_secs(60 * minute);
        let passed: Vec<bool> = (0..4).map(|_| passes(&mut link, now, 1_000)).collect();
        assert_eq!(passed, [true, true, true, false], "minute {minute}");
    }
}

#[test]
fn tokens_are_exact_to_the_nanosecond() {
    let mut link = link("1mbps,burst=1500B");
    assert!(passes(&mut link, Timestamp::ZERO, 1_500));
    // 1,500 bytes at 1 Mbps: 12 ms.
    assert!(!passes(&mut link, Timestamp::from_nanos(11_999_999), 1_500));
    assert!(passes(&mut link, Timestamp::from_nanos(12_000_000), 1_500));
}

#[test]
fn policers_parse_or_state_the_expected_format() {
    let policer = Policer { rate: Rate::from_mbps(2), burst: 20_000 };
    assert_eq!("2mbps,burst=20kB".parse(), Ok(policer));
    for bad in ["", "2mbps", "0mbps,burst=20kB", "2mbps,burst=1499B", "unlimited,burst=2kB"] {
        let error = bad.parse::<Policer>().unwrap_err().to_string();
        assert!(error.contains("2mbps,burst=20kB") && error.contains(bad), "{error}");
    }
}
