//! Certificate chain and private key of the server, from PEM files or generated for development.

mod x509;

use core::fmt;
use core::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::quic::crypto::{KeyRing, Purpose};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::PublicKeyData as _;
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::Error;
use crate::clock::unix_now;
use crate::disk::small;
use crate::entropy::generator;
use x509::Validity;

pub(crate) use x509::Names;

/// Name in development certificates, besides `localhost` and the loopback addresses (`.test` never
/// resolves: RFC 6761, section 6.2).
pub const DEVELOPMENT_NAME: &str = "mendcast.test";

/// Validity of a development certificate: the maximum that browsers accept by hash.
const DEVELOPMENT_VALIDITY: Duration = Duration::from_secs(14 * 86_400);

/// ALPN identifier of an ACME CA that checks the control over a name (RFC 8737, section 6.2).
pub(crate) const ACME_ALPN: &[u8] = b"acme-tls/1";

/// Kinds of files, as errors name them.
const CERTIFICATE: &str = "certificate";
const PRIVATE_KEY: &str = "private key";

/// A certificate chain with the key of its first certificate.
#[derive(Debug)]
pub struct Identity {
    /// The chain in DER, the server's own certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key in DER.
    pub key: PrivateKeyDer<'static>,
    /// SHA-256 of the public key (SubjectPublicKeyInfo) in Base64, for browsers that should accept
    /// it; `None` unless this is a development certificate.
    pub development: Option<String>,
}

impl Identity {
    /// Loads a chain and its key from PEM files.
    ///
    /// # Errors
    /// One line: a file is unreadable or not PEM, or the key does not match the certificate.
    #[cfg(test)]
    pub fn load(chain: &Path, key: &Path) -> Result<Self, Error> {
        Self::parse((chain, &read_chain(chain)?), (key, &read_key(key)?))
    }

    /// Parses the PEM texts of a chain and its key, read from these paths.
    ///
    /// # Errors
    /// One line that names the path: a text is not PEM, or the key does not match the certificate.
    pub(crate) fn parse(
        (chain, chain_pem): (&Path, &[u8]),
        (key, key_pem): (&Path, &[u8]),
    ) -> Result<Self, Error> {
        let failed = |what, path: &Path, e: pem::Error| {
            let why = match e {
                pem::Error::NoItemsFound => "not PEM, or of another kind".into(),
                other => format!("broken PEM: {other}"),
            };
            Error::new(format!("{what} {}: {why}", path.display()))
        };
        let certificates = CertificateDer::pem_slice_iter(chain_pem)
            .collect::<Result<Vec<_>, _>>()
            .and_then(|chain| (!chain.is_empty()).then_some(chain).ok_or(pem::Error::NoItemsFound))
            .map_err(|e| failed(CERTIFICATE, chain, e))?;
        let private =
            PrivateKeyDer::from_pem_slice(key_pem).map_err(|e| failed(PRIVATE_KEY, key, e))?;
        let identity = Self { chain: certificates, key: private, development: None };
        identity.certified(&provider::default_provider()).map_err(|e| {
            let (chain, key) = (chain.display(), key.display());
            Error::new(format!("certificate {chain} with private key {key}: {e}"))
        })?;
        Ok(identity)
    }

