//! Writes records to disk: JSON lines at once, and a Parquet file with the same rows when the file
//! is full or its period ends.
//!
//! A dedicated thread writes behind a bounded queue. A slow or full disk costs records, which are
//! counted, but never blocks a viewer. File names contain the start time. Parquet files that are
//! missing because of an error or a killed process are created later.

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
use crate::retention::{self, Retention};
use crate::schema::Record;

/// Capacity of the queue, in records.
const QUEUE: usize = 4_096;
/// Maximum records per file.
const MAX_ROWS: usize = 100_000;
/// Buffer for unflushed lines, also while the disk is full, in bytes.
const BUFFER: usize = 64 * 1024;
/// Flush interval of JSON lines.
const FLUSH: Duration = Duration::from_secs(1);
/// Delay before another attempt to create Parquet files.
const RETRY: Duration = Duration::from_secs(10);

/// Handle of the writing thread.
#[derive(Debug)]
pub struct RecordWriter {
    sender: Mutex<Option<SyncSender<Box<Record>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    dropped: Arc<AtomicU64>,
}

impl RecordWriter {
    /// Starts a thread that writes to `directory`, with a new file per `period`. Enforces `keep`
    /// whenever a file is started.
    ///
    /// # Errors
    /// If the directory cannot be created or written to.
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

    /// Queues a record. After [`RecordWriter::close`], it is dropped.
    ///
    /// # Errors
    /// Returns the record if the queue is full because the disk is too slow.
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

    /// Counts a record that was not written.
    pub fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of records dropped because the disk was slow or failed.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes queued records and closes the files.
    pub fn close(&self) {
        drop(lock(&self.sender).take());
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic was already reported.
            let _ = thread.join();
        }
    }
}

/// The file of the current period, and pending Parquet files of earlier ones.
struct Files {
    directory: PathBuf,
    period: Duration,
    keep: Retention,
    began: Instant,
    json: BufWriter<File>,
    path: PathBuf,
    rows: usize,
    /// Lines that are possibly still in the buffer.
    unflushed: u64,
    flushed: Instant,
    /// Whether the disk rejects lines.
    is_failing: bool,
    pending: Pending,
    dropped: Arc<AtomicU64>,
}

/// Parquet files to create.
#[derive(Debug, Default)]
struct Pending {
    /// Stems of their JSON lines, oldest first.
    stems: VecDeque<String>,
    /// Time of the next scan of the directory; `None` without pending files.
    due: Option<Instant>,
    is_failing: bool,
}

