//! AutoPlex on sockets: a table of user groups holds sessions, and when it is gone it does not.

use std::time::Duration;

use groups::{Building, Group, Parameters, Table, Times};
use nix::sys::signal::Signal;
use serde_json::Value;
use units::Rate;

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::until;
use crate::support::viewer::Viewer;

/// All of loopback is one group that may send next to nothing.
fn table() -> Table {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let issued = now.expect("after 1970").as_secs();
    let times = Times { issued, lifetime: Duration::from_secs(7_200) };
    let rate = Rate::from_kbps(64);
    let parameters = Some(Parameters { rate, in_flight: 10_000, sessions: 300, decided: issued });
    let mut building = Building::new(times);
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
fn a_table_holds_sessions_to_what_their_streams_need_and_none_when_it_is_gone() {
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
    edge.says("the table in force stays");
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
    // The group's 64 kbit/s starve nobody: one and a half times the stream's rate remain.
    let (cap, stream) = (number(&rows[0], "cap_mbps"), number(&rows[0], "stream_mbps"));
    let times = cap.expect("held") / stream.expect("known");
    assert!((1.2..1.9).contains(&times), "{times}: {lines}");
    assert_eq!((number(&rows[1], "cap_mbps"), number(&rows[0], "skips")), (None, Some(0.0)));
}
