//! Hand-written records and qlogs: rules, searches, and hostile input. Sessions of the testbed are
//! in the crate `lab`.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;

const START: u64 = 1_800_000_000_000;
const VIEWER: &str = "0123456789abcdef";

/// A session without a fault and with freezes.
fn row() -> Value {
    json!({
        "session": 7, "viewer": VIEWER, "stream": "live/demo", "protocol": "h3", "format": "flv",
        "scheme": "deadline", "prefix": "192.0.2.0/24", "started_ms": START, "duration_s": 60.0,
        "goodput_mbps": 2.0, "stream_mbps": 2.0, "skips": 0, "thinned": 0,
        "congestion_controller": "bbr", "rtt_min_ms": 20.0, "rtt_ms": 25.0, "loss_rate": 0.0002,
        "packets_settled": 10_000, "packets_lost": 2, "burst_longest": 1, "rounds_max": 1,
        "recovery_count": 0, "units_late": 0, "open_rate_mbps": 9.0, "max_bandwidth_mbps": 9.0,
        "player_first_frame_ms": 300.0, "player_freezes": 3, "player_freeze_s": 4.2,
        "player_played_s": 55.0,
    })
}

/// The row with other values; `null` removes one.
fn with(changes: Value) -> Value {
    let mut row = row();
    for (key, value) in changes.as_object().expect("an object") {
        row[key] = value.clone();
    }
    row
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new(rows: &[Value]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(directory.path().join("sessions-1.jsonl"), lines).expect("written");
        Self(directory)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.at(name), text).expect("written");
        self.at(name)
    }

    fn why(&self, session: &str, qlog: Option<&Path>) -> Result<Explanation, Error> {
        why(&WhyOptions {
            session: session.to_owned(),
            records: vec![self.0.path().to_owned()],
            qlog: qlog.map(Path::to_owned),
            connections: None,
        })
    }
}

