//! Complete links: exact rates, mahimahi's semantics, order, independence of random draws, and
//! conservation for random settings.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use units::{Ecn, Rate};

use super::*;
use crate::{Jitter, Loss, Passage, Queue, Reorder, Trace};

const MS: Duration = Duration::from_millis(1);

fn packet(size: u32) -> Packet<u32> {
    Packet { size, ecn: Ecn::NotEct, payload: 0 }
}

fn drain<T: Clone>(link: &mut Link<T>) -> Vec<Delivered<T>> {
    let mut out = Vec::new();
    while let Some(now) = link.next_event() {
        while let Some(packet) = link.poll(now) {
            assert_eq!(packet.at, now, "unannounced arrival");
            out.push(packet);
        }
    }
    out
}

fn arrivals(link: &mut Link<u32>) -> Vec<Timestamp> {
    drain(link).iter().map(|packet| packet.at).collect()
}

fn opportunities(millis: &[u64]) -> Option<Trace> {
    let lines: Vec<String> = millis.iter().map(u64::to_string).collect();
    Some(lines.join("\n").parse().unwrap())
}

#[test]
fn a_busy_link_carries_exactly_its_rate() {
    // 7 Mbps: a packet of 1,250 bytes takes 1,428,571.43 ns, and a million take 10^16 / 7 ns.
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(7)),
        queue: Queue::drop_tail(10_000_000),
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config, 1, "test");
    let mut last = Timestamp::ZERO;
    for _ in 0..1_000 {
        for _ in 0..1_000 {
            link.send(last, packet(1_250));
        }
        last = *arrivals(&mut link).last().unwrap();
    }
    let exact = 1_250 * 8 * 1_000_000 * 1_000_u64 / 7;
    // Each of the 1,000 batches may start one nanosecond late.
    assert!((exact..=exact + 1_000).contains(&last.as_nanos()), "{last:?} against {exact} ns");
    link.check_conservation().unwrap();

    let mut busy = Link::new(&config, 1, "test");
    for _ in 0..8_000 {
        busy.send(Timestamp::ZERO, packet(1_250));
    }
    let last = *arrivals(&mut busy).last().unwrap();
    assert_eq!(last.as_nanos(), (1_250_u64 * 8 * 8_000 * 1_000).div_ceil(7));
}

#[test]
fn a_rate_change_affects_the_packet_in_transmission() {
    // 1 Mbps for 10 ms, then 3 Mbps for 10 ms, repeatedly.
    let trace: Trace = "0 1 0ms 0\n0.010 3 0ms 0\n".parse().unwrap();
    let config = LinkConfig { trace: Some(trace), ..LinkConfig::default() };
    let mut link = Link::new(&config, 1, "test");
    link.send(Timestamp::from_millis(4), packet(1_500));
    // 12,000 bits: 6,000 in the first 6 ms, 6,000 in the next 2 ms.
    assert_eq!(arrivals(&mut link), [Timestamp::from_millis(12)]);
    // Across the end of a lap: 3,000 bits until 20 ms, then 1 Mbps.
    link.send(Timestamp::from_millis(19), packet(1_500));
    assert_eq!(arrivals(&mut link), [Timestamp::from_millis(29)]);
}

#[test]
fn rows_set_the_delay_and_preserve_the_order() {
    let trace: Trace = "0 1 80ms 0\n1 1 20ms 0\n".parse().unwrap();
    let config = LinkConfig { trace: Some(trace), rate: Some(Rate::MAX), ..LinkConfig::default() };
    let mut link = Link::new(&config, 1, "test");
    for at in [0, 999, 1_000, 1_100] {
        link.send(Timestamp::from_millis(at), packet(100));
    }
    let expected = [40, 1_039, 1_039, 1_110].map(Timestamp::from_millis);
    assert_eq!(arrivals(&mut link), expected);
}

#[test]
fn small_packets_share_an_opportunity_and_large_ones_span_several() {
    let config = LinkConfig { trace: opportunities(&[2, 4, 6, 20]), ..LinkConfig::default() };
    let mut link = Link::new(&config, 1, "test");
    // Including the TUN header of 4 bytes, 502 + 502 use 1,004 of 1,504 bytes. Of the third
    // packet's 1,004, 500 fit the first opportunity and 504 the second.
    for size in [498, 498, 1_000, 1_500] {
        link.send(Timestamp::from_millis(1), packet(size));
    }
    // The fourth uses the remaining 1,000 at 4 ms and 504 at 6 ms.
    assert_eq!(arrivals(&mut link), [2, 2, 4, 6].map(Timestamp::from_millis));
}

