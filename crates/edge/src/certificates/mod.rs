//! The server's certificates: files of the configuration, chosen by server name (SNI, RFC 6066,
//! section 3), and replaced while the server runs.
//!
//! QUIC and TCP ask the same [`Certificates`] at each handshake. A new set of certificates applies
//! to the next handshake, and open connections do not notice. `watch` loads files that change.

mod set;
pub(crate) mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::Error;
use crate::clock::unix_now;
use crate::identity::ACME_ALPN;
pub(crate) use set::{Certificate, CertificateSet, Source};

/// The certificates in force. Survives reloads.
#[derive(Debug)]
pub struct Certificates {
    current: ArcSwap<CertificateSet>,
    /// Certificates that prove control of names to an ACME CA.
    challenges: ArcSwap<HashMap<String, Arc<CertifiedKey>>>,
    loaded: AtomicU64,
    rejected: AtomicU64,
    obtained: AtomicU64,
    not_obtained: AtomicU64,
}

impl Certificates {
    /// Creates the store with its first certificates.
    pub(crate) fn new(set: CertificateSet) -> Self {
        Self {
            current: ArcSwap::from_pointee(set),
            challenges: ArcSwap::default(),
            loaded: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            obtained: AtomicU64::new(0),
            not_obtained: AtomicU64::new(0),
        }
    }

    /// Returns the certificates in force.
    pub(crate) fn current(&self) -> Arc<CertificateSet> {
        self.current.load_full()
    }

    /// Replaces all certificates, for handshakes from now on.
    pub(crate) fn replace(&self, set: Arc<CertificateSet>) {
        self.current.store(set);
    }

    /// Replaces all certificates unless `known` are no longer in force, as after a reload. Returns
    /// whether they were replaced.
    fn replace_known(&self, known: &Arc<CertificateSet>, set: CertificateSet) -> bool {
        let found = self.current.compare_and_swap(known, Arc::new(set));
        Arc::ptr_eq(&found, known)
    }

    /// Puts the certificate in these new files in force at `now`. Returns false if it is not valid
    /// yet, but its predecessor is.
    ///
    /// # Errors
    /// One line: the files cannot be used.
    pub(crate) fn install(&self, source: &Source, now: u64) -> Result<bool, Error> {
        let certificate = Arc::new(source.load()?);
        loop {
            let current = self.current();
            let Some(set) = current.with_new(source, certificate.clone(), now) else {
                return Ok(false);
            };
            // Otherwise a reload has replaced the set meanwhile.
            if self.replace_known(&current, set) {
                return Ok(true);
            }
        }
    }

    /// Adds the answer to the TLS-ALPN-01 challenge of a name.
    pub(crate) fn add_challenge(&self, name: &str, answer: Arc<CertifiedKey>) {
        let mut all = HashMap::clone(&self.challenges.load());
        all.insert(name.to_ascii_lowercase(), answer);
        self.challenges.store(Arc::new(all));
    }

    /// Removes the answers to all challenges.
    pub(crate) fn clear_challenges(&self) {
        self.challenges.store(Arc::default());
    }

    /// Counts an attempt to obtain a certificate from an ACME CA.
    pub(crate) fn count_obtained(&self, is_success: bool) {
        let count = if is_success { &self.obtained } else { &self.not_obtained };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the changed files that were loaded and rejected by the watch, and the attempts to
    /// obtain a certificate from an ACME CA.
    pub(crate) fn events(&self) -> [(&'static str, u64); 4] {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("loaded", count(&self.loaded)),
            ("rejected", count(&self.rejected)),
            ("obtained", count(&self.obtained)),
            ("not_obtained", count(&self.not_obtained)),
        ]
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // RFC 8737, section 3: the CA offers this protocol alone.
        let mut protocols = hello.alpn().into_iter().flatten();
        if protocols.next() == Some(ACME_ALPN) && protocols.next().is_none() {
            return self.challenges.load().get(hello.server_name()?).cloned();
        }
        let schemes = hello.signature_schemes();
        let can_sign = |key: &CertifiedKey| key.key.choose_scheme(schemes).is_some();
        let set = self.current.load();
        Some(set.choose(hello.server_name(), can_sign, unix_now()).certified.clone())
    }
}

#[cfg(test)]
mod tests;
