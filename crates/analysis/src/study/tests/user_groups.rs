//! User groups in small cases (AutoPlex, table 1 and figures 1 to 3).

use super::*;

const INTERVAL: i64 = 15 * MINUTE;

/// A session of one minute that ends in an interval after noon, with this number of retransmissions
/// per thousand packets.
fn session(group: &str, interval: i64, retransmissions: i64) -> Record {
    let mut record = Record::default();
    record.session.group = text(group);
    record.session.started_ms = Some(NOON + interval * INTERVAL + MINUTE);
    record.session.duration_s = Some(60.0);
    record.recovery.first_transmissions = Some(1_000);
    record.recovery.retransmissions = Some(retransmissions);
    record.delivery.goodput_mbps = Some(retransmissions as f64);
    record.path.rtt_ms = Some(100.0);
    record.path.max_in_flight = Some(1_000);
    record.path.max_window = Some(2_000);
    record
}

fn plots<'a>(study: &'a Study, section: &str) -> &'a [crate::plot::Plot] {
    let section = study.sections.iter().find(|one| one.name == section);
    &section.expect("a section").plots
}

#[test]
fn groups_are_counted_by_the_beginnings_of_their_names() {
    let mut records = Vec::new();
    // Twelve cities in two states of two networks: nine sessions in the first city, one in each
    // other.
    for city in 0..12 {
        let place = if city < 10 { "BR/AS1/SP" } else { "BR/AS2/RJ" };
        let count = if city == 0 { 9 } else { 1 };
        records.extend((0..count).map(|_| session(&format!("{place}/c{city}"), 0, 1)));
    }
    // A name without a city, one without parts, and none. Parts beyond the fourth are ignored.
    records.push(session("BR/AS1", 0, 1));
    records.extend((0..4).map(|_| session("g17", 0, 1)));
    let mut nowhere = session("", 0, 1);
    nowhere.session.group = None;
    records.push(nowhere);
    records.push(session("BR/AS1/SP/c0/street", 0, 1));
    let study = studied("groups.jsonl", &lines(&records));
    for (rule, expected, n) in [
        ("state-city-ASN", [12.0, 90.4762, 100.0, 100.0], 21),
        ("state-ASN", [2.0, 100.0, 100.0, 100.0], 21),
        ("ASN", [2.0, 100.0, 100.0, 100.0], 22),
        ("country", [2.0, 100.0, 100.0, 100.0], 26),
    ] {
        let found = line(&study, "user_groups", "rules", rule);
        assert_eq!(found, expected.map(|value| (Some(value), n)), "{rule}");
    }
    let table = &study.sections.iter().find(|one| one.name == "user_groups").expect("it").tables[0];
    let papers = table.lines.iter().map(|line| line.cells.iter().map(|cell| cell.paper).collect());
    let papers: Vec<Vec<_>> = papers.collect();
    assert_eq!(papers[0], [18_620.0, 11.8, 22.2, 27.3].map(Some));
    assert_eq!(papers[1], [10_326.0, 16.7, 27.7, 32.9].map(Some));
    assert_eq!(papers[2], [8_329.0, 30.9, 35.7, 38.3].map(Some));
    // The first city has ten of 21 sessions, each other city one.
    let curve = &plots(&study, "user_groups")[0].lines[0];
    assert_eq!((curve.name.as_str(), curve.points.len()), ("state-city-ASN", 13));
    assert_eq!(curve.points[2], (2.0, 11.0 / 21.0));
}