#[test]
fn an_unused_opportunity_is_lost_and_the_schedule_wraps() {
    let config = LinkConfig { trace: opportunities(&[0, 5, 10]), ..LinkConfig::default() };
    let mut link = Link::new(&config, 1, "test");
    // An opportunity serves only packets that arrived before it.
    for (sent, arrives) in [(0, 5), (5, 10), (7, 10), (11, 15), (20, 25), (10_019, 10_020)] {
        link.send(Timestamp::from_millis(sent), packet(1_500));
        assert_eq!(arrivals(&mut link), [Timestamp::from_millis(arrives)], "sent at {sent} ms");
    }
    // 10 ms is also 0 ms of the next lap: two packets leave at once.
    for _ in 0..3 {
        link.send(Timestamp::from_millis(10_027), packet(1_500));
    }
    assert_eq!(arrivals(&mut link), [10_030, 10_030, 10_035].map(Timestamp::from_millis));
    // A packet that arrives at an opportunity cannot use its rest.
    link.send(Timestamp::from_millis(10_041), packet(100));
    assert_eq!(arrivals(&mut link), [Timestamp::from_millis(10_045)]);
    link.send(Timestamp::from_millis(10_045), packet(100));
    assert_eq!(arrivals(&mut link), [Timestamp::from_millis(10_050)]);
}

#[test]
fn a_saturated_trace_has_the_rate_of_its_opportunities() {
    let config = LinkConfig {
        trace: opportunities(&[1]),
        queue: Queue::drop_tail(u64::MAX / 2),
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config, 1, "test");
    for _ in 0..6_000 {
        link.send(Timestamp::ZERO, packet(748));
    }
    // 752 bytes each, two per millisecond.
    assert_eq!(arrivals(&mut link).last(), Some(&Timestamp::from_millis(3_000)));
}

#[test]
fn the_polling_interval_does_not_change_arrivals() {
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(5)),
        queue: Queue::codel(60_000),
        delay: Some(20 * MS),
        jitter: Some("gauss:3ms,reorder".parse().unwrap()),
        loss: Some("3%".parse().unwrap()),
        ..LinkConfig::default()
    };
    let run = |poll_each: bool| {
        let mut link = Link::new(&config, 3, "test");
        let mut out = Vec::new();
        for i in 0..3_000 {
            let now = Timestamp::from_micros(i * 2_000 - i % 7 * 100);
            if poll_each {
                while let Some(event) = link.next_event().filter(|event| *event <= now) {
                    out.extend(std::iter::from_fn(|| link.poll(event)));
                }
            }
            link.send(now, packet(1_400));
        }
        out.extend(drain(&mut link));
        link.check_conservation().unwrap();
        (out, *link.counters())
    };
    let ((often, a), (seldom, b)) = (run(true), run(false));
    assert!(a.queue_dropped.packets > 0 && a.lost.packets > 0);
    assert_eq!(a.queue_dropped, b.queue_dropped);
    assert_eq!(often, seldom);
}

#[test]
fn jitter_preserves_the_order_by_default() {
    for (text, ordered) in [("5ms", true), ("gauss:5ms", true), ("5ms,reorder", false)] {
        let config = LinkConfig {
            delay: Some(10 * MS),
            jitter: Some(text.parse().unwrap()),
            ..LinkConfig::default()
        };
        let mut link = Link::new(&config, 9, "test");
        for i in 0..2_000 {
            link.send(Timestamp::from_millis(i), packet(100));
        }
        let out = drain(&mut link);
        assert!(out.is_sorted_by_key(|packet| packet.at));
        assert_eq!(out.is_sorted_by_key(|packet| packet.index), ordered, "{text}");
        assert_eq!(link.counters().reordered.packets == 0, ordered, "{text}");
        let delays = out.iter().map(|p| (p.at - Timestamp::from_millis(p.index)).as_secs_f64());
        let mean = delays.clone().sum::<f64>() / out.len() as f64;
        assert!(ordered || (mean - 0.010).abs() < 0.0003, "{mean}");
        assert!(delays.clone().fold(0.0, f64::max) > 0.013);
    }
}

