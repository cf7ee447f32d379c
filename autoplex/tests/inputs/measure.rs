//! Damaged, hostile and late records, and crashed runs.

use std::fs;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::parquet::arrow::ArrowWriter;
use mendcast_autoplex::engine::{Engine, Kept, Source};
use mendcast_autoplex::measure::DropReason;
use mendcast_autoplex::rows;
use serde_json::{Value, json};

use super::*;

/// Returns the numbers of session files and sessions.
fn count(store: &Store) -> (usize, i64) {
    let files = store.sessions_between(NOW - 86_400, NOW + 3_600).expect("listed");
    let sql = "SELECT CAST(COUNT(DISTINCT session) AS BIGINT) AS n, \
               CAST(COUNT(*) AS BIGINT) AS all_of FROM sessions";
    let engine = Engine::new(1).expect("threads");
    let found =
        engine.run(sql, "sessions", Source::Files(files.clone(), &rows::COLUMNS, Kept::Few));
    let found = found.expect("counted");
    assert_eq!(found.columns[0], found.columns[1], "duplicate sessions");
    (files.len(), found.columns[0][0])
}

#[test]
fn each_record_is_measured_once_in_any_directory() {
    let root = tempfile::tempdir().expect("a folder");
    let (edges, store) = (root.path().join("records"), Store::new(&root.path().join("out")));
    // The same name at two edges, one of them nested, and incomplete files.
    write(&edges.join("a"), "sessions-1", (0..30).map(record));
    write(&edges.join("b/c"), "sessions-1", (0..20).map(record));
    fs::write(edges.join("a/sessions-2.jsonl"), record(1).json()).expect("written");
    fs::write(edges.join("a/sessions-2.parquet.part"), "half").expect("written");
    let paths = [edges.clone()];
    let summary = measured(&paths, &store, &Geo::default()).expect("measured");
    assert_eq!((summary.sources, summary.sessions), (2, 50), "{summary}");
    assert_eq!(count(&store), (2, 50));
    let again = measured(&paths, &store, &Geo::default()).expect("measured");
    assert_eq!((again.sources, again.sessions), (0, 0), "{again}");
    // Late records are added to their hour.
    let late = |n| {
        let mut record = record(n);
        record.session.started_ms = Some((NOW as i64 - 9_000) * 1_000);
        record
    };
    write(&edges.join("a"), "sessions-3", (0..7).map(late).chain((0..3).map(record)));
    let summary = measured(&paths, &store, &Geo::default()).expect("measured");
    assert_eq!((summary.sources, summary.sessions), (1, 10), "{summary}");
    assert_eq!(count(&store), (4, 60));
    let hour = store.sessions_between(NOW - 9_000, NOW - 8_900).expect("listed");
    assert_eq!(hour.len(), 1, "{hour:?}");
}

#[test]
fn the_run_after_a_crash_completes_the_measurement() {
    let root = tempfile::tempdir().expect("a folder");
    let (edges, store) = (root.path().join("records"), Store::new(&root.path().join("out")));
    write(&edges, "sessions-1", (0..30).map(record));
    measured(core::slice::from_ref(&edges), &store, &Geo::default()).expect("measured");
    let file = store.sessions_between(NOW - 600, NOW).expect("listed").remove(0);
    let whole = fs::read(&file).expect("there");
    // The run crashed with one hour written, another in part, and no mark.
    fs::remove_file(store.path("measured/sessions-1")).expect("a mark");
    fs::write(file.with_extension("parquet.part"), &whole[..whole.len() / 2]).expect("written");
    assert_eq!(count(&store), (1, 30), "incomplete files are ignored");
    let summary = measured(&[edges], &store, &Geo::default()).expect("measured");
    assert_eq!((summary.sources, summary.sessions), (1, 30), "{summary}");
    assert_eq!(count(&store), (1, 30));
    assert!(fs::read(&file).expect("there") == whole);
    assert!(!file.with_extension("parquet.part").exists());
}

