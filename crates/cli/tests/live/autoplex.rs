//! AutoPlex on sockets: a table of user groups holds sessions, and when it is gone it does not.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use groups::{Group, Parameters, Table, TableBuilder, Times};
use nix::sys::signal::Signal;
use serde::Serialize;
use serde_json::Value;
use units::Rate;

use crate::common::mendcast;
use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::programs::Program;
use crate::support::viewer::Viewer;
use crate::support::{until, within};

/// All of loopback is one group that may send next to nothing.
fn table() -> Table {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let issued = now.expect("after 1970").as_secs();
    let times = Times { issued, lifetime: Duration::from_secs(7_200) };
    let rate = Rate::from_kbps(64);
    let parameters = Some(Parameters { rate, in_flight: 10_000, sessions: 300, decided: issued });
    let mut building = TableBuilder::new(times);
    let (name, parent) = ("loopback".into(), None);
    let group = building.group(Group { name, parent, parameters, is_off: false });
    building.v4([127, 0, 0, 0].into(), [127, 255, 255, 255].into(), group);
    building.finish().expect("one range")
}

fn watch(edge: &Edge, frames: usize) {
    let viewer = Viewer::h3(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(frames);
}

#[test]
fn a_table_caps_sessions_to_their_streams_until_it_is_deleted() {
    let mut edge = Edge::start(
        "records.directory = \"records\"\nautoplex.mode = \"safe\"\nautoplex.table = \"table.groups\"\n\
         autoplex.explorers = 0.0\nautoplex.holdout = 0.0\nautoplex.control = 0.0\n",
    );
    let path = edge.directory().join("table.groups");
    let publisher = Publisher::start(edge.rtmp, "live/demo", None);
    std::fs::write(&path, table().encode()).expect("written");
    edge.says("1 user groups, 1 ranges");
    // Long enough to be young no more.
    watch(&edge, 450);
    std::fs::write(&path, b"MCGROUPS, but cut off").expect("written");
    edge.says("the active table stays");
    assert_eq!(edge.metric("mendcast_autoplex_groups"), 1.0);
    std::fs::remove_file(&path).expect("there");
    edge.says("no user group has parameters");
    watch(&edge, 100);
    assert_eq!(edge.metric("mendcast_autoplex_sessions_total{part=\"treated\"}"), 2.0);
    assert_eq!(edge.metric("mendcast_autoplex_absent_total{reason=\"no table\"}"), 1.0);
    drop(publisher);
    edge.signal(Signal::SIGTERM);
    until("the end", || !edge.is_running());

    let records = std::fs::read_dir(edge.directory().join("records")).expect("a directory");
    let lines = records.filter_map(|entry| {
        let path = entry.expect("readable").path();
        let is_text = path.extension().is_some_and(|extension| extension == "jsonl");
        is_text.then(|| std::fs::read_to_string(path).expect("text"))
    });
    let lines: String = lines.collect();
    let rows: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.len(), 2, "{lines}");
    assert!(rows.iter().all(|row| row["autoplex"] == "treated"), "{lines}");
    let number = |row: &Value, column: &str| row[column].as_f64();
    // The group's 64 kbit/s do not starve viewers: 1.5 times the stream's rate remains.
    let (cap, stream) = (number(&rows[0], "cap_mbps"), number(&rows[0], "stream_mbps"));
    let times = cap.expect("held") / stream.expect("known");
    assert!((1.2..1.9).contains(&times), "{times}: {lines}");
    assert_eq!((number(&rows[1], "cap_mbps"), number(&rows[0], "skips")), (None, Some(0.0)));
}

/// The AutoPlex program: next to this binary, at `MENDCAST_AUTOPLEX`, or as built by `make
/// test-autoplex`.
fn decider() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_mendcast")).with_file_name("mendcast-autoplex");
    let built =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/autoplex/debug/mendcast-autoplex");
    let named = std::env::var_os("MENDCAST_AUTOPLEX").map(PathBuf::from);
    let found = [named, Some(beside), Some(built)].into_iter().flatten().find(|path| path.exists());
    if found.is_none() {
        // Past the test harness, which shows only what failing tests print.
        let _ = writeln!(std::io::stderr(), "skipped: no mendcast-autoplex here (make autoplex)");
    }
    found
}