#[test]
fn a_delayed_packet_is_overtaken_without_delaying_others() {
    let config = LinkConfig {
        delay: Some(10 * MS),
        reorder: Some(Reorder { probability: Probability::clamped(0.1), extra: 5 * MS }),
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config, 9, "test");
    for i in 0..10_000 {
        link.send(Timestamp::from_millis(i), packet(100));
    }
    let mut held = 0;
    for packet in drain(&mut link) {
        let delay = packet.at - Timestamp::from_millis(packet.index);
        assert!(delay == 10 * MS || delay == 15 * MS, "{delay:?}");
        held += u64::from(delay == 15 * MS);
    }
    assert!((900..1_100).contains(&held), "{held}");
    assert!(link.counters().reordered.packets > 800);
}

#[test]
fn a_blackhole_drops_offered_packets_and_spares_packets_in_flight() {
    let config = LinkConfig {
        delay: Some(10 * MS),
        blackhole: vec!["100ms,50ms".parse().unwrap()],
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config, 1, "test");
    for i in 0..200 {
        link.send(Timestamp::from_millis(i), packet(100));
    }
    let indices: Vec<u64> = drain(&mut link).iter().map(|packet| packet.index).collect();
    assert_eq!(indices, (0..100).chain(150..200).collect::<Vec<_>>());
    assert_eq!(link.counters().blackholed.packets, 50);
}

#[test]
fn packets_above_the_mtu_are_dropped() {
    let config = LinkConfig { mtu: Some(1_280), ..LinkConfig::default() };
    let mut link = Link::new(&config, 1, "test");
    link.send(Timestamp::ZERO, Packet::datagram(1_252, Ecn::NotEct, 0));
    link.send(Timestamp::ZERO, Packet::datagram(1_253, Ecn::NotEct, 0));
    assert_eq!(arrivals(&mut link).len(), 1);
    assert_eq!(link.counters().mtu_dropped.packets, 1);
}

#[test]
fn only_loss_after_the_queue_uses_capacity() {
    for (place, last) in [(LossPlace::BeforeQueue, 1), (LossPlace::AfterQueue, 10)] {
        let config = LinkConfig {
            rate: Some(Rate::from_mbps(12)),
            loss: Some("script:0-8".parse().unwrap()),
            loss_place: place,
            ..LinkConfig::default()
        };
        let mut link = Link::new(&config, 1, "test");
        for _ in 0..10 {
            link.send(Timestamp::ZERO, packet(1_500));
        }
        assert_eq!(arrivals(&mut link), [Timestamp::from_millis(last)], "{place:?}");
    }
}

#[test]
fn damage_flips_few_bits_and_depends_only_on_the_seed() {
    let config = LinkConfig { corrupt: Probability::clamped(0.5), ..LinkConfig::default() };
    let damage = |seed| {
        let mut link = Link::new(&config, seed, "test");
        (0..200).for_each(|_| link.send(Timestamp::ZERO, packet(100)));
        let damaged = drain(&mut link).into_iter().map(|packet| {
            let mut data = [0_u8; 100];
            packet.corruption.into_iter().for_each(|corruption| corruption.apply(&mut data));
            let flipped: u32 = data.iter().map(|byte| byte.count_ones()).sum();
            assert!(flipped <= 4);
            data
        });
        damaged.collect::<Vec<_>>()
    };
    assert_eq!(damage(1), damage(1));
    assert_ne!(damage(1), damage(2));
    let clean = damage(1).iter().filter(|data| **data == [0; 100]).count();
    assert!((60..140).contains(&clean), "{clean}");
    Corruption(u64::MAX).apply(&mut []);
}

/// Offers 2,000 packets in 4 s and returns the indexes of the lost ones.
fn lost(config: &LinkConfig, seed: u64, name: &str) -> Vec<u64> {
    let mut link = Link::new(config, seed, name);
    let refused = |link: &Link<u64>| {
        let counters = link.counters();
        counters.queue_dropped.packets + counters.blackholed.packets
    };
    // Drops before the queue happen at once.
    let mut taken = std::collections::BTreeSet::new();
    for index in 0..2_000 {
        let before = refused(&link);
        let packet = Packet { size: 1_200, ecn: Ecn::NotEct, payload: index };
        link.send(Timestamp::from_millis(2 * index), packet);
        if refused(&link) == before {
            taken.insert(index);
        }
    }
    for delivered in drain(&mut link) {
        taken.remove(&delivered.index);
    }
    link.check_conservation().unwrap();
    taken.into_iter().collect()
}

