//! Recordings of published streams: playlists, restarts, full and stuck disks, retention.

use std::fs;
use std::future::poll_fn;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use media::{Kind, Tag};
use relay::{Publisher, Settings, Start, Viewer};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::*;
use crate::config::Config;
use crate::state::State;

const LIMIT: Duration = Duration::from_secs(30);
const AAC: &[u8] = &[0xaf, 0, 0x12, 0x10];
/// Duration of an AAC frame at 44.1 kHz, in ms.
const FRAME_MS: u32 = 23;

fn state(directory: &Path, more: &str, previous: Option<&State>) -> State {
    let text = format!(
        "[[record]]\nstream = \"*\"\ndirectory = \"{}\"\nsegment = \"1s\"\n{more}",
        directory.display()
    );
    State::new(Config::parse("edge.toml", &text).expect("valid"), previous).expect("a state")
}

fn tend(state: &State) {
    state.live.tend_outputs(&state.config, &state.clients, &Handle::current());
}

struct Source {
    publisher: Publisher,
    time: u32,
}

impl Source {
    fn new(state: &State, name: &str) -> Self {
        let publisher = state.live.streams.publish(name, Settings::default()).expect("published");
        let header = Tag::new(Kind::Audio, 0, AAC).expect("short");
        publisher.push(header);
        let mut source = Self { publisher, time: 0 };
        source.frame(100);
        tend(state);
        source
    }

    fn frame(&mut self, size: usize) {
        let mut frame = vec![7; size];
        frame[..2].copy_from_slice(&[0xaf, 1]);
        self.publisher.push(Tag::new(Kind::Audio, self.time, &frame).expect("short"));
        self.time += FRAME_MS;
    }

    /// Publishes sound of this duration, in frames of `size` bytes.
    async fn play(&mut self, seconds: u32, size: usize) {
        for _ in 0..seconds * 1_000 / FRAME_MS {
            self.frame(size);
            // Let the packager keep up.
            tokio::task::yield_now().await;
        }
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

fn counts(state: &State) -> Arc<RecordCounts> {
    state.live.recordings.counts()[0].1.clone()
}

fn load(count: &std::sync::atomic::AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Directories of a stream's recordings, oldest first.
fn takes(directory: &Path, stream: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join(stream)).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.join("index.m3u8").exists()).collect();
    all.sort();
    all
}

fn playlist(take: &Path) -> String {
    fs::read_to_string(take.join("index.m3u8")).expect("a playlist")
}

/// Checks that every file of the playlist is there and that nothing is unfinished. Returns the
/// number of its segments, and of its gaps.
fn check(take: &Path) -> (usize, usize) {
    let text = playlist(take);
    let (mut segments, mut gaps, mut is_gap) = (0, 0, false);
    for line in text.lines() {
        is_gap |= line == "#EXT-X-GAP";
        if let Some(init) = line.strip_prefix("#EXT-X-MAP:URI=\"") {
            let init = fs::read(take.join(init.trim_end_matches('"'))).expect(line);
            assert_eq!(&init[4..8], b"ftyp", "{line}");
        } else if !line.starts_with('#') {
            if is_gap {
                assert!(!take.join(line).exists(), "{line}");
                gaps += 1;
            } else {
                let segment = fs::read(take.join(line)).expect(line);
                assert!(segment.windows(4).take(64).any(|name| name == b"moof"), "{line}");
                segments += 1;
            }
            is_gap = false;
        }
    }
    assert!(is_complete(take), "{text}");
    (segments, gaps)
}

/// Whether no file is being written.
fn is_complete(take: &Path) -> bool {
    let mut entries = fs::read_dir(take).expect("a directory").flatten();
    !entries.any(|entry| entry.path().extension().is_some_and(|e| e == "part"))
}

#[tokio::test]
async fn streams_are_recorded_under_their_names() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("not/yet");
    let state = state(&directory, "", None);
    let names = ["live/a..b-c.d~1", "x", "x/20261128T094847Z", "live/a"];
    let mut sources: Vec<Source> = names.iter().map(|name| Source::new(&state, name)).collect();
    for source in &mut sources {
        source.play(5, 200).await;
    }
    let counts = counts(&state);
    until("segments", || load(&counts.segments) >= 4 * names.len() as u64).await;
    // The playlist follows its segment.
    until("playlists", || {
        names.iter().all(|name| takes(&directory, name).iter().all(|take| is_complete(take)))
    })
    .await;
    assert_eq!(state.live.recordings.counts()[0].2, 4);
    // A recording is no viewer.
    assert_eq!(sources[0].publisher.stream().stats().viewers, 0);
    for name in names {
        let all = takes(&directory, name);
        assert_eq!(all.len(), 1, "{name}: {all:?}");
        assert!(!playlist(&all[0]).contains("ENDLIST"), "{name}");
        assert!(check(&all[0]).0 >= 4, "{name}: {}", playlist(&all[0]));
    }
    for source in &sources {
        state.live.streams.end(source.publisher.stream());
    }
    until("the ends", || {
        names.iter().all(|name| playlist(&takes(&directory, name)[0]).contains("ENDLIST"))
    })
    .await;
    assert_eq!((load(&counts.queue_gaps), load(&counts.disk_gaps)), (0, 0));
    // The stream returns in a new recording.
    let mut again = Source::new(&state, "live/a");
    tend(&state);
    until("a new recording", || {
        again.frame(200);
        takes(&directory, "live/a").len() == 2
    })
    .await;
}

