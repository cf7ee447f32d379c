//! HTTP-FLV of a ladder: viewers change renditions by their delivery rate, without a lost frame.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use media::{Role, Tag};

use crate::support::edge::Edge;
use crate::support::publishing::{CONFIGURATION, INTER, KEY, Publishing, picture};
use crate::support::viewer::{Slow, Viewer};
use crate::support::{until, within};

/// Sizes of a picture of 40 ms: 3.2 and 0.6 Mbit/s. Slow viewers read 1.6 Mbit/s.
const HIGH: usize = 16_000;
const LOW: usize = 3_000;
/// Pictures from one key frame to the next.
const GROUP: u32 = 25;
/// Time for a step up after a failed one.
const STEP_UP: Duration = Duration::from_secs(60);

const LADDER: &str = "[[ladder]]\nname = \"live/show\"\n\
                      renditions = [\"live/show_high\", \"live/show_low\"]\n";

/// An output of the encoder: its connection, and the size of a picture.
struct Output(Publishing, usize, bool);

/// An encoder of two renditions, on connections of their own.
struct Encoder {
    outputs: Arc<Mutex<[Option<Output>; 2]>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Encoder {
    fn start(rtmp: SocketAddr) -> Self {
        let outputs = Arc::new(Mutex::new([HIGH, LOW].map(|size| Self::output(rtmp, size))));
        let stop = Arc::new(AtomicBool::new(false));
        let (to, over) = (outputs.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let kind = if number % GROUP == 0 { KEY } else { INTER };
                for output in to.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
                    let Some(Output(connection, size, started)) = output else { continue };
                    if kind == KEY && !*started {
                        *started = true;
                        // Configurations differ between renditions.
                        connection.send(&picture(CONFIGURATION, 0, 40 + *size / 1_000));
                    }
                    if *started {
                        connection.send(&picture(kind, number * 40, *size));
                    }
                }
                let due = Duration::from_millis(40) * (number + 1);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
        });
        Self { outputs, stop, thread: Some(thread) }
    }

    fn output(rtmp: SocketAddr, size: usize) -> Option<Output> {
        let name = if size == HIGH { "live/show_high" } else { "live/show_low" };
        Some(Output(Publishing::open(rtmp, name).expect("published"), size, false))
    }

    /// Ends or begins the rendition with pictures of this size.
    fn set(&self, size: usize, output: Option<Output>) {
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        outputs[usize::from(size == LOW)] = output;
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "the encoder failed");
        }
    }
}

/// The rendition of a frame.
fn size(frame: &Tag) -> usize {
    frame.payload().len()
}

/// The renditions in turn, as sizes.
fn turns(viewer: &Viewer) -> Vec<usize> {
    let mut all: Vec<_> = viewer.frames().iter().map(size).collect();
    all.dedup();
    all
}

/// Asserts that frames follow each other without a gap or repetition, and that a rendition begins
/// with its configuration and a key frame.
fn assert_is_seamless(viewer: &Viewer) {
    let frames = viewer.frames();
    for two in frames.windows(2) {
        assert_eq!(two[1].timestamp() - two[0].timestamp(), 40, "{two:?} {:?}", turns(viewer));
        let changes = size(&two[0]) != size(&two[1]);
        assert!(!changes || two[1].role() == Role::KeyFrame, "{two:?}");
    }
    let headers = viewer.tags().iter().filter(|tag| tag.role() == Role::SequenceHeader).count();
    assert_eq!(headers, turns(viewer).len(), "{:?}", turns(viewer));
}

#[test]
fn slow_viewers_step_down_and_up_without_a_lost_frame() {
    let edge = Edge::start(&format!("live.groups = 5\n{LADDER}"));
    let _encoder = Encoder::start(edge.rtmp);
    until("both renditions", || edge.events("published") >= 2.0);
    std::thread::sleep(Duration::from_millis(1_500));
    let slow = Slow::default();
    let path = "/live/show.flv";
    let viewers = [
        Viewer::slow_h1(edge.address, path, &slow),
        Viewer::slow_h3(edge.address, path, &slow),
        Viewer::h1(edge.address, path),
    ];
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(50));
    for viewer in &viewers {
        within(STEP_UP, "the high rendition", || {
            (turns(viewer).last() == Some(&HIGH)).then_some(())
        });
    }
    slow.store(true, Ordering::Relaxed);
    for viewer in &viewers[..2] {
        until("a step down", || turns(viewer).last() == Some(&LOW));
    }
    slow.store(false, Ordering::Relaxed);
    for viewer in &viewers[..2] {
        within(STEP_UP, "a step up", || (turns(viewer).last() == Some(&HIGH)).then_some(()));
    }
    viewers.iter().for_each(assert_is_seamless);
    assert_eq!(turns(&viewers[2]).last(), Some(&HIGH));
    for viewer in &viewers {
        assert_eq!(viewer.has_ended(), None);
    }
    let skips = edge.metric("mendcast_skips_total{cohort=\"\",protocol=\"h1\",format=\"flv\"}");
    assert_eq!(skips, 0.0);
}

#[test]
fn renditions_come_and_go() {
    let edge = Edge::start(LADDER);
    let missing = Viewer::h1(edge.address, "/live/show.flv");
    until("no rendition", || missing.has_ended().is_some());
    let encoder = Encoder::start(edge.rtmp);
    until("both renditions", || edge.events("published") >= 2.0);
    std::thread::sleep(Duration::from_millis(1_500));
    let viewer = Viewer::h1(edge.address, "/live/show.flv");
    within(STEP_UP, "the high rendition", || (turns(&viewer).last() == Some(&HIGH)).then_some(()));
    encoder.set(HIGH, None);
    until("the other rendition", || turns(&viewer).last() == Some(&LOW));
    viewer.wait_for_more(30);
    // A viewer that begins meanwhile.
    let late = Viewer::h1(edge.address, "/live/show.flv");
    late.wait_for_frames(10);
    assert_eq!(turns(&late), [LOW]);
    encoder.set(HIGH, Encoder::output(edge.rtmp, HIGH));
    for viewer in [&viewer, &late] {
        within(STEP_UP, "the rendition again", || {
            (turns(viewer).last() == Some(&HIGH)).then_some(())
        });
        // Time goes on.
        let frames = viewer.frames();
        assert!(frames.windows(2).all(|two| two[1].timestamp() > two[0].timestamp()));
    }
    assert_is_seamless(&late);
    encoder.set(HIGH, None);
    encoder.set(LOW, None);
    within(STEP_UP, "the end", || viewer.has_ended());
}
