//! The file of TLS secrets (`[quic] key_log`), in NSS key log format. Wireshark decrypts captures
//! of QUIC connections with it. A separate thread writes it; event loops never wait. If the disk
//! falls behind, lines are dropped and counted.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use ::quic::crypto::KeyLog;

use crate::Error;
use crate::disk::writer::DiskWriter;
use crate::hex::hex;

/// The writer's number of the only file.
const FILE: u64 = 0;
/// Only the owner may read secrets.
const MODE: u32 = 0o600;

/// A key log, one line per secret: label, the client's random, the secret.
#[derive(Debug)]
struct KeyLogFile(DiskWriter);

/// Opens the key log for appending. An existing file is restricted to its owner.
///
/// # Errors
/// The file cannot be opened or restricted, or the thread cannot be started.
pub(super) fn open(path: &Path) -> Result<Arc<dyn KeyLog>, Error> {
    let failed = |e: io::Error| Error::new(format!("key log {}: {e}", path.display()));
    let file = private(path).map_err(failed)?;
    let writer = DiskWriter::start("key log")?;
    writer.adopt(FILE, file).map_err(failed)?;
    Ok(Arc::new(KeyLogFile(writer)))
}

fn private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    Ok(file)
}

impl KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        // Dropped lines are counted.
        let _ = self.0.append(FILE, line.into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn lines(path: &Path, count: usize) -> Vec<String> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let text = std::fs::read_to_string(path).expect("readable");
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if lines.len() >= count && text.ends_with('\n') {
                return lines;
            }
            assert!(Instant::now() < end, "{count} lines expected: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_key_log_is_appended_to_and_readable_by_its_owner_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("keys.log");
        let mode = || std::fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        open(&path).expect("opened").log("CLIENT_TRAFFIC_SECRET_0", &[0, 0xab], &[1, 0xff]);
        assert_eq!(mode(), 0o600);
        assert_eq!(lines(&path, 1), ["CLIENT_TRAFFIC_SECRET_0 00ab 01ff"]);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("set");
        open(&path).expect("opened").log("SERVER_TRAFFIC_SECRET_0", &[0, 0xab], &[2]);
        assert_eq!(mode(), 0o600, "restricted again");
        assert_eq!(lines(&path, 2)[1], "SERVER_TRAFFIC_SECRET_0 00ab 02");
    }

    #[test]
    fn a_key_log_that_cannot_be_opened_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = open(dir.path()).expect_err("a directory is no file");
        assert!(error.to_string().contains("key log"), "{error}");
    }
}
