//! Steps of the round-trip time on complete links.

use units::{Ecn, Rate};

use super::*;
use crate::{Delivered, Link, LinkConfig, Packet, Queue};

fn drain(link: &mut Link<()>) -> Vec<Delivered<()>> {
    let mut all = Vec::new();
    while let Some(now) = link.next_event() {
        while let Some(delivered) = link.poll(now) {
            assert_eq!(delivered.at, now, "unannounced arrival");
            all.push(delivered);
        }
    }
    all
}

fn config(steps: &str) -> LinkConfig {
    LinkConfig {
        delay: Some(Duration::from_millis(30)),
        rtt_steps: Some(steps.parse().unwrap()),
        ..LinkConfig::default()
    }
}

fn link(config: &LinkConfig, sent_at: &[u64]) -> Link<()> {
    let mut link = Link::new(config, 1, "test");
    for at in sent_at {
        let packet = Packet { size: 1_250, ecn: Ecn::NotEct, payload: () };
        link.send(Timestamp::from_millis(*at), packet);
    }
    link
}

#[test]
fn each_direction_takes_half_of_the_current_round_trip_time() {
    let config = config("100ms:200ms,500ms:20ms,900ms:60ms");
    let mut link = link(&config, &[0, 99, 100, 300, 499, 500, 901]);
    let all = drain(&mut link);
    let mut arrivals: Vec<(u64, u64)> =
        all.iter().map(|d| (d.index, d.at.as_nanos() / 1_000_000)).collect();
    arrivals.sort_unstable();
    let at: Vec<u64> = arrivals.iter().map(|(_, at)| *at).collect();
    assert_eq!(at, [30, 129, 200, 400, 599, 510, 931]);
    // The packet sent at 500 ms overtakes the one sent at 499 ms.
    assert_eq!(all[4].index, 5);
    assert_eq!(link.counters().reordered.packets, 1);
    link.check_conservation().unwrap();
    assert_eq!(config.delay_at(Timestamp::from_millis(99)), Duration::from_millis(30));
    assert_eq!(config.delay_at(Timestamp::from_millis(100)), Duration::from_millis(100));
}

#[test]
fn packets_stay_in_order_between_steps_and_after_a_bottleneck() {
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(10)),
        queue: Queue::drop_tail(1_000_000),
        jitter: Some("5ms".parse().unwrap()),
        ..config("200ms:300ms,600ms:20ms")
    };
    let times: Vec<u64> = (0..1_000).collect();
    let mut link = link(&config, &times);
    let all = drain(&mut link);
    assert_eq!(all.len(), 1_000);
    // Only packets of the latest route overtake, and only those of the previous one.
    for (index, delivered) in all.iter().enumerate() {
        let overtaken = all[index..].iter().filter(|later| later.index < delivered.index);
        let mut overtaken = overtaken.map(|later| later.index);
        assert!(overtaken.all(|index| (199..600).contains(&index) && delivered.index >= 599));
    }
    assert!(link.counters().reordered.packets > 100);
}

#[test]
fn steps_parse_or_state_the_expected_format() {
    let steps: Steps = "8s:200ms, 20s:20ms".parse().unwrap();
    assert_eq!(steps.count(Timestamp::from_secs(19)), 1);
    assert_eq!(steps.delay(2), Some(Duration::from_millis(10)));
    assert_eq!(steps.delay(0), None);
    for bad in ["", "8s", "8s:200", "8s:2h", "8s:1ms,8s:2ms", "9s:1ms,8s:2ms", "8s:1ms,"] {
        let error = bad.parse::<Steps>().unwrap_err().to_string();
        assert!(error.contains("8s:200ms,20s:20ms") && error.contains("ascend"), "{error}");
    }
}
