//! Live views over good, lossy, slow and interrupted paths.

use core::num::NonZeroU32;
use core::time::Duration;
use std::path::Path;

use links::{LinkConfig, PathConfig, Queue};
use media::{Kind, Tag, flv};
use qoe::{FrameKind, Player, Policy};
use relay::Start;
use units::{Rate, Timestamp};

use super::*;
use crate::simulation::{Oracle, Rival, Scenario, run};
use crate::traffic::Traffic;

/// 1.5 Mbps, 25 frames per second, groups of 2 s.
fn encoder() -> Encoder {
    Encoder {
        rate: Rate::from_kbps(1_500),
        interval: Duration::from_millis(40),
        group: 50,
        ..Encoder::default()
    }
}

/// 20 s of a stream, joined in the middle of a group.
fn live() -> Live {
    Live::encoded(&encoder(), 1, 75, 500)
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

/// Checks the order of frames, and that a key frame follows each gap. Returns the number of gaps.
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
fn losses_are_known_for_each_of_the_first_pictures() {
    let lossless = view(&scenario(Rate::from_mbps(12), "0%"));
    let counts = |seen: &LiveOutcome| seen.picture_losses.clone();
    assert_eq!(counts(&lossless).len(), PICTURES);
    assert!(counts(&lossless).iter().all(|(lost, _)| *lost == 0), "{lossless:?}");
    let lossy = counts(&view(&scenario(Rate::from_mbps(12), "20%")));
    assert!(lossy.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{lossy:?}");
    let (lost, settled) = lossy[PICTURES - 1];
    let share = lost as f64 / settled as f64;
    assert!(settled >= 12 && (0.05..0.5).contains(&share), "{lossy:?}");
    // The key frame alone takes a dozen packets.
    assert!(lossy[0].1 >= 8, "{lossy:?}");
}

#[test]
fn a_first_frame_of_several_pictures_ends_with_the_last_of_them() {
    let of = |frames| {
        let video_frames = NonZeroU32::new(frames).expect("at least 1");
        let live = Live { video_frames, ..live() };
        let traffic = Traffic::Live(live);
        view(&Scenario { traffic, ..scenario(Rate::from_mbps(12), "0%") })
    };
    let (one, four) = (of(1), of(4));
    let sizes = [one.first_frame_bytes, four.first_frame_bytes].map(|size| size.expect("written"));
    assert!(sizes[0] < sizes[1], "{sizes:?}");
    assert!(one.first_frame_at < four.first_frame_at);
    assert_eq!(one.picture_losses.len(), four.picture_losses.len());
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
    // Two thirds of the stream's rate.
    let outcome = view(&scenario(Rate::from_mbps(1), "0%"));
    assert!(outcome.skips.count >= 1 && outcome.skips.ms >= 2_000, "{:?}", outcome.skips);
    assert_eq!(gaps(&outcome) as u64, outcome.skips.count);
    // At most the tolerated lag, a group, and data in flight.
    let late = outcome.arrivals.iter().map(|arrival| arrival.delay).max();
    assert!(late < Some(Duration::from_secs(9)), "{late:?}");
    // The transport buffers at most 50 ms at its pacing rate plus a key frame.
    assert!(outcome.most_unsent < 60_000, "{}", outcome.most_unsent);
}

#[test]
fn after_an_outage_the_viewer_resumes_at_the_live_edge() {
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
    // Probes back off (RFC 9002, section 6.2.1), so the first one after the outage can be that
    // late.
    assert!(back.at < Timestamp::from_millis(13_000), "{back:?}");
}

#[test]
fn a_player_freezes_during_the_outage_only() {
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
    let arrivals = |outcome: &crate::RunOutcome| outcome.live.clone().expect("live").arrivals;
    assert_eq!(arrivals(&one), arrivals(&two));
}

/// Views this encoder's stream over a good path.
fn good_view(encoder: &Encoder) -> (Live, LiveOutcome) {
    let live = Live::encoded(encoder, 7, 75, 250);
    let good = scenario(Rate::from_mbps(20), "0%");
    let outcome = view(&Scenario { traffic: Traffic::Live(live.clone()), ..good });
    (live, outcome)
}

#[test]
fn a_live_encoders_tags_all_come_as_they_were_published() {
    let encoder = Encoder {
        size_variation: 0.5,
        size_correlation: 0.8,
        scene: Duration::from_secs(3),
        b_frames: 2,
        audio: Rate::from_kbps(128),
        ..encoder()
    };
    let (live, outcome) = good_view(&encoder);
    let first = outcome.arrivals[0].frame;
    let frames: Vec<u32> = outcome.arrivals.iter().map(|arrival| arrival.frame).collect();
    assert_eq!(frames, (first..live.source.len()).collect::<Vec<_>>());
    let measured =
        |arrival: &&FrameArrival| live.is_measured(arrival.frame, Timestamp::from_millis(2_000));
    let delays: Vec<u128> =
        outcome.arrivals.iter().filter(measured).map(|a| a.delay.as_millis()).collect();
    // Pictures from 2 s on, without sound.
    assert_eq!(delays.len(), 200);
    // 30 ms of the path, and up to three intervals until a B-frame is published.
    let (least, most) = (delays.iter().min(), delays.iter().max());
    assert!(least >= Some(&30) && least < Some(&60), "{least:?}");
    assert!(most >= Some(&150) && most < Some(&250), "{most:?}");
}

#[test]
fn b_frames_add_delay_and_sound_does_not() {
    let delays = |encoder: &Encoder| {
        let (live, outcome) = good_view(encoder);
        let measured = |a: &&FrameArrival| live.is_measured(a.frame, Timestamp::from_millis(2_000));
        let sum: Duration = outcome.arrivals.iter().filter(measured).map(|a| a.delay).sum();
        sum.as_millis() / 200
    };
    let plain = delays(&encoder());
    let sound = delays(&Encoder { audio: Rate::from_kbps(64), ..encoder() });
    let waiting = delays(&Encoder { b_frames: 2, ..encoder() });
    assert!(plain.abs_diff(sound) <= 3, "{plain} {sound}");
    // Two of three frames wait for three intervals.
    assert!((75..=85).contains(&(waiting - plain)), "{plain} {waiting}");
}

#[test]
fn a_recording_is_seen_lap_after_lap() {
    let header = Tag::new(Kind::Video, 0, &[0x17, 0, 0, 0, 0, 1]).expect("short");
    let mut bytes = flv::file_header(true, true).to_vec();
    bytes.extend_from_slice(header.bytes());
    for frame in 0..30_u32 {
        // Sound slightly earlier than pictures, as in many files.
        let sound = Tag::new(Kind::Audio, (frame * 40).saturating_sub(15), &[0xaf, 1, frame as u8]);
        let head = if frame % 15 == 0 { 0x17 } else { 0x27 };
        let mut payload = vec![frame as u8; if head == 0x17 { 9_000 } else { 2_000 }];
        payload[..5].copy_from_slice(&[head, 1, 0, 0, 0]);
        let picture = Tag::new(Kind::Video, frame * 40, &payload);
        for tag in [picture, sound] {
            bytes.extend_from_slice(tag.expect("short").bytes());
        }
    }
    let path = std::env::temp_dir().join(format!("mendcast-live-{}.flv", std::process::id()));
    std::fs::write(&path, bytes).expect("written");
    let recording = Recording::load(&path);
    std::fs::remove_file(&path).expect("removed");
    let source = LiveSource::recorded(&recording.expect("a recording"), Duration::from_secs(10));
    let settings = relay::Settings::default();
    let (begin, start) = (Duration::from_millis(1_700), Start::LatestGop);
    let video_frames = NonZeroU32::MIN;
    let live = Live { source: source.into(), begin, settings, start, video_frames };
    for loss in ["0%", "5%"] {
        let lossy = scenario(Rate::from_mbps(12), loss);
        let seen = view(&Scenario { traffic: Traffic::Live(live.clone()), ..lossy });
        let frames: Vec<u32> = seen.arrivals.iter().map(|arrival| arrival.frame).collect();
        // Headers arrive once.
        let all = (frames[0]..live.source.len())
            .filter(|&number| !live.source.tag(number).role().is_header());
        assert_eq!(frames, all.collect::<Vec<_>>(), "{loss}");
        let pictures = frames.iter().filter(|&&frame| live.source.is_frame(frame)).count();
        // At 1.7 s the newest key frame is the one of 1.2 s.
        assert_eq!(pictures, 250 - 30, "{loss}");
        assert_eq!(seen.arrivals.last().expect("some").media_ms, 9_945, "{loss}");
    }
}

#[test]
fn the_recording_of_the_demo_is_seen_to_its_end_and_from_its_beginning_again() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/demo.flv");
    let recording = Recording::load(Path::new(path)).expect("a recording");
    let length = recording.lap * 2 + Duration::from_secs(1);
    let source = LiveSource::recorded(&recording, length);
    let settings = relay::Settings::default();
    let (begin, start) = (Duration::ZERO, Start::LatestGop);
    let video_frames = NonZeroU32::MIN;
    let live = Live { source: source.into(), begin, settings, start, video_frames };
    let lossy = scenario(Rate::from_mbps(12), "2%");
    let limit = length + Duration::from_secs(30);
    let seen = view(&Scenario { traffic: Traffic::Live(live.clone()), limit, ..lossy });
    let frames = || (0..live.source.len()).filter(|&number| live.source.is_frame(number));
    let pictures = seen.arrivals.iter().filter(|arrival| live.source.is_frame(arrival.frame));
    assert_eq!(
        pictures.map(|arrival| arrival.frame).collect::<Vec<_>>(),
        frames().collect::<Vec<_>>()
    );
    let keys = seen.arrivals.iter().filter(|arrival| arrival.is_key).count();
    assert!(keys > 4 && keys < frames().count() / 5, "{keys}");
}

/// Counts frames later than 300 ms in ten views under this loss, by the sender's knowledge.
fn late(loss: &str, oracle: Oracle) -> usize {
    let late = |seed| {
        let lossy = Scenario { seed, oracle, ..scenario(Rate::from_mbps(12), loss) };
        let outcome = view(&lossy);
        let arrivals = outcome.arrivals.iter().skip(50);
        let missing = 525 - outcome.arrivals.len();
        missing + arrivals.filter(|arrival| arrival.delay > Duration::from_millis(300)).count()
    };
    (1..=10).map(late).sum()
}

#[test]
fn a_clairvoyant_sender_is_never_later() {
    for loss in ["outages:rate=5%,length=30ms", "calls:rate=5%", "calls:rate=5%,reading=slots"] {
        let [arq, after, start] = [Oracle::None, Oracle::AfterDetection, Oracle::FromStart]
            .map(|oracle| late(loss, oracle));
        println!("{loss}: ARQ {arq}, after detection {after}, from the start {start}");
        assert!(arq >= after && after >= start, "{loss}: {arq} {after} {start}, seeds 1 to 10");
        assert!(arq > start, "{loss}: {arq} {start}");
    }
}

#[test]
fn without_loss_clairvoyance_changes_nothing() {
    let log = |oracle| {
        let lossless = Scenario { oracle, ..scenario(Rate::from_mbps(3), "0%") };
        run(&lossless).expect("it runs").event_log
    };
    let plain = log(Oracle::None);
    for oracle in [Oracle::CopiesArrive, Oracle::AfterDetection, Oracle::FromStart] {
        assert_eq!(log(oracle), plain, "{oracle:?}");
    }
    let lossy = |oracle| {
        let lossy = Scenario { oracle, ..scenario(Rate::from_mbps(3), "3%") };
        run(&lossy).expect("it runs").event_log
    };
    assert_ne!(lossy(Oracle::AfterDetection), lossy(Oracle::None));
}

#[test]
fn a_newcomer_starts_at_the_newest_key_frame_and_until_then_nobody_notices() {
    let alone = scenario(Rate::from_mbps(5), "0%");
    let comes = Duration::from_millis(6_700);
    let rival = Rival {
        congestion: alone.congestion.clone(),
        scheme: alone.scheme.clone(),
        start_options: alone.start_options,
        capping: None,
        traffic: alone.traffic.clone(),
        begins: comes,
    };
    let both = run(&Scenario { rival: Some(rival), ..alone.clone() }).expect("it runs");
    let newcomer = both.rival.expect("a rival").live.expect("a live view");
    // Handshake and transit of the request.
    let asked = newcomer.asked_at.expect("asked").since(Timestamp::ZERO + comes);
    assert!((90..200).contains(&asked.as_millis()), "{asked:?}");
    // 75 pictures before, and 25 per second since.
    let newest = (75 + (comes + asked).as_millis() as u32 / 40) / 50 * 50;
    assert_eq!(newcomer.arrivals[0].frame, newest);
    let before = |outcome: &LiveOutcome| {
        let end = Timestamp::ZERO + comes;
        outcome.arrivals.iter().take_while(|a| a.at < end).copied().collect::<Vec<_>>()
    };
    let [alone, beside] = [view(&alone), both.live.expect("a live view")];
    assert_eq!(before(&alone), before(&beside));
    assert_ne!(alone.arrivals, beside.arrivals, "the key frames of both share the bottleneck");
}

#[test]
fn player_reports_match_the_playhead_estimate() {
    let watched = |reports| {
        let deadline = recovery::deadline::Options::default();
        let mut scenario = scenario(Rate::from_mbps(20), "8%");
        scenario.scheme =
            std::sync::Arc::new(move |_| recovery::deadline::scheme(deadline).expect("in range"));
        // Two round trips exceed the default patience for players without reports.
        scenario.path.up.delay = Some(Duration::from_millis(75));
        scenario.path.down.delay = scenario.path.up.delay;
        let outcome = run(&Scenario { reports, ..scenario }).expect("it runs");
        let replicas = outcome.recovery.totals.replica_bytes;
        (outcome.live.expect("a live view").playhead_off_ms, replicas)
    };
    let (off, unheard) = watched(None);
    assert!(off.is_empty() && unheard > 0, "{unheard}");
    let (off, heard) = watched(Some(Policy::CAUTIOUS));
    // The first report has no earlier one to estimate from.
    assert!(off.len() >= 2 && off.iter().all(|off| off.abs() < 150.0), "{off:?}");
    assert!(heard < unheard * 2 / 3, "{heard} of {unheard}");
}