#[tokio::test]
async fn a_restart_continues_after_a_discontinuity() {
    let scratch = tempfile::tempdir().expect("a directory");
    let first = state(scratch.path(), "", None);
    let mut source = Source::new(&first, "live/a");
    source.play(4, 200).await;
    // As at the end of a process: the drain ends the stream.
    first.live.recordings.leave();
    first.live.streams.end(source.publisher.stream());
    first.live.recordings.finish(LIMIT).await;
    let take = takes(scratch.path(), "live/a").remove(0);
    let before = playlist(&take);
    assert!(!before.contains("ENDLIST") && check(&take).0 >= 4, "{before}");
    // As after a crash: an unfinished file.
    fs::write(take.join("00000099.m4s.part"), "half").expect("written");
    let second = state(scratch.path(), "", None);
    let mut source = Source::new(&second, "live/a");
    source.play(4, 200).await;
    until("segments", || load(&counts(&second).segments) >= 3).await;
    let after = playlist(&take);
    assert!(after.starts_with(&before), "{before}\n{after}");
    assert_eq!(after[before.len()..].matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{after}");
    fs::remove_file(take.join("00000099.m4s.part")).expect("removed");
    check(&take);
    assert_eq!(takes(scratch.path(), "live/a").len(), 1);
}

#[tokio::test]
async fn a_recording_that_is_long_enough_continues_in_another_directory() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut state = state(scratch.path(), "", None);
    state.config.record[0].rotate = Duration::from_secs(3);
    let mut source = Source::new(&state, "live/a");
    let end = Instant::now() + LIMIT;
    // Recordings are rotated by the wall clock.
    while takes(scratch.path(), "live/a").len() < 3 {
        assert!(Instant::now() < end);
        source.play(1, 200).await;
        sleep(Duration::from_millis(200)).await;
    }
    let all = takes(scratch.path(), "live/a");
    assert!(playlist(&all[0]).ends_with("#EXT-X-ENDLIST\n"), "{}", playlist(&all[0]));
    assert!(all.iter().all(|take| check(take).0 > 0));
}

/// A small file system, or a file in place of the directory for users who may not mount one.
struct SmallDisk {
    path: PathBuf,
    is_mounted: bool,
}

impl SmallDisk {
    fn new(path: PathBuf) -> Self {
        fs::create_dir(&path).expect("created");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=400k", "tmpfs"]).arg(&path);
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        println!("full disk: {}", if is_mounted { "tmpfs" } else { "a file in the way" });
        Self { path, is_mounted }
    }

