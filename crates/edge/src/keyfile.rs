//! The key file that `[server] key_file` names: how one is made, and how it gets another rotating key.
//! What its lines mean is the key ring's business (`quic::crypto::KeyRing`).

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

/// The text of a new key file: a static key, and a rotating one that holds from `created` on, in
/// seconds since 1970.
///
/// # Errors
/// One line: the system has no randomness.
pub fn generate(created: SystemTime) -> Result<String, Error> {
    Ok(format!("static {}\n{}", hex(&random()?), rotating(created)?))
}

/// Writes a new key file, which its owner alone may read and write (mode 0600).
///
/// # Errors
/// One line: there is such a file already, which stays as it is, or it cannot be written.
pub fn create(path: &Path, created: SystemTime) -> Result<(), Error> {
    let text = generate(created)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            failure(path, "there is such a file already; --rotate adds a key to it")
        }
        _ => failure(path, e),
    })?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|e| {
        // Half a file would keep a server from starting, and this from being tried again.
        let _ = std::fs::remove_file(path);
        failure(path, e)
    })
}

/// Adds a rotating key to a key file, to be used from `created` on. Owner and mode stay.
///
/// # Errors
/// One line: it is no key file, it has as many keys as one may have, or it cannot be written. The
/// file stays as it was.
pub fn rotate(path: &Path, created: SystemTime) -> Result<(), Error> {
    let failed = |e| failure(path, e);
    let mut file = OpenOptions::new().read(true).append(true).open(path).map_err(failed)?;
    // Two at the same time would not see each other's keys, nor where the last line ends.
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
        // Half a line would make the whole file unreadable.
        file.set_len(length as u64)?;
    }
    written
}

/// The line of a new rotating key.
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
    fn a_new_file_has_keys_of_its_own_and_is_its_owners_alone() {
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
    fn a_file_that_is_there_is_not_overwritten() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("secrets");
        std::fs::write(&path, "precious").expect("written");
        let error = create(&path, at(100)).expect_err("refused").to_string();
        assert!(error.contains("there is such a file already"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "precious");
    }

    #[test]
    fn a_fleet_learns_a_rotated_key_before_it_is_used() {
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
        assert_eq!(after.of_page(&old, at(2_000)), Some(viewer), "old passes go on");
    }

    #[test]
    fn a_last_line_without_an_end_is_kept() {
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
    fn what_is_no_key_file_or_is_full_stays_as_it_is() {
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