/// The text of an explanation in one line.
fn words(explanation: &Explanation) -> String {
    explanation.text().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn explained(row: Value) -> Explanation {
    Scratch::new(&[row]).why(VIEWER, None).expect("found")
}

fn first(row: Value) -> (Cause, Certainty) {
    let explanation = explained(row);
    let found = explanation.causes.first().unwrap_or_else(|| panic!("{}", explanation.text()));
    (found.cause, found.certainty)
}

#[test]
fn each_rule_has_its_verdict() {
    for (changes, cause, certainty) in [
        (json!({}), Cause::Player, Certainty::Possible),
        (
            json!({"protocol": "h2", "loss_rate": 0.04, "packets_lost": 400}),
            Cause::Tcp,
            Certainty::Likely,
        ),
        (json!({"cap_mbps": 1.8}), Cause::Cap, Certainty::Likely),
        (
            json!({"open_rate_mbps": 1.4, "max_bandwidth_mbps": 1.5, "skips": 4}),
            Cause::Capacity,
            Certainty::Likely,
        ),
        (json!({"open_rate_mbps": 1.4}), Cause::Capacity, Certainty::Possible),
        (json!({"rtt_ms": 420.0}), Cause::Queue, Certainty::Likely),
        (
            json!({"burst_longest": 60, "rounds_max": 5, "loss_rate": 0.01, "packets_lost": 100}),
            Cause::Outage,
            Certainty::Likely,
        ),
        (
            json!({"units_finished": 90, "units_late": 9, "recovery_p95_ms": 640.0,
                   "loss_rate": 0.03, "packets_lost": 300, "scheme": "arq"}),
            Cause::Loss,
            Certainty::Likely,
        ),
        (
            json!({"congestion_controller": "cubic", "loss_rate": 0.03, "packets_lost": 300,
                   "goodput_mbps": 1.2}),
            Cause::Controller,
            Certainty::Likely,
        ),
        (
            json!({"player_first_frame_ms": 9e3, "player_freezes": 0, "player_freeze_s": 0.0}),
            Cause::Startup,
            Certainty::Possible,
        ),
    ] {
        assert_eq!(first(with(changes.clone())), (cause, certainty), "{changes}");
    }
}

#[test]
fn remedies_and_evidence_have_numbers_with_units() {
    let explanation = explained(with(
        json!({"open_rate_mbps": 1.0, "skips": 4, "skipped_ms": 9000, "goodput_mbps": 0.9}),
    ));
    let text = words(&explanation);
    for part in [
        "viewer 0123456789abcdef, live/demo over flv/h3, scheme deadline, 2027-01-15T08:00:00Z",
        "The player froze 3 times, for 4.2 s.",
        "The path carried at most 1.00 Mbps for a stream of 2.00 Mbps, and media was skipped.",
        "open_rate_mbps 1 Mbps",
        "skipped_ms 9000 ms",
        "a rendition of at most 0.80 Mbps",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let json: Value = serde_json::from_str(&explanation.json()).expect("JSON");
    assert_eq!(json["causes"][0]["cause"], "capacity");
    assert_eq!(json["causes"][0]["evidence"][0]["unit"], "Mbps");
    assert_eq!(json["outcome"], "froze");
    let shown = explanation.text();
    assert!(shown.lines().all(|line| line.chars().count() <= 104), "{shown}");
}

#[test]
fn neighbours_tell_publisher_server_and_network_apart() {
    let other = |n: usize, stream: &str, prefix: &str, freezes: u32| {
        with(json!({"viewer": format!("{n:016x}"), "session": 100 + n, "stream": stream,
                    "prefix": prefix, "player_freezes": freezes}))
    };
    let beside = |stream: &str, prefix: &str, freezes: u32| {
        let mut rows = vec![row()];
        rows.extend((1..=5).map(|n| other(n, stream, prefix, freezes)));
        let explanation = Scratch::new(&rows).why(VIEWER, None).expect("found");
        let found = explanation.causes[0].clone();
        (found.cause, found.certainty)
    };
    assert_eq!(beside("live/demo", "198.51.100.0/24", 2), (Cause::Publisher, Certainty::Likely));
    assert_eq!(beside("live/b", "198.51.100.0/24", 2), (Cause::Server, Certainty::Likely));
    assert_eq!(beside("live/b", "192.0.2.0/24", 2), (Cause::Queue, Certainty::Possible));
    assert_eq!(beside("live/demo", "198.51.100.0/24", 0), (Cause::Player, Certainty::Likely));
    // Sessions at other times and clamped reports do not count.
    let far = with(json!({"viewer": "1", "started_ms": START + 60_000_000, "session": 9}));
    let liar = with(json!({"viewer": "2", "player_freeze_s": 1e9, "session": 10}));
    let explanation = Scratch::new(&[row(), far, liar]).why(VIEWER, None).expect("found");
    assert_eq!(explanation.neighbours, Neighbours::default());
}

#[test]
fn sessions_are_found_by_viewer_digits_number_and_place() {
    let worse = with(json!({"session": 8, "player_freeze_s": 9.0}));
    let scratch = Scratch::new(&[row(), worse]);
    for id in [VIEWER, "0123", "8", "sessions-1:2", "sessions-1.jsonl:2"] {
        let explanation = scratch.why(id, None).unwrap_or_else(|error| panic!("{id}: {error}"));
        assert!(explanation.session.record.ends_with(":2"), "{id}: {:?}", explanation.session);
    }
    let explanation = scratch.why(VIEWER, None).expect("found");
    assert!(words(&explanation).contains("other sessions of this viewer: "));
    assert!(scratch.why("7", None).expect("found").session.record.ends_with(":1"));
}

#[test]
fn an_unknown_session_names_the_nearest_and_how_to_find_one() {
    let scratch = Scratch::new(&[row(), with(json!({"viewer": "ffffffffffffffff"}))]);
    let error = scratch.why("0123456789abcdee", None).expect_err("unknown").to_string();
    assert!(error.starts_with("no session `0123456789abcdee` in 2 records"), "{error}");
    let near = error.find("0123456789abcdef (live/demo at 2027-01-15").expect("the nearest");
    assert!(near < error.find("ffffffffffffffff").expect("the other"), "{error}");
    assert!(error.contains("mendcast records export") && error.lines().count() == 1, "{error}");
    // A number that several processes used.
    let twin = with(json!({"viewer": "ffffffffffffffff"}));
    let error = Scratch::new(&[row(), twin]).why("7", None).expect_err("ambiguous").to_string();
    assert!(error.contains("give FILE:ROW") && error.contains("sessions-1.jsonl:2"), "{error}");
    for id in ["", "\u{1b}[31m\n", &"9".repeat(100_000)] {
        let error = scratch.why(id, None).expect_err("unknown").to_string();
        assert!(error.len() < 2_000 && !error.contains('\u{1b}'), "{error}");
    }
    let error = Scratch::new(&[]).why(VIEWER, None).expect_err("empty").to_string();
    assert!(error.starts_with("no session") && !error.contains("nearest"), "{error}");
}

#[test]
fn missing_columns_are_no_verdict() {
    let bare = json!({"viewer": VIEWER, "session": 1, "duration_s": 1.0});
    let explanation = explained(bare);
    assert!(explanation.causes.is_empty() && explanation.is_not_enough_data);
    assert_eq!(explanation.outcome, Outcome::Unreported);
    let text = words(&explanation);
    for part in ["Not enough data", "no player_freezes, player_freeze_s", "no loss_rate", "no time"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    // Aborted before the first picture.
    let aborted = with(json!({"player_freezes": null, "player_freeze_s": null,
        "player_played_s": null, "player_first_frame_ms": null, "duration_s": 0.8}));
    let explanation = explained(aborted);
    assert_eq!(explanation.outcome, Outcome::NoPicture);
    assert!(words(&explanation).contains("shorter than 2 s"), "{}", explanation.text());
}

#[test]
fn a_session_without_freezes_has_conditions_and_no_culprit() {
    let calm = with(json!({"player_freezes": 0, "player_freeze_s": 0.0}));
    let explanation = explained(calm.clone());
    assert_eq!((explanation.outcome, explanation.causes.len()), (Outcome::NoFreeze, 0));
    let mut queued = calm;
    queued["rtt_ms"] = json!(300.0);
    assert!(words(&explained(queued)).contains("did not suffice"));
}

#[test]
fn impossible_values_are_named_and_ignored() {
    let explanation = explained(with(json!({
        "rtt_ms": -5.0, "loss_rate": 7.0, "packets_lost": 20_000, "cap_mbps": "NaN",
        "player_freeze_s": 1e300, "stream": "live/\u{1b}[2J", "open_rate_mbps": 0.0,
    })));
    let text = words(&explanation);
    for part in ["rtt_ms = -5", "loss_rate = 7", "packets_lost = 20000", "cap_mbps = NaN"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(text.contains("contradicts the server's clock") && !text.contains('\u{1b}'), "{text}");
    assert!(explanation.causes.is_empty(), "{text}");
    // Numbers that JSON readers reject break their line only.
    let scratch = Scratch::new(&[row()]);
    let lines = format!("{}\n{{\"viewer\":\"{VIEWER}\",\"rtt_ms\":1e400}}\n", row());
    scratch.write("sessions-1.jsonl", lines);
    let explanation = scratch.why(VIEWER, None).expect("found");
    assert_eq!(explanation.sources.unreadable, 1);
}

/// A qlog with a packet of 1,000 bytes each 10 ms, acknowledged 20 ms later. In `stop`, nothing is
/// sent; packets sent in `lost` are lost; from `silent` on, for 2 s, there is no event at all.
fn qlog(stop: core::ops::Range<u64>, lost: core::ops::Range<u64>, silent: u64) -> String {
    let mut out = format!(
        "\u{1e}{}\n",
        json!({"qlog_version": "0.3", "trace": {"common_fields": {"reference_time": START}}})
    );
    let event = |out: &mut String, time: u64, name: &str, data: Value| {
        let _ = writeln!(out, "\u{1e}{}", json!({"time": time, "name": name, "data": data}));
    };
    event(
        &mut out,
        1,
        "recovery:metrics_updated",
        json!({"min_rtt": 20.0, "smoothed_rtt": 20.0,
        "latest_rtt": 20.0, "rtt_variance": 1.0}),
    );
    let (mut sent, mut waiting) = (0_u64, Vec::new());
    for time in (10..60_000).step_by(10) {
        if (silent..silent + 2_000).contains(&time) {
            continue;
        }
        for number in std::mem::take(&mut waiting) {
            event(
                &mut out,
                time,
                "transport:packet_received",
                json!({
                "header": {"packet_type": "1RTT", "packet_number": number},
                "frames": [{"frame_type": "ack", "acked_ranges": [[number, number]]}]}),
            );
        }
        if stop.contains(&time) {
            continue;
        }
        // Lost data is sent again, in the packet after the burst.
        event(
            &mut out,
            time,
            "transport:packet_sent",
            json!({
            "header": {"packet_type": "1RTT", "packet_number": sent},
            "frames": [{"frame_type": "stream", "stream_id": 0, "offset": sent * 1000,
                        "length": 1000}]}),
        );
        if lost.contains(&time) {
            event(
                &mut out,
                time,
                "recovery:packet_lost",
                json!({
                "header": {"packet_type": "1RTT", "packet_number": sent}}),
            );
            event(
                &mut out,
                time,
                "transport:packet_received",
                json!({
                "header": {"packet_type": "1RTT", "packet_number": sent}, "frames": []}),
            );
            let repeated = 1_000_000 + sent;
            if time + 10 >= lost.end {
                for again in 0..(lost.end - lost.start) / 10 {
                    event(
                        &mut out,
                        time,
                        "transport:packet_sent",
                        json!({
                        "header": {"packet_type": "1RTT", "packet_number": repeated + again},
                        "frames": [{"frame_type": "stream", "stream_id": 0,
                                    "offset": (sent - again) * 1000, "length": 1000}]}),
                    );
                    waiting.push(repeated + again);
                }
            }
        } else {
            waiting.push(sent);
        }
        sent += 1;
    }
    event(&mut out, 59_999, "connectivity:connection_closed", json!({}));
    out
}

fn by_qlog(text: impl AsRef<[u8]>) -> Explanation {
    let scratch = Scratch::new(&[with(json!({"stream_mbps": 0.8, "goodput_mbps": 0.8}))]);
    let file = scratch.write(&format!("{START}-ab.sqlog"), text);
    let by_file = scratch.why(VIEWER, Some(&file)).expect("found");
    let by_directory = scratch.why(VIEWER, Some(scratch.0.path())).expect("found");
    assert_eq!(by_file.causes, by_directory.causes, "{}", by_directory.text());
    by_file
}

#[test]
fn a_qlog_shows_stalls_of_publisher_path_and_server() {
    let none = 0..0;
    let calm = by_qlog(qlog(none.clone(), none.clone(), 100_000));
    assert!(calm.timeline.is_empty(), "{}", calm.text());
    for (text, cause, at, length) in [
        (qlog(20_000..23_000, none.clone(), 100_000), Cause::Publisher, 20.0, 3.0),
        (qlog(none.clone(), 30_000..30_500, 100_000), Cause::Loss, 30.0, 0.5),
        (qlog(none.clone(), none.clone(), 40_000), Cause::Server, 40.0, 2.0),
    ] {
        let explanation = by_qlog(text);
        let shown = explanation.text();
        assert_eq!(explanation.causes[0].cause, cause, "{shown}");
        assert_eq!(explanation.causes[0].certainty, Certainty::Shown, "{shown}");
        let stall = &explanation.timeline[0];
        assert!((stall.at_s - at).abs() < 0.1, "{shown}");
        assert!((stall.length_s - length).abs() < 0.2, "{shown}");
    }
}

#[test]
fn two_causes_of_a_qlog_are_ranked_by_time() {
    let explanation = by_qlog(qlog(20_000..23_000, 30_000..30_500, 50_000));
    let causes: Vec<Cause> = explanation.causes.iter().map(|found| found.cause).collect();
    assert_eq!(causes, [Cause::Publisher, Cause::Server, Cause::Loss], "{}", explanation.text());
}

#[test]
fn truncated_damaged_and_hostile_qlogs_give_notes_and_no_panic() {
    let whole = qlog(20_000..23_000, 0..0, 100_000);
    let cut = by_qlog(&whole[..whole.len() / 2 - 7]);
    assert_eq!(cut.causes[0].cause, Cause::Publisher);
    assert!(words(&cut).contains("the qlog ends at"), "{}", cut.text());
    assert!(words(&cut).contains("damaged events"), "{}", cut.text());
    let hostile = [
        r#"{"time":1e400,"name":"x"}"#,
        r#"{"time":NaN,"name":"x"}"#,
        r#"{"time":-5,"name":"transport:packet_sent","data":{}}"#,
        r#"{"time":1e300,"name":"transport:packet_sent","data":{}}"#,
        r#"{"time":5,"name":"transport:packet_received","data":{"header":{"packet_type":"1RTT"},
            "frames":[{"frame_type":"ack",
            "acked_ranges":[[0,18446744073709551615],[9,1],[],[3]]}]}}"#,
        r#"{"time":6,"name":"transport:packet_sent","data":{"header":{"packet_type":"1RTT",
            "packet_number":18446744073709551615},"frames":[{"frame_type":"stream","stream_id":0,
            "offset":18446744073709551615,"length":18446744073709551615}]}}"#,
        r#"{"time":7,"name":"recovery:packet_lost","data":{"header":{"packet_type":"1RTT",
            "packet_number":18446744073709551615}}}"#,
        r#"{"time":7,"name":"recovery:metrics_updated","data":{"min_rtt":-1,"latest_rtt":1e308}}"#,
        "[[[[[[",
        "\u{0}\u{0}",
        "null",
        "7",
    ];
    let mut text = whole.clone();
    for line in hostile {
        let _ = writeln!(text, "\u{1e}{}", line.replace('\n', ""));
    }
    // Later events are out of order, and do not move time backwards.
    text += &whole;
    let scratch = Scratch::new(&[row()]);
    let file = scratch.write("1-x.sqlog", text);
    let explanation = scratch.why(VIEWER, Some(&file)).expect("found");
    assert!(explanation.causes.iter().any(|found| found.cause == Cause::Publisher));
    let mut random = Vec::from(whole.as_bytes());
    for place in (0..random.len()).step_by(97) {
        random[place] = random[place].wrapping_mul(31).wrapping_add(place as u8);
    }
    let file = scratch.write("2-x.sqlog", random);
    scratch.why(VIEWER, Some(&file)).expect("found");
    for name in ["nowhere.sqlog", "no/where"] {
        assert!(scratch.why(VIEWER, Some(&scratch.at(name))).is_err());
    }
}

