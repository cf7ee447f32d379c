//! Studies of records with known results.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use records::{Record, RecordWriter, Retention};

use super::*;

mod user_groups;

/// Noon, in milliseconds since 1970.
const NOON: i64 = 1_795_003_200_000;
const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A session over HTTP/3 with low loss.
fn first() -> Record {
    let mut record = Record::default();
    record.session.viewer = text("v1");
    record.session.stream = text("live/demo");
    record.session.protocol = text("h3");
    record.session.prefix = text("192.0.2.0/24");
    record.session.group = text("wifi-here-1");
    record.session.started_ms = Some(NOON + MINUTE);
    record.session.duration_s = Some(100.0);
    record.delivery.bytes = Some(25_000_000);
    record.delivery.goodput_mbps = Some(2.0);
    record.startup.early_data = Some(1);
    record.startup.first_frame_ms = Some(200.0);
    record.startup.first_frame_bytes = Some(20_000);
    record.path.rtt_min_ms = Some(40.0);
    record.path.rtt_ms = Some(45.0);
    record.path.max_window = Some(60_000);
    record.path.max_in_flight = Some(40_000);
    record.path.max_bandwidth_mbps = Some(10.0);
    record.path.loss_rate = Some(0.02);
    record.path.packets_settled = Some(1_000);
    record.path.packets_lost = Some(20);
    record.path.packets_spurious = Some(4);
    record.path.bursts = Some(8);
    record.burst_lengths.bursts_1 = Some(3);
    record.burst_lengths.bursts_2 = Some(1);
    record.burst_lengths.bursts_4 = Some(1);
    record.burst_lengths.bursts_8 = Some(3);
    record.path.burst_longest = Some(5);
    record.after_loss.after_20ms_sent = Some(100);
    record.after_loss.after_20ms_lost = Some(10);
    record.recovery.first_transmissions = Some(900);
    record.recovery.retransmissions = Some(30);
    record.recovery.replicas = Some(9);
    record.recovery.recovery_count = Some(5);
    record.recovery.recovery_mean_ms = Some(60.0);
    record.recovery.recovery_max_ms = Some(100.0);
    record.recovery.units_finished = Some(20);
    record.recovery.units_late = Some(5);
    record.recovery.rounds = Some(26);
    record.recovery.rounds_max = Some(3);
    record.recovery.recovery_deterioration = Some(0.25);
    record.recovery.off_mode_ms_per_s = Some(500.0);
    record.recovery.off_mode_entries_per_s = Some(25.0);
    record.player.player_first_frame_ms = Some(250.0);
    record.player.player_played_s = Some(99.0);
    record.player.player_freezes = Some(2);
    record.player.player_freeze_s = Some(1.0);
    record.player.player_frames = Some(2_000);
    record.player.player_late_frames = Some(100);
    record
}

/// The same viewer two minutes later, with high loss.
fn second() -> Record {
    let mut record = first();
    record.session.started_ms = Some(NOON + 4 * MINUTE + 40 * SECOND);
    record.session.duration_s = Some(300.0);
    record.delivery.bytes = Some(60_000_000);
    record.startup.early_data = Some(0);
    record.startup.first_frame_ms = Some(400.0);
    record.startup.first_frame_bytes = Some(80_000);
    record.path.rtt_min_ms = Some(60.0);
    record.path.rtt_ms = Some(210.0);
    record.path.max_bandwidth_mbps = Some(30.0);
    record.path.loss_rate = Some(0.06);
    record.path.packets_lost = Some(60);
    record.path.packets_spurious = Some(0);
    record.path.bursts = Some(20);
    record.burst_lengths.bursts_1 = Some(9);
    record.burst_lengths.bursts_2 = Some(2);
    record.burst_lengths.bursts_4 = Some(8);
    record.burst_lengths.bursts_8 = Some(0);
    record.path.burst_longest = Some(10);
    record.after_loss.after_20ms_sent = Some(200);
    record.after_loss.after_20ms_lost = Some(50);
    record.recovery.retransmissions = Some(90);
    record.recovery.replicas = Some(0);
    record.recovery.recovery_count = Some(10);
    record.recovery.recovery_mean_ms = Some(120.0);
    record.recovery.recovery_max_ms = Some(400.0);
    record.recovery.units_finished = Some(60);
    record.recovery.units_late = Some(9);
    record.recovery.rounds = Some(75);
    record.recovery.rounds_max = Some(12);
    record.recovery.recovery_deterioration = Some(0.15);
    record.recovery.off_mode_ms_per_s = Some(300.0);
    record.recovery.off_mode_entries_per_s = Some(15.0);
    record.player.player_first_frame_ms = None;
    record.player.player_played_s = Some(290.0);
    record.player.player_freezes = Some(6);
    record.player.player_freeze_s = Some(10.0);
    record.player.player_frames = Some(6_000);
    record.player.player_late_frames = Some(900);
    record
}

