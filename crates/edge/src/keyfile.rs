//! Creation and rotation of `[server] key_file`. `quic::crypto::KeyRing` defines its format.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use ::quic::crypto::KeyRing;

use crate::Error;
use crate::clock::unix;
use crate::entropy::random;
use crate::hex::hex;

/// Returns the text of a new key file: a static key, and a rotating key in use from `created` on.
///
/// # Errors
/// If the system has no random numbers. One line.
pub fn generate(created: SystemTime) -> Result<String, Error> {
    Ok(format!("static {}\n{}", hex(&random()?), rotating(created)?))
}

/// Writes a new key file with mode 0600.
///
/// # Errors
/// If the file exists, which is left unchanged, or cannot be written. One line.
pub fn create(path: &Path, created: SystemTime) -> Result<(), Error> {
    let text = generate(created)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            failure(path, "the file exists already; --rotate adds a key to it")
        }
        _ => failure(path, e),
    })?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|e| {
        // An incomplete file would prevent the server's start and another attempt.
        let _ = std::fs::remove_file(path);
        failure(path, e)
    })
}

/// Adds a rotating key to a key file, in use from `created` on. Owner and mode are kept.
///
/// # Errors
/// If it is not a key file, has the maximum number of keys, or cannot be written. One line. The
/// file is left unchanged.
pub fn rotate(path: &Path, created: SystemTime) -> Result<(), Error> {
    let failed = |e| failure(path, e);
    let mut file = OpenOptions::new().read(true).append(true).open(path).map_err(failed)?;
    // Concurrent rotations would not see each other's lines.
    file.lock().map_err(failed)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    KeyRing::parse(&text).map_err(|e| failure(path, e))?;
    let separator = if text.ends_with('\n') { "" } else { "\n" };
    let addition = format!("{separator}{}", rotating(created)?);
    KeyRing::parse(&format!("{text}{addition}"))
        .map_err(|e| failure(path, format!("{}; delete the oldest", e.reason)))?;
    append(&mut file, text.len(), &addition).map_err(failed)
}

fn append(file: &mut File, length: usize, addition: &str) -> std::io::Result<()> {
    let written = file.write_all(addition.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // An incomplete line would make the file invalid.
        file.set_len(length as u64)?;
    }
    written
}

/// Returns the line of a new rotating key.
fn rotating(created: SystemTime) -> Result<String, Error> {
    Ok(format!("{} {}\n", unix(created), hex(&random()?)))
}

fn failure(path: &Path, why: impl core::fmt::Display) -> Error {
    Error::new(format!("key file {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::{Passes, ViewerId};
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;
    use std::time::Duration;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn passes(path: &Path) -> Passes {
        let text = std::fs::read_to_string(path).expect("readable");
        Passes::new(Arc::new(KeyRing::parse(&text).expect("a key file")))
    }

    #[test]
    fn new_files_have_unique_keys_and_mode_0600() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        for path in &paths {
            create(path, at(100)).expect("written");
            let mode = std::fs::metadata(path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let [a, b] = paths.map(|path| std::fs::read_to_string(path).expect("readable"));
        let keys = |text: &str| -> Vec<String> {
            let keys = text.lines().filter_map(|line| line.split_once(' '));
            keys.map(|(_, key)| key.to_owned()).collect()
        };
        let mut all = [keys(&a), keys(&b)].concat();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4, "no key twice");
        assert!(a.starts_with("static ") && a.contains("\n100 "));
    }

    #[test]
    fn existing_files_are_not_overwritten() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("secrets");
        std::fs::write(&path, "precious").expect("written");
        let error = create(&path, at(100)).expect_err("refused").to_string();
        assert!(error.contains("the file exists already"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "precious");
    }

    #[test]
    fn rotated_keys_open_before_they_seal() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("secrets");
        create(&path, at(100)).expect("written");
        let before = passes(&path);
        rotate(&path, at(1_000)).expect("rotated");
        let after = passes(&path);
        let viewer = ViewerId::random();
        for (now, is_new) in [(999, false), (1_000, true)] {
            let pass = after.page(viewer, at(now));
            assert_eq!(after.of_page(&pass, at(now)), Some(viewer));
            assert_eq!(before.of_page(&pass, at(now)).is_none(), is_new, "at {now}");
        }
        let old = before.page(viewer, at(500));
        assert_eq!(after.of_page(&old, at(2_000)), Some(viewer), "old passes stay valid");
    }

    #[test]
    fn a_missing_final_newline_is_added() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("secrets");
        let text = generate(at(100)).expect("random");
        std::fs::write(&path, text.trim_end()).expect("written");
        rotate(&path, at(200)).expect("rotated");
        let rotated = std::fs::read_to_string(&path).expect("readable");
        assert!(rotated.starts_with(&text) && rotated.lines().count() == 3, "{rotated}");
        KeyRing::parse(&rotated).expect("a key file");
    }

    #[test]
    fn invalid_and_full_files_are_left_unchanged() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("secrets");
        let full = generate(at(1)).expect("random") + &rotating(at(1)).expect("random").repeat(63);
        for (text, part) in [
            ("hello\n", "line 1: expected"),
            ("", "no `CREATED HEX` line"),
            (&full, "more than 64 rotating keys; delete the oldest"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = rotate(&path, at(2)).expect_err("refused").to_string();
            assert!(error.contains(part), "{error}");
            assert_eq!(std::fs::read_to_string(&path).expect("readable"), text);
        }
        assert!(rotate(&dir.path().join("none"), at(2)).is_err(), "nothing is created");
        assert!(!dir.path().join("none").exists());
    }
}
