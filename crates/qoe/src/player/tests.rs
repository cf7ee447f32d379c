//! The player model on hand-computed and on random arrivals.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::FrameKind::{Dependent, Key};
use super::*;

const FRAME_MS: u64 = 40;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Player that requests its stream at time 0.
fn player(policy: Policy) -> Player {
    Player::new(policy, Timestamp::ZERO)
}

/// Feeds frames `range` at 25 frames per second, each at the time `arrival` (in ms).
fn feed(player: &mut Player, range: core::ops::Range<u64>, arrival: impl Fn(u64) -> u64) {
    for k in range {
        let kind = if k.is_multiple_of(50) { Key } else { Dependent };
        player.on_media(at(arrival(k)), (k * FRAME_MS) as u32, kind);
    }
}

/// Arrivals of a live stream with a delay of 100 ms, but a gap between `from` and `until`.
fn with_gap(from: u64, until: u64) -> impl Fn(u64) -> u64 {
    move |k| {
        let usual = 100 + k * FRAME_MS;
        if (from..until).contains(&usual) { until } else { usual }
    }
}

fn freeze(start: u64, duration: u64) -> Freeze {
    Freeze { start: at(start), duration: ms(duration) }
}

#[test]
fn a_smooth_stream_starts_at_each_presets_threshold_and_never_freezes() {
    // The buffer reaches 200 ms with frame 5, 1 s with frame 25, and 3 s with frame 75.
    for ((name, policy), start) in Policy::PRESETS.into_iter().zip([300, 1_100, 3_100]) {
        let mut player = player(policy);
        feed(&mut player, 0..251, with_gap(0, 0));
        let report = player.report(at(10_100));
        assert_eq!(report.first_frame, Some(ms(100)), "{name}");
        assert_eq!(report.start, Some(ms(start)), "{name}");
        assert_eq!(report.waiting, ms(start), "{name}");
        assert_eq!(report.played, ms(10_100 - start), "{name}");
        assert_eq!(report.freezes, [Freezes::default(); 4], "{name}");
        assert_eq!(report.buffered, ms(start - 100), "{name}");
        assert_eq!(report.live_latency, Some(ms(start - 100)), "{name}");
        assert_eq!(report.watched(), report.played, "{name}");
    }
}

#[test]
fn player_names_parse_and_display() {
    for text in ["low-latency", "mobile", "cautious", "buffer:100ms", "buffer:300ms", "buffer:1.5s"]
    {
        let policy: Policy = text.parse().expect(text);
        assert_eq!(policy.to_string(), text);
    }
    let policy = "buffer:0.3s".parse::<Policy>().expect("300 ms");
    assert_eq!(Some(policy), Policy::with_buffer(ms(300)));
    assert_eq!(policy.catch_up.map(|c| (c.above, c.until)), Some((ms(390), ms(300))));
    assert_eq!((policy.start, policy.rebuffer, policy.buffer()), (ms(100), ms(300), ms(300)));
    assert_eq!(Policy::LOW_LATENCY.buffer(), ms(800));
    assert_eq!(Policy::MOBILE.buffer(), ms(2_000));
    for bad in [
        "",
        "vlc",
        "buffer:",
        "buffer:300",
        "buffer:99ms",
        "buffer:11s",
        "buffer:NaNs",
        "buffer:-1s",
    ] {
        let why = bad.parse::<Policy>().expect_err(bad).to_string();
        let start = format!("unknown player `{bad}`: expected low-latency, ");
        assert!(why.starts_with(&start), "{why}");
        assert!(why.ends_with("buffer:100ms to buffer:10s"), "{why}");
    }
    let own = Policy { start: ms(1), rebuffer: ms(2), catch_up: None };
    assert_eq!(own.to_string(), "start 1ms, resume 2ms");
}