#[test]
fn a_qlog_of_another_connection_is_not_used_and_a_given_one_is_doubted() {
    let text = qlog(20_000..23_000, 0..0, 100_000).replace("\"min_rtt\":20.0", "\"min_rtt\":33.0");
    let scratch = Scratch::new(&[row()]);
    let file = scratch.write(&format!("{START}-ab.sqlog"), text);
    let explanation = scratch.why(VIEWER, Some(scratch.0.path())).expect("found");
    assert!(explanation.sources.qlog.is_none() && explanation.timeline.is_empty());
    assert!(words(&explanation).contains("not sampled"), "{}", explanation.text());
    let explanation = scratch.why(VIEWER, Some(&file)).expect("found");
    assert!(words(&explanation).contains("another connection"), "{}", explanation.text());
}

#[test]
fn the_connection_log_adds_the_end_of_the_connection() {
    let scratch = Scratch::new(&[row()]);
    let line = |remote: &str, rtt: f64| {
        json!({"event": "connection_closed", "remote": remote, "min_rtt_ms": rtt,
               "migrations": 2, "pto_count": 9, "closed_by": "silence", "reason": "idle\u{1b}"})
    };
    let text = format!(
        "broken\n{}\n{}\n{}\n",
        line("198.51.100.1:9", 20.0),
        line("192.0.2.7:4433", 20.0),
        line("192.0.2.7:4433", 31.0)
    );
    let connections = Some(scratch.write("connections.log", text));
    let options = WhyOptions {
        session: VIEWER.to_owned(),
        records: vec![scratch.at("sessions-1.jsonl")],
        qlog: None,
        connections,
    };
    let explanation = why(&options).expect("found");
    let shown = words(&explanation);
    assert!(explanation.sources.connection_log, "{shown}");
    assert!(shown.contains("closed by silence") && shown.contains("migrations: 2"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
}
