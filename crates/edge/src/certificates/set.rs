//! A set of certificates, and the choice among them.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::aws_lc_rs as provider;
use rustls::sign::CertifiedKey;

use crate::Error;
use crate::config::Config;
use crate::finding::Finding;
use crate::identity::{self, Identity, Names};

/// Keys of the configuration that name files: chain and private key.
const DEFAULT_KEYS: [&str; 2] = ["[server] certificate", "[server] key"];
const LIST_KEYS: [&str; 2] = ["[[certificate]] certificate", "[[certificate]] key"];
/// File of the ACME certificate in its state directory. It has chain and key.
const ACME_FILE: &str = "certificate.pem";
const ACME_KEYS: [&str; 2] = ["[acme] domains"; 2];

/// The files of a certificate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Source {
    /// Keys of the configuration that name the files.
    pub keys: [&'static str; 2],
    /// Certificate chain in PEM.
    pub chain: PathBuf,
    /// Private key in PEM.
    pub key: PathBuf,
}

impl Source {
    /// Returns the files of all certificates. The first is the default.
    fn all(config: &Config) -> Vec<Self> {
        let server = &config.server;
        let default = server.certificate.iter().zip(&server.key);
        let default = default.map(|(chain, key)| (DEFAULT_KEYS, chain, key));
        let list = config.certificate.iter();
        let list = list.map(|item| (LIST_KEYS, &item.certificate, &item.key));
        let all = default.chain(list);
        let all =
            all.map(|(keys, chain, key)| Self { keys, chain: chain.clone(), key: key.clone() });
        all.chain(Self::acme(config)).collect()
    }

    /// Returns the file of the ACME certificate, if configured.
    pub(crate) fn acme(config: &Config) -> Option<Self> {
        config.acme.domains.as_ref()?;
        let file = config.acme.directory.join(ACME_FILE);
        Some(Self { keys: ACME_KEYS, chain: file.clone(), key: file })
    }

    /// Whether the server replaces the files itself, so that they may be missing or expired.
    pub(crate) fn is_acme(&self) -> bool {
        self.keys == ACME_KEYS
    }

    /// Loads the certificate.
    ///
    /// # Errors
    /// As [`Source::read`] and [`Source::parse`].
    pub(crate) fn load(&self) -> Result<Certificate, Error> {
        self.parse(self.read()?)
    }

    /// Checks a new content of both files: it is a certificate with its key and these names.
    ///
    /// # Errors
    /// One line: it is not.
    pub(crate) fn check(&self, pem: &[u8], names: &[String]) -> Result<(), Error> {
        let found = Identity::parse((&self.chain, pem), (&self.key, pem))?.names();
        match names.iter().find(|name| !found.dns.contains(name)) {
            Some(name) => Err(Error::new(format!("the CA's certificate lacks the name {name}"))),
            None => Ok(()),
        }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// One line: a file is unreadable or too large.
    pub(super) fn read(&self) -> Result<Contents, Error> {
        let (chain, key) = (identity::read_chain(&self.chain)?, identity::read_key(&self.key)?);
        let hashes = [&chain, &key].map(|content| digest(&SHA256, content).as_ref().to_vec());
        Ok(Contents { chain, key, hashes })
    }

    /// Parses the content of the files.
    ///
    /// # Errors
    /// One line: it is not PEM, or the key does not match the certificate.
    pub(super) fn parse(&self, contents: Contents) -> Result<Certificate, Error> {
        let (chain, key) = ((&*self.chain, &*contents.chain), (&*self.key, &*contents.key));
        Certificate::new(Identity::parse(chain, key)?, contents.hashes)
    }
}

/// The content of a certificate's files.
pub(super) struct Contents {
    chain: Vec<u8>,
    key: Vec<u8>,
    /// SHA-256 of both.
    pub hashes: [Vec<u8>; 2],
}

/// A certificate with its private key.
#[derive(Debug)]
pub(crate) struct Certificate {
    /// Chain and private key.
    pub identity: Arc<Identity>,
    /// The same for TLS.
    pub certified: Arc<CertifiedKey>,
    /// Names of the server's own certificate.
    pub names: Names,
    /// Validity common to all certificates of the chain, in seconds since 1970.
    pub validity: RangeInclusive<u64>,
    /// SHA-256 of both files.
    hashes: [Vec<u8>; 2],
}

impl Certificate {
    fn new(identity: Identity, hashes: [Vec<u8>; 2]) -> Result<Self, Error> {
        let certified = identity.certified(&provider::default_provider());
        let certified = certified.map_err(|e| Error::new(format!("TLS: {e}")))?;
        Ok(Self {
            certified: Arc::new(certified),
            names: identity.names(),
            validity: identity.validity(),
            identity: Arc::new(identity),
            hashes,
        })
    }

    /// Returns the first name, for logs and metrics: a DNS name, or else an address.
    pub(crate) fn name(&self) -> String {
        let address = || self.names.addresses.first().map(ToString::to_string);
        self.names.dns.first().cloned().or_else(address).unwrap_or_default()
    }

