//! Whole playbacks over links of constant rate. Their outcomes can be computed by hand.

use core::time::Duration;

use links::{LinkConfig, PathConfig, Queue};
use units::{Rate, Timestamp};

use super::{Adaptation, Dash, DashOutcome, DashPlayer, Ladder, SegmentArrival, Video};
use crate::client::ClientKind;
use crate::simulation::{RunOutcome, Scenario, run};
use crate::traffic::Traffic;

const SECOND: Duration = Duration::from_secs(1);
const RTT: Duration = Duration::from_millis(20);
const RULES: [Adaptation; 3] = [Adaptation::Throughput, Adaptation::Average, Adaptation::Buffer];

/// Thirty segments of 2 s at 500, 1,000 and 2,000 kbps.
fn dash(adaptation: Adaptation, max_buffer: Duration) -> Dash {
    let ladder = Ladder::new([500, 1_000, 2_000].map(Rate::from_kbps).to_vec()).expect("valid");
    Dash {
        video: Video { ladder, segment: SECOND * 2, segments: 30, variation: 0.0, seed: 1 },
        player: DashPlayer {
            adaptation,
            start_after: SECOND * 2,
            resume_after: SECOND * 2,
            max_buffer,
        },
    }
}

/// A playback over a link of this rate.
fn scenario(dash: Dash, rate: Rate, seed: u64) -> Scenario {
    let up = LinkConfig { delay: Some(RTT / 2), ..LinkConfig::default() };
    let queue = Queue::drop_tail(200_000);
    let path = PathConfig { down: LinkConfig { rate: Some(rate), queue, ..up.clone() }, up };
    Scenario { path, traffic: Traffic::Dash(dash), seed, ..Scenario::default() }
}

fn complete(scenario: &Scenario) -> (RunOutcome, DashOutcome) {
    let outcome = run(scenario).expect("it runs");
    assert!(outcome.completed && outcome.intact, "seed {}: {outcome:?}", scenario.seed);
    let playback = outcome.dash.clone().expect("a video");
    (outcome, playback)
}

fn rungs(playback: &DashOutcome) -> Vec<usize> {
    playback.segments.iter().map(|segment| segment.rung).collect()
}

#[test]
fn far_above_the_top_all_play_at_the_top_without_rebuffering() {
    for rule in RULES {
        let dash = dash(rule, SECOND * 20);
        let ladder = dash.video.ladder.clone();
        let (outcome, playback) = complete(&scenario(dash, Rate::from_mbps(50), 1));
        assert_eq!(outcome.asked.len(), 30, "one connection, one request per segment");
        assert_eq!((playback.rebufferings, playback.rebuffering), (0, Duration::ZERO), "{rule:?}");
        let startup = playback.startup.expect("started");
        assert!(startup > RTT * 2 && startup < SECOND / 4, "{startup:?}");
        let first_top = rungs(&playback).iter().position(|&rung| rung == 2).expect("the top");
        assert!(rungs(&playback)[first_top..].iter().all(|&rung| rung == 2), "{rule:?}");
        if rule == Adaptation::Buffer {
            // At most 18 s are buffered at a request, and 90 % of it are more than eight segments.
            assert_eq!(first_top, 9);
        } else {
            assert_eq!(first_top, 1);
            // 500 kbps once, 2,000 kbps 29 times.
            assert_eq!(playback.bitrate(&ladder), Some(Rate::from_kbps(1_950)));
            assert_eq!(playback.switches(), 1);
        }
    }
}

#[test]
fn between_two_bitrates_rate_based_rules_take_the_lower_one() {
    for rule in [Adaptation::Throughput, Adaptation::Average] {
        let dash = dash(rule, SECOND * 20);
        let (_, playback) = complete(&scenario(dash, Rate::from_kbps(1_500), 1));
        assert_eq!(rungs(&playback), [&[0][..], &[1; 29]].concat(), "{rule:?}");
        assert_eq!(playback.rebufferings, 0);
        let rate = playback.download_rate().expect("one").as_mbps_f64();
        assert!((1.3..1.5).contains(&rate), "{rate}");
    }
}

#[test]
fn between_two_bitrates_the_buffer_based_rule_alternates() {
    let dash = dash(Adaptation::Buffer, SECOND * 20);
    let ladder = dash.video.ladder.clone();
    let (_, playback) = complete(&scenario(dash, Rate::from_kbps(1_500), 1));
    assert_eq!(playback.rebufferings, 0);
    let rungs = rungs(&playback);
    assert!(rungs.contains(&1) && rungs.contains(&2), "{rungs:?}");
    // The first 7.5 s of buffer are at the lowest bitrate, and then all data of the link is used.
    let bitrate = playback.bitrate(&ladder).expect("one").as_mbps_f64();
    assert!((0.9..1.4).contains(&bitrate), "{bitrate}");
}

