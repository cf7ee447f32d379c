use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::client::ClientKind;
use crate::ends::Cipher;
use crate::recovered::AfterLoss;
use crate::traffic::Traffic;
use congestion::Algorithm;
use core::time::Duration;
use links::{Link, LinkConfig, Packet, PathConfig, Queue};
use units::{Ecn, Rate, Timestamp};

fn scenario(seed: u64) -> Scenario {
    let down = LinkConfig {
        rate: Some(Rate::from_mbps(12)),
        queue: Queue::drop_tail(90_000),
        delay: Some(Duration::from_millis(30)),
        ..LinkConfig::default()
    };
    Scenario {
        path: PathConfig { up: down.clone(), down },
        congestion: quic::controller(Algorithm::Bbr),
        traffic: Traffic::Download { bytes: 500_000 },
        window: 4 << 20,
        seed,
        limit: Duration::from_secs(60),
        ..Scenario::default()
    }
}

#[test]
fn unmodified_clients_finish_a_download_in_virtual_time() {
    for client in [ClientKind::Quinn, ClientKind::Noq] {
        let outcome = run(&Scenario { client, ..scenario(1) }).expect("it runs");
        assert!(outcome.completed && outcome.intact, "{client:?}: {outcome:?}");
        // 500 kB at 12 Mbps take a third of a second, and startup takes a few round trips.
        assert!(outcome.duration < Duration::from_secs(1), "{client:?}: {outcome:?}");
    }
}

#[test]
fn the_null_cipher_gives_the_packets_of_the_real_one() {
    let mut lossy = scenario(5);
    lossy.path.down.loss = Some("2%".parse().expect("a loss"));
    let real = run(&lossy).expect("it runs");
    lossy.cipher = Cipher::Null;
    let null = run(&lossy).expect("it runs");
    assert!(null.completed && null.intact, "{null:?}");
    assert_eq!(null.event_log, real.event_log);
    lossy.client = ClientKind::Noq;
    assert!(run(&lossy).is_err());
}

#[test]
fn rare_acknowledgements_save_packets_without_losing_data() {
    let mut often = scenario(3);
    often.path.up.loss = Some("5%".parse().expect("a loss"));
    let seldom = Scenario { acks: Some(links::RareAcks::CHROMIUM), ..often.clone() };
    let (often, seldom) = (run(&often).expect("it runs"), run(&seldom).expect("it runs"));
    assert!(seldom.completed && seldom.intact, "{seldom:?}");
    // Some 430 packets are received. The client acknowledges every second one, or every tenth after
    // the first 50.
    let fewer = often.packets.saturating_sub(seldom.packets);
    assert!((80..200).contains(&fewer), "{} and {}", often.packets, seldom.packets);
}

#[test]
fn coarse_timers_slow_a_paced_sender_down() {
    let exact = scenario(2);
    let coarse = Scenario { timer_granularity: Duration::from_millis(20), ..exact.clone() };
    let (exact, coarse) = (run(&exact).expect("it runs"), run(&coarse).expect("it runs"));
    assert!(coarse.completed && coarse.intact, "{coarse:?}");
    assert!(coarse.duration > exact.duration, "{coarse:?}, {exact:?}");
}

