//! What an operator does to a server that has viewers: reload, change certificates, end it, and
//! read its records.

use std::net::TcpStream;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::mendcast;
use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::http3::{Request, Windows, runtime};
use crate::support::origin::{Origin, respond};
use crate::support::viewer::{End, Viewer};
use crate::support::{assert_is_clip, http, http3, tls, until};

#[test]
fn a_reload_applies_to_new_viewers_only() {
    let edge = Edge::start("live.cors = \"https://a.test\"\n");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let running = [
        Viewer::h1(edge.address, "/live/demo.flv"),
        Viewer::h3(edge.address, "/live/demo.flv"),
        Viewer::rtmp(edge.rtmp, "live/demo"),
    ];
    running.iter().for_each(|viewer| viewer.wait_for_frames(10));
    let cors = || {
        let answer = http::get(edge.address, "/live/demo.flv");
        answer.field("access-control-allow-origin").map(str::to_owned)
    };
    assert_eq!(cors().as_deref(), Some("https://a.test"));
    edge.reload("live.cors = \"https://b.test\"\nlive.start = \"keyframe\"\n");
    assert_eq!(cors().as_deref(), Some("https://b.test"));
    // New viewers start at a key frame that is still to come.
    let newest = running[0].stream_frames().last().map_or(0, media::Tag::timestamp);
    let new = [
        Viewer::h1(edge.address, "/live/demo.flv"),
        Viewer::h3(edge.address, "/live/demo.flv"),
        Viewer::rtmp(edge.rtmp, "live/demo"),
    ];
    for viewer in &new {
        viewer.wait_for_frames(1);
        let first = viewer.stream_frames().first().map_or(0, media::Tag::timestamp);
        assert!((1..60_000).contains(&first.wrapping_sub(newest)), "{first} after {newest}");
    }
    for viewer in &running {
        viewer.wait_for_more(10);
        assert_is_clip(&viewer.frames());
    }
}

#[test]
fn a_reload_warns_of_changes_that_need_a_restart() {
    let edge = Edge::start("hooks.secret = \"first-secret\"\n");
    // Ports of 0 are as they were.
    edge.reload(
        "recovery.scheme = \"arq\"\nhooks.secret = \"second-secret\"\nlog.level = \"debug\"\n\
         log.connections = \"connections\"\nrecords.directory = \"records\"\nlive.max_streams = 3\ndrain.timeout = \"1s\"\n",
    );
    let line = edge.says("edge.toml reloaded");
    let keys = "new connections and streams: [recovery] scheme; at once: [hooks] secret, [log] level, \
                [drain] timeout";
    assert!(line.ends_with(keys), "{line}");
    let line = edge.says("require a restart");
    let keys = "WARN edge.toml: new values require a restart: [live] max_streams, \
                [records] directory, [log] connections";
    assert!(line.ends_with(keys), "{line}");
    assert!(!edge.directory().join("records").exists(), "nobody writes there yet");
    edge.reload("");
    assert_eq!(edge.said("require a restart").len(), 1, "all is as at the start");
    assert!(edge.said("-secret").is_empty(), "{:?}", edge.log());
}