#[test]
fn the_largest_groups_are_compared_by_valid_sessions() {
    let mut records = Vec::new();
    for (group, count) in [("d", 1), ("b", 4), ("a", 5), ("c", 3)] {
        records.extend((1..=count).map(|each| session(group, each, 2 * each)));
    }
    // However many sessions are too short.
    for each in 0..6 {
        let (mut short, mut few) = (session("short", each, 400), session("few", each, 400));
        short.session.duration_s = Some(9.9);
        few.recovery.first_transmissions = Some(499);
        records.extend([short, few]);
    }
    let study = studied("largest.jsonl", &lines(&records));
    let share = figure(&study, "performance", "sessions of 10 s");
    assert_eq!(share, (Some(52.0), 25));
    let of = |label: &str| line(&study, "performance", "largest", label);
    let numbers = |values: [f64; 4], n| values.map(|value| (Some(value), n)).to_vec();
    assert_eq!(of("retransmission ratio (%), UG 1: a"), numbers([0.6, 0.6, 0.8, 0.92], 5));
    assert_eq!(of("SRTT (ms), UG 2: b"), numbers([100.0; 4], 4));
    assert_eq!(of("goodput (Mbps), UG 3: c"), numbers([4.0, 4.0, 5.0, 5.6], 3));
    let text = study.text();
    assert!(!text.contains("UG 1: short") && !text.contains("UG 3: d"), "{text}");
    // None has enough sessions in an interval.
    assert_eq!(line(&study, "performance", "intervals", "intervals of")[0], (Some(5.0), 5));
    assert_eq!(line(&study, "performance", "intervals", "skipped")[0], (Some(5.0), 5));
    assert_eq!(line(&study, "performance", "bands", "better by retr"), [(None, 0); 2]);
    assert_eq!(line(&study, "performance", "changes", "worse by good"), [(None, 0); 3]);
}

/// Four intervals of one group: 20 sessions in each of the first two, too few in the third, just
/// enough in the fourth. From the first to the second, the ten sessions with the fewest
/// retransmissions change by 25, 10 and 20 %, the others by 100, 50 and 60 %.
fn four_intervals() -> Study {
    let mut records = vec![session("other", 0, 500)];
    for (interval, count) in [(0, 20), (1, 20), (2, 16), (3, 17)] {
        for each in (1..=count).rev() {
            let mut record = session("XX/AS1/S1/c1", interval, each);
            if interval == 1 {
                let is_good = each <= 10;
                record.delivery.goodput_mbps = Some(each as f64 * if is_good { 1.25 } else { 2.0 });
                record.path.max_in_flight = Some(if is_good { 1_100 } else { 500 });
                record.path.max_window = Some(if is_good { 2_400 } else { 3_200 });
            }
            records.push(record);
        }
    }
    // It starts in the first interval and ends in the third, where it counts.
    let mut long = session("XX/AS1/S1/c1", 0, 0);
    long.session.started_ms = Some(NOON + MINUTE);
    long.session.duration_s = Some(2_000.0);
    long.recovery.retransmissions = None;
    long.path.rtt_ms = Some(0.0);
    records.push(long);
    studied("four.jsonl", &lines(&records))
}

#[test]
fn better_sessions_are_those_from_the_5th_to_the_20th_percentile() {
    let study = four_intervals();
    let found = |label: &str| line(&study, "performance", "bands", label);
    let numbers = |values: [f64; 2]| values.map(|value| (Some(value), 3)).to_vec();
    // Of 20 sorted sessions, ranks 2 to 4 and 16 to 18: means of 3 and 17 per thousand. Of 17,
    // ranks 1 to 3 and 13 to 15: 2 and 14.
    assert_eq!(found("better by retransmission"), numbers([0.2667, 29.1667]));
    assert_eq!(found("worse by retransmission"), numbers([1.6, 216.6667]));
    // In reverse order: ranks 17 to 19 and 3 to 5 of 20, 15 to 17 and 3 to 5 of 17.
    assert_eq!(found("better by goodput"), numbers([1.7333, 233.3333]));
    assert_eq!(found("worse by goodput"), numbers([0.4, 43.3333]));
    let papers = study.sections.iter().find(|one| one.name == "performance");
    let papers = papers.and_then(|one| one.tables.iter().find(|table| table.name == "bands"));
    let papers: Vec<_> = papers.expect("a table").lines.iter().map(|line| &line.cells).collect();
    let papers: Vec<_> = papers.iter().map(|cells| cells[0].paper.or(cells[1].paper)).collect();
    assert_eq!(papers, [0.03, 2.9, 872.0, 53.0].map(Some));

    for (label, expected) in [
        ("intervals of 15 min", [(Some(4.0), 73); 2]),
        ("skipped: fewer than 3", [(Some(1.0), 73); 2]),
        ("pairs", [(Some(1.0), 73); 2]),
        ("sessions of a band", [(Some(3.0), 73); 2]),
    ] {
        assert_eq!(line(&study, "performance", "intervals", label), expected, "{label}");
    }
    let plots = plots(&study, "performance");
    let bands = &plots[3].lines;
    assert_eq!(bands[0].points.iter().map(|point| point.0).collect::<Vec<_>>(), [0.0, 0.25, 0.75]);
    let last = |line: usize| bands[line].points[2].1;
    assert!((last(0) - 0.2).abs() < 1e-6 && (last(1) - 1.4).abs() < 1e-6, "{bands:?}");
}

