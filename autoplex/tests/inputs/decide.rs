//! Decisions: the tables that edges read, and failures that must not change them.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use groups::decide::Rules;
use groups::select::{Policy, group_id};
use groups::{Table, Times};
use mendcast_autoplex::decide::{Decision, Rows, Summary};
use mendcast_autoplex::engine::Engine;
use mendcast_autoplex::query::Plan;
use mendcast_autoplex::rows::{Measured, table};

use super::*;

const PERIOD: Duration = Duration::from_secs(1_800);

/// Writes measured sessions and group names to a store.
fn put(store: &Store, file: &str, rows: &[Measured], names: &[String]) {
    let ended = rows.first().map_or(NOW, |row| row.sample.ended as u64);
    table(rows).write_parquet(&store.sessions(ended, file)).expect("written");
    let mut all = store.read_pairs("groups.csv").expect("read");
    all.extend(names.iter().map(|name| (group_id(name).to_string(), name.clone())));
    store.write_pairs("groups.csv", "id,name", &all).expect("written");
}

/// Draws `count` sessions of a group in the last period.
fn draw(rng: &mut synthetic::Rng, group: i64, count: usize) -> Vec<Measured> {
    let now = NOW as i64;
    (0..count).map(|_| synthetic::session(rng, group, now - 1_800, now)).collect()
}

/// Rules for small groups: one session in ten is eligible, of some hundred per group.
fn rules() -> Rules {
    Rules { min_sessions: 20, parent_weight: 20.0, ..Rules::default() }
}

fn decision<'a>(
    store: &'a Store,
    geo: &'a Geo,
    engine: &'a Engine,
    rows: Rows,
    now: u64,
) -> Decision<'a> {
    let plan = Plan::of(&Policy::OPEN_RATE);
    let (period, window, lifetime) = (PERIOD, PERIOD, 4 * PERIOD);
    Decision { store, geo, engine, plan, rows, rules: rules(), period, window, lifetime, now }
}

fn decided(store: &Store, geo: &Geo, rows: Rows, now: u64) -> Result<Option<Summary>, Error> {
    decision(store, geo, &Engine::new(2)?, rows, now).run()
}

fn decide(store: &Store, geo: &Geo, rows: Rows, now: u64) -> Summary {
    decided(store, geo, rows, now).expect("decided").expect("not decided yet")
}

fn read(store: &Store) -> Table {
    let bytes = fs::read(store.path("table.groups")).expect("there");
    Table::decode(&bytes).expect("a table")
}

fn mbps(table: &Table, name: &str) -> Option<f64> {
    let group = table.groups().iter().find(|group| &*group.name == name)?;
    group.parameters.map(|parameters| parameters.rate.as_mbps_f64())
}

#[test]
fn records_become_a_table_that_an_edge_can_look_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let geo = Geo::open(&geo::databases(folder.path())).expect("opened");
    let store = Store::new(&folder.path().join("out"));
    let at = |n: i64, prefix: String, mbps| {
        let mut record = record(n);
        record.session.prefix = Some(prefix);
        record.path.open_rate_mbps = Some(mbps);
        record
    };
    let fast = (0..600).map(|n| at(n, format!("10.0.{}.0/24", n % 60), 20.0));
    let slow = (0..600).map(|n| at(n, format!("2001:db8:{n}::/48"), 5.0));
    let path = write(folder.path(), "sessions-1", fast.chain(slow));
    let summary = measured(&[path], &store, &geo).expect("measured");
    assert_eq!(summary.sessions, 1_200, "{summary}");
    for rows in [Rows::Sessions, Rows::Exact] {
        let _ = fs::remove_dir_all(store.path("decisions"));
        let _ = fs::remove_file(store.path("table.groups"));
        let summary = decide(&store, &geo, rows, NOW + 7);
        assert_eq!((summary.end, summary.off), (NOW, 0), "{summary}");
        assert_eq!(summary.to_string().lines().count(), 1);
    }
    let table = read(&store);
    assert_eq!(table.times(), Times { issued: NOW, lifetime: 4 * PERIOD });
    let group = |address: &str| {
        let address = address.parse::<IpAddr>().expect("an address");
        table.group_of(address).and_then(|id| table.group(id)).map(|group| &*group.name)
    };
    assert_eq!(group("10.0.1.1"), Some("BR/AS1/SP/Campinas"));
    // Networks without sessions belong to their nearest ancestor.
    assert_eq!(group("10.0.65.1"), Some("BR"));
    assert_eq!(group("10.0.200.1"), Some("BR/AS1/SP"));
    assert_eq!(group("2001:db8::1"), Some("BR/AS1/RJ/Rio"));
    assert_eq!(group("2001:db8:ffff::1"), Some("BR"));
    assert_eq!(group("10.1.0.1"), None, "a country without sessions");
    let (fast, slow) = (mbps(&table, "BR/AS1/SP/Campinas"), mbps(&table, "BR/AS1/RJ/Rio"));
    let (fast, slow, all) = (fast.unwrap(), slow.unwrap(), mbps(&table, "BR").unwrap());
    assert!(slow < all && all < fast && fast < 20.1 && slow > 4.9, "{slow} {all} {fast}");
    // The readable copy agrees.
    let history = fs::read_to_string(store.path(&format!("decisions/{NOW}.csv"))).expect("there");
    assert!(history.lines().any(|line| line.ends_with(",0,BR/AS1/SP/Campinas")), "{history}");
    // Each window is decided once.
    assert_eq!(decided(&store, &geo, Rows::Sessions, NOW + 1_799).expect("decided"), None);
    assert_eq!(decide(&store, &geo, Rows::Sessions, NOW + 1_800).end, NOW + 1_800);
}