    /// Generates a self-signed certificate (ECDSA P-256, 14 days) for [`DEVELOPMENT_NAME`],
    /// `localhost`, 127.0.0.1 and ::1.
    ///
    /// # Errors
    /// The cryptographic library fails.
    pub fn development() -> Result<Self, Error> {
        let failed = |e| Error::new(format!("development certificate: {e}"));
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let names = [DEVELOPMENT_NAME, "localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut params = rcgen::CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name.push(rcgen::DnType::CommonName, "Mendcast development");
        // Valid from an hour ago, for viewers with a slow clock.
        let from = SystemTime::now() - Duration::from_secs(3600);
        params.not_before = from.into();
        params.not_after = (from + DEVELOPMENT_VALIDITY).into();
        let certificate = params.self_signed(&key).map_err(failed)?;
        Ok(Self {
            development: Some(
                BASE64.encode(digest(&SHA256, &key.subject_public_key_info()).as_ref()),
            ),
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        })
    }

    /// Returns the command that opens this server in Chromium over HTTP/3 and accepts its
    /// development certificate; `None` with any other certificate.
    pub fn chromium_command(&self, port: u16) -> Option<String> {
        let origin = format!("{DEVELOPMENT_NAME}:{port}");
        Some(format!("{} https://{origin}/", self.chromium(core::slice::from_ref(&origin))?))
    }

    /// Returns the command that starts Chromium with HTTP/3 for these origins (`HOST:PORT`),
    /// without a URL, and accepts the development certificate; `None` with any other certificate.
    pub fn chromium(&self, origins: &[String]) -> Option<String> {
        let hash = self.development.as_ref()?;
        let origins = origins.join(",");
        // Not `localhost`, which may be ::1 or 127.0.0.1 and is special to browsers.
        Some(format!(
            "chromium --user-data-dir=\"$(mktemp -d)\" \
             --origin-to-force-quic-on={origins} \
             --host-resolver-rules=\"MAP {DEVELOPMENT_NAME} 127.0.0.1\" \
             --ignore-certificate-errors-spki-list={hash}"
        ))
    }

    /// Returns the expiry of the server's own certificate in seconds since 1970, if readable.
    pub fn expires(&self) -> Option<u64> {
        x509::validity(self.chain.first()?).map(|validity| validity.end)
    }

    /// Returns the names of the server's own certificate. The common name is none: clients ignore
    /// it (RFC 9525, section 2).
    pub(crate) fn names(&self) -> Names {
        self.chain.first().map_or_else(Names::default, |own| x509::names(own))
    }

    /// Returns the validity common to all certificates of the chain, both ends included, in seconds
    /// since 1970.
    pub(crate) fn validity(&self) -> RangeInclusive<u64> {
        let all = self.validities().map(|(_, validity)| validity);
        let (start, end) = all.fold((0, u64::MAX), |(start, end), validity| {
            (validity.start.max(start), validity.end.min(end))
        });
        start..=end
    }

    /// Returns why clients reject the chain at `now` (seconds since 1970): a certificate is expired
    /// or not yet valid. `None` if all are valid.
    pub(crate) fn fault(&self, now: u64) -> Option<String> {
        self.validities().find_map(|(name, validity)| {
            if now > validity.end {
                Some(format!("{name} expired on {}; clients reject it", date(validity.end)))
            } else if now < validity.start {
                let start = date(validity.start);
                Some(format!("{name} is not valid before {start}; clients reject it"))
            } else {
                None
            }
        })
    }

    /// Returns the certificate of the chain that expires first, and its expiry in seconds since
    /// 1970.
    pub(crate) fn first_to_expire(&self) -> Option<(String, u64)> {
        let ends = self.validities().map(|(name, validity)| (name, validity.end));
        ends.min_by_key(|(_, end)| *end)
    }

    fn validities(&self) -> impl Iterator<Item = (String, Validity)> + '_ {
        let count = self.chain.len();
        self.chain.iter().zip(1..).filter_map(move |(certificate, place)| {
            let name = match count {
                1 => "the certificate".to_owned(),
                _ => format!("certificate {place} of {count} in the chain"),
            };
            Some((name, x509::validity(certificate)?))
        })
    }

    /// Returns chain and key as TLS uses them.
    ///
    /// # Errors
    /// TLS does not support the kind of certificate or key, or the key is another certificate's.
    pub(crate) fn certified(
        &self,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, rustls::Error> {
        CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), provider)
    }

    /// Returns the configuration of a server over TCP that has this certificate alone.
    ///
    /// # Errors
    /// TLS does not support the kind of certificate or key.
    #[cfg(test)]
    pub fn tcp(&self, keys: Arc<KeyRing>) -> Result<Arc<rustls::ServerConfig>, Error> {
        let failed = |e: rustls::Error| Error::new(format!("TLS: {e}"));
        let certified = self.certified(&provider::default_provider()).map_err(failed)?;
        tcp(Arc::new(rustls::sign::SingleCertAndKey::from(certified)), keys)
    }
}

/// Reads a file with a certificate chain.
///
/// # Errors
/// One line: it is unreadable or too large.
pub(crate) fn read_chain(path: &Path) -> Result<Vec<u8>, Error> {
    read(CERTIFICATE, path)
}

