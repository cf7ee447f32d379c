//! Records on disk: JSON lines at once, and made from them a Parquet file with the same rows when the
//! file is full or old.
//!
//! A thread of its own writes, behind a bounded queue: a disk that is slow or full costs records,
//! which are counted, and never holds up a viewer. Files are called after the time they were begun.
//! A Parquet file that could not be made, or that a killed process did not make, is made later.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crate::convert;
use crate::error::Error;
use crate::files;
use crate::record::Record;
use crate::retention::{self, Retention};

/// Records that may wait for the disk.
const QUEUE: usize = 4_096;
/// Records of one file.
const MAX_ROWS: usize = 100_000;
/// Bytes of lines that wait for the next flush, and while the disk is full.
const BUFFER: usize = 64 * 1024;
/// How often JSON lines are flushed to the file.
const FLUSH: Duration = Duration::from_secs(1);
/// How long Parquet files that could not be made wait for the next attempt.
const RETRY: Duration = Duration::from_secs(10);

/// The way to the writing thread.
#[derive(Debug)]
pub struct RecordWriter {
    sender: Mutex<Option<SyncSender<Box<Record>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    dropped: Arc<AtomicU64>,
}

impl RecordWriter {
    /// Writes to files in `directory`, a new one each `period`, and removes old ones then as `keep` says.
    ///
    /// # Errors
    /// One line: the directory cannot be made or written to.
    pub fn start(directory: &Path, period: Duration, keep: Retention) -> Result<Arc<Self>, Error> {
        let failed = |e: io::Error| Error::new(format!("records {}: {e}", directory.display()));
        std::fs::create_dir_all(directory).map_err(failed)?;
        let files = Files::open(directory, period, keep).map_err(failed)?;
        let dropped = files.dropped.clone();
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("records".into())
            .spawn(move || files.run(&receiver))
            .map_err(failed)?;
        let (sender, thread) = (Mutex::new(Some(sender)), Mutex::new(Some(thread)));
        Ok(Arc::new(Self { sender, thread, dropped }))
    }

    /// Hands a record over. After [`RecordWriter::close`] it is dropped.
    ///
    /// # Errors
    /// The record comes back if the queue is full: the disk is slower than sessions end.
    pub fn write(&self, record: Record) -> Result<(), Box<Record>> {
        let sender = lock(&self.sender);
        match sender.as_ref().map(|sender| sender.try_send(Box::new(record))) {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(record))) => Err(record),
            Some(Err(TrySendError::Disconnected(_))) | None => {
                self.count_dropped();
                Ok(())
            }
        }
    }

    /// Counts a record that nobody will write.
    pub fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that were dropped: the disk was too slow, or did not take them.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes what waits and closes the files.
    pub fn close(&self) {
        drop(lock(&self.sender).take());
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// The files of one period, and the Parquet files of earlier ones that are still to be made.
struct Files {
    directory: PathBuf,
    period: Duration,
    keep: Retention,
    began: Instant,
    json: BufWriter<File>,
    path: PathBuf,
    rows: usize,
    /// Lines that may not have reached the disk.
    unflushed: u64,
    flushed: Instant,
    /// The disk does not take lines.
    is_failing: bool,
    later: Later,
    dropped: Arc<AtomicU64>,
}

/// The Parquet files that are still to be made.
#[derive(Debug, Default)]
struct Later {
    /// The stems of their JSON lines, oldest first.
    stems: VecDeque<String>,
    /// When the directory is looked at for such files again; `None` if there are none.
    due: Option<Instant>,
    is_failing: bool,
}

impl Later {
    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }
}

impl Files {
    fn open(directory: &Path, period: Duration, keep: Retention) -> io::Result<Self> {
        let (json, path) = create(directory)?;
        let now = Instant::now();
        Ok(Self {
            directory: directory.to_owned(),
            period,
            keep,
            began: now,
            json: BufWriter::with_capacity(BUFFER, json),
            path,
            rows: 0,
            unflushed: 0,
            flushed: now,
            is_failing: false,
            // Files of a killed process are completed.
            later: Later { due: Some(now), ..Later::default() },
            dropped: Arc::default(),
        })
    }