#[test]
fn without_a_database_records_name_the_groups_of_their_networks() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(&folder.path().join("out"));
    let path = write(folder.path(), "sessions-1", (0..400).map(record));
    measured(&[path], &store, &Geo::default()).expect("measured");
    let summary = decide(&store, &Geo::default(), Rows::Sessions, NOW);
    assert_eq!((summary.groups, summary.decided, summary.ranges), (4, 4, 1), "{summary}");
    let table = read(&store);
    let id = table.group_of([10, 0, 199, 9].into()).expect("known");
    assert_eq!(&*table.group(id).expect("there").name, "BR/AS1/SP/Campinas");
    assert_eq!(table.group_of([10, 0, 200, 9].into()), None);
}

#[test]
fn decisions_are_equal_from_csv_and_from_several_histograms() {
    let folder = tempfile::tempdir().expect("a folder");
    let stores =
        ["all", "a", "b", "main", "rows"].map(|name| Store::new(&folder.path().join(name)));
    let [all, a, b, main, rows] = &stores;
    let mut rng = synthetic::Rng(1);
    let sessions: Vec<_> =
        (0..20).flat_map(|group| draw(&mut rng, group, 300 + 20 * group as usize)).collect();
    let names: Vec<String> = (0..20).map(synthetic::name).collect();
    put(all, "all", &sessions, &names);
    decide(all, &Geo::default(), Rows::Sessions, NOW);
    let table = |store: &Store| fs::read(store.path("table.groups")).expect("there");
    // Selections of another engine.
    put(rows, "none", &[], &names);
    decide(rows, &Geo::default(), Rows::File(all.path("chosen.csv")), NOW);
    assert!(table(all) == table(rows));
    assert_eq!(read(all).groups().iter().filter(|group| group.parameters.is_some()).count(), {
        let names: std::collections::BTreeSet<&str> =
            names.iter().flat_map(|name| mendcast_autoplex::geo::with_ancestors(name)).collect();
        names.len()
    });
    // Two points of presence, each with its own networks.
    let (here, there): (Vec<Measured>, Vec<Measured>) =
        sessions.iter().partition(|row| row.sample.group % 2 == 0);
    let histograms = folder.path().join("histograms");
    for (store, sessions, pop) in [(a, here, "a"), (b, there, "b")] {
        put(store, "all", &sessions, &names);
        let (engine, geo) = (Engine::new(1).expect("threads"), Geo::default());
        let decision = decision(store, &geo, &engine, Rows::Sessions, NOW);
        decision.write_histograms(pop).expect("written");
        let to = histograms.join(NOW.to_string());
        fs::create_dir_all(&to).expect("created");
        for path in list_directory(&store.path(&format!("histograms/{NOW}"))).expect("listed") {
            fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
        }
    }
    decide(main, &Geo::default(), Rows::Histograms(histograms), NOW);
    assert!(table(all) == table(main));
    assert_eq!(
        fs::read(all.path("guard.csv")).expect("there"),
        fs::read(main.path("guard.csv")).expect("there")
    );
}

#[test]
fn a_failure_keeps_the_previous_decision() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(folder.path());
    let mut rng = synthetic::Rng(1);
    put(&store, "good", &draw(&mut rng, 0, 500), &[synthetic::name(0)]);
    decide(&store, &Geo::default(), Rows::Sessions, NOW);
    let before = fs::read(store.path("table.groups")).expect("there");
    let bad = store.sessions(NOW + 60, "bad");
    fs::create_dir_all(bad.parent().expect("a folder")).expect("created");
    fs::write(&bad, "no Parquet").expect("written");
    let fails = |rows| {
        let e = decided(&store, &Geo::default(), rows, NOW + 1_800).expect_err("it fails");
        assert_eq!(e.to_string().lines().count(), 1, "{e}");
        assert!(fs::read(store.path("table.groups")).expect("there") == before);
    };
    fails(Rows::Sessions);
    fails(Rows::Exact);
    fails(Rows::File(folder.path().join("none.csv")));
    fs::write(folder.path().join("bad.csv"), "user_group\n").expect("written");
    fails(Rows::File(folder.path().join("bad.csv")));
    fs::remove_file(bad).expect("removed");
    decide(&store, &Geo::default(), Rows::Sessions, NOW + 1_800);
}