/// Reads a file with a private key.
///
/// # Errors
/// One line: it is unreadable or too large.
pub(crate) fn read_key(path: &Path) -> Result<Vec<u8>, Error> {
    read(PRIVATE_KEY, path)
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, Error> {
    let read = small::read(path, small::MAX_SECRET);
    read.map_err(|e| Error::new(format!("{what} {}: {e}", path.display())))
}

/// Returns the TLS 1.2 and 1.3 configuration for HTTP/1.1 and HTTP/2, with certificates of
/// `resolver` and session tickets sealed by `keys`. Connections may also be of an ACME CA.
///
/// # Errors
/// The TLS library lacks these versions.
pub(crate) fn tcp(
    resolver: Arc<dyn ResolvesServerCert>,
    keys: Arc<KeyRing>,
) -> Result<Arc<rustls::ServerConfig>, Error> {
    let provider = Arc::new(provider::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::new(format!("TLS: {e}")))?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    // Without a challenge, `resolver` has no certificate for the last.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), ACME_ALPN.to_vec()];
    config.ticketer = Arc::new(Tickets(keys));
    Ok(Arc::new(config))
}

/// Formats seconds since 1970 as an HTTP date.
pub(crate) fn date(seconds: u64) -> String {
    // HTTP dates have years of four digits.
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799));
    httpdate::fmt_http_date(time)
}

/// Lifetime of session tickets over TCP and QUIC, in seconds.
pub(crate) const TICKET_LIFETIME: u32 = 86_400;
/// Context of TCP tickets, which separates them from QUIC tickets sealed by the same keys.
const TCP_TICKET_CONTEXT: &[u8] = b"tcp";

/// Session tickets (RFC 8446, section 4.6.1; RFC 5077) sealed by the key file, so that they are
/// valid after a reload or restart, and at other nodes with the same keys.
struct Tickets(Arc<KeyRing>);

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

impl Tickets {
    fn seal(&self, session: &[u8], now: u64) -> Vec<u8> {
        let content = [&now.to_be_bytes(), session].concat();
        self.0.seal(Purpose::Ticket, now, &content, TCP_TICKET_CONTEXT, &mut generator())
    }

    fn open(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let content = self.0.open(Purpose::Ticket, ticket, TCP_TICKET_CONTEXT)?.plaintext;
        let (issued, session) = content.split_first_chunk()?;
        let age = now.saturating_sub(u64::from_be_bytes(*issued));
        (age <= TICKET_LIFETIME.into()).then(|| session.to_vec())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_LIFETIME
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        Some(self.seal(plain, unix_now()))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, unix_now())
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    fn ring(keys: &[(u64, u8)]) -> Arc<KeyRing> {
        let keys: Vec<_> = keys.iter().map(|&(created, byte)| (created, [byte; 32])).collect();
        Arc::new(KeyRing::new(&[1; 32], &keys))
    }

    #[test]
    fn a_ticket_is_valid_for_a_day_wherever_its_key_is_known() {
        let (old, both) = (Tickets(ring(&[(0, 1)])), Tickets(ring(&[(0, 1), (500, 2)])));
        let ticket = old.seal(b"session", 100);
        let day = u64::from(TICKET_LIFETIME);
        for (now, is_valid) in [(100, true), (100 + day, true), (101 + day, false)] {
            assert_eq!(both.open(&ticket, now).is_some(), is_valid, "at {now}");
        }
        assert_eq!(both.open(&ticket, 100).as_deref(), Some(&b"session"[..]));
        let ticket = both.seal(b"session", 500);
        assert_eq!(old.open(&ticket, 500), None, "unknown key");
        assert_eq!(both.open(&ticket[..ticket.len() - 1], 500), None);
        assert_ne!(ticket, both.seal(b"session", 500));
        // A QUIC ticket under the same key is invalid over TCP.
        let mut rng = ChaCha12Rng::from_seed([7; 32]);
        let foreign = both.0.seal(Purpose::Ticket, 500, &[0; 100], &[], &mut rng);
        assert_eq!(both.open(&foreign, 500), None);
    }

