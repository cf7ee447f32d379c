//! Sessions from the first request to the player's last report.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use super::*;
use crate::config::Config;
use crate::limits::{Place, ProcessLimits};
use crate::viewer::{Protocol, Unit, prefix};
use records::Retention;

impl Sessions {
    /// Starts a session without permits.
    pub(crate) fn open(self: &Arc<Self>, opening: Opening) -> Arc<Session> {
        self.begin(opening, Vec::new())
    }

    /// Starts a session `ago` in the past.
    fn open_since(self: &Arc<Self>, ago: Duration, opening: Opening) -> Arc<Session> {
        let at = Instant::now().checked_sub(ago).expect("enough uptime");
        self.begin_at(at, opening, Vec::new())
    }
}

fn opening(viewer: ViewerId) -> Opening {
    Opening {
        stream: "live/demo".into(),
        protocol: Protocol::Http3,
        format: "flv",
        remote: [192, 0, 2, 77].into(),
        viewer,
        granted: SystemTime::now(),
        until: None,
        unit: Some(Unit(0x2a)),
        cohort: "a".into(),
        scheme: "arq",
        tcp: None,
    }
}

fn beacon(freezes: u64) -> Beacon {
    let frozen = freezes as f64 * 0.2;
    let text = format!(
        r#"{{"viewer":"","stream":"live/demo","first_frame_ms":200.5,"played_s":2,
            "freezes":{freezes},"freeze_s":{frozen},"next_hop":"h3"}}"#
    );
    Beacon::parse(text.as_bytes()).expect("valid")
}

#[test]
fn a_session_ends_if_its_permit_is_evicted_before_or_after_its_start() {
    let text = "[quic]\nmax_connections = 20\n[tcp]\nmax_connections = 1\n[rtmp]\n\
                max_connections = 2";
    let config = Config::parse("edge.toml", text).expect("valid");
    let limits = ProcessLimits::default();
    let enter = |address: [u8; 4]| {
        limits.enter(Place::Session, &config, Some(address.into())).expect("a place")
    };
    let sessions = Arc::new(Sessions::new(None));
    let begin = |place| sessions.begin(opening(ViewerId::random()), vec![place]);
    let mut held: Vec<_> = (0..22).map(|_| enter([192, 0, 2, 1])).collect();
    // Eviction starts with the newest of the largest network.
    let (late, early) = (held.pop().expect("held"), held.pop().expect("held"));
    let early = begin(early);
    assert!(!early.stay().is_over());
    let _others = [enter([198, 51, 100, 1]), enter([203, 0, 113, 1])];
    assert!(late.is_evicted());
    assert!(begin(late).stay().is_over() && early.stay().is_over());
    assert!(held.into_iter().all(|place| !begin(place).stay().is_over()));
}

#[test]
fn a_record_joins_transport_media_and_player() {
    let (sessions, x) = (Arc::new(Sessions::new(None)), ViewerId::random());
    let session = sessions.open(opening(x));
    let seen = ViewerProgress {
        bytes: 1_000_000,
        skips: 2,
        skipped_ms: 3_000,
        thinned: 40,
        ..ViewerProgress::default()
    };
    session.on_media(&seen);
    session.on_first_frame();
    session.on_first_frame_bytes(43_100);
    session.on_transport(TransportStats {
        rtt: Duration::from_millis(60),
        totals: recovery::Totals {
            acked: 950,
            lost: 50,
            first_transmissions: 950,
            retransmissions: 57,
            finished: 40,
            finished_late: 10,
            rounds: 55,
            rounds_max: 4,
            ..recovery::Totals::default()
        },
        ..TransportStats::default()
    });
    sessions.report(x, beacon(1));
    sessions.report(x, beacon(3));
    let record = session.record();
    assert_eq!(
        (record.delivery.bytes, record.delivery.skips, record.path.rtt_ms),
        (Some(1_000_000), Some(2), Some(60.0))
    );
    assert_eq!(
        (record.path.loss_rate, record.recovery.retransmission_ratio),
        (Some(0.05), Some(0.06))
    );
    assert_eq!(
        (record.startup.first_frame_bytes, record.recovery.recovery_deterioration),
        (Some(43_100), Some(0.25))
    );
    assert_eq!(
        (record.recovery.rounds, record.recovery.rounds_max, record.session.group),
        (Some(55), Some(4), None)
    );
    assert_eq!(
        (record.player.player_freezes, record.player.player_first_frame_ms),
        (Some(3), Some(200.5))
    );
    assert_eq!(record.session.prefix.as_deref(), Some("192.0.2.0/24"));
    assert_eq!(record.session.unit.as_deref(), Some("000000000000002a"));
    assert!(record.startup.first_frame_ms.is_some() && record.recovery.recovery_max_ms.is_none());
    assert_eq!(sessions.all().len(), 1);
}

