//! A live stream over eight links at once and over real sockets: one `mendcast edge`, and for each
//! link a `mendcast link` with a `mendcast watch` as its viewer. `experiments/links.toml` has the
//! same links in virtual time. A transport that takes them for congestion freezes most of the view,
//! or shows nothing.

#![cfg(all(feature = "edge", feature = "tools"))]

mod common;
#[path = "common/processes.rs"]
mod processes;

use std::process::{Child, Stdio};
use std::time::Duration;

use common::mendcast;
use common::publisher::Publisher;
use processes::{Relay, edge};
use serde_json::Value;

/// Time for which each viewer watches, in seconds.
const WATCHED_SECONDS: f64 = 9.0;
/// Time between the first key frame and the start of the viewers, who begin at that key frame. The
/// next one follows after 2 s; a slow handshake takes 1 s.
const CACHED: Duration = Duration::from_millis(500);
/// Tags of the demo clip per second: 25 pictures and 47 frames of sound.
const TAGS_PER_SECOND: f64 = 72.0;
/// Longest time to the first picture, in milliseconds.
const MAX_FIRST_FRAME_MS: f64 = 3_000.0;
/// Smallest share of the control's tags.
const MIN_ARRIVED: f64 = 0.97;
/// Largest frozen share of the time after the player's start. The player is the low-latency one.
const MAX_FROZEN: f64 = 0.05;
/// The same with acknowledgements each 250 ms. The first window grows once in 290 ms, and the
/// player starts with 200 ms of media: it freezes once, for about 0.5 s.
const MAX_FROZEN_AT_START: f64 = 0.25;

/// Ten times the stream, and a queue of 100 kB.
const WIDE: [&str; 4] = ["--rate", "15mbps", "--queue", "100kB"];
/// One and a half times the stream.
const NARROW: [&str; 4] = ["--rate", "2.3mbps", "--queue", "100kB"];

/// A link and its viewer.
struct Cell {
    name: &'static str,
    bottleneck: [&'static str; 4],
    options: &'static [&'static str],
    /// Longest time that the link itself delays data by, in seconds.
    delay: f64,
    max_frozen: f64,
}

const fn cell(name: &'static str, delay: f64, options: &'static [&'static str]) -> Cell {
    Cell { name, bottleneck: WIDE, options, delay, max_frozen: MAX_FROZEN }
}

/// The first one is the control.
const CELLS: [Cell; 8] = [
    cell("plain", 0.02, &["--rtt", "40ms"]),
    cell("bunches of 200 ms", 0.22, &["--rtt", "40ms", "--bunches", "200ms"]),
    cell(
        "acknowledgements in bunches of 300 ms",
        0.02,
        &["--rtt", "40ms", "--bunches-up", "300ms"],
    ),
    Cell {
        max_frozen: MAX_FROZEN_AT_START,
        ..cell("rare acknowledgements", 0.02, &["--rtt", "40ms", "--acks", "each=100,within=250ms"])
    },
    Cell {
        bottleneck: NARROW,
        ..cell("a longer path", 0.15, &["--rtt", "20ms", "--rtt-steps", "3s:300ms"])
    },
    cell("ECN dropped", 0.02, &["--rtt", "40ms", "--ecn", "drop"]),
    cell("ECN dropped from 3 s on", 0.02, &["--rtt", "40ms", "--ecn", "drop,from=3s"]),
    cell("two addresses in turn", 0.02, &["--rtt", "40ms", "--flap-every", "50ms"]),
];

/// A viewer's numbers.
struct Seen {
    first_frame_ms: f64,
    tags: f64,
    frozen: f64,
}

impl Seen {
    /// Waits for the viewer's end.
    ///
    /// # Errors
    /// The viewer's words if it fails.
    fn of(viewer: Child) -> Result<Self, String> {
        let output = viewer.wait_with_output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let seen: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
        let number = |value: &Value| value.as_f64().ok_or_else(|| format!("no picture: {seen}"));
        let player = &seen["players"][0];
        let (played, freeze) = (number(&player["played_s"])?, number(&player["freeze_s"])?);
        Ok(Self {
            first_frame_ms: number(&player["first_frame_ms"])?,
            tags: number(&seen["tags"])?,
            frozen: freeze / (played + freeze).max(1.0),
        })
    }
}

#[test]
fn a_live_stream_plays_over_links_that_mistreat_packets_or_acknowledgements() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(dir.path().join("www")).expect("made");
    let mut edge = edge(dir.path(), "[rtmp]\nlisten = [\"127.0.0.1:0\"]\n");
    let relay = |(number, cell): (usize, &Cell)| {
        // The server remembers networks that drop ECN: each link has networks of its own.
        let (one, two) = (format!("127.0.{}.1", number + 1), format!("127.0.{}.2", number + 1));
        let flaps = cell.options.contains(&"--flap-every");
        let from = if flaps { format!("{one},{two}") } else { one };
        let mut command = mendcast(&["link", "--listen", "127.0.0.1:0", "--from", &from]);
        command.args(["--to", &edge.address.to_string()]).args(cell.bottleneck).args(cell.options);
        Relay::start(&mut command)
    };
    let relays: Vec<Relay> = CELLS.iter().enumerate().map(relay).collect();
    let publisher = Publisher::start(edge.rtmp(), "live/demo", None);
    std::thread::sleep(CACHED);
    let url = format!("https://{}/live/demo.flv", edge.address);
    let seconds = WATCHED_SECONDS.to_string();
    let viewer = |relay: &Relay| {
        mendcast(&["watch", &url, "--insecure", "--json", "--seconds", &seconds])
            .args(["--connect", &relay.address])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started")
    };
    let viewers: Vec<Child> = relays.iter().map(viewer).collect();
    let seen: Vec<_> = viewers.into_iter().map(Seen::of).collect();
    drop(publisher);
    drop(relays);
    edge.terminate();

    let control = seen[0].as_ref().map_or(0.0, |control| control.tags);
    let lines: Vec<(bool, String)> =
        CELLS.iter().zip(&seen).map(|(cell, seen)| judge(cell, seen, control)).collect();
    let table: Vec<&str> = lines.iter().map(|(_, line)| &line[..]).collect();
    let table = table.join("\n");
    println!("{table}");
    assert!(lines.iter().all(|(is_good, _)| *is_good), "\n{table}");
    // The control misses the time of its handshake at most.
    assert!(control >= 0.95 * TAGS_PER_SECOND * WATCHED_SECONDS, "\n{table}");
}

/// Whether a cell passes, and its line of the table. The control got `control` tags.
fn judge(cell: &Cell, seen: &Result<Seen, String>, control: f64) -> (bool, String) {
    let Seen { first_frame_ms, tags, frozen } = match seen {
        Ok(seen) => seen,
        Err(e) => return (false, format!("{}: {e} FAILED", cell.name)),
    };
    // Data in flight over a link of this delay does not count as missing.
    let arrived = tags / (control - TAGS_PER_SECOND * (cell.delay - CELLS[0].delay));
    let is_good = *first_frame_ms <= MAX_FIRST_FRAME_MS
        && arrived >= MIN_ARRIVED
        && *frozen <= cell.max_frozen;
    let line = format!(
        "{}: first frame {first_frame_ms:.0} ms, {tags} tags, {:.1} % arrived, {:.1} % frozen{}",
        cell.name,
        100.0 * arrived,
        100.0 * frozen,
        if is_good { "" } else { " FAILED" }
    );
    (is_good, line)
}