/// Another viewer of the same network, an hour later and without loss.
fn third() -> Record {
    let mut record = second();
    record.session.viewer = text("v2");
    record.session.started_ms = Some(NOON + 90 * MINUTE);
    record.session.duration_s = Some(50.0);
    record.delivery.bytes = Some(10_000_000);
    record.startup.first_frame_ms = Some(90.0);
    record.startup.first_frame_bytes = Some(43_000);
    record.path.rtt_min_ms = Some(100.0);
    record.path.rtt_ms = Some(100.0);
    record.path.max_bandwidth_mbps = Some(20.0);
    record.path.loss_rate = Some(0.0);
    record.path.packets_settled = Some(500);
    record.path.packets_lost = Some(0);
    record.path.bursts = Some(0);
    record.burst_lengths.bursts_1 = Some(0);
    record.burst_lengths.bursts_2 = Some(0);
    record.burst_lengths.bursts_4 = Some(0);
    record.path.burst_longest = Some(0);
    record.after_loss.after_20ms_sent = Some(0);
    record.after_loss.after_20ms_lost = Some(0);
    record.recovery.first_transmissions = Some(450);
    record.recovery.retransmissions = Some(0);
    record.recovery.recovery_count = Some(0);
    record.recovery.recovery_mean_ms = None;
    record.recovery.recovery_max_ms = None;
    record.recovery.units_finished = Some(0);
    record.recovery.units_late = Some(0);
    record.recovery.rounds = Some(0);
    record.recovery.rounds_max = Some(0);
    record.recovery.recovery_deterioration = None;
    record.recovery.off_mode_ms_per_s = Some(640.0);
    record.recovery.off_mode_entries_per_s = Some(20.0);
    record.player.player_played_s = Some(50.0);
    record.player.player_freezes = Some(0);
    record.player.player_freeze_s = Some(0.0);
    record.player.player_frames = None;
    record.player.player_late_frames = None;
    record
}

/// A session over HTTP/1.1 with few columns.
fn fourth() -> Record {
    let mut record = Record::default();
    record.session.viewer = text("v3");
    record.session.stream = text("live/demo");
    record.session.protocol = text("h1");
    record.session.prefix = text("198.51.100.0/24");
    record.session.started_ms = Some(NOON + 100 * MINUTE);
    record.session.duration_s = Some(30.0);
    record.delivery.bytes = Some(5_000_000);
    record
}

fn lines(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        writeln!(text, "{}", record.json()).expect("text grows");
    }
    text
}

/// Studies a file of JSON lines.
fn studied(name: &str, text: &str) -> Study {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join(name);
    std::fs::write(&path, text).expect("written");
    read(&[path]).expect("records")
}

fn all() -> Study {
    studied("all.jsonl", &lines(&[first(), second(), third(), fourth()]))
}

/// Returns the line of a section that starts with `label`: values rounded to 4 digits, with their
/// counts.
fn line(study: &Study, section: &str, table: &str, label: &str) -> Vec<(Option<f64>, u64)> {
    let section = study.sections.iter().find(|one| one.name == section).expect("a section");
    let table = section.tables.iter().find(|one| one.name == table).expect("a table");
    let line = table.lines.iter().find(|line| line.label.starts_with(label));
    let round = |value: f64| (value * 1e4).round() / 1e4;
    let cells = &line.unwrap_or_else(|| panic!("{label}")).cells;
    cells.iter().map(|cell| (cell.value.map(round), cell.n)).collect()
}

fn figure(study: &Study, section: &str, label: &str) -> (Option<f64>, u64) {
    line(study, section, "figures", label)[0]
}