#[test]
fn a_target_buffer_is_restored_by_speed_after_a_freeze() {
    // Nothing arrives from 4,100 to 4,900. A player of 300 ms freezes once, resumes with the
    // accumulated media, plays it faster, and is back at 300 to 390 ms for the next gap of the same
    // length.
    let policy = Policy::with_buffer(ms(300)).expect("a buffer");
    let arrival = |k: u64| {
        let usual = 100 + k * FRAME_MS;
        match usual {
            4_100..4_900 => 4_900,
            14_100..14_900 => 14_900,
            _ => usual,
        }
    };
    let mut player = player(policy);
    feed(&mut player, 0..350, arrival);
    let report = player.report(at(14_060));
    assert_eq!((report.freezes[0].count, report.noticed()), (1, report.freezes[1]), "{report:?}");
    assert!((ms(300)..=ms(390)).contains(&report.buffered), "{report:?}");
    feed(&mut player, 350..380, arrival);
    assert_eq!(player.report(at(15_300)).freezes[0].count, 2);
}

#[test]
fn frames_are_late_if_the_buffer_cannot_absorb_their_delay() {
    // Of the frames delayed until 4,900, those due more than 300 ms earlier count.
    let policy = Policy::with_buffer(ms(300)).expect("a buffer");
    let run = |policy| {
        let mut player = player(policy);
        feed(&mut player, 0..251, with_gap(4_100, 4_900));
        player.report(at(10_100))
    };
    // Due at 4,100, 4,140 ... 4,580: 13 frames. Those from 4,620 on are at most 280 ms late.
    let report = run(policy);
    assert_eq!((report.frames, report.late), (250, 13));
    assert_eq!(report.late_rate(), Some(13.0 / 250.0));
    assert_eq!(run(Policy::LOW_LATENCY).late, 0, "exactly 800 ms");
    assert_eq!(player(policy).report(at(0)).late_rate(), None);
}

#[test]
fn a_gap_of_700_ms_freezes_only_the_low_latency_player() {
    // Frame 49 arrives at 2,060. Frames 50 to 67, due from 2,100 on, arrive together at 2,800. The
    // low-latency player finishes frame 49 at 300 + 1,960 and resumes at 2,800.
    let run = |policy| {
        let mut player = player(policy);
        feed(&mut player, 0..251, with_gap(2_100, 2_800));
        player
    };
    let mut frozen = player(Policy::LOW_LATENCY);
    feed(&mut frozen, 0..68, with_gap(2_100, 2_800));
    assert_eq!(frozen.report(at(2_800)).live_latency, Some(ms(2_700 - 1_960)), "late frames");
    let mut low_latency = run(Policy::LOW_LATENCY);
    assert_eq!(low_latency.freezes(), [freeze(2_260, 540)]);
    let report = low_latency.report(at(10_100));
    let one = Freezes { count: 1, total: ms(540) };
    assert_eq!(report.freezes, [one, one, one, Freezes::default()]);
    assert_eq!(report.played, ms(10_100 - 300 - 540));
    assert_eq!(report.live_latency, Some(ms(200 + 540)), "live latency grows by the freeze");
    let rates = report.rates().unwrap();
    assert!((rates.freezes_per_100s - 100.0 / 9.8).abs() < 1e-9);
    assert!((rates.freeze_s_per_100s - 54.0 / 9.8).abs() < 1e-9);
    assert_eq!(run(Policy::MOBILE).report(at(10_100)).freezes[0].count, 0);
    assert_eq!(run(Policy::CAUTIOUS).report(at(10_100)).freezes[0].count, 0);
}

#[test]
fn playback_resumes_at_each_presets_rebuffer_threshold() {
    // Nothing arrives from 4,100 on; the last frame is 99 (3,960 ms of media). Frame 100 + n
    // arrives at 9,000 + 40 n, 4,900 ms late. Frame 100 adds 40 ms to the empty buffer. Resuming
    // takes 500 ms (frame 112), 2 s (149) or 3 s (174).
    let cases = [(300 + 3_960, 9_480), (1_100 + 3_960, 10_960), (3_100 + 3_960, 11_960)];
    for ((name, policy), (empty, resumed)) in Policy::PRESETS.into_iter().zip(cases) {
        let mut player = player(policy);
        feed(&mut player, 0..250, |k| if k < 100 { 100 + k * 40 } else { 9_000 + (k - 100) * 40 });
        assert_eq!(player.freezes(), [freeze(empty, resumed - empty)], "{name}");
    }
}

