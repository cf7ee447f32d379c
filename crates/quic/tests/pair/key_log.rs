//! The TLS key log: a capture can be decrypted with the server's lines alone.

use crate::common::{Pair, Setup, content, server};
use mendcast_quic::crypto::KeyLog;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Secrets by label and client random.
type Secrets = BTreeMap<(String, Vec<u8>), Vec<u8>>;

#[derive(Debug, Default)]
struct Collected(Mutex<Secrets>);

impl KeyLog for Collected {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let key = (label.to_owned(), client_random.to_vec());
        self.0.lock().expect("one thread").insert(key, secret.to_vec());
    }
}

#[test]
fn the_key_log_has_the_secrets_of_both_sides_and_they_are_the_clients() {
    let [of_server, of_client] = [(); 2].map(|()| Arc::new(Collected::default()));
    let mut setup = Setup::new(7);
    Arc::make_mut(&mut setup.server.tls).log_keys(of_server.clone());
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut tls = server::client_tls(provider, b"test");
    tls.key_log = of_client.clone();
    let tls = quinn_proto::crypto::rustls::QuicClientConfig::try_from(tls).expect("a suite");
    setup.client = quinn_proto::ClientConfig::new(Arc::new(tls));
    let mut pair = Pair::new(&setup);
    pair.answer = content(1_000);
    pair.connect();
    assert_eq!(pair.download(Duration::from_secs(10)), pair.answer);

    let [of_server, of_client] =
        [of_server, of_client].map(|log| log.0.lock().expect("one thread").clone());
    let labels: Vec<&str> = of_server.keys().map(|(label, _)| label.as_str()).collect();
    for label in [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    ] {
        assert!(labels.contains(&label), "{label} in {labels:?}");
    }
    assert_eq!(of_server, of_client);
    assert!(of_server.values().all(|secret| secret.len() >= 32));
}
