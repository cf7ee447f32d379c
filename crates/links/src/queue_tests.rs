//! CoDel on a complete link, against the behaviour described by RFC 8289.

use core::time::Duration;

use units::{Ecn, Rate, Timestamp};

use crate::{Link, LinkConfig, Packet, Queue};

/// A link of 12 Mbps, so a packet of 1,500 bytes takes 1 ms.
fn link(queue: Queue) -> Link<u64> {
    let config = LinkConfig { rate: Some(Rate::from_mbps(12)), queue, ..LinkConfig::default() };
    Link::new(&config, 1, "test")
}

/// Keeps `window` packets in the link for `seconds`, like a sender with a fixed window: each
/// arrival or drop admits another packet. Returns time and sojourn of each delivered packet.
fn closed_loop(
    link: &mut Link<u64>,
    window: u64,
    ecn: Ecn,
    seconds: u64,
) -> Vec<(Timestamp, Duration)> {
    let end = Timestamp::from_secs(seconds);
    let mut sojourns = Vec::new();
    let mut now = Timestamp::ZERO;
    while now < end {
        while link.in_flight().packets < window {
            link.send(now, Packet { size: 1_500, ecn, payload: now.as_nanos() });
        }
        now = link.next_event().expect("the window keeps the link busy");
        while let Some(packet) = link.poll(now) {
            let sent = Timestamp::from_nanos(packet.packet.payload);
            sojourns.push((packet.at, packet.at.since(sent)));
        }
    }
    link.check_conservation().unwrap();
    sojourns
}

#[test]
fn a_standing_queue_is_dropped_from_at_a_rising_rate() {
    // Open loop: 10 % more than the rate of the link.
    let mut link = link(Queue::codel(1_000_000));
    let mut drops = Vec::new();
    for packet in 0..5_500_u64 {
        let now = Timestamp::from_nanos(packet * 1_000_000 * 10 / 11);
        let before = link.counters().queue_dropped.packets;
        link.send(now, Packet { size: 1_500, ecn: Ecn::NotEct, payload: 0 });
        while link.poll(now).is_some() {}
        if link.counters().queue_dropped.packets > before {
            drops.push(now);
        }
    }
    // The queue grows by 0.1 ms per packet. The sojourn reaches 5 ms after about 55 ms, and the
    // first drop follows one interval later.
    let first = drops[0].as_secs_f64();
    assert!((0.150..0.175).contains(&first), "{first}");
    // RFC 8289, section 5.3: the k-th next drop follows after interval / sqrt(k).
    let gap = |k: usize| (drops[k] - drops[k - 1]).as_secs_f64() * 1e3;
    for k in 1..8 {
        let expected = 100.0 / (k as f64).sqrt();
        assert!((gap(k) - expected).abs() < 2.5, "drop {k}: {} ms, not {expected}", gap(k));
    }
}

#[test]
fn a_queue_below_the_target_is_left_alone() {
    let mut link = link(Queue::codel(1_000_000));
    let sojourns = closed_loop(&mut link, 5, Ecn::NotEct, 5);
    assert_eq!(link.counters().queue_dropped.packets, 0);
    assert!(sojourns.iter().all(|(_, sojourn)| *sojourn <= Duration::from_millis(5)));
}

#[test]
fn ect_packets_are_marked_instead_of_dropped() {
    let mut dropping = link(Queue::codel(1_000_000));
    closed_loop(&mut dropping, 40, Ecn::NotEct, 5);
    let dropped = dropping.counters().queue_dropped.packets;
    assert!(dropped > 20, "{dropped}");
    let mut marking = link(Queue::codel(1_000_000));
    closed_loop(&mut marking, 40, Ecn::Ect0, 5);
    assert_eq!(marking.counters().queue_dropped.packets, 0);
    let marked = marking.counters().ecn_marked.packets;
    assert!(marked > 20, "{marked}");
}

#[test]
fn drop_tail_counts_packets_that_do_not_fit() {
    let mut link = link(Queue::drop_tail(15_000));
    for _ in 0..20 {
        link.send(Timestamp::ZERO, Packet { size: 1_500, ecn: Ecn::NotEct, payload: 0 });
    }
    // One in transmission, ten queued.
    assert_eq!(link.counters().queue_dropped.packets, 9);
    assert_eq!(link.queued_bytes(), 15_000);
    let end = Timestamp::from_secs(1);
    let arrivals: Vec<Timestamp> =
        std::iter::from_fn(|| link.poll(end)).map(|packet| packet.at).collect();
    let expected: Vec<Timestamp> = (1..=11).map(Timestamp::from_millis).collect();
    assert_eq!(arrivals, expected);
    // A smaller packet may fit where a larger one does not.
    for size in [1_500, 14_000, 1_500, 1_000] {
        link.send(end, Packet { size, ecn: Ecn::NotEct, payload: 0 });
    }
    assert_eq!(link.counters().queue_dropped.packets, 10);
}

#[test]
fn packets_above_the_threshold_are_marked() {
    let mut link = link(Queue::DropTail { limit: 15_000, mark_above: Some(3_000) });
    for ecn in [Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::Ect1, Ecn::NotEct, Ecn::Ce] {
        link.send(Timestamp::ZERO, Packet { size: 1_500, ecn, payload: 0 });
    }
    let end = Timestamp::from_secs(1);
    let seen: Vec<Ecn> = std::iter::from_fn(|| link.poll(end)).map(|p| p.packet.ecn).collect();
    let expected = [Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::Ce, Ecn::NotEct, Ecn::Ce];
    assert_eq!(seen, expected);
    assert_eq!(link.counters().ecn_marked.packets, 1);
}

#[test]
fn queues_parse() {
    assert_eq!("500kB".parse(), Ok(Queue::drop_tail(500_000)));
    assert_eq!("codel".parse(), Ok(Queue::codel(500_000)));
    assert_eq!("codel:limit=1MB,target=5ms,interval=100ms".parse(), Ok(Queue::codel(1_000_000)));
    let marking = Queue::DropTail { limit: 80_000, mark_above: Some(20_000) };
    assert_eq!("80kB,mark=20kB".parse(), Ok(marking));
    for bad in ["500", "codelx", "codel:foo=1", "500kB,foo=1", ""] {
        let error = bad.parse::<Queue>().unwrap_err().to_string();
        assert!(error.contains("500kB"), "{error}");
    }
}
