//! Loads the files of certificates when they change.
//!
//! Chain and key are replaced one after the other, and each may be read half-written. So a file
//! that cannot be used is read again at the next check, and a warning follows only if it has not
//! changed since.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::Certificates;
use super::set::{Certificate, Source};
use crate::Error;
use crate::clock::unix_now;
use crate::identity::date;

/// Interval between checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Checks the files of `certificates` until the process ends.
pub(crate) async fn run(certificates: Arc<Certificates>) {
    let mut watch = Watch::default();
    loop {
        sleep(CHECK_INTERVAL).await;
        let certificates = certificates.clone();
        // Reading files blocks.
        let checked = tokio::task::spawn_blocking(move || {
            watch.check(&certificates, unix_now());
            watch
        });
        // Fails only on a panic.
        watch = checked.await.unwrap_or_default();
    }
}

/// Files as they were at the last check.
#[derive(Debug, Default)]
pub(super) struct Watch {
    known: HashMap<Source, Known>,
}

/// The state of a certificate's files.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// The certificate in force was read when the files looked like this.
    Loaded([Option<Stamp>; 2]),
    /// The files cannot be used, for this reason. True after the warning.
    Unusable(String, bool),
}

/// Device, inode, size and times of a file, which change with its content.
type Stamp = (u64, u64, u64, [i64; 4]);

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    Some((found.dev(), found.ino(), found.size(), times))
}

impl Watch {
    /// Loads changed files if their certificate is valid at `now` or no worse than the current one.
    pub(super) fn check(&mut self, certificates: &Certificates, now: u64) {
        let set = certificates.current();
        self.known.retain(|known, _| set.all().any(|(source, _)| source == Some(known)));
        let mut current = set;
        for at in 0..current.all().count() {
            let Some((Some(source), running)) = current.all().nth(at) else { continue };
            let (source, running) = (source.clone(), running.clone());
            let Some(certificate) = self.look(&source, &running, certificates, now) else {
                continue;
            };
            let (place, name) = (source.chain.display().to_string(), certificate.name());
            let end = date(*certificate.validity.end());
            if !certificates.replace_known(&current, current.with(at, Arc::new(certificate))) {
                // A reload has just read the files.
                return;
            }
            certificates.loaded.fetch_add(1, Ordering::Relaxed);
            tracing::info!("certificate loaded: {place} name={name} valid until {end}");
            current = certificates.current();
        }
    }

    /// Returns the certificate in these files, if it should replace the `running` one.
    fn look(
        &mut self,
        source: &Source,
        running: &Certificate,
        certificates: &Certificates,
        now: u64,
    ) -> Option<Certificate> {
        // Taken before reading: a later change then has another stamp.
        let stamps = [stamp(&source.chain), stamp(&source.key)];
        if self.known.get(source) == Some(&Known::Loaded(stamps)) {
            return None;
        }
        let outcome = load(source, running, now);
        let (known, certificate) = match outcome {
            Ok(certificate) => (Known::Loaded(stamps), certificate),
            Err(why) => {
                let why = why.to_string();
                // A reason that persists is no half-written file.
                let (is_same, was_told) = match self.known.get(source) {
                    Some(Known::Unusable(known, was_told)) => (*known == why, *was_told),
                    _ => (false, false),
                };
                if is_same && !was_told {
                    certificates.rejected.fetch_add(1, Ordering::Relaxed);
                    let key = source.keys[0];
                    tracing::warn!("{key}: {why}; the previous certificate remains in use");
                }
                (Known::Unusable(why, is_same), None)
            }
        };
        self.known.insert(source.clone(), known);
        certificate
    }
}

/// Loads a certificate; `None` if it is the `running` one.
///
/// # Errors
/// One line: the files cannot be used, or clients would reject the certificate at `now` and not the
/// running one.
fn load(source: &Source, running: &Certificate, now: u64) -> Result<Option<Certificate>, Error> {
    let contents = source.read()?;
    if running.is_of(&contents.hashes) {
        return Ok(None);
    }
    let certificate = source.parse(contents)?;
    match certificate.identity.fault(now) {
        Some(fault) if running.validity.contains(&now) => {
            Err(Error::new(format!("{}: {fault}", source.chain.display())))
        }
        _ => Ok(Some(certificate)),
    }
}