#[test]
fn a_current_freeze_is_reported_but_not_listed() {
    let mut player = player(Policy::MOBILE);
    feed(&mut player, 0..26, |k| k * FRAME_MS);
    // Playback starts at 1,000 with 1,000 buffered.
    assert_eq!(player.report(at(2_000)).freezes[0], Freezes::default(), "empty just now");
    let report = player.report(Timestamp::from_nanos(2_000_000_001));
    assert_eq!(report.freezes[0], Freezes { count: 1, total: Duration::from_nanos(1) });
    assert_eq!(report.freezes[1], Freezes::default());
    assert_eq!(player.report(at(2_500)).freezes[2], Freezes { count: 1, total: ms(500) });
    assert_eq!(player.freezes(), []);
}

#[test]
fn a_frame_exactly_on_time_prevents_a_freeze() {
    let mut player = player(Policy { start: ms(40), ..Policy::MOBILE });
    feed(&mut player, 0..100, |k| k * FRAME_MS);
    let report = player.report(at(99 * FRAME_MS));
    assert_eq!((report.start, report.freezes[0].count), (Some(ms(40)), 0));
}

#[test]
fn a_jump_to_the_live_edge_skips_media_without_a_freeze() {
    // The frame with media time 9,960 arrives at 5,060 instead of 4,960.
    let mut player = player(Policy::MOBILE);
    feed(&mut player, 0..124, with_gap(0, 0));
    let before = player.report(at(5_059)).live_latency.unwrap();
    player.on_media(at(5_060), 9_960, Key);
    for k in 1..100u64 {
        player.on_media(at(5_060 + k * FRAME_MS), (9_960 + k * FRAME_MS) as u32, Dependent);
    }
    let report = player.report(at(9_020));
    assert_eq!((report.skips, report.skipped), (1, ms(9_960 - 4_920)));
    assert_eq!(report.freezes[0].count, 0);
    assert_eq!(before, ms(1_000));
    // The jump replaced one frame, so the buffer is shorter by its duration.
    assert_eq!(report.buffered, ms(1_000 - 40));
    assert_eq!(report.elapsed, report.waiting + report.played);
}

#[test]
fn a_skip_after_silence_does_not_fill_the_buffer() {
    // Silence from 2,060 to 6,060, then the relay continues at the live edge.
    let mut player = player(Policy::LOW_LATENCY);
    feed(&mut player, 0..50, with_gap(0, 0));
    for k in 0..50 {
        player.on_media(at(6_060 + k * FRAME_MS), (5_960 + k * FRAME_MS) as u32, Key);
    }
    let report = player.report(at(6_060 + 49 * FRAME_MS));
    // Frozen from 300 + 1,960 until 500 ms of media (13 frames) follow the jump.
    assert_eq!(player.freezes(), [freeze(2_260, 6_060 + 13 * 40 - 2_260)]);
    assert_eq!(report.skipped, ms(4_000));
    assert_eq!(report.live_latency, Some(ms(520)), "near the live edge");
}

#[test]
fn catch_up_consumes_an_initial_burst() {
    // 2 s of media at once, then live. Playback at 120 % consumes 48 ms of media in 40 ms. After
    // 144 frames, 848 ms are buffered, and 40 ms later 800 ms.
    let mut player = player(Policy::LOW_LATENCY);
    feed(&mut player, 0..51, |_| 0);
    feed(&mut player, 51..195, |k| (k - 50) * FRAME_MS);
    assert_eq!(player.report(at(5_760)).buffered, ms(848));
    feed(&mut player, 195..301, |k| (k - 50) * FRAME_MS);
    let report = player.report(at(10_000));
    assert_eq!(report.start, Some(Duration::ZERO));
    assert_eq!(report.buffered, ms(840));
    assert_eq!(report.live_latency, Some(ms(840)));
    assert_eq!(report.played, ms(10_000), "time, not media");
}

#[test]
fn catch_up_stops_within_a_silence() {
    // 2 s at once, then silence: 1,200 ms of media play in 1,000 ms, the other 800 ms in 800.
    let mut player = player(Policy::LOW_LATENCY);
    feed(&mut player, 0..51, |_| 0);
    let report = player.report(at(2_000));
    assert_eq!((report.played, report.freezes[0].total), (ms(1_800), ms(200)));
}