impl Pending {
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
            // Completes the files of a killed process.
            pending: Pending { due: Some(now), ..Pending::default() },
            dropped: Arc::default(),
        })
    }

    fn run(mut self, receiver: &Receiver<Box<Record>>) {
        self.note_other(clean(&self.directory, self.stem()));
        self.note_other(self.enforce_retention());
        loop {
            // Creates one pending Parquet file at a time, between records.
            let wait = if self.pending.is_due() { Duration::ZERO } else { FLUSH };
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

    /// Logs the first of consecutive write failures.
    fn failed(&mut self, why: &io::Error) {
        if !core::mem::replace(&mut self.is_failing, true) {
            tracing::warn!("session records in {}: {why}", self.directory.display());
        }
    }

    /// Logs a failure with other files.
    fn note_other(&self, outcome: io::Result<()>) {
        if let Err(e) = outcome {
            tracing::warn!("session records in {}: {e}", self.directory.display());
        }
    }

    fn take(&mut self, record: &Record) {
        // A line is buffered as a whole or not at all.
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

    /// Flushes the lines. Returns false if the disk rejects them.
    fn flush(&mut self) -> bool {
        self.flushed = Instant::now();
        match self.json.flush() {
            Ok(()) => {
                // Only written lines show that the disk works again.
                let has_written = core::mem::take(&mut self.unflushed) > 0;
                if has_written && core::mem::take(&mut self.is_failing) {
                    tracing::info!("session records: writing resumed");
                    // Retries Parquet files now, before new lines use the space.
                    self.pending.due = self.pending.due.and(Some(self.flushed));
                }
                true
            }
            Err(e) => {
                self.failed(&e);
                false
            }
        }
    }

    /// Starts the next file. Continues the current one if its lines cannot be flushed or no file
    /// can be created.
    fn rotate(&mut self) {
        self.began = Instant::now();
        if self.rows == 0 || !self.flush() {
            return;
        }
        match create(&self.directory) {
            Ok((json, path)) => {
                // Closing the old file releases its lock.
                self.json = BufWriter::with_capacity(BUFFER, json);
                (self.path, self.rows) = (path, 0);
                self.pending.due = Some(Instant::now());
                self.note_other(self.enforce_retention());
            }
            Err(e) => self.failed(&e),
        }
    }

    /// Creates one pending Parquet file.
    fn make_parquet(&mut self) {
        if !self.pending.is_due() {
            return;
        }
        let found = match self.pending.stems.pop_front() {
            Some(stem) => Ok(Some(stem)),
            None => files::all(&self.directory).map(|mut all| {
                all.remove(self.stem());
                let is_left =
                    |kept: &files::FileSet| kept.lines.is_some() && kept.parquet.is_none();
                all.retain(|_, kept| is_left(kept));
                self.pending.stems = all.into_keys().collect();
                self.pending.stems.pop_front()
            }),
        };
        match found.and_then(|stem| stem.map(|stem| make(&self.directory, &stem)).transpose()) {
            Ok(None) => {
                self.pending.due = None;
                if core::mem::take(&mut self.pending.is_failing) {
                    tracing::info!("session records: creation of Parquet files resumed");
                }
            }
            Ok(Some(true)) => {}
            // The process that writes the lines creates this one.
            Ok(Some(false)) if !self.pending.stems.is_empty() => {}
            Ok(Some(false)) => self.pending.due = None,
            Err(e) => {
                self.pending.stems.clear();
                self.pending.due = Some(Instant::now() + RETRY);
                if !core::mem::replace(&mut self.pending.is_failing, true) {
                    let directory = self.directory.display();
                    tracing::warn!("Parquet files of session records in {directory} delayed: {e}");
                }
            }
        }
    }

    /// Enforces the retention limits.
    fn enforce_retention(&self) -> io::Result<()> {
        retention::enforce(&self.directory, self.stem(), self.keep, SystemTime::now())
    }

    fn stem(&self) -> &str {
        self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
    }

    /// Completes the files. Removes an empty one.
    fn finish(mut self) {
        if self.rows == 0 {
            return self.note_other(std::fs::remove_file(&self.path));
        }
        if !self.flush() {
            self.dropped.fetch_add(core::mem::take(&mut self.unflushed), Ordering::Relaxed);
        }
        let (directory, stem) = (self.directory.clone(), self.stem().to_owned());
        // Drops lines that the disk rejected, and releases the lock.
        drop(self.json.into_parts());
        if let Err(e) = make(&directory, &stem) {
            let directory = directory.display();
            tracing::warn!("Parquet file {stem} in {directory} delayed until the next start: {e}");
        }
    }
}

/// Creates and locks a file of lines.
fn create(directory: &Path) -> io::Result<(File, PathBuf)> {
    let stamp = stamp(SystemTime::now());
    // Two periods may start within one second.
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

/// Removes leftovers of killed processes: incomplete Parquet files, and files without rows.
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

/// Creates the Parquet file of a stem. Returns false if its lines are gone or another process
/// writes them.
fn make(directory: &Path, stem: &str) -> io::Result<bool> {
    let lines = directory.join(stem).with_extension("jsonl");
    let kept = files::FileSet { lines: Some(lines), ..files::FileSet::default() };
    let Some(files::Lock(Some(lines))) = kept.lock()? else { return Ok(false) };
    // Readers must not see an incomplete file.
    let parquet = directory.join(stem).with_extension("parquet");
    let unfinished = parquet.with_extension("parquet.part");
    let made = File::create(&unfinished)
        .and_then(|file| convert::write(BufReader::new(&lines), file).map_err(io::Error::other))
        .and_then(|()| std::fs::rename(&unfinished, &parquet));
    if made.is_err() {
        // Frees space for lines.
        let _ = std::fs::remove_file(&unfinished);
    }
    made.map(|()| true)
}

/// Formats the time for file names, in UTC: 20261121T083000Z.
fn stamp(time: SystemTime) -> String {
    // Input such as "Sat, 21 Nov 2026 08:30:00 GMT" (RFC 9110, section 5.6.7).
    let text = httpdate::fmt_http_date(time);
    let parts: Vec<&str> = text.split([' ', ':']).collect();
    let [_, day, month, year, hour, minute, second, _] = parts[..] else { return "0".into() };
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.find(month).unwrap_or(0) / 3 + 1;
    format!("{year}{month:02}{day}T{hour}{minute}{second}Z")
}

/// Locks a mutex, ignoring poisoning: each change is a single statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Column;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use serde_json::Value;

    fn record(n: i64) -> Record {
        let mut record = Record::default();
        record.session.session = Some(n);
        record.session.stream = Some("live/demo".into());
        record.session.duration_s = Some(n as f64 / 2.0);
        record
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
        assert_eq!(cells.len(), Column::ALL.len());
        let cell = |name: &str| cells.iter().find(|(n, _)| *n == name).map(|(_, c)| c.as_str());
        assert_eq!((cell("session"), cell("stream")), (Some("2"), Some("\"live/demo\"")));
        assert_eq!((cell("viewer"), cell("duration_s")), (Some("null"), Some("1.0")));
    }

    #[test]
    fn each_period_has_its_own_files_unless_empty() {
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
    fn a_file_continues_if_the_next_cannot_be_created() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let directory = root.path().join("records");
        std::fs::create_dir(&directory).expect("made");
        let mut files = opened(&directory);
        files.take(&record(1));
        // A file temporarily replaces the directory.
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
    fn records_dropped_on_a_full_disk_are_counted() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut files = opened(directory.path());
        let full = File::options().write(true).open("/dev/full").expect("a device");
        files.json = BufWriter::new(full);
        let dropped = files.dropped.clone();
        (0..100).for_each(|n| files.take(&record(n)));
        // Only lines that fit the buffer wait for space.
        let taken = files.rows;
        assert!((1..20).contains(&taken), "{taken}");
        assert_eq!(dropped.load(Ordering::Relaxed), 100 - taken as u64);
        assert!(!files.flush() && files.is_failing);
        files.rotate();
        assert_eq!((files.rows, names(directory.path()).len()), (taken, 1), "file continues");
        // Prevents the creation of a Parquet file.
        std::fs::remove_dir_all(directory.path()).expect("removed");
        files.finish();
        assert_eq!(dropped.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn one_written_record_ends_the_failure() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut files = opened(directory.path());
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let lines = core::mem::replace(&mut files.json, BufWriter::with_capacity(0, full));
        files.take(&record(1));
        assert!(files.is_failing);
        // Flushing an empty buffer proves nothing.
        assert!(files.flush() && files.is_failing);
        files.json = lines;
        assert!(files.flush() && files.is_failing);
        files.take(&record(2));
        assert!(files.is_failing, "still buffered");
        files.pending.due = Some(Instant::now() + RETRY);
        assert!(files.flush() && !files.is_failing);
        assert!(files.pending.is_due(), "Parquet files are retried at once");
    }

    /// Creates Parquet files until none is pending or an attempt failed.
    fn make_all(files: &mut Files) {
        while files.pending.is_due() {
            files.make_parquet();
        }
    }

    const OLD: &str = "sessions-20261121T083000Z";

    #[test]
    fn leftovers_of_a_killed_process_are_completed() {
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
        assert_eq!(reader.get_row_iter(None).expect("rows").count(), 3, "truncated line skipped");
    }

    #[test]
    fn a_failed_parquet_file_is_created_once_there_is_space() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join(format!("{OLD}.jsonl")), record(1).json())
            .expect("written");
        let mut files = opened(directory.path());
        // A directory at its path simulates a full disk.
        let part = directory.path().join(format!("{OLD}.parquet.part"));
        std::fs::create_dir(&part).expect("made");
        make_all(&mut files);
        assert!(files.pending.is_failing && files.pending.due.is_some());
        std::fs::remove_dir(&part).expect("removed");
        files.pending.due = Some(Instant::now());
        make_all(&mut files);
        assert!(!files.pending.is_failing && files.pending.due.is_none());
        assert!(directory.path().join(format!("{OLD}.parquet")).exists());
    }

    #[test]
    fn files_that_another_process_writes_are_left_alone() {
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
        assert_eq!(names(directory.path()).len(), 2, "both formats");
    }

    #[test]
    fn many_lines_are_converted_and_truncated_ones_skipped() {
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
    fn file_names_contain_the_time() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_249_800);
        assert_eq!(stamp(time), "20261121T083000Z");
    }
}
