//! The testbed's certificate and clocks. Both are fixed, so handshakes have the same size in every
//! run. Ed25519, because its signatures have a fixed length.

use std::sync::Arc;
use std::time::Duration;

use quic::crypto::{TimeProvider, UnixTime};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// Name in the certificate.
pub(crate) const SERVER_NAME: &str = "server.lab";
/// Unix time at the start of every run, in seconds.
pub(crate) const UNIX_ORIGIN: u64 = 1_800_000_000;
/// Prefix of an Ed25519 key in PKCS #8 (RFC 8410, section 7). 32 bytes of seed follow.
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// A clock that stays at [`UNIX_ORIGIN`].
#[derive(Debug)]
struct Fixed;

impl TimeProvider for Fixed {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(UNIX_ORIGIN)))
    }
}

/// Returns the wall clock of both ends.
pub(crate) fn wall_clock() -> Arc<dyn TimeProvider> {
    Arc::new(Fixed)
}

/// Returns the certificate and the private key (PKCS #8), both DER.
pub(crate) fn certificate() -> (CertificateDer<'static>, Vec<u8>) {
    let mut key = PKCS8_ED25519.to_vec();
    key.extend([0x4d; 32]);
    let pair = rcgen::KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.clone()))
        .expect("the key is well formed");
    let mut params = rcgen::CertificateParams::new(vec![SERVER_NAME.to_owned()])
        .expect("the name is a valid one");
    params.serial_number = Some(rcgen::SerialNumber::from(1));
    let certificate = params.self_signed(&pair).expect("the key can sign");
    (certificate.der().clone(), key)
}
