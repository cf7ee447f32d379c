//! Clients that acknowledge rarely: passed datagrams and their times.

use super::*;

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// Sends one datagram per millisecond and returns the numbers of those that pass.
fn leaving(acks: &mut HeldAcks, numbers: core::ops::Range<u8>) -> Vec<u8> {
    let mut left = Vec::new();
    for number in numbers {
        let data = [&[0x40, number][..], &[0; 38]].concat();
        acks.take(at(number.into()), Ecn::NotEct, &data, &mut |_, data| left.push(data[1]));
    }
    left
}

fn due(acks: &mut HeldAcks, ms: u64) -> Vec<u8> {
    let mut left = Vec::new();
    acks.release_due(at(ms), &mut |_, data| left.push(data[1]));
    left
}

#[test]
fn chromium_passes_the_first_100_packets_and_then_every_tenth() {
    let mut acks = HeldAcks::new(RareAcks::CHROMIUM, Duration::from_millis(200));
    let first: Vec<u8> = (0..50).collect();
    assert_eq!(leaving(&mut acks, 0..50), first);
    assert_eq!(leaving(&mut acks, 100..112), [104, 109]);
    // Two are delayed since 110 ms.
    assert_eq!(acks.until(), Some(at(135)));
    assert!(due(&mut acks, 134).is_empty());
    assert_eq!(due(&mut acks, 135), [111]);
    assert_eq!(acks.until(), None);
}

#[test]
fn only_chromiums_delay_depends_on_the_round_trip_time() {
    let until = |rule: &str| {
        let mut acks = HeldAcks::new(rule.parse().unwrap(), Duration::from_millis(40));
        leaving(&mut acks, 0..51);
        acks.until()
    };
    assert_eq!(until("chromium"), Some(at(60)));
    assert_eq!(until("each=1000,within=250ms"), Some(at(250)));
}

#[test]
fn one_datagram_acknowledges_the_requested_number_of_packets() {
    let rule = "each=32,within=250ms".parse().unwrap();
    let mut acks = HeldAcks::new(rule, Duration::from_millis(40));
    assert_eq!(leaving(&mut acks, 0..100), [15, 31, 47, 63, 79, 95]);
    assert_eq!(acks.until(), Some(at(96 + 250)));
    let rule = "each=2,within=250ms".parse().unwrap();
    let mut usual = HeldAcks::new(rule, Duration::from_millis(40));
    assert_eq!(leaving(&mut usual, 0..4), [0, 1, 2, 3]);
    let rule = "each=32,within=250ms,after=20".parse().unwrap();
    let mut later = HeldAcks::new(rule, Duration::from_millis(40));
    assert_eq!(leaving(&mut later, 0..28), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 25]);
}

#[test]
fn requests_and_handshakes_pass_at_once_after_the_delayed_datagram() {
    let rule = "each=32,within=250ms".parse().unwrap();
    let mut acks = HeldAcks::new(rule, Duration::from_millis(40));
    for (first, length) in [(0x40, 101), (0xe0, 60)] {
        assert!(leaving(&mut acks, 60..62).is_empty());
        let mut left = Vec::new();
        let data = [&[first, 99][..], &vec![0; length - 2]].concat();
        acks.take(at(63), Ecn::NotEct, &data, &mut |_, data| left.push(data[1]));
        assert_eq!((left, acks.until()), (vec![61, 99], None));
    }
}

#[test]
fn rules_parse_or_state_the_expected_format() {
    let within = Duration::from_millis(250);
    let rule = RareAcks { each: 32, within, is_quarter_rtt: false, after: 100 };
    assert_eq!("each=32,within=250ms,after=100".parse(), Ok(rule));
    assert_eq!("chromium".parse(), Ok(RareAcks::CHROMIUM));
    for bad in [
        "",
        "each=32",
        "within=9ms",
        "each=1,within=9ms",
        "each=1001,within=9ms",
        "each=3,within=0",
        "each=3,within=6s",
        "each=3,within=9ms,x=1",
        "firefox",
    ] {
        let error = bad.parse::<RareAcks>().unwrap_err().to_string();
        assert!(error.contains("each=32,within=250ms") && error.contains(bad), "{error}");
    }
}