#[test]
fn records_with_hostile_values_are_dropped_and_counted() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("hostile.jsonl");
    let with = |changes: &[(&str, Value)]| {
        let mut row = record(1).object();
        changes.iter().for_each(|(name, value)| drop(row.insert((*name).into(), value.clone())));
        Value::from(row).to_string() + "\n"
    };
    let numbers = [
        "duration_s",
        "started_ms",
        "first_transmissions",
        "retransmissions",
        "goodput_mbps",
        "rtt_ms",
        "max_in_flight",
        "max_window",
        "open_rate_mbps",
    ];
    let mut text = with(&[]);
    for name in numbers {
        for value in [json!("NaN"), json!(-1), json!(1e300), json!("x"), json!([]), json!(true)] {
            text += &with(&[(name, value)]);
        }
    }
    text += &with(&[("rtt_ms", json!(0))]);
    // Required values are missing. The open rate is optional.
    for name in numbers.iter().filter(|name| **name != "open_rate_mbps") {
        text += &with(&[(name, Value::Null)]);
    }
    text += &with(&[("open_rate_mbps", Value::Null)]);
    text += &with(&[("duration_s", json!(9.9))]);
    text += &with(&[("first_transmissions", json!(499))]);
    text += &with(&[("started_ms", json!((NOW + 30) * 1_000))]);
    text += &with(&[("started_ms", json!((NOW - 90_000) * 1_000))]);
    text += &with(&[("group", Value::Null)]);
    text += &with(&[("group", json!("\u{0}\n"))]);
    text += &with(&[("group", json!("x\ny,z".repeat(100)))]);
    text += &with(&[("prefix", json!("10.0.0.0/24\n1,2"))]);
    text += &with(&[("player_played_s", json!(-5)), ("player_freezes", json!("NaN"))]);
    text += "{\"goodput_mbps\": 1e999}\nno record\n";
    fs::write(&path, text).expect("written");
    let store = Store::new(&root.path().join("out"));
    let summary = measured(&[path], &store, &Geo::default()).expect("measured");
    let dropped = |why| summary.dropped.get(&why).copied().unwrap_or(0);
    assert_eq!(dropped(DropReason::Implausible), 6 * 9 + 1, "{summary}");
    assert_eq!(dropped(DropReason::Incomplete), 8, "{summary}");
    assert_eq!(dropped(DropReason::Short), 2, "{summary}");
    assert_eq!(dropped(DropReason::Future), 1, "{summary}");
    assert_eq!(dropped(DropReason::Old), 1, "{summary}");
    assert_eq!(summary.sessions, 6, "{summary}");
    assert!(summary.broken_lines >= 1, "{summary}");
    assert_eq!(summary.to_string().lines().count(), 1);
    for name in store.read_pairs("groups.csv").expect("read").values() {
        assert!(name.len() <= 255 && !name.chars().any(char::is_control), "{name:?}");
    }
    assert_eq!(store.read_pairs("prefixes.csv").expect("read").len(), 1);
}

#[test]
fn records_with_nan_and_infinities_are_dropped() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("sessions-1.parquet");
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5, 3.0];
    let ints = |value: i64| Arc::new(Int64Array::from(vec![value; 5])) as ArrayRef;
    let floats = |value: f64| Arc::new(Float64Array::from(vec![value; 5])) as ArrayRef;
    let batch = RecordBatch::try_from_iter([
        ("started_ms", ints((NOW as i64 - 600) * 1_000)),
        ("duration_s", floats(60.0)),
        ("first_transmissions", ints(1_000)),
        ("retransmissions", ints(5)),
        ("goodput_mbps", Arc::new(Float64Array::from(bad.to_vec())) as ArrayRef),
        ("rtt_ms", floats(50.0)),
        ("max_in_flight", ints(60_000)),
        ("max_window", ints(60_000)),
        ("group", Arc::new(StringArray::from(vec!["BR"; 5])) as ArrayRef),
    ])
    .expect("a batch");
    let file = fs::File::create(&path).expect("created");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("written");
    writer.close().expect("closed");
    let store = Store::new(&root.path().join("out"));
    let summary = measured(&[path], &store, &Geo::default()).expect("measured");
    assert_eq!((summary.sessions, summary.dropped.get(&DropReason::Implausible)), (1, Some(&4)));
}

#[test]
fn damaged_files_are_named_and_others_measured() {
    let root = tempfile::tempdir().expect("a folder");
    let edges = root.path().join("records");
    let good = write(&edges, "sessions-1", (0..30).map(record));
    let whole = fs::read(&good).expect("there");
    fs::write(edges.join("sessions-2.parquet"), &whole[..whole.len() / 2]).expect("written");
    fs::write(edges.join("sessions-3.parquet"), "").expect("written");
    fs::write(edges.join("sessions-4.parquet"), [0x5a; 4_096]).expect("written");
    let store = Store::new(&root.path().join("out"));
    let summary = measured(&[edges], &store, &Geo::default()).expect("measured");
    assert_eq!((summary.sources, summary.sessions, summary.unreadable.len()), (1, 30, 3));
    assert!(summary.to_string().contains("sessions-2.parquet"), "{summary}");
    // Damage anywhere affects at most its file.
    let mut rng = synthetic::Rng(1);
    let mut unreadable = 0;
    for number in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..1 + number % 3 {
            let at = rng.below(bytes.len() as i64) as usize;
            bytes[at] = rng.next() as u8;
        }
        let path = root.path().join(format!("flipped-{number}.parquet"));
        fs::write(&path, bytes).expect("written");
        let store = Store::new(&root.path().join(format!("out-{number}")));
        let summary = measured(&[path], &store, &Geo::default()).expect("measured");
        assert!(summary.sessions <= 30, "{summary}");
        unreadable += summary.unreadable.len();
    }
    assert!(unreadable > 30, "{unreadable} of 300 unreadable");
}