#[test]
fn other_nodes_do_not_change_losses() {
    for loss in ["10%", "ge:p=5%,r=30%", "lomax:rate=10%", "corr:rate=30%,correlation=25%"] {
        let bare = LinkConfig { loss: Some(loss.parse().unwrap()), ..LinkConfig::default() };
        let expected = lost(&bare, 5, "down");
        assert!(expected.len() > 50, "{loss}");
        assert_eq!(lost(&bare, 5, "down"), expected, "same seed, same fates: {loss}");
        assert_ne!(lost(&bare, 6, "down"), expected, "{loss}");
        assert_ne!(lost(&bare, 5, "up"), expected, "{loss}");
        let full = LinkConfig {
            rate: Some(Rate::from_mbps(6)),
            delay: Some(30 * MS),
            jitter: Some("3ms,reorder".parse().unwrap()),
            reorder: Some("5%,10ms".parse().unwrap()),
            duplicate: Probability::clamped(0.1),
            corrupt: Probability::clamped(0.1),
            loss_place: LossPlace::BeforeQueue,
            ..bare.clone()
        };
        assert_eq!(lost(&full, 5, "down"), expected, "{loss}");
        // Only packets dropped by a blackhole or a full queue are missing.
        let narrow = LinkConfig {
            blackhole: vec!["1s,500ms".parse().unwrap()],
            rate: Some(Rate::from_mbps(4)),
            queue: Queue::drop_tail(10_000),
            ..bare
        };
        let fewer = lost(&narrow, 5, "down");
        assert!(fewer.len() < expected.len() && !fewer.is_empty(), "{loss}");
        assert!(fewer.iter().all(|index| expected.contains(index)), "{loss}");
    }
}

/// Sends packets of 1,500 bytes, one per 10 ms. Returns indexes and times of the delivered ones.
fn came(config: &LinkConfig) -> Vec<(u64, u64)> {
    let mut link = Link::new(config, 1, "test");
    for index in 0..20 {
        link.send(Timestamp::from_millis(10 * index), packet(1_500));
    }
    let all = drain(&mut link);
    link.check_conservation().unwrap();
    all.iter().map(|packet| (packet.index, packet.at.as_nanos() / 1_000_000)).collect()
}

#[test]
fn a_loss_model_replaces_only_the_loss_of_a_trace() {
    // 12 Mbps without loss for 100 ms, then 6 Mbps with complete loss.
    let rows: Trace = "0 12 0ms 0\n0.100 6 0ms 1\n0.200 6 0ms 1\n".parse().unwrap();
    let config = |loss: Option<&str>| LinkConfig {
        trace: Some(rows.clone()),
        loss: loss.map(|text| text.parse().unwrap()),
        ..LinkConfig::default()
    };
    let at = |index: u64| (index, 10 * index + if index < 10 { 1 } else { 2 });
    assert_eq!(came(&config(None)), (0..10).map(at).collect::<Vec<_>>());
    assert_eq!(came(&config(Some("none"))), (0..20).map(at).collect::<Vec<_>>());
    let others = (0..20).filter(|index| ![3, 15].contains(index));
    assert_eq!(came(&config(Some("script:3,15"))), others.map(at).collect::<Vec<_>>());
    // The model's fates are independent of the trace.
    let fates = |config: &LinkConfig| -> Vec<u64> {
        came(config).into_iter().map(|(index, _)| index).collect()
    };
    let model = "calls:rate=20%,reading=slots";
    let bare = LinkConfig { trace: None, rate: Some(Rate::from_mbps(50)), ..config(Some(model)) };
    assert_eq!(fates(&config(Some(model))), fates(&bare));
    // Delivery opportunities have no loss column.
    let opportunities = LinkConfig { trace: opportunities(&[5]), ..config(Some("script:3,15")) };
    assert_eq!(fates(&opportunities).len(), 18);
}

/// Sends packets as `passage` at these milliseconds over a delay of 30 ms. Returns their arrivals.
fn passed(config: LinkConfig, passage: Passage, at: &[u64]) -> Vec<u64> {
    let mut link = Link::new(&LinkConfig { delay: Some(30 * MS), ..config }, 1, "test");
    for &at in at {
        link.send_as(Timestamp::from_millis(at), packet(100), passage);
    }
    let arrivals = arrivals(&mut link).iter().map(|at| at.as_nanos() / 1_000_000).collect();
    link.check_conservation().unwrap();
    arrivals
}