    /// Takes all space.
    fn fill(&self, directory: &Path) {
        if self.is_mounted {
            let _ = fs::write(self.path.join("filler"), vec![1; 1 << 20]);
        } else {
            fs::rename(directory, self.path.join("aside")).expect("moved");
            fs::write(directory, "in the way").expect("written");
        }
    }

    fn free(&self, directory: &Path) {
        if self.is_mounted {
            fs::remove_file(self.path.join("filler")).expect("removed");
        } else {
            fs::remove_file(directory).expect("removed");
            fs::rename(self.path.join("aside"), directory).expect("moved");
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        }
    }
}

#[tokio::test]
async fn a_full_disk_makes_gaps_and_touches_no_viewer() {
    let scratch = tempfile::tempdir().expect("a directory");
    let disk = SmallDisk::new(scratch.path().join("disk"));
    let directory = disk.path.join("recordings");
    let state = state(&directory, "", None);
    let mut source = Source::new(&state, "live/a");
    let stream = source.publisher.stream().clone();
    let mut viewer = Viewer::new(stream.clone(), Start::LatestGop).expect("room");
    let viewer = tokio::spawn(async move {
        while poll_fn(|context| viewer.poll_next(context)).await.is_some() {}
        viewer.progress()
    });
    source.play(3, 100).await;
    let counts = counts(&state);
    until("segments", || load(&counts.segments) >= 2).await;
    until("written", || load(&counts.queued) == 0).await;
    disk.fill(&directory);
    source.play(4, 2_000).await;
    until("gaps", || load(&counts.disk_gaps) >= 3).await;
    disk.free(&directory);
    let before = load(&counts.segments);
    source.play(3, 100).await;
    until("segments again", || load(&counts.segments) >= before + 2).await;
    until("written", || load(&counts.queued) == 0).await;
    let take = takes(&directory, "live/a").remove(0);
    let (segments, gaps) = check(&take);
    assert_eq!(gaps as u64, load(&counts.disk_gaps), "{}", playlist(&take));
    assert_eq!(segments as u64, load(&counts.segments), "{}", playlist(&take));
    // The viewer got every tag.
    state.live.streams.end(&stream);
    let progress = viewer.await.expect("no panic");
    assert_eq!((progress.skips, progress.tags), (0, stream.stats().tags));
}

#[tokio::test]
async fn a_stuck_disk_drops_segments_and_blocks_nobody() {
    let scratch = tempfile::tempdir().expect("a directory");
    // Continues an unfinished recording; its next file is a pipe, whose opening blocks.
    let now = units::date_time(
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("now").as_millis() as i64,
    );
    let name: String = now[..19].chars().filter(|c| *c != '-' && *c != ':').chain(['Z']).collect();
    let take = scratch.path().join("live/a").join(name);
    fs::create_dir_all(&take).expect("created");
    let head = "#EXTM3U\n#EXT-X-VERSION:8\n#EXT-X-TARGETDURATION:1\n";
    fs::write(take.join("index.m3u8"), head).expect("written");
    let pipe = take.join("00000000.m4s.part");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("run").success());
    let state = state(scratch.path(), "queue = \"1MiB\"", None);
    let mut source = Source::new(&state, "live/a");
    let start = Instant::now();
    source.play(20, 4_000).await;
    assert!(start.elapsed() < Duration::from_secs(10));
    let counts = counts(&state);
    until("gaps", || load(&counts.queue_gaps) >= 3).await;
    assert!(load(&counts.queued) <= 1 << 20, "{counts:?}");
    assert_eq!(load(&counts.segments), 0);
    // A reader of the pipe frees the writer.
    let reader = std::thread::spawn(move || fs::read(pipe));
    until("written", || load(&counts.queued) == 0).await;
    reader.join().expect("no panic").expect("read");
    source.play(3, 100).await;
    let text = || playlist(&take);
    until("named gaps", || {
        text().matches("#EXT-X-GAP\n").count() as u64 == load(&counts.queue_gaps)
    })
    .await;
}