#[test]
fn how_much_there_is() {
    let study = all();
    for (label, value) in [
        ("sessions", (4.0, 4)),
        ("bytes of media", (0.1, 4)),
        ("hours of sessions", (0.1333, 4)),
        ("days", (0.0688, 4)),
        ("mean session", (120.0, 4)),
        ("media over time", (1.6667, 4)),
        ("streams", (1.0, 4)),
        ("viewers", (3.0, 4)),
        ("networks", (2.0, 4)),
        ("user groups", (1.0, 4)),
        // 9 of 900 + 900 + 450.
        ("replicas", (0.4, 3)),
    ] {
        assert_eq!(figure(&study, "overview", label), (Some(value.0), value.1), "{label}");
    }
}

#[test]
fn loss_and_what_follows_a_lost_packet() {
    let study = all();
    for (label, value) in [
        ("packets lost ÷ packets settled", 3.2),
        ("loss rate, mean", 2.6667),
        ("median", 2.0),
        ("sessions without loss", 33.3333),
        ("sessions with loss 0 to 3 %", 66.6667),
        ("sessions with loss 3 to 10 %", 33.3333),
        ("sessions with loss 10 to 30 %", 0.0),
    ] {
        assert_eq!(figure(&study, "loss", label), (Some(value), 3), "{label}");
    }
    // (20 + 4 + 60) in 28 bursts; longest 5 and 10.
    assert_eq!(figure(&study, "bursts", "mean run"), (Some(3.0), 3));
    assert_eq!(figure(&study, "bursts", "longest run"), (Some(7.5), 2));
    // Of 28 runs in three sessions, whose records lack the classes above 8 packets.
    for (packets, runs, sessions) in [(1, 12.0, 3), (2, 15.0, 3), (4, 24.0, 3), (8, 27.0, 3)] {
        let share =
            line(&study, "bursts", "burst_lengths", &format!("runs of at most {packets} "))[0];
        assert!((share.0.expect("known") - 100.0 * runs / 28.0).abs() < 1e-4, "{packets}");
        assert_eq!(share.1, sessions, "{packets}");
    }
    let longer = line(&study, "bursts", "burst_lengths", "runs of at most 16 ")[0];
    assert_eq!(longer, (None, 0));
    // 60 of 300; under independence 100 × 19/999 and 200 × 59/999.
    let lag = line(&study, "bursts", "after_loss", "sent 5 to 20 ms");
    assert_eq!(lag, [(Some(20.0), 2), (Some(4.5712), 2), (Some(4.3752), 2)]);
    let lag = line(&study, "bursts", "after_loss", "sent 20 to 50 ms");
    assert_eq!(lag, [(None, 0); 3]);
}

#[test]
fn independent_losses_have_a_ratio_of_one_however_much_sessions_differ() {
    // Of 1,000 packets 10 or 200 are lost, and 100 packets follow each loss. Over both sessions 19
    // % of these are lost, but 10.5 % of all packets, because sessions with high loss contribute
    // more.
    let session = |lost: i64| {
        let sent = lost * 100;
        let mut record = first();
        record.path.packets_settled = Some(1_000);
        record.path.packets_lost = Some(lost);
        record.after_loss.after_20ms_sent = Some(sent);
        record.after_loss.after_20ms_lost = Some((sent * (lost - 1)) / 999);
        record
    };
    let study = studied("two.jsonl", &lines(&[session(10), session(200)]));
    let lag = line(&study, "bursts", "after_loss", "sent 5 to 20 ms");
    let ratio = lag[2].0.expect("a ratio");
    assert!((ratio - 1.0).abs() < 0.001 && lag[0].0 > Some(18.0), "{lag:?}");
}

#[test]
fn rounds_deterioration_and_off_mode() {
    let study = all();
    for (section, label, value) in [
        ("rounds", "sessions with a highest round of 2", (66.6667, 3)),
        ("rounds", "5 or more", (33.3333, 3)),
        ("rounds", "10 or more", (33.3333, 3)),
        // 101 of 80.
        ("rounds", "rounds of lost data", (1.2625, 3)),
        ("rounds", "retransmissions", (5.3333, 3)),
        ("deterioration", "all sessions' sums", (17.5, 3)),
        ("deterioration", "mean over sessions", (20.0, 2)),
        ("deterioration", "loss 0 to 3 %", (25.0, 2)),
        ("deterioration", "loss 3 to 10 %", (15.0, 1)),
        ("off_mode", "off-mode, mean", (480.0, 3)),
        // A tenth of the interval from 300 to 500.
        ("off_mode", "95 % of sessions have at least (ms", (320.0, 3)),
        ("off_mode", "entries, mean", (20.0, 3)),
    ] {
        assert_eq!(figure(&study, section, label), (Some(value.0), value.1), "{section}: {label}");
    }
}

