//! Each rule can fail, independently of the others.

use std::time::Duration;

use qoe::player::Freezes;
use qoe::{Player, Policy};
use units::Timestamp;

use super::super::crowd::Views;
use super::super::log::LogSize;
use super::super::records::Records;
use super::super::server::Reported;
use super::*;
use crate::edge::media::RATE;

const MINUTE: Duration = Duration::from_secs(60);

/// A view of a minute with all published media and no freezes.
fn view(viewer: u32) -> View {
    let mut seen = Player::new(Policy::LOW_LATENCY, Timestamp::ZERO).report(Timestamp::ZERO);
    seen.played = MINUTE;
    View {
        viewer,
        lasted: MINUTE,
        bytes: 20_000_000,
        live_bytes: (RATE / 8.0 * 60.0) as u64,
        first: Some(Duration::from_millis(u64::from(80 + viewer % 100))),
        seen,
        failure: None,
    }
}

fn views() -> Views {
    let counted: Vec<View> = (0..100).map(|n| view(n % 20)).collect();
    Views { came: 120, had_media: 119, counted }
}

fn look(minute: u64, resident: u64) -> Look {
    Look {
        at: MINUTE * minute as u32,
        resident,
        streams: 1.0,
        places: 1.0,
        descriptors: 60,
        health: Duration::from_millis(2),
        ..Look::default()
    }
}

/// A soak that satisfies all rules.
fn outcome() -> SoakOutcome {
    let neighbour = Count {
        name: "a neighbour",
        due: 100.0,
        attempted: 99,
        reached: 98,
        breaches: 0,
        ends: vec![("status 404".to_owned(), 98)],
    };
    let newcomer = Count {
        name: "newcomers",
        due: 50.0,
        attempted: 50,
        reached: 49,
        breaches: 0,
        ends: vec![("let in".to_owned(), 49), ("status 503".to_owned(), 1)],
    };
    let reported = Reported { played_s: 70.0, frozen_s: 20.0, freezes: 400.0 };
    SoakOutcome {
        alone: (views(), Look { sessions: 120.0, ..look(0, 30_000_000) }),
        beside: Some(Beside {
            views: views(),
            neighbours: vec![neighbour],
            newcomers: vec![newcomer],
        }),
        looks: (0..30).map(|minute| look(minute, 40_000_000 + minute % 2 * 100_000)).collect(),
        last: Look {
            sessions: 310.0,
            without_media: 4.0,
            fleeting: 6.0,
            reported,
            ..look(31, 39_000_000)
        },
        records: Records { rows: 300, reported: 10, beyond: 0, room_s: 100.0 },
        log: LogSize { bytes: 1_000_000, lines: 9_000, controls: 0 },
    }
}

impl SoakOutcome {
    fn beside_mut(&mut self) -> &mut Vec<View> {
        &mut self.beside.as_mut().expect("neighbours").views.counted
    }

    fn neighbour_mut(&mut self) -> &mut Count {
        &mut self.beside.as_mut().expect("neighbours").neighbours[0]
    }
}

/// Returns the rules broken by a change to a soak that satisfies all of them.
fn broken(change: impl FnOnce(&mut SoakOutcome)) -> Vec<&'static str> {
    let mut outcome = outcome();
    change(&mut outcome);
    let verdicts = outcome.verdicts();
    assert!(verdicts.iter().all(|verdict| !verdict.figures.is_empty()));
    verdicts.iter().filter(|verdict| !verdict.holds).map(|verdict| verdict.rule).collect()
}

#[test]
fn a_clean_soak_breaks_no_rule() {
    assert_eq!(broken(|_| {}), [""; 0]);
    assert_eq!(outcome().verdicts().len(), 20);
    assert_eq!(broken(|soak| soak.beside = None), [""; 0]);
}

#[test]
fn viewers_must_keep_95_percent_of_their_media_rate() {
    let take = |views: &mut Vec<View>, share: f64| {
        views.iter_mut().for_each(|v| v.live_bytes = (v.live_bytes as f64 * share) as u64);
    };
    assert_eq!(broken(|soak| take(soak.beside_mut(), 0.94)), ["viewers keep their media rate"]);
    assert_eq!(broken(|soak| take(soak.beside_mut(), 0.96)), [""; 0]);
    let both = broken(|soak| {
        take(&mut soak.alone.0.counted, 0.8);
        take(soak.beside_mut(), 0.78);
    });
    assert_eq!(both, [""; 0]);
    // More views do not compensate for incomplete ones.
    let longer = broken(|soak| {
        soak.beside_mut().extend((0..400).map(|n| view(n % 20)));
        take(soak.beside_mut(), 0.94);
    });
    assert_eq!(longer, ["viewers keep their media rate"]);
}

