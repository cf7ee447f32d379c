//! Live views over paths that are good, lossy, too slow, and dead for a while.

use super::*;
use crate::simulation::{Scenario, run};
use crate::traffic::Traffic;
use links::{LinkConfig, PathConfig, Queue};
use qoe::{FrameKind, Player, Policy};

/// Twenty seconds of 1.5 Mbps, 25 frames a second, two seconds a group; joined in its middle.
fn live() -> Live {
    Live {
        frames: 500,
        interval: Duration::from_millis(40),
        group: 50,
        rate: Rate::from_kbps(1_500),
        before: 75,
        settings: Settings::default(),
    }
}

fn scenario(rate: Rate, loss: &str) -> Scenario {
    let up = LinkConfig { delay: Some(Duration::from_millis(30)), ..LinkConfig::default() };
    let down = LinkConfig {
        rate: Some(rate),
        queue: Queue::drop_tail(64_000),
        loss: Some(loss.parse().expect("a loss")),
        ..up.clone()
    };
    Scenario {
        path: PathConfig { up, down },
        congestion: quic::controller(congestion::Algorithm::Bbr),
        traffic: Traffic::Live(live()),
        limit: Duration::from_secs(60),
        ..Scenario::default()
    }
}

fn view(scenario: &Scenario) -> LiveOutcome {
    let outcome = run(scenario).expect("it runs");
    assert!(outcome.completed && outcome.intact, "{:?}", outcome.failed);
    outcome.live.expect("a live view")
}

/// Frames come in order; between two that are not neighbours a key frame follows.
fn gaps(outcome: &LiveOutcome) -> usize {
    let pairs = outcome.arrivals.windows(2);
    let gaps: Vec<_> = pairs.filter(|pair| pair[1].frame != pair[0].frame + 1).collect();
    assert!(gaps.iter().all(|pair| pair[1].is_key && pair[1].frame > pair[0].frame), "{gaps:?}");
    gaps.len()
}

#[test]
fn over_a_good_path_every_frame_comes_in_about_the_time_of_the_path() {
    let outcome = view(&scenario(Rate::from_mbps(20), "0%"));
    // From the newest key frame, number 50, to the last.
    let frames: Vec<u32> = outcome.arrivals.iter().map(|arrival| arrival.frame).collect();
    assert_eq!(frames, (50..575).collect::<Vec<_>>());
    assert_eq!(outcome.skips, Skips::default());
    let late = outcome.arrivals.iter().skip(50).map(|arrival| arrival.delay).max();
    assert!(late < Some(Duration::from_millis(60)), "{late:?}");
    // Handshake, request, and the key frame within the initial window and its first growth.
    let first = outcome.arrivals[0].at;
    assert!(first < Timestamp::from_millis(300), "{first:?}");
}

#[test]
fn through_loss_every_frame_comes_a_little_later() {
    let outcome = view(&scenario(Rate::from_mbps(12), "5%"));
    assert_eq!((gaps(&outcome), outcome.skips.count), (0, 0));
    assert_eq!(outcome.arrivals.len(), 525);
    let late = outcome.arrivals.iter().filter(|a| a.delay > Duration::from_millis(400)).count();
    assert!(late < 60, "{late} of 525 frames after more than 400 ms");
}

#[test]
fn a_viewer_on_a_path_that_is_too_slow_skips_to_key_frames_and_stays_near() {
    // Two thirds of what the stream needs.
    let outcome = view(&scenario(Rate::from_mbps(1), "0%"));
    assert!(outcome.skips.count >= 1 && outcome.skips.ms >= 2_000, "{:?}", outcome.skips);
    assert_eq!(gaps(&outcome) as u64, outcome.skips.count);
    // Not more than the lag that is borne, a group, and what is under way.
    let late = outcome.arrivals.iter().map(|arrival| arrival.delay).max();
    assert!(late < Some(Duration::from_secs(9)), "{late:?}");
    // The transport never held more than 50 ms at its pacing rate and a key frame.
    assert!(outcome.most_unsent < 60_000, "{}", outcome.most_unsent);
}

#[test]
fn after_the_network_was_dead_the_viewer_goes_on_at_the_live_edge() {
    let mut dead = scenario(Rate::from_mbps(12), "0%");
    let window = "5s,6s".parse().expect("a window");
    dead.path.down.blackhole = vec![window];
    dead.path.up.blackhole = vec![window];
    let outcome = view(&dead);
    assert_eq!((gaps(&outcome), outcome.skips.count), (1, 1));
    let last = outcome.arrivals.last().expect("frames");
    assert!(last.delay < Duration::from_millis(200), "{last:?}");
    let back = outcome.arrivals.iter().find(|a| a.at > Timestamp::from_millis(11_000));
    let back = back.expect("frames after the blackhole");
    // Probes back off (RFC 9002, section 6.2.1): the one after the end may come that much later.
    assert!(back.at < Timestamp::from_millis(13_000), "{back:?}");
}

#[test]
fn a_player_sees_freezes_where_the_path_was_dead_and_none_elsewhere() {
    let freezes = |blackhole: Option<&str>| {
        let mut scenario = scenario(Rate::from_mbps(12), "1%");
        let windows: Vec<_> =
            blackhole.into_iter().map(|text| text.parse().expect("a window")).collect();
        scenario.path.down.blackhole = windows;
        let mut player = Player::new(Policy::PRESETS[0].1, Timestamp::ZERO);
        let outcome = view(&scenario);
        for arrival in &outcome.arrivals {
            let kind = if arrival.is_key { FrameKind::Key } else { FrameKind::Dependent };
            player.on_media(arrival.at, arrival.media_ms, kind);
        }
        let end = outcome.arrivals.last().map_or(Timestamp::ZERO, |last| last.at);
        player.report(end).freezes[0].count
    };
    assert_eq!(freezes(None), 0);
    assert_eq!(freezes(Some("8s,3s")), 1);
}

#[test]
fn the_same_seed_gives_the_same_view() {
    let lossy = scenario(Rate::from_mbps(3), "3%");
    let (one, two) = (run(&lossy).expect("it runs"), run(&lossy).expect("it runs"));
    assert_eq!(one.event_log, two.event_log);
    let arrivals = |outcome: &crate::Outcome| outcome.live.clone().expect("live").arrivals;
    assert_eq!(arrivals(&one), arrivals(&two));
}
