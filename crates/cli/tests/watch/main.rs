//! `mendcast watch` against `mendcast edge`: two processes on loopback, HTTP/3 between them.

#![cfg(all(feature = "edge", feature = "tools"))]

#[path = "../common/mod.rs"]
mod common;
mod live;
#[path = "../common/processes.rs"]
mod processes;

use std::net::UdpSocket;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use common::mendcast;
use processes::{Edge, Relay, edge, edge_at};

fn content(dir: &Path, bytes: usize) {
    let www = dir.join("www");
    std::fs::create_dir_all(&www).expect("made");
    std::fs::write(www.join("a.bin"), vec![7; bytes]).expect("written");
}

fn watch(url: &str, more: &[&str]) -> Output {
    mendcast(&["watch", url]).args(more).output().expect("run")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_response_is_watched_to_its_end() {
    let dir = tempfile::tempdir().expect("a directory");
    content(dir.path(), 3_000_000);
    let edge = edge(dir.path(), "");
    let url = format!("https://{}/a.bin", edge.address);
    let output = watch(&url, &["--insecure", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&seen["status"], &seen["bytes"]), (&200.into(), &3_000_000.into()), "{seen}");
    assert_eq!((&seen["complete"], &seen["protocol"]), (&true.into(), &"h3".into()), "{seen}");
    let order: Vec<f64> = ["connect_ms", "first_byte_ms", "duration_ms"]
        .iter()
        .map(|name| seen[name].as_f64().expect("a number"))
        .collect();
    assert!(order[0] > 0.0 && order.is_sorted(), "{seen}");
    let text = watch(&url, &["--insecure"]);
    let line = String::from_utf8(text.stdout).expect("text");
    assert!(line.contains("3000000 bytes") && line.lines().count() == 1, "{line}");
}

#[test]
fn a_view_ends_when_its_time_is_up() {
    let dir = tempfile::tempdir().expect("a directory");
    content(dir.path(), 30_000_000);
    let edge = edge(dir.path(), "");
    let link = ["link", "--listen", "127.0.0.1:0", "--rate", "8mbps", "--to"];
    let link = Relay::start(mendcast(&link).arg(edge.address.to_string()));
    let url = format!("https://{}/a.bin", link.address);
    let output = watch(&url, &["--insecure", "--json", "--seconds", "1.5"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(seen["complete"], false, "{seen}");
    // 1.5 s at 8 Mbps.
    let bytes = seen["bytes"].as_u64().expect("a number");
    assert!(bytes > 100_000 && bytes < 1_600_000, "{seen}");
}

/// The records of a JSON text sequence.
fn records(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).expect("readable");
    text.split('\u{1e}')
        .skip(1)
        .map(|record| serde_json::from_str(record).expect("a record of JSON"))
        .collect()
}

#[test]
fn a_view_over_a_lossy_path_leaves_a_qlog_that_agrees_with_the_counters() {
    let dir = tempfile::tempdir().expect("a directory");
    content(dir.path(), 1_000_000);
    let edge = edge(
        dir.path(),
        "[quic]\nqlog_dir = \"qlog\"\n[log]\nconnections = \"connections.jsonl\"\n",
    );
    let link = ["link", "--listen", "127.0.0.1:0", "--rtt", "20ms", "--loss", "3%", "--seed", "1"];
    let link = Relay::start(mendcast(&link).arg("--to").arg(edge.address.to_string()));
    let url = format!("https://{}/a.bin", link.address);
    let output = watch(&url, &["--insecure", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    // The connection ends three probe time-outs after the client's close.
    let summary = dir.path().join("connections.jsonl");
    let end = Instant::now() + Duration::from_secs(10);
    let line = loop {
        let text = std::fs::read_to_string(&summary).unwrap_or_default();
        if let Some(line) = text.lines().next() {
            break line.to_owned();
        }
        assert!(Instant::now() < end, "no line in {}", summary.display());
        std::thread::sleep(Duration::from_millis(20));
    };
    let summary: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let file = std::fs::read_dir(dir.path().join("qlog")).expect("made").next().expect("a file");
    let file = file.expect("readable").path();
    let closed = || records(&file).iter().any(|r| r["name"] == "connectivity:connection_closed");
    while !closed() {
        assert!(Instant::now() < end, "{} does not end", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    let records = records(&file);
    let count = |name: &str| records.iter().filter(|record| record["name"] == name).count() as u64;
    assert_eq!(summary["packets_sent"], count("transport:packet_sent"), "{summary}");
    assert_eq!(summary["packets_lost"], count("recovery:packet_lost"), "{summary}");
    assert!(count("recovery:packet_lost") > 0 && count("recovery:metrics_updated") > 0);
    let times: Vec<f64> = records.iter().filter_map(|record| record["time"].as_f64()).collect();
    assert!(times.len() == records.len() - 1 && times.is_sorted());
    let bytes: u64 = records
        .iter()
        .filter(|record| record["name"] == "transport:packet_sent")
        .flat_map(|record| record["data"]["frames"].as_array().expect("frames"))
        .filter(|frame| frame["frame_type"] == "stream" && frame["stream_id"] == 0)
        .map(|frame| frame["length"].as_u64().expect("a length"))
        .sum();
    assert!(bytes > 1_000_000, "content, frame headers of HTTP/3 and retransmissions: {bytes}");
}

/// AutoRec, journal version, section VIII-C: lost data P1 is sent again as P2, with replicas P3
/// and up, each with its own packet number. The qlog records this, and the reason for their
/// number.
#[test]
fn the_qlog_of_a_view_shows_renumbered_copies_and_why_there_are_as_many() {
    let dir = tempfile::tempdir().expect("a directory");
    content(dir.path(), 3_000_000);
    let edge = edge(
        dir.path(),
        "[quic]\nqlog_dir = \"qlog\"\n[recovery]\nscheme = \"autorec\"\nlatency = \"0s\"\ncost = 0.3\n\
         goodput = 1.0\nmax_redundancy = 0.5\nmax_redundancy_of_all = 0.25\n",
    );
    let link = ["link", "--listen", "127.0.0.1:0", "--rate", "20mbps", "--rtt", "30ms"];
    let link = Relay::start(
        mendcast(&link).args(["--loss", "5%", "--seed", "1", "--to"]).arg(edge.address.to_string()),
    );
    let output = watch(&format!("https://{}/a.bin", link.address), &["--insecure", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let file = std::fs::read_dir(dir.path().join("qlog")).expect("made").next().expect("a file");
    let records = records(&file.expect("readable").path());
    // By stream offset: packet numbers and triggers of what carried it.
    let mut sent: std::collections::BTreeMap<u64, Vec<(u64, String)>> = Default::default();
    for packet in records.iter().filter(|record| record["name"] == "transport:packet_sent") {
        let data = &packet["data"];
        let trigger = data["trigger"].as_str().unwrap_or("first").to_owned();
        let number = data["header"]["packet_number"].as_u64().expect("a number");
        for frame in data["frames"].as_array().expect("frames") {
            if frame["frame_type"] == "stream" && frame["stream_id"] == 0 {
                let offset = frame["offset"].as_u64().expect("an offset");
                sent.entry(offset).or_default().push((number, trigger.clone()));
            }
        }
    }
    let chains: Vec<_> = sent.values().filter(|chain| chain.len() >= 3).collect();
    assert!(chains.len() >= 20, "{} chains of copies", chains.len());
    for chain in &chains {
        assert_eq!(chain[0].1, "first", "{chain:?}");
        assert!(chain.is_sorted_by(|a, b| a.0 < b.0), "{chain:?}");
    }
    let is_example = |chain: &&&Vec<(u64, String)>| {
        let triggers: Vec<_> = chain.iter().map(|(_, trigger)| &trigger[..]).collect();
        triggers.starts_with(&["first", "retransmit_reordered", "replica", "replica"])
    };
    assert!(chains.iter().any(|chain| is_example(&chain)), "{chains:?}");
    let decisions: Vec<_> =
        records.iter().filter(|r| r["name"] == "mendcast:recovery_decision").collect();
    for decision in &decisions {
        let data = &decision["data"];
        let value = |name: &str| data[name].as_f64().unwrap_or_else(|| panic!("{name}: {data}"));
        assert_eq!(data["scheme"], "autorec");
        let least = value("k_alpha").min(value("k_beta")).min(value("k_gamma"));
        let expected = if value("loss_rate") > 0.0 { least } else { 0.0 };
        assert_eq!(value("level"), expected, "{data}");
        assert!(value("guard_budget_bytes") >= 0.0);
    }
    assert!(decisions.iter().any(|d| d["data"]["level"].as_f64() > Some(0.0)), "{decisions:?}");
}

#[test]
fn what_goes_wrong_is_one_line_and_exit_code_1() {
    let dir = tempfile::tempdir().expect("a directory");
    content(dir.path(), 10);
    let edge = edge(dir.path(), "");
    let here = format!("https://{}", edge.address);
    // A bound port that does not answer.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let silent = format!("https://{}/", silent.local_addr().expect("bound"));
    let ca = dir.path().join("none.pem");
    let ca = ca.to_str().expect("text");
    for (url, more, expected) in [
        (format!("{here}/none"), &["--insecure"][..], "HTTP status 404"),
        (format!("{here}/a.bin"), &[], "trust it with --ca FILE"),
        (format!("{here}/a.bin"), &["--ca", ca], "none.pem"),
        ("http://127.0.0.1/".to_owned(), &[], "https://"),
        (silent, &["--insecure"], "no answer within 10 s"),
    ] {
        let output = watch(&url, more);
        assert_eq!(output.status.code(), Some(1), "{url} {more:?}");
        let text = stderr(&output);
        assert!(text.contains(expected) && text.lines().count() == 1, "{url} {more:?}: {text}");
    }
    assert_eq!(watch("https://a/", &["--seconds", "0"]).status.code(), Some(2));
}