#[test]
fn a_damaged_table_or_guard_is_ignored_with_one_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(folder.path());
    let mut rng = synthetic::Rng(1);
    put(&store, "good", &draw(&mut rng, 0, 500), &[synthetic::name(0)]);
    fs::write(store.path("table.groups"), "MCGROUPS and no more").expect("written");
    fs::write(store.path("guard.csv"), "until,1\nnonsense\n").expect("written");
    let summary = decide(&store, &Geo::default(), Rows::Sessions, NOW);
    assert_eq!(summary.warnings.len(), 2, "{summary}");
    assert!(summary.to_string().contains("table.groups: the table"));
    assert!(summary.to_string().contains("guard.csv: the file is damaged"), "{summary}");
    assert!(mbps(&read(&store), &synthetic::name(0)).is_some());
    let summary = decide(&store, &Geo::default(), Rows::Sessions, NOW + 1_800);
    assert_eq!(summary.warnings, [""; 0]);
}

#[test]
fn groups_without_sessions_or_with_one_have_no_parameters() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(folder.path());
    for rows in [Rows::Sessions, Rows::Exact] {
        let _ = fs::remove_dir_all(store.path("decisions"));
        let summary = decide(&store, &Geo::default(), rows, NOW);
        assert_eq!((summary.groups, summary.sessions, summary.ranges), (0, 0, 0), "{summary}");
    }
    let mut rng = synthetic::Rng(1);
    let mut rows: Vec<Measured> = (0..9).flat_map(|group| draw(&mut rng, group, 1)).collect();
    for row in &mut rows {
        (row.sample.explorer, row.sample.open_kbps) = (1, 5_000);
    }
    put(&store, "lone", &rows, &(0..9).map(synthetic::name).collect::<Vec<_>>());
    let summary = decide(&store, &Geo::default(), Rows::Sessions, NOW + 60 * 30);
    assert_eq!(summary.decided, 0, "{summary}");
    let _ = fs::remove_dir_all(store.path("decisions"));
    let summary = decide(&store, &Geo::default(), Rows::Sessions, NOW);
    assert!(summary.groups > 9 && summary.sessions == 9 && summary.decided == 0, "{summary}");
}

#[test]
fn one_lying_client_in_ten_moves_the_rate_by_less_than_a_tenth() {
    let rate = |lie: Option<i64>| {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path());
        let mut rows = draw(&mut synthetic::Rng(3), 0, 3_000);
        for (place, row) in rows.iter_mut().enumerate() {
            row.sample.explorer = 1;
            row.sample.open_kbps = row.sample.open_kbps.max(3 * row.sample.goodput_kbps);
            if let Some(lie) = lie.filter(|_| place % 10 == 0) {
                row.sample.open_kbps = lie;
            }
        }
        put(&store, "sessions", &rows, &[synthetic::name(0)]);
        decide(&store, &Geo::default(), Rows::Sessions, NOW);
        mbps(&read(&store), &synthetic::name(0)).expect("decided")
    };
    let honest = rate(None);
    for lie in [1, 100_000_000] {
        let moved = rate(Some(lie)) / honest;
        println!("{lie} kbit/s: {moved}");
        assert!((0.9..1.1).contains(&moved), "{lie}: {moved}");
        assert!(moved != 1.0, "the lie has an effect");
    }
}

#[test]
fn a_group_with_more_freezes_under_treatment_is_turned_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(folder.path());
    let mut rows: BTreeMap<i64, Vec<Measured>> = BTreeMap::new();
    let mut rng = synthetic::Rng(3);
    for group in [0, 1] {
        let mut sessions = draw(&mut rng, group, 6_000);
        for (place, row) in sessions.iter_mut().enumerate() {
            row.arm = [1, 2, 4][place % 3];
            (row.freezes, row.played_ms, row.frozen_ms) = (place as i64 % 2, 60_000, 500);
            row.freezes += i64::from(group == 0 && row.arm == 4);
        }
        rows.insert(group, sessions);
    }
    let names = [synthetic::name(0), synthetic::name(1)];
    put(&store, "sessions", &rows.into_values().flatten().collect::<Vec<_>>(), &names);
    let summary = decide(&store, &Geo::default(), Rows::Sessions, NOW);
    let table = read(&store);
    let off = |name: &str| {
        let group = table.groups().iter().find(|group| &*group.name == name);
        group.unwrap_or_else(|| panic!("{name}")).is_off
    };
    assert!(off(&synthetic::name(0)) && !off(&synthetic::name(1)), "{summary}");
    // Its three ancestors have no other group.
    assert_eq!(summary.off, 4, "{summary}");
}
