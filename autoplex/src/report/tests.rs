//! Content and size of reports, and hostile names.

use core::time::Duration;

use groups::Times;
use groups::decide::{Observed, Rules, decide};
use serde_json::Value;

use super::*;
use crate::guard::OUTCOMES;

const NOW: u64 = 1_800_000_000;
const PERIOD: u64 = 1_800;

/// A decision in a temporary directory.
struct Fixture {
    folder: tempfile::TempDir,
    groups: Vec<GroupStats>,
    guard: Guard,
    now: u64,
}

impl Fixture {
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

    /// Adds outcomes to the guard and evaluates it; turns groups off as in a decision.
    fn evaluate(&mut self, name: &str, treated: &Sums, holdout: &Sums) {
        self.guard.add(name, treated, holdout);
        self.guard.evaluate(self.now);
        for group in &mut self.groups {
            group.is_off =
                with_ancestors(&group.name).any(|name| self.guard.off().any(|off| off == name));
        }
    }

    fn table(&self) -> Table {
        let times = Times { issued: self.now, lifetime: Duration::from_secs(4 * PERIOD) };
        let rules = Rules { min_sessions: 1, ..Rules::default() };
        decide(&self.groups, None, &rules, times).0.finish().expect("no ranges")
    }

    fn write(&self, table: &Table) {
        let seen = self.groups.iter().filter_map(|group| group.seen);
        ReportWriter {
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

    /// Returns the report of these groups.
    fn report(&self) -> Value {
        self.write(&self.table());
        self.read()
    }

    /// Writes an earlier decision, as [`crate::decide`] does.
    fn past(&self, end: u64, lines: &[String]) {
        let text = format!("rate,in_flight,sessions,off,group\n{}\n", lines.join("\n"));
        let path = format!("decisions/{end}.csv");
        replace_with(&Store::new(self.folder.path()).path(&path), text.as_bytes()).expect("put");
    }
}

/// Returns the outcomes of one-minute plays with freezes of half a second. `freezes` and `first_ms`
/// are per play.
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

/// Returns a pseudo-random number from -1 to 1.
fn noise(seed: f64) -> f64 {
    (seed * 78.233).sin() * 43_758.545_3 % 1.0
}

/// Returns the outcomes of heterogeneous plays. `freezes` and `first_ms` are means per play.
fn mixed(plays: i64, freezes: f64, first_ms: f64, seed: f64) -> Sums {
    let mut all = [0; OUTCOMES];
    for play in 0..plays {
        let noise = noise(seed + 1.618 * play as f64);
        let count = 2 * i64::from(noise.abs() < freezes / 2.0);
        let first = (first_ms * (1.0 + 0.6 * noise)) as i64;
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
fn a_report_shows_the_decision_and_viewers_outcomes() {
    let mut fixture = Fixture::new();
    fixture.group("BR/AS1", 900, 4.0);
    fixture.group("TR/AS9, Kuzey", 1_500, 8.0);
    fixture.group("XX", 0, 0.0);
    fixture.evaluate("TR/AS9, Kuzey", &sums(40, 1, 200), &sums(10, 1, 210));
    let text = |rate, off, name| format!("{rate},50000,700,{off},{name}");
    fixture.past(NOW - 2 * PERIOD, &[text(6_000_000, 1, "TR/AS9, Kuzey"), text(1, 0, "gone")]);
    fixture.past(NOW - PERIOD, &[text(0, 0, "TR/AS9, Kuzey"), "no line".into()]);
    // Decisions at or after the current one are not part of the history.
    fixture.past(NOW, &[text(1, 1, "BR/AS1")]);
    fixture.past(NOW + PERIOD, &[text(1, 1, "BR/AS1")]);
    let report = fixture.report();
    let totals = ["end", "period_s", "window_s", "lifetime_s", "groups", "decided", "off"];
    let totals = totals.map(|key| report[key].as_u64().expect(key));
    assert_eq!(totals, [NOW, 1_800, 3_600, 7_200, 3, 2, 0]);
    assert_eq!((report["sessions"].as_i64(), report["left_out"].as_i64()), (Some(2_400), Some(0)));
    assert_eq!(report["policy"], "open-rate");
    assert_eq!(report["ends"], serde_json::json!([NOW - 3_600, NOW - 1_800, NOW]));
    assert_eq!(names(&report), ["TR/AS9, Kuzey", "BR/AS1", "XX"], "largest first");
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
fn a_group_that_is_off_keeps_its_reason() {
    let mut fixture = Fixture::new();
    for name in ["BR/AS1", "BR/AS1/SP", "TR/AS9", "UA"] {
        fixture.group(name, 900, 4.0);
    }
    fixture.guard.add("TR/AS9", &sums(500, 1, 600), &sums(500, 1, 200));
    fixture.guard.add("UA", &sums(500, 1, 200), &sums(500, 1, 200));
    fixture.evaluate("BR/AS1", &sums(500, 4, 200), &sums(500, 1, 200));
    for later in [0, PERIOD, 20 * PERIOD] {
        fixture.now = NOW + later;
        // Outcomes are ignored while it is off.
        fixture.evaluate("BR/AS1", &sums(900, 0, 10), &sums(900, 9, 900));
        let report = fixture.report();
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
        // A restart does not change it.
        let path = fixture.folder.path().join("guard.csv");
        fixture.guard.write(&path).expect("written");
        fixture.guard = Guard::read(&path).expect("read");
    }
}

#[test]
fn the_largest_of_five_thousand_groups_and_groups_that_are_off_are_listed() {
    let mut fixture = Fixture::new();
    // Names of maximum length, of characters that JSON escapes.
    let name = |place: usize| {
        let kind = if place % 5 == 4 { "off" } else { "on" };
        let name = format!("{kind}/{place:04}");
        format!("{name}{}", "\"\\".repeat((255 - name.len()) / 2))
    };
    for place in 0..5_000 {
        fixture.group(&name(place), 10 + place as u64, 9.99);
    }
    // The smallest group, and the ancestor of a fifth of the others.
    fixture.group("off", 1, 4.0);
    fixture.evaluate("off", &sums(500, 4, 200), &sums(500, 1, 200));
    for point in 1..=MAX_HISTORY as u64 + 4 {
        let line = |place| format!("{},50000,100,0,{}", 999_999_999 - place, name(place));
        fixture.past(NOW - point * PERIOD, &(0..5_000).map(line).collect::<Vec<_>>());
    }
    let report = fixture.report();
    let shown = names(&report);
    assert_eq!((report["groups"].as_u64(), report["off"].as_u64()), (Some(5_001), Some(1_001)));
    assert_eq!((shown.len(), report["left_out"].as_u64()), (MAX_GROUPS, Some(4_001)));
    let largest: Vec<String> = (4_800..5_000).rev().map(name).collect();
    assert!(largest.iter().all(|name| shown.contains(&name.as_str())));
    let off = shown.iter().filter(|name| name.starts_with("off")).count();
    assert_eq!((off, shown.last()), (840, Some(&"off")));
    assert_eq!(report["ends"].as_array().map(Vec::len), Some(MAX_HISTORY));
    assert_eq!(report["shown"][0]["rates"].as_array().map(Vec::len), Some(MAX_HISTORY));
    assert_eq!(report["shown"][0]["rates"][0], 999_995_000);
    let bytes = fs::metadata(fixture.folder.path().join(FILE)).expect("there").len();
    assert!(bytes < 3 << 20, "{bytes}: edges accept 4 MiB");
}

#[test]
fn hostile_names_stay_text() {
    let hostile =
        ["</script><img src=x onerror=alert(1)>", "a\",\"b\":{\"c", "\u{2028}\u{202e}\\", "é\u{0}"];
    let mut fixture = Fixture::new();
    for (place, name) in hostile.iter().enumerate() {
        fixture.group(name, 900 - place as u64, 4.0);
    }
    assert_eq!(names(&fixture.report()), hostile);
}

#[test]
fn an_empty_decision_and_a_damaged_history_yield_a_report() {
    let fixture = Fixture::new();
    fixture.past(NOW - PERIOD, &["\u{0},,,,".into(), "x,1,1,1,BR".into(), String::new()]);
    let store = Store::new(fixture.folder.path());
    fs::write(store.path(&format!("decisions/{}.csv", NOW - 9)), b"\xff\xfe").expect("put");
    fs::write(store.path("decisions/notes.txt"), "mine").expect("put");
    let report = fixture.report();
    assert_eq!((report["groups"].as_u64(), names(&report).len()), (Some(0), 0));
    assert_eq!(report["ends"], serde_json::json!([NOW - PERIOD, NOW - 9, NOW]));
}

/// With `MENDCAST_EXAMPLE=DIR`, writes the table and report with current times to that directory,
/// for an edge's dashboard.
#[test]
fn a_group_that_becomes_worse_is_turned_off_within_eight_periods() {
    let example = std::env::var_os("MENDCAST_EXAMPLE").map(PathBuf::from);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = if example.is_some() { now.expect("a clock").as_secs() } else { NOW };
    let mut fixture = Fixture::new();
    let store = Store::new(fixture.folder.path());
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
        fixture.now = now / PERIOD * PERIOD - (19 - period) * PERIOD;
        fixture.groups.clear();
        for (place, name) in names.iter().enumerate() {
            let (group, time) = (place as f64, period as f64);
            let mean = 4.0 + 7.0 * noise(group + 1.0).abs();
            let rate = mean * (1.0 + 0.3 * (time / 3.0 + group).sin() + 0.1 * noise(group + time));
            fixture.group(name, 9_000 / (place as u64 + 2) + 10 * period, rate);
        }
        for (place, name) in names.iter().enumerate() {
            let plays = 3_000 / (place as i64 + 2);
            // The fourth group's paths degrade in the seventh period.
            let freezes = if place == 3 && period >= 7 { 0.9 } else { 0.4 };
            let seed = (31 * place + 977 * period as usize) as f64;
            let treated = mixed(plays, freezes, 220.0, seed);
            fixture.guard.add(name, &treated, &mixed(plays / 12, 0.45, 230.0, seed + 0.5));
        }
        fixture.evaluate("", &[0; OUTCOMES], &[0; OUTCOMES]);
        let times = Times { issued: fixture.now, lifetime: Duration::from_secs(4 * PERIOD) };
        let (mut building, ids) = decide(&fixture.groups, last.as_ref(), &Rules::default(), times);
        building.v4([192, 0, 2, 0].into(), [192, 0, 2, 255].into(), ids[0]);
        let table = building.finish().expect("one range");
        replace_with(&store.path("table.groups"), &table.encode()).expect("written");
        fixture.write(&table);
        let line = |group: &groups::Group| {
            let rate = group.parameters.map_or(0, |parameters| parameters.rate.as_bps());
            format!("{rate},0,0,{},{}", u8::from(group.is_off), group.name)
        };
        fixture.past(fixture.now, &table.groups().iter().map(line).collect::<Vec<_>>());
        last = Some(table);
    }
    let report = fixture.read();
    assert_eq!((report["groups"].as_u64(), report["off"].as_u64()), (Some(30), Some(1)));
    let shown = report["shown"].as_array().expect("a list");
    let off = shown.iter().find(|group| !group["off"].is_null()).expect("a group that is off");
    let periods = off["offs"].as_array().expect("a list");
    assert_eq!((off["name"].as_str(), periods.len()), (Some(&*names[3]), 20));
    let first = periods.iter().position(|off| *off == 1).expect("an off period");
    assert!((7..15).contains(&first) && periods[first..].iter().all(|off| *off == 1), "{first}");
    assert_eq!(off["off"]["since"], report["ends"][first]);
    assert_eq!(off["off"]["why"], serde_json::json!(["freezes"]));
    if let Some(folder) = example {
        for file in ["table.groups", FILE] {
            fs::create_dir_all(&folder).expect("created");
            fs::copy(store.path(file), folder.join(file)).expect("copied");
        }
    }
}