#[test]
fn a_new_hook_secret_applies_at_once_to_open_connections() {
    let operator = Origin::start(|_, socket| respond(socket, 204, "x: y", b""));
    let keys = format!("hooks.on_play = \"{}\"\n", operator.url("/"));
    let edge = Edge::start(&keys);
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let client = runtime();
    let request = Request::send(edge.address, "GET", "/live/demo.flv", Windows::Usual);
    let mut open = client.block_on(request).expect("an answer");
    edge.reload(&format!("{keys}hooks.secret = \"x\"\n"));
    assert_eq!(client.block_on(open.another("/live/demo.flv")), Ok(200));
    let asked = operator.requests();
    let signed = asked.iter().map(|asked| asked.fields.contains_key("x-mendcast-signature"));
    assert_eq!(signed.collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_new_certificate_applies_to_new_connections() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = tls::write_certificate(directory.path());
    let keys = "server.certificate = \"chain.pem\"\nserver.key = \"key.pem\"\n";
    let edge = Edge::start_in(directory, keys, None);
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let running =
        [Viewer::h1(edge.address, "/live/demo.flv"), Viewer::h3(edge.address, "/live/demo.flv")];
    running.iter().for_each(|viewer| viewer.wait_for_frames(10));
    let seen = || {
        let h3 = runtime().block_on(async {
            let request = Request::send(edge.address, "GET", "/none", Windows::Usual).await;
            let request = request.expect("an answer");
            let certificate = request.certificate();
            request.close().await;
            certificate
        });
        assert_eq!(h3, http::certificate(edge.address));
        h3
    };
    assert!(seen() == first);
    let second = tls::write_certificate(edge.directory());
    edge.reload(keys);
    assert!(seen() == second && second != first);
    // A key that does not fit changes nothing.
    std::fs::copy(edge.config(), edge.directory().join("key.pem")).expect("copied");
    edge.signal(Signal::SIGHUP);
    edge.says("not reloaded");
    assert!(seen() == second);
    for viewer in &running {
        viewer.wait_for_more(10);
        assert_is_clip(&viewer.frames());
    }
}

/// The files of records with this extension.
fn files(edge: &Edge, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(edge.directory().join("records")).expect("made");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
}

#[test]
fn a_drain_lets_viewers_go_on_until_its_end_and_writes_their_records() {
    let mut edge = Edge::start("drain.timeout = \"3s\"\nrecords.directory = \"records\"\n");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewers = [
        Viewer::h1(edge.address, "/live/demo.flv"),
        Viewer::h3(edge.address, "/live/demo.flv"),
        Viewer::rtmp(edge.rtmp, "live/demo"),
    ];
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(30));
    let client = runtime();
    let request = Request::send(edge.address, "GET", "/live/demo.flv", Windows::Usual);
    let mut request = client.block_on(request).expect("an answer");
    assert_eq!(client.block_on(request.another("/none")), Ok(404));
    assert_eq!(edge.health(), (200, "ok\n".into()));
    assert_eq!(edge.readiness(), (200, "ready\n".into()));
    edge.signal(Signal::SIGTERM);
    until("the drain", || edge.readiness() == (503, "draining\n".into()));
    assert_eq!(edge.health(), (200, "ok\n".into()), "it lives");
    until("new TCP connections are refused", || TcpStream::connect(edge.address).is_err());
    until("new RTMP connections are refused", || TcpStream::connect(edge.rtmp).is_err());
    let refused = http3::status(edge.address, "GET", "/live/demo.flv").expect_err("refused");
    assert!(refused.contains("refused to accept"), "{refused}");
    // After GOAWAY the client starts no requests on the connection; the running one continues.
    until("GOAWAY", || client.block_on(request.another("/none")).is_err());
    let data = client.block_on(request.next()).expect("the stream goes on");
    assert!(data.is_some());
    client.block_on(request.close());
    for viewer in &viewers {
        assert_eq!(viewer.has_ended(), None);
        viewer.wait_for_more(20);
        assert_is_clip(&viewer.frames());
    }
    let ends = viewers.each_ref().map(Viewer::end);
    assert!(!ends.contains(&End::Clean), "the stream is not over: {ends:?}");
    let End::Cut(why) = &ends[1] else { panic!("{ends:?}") };
    assert!(why.contains("H3_NO_ERROR") || why.contains("NoError"), "{why}");
    assert_eq!(edge.exit_code(), Some(0));

    let text = std::fs::read_to_string(&files(&edge, "jsonl")[0]).expect("readable");
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut protocols: Vec<_> = records.iter().map(|r| r["protocol"].as_str()).collect();
    protocols.sort();
    assert_eq!(protocols, [Some("h1"), Some("h3"), Some("h3"), Some("rtmp")], "{text}");
    let long = records.iter().filter(|record| {
        record["bytes"].as_u64() > Some(100_000) && record["duration_s"].as_f64() > Some(2.0)
    });
    assert_eq!(long.clone().count(), viewers.len(), "{text}");
    // Of HTTP/3 the transport is known, also how losses come together.
    let mut of_h3 = long.filter(|record| record["protocol"] == "h3");
    let record = of_h3.next().expect("a long session over HTTP/3");
    assert!(record["max_bandwidth_mbps"].as_f64() > Some(0.1), "{record}");
    assert!(record["congestion_controller"].is_string(), "{record}");
    for column in ["first_bytes", "units_finished", "rounds_max", "bursts", "after_200ms_sent"] {
        assert!(record[column].is_i64(), "{column}: {record}");
    }
    // For HTTP/1.1 the kernel supplies TCP statistics.
    let record = records.iter().find(|record| record["protocol"] == "h1").expect("one");
    assert!(record["rtt_ms"].as_f64() > Some(0.0), "{record}");
    assert!(record["first_bytes"].as_u64() > Some(50_000), "{record}");
    assert!(record["packets_settled"].as_u64() >= Some(10), "{record}");
    assert!(
        record["congestion_controller"].is_string() && record["replicas"].is_null(),
        "{record}"
    );
    // The same is in the Parquet file.
    let parquet = files(&edge, "parquet");
    let output =
        mendcast(&["records", "ab", "--json", "--metric", "bytes"]).args(&parquet).output();
    let output = output.expect("run");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(report.contains("\"sessions\":"), "{report}");
    // Rows of the testbed go through the same reader and report.
    let lab = r#"{"protocol":"h3","prefix":"198.51.100.0/24","group":"wifi","access":"wifi","duration_s":60,
        "bytes":1000,"rtt_min_ms":50,"loss_rate":0.05,"player_frames":1500,"player_late_frames":15}"#;
    let lab = lab.split_whitespace().collect::<String>() + "\n";
    std::fs::write(edge.directory().join("records/lab.jsonl"), lab).expect("written");
    let output =
        mendcast(&["records", "study", "--json"]).arg(edge.directory().join("records")).output();
    let output = output.expect("run");
    let study: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&study["records"], &study["files"]), (&5.into(), &2.into()), "{study}");
    assert_eq!(study["impossible"]["named"], serde_json::json!([]), "{study}");
    let section = |name: &str| {
        let all = study["sections"].as_array().expect("sections");
        all.iter().find(|section| section["name"] == name).expect("a section").clone()
    };
    let columns = |name: &str| section(name)["columns"].clone();
    // Three sessions have a transport, or two if nothing of the last one was acknowledged in time.
    let rtt = columns("similarity");
    let rtt = rtt.as_array().and_then(|all| all.iter().find(|column| column[0] == "rtt_min_ms"));
    assert!(rtt.and_then(|column| column[1].as_u64()) >= Some(2), "{rtt:?}");
    let sizes = section("first_frames")["tables"][0]["lines"][0]["cells"][0].clone();
    // HTTP-FLV over both versions; the mean size of a first frame of the clip is a few thousand
    // bytes.
    assert!(sizes["n"].as_u64() >= Some(2) && sizes["value"].as_f64() > Some(0.1), "{sizes}");
}

