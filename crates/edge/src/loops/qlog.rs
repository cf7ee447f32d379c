//! qlog files, one per sampled connection: `MILLISECONDS-CONNECTION.sqlog`. A separate thread
//! writes them; event loops pass on chunks and never wait. If the disk falls behind, logs end
//! early.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use ::quic::ObserverFactory;
use ::quic::observer::Observer;
use ::quic::qlog::QlogObserver;
use units::Timestamp;

use crate::Error;
use crate::disk::writer::DiskWriter;

/// Chunk size in bytes.
const CHUNK: usize = 16 << 10;

/// The log directory and writer thread.
#[derive(Debug)]
struct Logs {
    dir: PathBuf,
    /// Share of logged connections, scaled to `u64::MAX`.
    sample: u64,
    random: RandomState,
    next: AtomicU64,
    writer: DiskWriter,
}

/// Returns the observer factory of new connections. Logs a share `sample` of them (0 to 1).
///
/// # Errors
/// The directory cannot be created, or the thread cannot be started.
pub(super) fn observers(dir: PathBuf, sample: f64) -> Result<ObserverFactory, Error> {
    std::fs::create_dir_all(&dir)
        .map_err(|e| Error::new(format!("qlog directory {}: {e}", dir.display())))?;
    let writer = DiskWriter::start("qlog files")?;
    let logs = Arc::new(Logs {
        dir,
        sample: (sample * u64::MAX as f64) as u64,
        random: RandomState::new(),
        next: AtomicU64::new(0),
        writer,
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
        self.writer.create(number, path).ok()?;
        let log = Log { logs: self.clone(), number, piece: Vec::new() };
        Some(Box::new(QlogObserver::new(log, odcid, now, unix)))
    }
}

/// The log of one connection.
struct Log {
    logs: Arc<Logs>,
    number: u64,
    piece: Vec<u8>,
}

impl Write for Log {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(data);
        if self.piece.len() >= CHUNK {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        self.logs.writer.append(self.number, piece)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // An incomplete log is counted already.
        let _ = self.flush();
        let _ = self.logs.writer.close(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_share_of_connections_gets_files() {
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
    fn uncreatable_directory_is_an_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = observers(file.path().join("below"), 1.0).err().expect("an error");
        assert!(error.to_string().contains("qlog directory"), "{error}");
    }
}
