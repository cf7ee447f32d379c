//! Records on disk: JSON lines at once, and made from them a Parquet file with the same rows when the
//! file is full or old.
//!
//! A thread of its own writes, behind a bounded queue: a disk that is slow or full costs records,
//! which are counted, and never holds up a viewer. Files are called after the time they were begun.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::record::{COLUMNS, Kind, Record};
use crate::retention::{self, Retention};

/// Records that may wait for the disk.
const QUEUE: usize = 4_096;
/// Records that are turned into Parquet at once.
const GROUP_ROWS: usize = 1_000;
/// Records of one file.
const MAX_ROWS: usize = 100_000;
/// How often JSON lines are flushed to the file.
const FLUSH: Duration = Duration::from_secs(1);

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

/// The files of one period.
struct Files {
    directory: PathBuf,
    period: Duration,
    keep: Retention,
    began: Instant,
    json: BufWriter<File>,
    parquet: PathBuf,
    rows: usize,
    /// Lines that may not have reached the disk.
    unflushed: u64,
    failing: bool,
    dropped: Arc<AtomicU64>,
}

impl Files {
    fn open(directory: &Path, period: Duration, keep: Retention) -> io::Result<Self> {
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
                    return Ok(Self {
                        directory: directory.to_owned(),
                        period,
                        keep,
                        began: Instant::now(),
                        json: BufWriter::new(file),
                        parquet: path.with_extension("parquet"),
                        rows: 0,
                        unflushed: 0,
                        failing: false,
                        dropped: Arc::default(),
                    });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn run(mut self, receiver: &Receiver<Box<Record>>) {
        let outcome = self.tidy();
        self.note(outcome);
        loop {
            let outcome = match receiver.recv_timeout(FLUSH) {
                Ok(record) => self.take(&record),
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            self.note(outcome);
            if self.began.elapsed() >= self.period || self.rows >= MAX_ROWS {
                let outcome = self.rotate();
                self.note(outcome);
            }
        }
        let outcome = self.finish();
        self.note(outcome);
    }

    /// Says once that the disk fails, and once that it works again.
    fn note(&mut self, outcome: io::Result<()>) {
        match outcome {
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!("session records are written again");
            }
            Err(e) if !self.failing => {
                self.failing = true;
                tracing::warn!("session records in {}: {e}", self.directory.display());
            }
            _ => {}
        }
    }

    fn take(&mut self, record: &Record) -> io::Result<()> {
        // The line goes in whole or not at all.
        let written = self.json.write_all(format!("{}\n", record.json()).as_bytes());
        match written {
            Ok(()) => {
                self.unflushed += 1;
                self.rows += 1;
            }
            Err(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.json.flush()?;
        self.unflushed = 0;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.began = Instant::now();
        if self.rows == 0 {
            return Ok(());
        }
        // Without a new file the old one goes on.
        let next = Self::open(&self.directory, self.period, self.keep)?;
        let next = Self { failing: self.failing, dropped: self.dropped.clone(), ..next };
        let finished = core::mem::replace(self, next).finish();
        finished.and(self.tidy())
    }

    /// Removes files that are no longer to be kept.
    fn tidy(&self) -> io::Result<()> {
        let current = self.parquet.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        retention::tidy(&self.directory, current, self.keep, SystemTime::now())
    }

    /// Completes the files. One without rows is not kept.
    fn finish(&mut self) -> io::Result<()> {
        let lines = self.parquet.with_extension("jsonl");
        if core::mem::take(&mut self.rows) == 0 {
            return std::fs::remove_file(lines);
        }
        let flushed = self.flush();
        if flushed.is_err() {
            self.dropped.fetch_add(core::mem::take(&mut self.unflushed), Ordering::Relaxed);
        }
        // A reader never sees half a file.
        let unfinished = self.parquet.with_extension("parquet.part");
        let file = File::create(&unfinished)?;
        write_parquet(BufReader::new(File::open(lines)?), file).map_err(io::Error::other)?;
        std::fs::rename(unfinished, &self.parquet)?;
        flushed
    }
}

/// Turns JSON lines into Parquet, a group of rows after the other. A line that was cut off is left
/// out.
fn write_parquet(lines: impl BufRead, file: File) -> Result<(), ParquetError> {
    let mut fields = Vec::new();
    for (name, kind) in COLUMNS {
        let (physical, logical) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Int => (Physical::INT64, None),
            Kind::Float => (Physical::DOUBLE, None),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Type::group_type_builder("session").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut columns: Vec<Cells> = COLUMNS.iter().map(|(_, kind)| Cells::of(*kind)).collect();
    let mut rows = 0;
    for line in lines.lines().map_while(Result::ok) {
        let Ok(row) = serde_json::from_str::<Map<String, Value>>(&line) else { continue };
        for (cells, (name, _)) in columns.iter_mut().zip(COLUMNS) {
            cells.push(row.get(*name));
        }
        rows += 1;
        if rows == GROUP_ROWS {
            write_group(&mut writer, &mut columns)?;
            rows = 0;
        }
    }
    if rows > 0 {
        write_group(&mut writer, &mut columns)?;
    }
    writer.close()?;
    Ok(())
}

/// A column of a group of rows. As rows of JSON the group would take ten times as much memory.
enum Cells {
    Text(Column<ByteArrayType>),
    Int(Column<Int64Type>),
    Float(Column<DoubleType>),
}

impl Cells {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(Column::new()),
            Kind::Int => Self::Int(Column::new()),
            Kind::Float => Self::Float(Column::new()),
        }
    }

    fn push(&mut self, cell: Option<&Value>) {
        match self {
            Self::Text(column) => column.push(cell.and_then(Value::as_str).map(ByteArray::from)),
            Self::Int(column) => column.push(cell.and_then(Value::as_i64)),
            Self::Float(column) => column.push(cell.and_then(Value::as_f64)),
        }
    }

    fn write(&mut self, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Text(column) => column.write(to),
            Self::Int(column) => column.write(to),
            Self::Float(column) => column.write(to),
        }
    }
}

/// The values that are there, and for each row whether it has one: definition level 1.
struct Column<T: DataType> {
    values: Vec<T::T>,
    levels: Vec<i16>,
}

impl<T: DataType> Column<T> {
    fn new() -> Self {
        Self { values: Vec::new(), levels: Vec::new() }
    }