#[test]
fn viewers_must_not_freeze_more_often_or_longer() {
    let freeze = |views: &mut [View], count: u64, total: Duration| {
        for view in views {
            view.seen.freezes[0] = Freezes { count, total };
        }
    };
    let often = broken(|soak| freeze(soak.beside_mut(), 1, Duration::from_millis(10)));
    assert_eq!(often, ["viewers freeze no more often"]);
    let long = broken(|soak| {
        freeze(&mut soak.alone.0.counted, 1, Duration::from_millis(200));
        freeze(soak.beside_mut(), 1, Duration::from_millis(900));
    });
    assert_eq!(long, ["viewers freeze no longer"]);
    // One freeze in 100 minutes is chance.
    let once = broken(|soak| freeze(&mut soak.beside_mut()[..1], 1, Duration::from_millis(600)));
    assert_eq!(once, [""; 0]);
    let unwatched = broken(|soak| {
        soak.beside_mut().iter_mut().for_each(|v| v.seen.played = Duration::ZERO);
    });
    assert_eq!(unwatched, ["viewers freeze no more often", "viewers freeze no longer"]);
}

#[test]
fn views_must_not_fail() {
    let fail = |view: &mut View| view.failure = Some("status 503".to_owned());
    assert_eq!(broken(|soak| fail(&mut soak.beside_mut()[0])), ["no more views fail"]);
    let alone = broken(|soak| fail(&mut soak.alone.0.counted[0]));
    assert_eq!(alone, ["no view fails without neighbours"]);
}

#[test]
fn first_frames_must_not_be_later() {
    let later = |by: u64| {
        broken(|soak| {
            soak.beside_mut().iter_mut().for_each(|view| {
                view.first = view.first.map(|first| first + Duration::from_millis(by));
            });
        })
    };
    assert_eq!(later(60), [""; 0]);
    assert_eq!(later(90), ["first frames come no later"]);
    let none = broken(|soak| soak.beside_mut().iter_mut().for_each(|view| view.first = None));
    assert_eq!(none, ["first frames come no later"]);
}

#[test]
fn neighbours_must_have_come_and_have_reached_the_server() {
    let lazy = broken(|soak| {
        (soak.neighbour_mut().attempted, soak.neighbour_mut().reached) = (40, 40);
    });
    assert_eq!(lazy, ["a neighbour"]);
    assert_eq!(broken(|soak| soak.neighbour_mut().reached = 0), ["a neighbour"]);
    assert_eq!(broken(|soak| soak.neighbour_mut().breaches = 1), ["a neighbour"]);
    let few = broken(|soak| {
        let neighbour = soak.neighbour_mut();
        (neighbour.due, neighbour.attempted, neighbour.reached) = (4.0, 4, 4);
    });
    assert_eq!(few, ["a neighbour"]);
}

#[test]
fn memory_must_stay_flat() {
    // 20 MB an hour over a quarter of an hour.
    let grows = |look: &mut Look| look.resident += (look.at.as_secs_f64() / 3_600.0 * 20e6) as u64;
    assert_eq!(broken(|soak| soak.looks.iter_mut().for_each(grows)), ["memory is flat"]);
    // Initial growth does not count, only the second half.
    let begins = broken(|soak| soak.looks[..15].iter_mut().for_each(|look| look.resident /= 2));
    assert_eq!(begins, [""; 0]);
    assert_eq!(broken(|soak| soak.looks.truncate(1)), ["memory is flat"]);
    // A short run only detects runaway memory.
    let short = |per_look: u64| {
        broken(|soak| {
            soak.looks.truncate(6);
            (0..).zip(&mut soak.looks).for_each(|(n, look)| look.resident += n * per_look);
        })
    };
    assert_eq!(short(5_000_000), [""; 0]);
    assert_eq!(short(50_000_000), ["memory is flat"]);
    let after = broken(|soak| soak.last.resident = 50_000_000);
    assert_eq!(after, ["memory does not grow when all viewers leave"]);
}

