//! What a report says, of how many, and that names stay names.

use core::time::Duration;

use groups::Times;
use groups::decide::{Observed, Rules, decide};
use serde_json::Value;

use super::*;
use crate::guard::OUTCOMES;

const NOW: u64 = 1_800_000_000;
const PERIOD: u64 = 1_800;

/// A decision in a folder of its own.
struct Made {
    folder: tempfile::TempDir,
    groups: Vec<GroupStats>,
    guard: Guard,
    now: u64,
}

impl Made {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, groups: Vec::new(), guard: Guard::default(), now: NOW }
    }

    fn group(&mut self, name: &str, sessions: u64, mbps: f64) {
        let seen = Observed { sessions, rate: mbps * 1e6, in_flight: mbps * 12_500.0 };
        let seen = (sessions > 0).then_some(seen);
        let group = GroupStats { name: name.into(), parent: None, seen, is_off: false };
        self.groups.push(group);
    }

    /// The guard sees these outcomes of a group and judges; groups are off as in a decision.
    fn judge(&mut self, name: &str, treated: &Sums, holdout: &Sums) {
        self.guard.count(name, treated, holdout);
        self.guard.judge(self.now);
        for group in &mut self.groups {
            group.is_off =
                widening(&group.name).any(|name| self.guard.off().any(|off| off == name));
        }
    }

    fn table(&self) -> Table {
        let times = Times { issued: self.now, lifetime: Duration::from_secs(4 * PERIOD) };
        let rules = Rules { min_sessions: 1, ..Rules::default() };
        decide(&self.groups, None, &rules, times).0.finish().expect("no ranges")
    }

    fn write(&self, table: &Table) {
        let seen = self.groups.iter().filter_map(|group| group.seen);
        Reporting {
            store: &Store::new(self.folder.path()),
            table,
            groups: &self.groups,
            guard: &self.guard,
            policy: "open-rate".into(),
            period: Duration::from_secs(PERIOD),
            window: Duration::from_secs(2 * PERIOD),
            sessions: seen.map(|seen| seen.sessions as i64).sum(),
        }
        .write()
        .expect("written");
    }

    fn read(&self) -> Value {
        let bytes = fs::read(self.folder.path().join(FILE)).expect("there");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// What the report of these groups says.
    fn report(&self) -> Value {
        self.write(&self.table());
        self.read()
    }

    /// A decision of the past, as [`crate::decide`] leaves it.
    fn past(&self, end: u64, lines: &[String]) {
        let text = format!("rate,in_flight,sessions,off,group\n{}\n", lines.join("\n"));
        let path = format!("decisions/{end}.csv");
        replace_with(&Store::new(self.folder.path()).path(&path), text.as_bytes()).expect("put");
    }
}