#[test]
fn recovery_latency_by_loss_and_round_trip_time() {
    let study = all();
    let class = |label| line(&study, "recovery_latency", "classes", label);
    assert_eq!(class("all"), [(Some(90.0), 2), (Some(250.0), 2), (Some(100.0), 2)]);
    let (low, high) = ([60.0, 100.0, 60.0], [120.0, 400.0, 120.0]);
    let one = |values: [f64; 3]| values.map(|value| (Some(value), 1)).to_vec();
    assert_eq!((class("loss 0 to 3 %"), class("loss 3 to 10 %")), (one(low), one(high)));
    assert_eq!((class("SRTT 0 to 50"), class("SRTT 200 to 500")), (one(low), one(high)));
    assert_eq!(class("SRTT 50 to 200"), [(None, 0); 3]);
    let table = &study.sections[5].tables[1];
    let papers: Vec<_> = table.lines.iter().map(|line| line.cells[0].paper).collect();
    let expected = [123.2, 26.8, 94.5, 186.4, 530.2, 68.2, 170.2, 273.6, 418.0].map(Some);
    assert_eq!(papers, expected);
}

#[test]
fn freezes_and_first_frames_in_both_readings() {
    let study = all();
    let freezes = line(&study, "freezes", "classes", "all");
    // 8 in 450 s; 2, 2 and 0 in 100 s. 11 s in 450 s; 1, 3.33 and 0 s. 1,000 of 8,000 frames.
    let expected = [(1.7778, 3), (1.3333, 3), (2.4444, 3), (1.4444, 3), (12.5, 2)];
    assert_eq!(freezes, expected.map(|(value, n)| (Some(value), n)));
    let little = line(&study, "freezes", "classes", "loss 0 to 3 %");
    assert_eq!(little[0], (Some(1.3333), 2));
    assert_eq!(figure(&study, "freezes", "sessions without a freeze"), (Some(33.3333), 3));
    for (label, value) in [
        ("first-frame size", 47.6667),
        ("smallest", 20.0),
        ("median", 43.0),
        ("largest", 80.0),
        ("below 30 KB", 33.3333),
        ("above 60 KB", 33.3333),
    ] {
        assert_eq!(figure(&study, "first_frames", label), (Some(value), 3), "{label}");
    }
    let time = |label| line(&study, "first_frames", "times", label)[0];
    assert_eq!(time("request to acknowledgement"), (Some(230.0), 3));
    assert_eq!(time("of connections with 0-RTT data"), (Some(200.0), 1));
    assert_eq!(
        (time("of others"), time("request to picture")),
        ((Some(245.0), 2), (Some(250.0), 1))
    );
}

#[test]
fn similarity_and_hours() {
    let study = all();
    // 40 and 60 ms, 10 and 30 Mbps; the third one is alone in its windows. In the pooled
    // coefficient two values have one degree of freedom.
    let pair = [20.0, 20.0, 28.2843, 50.0, 50.0, 70.7107].map(|value| (Some(value), 1)).to_vec();
    for label in
        ["user group, 5 min", "origin-destination pair, 5 min", "origin-destination pair, 60"]
    {
        assert_eq!(line(&study, "similarity", "windows", label), pair, "{label}");
    }
    for label in ["next visit within 5 min", "next visit within 60 min"] {
        assert_eq!(line(&study, "similarity", "visits", label), pair, "{label}");
    }
    assert_eq!(line(&study, "similarity", "visits", "next visit later")[0], (None, 0));
    let noon = line(&study, "hours", "hours", "12 h");
    let expected = [4.0, 127.5, 17.5, 90.0, 2.0, 2.75, 300.0].map(|value| (Some(value), 2));
    assert_eq!(noon, expected);
    assert_eq!(line(&study, "hours", "hours", "13 h")[0], (Some(0.0), 1));
}

/// Writes all four records in both formats: JSON lines and Parquet.
fn written(directory: &Path) -> [PathBuf; 2] {
    let writer = RecordWriter::start(directory, Duration::from_secs(60), Retention::default());
    let writer = writer.expect("started");
    for record in [first(), second(), third(), fourth()] {
        writer.write(record).expect("room");
    }
    writer.close();
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.try_into().expect("two forms")
}

