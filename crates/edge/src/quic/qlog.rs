//! qlog files: one per sampled connection, `MILLISECONDS-CONNECTION.sqlog`, written by a thread of
//! its own. The event loops hand finished pieces over and never wait: when the disk falls behind,
//! logs end early and are counted.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::UNIX_EPOCH;

use ::quic::ObserverFactory;
use ::quic::observer::Observer;
use ::quic::qlog::QlogObserver;
use units::Timestamp;

use crate::Error;

/// Bytes of a piece.
const PIECE: usize = 16 << 10;
/// Pieces that may wait for the disk.
const WAITING: usize = 1_024;

/// What the writing thread is told about a file.
enum Message {
    Open(u64, PathBuf),
    Piece(u64, Vec<u8>),
    Close(u64),
}

/// The directory of the logs, and the way to the thread that writes them.
#[derive(Debug)]
struct Logs {
    dir: PathBuf,
    /// Share of connections that are logged, of `u64::MAX`.
    sample: u64,
    random: RandomState,
    next: AtomicU64,
    sender: SyncSender<Message>,
    /// Logs that ended early.
    cut: AtomicU64,
}

/// The logger of new connections, for `sample` (0 to 1) of them.
///
/// # Errors
/// One line: the directory cannot be made, or the thread cannot be started.
pub(super) fn observers(dir: PathBuf, sample: f64) -> Result<ObserverFactory, Error> {
    std::fs::create_dir_all(&dir)
        .map_err(|e| Error::new(format!("qlog directory {}: {e}", dir.display())))?;
    let (sender, receiver) = sync_channel(WAITING);
    std::thread::Builder::new()
        .name("qlog".to_owned())
        .spawn(move || write(&receiver))
        .map_err(|e| Error::new(format!("cannot start the thread of qlog files: {e}")))?;
    let logs = Arc::new(Logs {
        dir,
        sample: (sample * u64::MAX as f64) as u64,
        random: RandomState::new(),
        next: AtomicU64::new(0),
        sender,
        cut: AtomicU64::new(0),
    });
    Ok(Arc::new(move |now, _: SocketAddr, odcid: &[u8]| logs.observer(now, odcid)))
}

impl Logs {
    fn observer(
        self: &Arc<Self>,
        now: Timestamp,
        odcid: &[u8],
    ) -> Option<Box<dyn Observer + Send>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.random.hash_one(number) > self.sample {
            return None;
        }
        let unix = UNIX_EPOCH.elapsed().unwrap_or_default();
        let id: String = odcid.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.dir.join(format!("{:013}-{id}.sqlog", unix.as_millis()));
        let mut log = Log { logs: self.clone(), number, piece: Vec::new() };
        log.send(Message::Open(number, path)).ok()?;
        Some(Box::new(QlogObserver::new(log, odcid, now, unix)))
    }
}

/// One connection's log on its way to the thread.
struct Log {
    logs: Arc<Logs>,
    number: u64,
    piece: Vec<u8>,
}

impl Log {
    fn send(&mut self, message: Message) -> io::Result<()> {
        self.logs.sender.try_send(message).map_err(|_| {
            if self.logs.cut.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!("qlog files cannot be written fast enough; some end early");
            }
            io::Error::from(io::ErrorKind::WouldBlock)
        })
    }
}

impl Write for Log {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(data);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        self.send(Message::Piece(self.number, piece))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A log that cannot be completed is counted already.
        let _ = self.flush();
        let _ = self.send(Message::Close(self.number));
    }
}

/// Writes until the last logger is gone.
fn write(messages: &Receiver<Message>) {
    let mut files: HashMap<u64, File> = HashMap::new();
    let mut warned = false;
    for message in messages {
        let result = match message {
            Message::Open(number, path) => {
                let file = OpenOptions::new().write(true).create_new(true).open(&path);
                file.map(|file| drop(files.insert(number, file)))
            }
            Message::Piece(number, piece) => {
                files.get_mut(&number).map_or(Ok(()), |file| file.write_all(&piece))
            }
            Message::Close(number) => {
                files.remove(&number);
                Ok(())
            }
        };
        if let Err(e) = result
            && !warned
        {
            warned = true;
            tracing::warn!("a qlog file cannot be written: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_connections_gets_files() {
        let dir = tempfile::tempdir().expect("a directory");
        for (sample, least, most) in [(0.0, 0, 0), (0.5, 20, 80), (1.0, 100, 100)] {
            let dir = dir.path().join(sample.to_string());
            let factory = observers(dir.clone(), sample).expect("made");
            let peer = SocketAddr::from(([127, 0, 0, 1], 1));
            let count = (0..100u8).filter_map(|n| factory(Timestamp::ZERO, peer, &[n])).count();
            assert!((least..=most).contains(&count), "{sample}: {count}");
            drop(factory);
            let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
            let files = || std::fs::read_dir(&dir).expect("readable").count();
            while files() < count {
                assert!(std::time::Instant::now() < end, "{} of {count} files", files());
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = observers(file.path().join("below"), 1.0).err().expect("an error");
        assert!(error.to_string().contains("qlog directory"), "{error}");
    }
}