#[test]
fn an_insistent_packet_departs_once_the_loss_model_permits() {
    let lossy = |text: &str, loss_place| LinkConfig {
        loss: Some(text.parse().unwrap()),
        loss_place,
        ..LinkConfig::default()
    };
    for place in [LossPlace::BeforeQueue, LossPlace::AfterQueue] {
        let dead = lossy("script:10ms+50ms", place);
        assert_eq!(passed(dead.clone(), Passage::Ordinary, &[9, 20, 40, 61]), [39, 91]);
        // Waiting packets depart at the end of the window and do not delay the next one.
        assert_eq!(passed(dead.clone(), Passage::Insistent, &[9, 20, 40, 61]), [39, 90, 90, 91]);
        assert_eq!(passed(dead, Passage::Spared, &[9, 20, 40, 61]), [39, 50, 70, 91]);
        // With per-packet fates, the packet with index 5 is the first one to pass.
        assert_eq!(passed(lossy("script:0-4", place), Passage::Insistent, &[0]), [35]);
        assert_eq!(passed(lossy("100%", place), Passage::Insistent, &[0]), []);
    }
}

#[test]
fn an_insistent_packet_waits_for_the_end_of_a_blackhole() {
    let dead = LinkConfig {
        blackhole: vec!["10ms,50ms".parse().unwrap(), "55ms,20ms".parse().unwrap()],
        ..LinkConfig::default()
    };
    assert_eq!(passed(dead.clone(), Passage::Spared, &[9, 20]), [39]);
    assert_eq!(passed(dead.clone(), Passage::Insistent, &[9, 20]), [39, 105]);
    let lossy = LinkConfig { loss: Some("script:70ms+10ms".parse().unwrap()), ..dead };
    assert_eq!(passed(lossy, Passage::Insistent, &[20]), [110]);
}

#[test]
fn an_insistent_packet_does_not_change_other_fates() {
    for loss in [
        "10%",
        "ge:p=5%,r=30%",
        "ge:p=5%,r=30%,slot=5ms",
        "lomax:rate=10%",
        "corr:rate=30%,correlation=25%",
        "gauss:mean=20%,sd=10%,every=100ms",
        "outages:rate=10%,length=20ms",
        "calls:rate=10%",
        "calls:rate=10%,reading=slots",
    ] {
        let config = LinkConfig { loss: Some(loss.parse().unwrap()), ..LinkConfig::default() };
        let arrived = |who: fn(u64) -> Passage| {
            let mut link = Link::new(&config, 5, "down");
            for index in 0..4_000 {
                link.send_as(Timestamp::from_millis(2 * index), packet(1_200), who(index));
            }
            let all = drain(&mut link);
            link.check_conservation().unwrap();
            all.iter().map(|packet| packet.index).collect::<std::collections::BTreeSet<u64>>()
        };
        let fair = arrived(|_| Passage::Ordinary);
        let some = arrived(|index| match index % 3 {
            0 => Passage::Insistent,
            _ => Passage::Ordinary,
        });
        assert!((2_000..3_950).contains(&fair.len()), "{loss}: {}", fair.len());
        let others = |all: &std::collections::BTreeSet<u64>| {
            all.iter().copied().filter(|index| index % 3 != 0).collect::<Vec<_>>()
        };
        assert_eq!(others(&some), others(&fair), "{loss}");
        assert_eq!(some.iter().filter(|index| *index % 3 == 0).count(), 1_334, "{loss}");
    }
}

#[test]
fn a_dead_link_keeps_its_packets_and_has_no_events() {
    let config = LinkConfig { rate: Some(Rate::ZERO), ..LinkConfig::default() };
    let mut link = Link::new(&config, 1, "test");
    (0..3).for_each(|_| link.send(Timestamp::ZERO, packet(1_000)));
    assert_eq!(link.next_event(), None);
    assert!(link.poll(Timestamp::from_secs(1_000)).is_none());
    assert_eq!(link.in_flight().packets, 3);
    link.check_conservation().unwrap();
}