    fn push(&mut self, cell: Option<T::T>) {
        self.levels.push(i16::from(cell.is_some()));
        self.values.extend(cell);
    }

    /// Writes what there is, and is empty.
    fn write(&mut self, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        to.typed::<T>().write_batch(&self.values, Some(&self.levels), None)?;
        self.values.clear();
        self.levels.clear();
        Ok(())
    }
}

fn write_group(
    writer: &mut SerializedFileWriter<File>,
    columns: &mut [Cells],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    let mut columns = columns.iter_mut();
    while let (Some(mut to), Some(cells)) = (group.next_column()?, columns.next()) {
        cells.write(&mut to)?;
        to.close()?;
    }
    group.close()?;
    Ok(())
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
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

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
        files.take(&record(1)).expect("taken");
        // Where its directory was is something else for a while.
        let away = root.path().join("away");
        std::fs::rename(&directory, &away).expect("renamed");
        std::fs::write(&directory, b"").expect("written");
        assert!(files.rotate().is_err());
        std::fs::remove_file(&directory).expect("removed");
        std::fs::rename(&away, &directory).expect("renamed");
        files.take(&record(2)).expect("taken");
        files.finish().expect("finished");
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
        let taken = (0..100).filter(|&n| files.take(&record(n)).is_ok()).count();
        // What fits the buffer waits for room on the disk; nothing else does.
        assert!((1..20).contains(&taken), "{taken}");
        assert_eq!(dropped.load(Ordering::Relaxed), 100 - taken as u64);
        assert_eq!(files.rows, taken);
        assert!(files.flush().is_err());
        // No Parquet file can be made either.
        files.parquet = directory.path().join("none/sessions.parquet");
        assert!(files.finish().is_err());
        assert_eq!(dropped.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn lines_that_were_cut_off_are_left_out_and_there_may_be_many() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("many.parquet");
        let rows = 2 * GROUP_ROWS as i64 + 7;
        let mut text: String = (0..rows).map(|n| record(n).json() + "\n").collect();
        text += &record(rows).json()[..40];
        write_parquet(text.as_bytes(), File::create(&path).expect("created")).expect("written");
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
