//! Viewers slower than the stream skip data and stay connected, without effect on others.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use media::Role;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::edge::Edge;
use crate::support::publishing::{CONFIGURATION, INTER, KEY, Publishing, picture};
use crate::support::until;
use crate::support::viewer::{Slow, Viewer};

/// A picture is 40 ms and this large: 16 Mbit/s.
const SIZE: usize = 80_000;
/// Pictures from one key frame to the next.
const GROUP: u32 = 25;

/// Publishes pictures in their time until it is told to stop.
fn publish(mut publishing: Publishing, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let start = Instant::now();
        assert!(publishing.send(&picture(CONFIGURATION, 0, 40)));
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let kind = if number % GROUP == 0 { KEY } else { INTER };
            assert!(publishing.send(&picture(kind, number * 40, SIZE)));
            let due = Duration::from_millis(40) * (number + 1);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
    })
}

/// Number of jumps in time, each of which must lead to a key frame, and their total length.
fn jumps(viewer: &Viewer) -> (u64, u64) {
    let frames = viewer.frames();
    let (mut jumps, mut far) = (0, 0);
    for two in frames.windows(2) {
        let step = two[1].timestamp() - two[0].timestamp();
        if step != 40 {
            assert_eq!(two[1].role(), Role::KeyFrame, "{two:?}");
            jumps += 1;
            far += u64::from(step - 40);
        }
    }
    (jumps, far)
}

#[test]
fn slow_viewers_skip_without_effect_on_others() {
    let mut edge = Edge::start(
        "live.max_lag = \"1s\"\ndrain.timeout = \"0s\"\nrecords.directory = \"records\"\n",
    );
    let stop = Arc::new(AtomicBool::new(false));
    let publishing = Publishing::open(edge.rtmp, "live/demo").expect("granted");
    let publisher = publish(publishing, stop.clone());
    let good = Viewer::h3(edge.address, "/live/demo.flv");
    good.wait_for_frames(10);
    let slow = Slow::default();
    let viewers = [
        Viewer::slow_h1(edge.address, "/live/demo.flv", &slow),
        Viewer::slow_h3(edge.address, "/live/demo.flv", &slow),
    ];
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(25));
    let memory = || edge.metric("mendcast_resident_memory_bytes");
    let before = memory();
    slow.store(true, Ordering::Relaxed);
    let skips = |protocol: &str| {
        let labels = format!("protocol=\"{protocol}\",format=\"flv\"}}");
        let cohort = if protocol == "h3" { "all" } else { "" };
        edge.metric(&format!("mendcast_skips_total{{cohort=\"{cohort}\",{labels}"))
    };
    until("both skip", || skips("h1") >= 2.0 && skips("h3") >= 2.0);
    let after = memory();
    assert!(after - before < 16e6, "{before} {after}");
    slow.store(false, Ordering::Relaxed);
    for viewer in &viewers {
        viewer.wait_for_more(50);
        assert!(jumps(viewer).0 >= 1);
        assert_eq!(viewer.has_ended(), None);
    }
    assert_eq!(jumps(&good), (0, 0));
    edge.signal(Signal::SIGTERM);
    assert_eq!(edge.exit_code(), Some(0));
    stop.store(true, Ordering::Relaxed);
    // It may have met the end of the server.
    let _ = publisher.join();

    let directory = std::fs::read_dir(edge.directory().join("records")).expect("made");
    let paths = directory.map(|entry| entry.expect("an entry").path());
    let lines = paths.filter(|path| path.extension().is_some_and(|e| e == "jsonl"));
    let text: String = lines.map(|path| std::fs::read_to_string(path).expect("read")).collect();
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |protocol: &str, skips: bool| {
        let is = |record: &&Value| {
            record["protocol"] == protocol && (record["skips"].as_u64() > Some(0)) == skips
        };
        records.iter().find(is).unwrap_or_else(|| panic!("{protocol} in {text}"))
    };
    for (protocol, viewer) in ["h1", "h3"].into_iter().zip(&viewers) {
        let record = of(protocol, true);
        let (jumps, far) = jumps(viewer);
        assert!(record["skips"].as_u64() >= Some(jumps.max(2)), "{jumps}: {record}");
        let counted = record["skipped_ms"].as_u64().expect("a number");
        assert!(counted >= far.max(200), "{far}: {record}");
    }
    let record = of("h3", false);
    assert_eq!((&record["skips"], &record["skipped_ms"]), (&0.into(), &0.into()), "{record}");
}