fn any_probability() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(Probability::ZERO), (0.0..0.5).prop_map(Probability::clamped)]
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    let rate = prop_oneof![
        Just((None, None)),
        (1_000..50_000_u64).prop_map(|kbps| (Some(Rate::from_kbps(kbps)), None)),
        prop::collection::vec(0..100_u64, 1..30).prop_map(|mut times| {
            times.sort_unstable();
            times.push(101);
            (None, opportunities(&times))
        }),
        prop::collection::vec((0..20_u32, 0..80_u32, 0..100_u32), 1..20).prop_map(|rows| {
            let line = |(i, (mbps, rtt, loss)): (usize, &(u32, u32, u32))| {
                format!("{} {mbps} {rtt}ms {}", i as f64 * 0.015, f64::from(*loss) / 100.0)
            };
            let mut lines: Vec<String> = rows.iter().enumerate().map(line).collect();
            lines.push("1 1 1ms 0".to_owned());
            (None, Some(lines.join("\n").parse().unwrap()))
        }),
    ];
    let queue = prop_oneof![
        (2_000..100_000_u64).prop_map(Queue::drop_tail),
        (2_000..100_000_u64).prop_map(Queue::codel),
    ];
    let loss = prop::sample::select(vec![
        None,
        Some(Loss::None),
        Some("20%".parse().unwrap()),
        Some("corr:rate=30%,correlation=25%".parse().unwrap()),
        Some("gauss:mean=20%,sd=10%,every=100ms".parse().unwrap()),
        Some("ge:p=0.2,r=0.8,good=1%,bad=40%,slot=30ms".parse().unwrap()),
        Some("lomax:rate=30%".parse().unwrap()),
        Some("script:3,10-20,100ms+50ms".parse().unwrap()),
    ]);
    let jitter = prop::sample::select(vec![
        None,
        Some(Jitter::Uniform { spread: 7 * MS, reorder: true }),
        Some(Jitter::Gaussian { sd: 3 * MS, reorder: false }),
    ]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let shares = (any_probability(), any_probability(), any_probability());
    let world = (
        prop::sample::select(vec![None, Some("5ms"), Some("40ms,awake=7ms")]),
        prop::sample::select(vec![None, Some("20ms:80ms,60ms:4ms"), Some("0ms:1ms")]),
        prop::sample::select(vec![None, Some("2mbps,burst=3kB"), Some("50mbps,burst=1500B")]),
        prop::sample::select(vec![
            None,
            Some("bleach"),
            Some("drop:50%,from=10ms"),
            Some("mark:5%"),
        ]),
    );
    (rate, queue, loss, jitter, flags, shares, world).prop_map(
        |((rate, trace), queue, loss, jitter, flags, (duplicate, corrupt, reorder), world)| {
            LinkConfig {
                bunches: world.0.map(|text| text.parse().unwrap()),
                rtt_steps: world.1.map(|text| text.parse().unwrap()),
                policer: world.2.map(|text| text.parse().unwrap()),
                ecn: world.3.map(|text| text.parse().unwrap()),
                rate,
                queue,
                delay: flags.0.then_some(10 * MS),
                jitter,
                loss,
                loss_place: if flags.1 { LossPlace::BeforeQueue } else { LossPlace::AfterQueue },
                reorder: Some(Reorder { probability: reorder, extra: 5 * MS }),
                duplicate,
                corrupt,
                mtu: flags.2.then_some(1_300),
                blackhole: flags.3.then(|| "50ms,20ms".parse().unwrap()).into_iter().collect(),
                trace,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        rng_seed: RngSeed::Fixed(20_261_121),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_packet_is_accounted_for(
        config in any_config(),
        seed in any::<u64>(),
        offered in prop::collection::vec((0..3_000_u64, 40..1_500_u32, 0..6_u8), 1..200),
    ) {
        let mut link = Link::new(&config, seed, "test");
        let mut now = Timestamp::ZERO;
        let mut last = Timestamp::ZERO;
        for (gap, size, kind) in offered {
            now += Duration::from_micros(gap);
            let ecn = if kind % 2 == 0 { Ecn::Ect0 } else { Ecn::NotEct };
            let passages = [Passage::Ordinary, Passage::Spared, Passage::Insistent];
            let passage = passages[usize::from(kind / 2)];
            link.send_as(now, Packet { size, ecn, payload: () }, passage);
            if gap % 3 == 0 {
                while let Some(packet) = link.poll(now) {
                    prop_assert!(last <= packet.at && packet.at <= now);
                    last = packet.at;
                }
            }
            prop_assert_eq!(link.check_conservation(), Ok(()));
        }
        for packet in drain(&mut link) {
            prop_assert!(last <= packet.at);
            last = packet.at;
        }
        prop_assert_eq!(link.check_conservation(), Ok(()));
        prop_assert_eq!(link.in_flight(), Tally::default());
    }
}