#[test]
fn a_late_start_is_waiting_and_not_freezing() {
    let mut player = Player::new(Policy::MOBILE, at(500));
    assert_eq!(player.report(at(4_000)).waiting, ms(3_500));
    // Undecodable frames do not count.
    feed(&mut player, 1..40, |_| 5_000);
    assert_eq!(player.report(at(5_000)).first_frame, None);
    assert_eq!(player.report(at(5_000)).live_latency, None);
    feed(&mut player, 50..76, |_| 7_000);
    let report = player.report(at(7_500));
    assert_eq!(report.first_frame, Some(ms(6_500)));
    assert_eq!(report.start, Some(ms(6_500)));
    assert_eq!((report.waiting, report.played), (ms(6_500), ms(500)));
    assert_eq!(report.freezes[0].count, 0);
    assert_eq!(report.rates().map(|rates| rates.freezes_per_100s), Some(0.0));
}

#[test]
fn the_end_plays_the_buffer_and_stops_the_clock() {
    let mut short = player(Policy::CAUTIOUS);
    feed(&mut short, 0..26, |_| 100);
    short.on_end(at(600));
    let report = short.report(at(60_000));
    assert_eq!((report.start, report.played), (Some(ms(600)), ms(1_000)));
    assert_eq!((report.elapsed, report.ended), (ms(1_600), true));

    let mut frozen = player(Policy::MOBILE);
    feed(&mut frozen, 0..26, |_| 0);
    frozen.on_end(at(3_000));
    assert_eq!(frozen.freezes(), [freeze(1_000, 2_000)]);
    assert_eq!(frozen.report(at(9_000)).elapsed, ms(3_000));

    let mut empty = player(Policy::MOBILE);
    empty.on_end(at(700));
    feed(&mut empty, 0..100, |_| 800);
    let report = empty.report(at(900));
    assert_eq!((report.waiting, report.first_frame), (ms(700), None));
    assert_eq!((report.ended, report.rates()), (true, None));
}

#[test]
fn media_time_wraps_and_interleaves() {
    let mut player = player(Policy { start: ms(100), ..Policy::MOBILE });
    player.on_media(at(0), u32::MAX - 19, Key);
    player.on_media(at(1), u32::MAX - 30, Dependent);
    player.on_media(at(2), 20, Dependent);
    player.on_media(at(3), 10, Dependent);
    player.on_media(at(4), 60, Dependent);
    let report = player.report(at(4));
    assert_eq!((report.buffered, report.start), (ms(80), None));
    player.on_media(at(5), 80, Dependent);
    assert_eq!(player.report(at(5)).start, Some(ms(5)));
    // A publisher restarts at a much earlier time: its media follows the existing media.
    player.on_media(at(6), 0x9000_0000, Key);
    player.on_media(at(6), 0x9000_0000 + 40, Dependent);
    let report = player.report(at(6));
    assert_eq!((report.skips, report.skipped), (0, Duration::ZERO));
    assert_eq!(report.buffered, ms(100 + 40 - 1));
}

#[test]
fn the_list_of_freezes_is_bounded_but_the_count_is_not() {
    let tiny = Policy { start: ms(1), rebuffer: ms(1), catch_up: None };
    let mut player = player(tiny);
    for k in 0..1_502u32 {
        player.on_media(at(u64::from(k) * 3), k, Key);
    }
    // Started at 3 with 1 ms; each later frame is 2 ms late.
    let report = player.report(at(3 * 1_501));
    assert_eq!(player.freezes().len(), MAX_LISTED_FREEZES);
    assert_eq!(report.freezes[0], Freezes { count: 1_500, total: ms(3_000) });
}

#[test]
fn a_larger_rebuffer_threshold_can_cause_more_freezes_when_media_trickles_in() {
    // (time, amount), in units of 100 ms. The player that resumes at 4 freezes at 5, 17 and 51. The
    // one that resumes at 8 misses the chance at 12 and freezes at 5, 28, 38 and 50.
    let arrivals = [(2, 3), (12, 5), (20, 3), (30, 8), (40, 10)];
    let run = |rebuffer| {
        let policy = Policy { start: ms(200), rebuffer: ms(rebuffer), catch_up: None };
        let mut player = player(policy);
        player.on_media(at(200), 0, Key);
        let mut media = 0;
        for (when, units) in arrivals {
            for _ in 0..units {
                media += 100;
                player.on_media(at(when * 100), media, Dependent);
            }
        }
        player.on_end(at(10_000));
        player.freezes().iter().map(|freeze| freeze.start).collect::<Vec<_>>()
    };
    assert_eq!(run(400), [500, 1_700, 5_100].map(at));
    assert_eq!(run(800), [500, 2_800, 3_800, 5_000].map(at));
}

