use super::*;
use links::{LinkConfig, Queue};
use units::Rate;

fn scenario(seed: u64) -> Scenario {
    let down = LinkConfig {
        rate: Some(Rate::from_mbps(12)),
        queue: Queue::drop_tail(90_000),
        delay: Some(Duration::from_millis(30)),
        ..LinkConfig::default()
    };
    Scenario {
        path: PathConfig { up: down.clone(), down },
        congestion: congestion::Algorithm::Bbr,
        bytes: 500_000,
        window: 4 << 20,
        seed,
        timer_granularity: Duration::ZERO,
        limit: Duration::from_secs(60),
        measure_from: Duration::ZERO,
    }
}

#[test]
fn an_unmodified_client_finishes_a_download_in_virtual_time() {
    let outcome = run(&scenario(1)).expect("it runs");
    assert!(outcome.completed && outcome.intact, "{outcome:?}");
    // 500 kB at 12 Mbps take a third of a second, and the start a few round trips.
    assert!(outcome.duration < Duration::from_secs(1), "{outcome:?}");
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
    assert_ne!(run(&lossy).expect("it runs").event_log.0, first.event_log.0);
}

#[test]
fn a_path_without_loss_is_used_fully() {
    let mut long = scenario(3);
    long.bytes = 30_000_000;
    long.measure_from = Duration::from_secs(10);
    // BBR spends a fifth of a second in ProbeRTT every 10 s, two of them in the measured span.
    for (congestion, least) in
        [(congestion::Algorithm::Cubic, 0.97), (congestion::Algorithm::Bbr, 0.94)]
    {
        long.congestion = congestion;
        let outcome = run(&long).expect("it runs");
        assert!(outcome.completed && outcome.intact, "{outcome:?}");
        let (bytes, span) = outcome.measured;
        let share = outcome.received as f64 / outcome.wire_bytes as f64;
        let goodput = Rate::from_bytes_in(bytes, span).as_mbps_f64();
        assert!(goodput >= least * 12.0 * share, "{congestion}: {goodput} Mbps, {outcome:?}");
    }
}

#[test]
fn random_paths_with_loss_reordering_duplication_and_damage_deliver_every_byte() {
    let cases = std::env::var("MENDCAST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    for seed in 0..cases {
        let mut random = scenario(seed);
        random.bytes = 40_000 + seed * 7_919 % 200_000;
        let roll = |n: u64, below: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> n) % below;
        let text = |percent: u64| format!("{percent}%");
        for link in [&mut random.path.down, &mut random.path.up] {
            link.loss = Some(text(roll(8, 20)).parse().expect("a loss"));
            link.duplicate = text(roll(16, 5)).parse().expect("a share");
            link.corrupt = text(roll(24, 5)).parse().expect("a share");
            link.reorder =
                Some(format!("{}%,{}ms", roll(32, 10), 1 + roll(40, 30)).parse().expect("some"));
        }
        random.congestion = congestion::Algorithm::ALL[roll(48, 2) as usize];
        random.limit = Duration::from_secs(300);
        let outcome = run(&random).expect("it runs");
        assert!(outcome.completed && outcome.intact, "seed {seed}: {outcome:?}");
    }
}