#[test]
fn departed_viewers_must_leave_nothing_behind() {
    let left = ["departed viewers leave nothing behind"];
    assert_eq!(broken(|soak| soak.last.viewers = 1.0), left);
    assert_eq!(broken(|soak| soak.last.connections = 1.0), left);
    assert_eq!(broken(|soak| soak.last.places = 2.0), left);
    assert_eq!(broken(|soak| soak.last.streams = 2.0), left);
    assert_eq!(broken(|soak| soak.alone.1.connections = 1.0), left);
}

#[test]
fn views_sessions_and_records_must_agree() {
    for sessions in [118.0, 121.0] {
        assert_eq!(broken(|soak| soak.alone.1.sessions = sessions), ["sessions are views"]);
    }
    assert_eq!(broken(|soak| soak.records.rows = 299), ["each session with media has a record"]);
    assert_eq!(
        broken(|soak| soak.last.records_dropped = 1.0),
        ["each session with media has a record"]
    );
    let fleeting = broken(|soak| soak.last.fleeting = 5.0);
    assert_eq!(fleeting, ["each session with media has a record"]);
    let healthy = broken(|soak| soak.alone.1.fleeting = 1.0);
    assert_eq!(healthy, ["each session with media has a record"]);
}

#[test]
fn the_slope_of_a_line_is_exact() {
    let looks: Vec<Look> = (0..60).map(|n| look(n, 50_000_000 + 100_000 * n)).collect();
    assert!((slope(&looks) - 6e6).abs() < 1.0, "{}", slope(&looks));
}

#[test]
fn first_frames_are_ranked() {
    let wait = first_frames(&views().counted, [0.0, 0.5, 1.0]).map(|wait| wait.as_millis());
    assert_eq!(wait, [80, 90, 99]);
}

#[test]
fn newcomers_must_be_let_in() {
    let newcomers = |attempted, reached| {
        broken(|soak| {
            let newcomer = &mut soak.beside.as_mut().expect("neighbours").newcomers[0];
            (newcomer.attempted, newcomer.reached) = (attempted, reached);
        })
    };
    assert_eq!(newcomers(100, 95), [""; 0]);
    assert_eq!(newcomers(100, 94), ["newcomers"]);
    assert_eq!(newcomers(10, 10), ["newcomers"], "too few came");
}

#[test]
fn the_server_must_answer_for_its_health_in_time() {
    let rule = ["/healthz answers in time"];
    let answers = |after| broken(|soak| soak.looks[3].health = after);
    assert_eq!(answers(Duration::from_millis(900)), [""; 0]);
    assert_eq!(answers(Duration::from_millis(1_100)), rule);
}

#[test]
fn memory_and_descriptors_must_stay_bounded() {
    let peak = |resident| broken(|soak| soak.looks[3].resident = resident);
    assert_eq!(peak(500_000_000), [""; 0]);
    assert_eq!(peak(520_000_000), ["memory is bounded"]);
    let open = |descriptors| broken(|soak| soak.looks[3].descriptors = descriptors);
    assert_eq!(open(2_900), [""; 0]);
    assert_eq!(open(3_100), ["descriptors are bounded"]);
    let left = |descriptors| broken(|soak| soak.last.descriptors = descriptors);
    assert_eq!(left(120), [""; 0]);
    assert_eq!(left(130), ["neighbours leave no descriptors behind"]);
}

#[test]
fn the_log_must_stay_short_and_harmless() {
    // The soak of these tests takes 31 minutes.
    let long = |bytes| broken(|soak| soak.log.bytes = bytes);
    assert_eq!(long(15_700_000), [""; 0]);
    assert_eq!(long(15_800_000), ["the log stays short"]);
    assert_eq!(broken(|soak| soak.log.controls = 1), ["the log has no control characters"]);
}

#[test]
fn reports_must_fit_in_their_sessions() {
    let rule = ["reports fit in their sessions"];
    assert_eq!(broken(|soak| soak.records.beyond = 1), rule);
    assert_eq!(broken(|soak| soak.last.reported.frozen_s = 31.0), rule);
    assert_eq!(broken(|soak| soak.last.reported.played_s = f64::NAN), rule);
    assert_eq!(broken(|soak| soak.last.reported.played_s = -30.0), rule);
    assert_eq!(broken(|soak| soak.last.reported.freezes = 501.0), rule);
}