#[test]
fn the_reported_buffer_level_is_clamped_and_kept() {
    let (sessions, x) = (Arc::new(Sessions::new(None)), ViewerId::random());
    let session = sessions.open(opening(x));
    let report = |buffer: &str| {
        let text = format!(
            r#"{{"viewer":"","stream":"live/demo","played_s":1,"freezes":0,"freeze_s":0{buffer}}}"#
        );
        Beacon::parse(text.as_bytes()).map(|beacon| sessions.report(x, beacon)).is_some()
    };
    let slack = || session.buffered().map(|buffered| buffered.media);
    assert!(report("") && slack().is_none(), "optional");
    assert!(report(r#","buffer_ms":0"#) && slack() == Some(Duration::ZERO));
    assert!(report(r#","buffer_ms":1234.5"#));
    assert!(report("") && slack() == Some(Duration::from_millis(1_234)));
    assert!(report(r#","buffer_ms":1e9"#) && slack() == Some(Duration::from_secs(60)));
    assert_eq!(session.buffered().map(|buffered| buffered.report), Some(3), "one had no level");
    assert!(!report(r#","buffer_ms":-1"#) && !report(r#","buffer_ms":1e300"#));
}

#[test]
fn a_report_after_the_end_enters_the_record() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let writer =
        RecordWriter::start(directory.path(), Duration::from_secs(60), Retention::default());
    let writer = writer.expect("started");
    let (sessions, x) = (Arc::new(Sessions::new(Some(writer))), ViewerId::random());
    sessions.open(opening(x)).add_media(1);
    sessions.report(x, beacon(4));
    sessions.report(ViewerId::random(), beacon(5));
    assert!(sessions.all().is_empty());
    sessions.flush(true);
    let mut files = std::fs::read_dir(directory.path()).expect("a directory");
    let lines = files
        .find_map(|file| {
            let path = file.expect("an entry").path();
            path.extension()
                .is_some_and(|e| e == "jsonl")
                .then(|| std::fs::read_to_string(path).expect("text"))
        })
        .expect("JSON lines");
    let record: serde_json::Value = serde_json::from_str(lines.trim()).expect("one line");
    assert_eq!(record["player_freezes"], 4);
}

#[test]
fn a_report_after_the_end_claims_no_more_than_the_session_lasted() {
    let (sessions, x) = (Arc::new(Sessions::new(None)), ViewerId::random());
    let first = sessions.open(opening(x));
    first.add_media(1);
    drop(first);
    // Any time after the end shows whether it counts.
    std::thread::sleep(Duration::from_millis(50));
    let late = Beacon { played_s: 9.0, freezes: 0, ..beacon(0) };
    sessions.report(x, late);
    let table = sessions.table();
    let ended = table.ended.values().next().expect("a session that ended");
    let lasted = ended.record.session.duration_s.expect("a duration");
    let played = ended.record.player.player_played_s.expect("a report");
    assert!(lasted < 4.0, "otherwise the report fits: {lasted}");
    assert!((played - lasted - records::SLACK_S).abs() < 1e-6, "{played} of {lasted}");
}

#[test]
fn each_session_of_a_reconnecting_page_gets_its_own_counts() {
    let (sessions, x) = (Arc::new(Sessions::new(None)), ViewerId::random());
    let first = sessions.open(opening(x));
    sessions.report(x, beacon(3));
    first.add_media(1);
    drop(first);
    let second = sessions.open(opening(x));
    sessions.report(x, beacon(5));
    assert_eq!(second.record().player.player_freezes, Some(2));
    assert_eq!(second.record().player.player_first_frame_ms, None, "the page had its first frame");
    let totals = sessions.totals();
    let all = totals.values().next().expect("one key");
    assert_eq!((all.freezes, all.sessions, all.open, all.players), (5, 2, 1, 2));
}

#[test]
fn a_session_without_media_leaves_no_record_and_no_state() {
    let sessions = Arc::new(Sessions::new(None));
    for _ in 0..1_000 {
        drop(sessions.open(opening(ViewerId::random())));
    }
    assert_eq!((sessions.without_media(), sessions.flush(true).len()), (1_000, 0));
    let table = sessions.table();
    assert!(table.open.is_empty() && table.by_viewer.is_empty() && table.ended.is_empty());
}

#[test]
fn opening_and_cancelling_streams_leaves_a_bounded_number_of_records() {
    let sessions = Arc::new(Sessions::new(None));
    let open = |last| {
        let remote = [192, 0, 2, last].into();
        let session = sessions.open(Opening { remote, ..opening(ViewerId::random()) });
        session.add_media(1);
        session
    };
    let honest = sessions.open_since(rows::FLEETING, opening(ViewerId::random()));
    honest.add_media(1);
    let reported = open(2);
    sessions.report(reported.opening.viewer, beacon(1));
    for _ in 0..9_000 {
        drop(open(3));
    }
    drop((honest, reported));
    let rows = sessions.flush(true).len() as u64;
    assert!((202..300).contains(&rows), "{rows}");
    assert_eq!(sessions.fleeting() + rows, 9_002);
    let totals = sessions.totals();
    assert_eq!(totals.values().next().expect("one key").sessions, 9_002, "all are counted");
}

#[test]
fn no_report_makes_totals_decrease_or_exceed_the_session() {
    let (sessions, x) = (Arc::new(Sessions::new(None)), ViewerId::random());
    let session = sessions.open_since(Duration::from_secs(100), opening(x));
    session.add_media(1);
    let sums = || {
        let totals = sessions.totals();
        let all = totals.values().next().expect("one key");
        let first = all.player_first_frames.count();
        [all.played_s, all.freezes as f64, all.freeze_s, first as f64]
    };
    let mut before = [0.0; 4];
    let mut report = |text: &str| {
        if let Some(beacon) = Beacon::parse(text.as_bytes()) {
            sessions.report(x, beacon);
        }
        let now = sums();
        assert!(now.iter().zip(before).all(|(now, before)| *now >= before), "{before:?} {now:?}");
        assert!(now[0] + now[2] <= 106.0 && now[1] <= 424.0, "{now:?}");
        before = now;
    };
    let of = |played: &str, freezes: &str, frozen: &str, first: &str| {
        format!(
            r#"{{"viewer":"","stream":"live/demo","played_s":{played},"freezes":{freezes},
                "freeze_s":{frozen},"first_frame_ms":{first}}}"#
        )
    };
    report(&of("90", "2", "0.5", "300"));
    for n in ["0", "1e300", "-1", "NaN", "2592000", "1e400", "2500000000", "18446744073709551615"] {
        for m in ["0", "99", "2592000", "1e6"] {
            report(&of(n, m, n, m));
            report(&of(m, n, m, n));
        }
    }
    report(&of("1,\"played_s\":2592000", "0", "0", "1"));
    let mut session = Some(session);
    drop(session.take());
    report(&of("0", "2500000000", "2592000", "2592000000"));
    report(&of("0", "0", "0", "0"));
    let record = sessions.flush(true).remove(0);
    assert_eq!(record.player.report_clamped, Some(1));
    assert!(record.player.player_freeze_s.is_some_and(|s| s < 106.0), "{record:?}");
    let excess: BTreeMap<_, _> = sessions.clamped_reports().collect();
    assert!(excess["time"] > 0 && excess["freezes"] > 0 && excess["first_frame"] > 0, "{excess:?}");
}

#[test]
fn too_many_ended_sessions_are_written_without_waiting_for_reports() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let writer =
        RecordWriter::start(directory.path(), Duration::from_secs(60), Retention::default());
    let writer = writer.expect("started");
    let sessions = Arc::new(Sessions::new(Some(writer)));
    for _ in 0..MAX_ENDED + 10 {
        sessions.open_since(rows::FLEETING, opening(ViewerId::random())).add_media(1);
    }
    assert_eq!(sessions.table().by_viewer.len(), MAX_ENDED);
    assert_eq!(sessions.flush(true).len(), MAX_ENDED, "ten are already written");
    assert!(sessions.table().by_viewer.is_empty());
    assert_eq!(sessions.records_dropped(), 0);
}

#[test]
fn reports_do_not_deadlock_with_ending_sessions_of_the_viewer() {
    let (sessions, x) = (Arc::new(Sessions::new(None)), ViewerId::random());
    let done = Arc::new(AtomicBool::new(false));
    let (ended, has_ended) = mpsc::channel();
    for _ in 0..2 {
        let (sessions, done, ended) = (sessions.clone(), done.clone(), ended.clone());
        std::thread::spawn(move || {
            for _ in 0..20_000 {
                // The reports are for another stream.
                drop(sessions.open(Opening { stream: "live/other".into(), ..opening(x) }));
            }
            done.store(true, Ordering::Relaxed);
            ended.send(()).expect("waited for");
        });
    }
    std::thread::spawn(move || {
        while !done.load(Ordering::Relaxed) {
            sessions.report(x, beacon(1));
        }
        ended.send(()).expect("waited for");
    });
    for _ in 0..3 {
        has_ended.recv_timeout(Duration::from_secs(60)).expect("no deadlock");
    }
}

#[test]
fn impossible_reports_are_rejected() {
    let good = r#"{"viewer":"x","stream":"s","played_s":1,"freezes":0,"freeze_s":0}"#;
    assert!(Beacon::parse(good.as_bytes()).is_some());
    for bad in [
        "",
        "[]",
        "{}",
        &good.replace("\"played_s\":1", "\"played_s\":-1"),
        &good.replace("\"played_s\":1", "\"played_s\":1e300"),
        &good.replace("\"freezes\":0", "\"freezes\":18446744073709551615"),
        &good.replace("\"freezes\":0", "\"freezes\":-1"),
    ] {
        assert_eq!(Beacon::parse(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn prefixes_name_networks_not_addresses() {
    assert_eq!(prefix([192, 0, 2, 77].into()), "192.0.2.0/24");
    assert_eq!(prefix("::ffff:192.0.2.77".parse().expect("an address")), "192.0.2.0/24");
    assert_eq!(prefix("2001:db8:1:2::3".parse().expect("an address")), "2001:db8:1::/48");
}