    /// Connects in memory. Returns whether the session was resumed.
    fn connect(server: &Arc<rustls::ServerConfig>, client: &Arc<rustls::ClientConfig>) -> bool {
        use std::io::{Read as _, Write as _};
        let mut server = rustls::ServerConnection::new(server.clone()).expect("a server");
        let name = rustls::pki_types::ServerName::try_from("localhost").expect("a name");
        let mut client = rustls::ClientConnection::new(client.clone(), name).expect("a client");
        for _ in 0..10 {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).expect("memory");
            }
            let mut rest = &wire[..];
            while !rest.is_empty() {
                server.read_tls(&mut rest).expect("memory");
                server.process_new_packets().expect("no error");
            }
            if !server.is_handshaking() && !server.wants_write() {
                let _ = server.writer().write(b"x");
            }
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).expect("memory");
            }
            let mut rest = &wire[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest).expect("memory");
                client.process_new_packets().expect("no error");
            }
            let _ = client.reader().read(&mut [0; 100]);
        }
        assert!(!server.is_handshaking() && !client.is_handshaking());
        client.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    #[test]
    fn sessions_resume_only_at_servers_with_the_same_keys() {
        let identity = Identity::development().expect("made");
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let client = || {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(identity.chain[0].clone()).expect("a certificate");
                let provider = Arc::new(provider::default_provider());
                let client = rustls::ClientConfig::builder_with_provider(provider)
                    .with_protocol_versions(&[version])
                    .expect("a version")
                    .with_root_certificates(roots)
                    .with_no_client_auth();
                Arc::new(client)
            };
            let server = |keys: &[(u64, u8)]| identity.tcp(ring(keys)).expect("usable");
            for (other, resumes) in
                [(&[(0, 1)][..], true), (&[(0, 1), (500, 2)][..], true), (&[(0, 2)][..], false)]
            {
                let client = client();
                assert!(!connect(&server(&[(0, 1)]), &client), "the first time");
                assert_eq!(connect(&server(other), &client), resumes, "{version:?}, {other:?}");
            }
        }
    }

    fn write_file(dir: &Path, name: &str, content: &str) -> std::path::PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, content).expect("write_file");
        path
    }

    #[test]
    fn errors_of_certificates_and_keys_name_the_file_in_one_line() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let key = rcgen::KeyPair::generate().expect("generated");
        let params = rcgen::CertificateParams::new(["a.test".to_owned()]).expect("valid");
        let pem = params.self_signed(&key).expect("signed").pem();
        let other = rcgen::KeyPair::generate().expect("generated");
        let chain = write_file(dir.path(), "chain.pem", &pem);
        let good = write_file(dir.path(), "key.pem", &key.serialize_pem());
        let wrong = write_file(dir.path(), "wrong.pem", &other.serialize_pem());
        let text = write_file(dir.path(), "text", "hello");
        let cut = write_file(dir.path(), "cut.pem", &pem[..pem.len() / 2]);
        let missing = dir.path().join("missing");

        let identity = Identity::load(&chain, &good).expect("a matching key");
        assert_eq!((identity.chain.len(), identity.development.is_none()), (1, true));
        assert!(identity.chromium_command(1).is_none());
        let cases = [
            (&missing, &good, "certificate", "missing: No such file"),
            (&text, &good, "certificate", "text: not PEM"),
            (&cut, &good, "certificate", "cut.pem: broken PEM"),
            (&good, &good, "certificate", "key.pem: not PEM, or of another kind"),
            (&chain, &missing, "private key", "missing: No such file"),
            (&chain, &chain, "private key", "chain.pem: not PEM, or of another kind"),
            (&chain, &wrong, "certificate", "wrong.pem: keys may not be consistent: KeyMismatch"),
        ];
        for (chain, key, start, part) in cases {
            let error = Identity::load(chain, key).expect_err("wrong").to_string();
            assert!(error.starts_with(start) && error.contains(part), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn the_chromium_command_has_the_hash_of_the_development_certificate() {
        let identity = Identity::development().expect("made");
        identity.tcp(ring(&[(0, 1)])).expect("usable");
        let hash = identity.development.clone().expect("a hash");
        assert_eq!(BASE64.decode(&hash).expect("Base64").len(), 32);
        let command = identity.chromium_command(4433).expect("a command");
        assert!(command.contains(&format!("spki-list={hash} ")), "{command}");
        assert!(command.contains("--origin-to-force-quic-on=mendcast.test:4433 "), "{command}");
        assert!(command.ends_with(" https://mendcast.test:4433/"), "{command}");
        let two = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        let command = identity.chromium(&two).expect("a command");
        assert!(command.contains("-quic-on=127.0.0.1:1,127.0.0.1:2 "), "{command}");
    }
}