/// Creates a finished recording of 1,000 bytes, last changed `age` ago.
fn stored(directory: &Path, stream: &str, name: &str, age: Duration) -> PathBuf {
    let take = directory.join(stream).join(name);
    fs::create_dir_all(&take).expect("created");
    for (file, size) in [("index.m3u8", 100), ("init-00.mp4", 100), ("00000000.m4s", 800)] {
        fs::write(take.join(file), vec![b'x'; size]).expect("written");
        let file = fs::File::options().append(true).open(take.join(file)).expect("opened");
        file.set_modified(SystemTime::now() - age).expect("set");
    }
    take
}

#[test]
fn old_recordings_are_removed_by_age_and_by_size() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path();
    let old = stored(directory, "live/a", "20261101T000000Z", HOUR * 50);
    let running = stored(directory, "live/a", "20261102T000000Z", HOUR * 40);
    let middle = stored(directory, "live/b/c", "20261103T000000Z", HOUR * 2);
    let odd = stored(directory, "x/20261101T000000Z", "20261104T000000Z", HOUR);
    let newest = stored(directory, "x", "20261105T000000Z", HOUR);
    let foreign = directory.join("notes/20261101T000000Z");
    fs::create_dir_all(&foreign).expect("created");
    fs::write(foreign.join("diary.txt"), "mine").expect("written");
    fs::write(middle.join("diary.txt"), "mine").expect("written");
    let settings = |keep, max_size| segment::Settings {
        segment: Duration::from_secs(6),
        rotate: HOUR,
        keep,
        max_size,
        is_uploaded: false,
    };
    let remove = |keep, max_size| {
        let running = [running.clone()];
        retention::remove_old(directory, settings(keep, max_size), &running)
    };
    assert_eq!(remove(Duration::ZERO, 0), 0, "no limits");
    assert_eq!(remove(HOUR * 24, 0), 1, "age");
    assert!(!old.exists() && running.exists() && middle.exists());
    assert_eq!(remove(HOUR * 24, 3_000), 1, "size: the oldest that is not running");
    assert!(running.exists() && odd.exists() && newest.exists());
    let left: Vec<_> = fs::read_dir(&middle).expect("stays").flatten().collect();
    assert_eq!(left.len(), 1, "only the other file: {left:?}");
    assert_eq!(remove(HOUR * 24, 1), 2);
    assert!(!odd.exists() && !newest.exists() && running.exists());
    assert!(foreign.join("diary.txt").exists());
}

#[tokio::test]
#[ignore = "a measurement of CPU time: docs/operate/record.md"]
async fn cost_of_recording_100_streams_of_2_mbps() {
    const SECONDS: u32 = 24;
    const FRAME: usize = 250 * FRAME_MS as usize;
    let scratch = tempfile::tempdir().expect("a directory");
    // Segments of all streams end at once, because the test publishes faster than in real time.
    let text = format!(
        "[[record]]\nstream = \"*\"\nqueue = \"1GiB\"\ndirectory = \"{}\"",
        scratch.path().display()
    );
    let state = State::new(Config::parse("edge.toml", &text).expect("valid"), None);
    let state = state.expect("a state");
    let mut sources: Vec<Source> =
        (0..100).map(|number| Source::new(&state, &format!("live/{number}"))).collect();
    let counts = counts(&state);
    let cpu = || {
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
        let usage = usage.expect("supported");
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6;
        seconds(usage.user_time()) + seconds(usage.system_time())
    };
    let before = cpu();
    for _ in 0..SECONDS {
        for source in &mut sources {
            source.play(1, FRAME).await;
        }
        // The test publishes faster than the disk may write.
        until("written", || load(&counts.queued) < 16 << 20).await;
    }
    until("written", || load(&counts.queued) == 0).await;
    let spent = cpu() - before;
    let written = load(&counts.bytes);
    assert_eq!((load(&counts.queue_gaps), load(&counts.disk_gaps)), (0, 0));
    assert!(written > 18 * 100 * 240_000, "{written} bytes");
    println!(
        "{spent:.2} s of CPU for {SECONDS} s of 100 streams, with publishing: {:.1} % of a core; \
         {} segments, {} MB",
        spent * 100.0 / f64::from(SECONDS),
        load(&counts.segments),
        written / 1_000_000
    );
}