    /// Whether the certificate is of these files.
    pub(super) fn is_of(&self, hashes: &[Vec<u8>; 2]) -> bool {
        self.hashes == *hashes
    }
}

/// The certificates of a server, and their files.
#[derive(Clone, Debug)]
pub(crate) struct CertificateSet {
    /// Certificates with their files. Not empty, and the first is the default. Generated ones for
    /// development have no files.
    all: Vec<(Option<Source>, Arc<Certificate>)>,
    /// Certificates by name or wildcard, as indices of `all`.
    by_name: HashMap<String, Vec<usize>>,
}

impl CertificateSet {
    /// Loads the certificates of `config`, or generates one for development. A development
    /// certificate that is `running` is kept, because browsers know its hash. A running certificate
    /// that is valid at `now` is kept, with a warning in `notes`, if its successor is not.
    ///
    /// # Errors
    /// One line: a file is unreadable, or not of its kind, or the key does not match.
    pub(crate) fn load(
        config: &Config,
        running: Option<&Self>,
        now: u64,
        notes: &mut Vec<Finding>,
    ) -> Result<Self, Error> {
        let mut all = Vec::new();
        for source in Source::all(config) {
            let place = source.chain.display();
            let predecessor = running.and_then(|running| running.predecessor(&source));
            let mut certificate = match source.load() {
                Ok(certificate) => Arc::new(certificate),
                Err(why) if !source.is_acme() => return Err(why),
                // Another one is requested.
                Err(why) => {
                    if source.chain.exists() {
                        notes.push(Finding::warning(source.keys[0], place, why));
                    }
                    all.extend(predecessor.map(|known| (Some(source.clone()), known.clone())));
                    continue;
                }
            };
            if let Some(predecessor) = predecessor
                && let Some(fault) = certificate.identity.fault(now)
                && predecessor.validity.contains(&now)
            {
                let kept = "the previous certificate remains in use, as it is valid";
                notes.push(Finding::warning(source.keys[0], place, format!("{fault}; {kept}")));
                certificate = predecessor.clone();
            }
            all.push((Some(source), certificate));
        }
        if all.is_empty() {
            let running = running.map(|running| running.default());
            let known = running.filter(|known| known.identity.development.is_some());
            all.push(match known {
                Some(known) => (None, known.clone()),
                None => {
                    let identity = Identity::development()?;
                    (None, Arc::new(Certificate::new(identity, Default::default())?))
                }
            });
        }
        Ok(Self::new(all))
    }

    fn new(all: Vec<(Option<Source>, Arc<Certificate>)>) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, (_, certificate)) in all.iter().enumerate() {
            for name in &certificate.names.dns {
                by_name.entry(name.clone()).or_default().push(at);
            }
        }
        Self { all, by_name }
    }

    /// Returns the certificate that one of these files replaces.
    fn predecessor(&self, source: &Source) -> Option<&Arc<Certificate>> {
        // The default certificate is replaced by the default one, whatever its path.
        let is_default = source.keys == DEFAULT_KEYS;
        let mut others = self.all.iter().filter(|(known, _)| known.as_ref() == Some(source));
        let found = if is_default { self.all.first() } else { others.next() };
        found.map(|(_, certificate)| certificate)
    }

    /// Returns the certificate for clients without a server name, or with an unknown one.
    pub(crate) fn default(&self) -> &Arc<Certificate> {
        let (_, certificate) = &self.all[0];
        certificate
    }

    /// Returns all certificates with their files. The first is the default.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Option<&Source>, &Arc<Certificate>)> {
        self.all.iter().map(|(source, certificate)| (source.as_ref(), certificate))
    }

    /// Returns the hashes of the files, by key of the configuration.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
        let files = self.all.iter().filter_map(|(source, known)| Some((source.as_ref()?, known)));
        let files = files.filter(|(source, _)| !source.is_acme());
        let read = files.filter(|(_, known)| known.identity.development.is_none());
        read.flat_map(|(source, known)| source.keys.into_iter().zip(known.hashes.iter().cloned()))
    }

    /// Returns the set with another certificate at this place.
    pub(super) fn with(&self, at: usize, certificate: Arc<Certificate>) -> Self {
        let mut all = self.all.clone();
        all[at].1 = certificate;
        Self::new(all)
    }

    /// Returns the set with a certificate of these files, instead of the one that had them and of
    /// a development certificate. `None` if it is not valid at `now`, and its predecessor is.
    pub(super) fn with_new(
        &self,
        source: &Source,
        certificate: Arc<Certificate>,
        now: u64,
    ) -> Option<Self> {
        let mut all = self.all.clone();
        let place = all.iter().position(|(known, _)| known.as_ref() == Some(source));
        match place {
            Some(at) => {
                let is_better = certificate.validity.contains(&now);
                if !is_better && all[at].1.validity.contains(&now) {
                    return None;
                }
                all[at].1 = certificate;
            }
            None => {
                all.retain(|(known, _)| known.is_some());
                all.push((Some(source.clone()), certificate));
            }
        }
        Some(Self::new(all))
    }

    /// Returns the certificate for a client that sends this name. A certificate of the name goes
    /// before one of a wildcard, and before both one whose key the client can use (`can_sign`) and
    /// one that is valid at `now`. Equals are in the order of the configuration. Without any, the
    /// default.
    pub(super) fn choose(
        &self,
        name: Option<&str>,
        can_sign: impl Fn(&CertifiedKey) -> bool,
        now: u64,
    ) -> &Arc<Certificate> {
        let Some(name) = name else { return self.default() };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        // RFC 9525, section 6.3: a wildcard stands for one label.
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let of = |name: &str| self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let wild = wildcard.as_deref().map_or(&[][..], of);
        let candidates: Vec<_> = of(&name).iter().chain(wild).map(|at| &self.all[*at].1).collect();
        let is_good = |certificate: &&Arc<Certificate>| {
            (can_sign(&certificate.certified), certificate.validity.contains(&now))
        };
        match candidates[..] {
            [] => self.default(),
            [only] => only,
            // Of equals, the last of an iterator is the maximum.
            [..] => candidates.into_iter().rev().max_by_key(is_good).unwrap_or(self.default()),
        }
    }
}