fn sections(files: &[PathBuf]) -> String {
    serde_json::to_string(&read(files).expect("records").sections).expect("JSON")
}

#[test]
fn both_forms_of_a_file_say_the_same() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [lines, parquet] = written(directory.path());
    let other = tempfile::tempdir().expect("a temporary directory");
    let alone = other.path().join("rows.jsonl");
    std::fs::copy(lines, &alone).expect("copied");
    assert_eq!(sections(&[parquet]), sections(&[alone]));
    let all = serde_json::to_string(&all().sections).expect("JSON");
    assert_eq!(sections(&[directory.path().to_owned()]), all, "the two forms count once");
}

#[test]
fn a_file_that_is_cut_off_loses_its_last_row_only() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [lines, parquet] = written(directory.path());
    let cut = |path: &Path, bytes: usize| {
        let all = std::fs::read(path).expect("readable");
        std::fs::write(path, &all[..all.len() - bytes]).expect("written");
    };
    // The JSON lines have all rows of a truncated Parquet file.
    cut(&parquet, std::fs::metadata(&parquet).expect("a file").len() as usize / 2);
    let study = read(&[directory.path().to_owned()]).expect("records");
    let input = &study.input;
    assert_eq!((input.records, input.broken_lines, input.unreadable_files), (4, 0, 1));
    assert!(study.text().contains("unreadable: ") && input.unreadable[0].contains(".parquet"));
    std::fs::remove_file(parquet).expect("removed");
    cut(&lines, 30);
    let study = read(&[lines]).expect("records");
    assert_eq!((study.input.records, study.input.broken_lines), (3, 1));
    assert_eq!(figure(&study, "loss", "packets lost ÷ packets settled"), (Some(3.2), 3));
}

#[test]
fn impossible_values_are_reported_and_excluded() {
    let text = [
        first().json(),
        second().json().replace("\"rtt_ms\":210.0", "\"rtt_ms\":-210.0"),
        third().json().replace("\"loss_rate\":0.0", "\"loss_rate\":1.5"),
        // More late units than units, and text for a number.
        second()
            .json()
            .replace("\"units_late\":9", "\"units_late\":61")
            .replace("\"rtt_ms\":210.0", "\"rtt_ms\":\"NaN\""),
    ]
    .join("\n");
    let study = studied("odd.jsonl", &text);
    let counts: Vec<_> = study.impossible.columns.iter().map(|(name, n)| (*name, *n)).collect();
    assert_eq!(counts, [("loss_rate", 1), ("rtt_ms", 2), ("units_late", 1)]);
    let named: Vec<_> = study
        .impossible
        .named
        .iter()
        .map(|what| what.rsplit_once('/').map_or("", |(_, what)| what))
        .collect();
    assert_eq!(
        named,
        [
            "odd.jsonl:2: rtt_ms = -210.0",
            "odd.jsonl:3: loss_rate = 1.5",
            "odd.jsonl:4: rtt_ms = NaN",
            "odd.jsonl:4: units_late = 61 of units_finished = 60",
        ]
    );
    assert_eq!(study.input.records, 4);
    // Only results computed from these values exclude them: 5 + 9 of 80; 2, 6 and 6 %; 80 of 2,500
    // and 60 of 1,000.
    assert_eq!(figure(&study, "deterioration", "all sessions' sums"), (Some(17.5), 3));
    assert_eq!(figure(&study, "loss", "loss rate, mean"), (Some(4.6667), 3));
    assert_eq!(figure(&study, "loss", "packets lost"), (Some(4.0), 4));
    let other = line(&study, "recovery_latency", "classes", "other SRTT");
    assert_eq!(other[0], (Some(120.0), 2), "their round-trip time is not known");
    assert!(study.text().contains("impossible") && study.html().contains("odd.jsonl:4"));
}

#[test]
fn a_number_that_is_none_in_parquet_is_named_too() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("odd.parquet");
    write_doubles(
        &path,
        &[("rtt_ms", f64::NAN), ("loss_rate", f64::INFINITY), ("duration_s", 9.0)],
    );
    let study = read(&[path]).expect("a record");
    let counts: Vec<_> = study.impossible.columns.iter().map(|(name, n)| (*name, *n)).collect();
    assert_eq!(counts, [("loss_rate", 1), ("rtt_ms", 1)]);
    assert_eq!(figure(&study, "overview", "mean session"), (Some(9.0), 1));
}