#[test]
fn a_drain_ends_when_its_last_viewer_leaves() {
    let mut edge = Edge::start("drain.timeout = \"1h\"\nlive.linger = \"0s\"\n");
    let publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewers =
        [Viewer::h1(edge.address, "/live/demo.flv"), Viewer::h3(edge.address, "/live/demo.flv")];
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(10));
    edge.signal(Signal::SIGTERM);
    edge.says("draining");
    // The end of the stream is the end of all responses.
    drop(publisher);
    viewers.iter().for_each(|viewer| assert_eq!(viewer.end(), End::Clean));
    assert_eq!(edge.exit_code(), Some(0));
}

#[test]
fn a_drain_sends_publishers_away_and_ends_their_streams() {
    let mut edge = Edge::start("drain.timeout = \"1h\"\ndrain.publishers = \"500ms\"\n");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewers = [
        Viewer::h1(edge.address, "/live/demo.flv"),
        Viewer::h3(edge.address, "/live/demo.flv"),
        Viewer::rtmp(edge.rtmp, "live/demo"),
    ];
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(10));
    edge.signal(Signal::SIGTERM);
    edge.says("disconnected by the drain");
    viewers.iter().for_each(|viewer| assert_eq!(viewer.end(), End::Clean));
    assert_eq!(edge.exit_code(), Some(0));
}

#[test]
fn a_drain_delivers_responses_that_are_on_their_way() {
    // The file is handed to the transport as a whole, and half of it waits for the client.
    const LENGTH: usize = 48 * 1024;
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(directory.path().join("www")).expect("made");
    std::fs::write(directory.path().join("www/half.bin"), vec![7; LENGTH]).expect("written");
    let more = "server.root = \"www\"\ndrain.timeout = \"1h\"\n";
    let mut edge = Edge::start_in(directory, more, None);
    let runtime = runtime();
    runtime.block_on(async {
        let request = Request::send(edge.address, "GET", "/half.bin", Windows::Tiny).await;
        let mut request = request.expect("answered");
        edge.signal(Signal::SIGTERM);
        edge.says("draining");
        until("the drain", || edge.readiness() == (503, "draining\n".into()));
        let mut received = 0;
        while let Some(data) = request.next().await.expect("not cut off") {
            received += data.len();
        }
        assert_eq!(received, LENGTH);
    });
    drop(runtime);
    assert_eq!(edge.exit_code(), Some(0));
}