#[test]
fn a_nat_that_rebinds_often_does_not_stop_a_download() {
    for client in [ClientKind::Quinn, ClientKind::Noq] {
        let rebinding = Scenario {
            traffic: Traffic::Download { bytes: 5_000_000 },
            rebind_every: Some(Duration::from_millis(400)),
            client,
            ..scenario(4)
        };
        let outcome = run(&rebinding).expect("it runs");
        assert!(outcome.completed && outcome.intact, "{client:?}: {outcome:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_event_log_and_another_seed_another() {
    let mut lossy = scenario(7);
    lossy.path.down.loss = Some("5%".parse().expect("a loss"));
    let first = run(&lossy).expect("it runs");
    let again = run(&lossy).expect("it runs");
    assert!(first.stats.packets_lost > 0);
    assert_eq!(first.event_log, again.event_log);
    lossy.seed = 8;
    assert_ne!(run(&lossy).expect("it runs").event_log.sha256, first.event_log.sha256);
}

#[test]
fn a_path_without_loss_is_used_fully() {
    let mut long = scenario(3);
    long.traffic = Traffic::Download { bytes: 30_000_000 };
    long.measure_from = Duration::from_secs(10);
    for congestion in Algorithm::ALL {
        long.congestion = quic::controller(congestion);
        let outcome = run(&long).expect("it runs");
        assert!(outcome.completed && outcome.intact, "{outcome:?}");
        let share = outcome.received as f64 / outcome.wire_bytes as f64;
        let ReceivedBytes { bytes, time } = outcome.measured;
        let goodput = Rate::from_bytes_in(bytes, time).as_mbps_f64();
        assert!(goodput >= 0.97 * 12.0 * share, "{congestion}: {goodput} Mbps, {outcome:?}");
    }
}

#[test]
fn measuring_counts_what_comes_after_its_beginning() {
    let mut lossy = scenario(9);
    lossy.path.down.loss = Some("5%".parse().expect("a loss"));
    lossy.traffic = Traffic::Unbounded;
    lossy.limit = Duration::from_secs(4);
    let first = run(&lossy).expect("it runs");
    lossy.limit = Duration::from_secs(10);
    let all = run(&lossy).expect("it runs");
    lossy.measure_from = Duration::from_secs(4);
    let rest = run(&lossy).expect("it runs");
    assert_eq!(rest.received, all.received, "measuring changes nothing");
    let near = |a: u64, b: u64| a.abs_diff(b) <= 2;
    let of =
        |outcome: &RunOutcome, pick: fn(&recovery::Totals) -> u64| pick(&outcome.recovery.totals);
    for pick in [
        (|totals| totals.first_transmissions) as fn(&recovery::Totals) -> u64,
        |totals| totals.lost,
        |totals| totals.finished,
    ] {
        let sum = of(&first, pick) + of(&rest, pick);
        assert!(of(&first, pick) > 0 && near(sum, of(&all, pick)), "{first:?}, {rest:?}, {all:?}");
    }
    let counts = [&first, &rest, &all].map(|outcome| outcome.recovery.latencies.count());
    assert!(near(counts[0] + counts[1], counts[2]), "{counts:?}");
    assert!(first.received + rest.measured.bytes <= all.received + 3_000, "{first:?}, {rest:?}");
    assert!(rest.measured.time <= Duration::from_secs(6), "{rest:?}");
}

/// Derives the path's impairments and the transfer from `seed`. Failure messages show the draw.
fn random_scenario(seed: u64) -> Scenario {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut link = || {
        let loss = rng.random_range(0..=20);
        let (share, delay) = (rng.random_range(0..10), rng.random_range(1..=30));
        let blackhole_at = rng.random_range(0..3_000);
        let blackhole = format!("{blackhole_at}ms,{}ms", rng.random_range(1..2_000));
        LinkConfig {
            rate: Some(Rate::from_mbps(rng.random_range(1..=100))),
            queue: Queue::drop_tail(rng.random_range(3_000..300_000)),
            delay: Some(Duration::from_micros(rng.random_range(0..150_000))),
            loss: Some(format!("{loss}%").parse().expect("a loss")),
            duplicate: format!("{}%", rng.random_range(0..5)).parse().expect("a share"),
            corrupt: format!("{}%", rng.random_range(0..5)).parse().expect("a share"),
            reorder: Some(format!("{share}%,{delay}ms").parse().expect("a reordering")),
            blackhole: if rng.random_bool(0.25) {
                vec![blackhole.parse().expect("a window")]
            } else {
                Vec::new()
            },
            ..LinkConfig::default()
        }
    };
    let path = PathConfig { down: link(), up: link() };
    Scenario {
        path,
        client: if rng.random_bool(0.5) { ClientKind::Quinn } else { ClientKind::Noq },
        congestion: quic::controller(Algorithm::ALL[rng.random_range(0..Algorithm::ALL.len())]),
        traffic: Traffic::Download { bytes: rng.random_range(1..300_000) },
        seed,
        rebind_every: rng
            .random_bool(0.25)
            .then(|| Duration::from_millis(rng.random_range(500..5_000))),
        timer_granularity: Duration::from_micros(rng.random_range(0..2_000)),
        ..Scenario::default()
    }
}

#[test]
fn random_paths_deliver_every_byte() {
    let cases = std::env::var("MENDCAST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    for seed in 0..cases {
        let random = random_scenario(seed);
        let outcome = run(&random).expect("it runs");
        assert!(outcome.completed && outcome.intact, "seed {seed}: {:?} {outcome:?}", random.path);
    }
}

#[test]
fn requests_on_one_connection_follow_each_other_and_are_all_answered() {
    let traffic = Traffic::Download { bytes: 100_000 };
    let mut scenario = Scenario { traffic, times: 3, ..scenario(1) };
    scenario.path.down.loss = Some("5%".parse().expect("a loss"));
    let outcome = run(&scenario).expect("it runs");
    assert!(outcome.completed && outcome.intact);
    assert_eq!(outcome.received, 300_000);
    assert_eq!((outcome.asked.len(), outcome.answered.len()), (3, 3));
    for place in 1..3 {
        let way = outcome.asked[place].since(outcome.answered[place - 1]).as_millis();
        assert_eq!(way, 30, "half a round trip");
        assert!(outcome.answered[place] > outcome.asked[place]);
    }
}

/// Loss rate of packets sent between `lags[0]` (exclusive) and `lags[1]` milliseconds after a lost
/// one, under continuous sending.
fn lost_after(scenario: &Scenario, lags: [u64; 2]) -> f64 {
    const STEP: u64 = 2;
    let down = LinkConfig { rate: None, delay: None, ..scenario.path.down.clone() };
    let mut link: Link<()> = Link::new(&down, scenario.seed, "path down");
    let steps = scenario.limit.as_millis() as u64 / STEP;
    let is_lost = |step: u64| {
        let at = Timestamp::from_millis(step * STEP);
        link.send(at, Packet { size: 1_200, ecn: Ecn::NotEct, payload: () });
        link.poll(at).is_none()
    };
    let lost: Vec<bool> = (0..steps).map(is_lost).collect();
    let [from, to] = lags.map(|lag| (lag / STEP) as usize);
    let (mut sent, mut both) = (0_u64, 0_u64);
    for first in (0..lost.len() - to).filter(|&first| lost[first]) {
        sent += (to - from) as u64;
        both += lost[first + from + 1..=first + to].iter().filter(|lost| **lost).count() as u64;
    }
    both as f64 / sent as f64
}

#[test]
fn the_correlation_of_losses_that_the_server_measures_is_the_models() {
    for (seed, model) in [(1, "calls:rate=5%,reading=slots"), (2, "outages:rate=5%,length=40ms")] {
        let mut lossy = scenario(seed);
        lossy.path.down.loss = Some(model.parse().expect("a loss"));
        // A packet every 4 ms, regardless of losses.
        let (rate, cached) = (Rate::from_kbps(2_400), Duration::ZERO);
        lossy.traffic = Traffic::Frames { rate, fps: 250.0, cached };
        lossy.limit = Duration::from_secs(240);
        let outcome = run(&lossy).expect("it runs");
        for (class, lags) in [(4, [10, 20]), (5, [20, 50]), (6, [50, 100]), (7, [100, 200])] {
            let AfterLoss { sent, lost } = outcome.recovery.correlation[class];
            let (measured, expected) = (lost as f64 / sent as f64, lost_after(&lossy, lags));
            println!("{model}, {lags:?} ms: measured {measured:.3}, the model has {expected:.3}");
            assert!(
                (measured - expected).abs() < 0.04 + 0.15 * expected,
                "{model}, {lags:?} ms: {measured} {expected}, seed {seed}"
            );
        }
        let at = |class: usize| outcome.recovery.correlation[class];
        let share = |class: usize| at(class).lost as f64 / at(class).sent as f64;
        assert!(share(4) > 2.0 * share(7), "{model}: losses do not come together");
    }
}
