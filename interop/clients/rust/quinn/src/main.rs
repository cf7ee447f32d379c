//! HTTP/3 client on unmodified quinn and h3: a new connection per round on one endpoint, which keeps TLS tickets (rustls) and
//! address-validation tokens (quinn) between rounds.

use bytes::Buf;
use futures_util::future::{poll_fn, try_join_all};
use h3::client::SendRequest;
use interop_task::{Body, Response, Result, Round, Task, print_report};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, TokioRuntime};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, RootCertStore, SupportedCipherSuite};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use std::sync::Arc;

const QUIC_V1: u32 = 1;
/// Draft 29. The client supports it and the server does not, so the server must answer with Version Negotiation.
const DRAFT_29: u32 = 0xff00_001d;

type Requests = SendRequest<h3_quinn::OpenStreams, bytes::Bytes>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let task = Task::from_args()?;
    let mut rounds = Vec::new();
    let outcome = run(&task, &mut rounds).await;
    print_report(rounds, outcome);
    Ok(())
}

async fn run(task: &Task, rounds: &mut Vec<Round>) -> Result<()> {
    let tls = Arc::new(tls_config(task)?);
    let mut endpoint_config = EndpointConfig::default();
    endpoint_config.supported_versions(vec![QUIC_V1, DRAFT_29]);
    let socket = std::net::UdpSocket::bind(task.local())?;
    let endpoint = Endpoint::new(endpoint_config, None, socket, Arc::new(TokioRuntime))?;
    // Built once, because it holds tickets and tokens.
    let mut v1 = ClientConfig::new(tls.clone());
    v1.version(QUIC_V1);

    for (index, paths) in task.rounds.iter().enumerate() {
        let mut round = Round::default();
        if task.unknown_version {
            let mut draft = ClientConfig::new(tls.clone());
            draft.version(DRAFT_29);
            match endpoint.connect_with(draft, task.remote(), &task.host)?.await {
                Err(ConnectionError::VersionMismatch) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Err("the server accepted draft 29".into()),
            }
        }
        let connecting = endpoint.connect_with(v1.clone(), task.remote(), &task.host)?;
        let (connection, accepted) = if task.early(index) {
            match connecting.into_0rtt() {
                Ok((connection, accepted)) => (connection, Some(accepted)),
                Err(_) => return Err("no ticket that permits 0-RTT".into()),
            }
        } else {
            (connecting.await?, None)
        };
        let (mut driver, requests) =
            h3::client::new(h3_quinn::Connection::new(connection.clone())).await?;
        let driving =
            tokio::spawn(async move { poll_fn(|context| driver.poll_close(context)).await });
        round.responses = fetch_round(task, &connection, &requests, paths).await?;
        round.alpn = Some("h3".to_owned());
        round.early_data = match accepted {
            Some(accepted) => Some(accepted.await),
            None => Some(false),
        };
        tokio::time::sleep(task.linger()).await;
        drop(requests);
        connection.close(0x100u32.into(), b"done");
        driving.abort();
        rounds.push(round);
    }
    endpoint.wait_idle().await;
    Ok(())
}

async fn fetch_round(
    task: &Task,
    connection: &Connection,
    requests: &Requests,
    paths: &[String],
) -> Result<Vec<Response>> {
    let mut responses = Vec::new();
    for (index, batch) in task.batches(paths).into_iter().enumerate() {
        if index > 0 {
            connection.force_key_update();
        }
        let all = batch.iter().map(|path| fetch(task, requests.clone(), path));
        responses.extend(try_join_all(all).await?);
    }
    Ok(responses)
}

async fn fetch(task: &Task, mut requests: Requests, path: &str) -> Result<Response> {
    let uri = format!("https://{}:{}{path}", task.host, task.port);
    let mut stream = requests.send_request(http::Request::get(uri).body(())?).await?;
    stream.finish().await?;
    let head = stream.recv_response().await?;
    let mut body = Body::default();
    while let Some(mut chunk) = stream.recv_data().await? {
        while chunk.has_remaining() {
            let part = chunk.chunk();
            body.push(part);
            let length = part.len();
            chunk.advance(length);
        }
    }
    Ok(body.finish(path, head.status().as_u16()))
}

fn tls_config(task: &Task) -> Result<QuicClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&task.ca)? {
        roots.add(certificate?)?;
    }
    let mut provider: CryptoProvider = ring::default_provider();
    let initial = initial_suite(&provider)?;
    if task.chacha20 {
        provider
            .cipher_suites
            .retain(|suite| suite.suite() == CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.enable_early_data = task.early_data;
    Ok(QuicClientConfig::with_initial(Arc::new(tls), initial)?)
}

/// RFC 9001, section 5.2: Initial packets use AEAD_AES_128_GCM with any offered suites.
fn initial_suite(provider: &CryptoProvider) -> Result<rustls::quic::Suite> {
    provider
        .cipher_suites
        .iter()
        .find_map(|suite| match suite {
            SupportedCipherSuite::Tls13(tls13)
                if suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256 =>
            {
                tls13.quic_suite()
            }
            _ => None,
        })
        .ok_or_else(|| "the provider lacks TLS_AES_128_GCM_SHA256".into())
}
