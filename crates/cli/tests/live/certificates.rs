//! Certificates by server name, alike over QUIC and TCP, and their renewal while viewers watch.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::http3::runtime;
use crate::support::viewer::Viewer;
use crate::support::{PATIENCE, assert_is_clip, tls, until};

/// Writes a certificate for these names, and returns it.
fn write(directory: &Path, stem: &str, names: &[&str]) -> Vec<u8> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let params = rcgen::CertificateParams::new(names).expect("names");
    let certificate = params.self_signed(&key).expect("signed");
    for (end, text) in [("pem", certificate.pem()), ("key", key.serialize_pem())] {
        std::fs::write(directory.join(format!("{stem}.{end}")), text).expect("written");
    }
    certificate.der().to_vec()
}

/// The certificate for this server name over QUIC. An address is sent as no name.
pub fn over_quic(address: SocketAddr, name: &str) -> Vec<u8> {
    runtime().block_on(async {
        let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket");
        let tls = QuicClientConfig::try_from(tls::client("h3")).expect("TLS");
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
        let connecting = endpoint.connect(address, name).expect("a name");
        let connection = tokio::time::timeout(PATIENCE, connecting).await.expect("in time");
        let connection = connection.expect("a connection");
        let chain = connection.peer_identity().expect("the server has one");
        let chain = chain.downcast::<Vec<CertificateDer<'static>>>().expect("certificates");
        connection.close(0x100u32.into(), b"");
        chain[0].to_vec()
    })
}

/// The certificate for this server name over TCP.
pub fn over_tcp(address: SocketAddr, name: &str) -> Vec<u8> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut socket = TcpStream::connect(address).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let client = Arc::new(tls::client("http/1.1"));
    let mut client = rustls::ClientConnection::new(client, name).expect("TLS");
    while client.is_handshaking() {
        client.complete_io(&mut socket).expect("a handshake");
    }
    client.peer_certificates().expect("the server has one")[0].to_vec()
}

#[test]
fn certificates_are_chosen_by_name_and_renewed_while_viewers_watch() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let default = write(directory.path(), "default", &["localhost", "127.0.0.1"]);
    let wild = write(directory.path(), "wild", &["*.a.test"]);
    let exact = write(directory.path(), "exact", &["b.a.test"]);
    let item = |stem: &str| {
        format!("[[certificate]]\ncertificate = \"{stem}.pem\"\nkey = \"{stem}.key\"\n")
    };
    let keys = format!(
        "server.certificate = \"default.pem\"\nserver.key = \"default.key\"\n{}{}",
        item("wild"),
        item("exact")
    );
    let edge = Edge::start_in(directory, &keys, None);
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewers =
        [Viewer::h1(edge.address, "/live/demo.flv"), Viewer::h3(edge.address, "/live/demo.flv")];
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(10));
    let expect = |exact: &[u8]| {
        for (name, expected) in [
            ("x.a.test", &wild[..]),
            ("X.A.TEST", &wild),
            ("b.a.test", exact),
            ("B.a.test", exact),
            ("localhost", &default),
            ("unknown.test", &default),
            ("127.0.0.1", &default),
        ] {
            assert!(over_quic(edge.address, name) == expected, "{name} over QUIC");
            assert!(over_tcp(edge.address, name) == expected, "{name} over TCP");
        }
    };
    expect(&exact);
    let renewed = write(edge.directory(), "exact", &["b.a.test"]);
    until("the renewed certificate", || over_tcp(edge.address, "b.a.test") == renewed);
    expect(&renewed);
    edge.says("certificate loaded");
    assert!(edge.metric("mendcast_certificate_events_total{event=\"loaded\"}") > 0.5);
    for name in ["localhost", "*.a.test", "b.a.test"] {
        let metric = format!("mendcast_certificate_expiry_timestamp_seconds{{name=\"{name}\"}}");
        assert!(edge.metric(&metric) > 1e9, "{name}");
    }
    for viewer in &viewers {
        viewer.wait_for_more(10);
        assert_is_clip(&viewer.frames());
    }
}