/// So many plays of a minute with so many freezes of half a second each, and first frames after so many milliseconds.
fn sums(plays: i64, freezes: i64, first_ms: i64) -> Sums {
    let mut sums = [0; OUTCOMES];
    for play in 0..plays {
        let (count, first) = (freezes + play % 2, first_ms + play % 50);
        let row = [
            1,
            count,
            60_000,
            500 * count,
            count * count,
            60 * count,
            3_600,
            1,
            first,
            first * first,
        ];
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// A number from -1 to 1 that looks like chance.
fn noise(seed: f64) -> f64 {
    (seed * 78.233).sin() * 43_758.545_3 % 1.0
}

/// The same of plays that differ: with so many freezes each, and so long to the first frame, in the mean.
fn mixed(plays: i64, freezes: f64, first_ms: f64, seed: f64) -> Sums {
    let mut all = [0; OUTCOMES];
    for play in 0..plays {
        let chance = noise(seed + 1.618 * play as f64);
        let count = 2 * i64::from(chance.abs() < freezes / 2.0);
        let first = (first_ms * (1.0 + 0.6 * chance)) as i64;
        let one = sums(1, count, first);
        all.iter_mut().zip(one).for_each(|(sum, value)| *sum += value);
    }
    all
}

fn names(report: &Value) -> Vec<&str> {
    let shown = report["shown"].as_array().expect("a list");
    shown.iter().map(|group| group["name"].as_str().expect("a name")).collect()
}

#[test]
fn a_report_says_what_was_decided_and_how_viewers_fare() {
    let mut made = Made::new();
    made.group("BR/AS1", 900, 4.0);
    made.group("TR/AS9, Kuzey", 1_500, 8.0);
    made.group("XX", 0, 0.0);
    made.judge("TR/AS9, Kuzey", &sums(40, 1, 200), &sums(10, 1, 210));
    let text = |rate, off, name| format!("{rate},50000,700,{off},{name}");
    made.past(NOW - 2 * PERIOD, &[text(6_000_000, 1, "TR/AS9, Kuzey"), text(1, 0, "gone")]);
    made.past(NOW - PERIOD, &[text(0, 0, "TR/AS9, Kuzey"), "no line".into()]);
    // Neither its own end nor one of the future is of the past.
    made.past(NOW, &[text(1, 1, "BR/AS1")]);
    made.past(NOW + PERIOD, &[text(1, 1, "BR/AS1")]);
    let report = made.report();
    let totals = ["end", "period_s", "window_s", "lifetime_s", "groups", "decided", "off"];
    let totals = totals.map(|key| report[key].as_u64().expect(key));
    assert_eq!(totals, [NOW, 1_800, 3_600, 7_200, 3, 2, 0]);
    assert_eq!((report["sessions"].as_i64(), report["left_out"].as_i64()), (Some(2_400), Some(0)));
    assert_eq!(report["policy"], "open-rate");
    assert_eq!(report["ends"], serde_json::json!([NOW - 3_600, NOW - 1_800, NOW]));
    assert_eq!(names(&report), ["TR/AS9, Kuzey", "BR/AS1", "XX"], "the largest first");
    let [first, second, third] = [0, 1, 2].map(|place| &report["shown"][place]);
    assert_eq!(first["rates"], serde_json::json!([6_000_000, null, 8_000_000]));
    assert_eq!(first["offs"], serde_json::json!([1, 0, 0]));
    assert_eq!(first["in_flight"], 100_000);
    assert_eq!((&first["decided"], &first["counted"]), (&NOW.into(), &NOW.into()));
    let treated = &first["treated"];
    assert_eq!((&treated["sessions"], &treated["freezes_per_100_s"]), (&40.into(), &2.5.into()));
    assert_eq!(treated["frozen_s_per_100_s"], 1.25);
    assert_eq!((&treated["first_frames"], &treated["first_frame_ms"]), (&40.into(), &219.5.into()));
    assert_eq!(first["holdout"]["first_frame_ms"], 214.5);
    assert!(second["treated"].is_null() && second["off"].is_null());
    assert_eq!(second["rates"], serde_json::json!([null, null, 4_000_000]));
    assert!(third["rate"].is_null() && third["decided"].is_null());
    assert_eq!(third["sessions"], 0);
}

#[test]
fn a_group_that_is_off_says_why_for_as_long_as_it_is() {
    let mut made = Made::new();
    for name in ["BR/AS1", "BR/AS1/SP", "TR/AS9", "UA"] {
        made.group(name, 900, 4.0);
    }
    made.guard.count("TR/AS9", &sums(500, 1, 600), &sums(500, 1, 200));
    made.guard.count("UA", &sums(500, 1, 200), &sums(500, 1, 200));
    made.judge("BR/AS1", &sums(500, 4, 200), &sums(500, 1, 200));
    for later in [0, PERIOD, 20 * PERIOD] {
        made.now = NOW + later;
        // What comes while it is off says nothing.
        made.judge("BR/AS1", &sums(900, 0, 10), &sums(900, 9, 900));
        let report = made.report();
        assert_eq!(report["off"], 3, "{later}");
        let off = |name| {
            let place = names(&report).iter().position(|shown| *shown == name).expect(name);
            report["shown"][place]["off"].clone()
        };
        for name in ["BR/AS1", "BR/AS1/SP"] {
            let off = off(name);
            assert_eq!((&off["by"], &off["since"]), (&"BR/AS1".into(), &NOW.into()), "{off}");
            assert_eq!(off["why"], serde_json::json!(["freezes"]), "{off}");
            let freezes =
                ["treated", "holdout"].map(|side| off[side]["freezes_per_100_s"].as_f64());
            assert_eq!(freezes, [Some(7.5), Some(2.5)], "{off}");
        }
        let slow = off("TR/AS9");
        assert_eq!(slow["why"], serde_json::json!(["first_frame"]), "{slow}");
        let first = ["treated", "holdout"].map(|side| slow[side]["first_frame_ms"].as_f64());
        assert_eq!(first, [Some(624.5), Some(224.5)], "{slow}");
        assert!(off("UA").is_null());
        // It is the same after a restart.
        let path = made.folder.path().join("guard.csv");
        made.guard.write(&path).expect("written");
        made.guard = Guard::read(&path).expect("read");
    }
}

#[test]
fn of_five_thousand_groups_the_largest_are_shown_and_those_that_are_off() {
    let mut made = Made::new();
    // Names of the greatest length, of what takes two characters in JSON.
    let name = |place: usize| {
        let kind = if place % 5 == 4 { "off" } else { "on" };
        let name = format!("{kind}/{place:04}");
        format!("{name}{}", "\"\\".repeat((255 - name.len()) / 2))
    };
    for place in 0..5_000 {
        made.group(&name(place), 10 + place as u64, 9.99);
    }
    // The smallest of all, which is why a fifth of the others are off.
    made.group("off", 1, 4.0);
    made.judge("off", &sums(500, 4, 200), &sums(500, 1, 200));
    for point in 1..=POINTS as u64 + 4 {
        let line = |place| format!("{},50000,100,0,{}", 999_999_999 - place, name(place));
        made.past(NOW - point * PERIOD, &(0..5_000).map(line).collect::<Vec<_>>());
    }
    let report = made.report();
    let shown = names(&report);
    assert_eq!((report["groups"].as_u64(), report["off"].as_u64()), (Some(5_001), Some(1_001)));
    assert_eq!((shown.len(), report["left_out"].as_u64()), (MOST, Some(4_001)));
    let largest: Vec<String> = (4_800..5_000).rev().map(name).collect();
    assert!(largest.iter().all(|name| shown.contains(&name.as_str())));
    let off = shown.iter().filter(|name| name.starts_with("off")).count();
    assert_eq!((off, shown.last()), (840, Some(&"off")));
    assert_eq!(report["ends"].as_array().map(Vec::len), Some(POINTS));
    assert_eq!(report["shown"][0]["rates"].as_array().map(Vec::len), Some(POINTS));
    assert_eq!(report["shown"][0]["rates"][0], 999_995_000);
    let bytes = fs::metadata(made.folder.path().join(FILE)).expect("there").len();
    assert!(bytes < 3 << 20, "{bytes}: an edge takes 4 MiB");
}

#[test]
fn names_are_text_whatever_is_in_them() {
    let hostile =
        ["</script><img src=x onerror=alert(1)>", "a\",\"b\":{\"c", "\u{2028}\u{202e}\\", "é\u{0}"];
    let mut made = Made::new();
    for (place, name) in hostile.iter().enumerate() {
        made.group(name, 900 - place as u64, 4.0);
    }
    assert_eq!(names(&made.report()), hostile);
}

#[test]
fn nothing_at_all_and_damaged_history_make_a_report() {
    let made = Made::new();
    made.past(NOW - PERIOD, &["\u{0},,,,".into(), "x,1,1,1,BR".into(), String::new()]);
    let store = Store::new(made.folder.path());
    fs::write(store.path(&format!("decisions/{}.csv", NOW - 9)), b"\xff\xfe").expect("put");
    fs::write(store.path("decisions/notes.txt"), "mine").expect("put");
    let report = made.report();
    assert_eq!((report["groups"].as_u64(), names(&report).len()), (Some(0), 0));
    assert_eq!(report["ends"], serde_json::json!([NOW - PERIOD, NOW - 9, NOW]));
}

/// Thirty groups over twenty periods, of which one is turned off on the way. `MENDCAST_EXAMPLE=FOLDER` leaves table and
/// report there, as of now, for whoever wants to look at them on an edge's dashboard.
#[test]
fn thirty_groups_over_twenty_periods() {
    let example = std::env::var_os("MENDCAST_EXAMPLE").map(PathBuf::from);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = if example.is_some() { now.expect("a clock").as_secs() } else { NOW };
    let mut made = Made::new();
    let store = Store::new(made.folder.path());
    let names: Vec<String> = (0..30)
        .map(|place| {
            let (country, system, city) = [
                ("BR", 28_573, "SP/Campinas"),
                ("TR", 9_121, "34/İstanbul"),
                ("MX", 8_151, "JAL/Guadalajara"),
                ("BR", 26_599, "RJ/Niterói"),
                ("TR", 47_331, "06/Ankara"),
            ][place % 5];
            format!("{country}/AS{}/{city}", system + 617 * (place / 5))
        })
        .collect();
    let mut last = None;
    for period in 0..20 {
        made.now = now / PERIOD * PERIOD - (19 - period) * PERIOD;
        made.groups.clear();
        for (place, name) in names.iter().enumerate() {
            let (group, time) = (place as f64, period as f64);
            let mean = 4.0 + 7.0 * noise(group + 1.0).abs();
            let rate = mean * (1.0 + 0.3 * (time / 3.0 + group).sin() + 0.1 * noise(group + time));
            made.group(name, 9_000 / (place as u64 + 2) + 10 * period, rate);
        }
        for (place, name) in names.iter().enumerate() {
            let plays = 3_000 / (place as i64 + 2);
            // The fourth group's paths change in the seventh period.
            let freezes = if place == 3 && period >= 7 { 0.9 } else { 0.4 };
            let seed = (31 * place + 977 * period as usize) as f64;
            let treated = mixed(plays, freezes, 220.0, seed);
            made.guard.count(name, &treated, &mixed(plays / 12, 0.45, 230.0, seed + 0.5));
        }
        made.judge("", &[0; OUTCOMES], &[0; OUTCOMES]);
        let times = Times { issued: made.now, lifetime: Duration::from_secs(4 * PERIOD) };
        let (mut building, ids) = decide(&made.groups, last.as_ref(), &Rules::default(), times);
        building.v4([192, 0, 2, 0].into(), [192, 0, 2, 255].into(), ids[0]);
        let table = building.finish().expect("one range");
        replace_with(&store.path("table.groups"), &table.encode()).expect("written");
        made.write(&table);
        let line = |group: &groups::Group| {
            let rate = group.parameters.map_or(0, |parameters| parameters.rate.as_bps());
            format!("{rate},0,0,{},{}", u8::from(group.is_off), group.name)
        };
        made.past(made.now, &table.groups().iter().map(line).collect::<Vec<_>>());
        last = Some(table);
    }
    let report = made.read();
    assert_eq!((report["groups"].as_u64(), report["off"].as_u64()), (Some(30), Some(1)));
    let shown = report["shown"].as_array().expect("a list");
    let off = shown.iter().find(|group| !group["off"].is_null()).expect("one that is off");
    let periods = off["offs"].as_array().expect("a list");
    assert_eq!((off["name"].as_str(), periods.len()), (Some(&*names[3]), 20));
    let first = periods.iter().position(|off| *off == 1).expect("some time");
    assert!((7..15).contains(&first) && periods[first..].iter().all(|off| *off == 1), "{first}");
    assert_eq!(off["off"]["since"], report["ends"][first]);
    assert_eq!(off["off"]["why"], serde_json::json!(["freezes"]));
    if let Some(folder) = example {
        for file in ["table.groups", FILE] {
            fs::create_dir_all(&folder).expect("made");
            fs::copy(store.path(file), folder.join(file)).expect("copied");
        }
    }
}