    fn run(mut self, receiver: &Receiver<Box<Record>>) {
        self.note_other(clean(&self.directory, self.stem()));
        self.note_other(self.tidy());
        loop {
            // Parquet files that wait are made one after the other, between records.
            let wait = if self.later.is_due() { Duration::ZERO } else { FLUSH };
            match receiver.recv_timeout(wait) {
                Ok(record) => self.take(&record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.flushed.elapsed() >= FLUSH {
                self.flush();
            }
            if self.began.elapsed() >= self.period || self.rows >= MAX_ROWS {
                self.rotate();
            }
            self.make_parquet();
        }
        self.finish();
    }

    /// The disk does not take lines: the log is told once.
    fn failed(&mut self, why: &io::Error) {
        if !core::mem::replace(&mut self.is_failing, true) {
            tracing::warn!("session records in {}: {why}", self.directory.display());
        }
    }

    /// Logs a failure of other files than the lines.
    fn note_other(&self, outcome: io::Result<()>) {
        if let Err(e) = outcome {
            tracing::warn!("session records in {}: {e}", self.directory.display());
        }
    }

    fn take(&mut self, record: &Record) {
        // The line goes in whole or not at all.
        match self.json.write_all(format!("{}\n", record.json()).as_bytes()) {
            Ok(()) => {
                self.unflushed += 1;
                self.rows += 1;
            }
            Err(e) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                self.failed(&e);
            }
        }
    }

    /// Returns whether all lines have reached the file.
    fn flush(&mut self) -> bool {
        self.flushed = Instant::now();
        match self.json.flush() {
            Ok(()) => {
                // Lines that the disk took are the only evidence that it takes lines.
                let has_written = core::mem::take(&mut self.unflushed) > 0;
                if has_written && core::mem::take(&mut self.is_failing) {
                    tracing::info!("session records are written again");
                    // There is room now, and the next lines may take it.
                    self.later.due = self.later.due.and(Some(self.flushed));
                }
                true
            }
            Err(e) => {
                self.failed(&e);
                false
            }
        }
    }

    /// Begins the next file. While lines wait for room on the disk, or no file can be made, this
    /// one goes on.
    fn rotate(&mut self) {
        self.began = Instant::now();
        if self.rows == 0 || !self.flush() {
            return;
        }
        match create(&self.directory) {
            Ok((json, path)) => {
                // The lock of the old file ends with it.
                self.json = BufWriter::with_capacity(BUFFER, json);
                (self.path, self.rows) = (path, 0);
                self.later.due = Some(Instant::now());
                self.note_other(self.tidy());
            }
            Err(e) => self.failed(&e),
        }
    }

    /// Makes one of the Parquet files that are still to be made.
    fn make_parquet(&mut self) {
        if !self.later.is_due() {
            return;
        }
        let found = match self.later.stems.pop_front() {
            Some(stem) => Ok(Some(stem)),
            None => files::all(&self.directory).map(|mut all| {
                all.remove(self.stem());
                let is_left = |kept: &files::Kept| kept.lines.is_some() && kept.parquet.is_none();
                all.retain(|_, kept| is_left(kept));
                self.later.stems = all.into_keys().collect();
                self.later.stems.pop_front()
            }),
        };
        match found.and_then(|stem| stem.map(|stem| make(&self.directory, &stem)).transpose()) {
            Ok(None) => {
                self.later.due = None;
                if core::mem::take(&mut self.later.is_failing) {
                    tracing::info!("Parquet files of session records are made again");
                }
            }
            Ok(Some(true)) => {}
            // Another process writes it, and makes its Parquet file then.
            Ok(Some(false)) if !self.later.stems.is_empty() => {}
            Ok(Some(false)) => self.later.due = None,
            Err(e) => {
                self.later.stems.clear();
                self.later.due = Some(Instant::now() + RETRY);
                if !core::mem::replace(&mut self.later.is_failing, true) {
                    let directory = self.directory.display();
                    tracing::warn!("Parquet files of session records in {directory} wait: {e}");
                }
            }
        }
    }

    /// Removes files that are no longer to be kept.
    fn tidy(&self) -> io::Result<()> {
        retention::tidy(&self.directory, self.stem(), self.keep, SystemTime::now())
    }

    fn stem(&self) -> &str {
        self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
    }

    /// Completes the files. One without rows is not kept.
    fn finish(mut self) {
        if self.rows == 0 {
            return self.note_other(std::fs::remove_file(&self.path));
        }
        if !self.flush() {
            self.dropped.fetch_add(core::mem::take(&mut self.unflushed), Ordering::Relaxed);
        }
        let (directory, stem) = (self.directory.clone(), self.stem().to_owned());
        // Lines that the disk did not take are lost. The lock ends.
        drop(self.json.into_parts());
        if let Err(e) = make(&directory, &stem) {
            let directory = directory.display();
            tracing::warn!("Parquet file {stem} in {directory} waits for the next start: {e}");
        }
    }
}

/// A new file of lines, locked.
fn create(directory: &Path) -> io::Result<(File, PathBuf)> {
    let stamp = stamp(SystemTime::now());
    // Two periods may begin within one second.
    let free = (0..).map(|n| match n {
        0 => format!("sessions-{stamp}"),
        n => format!("sessions-{stamp}-{n}"),
    });
    for name in free.take(1_000) {
        let path = directory.join(&name).with_extension("jsonl");
        match File::create_new(&path) {
            Ok(file) => {
                files::is_free(&file);
                return Ok((file, path));
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes leftovers of killed processes: unfinished Parquet files, and files without any row.
fn clean(directory: &Path, current: &str) -> io::Result<()> {
    for (stem, kept) in files::all(directory)? {
        if stem == current {
            continue;
        }
        let Some(_lock) = kept.lock()? else { continue };
        if let Some(path) = &kept.unfinished {
            std::fs::remove_file(path)?;
        }
        if let Some(lines) = kept.lines.filter(|_| kept.parquet.is_none())
            && std::fs::metadata(&lines)?.len() == 0
        {
            std::fs::remove_file(lines)?;
        }
    }
    Ok(())
}

/// Makes the Parquet file of a stem. Returns false if another process writes its lines, or they are
/// gone.
fn make(directory: &Path, stem: &str) -> io::Result<bool> {
    let lines = directory.join(stem).with_extension("jsonl");
    let kept = files::Kept { lines: Some(lines), ..files::Kept::default() };
    let Some(files::Lock(Some(lines))) = kept.lock()? else { return Ok(false) };
    // A reader never sees half a file.
    let parquet = directory.join(stem).with_extension("parquet");
    let unfinished = parquet.with_extension("parquet.part");
    let made = File::create(&unfinished)
        .and_then(|file| convert::write(BufReader::new(&lines), file).map_err(io::Error::other))
        .and_then(|()| std::fs::rename(&unfinished, &parquet));
    if made.is_err() {
        // It takes the room that the lines need.
        let _ = std::fs::remove_file(&unfinished);
    }
    made.map(|()| true)
}

/// The time as it stands in file names, UTC: 20261121T083000Z.
fn stamp(time: SystemTime) -> String {
    // "Sat, 21 Nov 2026 08:30:00 GMT", the form that RFC 9110, section 5.6.7, fixes.
    let text = httpdate::fmt_http_date(time);
    let parts: Vec<&str> = text.split([' ', ':']).collect();
    let [_, day, month, year, hour, minute, second, _] = parts[..] else { return "0".into() };
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.find(month).unwrap_or(0) / 3 + 1;
    format!("{year}{month:02}{day}T{hour}{minute}{second}Z")
}

/// What a panic left behind is whole: each change is one statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::COLUMNS;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use serde_json::Value;

    fn record(n: i64) -> Record {
        Record {
            session: Some(n),
            stream: Some("live/demo".into()),
            duration_s: Some(n as f64 / 2.0),
            ..Record::default()
        }
    }

    fn opened(directory: &Path) -> Files {
        let hour = Duration::from_secs(3_600);
        Files::open(directory, hour, Retention::default()).expect("opened")
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn every_record_is_in_the_json_lines_and_in_the_parquet_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("records");
        let writer = RecordWriter::start(&path, Duration::from_secs(3_600), Retention::default());
        let writer = writer.expect("started");
        (1..=3).for_each(|n| writer.write(record(n)).expect("room"));
        writer.close();
        assert_eq!(writer.dropped(), 0);
        writer.write(record(4)).expect("it is not given back");
        assert_eq!(writer.dropped(), 1, "closed");
        let names = names(&path);
        assert_eq!(names.len(), 2, "{names:?}");
        let text = std::fs::read_to_string(path.join(&names[0])).expect("JSON lines");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!((&lines[2]["session"], &lines[2]["duration_s"]), (&3.into(), &1.5.into()));
        assert!(lines[0]["viewer"].is_null());

        let file = File::open(path.join(&names[1])).expect("a Parquet file");
        let reader = SerializedFileReader::new(file).expect("readable");
        let rows: Vec<_> =
            reader.get_row_iter(None).expect("rows").map(|r| r.expect("row")).collect();
        assert_eq!(rows.len(), 3);
        let cells: Vec<_> = rows[1]
            .get_column_iter()
            .map(|(name, cell)| (name.as_str(), cell.to_string()))
            .collect();
        assert_eq!(cells.len(), COLUMNS.len());
        let cell = |name: &str| cells.iter().find(|(n, _)| *n == name).map(|(_, c)| c.as_str());
        assert_eq!((cell("session"), cell("stream")), (Some("2"), Some("\"live/demo\"")));
        assert_eq!((cell("viewer"), cell("duration_s")), (Some("null"), Some("1.0")));
    }

    #[test]
    fn a_period_has_files_of_its_own_and_an_empty_one_none() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let writer = RecordWriter::start(directory.path(), Duration::ZERO, Retention::default());
        let writer = writer.expect("started");
        for n in 1..=2 {
            writer.write(record(n)).expect("room");
            let started = Instant::now();
            while names(directory.path()).iter().filter(|n| n.ends_with(".parquet")).count()
                < n as usize
            {
                assert!(
                    started.elapsed() < Duration::from_secs(10),
                    "{:?}",
                    names(directory.path())
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        writer.close();
        assert_eq!(names(directory.path()).len(), 4, "{:?}", names(directory.path()));
    }

    #[test]
    fn a_file_goes_on_when_the_next_one_cannot_be_made() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let directory = root.path().join("records");
        std::fs::create_dir(&directory).expect("made");
        let mut files = opened(&directory);
        files.take(&record(1));
        // Where its directory was is something else for a while.
        let away = root.path().join("away");
        std::fs::rename(&directory, &away).expect("renamed");
        std::fs::write(&directory, b"").expect("written");
        files.rotate();
        assert!(files.is_failing);
        std::fs::remove_file(&directory).expect("removed");
        std::fs::rename(&away, &directory).expect("renamed");
        files.take(&record(2));
        files.finish();
        let names = names(&directory);
        let text = std::fs::read_to_string(directory.join(&names[0])).expect("JSON lines");
        assert_eq!((names.len(), text.lines().count()), (2, 2), "{names:?}");
    }

    #[test]
    fn a_full_disk_costs_records_which_are_counted() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut files = opened(directory.path());
        let full = File::options().write(true).open("/dev/full").expect("a device");
        files.json = BufWriter::new(full);
        let dropped = files.dropped.clone();
        (0..100).for_each(|n| files.take(&record(n)));
        // What fits the buffer waits for room on the disk; nothing else does.
        let taken = files.rows;
        assert!((1..20).contains(&taken), "{taken}");
        assert_eq!(dropped.load(Ordering::Relaxed), 100 - taken as u64);
        assert!(!files.flush() && files.is_failing);
        files.rotate();
        assert_eq!((files.rows, names(directory.path()).len()), (taken, 1), "the file goes on");
        // No Parquet file can be made either.
        std::fs::remove_dir_all(directory.path()).expect("removed");
        files.finish();
        assert_eq!(dropped.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn a_disk_takes_records_again_when_it_has_taken_one() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut files = opened(directory.path());
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let lines = core::mem::replace(&mut files.json, BufWriter::with_capacity(0, full));
        files.take(&record(1));
        assert!(files.is_failing);
        // An empty buffer is no evidence, whatever file it is for.
        assert!(files.flush() && files.is_failing);
        files.json = lines;
        assert!(files.flush() && files.is_failing);
        files.take(&record(2));
        assert!(files.is_failing, "it may still wait in the buffer");
        files.later.due = Some(Instant::now() + RETRY);
        assert!(files.flush() && !files.is_failing);
        assert!(files.later.is_due(), "Parquet files need not wait either");
    }

    /// Lets time pass until nothing is left to be made, or an attempt failed.
    fn make_all(files: &mut Files) {
        while files.later.is_due() {
            files.make_parquet();
        }
    }

    const OLD: &str = "sessions-20261121T083000Z";

    #[test]
    fn what_a_killed_process_left_behind_is_completed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        let mut text = (1..=3).map(|n| record(n).json() + "\n").collect::<String>().into_bytes();
        text.extend(&b"{\"stream\":\"\xc3"[..]);
        std::fs::write(at(&format!("{OLD}.jsonl")), &text).expect("written");
        for (name, length) in [
            (format!("{OLD}.parquet.part"), 7),
            (format!("{OLD}-1.jsonl"), 0),
            (format!("{OLD}-2.parquet.part"), 7),
            ("sessions-mine.parquet.part".into(), 7),
            ("other.parquet.part".into(), 7),
        ] {
            std::fs::write(at(&name), vec![0; length]).expect("written");
        }
        let mut files = opened(directory.path());
        clean(directory.path(), files.stem()).expect("cleaned");
        make_all(&mut files);
        files.finish();
        let expected = [
            "other.parquet.part",
            &format!("{OLD}.jsonl"),
            &format!("{OLD}.parquet"),
            "sessions-mine.parquet.part",
        ];
        assert_eq!(names(directory.path()), expected);
        let file = File::open(at(&format!("{OLD}.parquet"))).expect("a Parquet file");
        let reader = SerializedFileReader::new(file).expect("readable");
        assert_eq!(reader.get_row_iter(None).expect("rows").count(), 3, "the cut line is left out");
    }

    #[test]
    fn a_parquet_file_that_could_not_be_made_is_made_when_there_is_room() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join(format!("{OLD}.jsonl")), record(1).json())
            .expect("written");
        let mut files = opened(directory.path());
        // A directory in its place stands for the full disk.
        let part = directory.path().join(format!("{OLD}.parquet.part"));
        std::fs::create_dir(&part).expect("made");
        make_all(&mut files);
        assert!(files.later.is_failing && files.later.due.is_some());
        std::fs::remove_dir(&part).expect("removed");
        files.later.due = Some(Instant::now());
        make_all(&mut files);
        assert!(!files.later.is_failing && files.later.due.is_none());
        assert!(directory.path().join(format!("{OLD}.parquet")).exists());
    }

    #[test]
    fn a_file_that_another_process_writes_is_left_alone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut other = opened(directory.path());
        other.take(&record(1));
        assert!(other.flush());
        let mut files = opened(directory.path());
        clean(directory.path(), files.stem()).expect("cleaned");
        make_all(&mut files);
        let all = names(directory.path());
        assert!(all.len() == 2 && all.iter().all(|name| name.ends_with(".jsonl")), "{all:?}");
        other.finish();
        files.finish();
        assert_eq!(names(directory.path()).len(), 2, "its rows in both forms");
    }

    #[test]
    fn lines_that_were_cut_off_are_left_out_and_there_may_be_many() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("many.parquet");
        let rows = 2 * convert::GROUP_ROWS as i64 + 7;
        let mut text: String = (0..rows).map(|n| record(n).json() + "\n").collect();
        text += &record(rows).json()[..40];
        convert::write(text.as_bytes(), File::create(&path).expect("created")).expect("written");
        let file = File::open(&path).expect("a Parquet file");
        let reader = SerializedFileReader::new(file).expect("readable");
        assert_eq!(reader.num_row_groups(), 3);
        assert_eq!(reader.get_row_iter(None).expect("rows").count(), rows as usize);
    }

    #[test]
    fn file_names_tell_the_time() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_249_800);
        assert_eq!(stamp(time), "20261121T083000Z");
    }
}
