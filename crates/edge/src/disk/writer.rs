//! A thread that writes what other threads hand it. They never wait: when the disk falls
//! behind, pieces are lost and counted.

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

/// Messages that may wait for the disk.
const WAITING: usize = 1_024;

/// What the thread is told. Files go by a number that their owner gives them.
#[derive(Debug)]
enum Message {
    /// A file that is to be made; one that is there is not touched.
    Create(u64, PathBuf),
    Adopt(u64, File),
    Piece(u64, Vec<u8>),
    Close(u64),
    /// Everything before this has been written.
    Flush(SyncSender<()>),
}

/// The way to the thread, which ends with it.
#[derive(Debug)]
pub(crate) struct Writer {
    /// What is written, for warnings.
    what: &'static str,
    sender: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// One line: it cannot be started.
    pub(crate) fn start(what: &'static str) -> Result<Self, Error> {
        let (sender, receiver) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = lost.clone();
        Builder::new()
            .name(what.to_owned())
            .spawn(move || write(what, &receiver, &counter))
            .map_err(|e| Error::new(format!("cannot start the thread of the {what}: {e}")))?;
        Ok(Self { what, sender, lost })
    }

    /// Creates the file `number`.
    ///
    /// # Errors
    /// Too much waits for the disk.
    pub(crate) fn create(&self, number: u64, path: PathBuf) -> io::Result<()> {
        self.send(Message::Create(number, path))
    }

    /// Goes on with an open file as `number`.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub(crate) fn adopt(&self, number: u64, file: File) -> io::Result<()> {
        self.send(Message::Adopt(number, file))
    }

    /// Appends to the file `number`.
    ///
    /// # Errors
    /// As [`Writer::create`]; the piece is lost.
    pub(crate) fn append(&self, number: u64, piece: Vec<u8>) -> io::Result<()> {
        self.send(Message::Piece(number, piece))
    }

    /// The file `number` is complete.
    ///
    /// # Errors
    /// As [`Writer::create`]; the file stays open.
    pub(crate) fn close(&self, number: u64) -> io::Result<()> {
        self.send(Message::Close(number))
    }

    /// Messages that were lost, and pieces that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until all that came before is written, but no longer than `most`.
    pub(crate) fn flush(&self, most: Duration) {
        let end = Instant::now() + most;
        let (sender, written) = sync_channel(1);
        let mut message = Message::Flush(sender);
        while let Err(TrySendError::Full(back)) = self.sender.try_send(message) {
            if Instant::now() >= end {
                return;
            }
            message = back;
            sleep(Duration::from_millis(10));
        }
        // In vain, what is left is lost.
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }

    fn send(&self, message: Message) -> io::Result<()> {
        self.sender.try_send(message).map_err(|_| {
            if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!("the {} cannot be written fast enough; some is lost", self.what);
            }
            io::Error::from(io::ErrorKind::WouldBlock)
        })
    }
}

/// Writes until the last owner is gone.
fn write(what: &str, messages: &Receiver<Message>, lost: &AtomicU64) {
    let mut files: HashMap<u64, File> = HashMap::new();
    for message in messages {
        let result = match message {
            Message::Create(number, path) => {
                let file = OpenOptions::new().write(true).create_new(true).open(&path);
                file.map(|file| drop(files.insert(number, file)))
            }
            Message::Adopt(number, file) => {
                files.insert(number, file);
                Ok(())
            }
            Message::Piece(number, piece) => {
                files.get_mut(&number).map_or(Ok(()), |file| file.write_all(&piece))
            }
            Message::Close(number) => {
                files.remove(&number);
                Ok(())
            }
            Message::Flush(done) => {
                // The asking thread may have stopped waiting.
                let _ = done.try_send(());
                Ok(())
            }
        };
        if let Err(e) = result
            && lost.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!("the {what} cannot be written: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_stands_still_costs_pieces_and_no_time() {
        let dir = tempfile::tempdir().expect("a directory");
        // Opening a pipe waits for somebody at its other end.
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("run");
        assert!(made.success());
        let writer = Writer::start("test").expect("started");
        let (sender, blocked) = sync_channel(1);
        let file = {
            let pipe = pipe.clone();
            std::thread::spawn(move || {
                let reader = File::open(&pipe).expect("opened");
                let () = blocked.recv().expect("told");
                io::read_to_string(reader).expect("read").len()
            })
        };
        writer.adopt(1, OpenOptions::new().write(true).open(&pipe).expect("opened")).expect("room");
        let start = Instant::now();
        let kept = (0..3_000).filter(|_| writer.append(1, vec![b'x'; 10_000]).is_ok()).count();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!(kept < 3_000 && writer.lost() == 3_000 - kept as u64);
        let start = Instant::now();
        writer.flush(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
        // Once the disk goes on, so does the thread, and what was kept arrives.
        sender.send(()).expect("received");
        writer.flush(Duration::from_secs(30));
        drop(writer);
        assert_eq!(file.join().expect("no panic"), kept * 10_000);
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let writer = Writer::start("test").expect("started");
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        writer.adopt(0, full).expect("room");
        writer.create(1, "/nonexistent/file".into()).expect("room");
        writer.append(0, b"line\n".to_vec()).expect("room");
        writer.flush(Duration::from_secs(10));
        assert_eq!(writer.lost(), 2);
    }
}
