//! Thread that writes files for other threads, which never wait. If the disk is too slow, data is
//! dropped and counted.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use crate::Error;

/// Maximum number of queued messages.
const MAX_QUEUED: usize = 1_024;

/// Message to the thread. Files are identified by a number of their owner's choice.
#[derive(Debug)]
enum WriterMessage {
    /// Creates a file. An existing one is not touched.
    Create(u64, PathBuf),
    Adopt(u64, File),
    Piece(u64, Vec<u8>),
    Close(u64),
    /// Reports that all earlier messages have been processed.
    Flush(SyncSender<()>),
}

/// Handle of the thread, which ends with it.
#[derive(Debug)]
pub(crate) struct DiskWriter {
    /// Name in warnings.
    name: &'static str,
    sender: SyncSender<WriterMessage>,
    lost: Arc<AtomicU64>,
}

impl DiskWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// If it cannot be started. One line.
    pub(crate) fn start(name: &'static str) -> Result<Self, Error> {
        let (sender, receiver) = sync_channel(MAX_QUEUED);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = lost.clone();
        Builder::new()
            .name(name.to_owned())
            .spawn(move || write(name, &receiver, &counter))
            .map_err(|e| Error::new(format!("cannot start the thread of the {name}: {e}")))?;
        Ok(Self { name, sender, lost })
    }

    /// Creates the file `number`.
    ///
    /// # Errors
    /// If the queue is full.
    pub(crate) fn create(&self, number: u64, path: PathBuf) -> io::Result<()> {
        self.send(WriterMessage::Create(number, path))
    }

    /// Continues an open file as `number`.
    ///
    /// # Errors
    /// As [`DiskWriter::create`].
    pub(crate) fn adopt(&self, number: u64, file: File) -> io::Result<()> {
        self.send(WriterMessage::Adopt(number, file))
    }

    /// Appends to the file `number`.
    ///
    /// # Errors
    /// As [`DiskWriter::create`]. The piece is lost.
    pub(crate) fn append(&self, number: u64, piece: Vec<u8>) -> io::Result<()> {
        self.send(WriterMessage::Piece(number, piece))
    }

    /// Closes the file `number`.
    ///
    /// # Errors
    /// As [`DiskWriter::create`]. The file stays open.
    pub(crate) fn close(&self, number: u64) -> io::Result<()> {
        self.send(WriterMessage::Close(number))
    }

    /// Returns the number of dropped messages and failed operations.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until all earlier messages are processed, for at most `max`.
    pub(crate) fn flush(&self, max: Duration) {
        let end = Instant::now() + max;
        let (sender, written) = sync_channel(1);
        let mut message = WriterMessage::Flush(sender);
        while let Err(TrySendError::Full(back)) = self.sender.try_send(message) {
            if Instant::now() >= end {
                return;
            }
            message = back;
            sleep(Duration::from_millis(10));
        }
        // After the timeout, unwritten data is lost.
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }

    fn send(&self, message: WriterMessage) -> io::Result<()> {
        self.sender.try_send(message).map_err(|_| {
            if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!("the disk is too slow for the {}: data is dropped", self.name);
            }
            io::Error::from(io::ErrorKind::WouldBlock)
        })
    }
}

/// Processes messages until the handle is dropped.
fn write(name: &str, messages: &Receiver<WriterMessage>, lost: &AtomicU64) {
    let mut files: HashMap<u64, File> = HashMap::new();
    for message in messages {
        let result = match message {
            WriterMessage::Create(number, path) => {
                let file = OpenOptions::new().write(true).create_new(true).open(&path);
                file.map(|file| drop(files.insert(number, file)))
            }
            WriterMessage::Adopt(number, file) => {
                files.insert(number, file);
                Ok(())
            }
            WriterMessage::Piece(number, piece) => {
                files.get_mut(&number).map_or(Ok(()), |file| file.write_all(&piece))
            }
            WriterMessage::Close(number) => {
                files.remove(&number);
                Ok(())
            }
            WriterMessage::Flush(done) => {
                // The other thread may have timed out.
                let _ = done.try_send(());
                Ok(())
            }
        };
        if let Err(e) = result
            && lost.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!("the {name} cannot be written: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_disk_drops_data_without_blocking() {
        let dir = tempfile::tempdir().expect("a directory");
        // Opening a pipe blocks until its other end is open.
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("run");
        assert!(made.success());
        let writer = DiskWriter::start("test").expect("started");
        let (sender, blocked) = sync_channel(1);
        let file = {
            let pipe = pipe.clone();
            std::thread::spawn(move || {
                let reader = File::open(&pipe).expect("opened");
                let () = blocked.recv().expect("sent");
                io::read_to_string(reader).expect("read").len()
            })
        };
        writer
            .adopt(1, OpenOptions::new().write(true).open(&pipe).expect("opened"))
            .expect("queued");
        let start = Instant::now();
        let kept = (0..3_000).filter(|_| writer.append(1, vec![b'x'; 10_000]).is_ok()).count();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!(kept < 3_000 && writer.lost() == 3_000 - kept as u64);
        let start = Instant::now();
        writer.flush(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
        // Queued data is written once the disk continues.
        sender.send(()).expect("received");
        writer.flush(Duration::from_secs(30));
        drop(writer);
        assert_eq!(file.join().expect("no panic"), kept * 10_000);
    }

    #[test]
    fn failed_writes_are_counted() {
        let writer = DiskWriter::start("test").expect("started");
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        writer.adopt(0, full).expect("queued");
        writer.create(1, "/nonexistent/file".into()).expect("queued");
        writer.append(0, b"line\n".to_vec()).expect("queued");
        writer.flush(Duration::from_secs(10));
        assert_eq!(writer.lost(), 2);
    }
}
