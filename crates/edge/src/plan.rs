//! A configuration with the content of its files. Making a plan changes nothing: no file is created
//! or opened for writing, and no address is bound. A check ends here; a server then opens its
//! output files ([`State`](crate::State)).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ::quic::crypto::KeyRing;
use aws_lc_rs::digest::{SHA256, digest};

use crate::Error;
use crate::certificates::{CertificateSet, Certificates};
use crate::client::Clients;
use crate::clock::unix_now;
use crate::cohorts::Cohorts;
use crate::config::{Config, Secret};
use crate::disk::small;
use crate::files::Files;
use crate::finding::Finding;
use crate::identity;
use crate::loops::QuicState;
use crate::passes::Passes;
use crate::tokens::KeySets;

/// Maximum size of a file that a reload compares, in bytes.
const MAX_COMPARED: usize = 64 << 20;

/// SHA-256 hashes of the configured files, by key.
pub(crate) type Contents = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// Parts of the running configuration that a reload may keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running<'a> {
    pub certificates: &'a Arc<Certificates>,
    pub quic: &'a QuicState,
    pub key_sets: &'a KeySets,
}

/// A configuration with its parsed files.
#[derive(Debug)]
pub struct Plan {
    pub(crate) config: Config,
    /// Store of the certificates in force. A reload keeps it.
    pub(crate) store: Arc<Certificates>,
    /// The certificates to put in force.
    pub(crate) certificates: Arc<CertificateSet>,
    pub(crate) tcp_tls: Arc<rustls::ServerConfig>,
    pub(crate) files: Option<Arc<Files>>,
    pub(crate) clients: Clients,
    pub(crate) cohorts: Cohorts,
    pub(crate) passes: Passes,
    pub(crate) tokens: Vec<Secret>,
    pub(crate) key_sets: Arc<KeySets>,
    /// QUIC state without qlog.
    pub(crate) quic: QuicState,
    pub(crate) contents: Contents,
    /// Findings of the reload.
    pub(crate) notes: Vec<Finding>,
}

impl Plan {
    /// Reads the files of `config`.
    ///
    /// # Errors
    /// If a file or directory cannot be read or is malformed. One line.
    pub fn new(config: Config) -> Result<Self, Error> {
        Self::replacing(config, None)
    }

    /// Reads the files of `config`, which replaces the `running` one. If `config` has no
    /// certificate, a development certificate is kept, because browsers know its hash. A valid
    /// certificate is kept if the new one is not valid.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(crate) fn replacing(config: Config, running: Option<Running<'_>>) -> Result<Self, Error> {
        let server = &config.server;
        let mut contents = contents(&config);
        let mut notes = Vec::new();
        let in_force = running.map(|running| running.certificates.current());
        let certificates =
            CertificateSet::load(&config, in_force.as_deref(), unix_now(), &mut notes)?;
        for (key, hash) in certificates.contents() {
            contents.entry(key).or_default().push(hash);
        }
        let store = match running {
            Some(running) => running.certificates.clone(),
            None => Arc::new(Certificates::new(certificates.clone())),
        };
        let read = |what: &str, path: &Path, e: std::io::Error| {
            Error::new(format!("{what} {}: {e}", path.display()))
        };
        let files = match &server.root {
            Some(root) => {
                let memory = config.files.memory.as_usize();
                let files = Files::new(root, &config.files.cache_control, memory, &config.host);
                Some(Arc::new(files.map_err(|e| read("root", root, e))?))
            }
            None => None,
        };
        let keys = match &server.key_file {
            Some(path) => {
                let text = small::text(path).map_err(|e| read("key file", path, e))?;
                let name = path.display();
                let ring = KeyRing::parse(&text);
                Some(Arc::new(ring.map_err(|e| Error::new(format!("key file {name}: {e}")))?))
            }
            None => None,
        };
        let quic = QuicState::new(&config, &store, keys, running.map(|running| running.quic))?;
        let cohorts = Cohorts::new(&config)?;
        let clients = Clients::new(&config)?;
        let tcp_tls = identity::tcp(store.clone(), quic.keys())?;
        let passes = Passes::new(quic.keys());
        let tokens = tokens(&config)?;
        let key_sets = KeySets::load(&config, running.map(|running| running.key_sets))?;
        Ok(Self {
            config,
            store,
            certificates: Arc::new(certificates),
            tcp_tls,
            files,
            clients,
            cohorts,
            passes,
            tokens,
            key_sets: Arc::new(key_sets),
            quic,
            contents,
            notes,
        })
    }
}

/// Returns the hashes of the files of `config`, without certificates. Unreadable files are left
/// out: their readers report the reason.
fn contents(config: &Config) -> Contents {
    let singles = [
        ("[server] key_file", &config.server.key_file),
        ("[admin] token_file", &config.admin.token_file),
        ("[recovery] dqn", &config.recovery.dqn),
    ];
    let pulls = config.pull.iter().map(|rule| ("[[pull]] ca_file", &rule.ca_file));
    let pushes = config.push.iter().map(|rule| ("[[push]] ca_file", &rule.ca_file));
    let mut contents = Contents::new();
    for (key, path) in singles.into_iter().chain(pulls).chain(pushes) {
        let content = path.as_ref().and_then(|path| small::read(path, MAX_COMPARED).ok());
        if let Some(content) = content {
            let hash = digest(&SHA256, &content).as_ref().to_vec();
            contents.entry(key).or_default().push(hash);
        }
    }
    contents
}

/// Returns the tokens of the control API.
fn tokens(config: &Config) -> Result<Vec<Secret>, Error> {
    let admin = &config.admin;
    let mut tokens: Vec<Secret> = admin.token.iter().cloned().collect();
    if let Some(path) = &admin.token_file {
        let name = path.display();
        let text = small::text(path).map_err(|e| Error::new(format!("token file {name}: {e}")))?;
        let token = Secret::new(text.trim_end());
        let expected =
            "expected one line of 16 to 512 letters, digits and punctuation marks without spaces";
        tokens.push(token.ok_or_else(|| Error::new(format!("token file {name}: {expected}")))?);
    }
    Ok(tokens)
}