/// Entry of a network in an address database.
#[derive(Serialize)]
struct Entry {
    country: Country,
    autonomous_system_number: u32,
}

#[derive(Serialize)]
struct Country {
    iso_code: &'static str,
}

/// Networks behind slow links are one group, all others of loopback another.
fn databases(path: &Path) {
    let mut writer = mmdb_writer::Writer::new("test");
    for (network, autonomous_system_number) in [("127.0.0.0/16", 64_512), (SLOW, 64_513)] {
        let entry = Entry { country: Country { iso_code: "XX" }, autonomous_system_number };
        writer
            .insert(network.parse::<ipnet::IpNet>().expect("a network"), &entry)
            .expect("inserted");
    }
    std::fs::write(path, writer.to_bytes().expect("a database")).expect("written");
}

const SLOW: &str = "127.3.0.0/16";
/// Between once and a half and three times the clip's rate.
const RATE: &str = "4mbps";
/// Long enough to teach: ten seconds, and to be young no more.
const FRAMES: usize = 900;

/// A viewer behind its own slow link.
struct Behind {
    viewer: Viewer,
    _link: Program,
}

/// Viewers of these edges. The server sees each at its own address, behind a link with a short
/// queue.
fn behind_links(edges: &[Edge], begin: u8) -> Vec<Behind> {
    let of = |(n, edge): (usize, &Edge)| {
        let listen = free_udp();
        let mut link = mendcast(&["link", "--rate", RATE, "--rtt", "40ms", "--queue", "20kB"]);
        link.args(["--listen", &listen.to_string(), "--to", &edge.address.to_string()]);
        link.args(["--from", &format!("127.3.{begin}.{}", n + 1), "--seed", &n.to_string()]);
        let link = Program::start(&mut link);
        Behind { viewer: Viewer::h3(listen, "/live/demo.flv"), _link: link }
    };
    edges.iter().cycle().enumerate().take(8).map(of).collect()
}

fn free_udp() -> SocketAddr {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.local_addr().expect("bound")
}

/// All rows of closed files, by the part of their sessions.
fn rows(edges: &[Edge]) -> Vec<Value> {
    let mut all = Vec::new();
    for edge in edges {
        for entry in std::fs::read_dir(edge.directory().join("records")).expect("a directory") {
            let path = entry.expect("readable").path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                let text = std::fs::read_to_string(path).expect("text");
                // The last line may be under way.
                all.extend(
                    text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()),
                );
            }
        }
    }
    all
}

fn number(row: &Value, column: &str) -> f64 {
    row[column].as_f64().unwrap_or(0.0)
}

/// Retransmissions by first transmissions.
fn retransmitted<'a>(rows: impl Iterator<Item = &'a Value>) -> f64 {
    let (mut packets, mut again) = (0.0, 0.0);
    for row in rows {
        packets += number(row, "first_transmissions");
        again += number(row, "retransmissions");
    }
    again / packets
}