#[test]
fn below_the_lowest_bitrate_rebuffering_takes_what_the_link_lacks() {
    for rule in RULES {
        let dash = dash(rule, SECOND * 20);
        let (outcome, playback) = complete(&scenario(dash, Rate::from_kbps(400), 1));
        assert!(rungs(&playback).iter().all(|&rung| rung == 0), "{rule:?}");
        // Each of 29 segments after the first has 125 kB and its headers at 400 kbps, and a round
        // trip for the request, less 2 s that play meanwhile.
        let headers = outcome.wire_bytes as f64 / outcome.received as f64;
        assert!((1.02..1.08).contains(&headers), "{headers}");
        let download = 125e3 * 8.0 / 400e3 * headers + RTT.as_secs_f64();
        let expected = 29.0 * (download - 2.0);
        let rebuffering = playback.rebuffering.as_secs_f64();
        assert!((rebuffering - expected).abs() < 2.0, "{rule:?}: {rebuffering} {expected}");
        assert!(rebuffering > 14.5, "without headers: 29 times 0.5 s");
        assert_eq!(playback.rebufferings, 29, "{rule:?}: one per segment");
        assert_eq!(playback.switches(), 0);
    }
}

#[test]
fn the_buffer_never_exceeds_its_maximum() {
    for max in [3, 7] {
        let dash = dash(Adaptation::Throughput, SECOND * max);
        let (_, playback) = complete(&scenario(dash, Rate::from_mbps(50), 1));
        assert_eq!(playback.rebufferings, 0, "{max} s");
        let started = Timestamp::ZERO + playback.startup.expect("started");
        let buffered = |(number, segment): (u32, &SegmentArrival)| {
            SECOND * 2 * number - segment.asked.since(started)
        };
        let levels: Vec<Duration> = (1..).zip(&playback.segments[1..]).map(buffered).collect();
        let highest = levels.iter().max().expect("some");
        assert_eq!(*highest, SECOND * (max - 2), "a segment must fit: {levels:?}");
    }
    // With room for one segment alone, each one but the first is requested with an empty buffer.
    let (_, playback) =
        complete(&scenario(dash(Adaptation::Throughput, SECOND * 2), Rate::from_mbps(50), 1));
    assert_eq!(playback.rebufferings, 29);
}

#[test]
fn a_seed_determines_the_playback() {
    let lossy = |seed| {
        let mut dash = dash(Adaptation::Throughput, SECOND * 20);
        (dash.video.variation, dash.video.seed) = (0.4, seed);
        let mut scenario = scenario(dash, Rate::from_kbps(1_500), seed);
        scenario.path.down.loss = Some("5%".parse().expect("a loss"));
        let (outcome, playback) = complete(&scenario);
        (outcome.event_log, playback)
    };
    assert_eq!(lossy(1), lossy(1));
    assert_ne!(lossy(1).1.segments, lossy(2).1.segments);
}

#[test]
fn a_connection_carries_many_short_segments() {
    let mut dash = dash(Adaptation::Throughput, SECOND * 10);
    (dash.video.segment, dash.video.segments) = (SECOND / 10, 600);
    let (outcome, playback) = complete(&scenario(dash, Rate::from_mbps(5), 1));
    assert_eq!((outcome.answered.len(), playback.segments.len()), (600, 600));
    assert_eq!(playback.rebufferings, 0);
}

#[test]
fn another_client_plays_it_too() {
    let dash = dash(Adaptation::Throughput, SECOND * 20);
    let quinn = scenario(dash, Rate::from_kbps(1_500), 1);
    let noq = Scenario { client: ClientKind::Noq, ..quinn.clone() };
    assert_eq!(rungs(&complete(&quinn).1), rungs(&complete(&noq).1));
}

#[test]
fn a_link_that_stops_ends_the_run_incomplete() {
    let dash = dash(Adaptation::Throughput, SECOND * 20);
    let mut scenario = scenario(dash, Rate::from_mbps(5), 1);
    scenario.path.down.blackhole = vec!["5s,1000s".parse().expect("a window")];
    scenario.limit = SECOND * 100;
    let outcome = run(&scenario).expect("it runs");
    assert!(!outcome.completed && outcome.intact);
    let playback = outcome.dash.expect("a video");
    assert!(!playback.segments.is_empty() && playback.segments.len() < 30, "{playback:?}");
}