/// Arrivals: (µs since the previous one, step of media time in ms, whether it is a key frame).
fn arrivals() -> impl Strategy<Value = Vec<(u64, i32, bool)>> {
    let pause = prop_oneof![20 => Just(0), 3 => 0..60_000u64, 1 => 0..4_000_000u64];
    let step = prop_oneof![6 => 1..60i32, 1 => -60..0i32, 1 => any::<i32>()];
    proptest::collection::vec((pause, step, any::<bool>()), 0..200)
}

fn run(policy: Policy, arrivals: &[(u64, i32, bool)]) -> (Player, Timestamp) {
    let mut player = player(policy);
    let (mut now, mut media) = (Timestamp::ZERO, 0u32);
    for &(pause, step, key) in arrivals {
        now += Duration::from_micros(pause);
        media = media.wrapping_add_signed(step);
        player.on_media(now, media, if key { Key } else { Dependent });
    }
    (player, now)
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(20_261_121),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_nanosecond_is_waiting_playing_or_frozen(
        arrivals in arrivals(), preset in 0..3usize, tail in 0..5_000_000u64, ends in any::<bool>(),
    ) {
        let (mut player, mut now) = run(Policy::PRESETS[preset].1, &arrivals);
        if ends {
            player.on_end(now);
        }
        now += Duration::from_micros(tail);
        let report = player.report(now);
        prop_assert_eq!(report.waiting + report.played + report.freezes[0].total, report.elapsed);
        if !report.ended {
            prop_assert_eq!(report.elapsed, now.since(Timestamp::ZERO));
        }
        let listed: Duration = player.freezes().iter().map(|freeze| freeze.duration).sum();
        prop_assert!(listed <= report.freezes[0].total);
        let start = report.start.unwrap_or(Duration::MAX);
        prop_assert!(report.first_frame.unwrap_or_default() <= start);
    }

    #[test]
    fn intermediate_calls_change_nothing(arrivals in arrivals(), preset in 0..3usize) {
        let policy = Policy::PRESETS[preset].1;
        let (mut seldom, now) = run(policy, &arrivals);
        let mut often = player(policy);
        let (mut then, mut media) = (Timestamp::ZERO, 0u32);
        for &(pause, step, key) in &arrivals {
            for _ in 0..7 {
                then += Duration::from_nanos(pause * 1_000 / 8);
                often.advance(then);
            }
            then += Duration::from_nanos(pause * 1_000 - 7 * (pause * 1_000 / 8));
            media = media.wrapping_add_signed(step);
            often.on_media(then, media, if key { Key } else { Dependent });
        }
        prop_assert_eq!(seldom.report(now), often.report(now));
        prop_assert_eq!(seldom.freezes(), often.freezes());
    }

    // A player with the larger threshold never has the smaller latency, so silences that freeze it
    // also freeze the other. This requires a stream that is complete again after each silence, and
    // enough time between silences for players to resume.
    #[test]
    fn a_larger_rebuffer_threshold_causes_no_more_freezes_on_a_delayed_live_stream(
        rebuffer in 0..2_000u64, more in 0..1_000u64,
        silences in proptest::collection::vec((80..120u64, 0..5_000u64), 0..12),
    ) {
        let policy = |rebuffer| Policy { start: ms(200), rebuffer: ms(rebuffer), catch_up: None };
        let run = |policy| {
            let mut player = player(policy);
            let (mut next, mut silent_until) = (0, 0);
            for &(calm, silence) in &silences {
                let held = silent_until / FRAME_MS;
                let end = next.max(held) + calm;
                feed(&mut player, next..end, |k| silent_until.max(100 + k * FRAME_MS));
                next = end;
                silent_until = 100 + next * FRAME_MS + silence;
            }
            player.report(at(silent_until))
        };
        let (small, large) = (run(policy(rebuffer)), run(policy(rebuffer + more)));
        prop_assert!(large.freezes[0].count <= small.freezes[0].count);
    }
}