/// Two edges write records, one `decide` reads both every minute, its table travels to both, the
/// next viewers from behind slow links are held, and lose less.
#[test]
fn a_groups_cap_applies_to_new_viewers_until_the_table_is_deleted() {
    let Some(decider) = decider() else { return };
    let minutes = |n: u32| Duration::from_secs(60) * n;
    let folder = tempfile::tempdir().expect("a folder");
    databases(&folder.path().join("geo.mmdb"));
    let start = |_| {
        Edge::start(
            "records.directory = \"records\"\nrecords.period = \"5s\"\nautoplex.mode = \"safe\"\n\
             autoplex.table = \"plex/table.groups\"\nautoplex.explorers = 0.4\nautoplex.holdout = 0.0\n\
             autoplex.control = 0.0\nautoplex.period = \"1m\"\n",
        )
    };
    let edges: Vec<Edge> = (0..2).map(start).collect();
    let _publishers: Vec<Publisher> =
        edges.iter().map(|edge| Publisher::start(edge.rtmp, "live/demo", None)).collect();
    let mut deciding = Command::new(&decider);
    deciding.arg("decide").args(["--every", "1m", "--period", "1m", "--window", "10m"]);
    deciding.args(["--keep", "1h", "--least", "1", "--out", "plex", "--geo", "geo.mmdb"]);
    let path = |path: &Path| path.to_string_lossy().into_owned();
    for edge in &edges {
        deciding.args(["--records", &path(&edge.directory().join("records"))]);
    }
    let deciding = Program::start(deciding.current_dir(folder.path()));
    let _carriers: Vec<Program> = edges
        .iter()
        .map(|edge| {
            let mut sync = Command::new(&decider);
            sync.args(["sync", "--from", "plex", "--every", "1s", "--only", "table.groups"]);
            sync.args(["--only", "report.json", "--to", &path(&edge.directory().join("plex"))]);
            Program::start(sync.current_dir(folder.path()))
        })
        .collect();

    let is = |part: &'static str| move |row: &&Value| row["autoplex"] == part;
    // Eight concurrent viewers, until `wanted` new records since `known` have this `part`.
    let mut network = 0;
    let mut watch = |known: &[Value], part: &'static str, wanted: usize| {
        let new =
            || rows(&edges).into_iter().filter(|row| !known.contains(row)).collect::<Vec<_>>();
        for round in 1..=4 {
            let viewers = behind_links(&edges, network);
            network += 1;
            viewers.iter().for_each(|behind| behind.viewer.wait_for_frames(FRAMES));
            drop(viewers);
            within(minutes(1), "records", || (new().len() >= 8 * round).then_some(()));
            if new().iter().filter(is(part)).count() >= wanted {
                return new();
            }
        }
        panic!("{part}: too few of {:?}", new());
    };
    // No session is capped yet.
    let before = watch(&[], "explorer", 4);
    assert!(before.iter().all(|row| row["cap_mbps"].is_null()), "{before:?}");
    for edge in &edges {
        within(minutes(3), "a table", || {
            (edge.metric("mendcast_autoplex_groups") > 0.0).then_some(())
        });
    }
    let told = mendcast(&["autoplex", "explain", "127.3.9.9", "--json"])
        .args(["--table", "plex/table.groups"])
        .current_dir(folder.path())
        .output()
        .expect("run");
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!((&told["held"], &told["groups"][0]["name"]), (&true.into(), &"XX/AS64513".into()));
    let rate = told["parameters"]["rate_mbps"].as_f64().expect("a rate");
    assert!((3.0..4.4).contains(&rate), "{told}");

    let after = watch(&before, "treated", 3);
    let held = || after.iter().filter(is("treated"));
    assert!(held().all(|row| number(row, "cap_mbps") > 2.0), "{after:?}");
    let free = after.iter().filter(is("explorer"));
    assert!(free.clone().all(|row| row["cap_mbps"].is_null()), "{after:?}");
    let (free, held) = (retransmitted(before.iter().chain(free)), retransmitted(held()));
    println!("the table says {rate} Mbps; retransmitted {free:.4}, held {held:.4}");
    assert!(held < 0.7 * free, "{free} {held}");

    // It goes at its source, and with it every copy.
    drop(deciding);
    std::fs::remove_file(folder.path().join("plex/table.groups")).expect("there");
    for edge in &edges {
        edge.says("no user group has parameters");
        assert_eq!(edge.metric("mendcast_autoplex_groups"), 0.0);
    }
    let last = watch(&[before, after].concat(), "treated", 3);
    assert!(last.iter().all(|row| row["cap_mbps"].is_null()), "{last:?}");
}
