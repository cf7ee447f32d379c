//! A configuration with the content of its files. Making a plan changes nothing: no file is created
//! or opened for writing, and no address is bound. A check ends here; a server then opens its
//! output files ([`State`](crate::State)).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ::quic::crypto::KeyRing;
use aws_lc_rs::digest::{SHA256, digest};

use crate::Error;
use crate::client::Clients;
use crate::clock::unix_now;
use crate::cohorts::Cohorts;
use crate::config::{Config, Secret};
use crate::disk::small;
use crate::files::Files;
use crate::finding::Finding;
use crate::identity::Identity;
use crate::loops::QuicState;
use crate::passes::Passes;

/// Maximum size of a file that a reload compares, in bytes.
const MAX_COMPARED: usize = 64 << 20;

/// SHA-256 hashes of the configured files, by key.
pub(crate) type Contents = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// Parts of the running configuration that a reload may keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running<'a> {
    pub identity: &'a Arc<Identity>,
    pub quic: &'a QuicState,
    pub contents: &'a Contents,
}

/// A configuration with its parsed files.
#[derive(Debug)]
pub struct Plan {
    pub(crate) config: Config,
    pub(crate) identity: Arc<Identity>,
    pub(crate) tcp_tls: Arc<rustls::ServerConfig>,
    pub(crate) files: Option<Arc<Files>>,
    pub(crate) clients: Clients,
    pub(crate) cohorts: Cohorts,
    pub(crate) passes: Passes,
    pub(crate) tokens: Vec<Secret>,
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
        let mut identity = match (&server.certificate, &server.key) {
            (Some(certificate), Some(key)) => Arc::new(Identity::load(certificate, key)?),
            _ => match running.map(|running| running.identity) {
                Some(identity) if identity.development.is_some() => identity.clone(),
                _ => Arc::new(Identity::development()?),
            },
        };
        if let (Some(running), Some(path)) = (running, &server.certificate)
            && let Some(fault) = identity.fault(unix_now())
            && running.identity.fault(unix_now()).is_none()
        {
            identity = running.identity.clone();
            for key in CERTIFICATE_KEYS {
                match running.contents.get(key) {
                    Some(known) => contents.insert(key, known.clone()),
                    None => contents.remove(key),
                };
            }
            let what = format!("{fault}; the previous certificate remains in use, as it is valid");
            notes.push(Finding::warning(CERTIFICATE_KEYS[0], path.display(), what));
        }
        let read = |what: &str, path: &Path, e: std::io::Error| {
            Error::new(format!("{what} {}: {e}", path.display()))
        };
        let files = match &server.root {
            Some(root) => {
                let memory = config.files.memory.as_usize();
                let files = Files::new(root, &config.files.cache_control, memory);
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
        let quic = QuicState::new(&config, &identity, keys, running.map(|running| running.quic))?;
        let cohorts = Cohorts::new(&config)?;
        let clients = Clients::new(&config)?;
        let tcp_tls = identity.tcp(quic.keys())?;
        let passes = Passes::new(quic.keys());
        let tokens = tokens(&config)?;
        Ok(Self {
            config,
            identity,
            tcp_tls,
            files,
            clients,
            cohorts,
            passes,
            tokens,
            quic,
            contents,
            notes,
        })
    }
}

const CERTIFICATE_KEYS: [&str; 2] = ["[server] certificate", "[server] key"];

/// Returns the hashes of the files of `config`. Unreadable files are left out: their readers report
/// the reason.
fn contents(config: &Config) -> Contents {
    let server = &config.server;
    let singles = [
        (CERTIFICATE_KEYS[0], &server.certificate),
        (CERTIFICATE_KEYS[1], &server.key),
        ("[server] key_file", &server.key_file),
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
