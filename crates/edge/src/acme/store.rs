//! The state directory: account keys and the certificate, readable by the server's user alone.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use instant_acme::AccountCredentials;

use crate::Error;
use crate::disk::small;
use crate::hex::hex;

/// A state directory.
#[derive(Debug)]
pub(super) struct Store(PathBuf);

impl Store {
    pub(super) fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Creates the directory with mode 0700 if necessary.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|e| Error::new(format!("[acme] directory {}: {e}", self.0.display())))
    }

    /// Returns the file of the account at the CA with this directory URL.
    fn account_file(&self, ca: &str) -> PathBuf {
        let hash = hex(digest(&SHA256, ca.as_bytes()).as_ref());
        self.0.join(format!("account-{}.json", &hash[..16]))
    }

    /// Returns the account at this CA. Without a usable file, a new account is created: it costs
    /// nothing.
    pub(super) fn account(&self, ca: &str) -> Option<AccountCredentials> {
        let path = self.account_file(ca);
        let text = match small::read(&path, small::MAX_SECRET) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            Err(e) => {
                tracing::warn!("ACME account {}: {e}", path.display());
                return None;
            }
        };
        let account = serde_json::from_slice(&text);
        account
            .map_err(|_| tracing::warn!("ACME account {}: damaged; replaced", path.display()))
            .ok()
    }

    /// Removes the account at this CA, so that the next attempt creates another.
    pub(super) fn forget_account(&self, ca: &str) {
        let path = self.account_file(ca);
        tracing::warn!("ACME account {}: unknown to the CA; replaced", path.display());
        // If it remains, the next attempt fails and tries again.
        let _ = std::fs::remove_file(path);
    }

    /// Stores the account at this CA.
    pub(super) fn keep_account(
        &self,
        ca: &str,
        credentials: &AccountCredentials,
    ) -> Result<(), Error> {
        let text = serde_json::to_vec(credentials).map_err(|e| Error::new(e.to_string()))?;
        self.write(&self.account_file(ca), &text)
    }

    /// Replaces a file at once, with mode 0600. After a crash it has the old or the new content.
    pub(super) fn write(&self, path: &Path, content: &[u8]) -> Result<(), Error> {
        let new = path.with_extension("new");
        let written = || {
            // An earlier attempt may have left the file with another mode.
            match std::fs::remove_file(&new) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
            let mut file = file?;
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::rename(&new, path)?;
            File::open(&self.0)?.sync_all()
        };
        written().map_err(|e| Error::new(format!("{}: {e}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn files_are_private_and_replaced_as_a_whole() {
        let parent = tempfile::tempdir().expect("a directory");
        let store = Store::new(&parent.path().join("new/acme"));
        store.prepare().expect("made");
        store.prepare().expect("made already");
        let mode =
            |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&store.0), 0o700);
        let path = store.0.join("certificate.pem");
        // Left by a crash.
        std::fs::write(path.with_extension("new"), "half").expect("written");
        for content in ["one", "two"] {
            store.write(&path, content.as_bytes()).expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("readable"), content);
            assert_eq!(mode(&path), 0o600);
        }
        assert_eq!(std::fs::read_dir(&store.0).expect("readable").count(), 1);
        let account = store.account_file("https://ca.test/a");
        assert_ne!(account, store.account_file("https://ca.test/b"));
        std::fs::write(account, "damaged").expect("written");
        assert!(store.account("https://ca.test/a").is_none());
        assert!(store.account("https://ca.test/b").is_none());
    }
}