#[test]
fn changes_are_those_from_one_interval_to_the_next() {
    let study = four_intervals();
    let found = |label: &str| line(&study, "performance", "changes", label);
    let numbers = |values: [f64; 3]| values.map(|value| (Some(value), 1)).to_vec();
    let (little, much) = ([25.0, 10.0, 20.0], [100.0, 50.0, 60.0]);
    assert_eq!(found("better by retransmission"), numbers(little));
    assert_eq!(found("worse by retransmission"), numbers(much));
    assert_eq!(found("worse ÷ better by retransmission"), numbers([4.0, 5.0, 3.0]));
    assert_eq!(found("better by goodput"), numbers(much));
    assert_eq!(found("worse by goodput"), numbers(little));
    assert_eq!(found("worse ÷ better by goodput"), numbers([0.25, 0.2, 0.3333]));
    // The curve has no point between the second and the fourth interval.
    let goodput = &plots(&study, "performance")[5];
    assert!(goodput.title.contains("goodput"), "{}", goodput.title);
    assert_eq!(goodput.lines[0].points, [(0.0, 0.0), (0.25, 25.0)]);
    assert_eq!(goodput.lines[1].points, [(0.0, 0.0), (0.25, 100.0)]);
}

#[test]
fn group_names_from_records_are_untrusted() {
    let mut all = String::new();
    for record in [session("\u{1b}[2J<b>\u{202e}x", 0, 1), session("\u{1b}[2J<b>\u{202e}x", 0, 2)] {
        writeln!(all, "{}", record.json()).expect("text grows");
    }
    let long = session(&"long/".repeat(5_000), 0, 3).json();
    let huge = session("huge", 0, 4).json();
    // Beyond `f32`, and the largest time.
    let huge = huge.replace("\"goodput_mbps\":4.0", "\"goodput_mbps\":1e300");
    let huge = huge.replace(&format!("{}", NOON + MINUTE), "1e300");
    assert!(huge.matches("1e300").count() == 2, "{huge}");
    let nothing = r#"{"group":"huge","duration_s":60,"started_ms":0,"first_transmissions":1000}"#;
    let slashes = r#"{"group":"//"}"#;
    let number = r#"{"group":17,"duration_s":60}"#;
    for line in [&long, &huge, nothing, slashes, number] {
        writeln!(all, "{line}").expect("text grows");
    }
    let study = studied("odd.jsonl", &all);
    assert_eq!(study.input.records, 7);
    let country = line(&study, "user_groups", "rules", "country");
    assert_eq!(country[0], (Some(3.0), 5));
    let goodput =
        |place| line(&study, "performance", "largest", &format!("goodput (Mbps), {place}"));
    let names: Vec<_> = [1, 2, 3].map(|place| goodput(format!("UG {place}"))[0]).to_vec();
    assert!(names.contains(&(None, 0)) && names.contains(&(Some(1.5), 2)), "{names:?}");
    let (text, page, json) = (study.text(), study.html(), study.json());
    assert!(text.contains(": ?[2J<b>?x") && page.contains("?[2J&lt;b&gt;?x"), "{text}");
    for shown in [&text, &page, &json] {
        assert!(!shown.contains('\u{1b}') && !shown.contains("NaN") && !shown.contains("inf "));
        assert!(!shown.contains(&"long/".repeat(10)));
    }
}