/// Writes a Parquet file with one row.
fn write_doubles(path: &Path, cells: &[(&str, f64)]) {
    use parquet::basic::{Repetition, Type as Physical};
    use parquet::data_type::DoubleType;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;
    use std::sync::Arc;

    let fields = cells.iter().map(|(name, _)| {
        let field = Type::primitive_type_builder(name, Physical::DOUBLE);
        Arc::new(field.with_repetition(Repetition::REQUIRED).build().expect("a field"))
    });
    let schema = Type::group_type_builder("session").with_fields(fields.collect());
    let schema = Arc::new(schema.build().expect("a schema"));
    let file = File::create(path).expect("created");
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    for (_, number) in cells {
        let mut column = group.next_column().expect("a column").expect("one per field");
        column.typed::<DoubleType>().write_batch(&[*number], None, None).expect("written");
        column.close().expect("closed");
    }
    group.close().expect("closed");
    writer.close().expect("closed");
}

#[test]
fn a_section_says_what_records_lack() {
    let study = all();
    let section = |name| study.sections.iter().find(|one| one.name == name).expect("a section");
    let bursts = section("bursts").remarks(4);
    assert!(bursts[0].starts_with("missing in all 4 records: bursts_16, "), "{bursts:?}");
    assert!(bursts[0].contains(", after_1ms_sent, "), "{bursts:?}");
    assert!(bursts[1].starts_with("in 3 of 4 records: packets_lost, "), "{bursts:?}");
    assert!(section("off_mode").remarks(3).is_empty());
    let text = studied("old.jsonl", r#"{"duration_s":5,"rtt_ms":20,"loss_rate":0.01}"#).text();
    assert!(text.contains("missing in all 1 records: units_late, units_finished"), "{text}");
    assert!(text.contains("1† (1)"), "few sessions are marked: {text}");
}

#[test]
fn nothing_to_study_is_an_error_of_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("none.jsonl");
    std::fs::write(&path, "{\"duration_s\":").expect("written");
    let error = read(&[directory.path().to_owned()]).expect_err("no record").to_string();
    assert_eq!(error, "no record (files: 1, unreadable: 0, broken lines: 1)");
    assert!(read(&["/nonexistent/records".into()]).is_err());
}

#[test]
fn the_page_has_every_section_and_loads_nothing() {
    let (study, json) = (all(), all().json());
    let page = study.html();
    for section in &study.sections {
        assert!(page.contains(&format!("<h2 id=\"{}\">", section.name)), "{}", section.name);
    }
    assert!(page.matches("<svg").count() >= 9, "{}", page.matches("<svg").count());
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("NaN"));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let loss = &json["sections"][1]["tables"][0]["lines"][0]["cells"][0];
    let pooled = loss["value"].as_f64().expect("a number");
    assert!((pooled - 3.2).abs() < 1e-9 && loss["n"] == 3 && json["records"] == 4);
}

/// `cargo test --release -p mendcast-analysis a_million -- --ignored --nocapture`
#[test]
#[ignore = "takes a minute: says how long a million records take"]
fn a_million_records() {
    const RECORDS: u64 = 1_000_000;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let path = directory.path().join("million.jsonl");
    let mut file = BufWriter::new(File::create(&path).expect("created"));
    for number in 0..RECORDS {
        let mut record = if number % 3 == 0 { second() } else { first() };
        let session = &mut record.session;
        session.viewer = Some(format!("{:016x}", rng.next_u64() % 400_000));
        session.prefix = Some(format!("10.{}.{}.0/24", rng.next_u64() % 256, rng.next_u64() % 256));
        session.group = Some(format!("group-{}", rng.next_u64() % 1_000));
        session.started_ms = Some(NOON + (rng.next_u64() % 86_400_000) as i64);
        record.path.rtt_min_ms = Some(20.0 + (rng.next_u64() % 200) as f64);
        record.path.loss_rate = Some((rng.next_u64() % 1_000) as f64 * 1e-4);
        writeln!(file, "{}", record.json()).expect("written");
    }
    drop(file);
    let began = Instant::now();
    let study = read(&[path]).expect("records");
    let read = began.elapsed();
    let page = study.html();
    assert_eq!(study.input.records, RECORDS);
    println!("read in {read:.1?}, page of {} bytes in {:.1?}", page.len(), began.elapsed() - read);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
}
