//! The server's HTTP client, for hooks and pulls.
//!
//! HTTP/1.1 on persistent connections. Over HTTP/2, streams pulled from one upstream would share a
//! connection, and a loss in one would block all.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;
use url::{Host, Url};

use crate::Error;
use crate::config::Config;
use crate::disk::small;
use crate::redacted::Redacted;

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("mendcast/", env!("CARGO_PKG_VERSION")));
/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum idle connections per server.
const MAX_IDLE_PER_HOST: usize = 32;
/// Timeout of TCP connection attempts to all addresses of one family.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for an ignored response body.
const BODY_TIMEOUT: Duration = Duration::from_millis(500);

/// Reason why a request failed, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reason why a PEM text has no usable certificate authorities.
#[derive(Debug)]
pub enum PemError {
    /// The text is not PEM.
    Syntax(pem::Error),
    /// A certificate is invalid.
    Certificate(rustls::Error),
    /// The text has no certificate.
    Empty,
}

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => error.fmt(f),
            Self::Certificate(error) => error.fmt(f),
            Self::Empty => f.write_str("no certificate"),
        }
    }
}

impl StdError for PemError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Syntax(error) => Some(error),
            Self::Certificate(error) => Some(error),
            Self::Empty => None,
        }
    }
}

/// Formats the causes of an error. The outermost error only says that something failed.
fn failed(error: &dyn StdError) -> Failure {
    let mut cause = error.source().unwrap_or(error);
    let mut text = cause.to_string();
    while let Some(next) = cause.source() {
        let reason = next.to_string();
        if !text.ends_with(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = next;
    }
    Failure(text)
}

/// Networks that a request may reach. Each includes the previous ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reach {
    /// Public addresses.
    Public,
    /// Private and shared addresses (RFC 1918, RFC 4193, RFC 6598).
    Private,
    /// This machine.
    Loopback,
    /// Link-local addresses, which include cloud metadata services, and multicast.
    Anywhere,
}

impl Reach {
    const ALL: [Self; 4] = [Self::Public, Self::Private, Self::Loopback, Self::Anywhere];

    /// Returns the reach that this address requires.
    pub fn to(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, ..] = v4.octets();
                if v4.is_loopback() || v4.is_unspecified() {
                    Self::Loopback
                } else if v4.is_private() || (a, b & 0xc0) == (100, 64) {
                    Self::Private
                } else if a == 0 || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast() {
                    Self::Anywhere
                } else {
                    Self::Public
                }
            }
            IpAddr::V6(v6) => match v6.segments() {
                // IPv4-translated (RFC 6052), and IPv4-compatible (RFC 4291, section 2.5.5.1).
                [0x64, 0xff9b, 0, 0, 0, 0, high, low]
                | [0, 0, 0, 0, 0, 0, high @ 1..=0xffff, low] => {
                    let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
                    Self::to([a, b, c, d].into())
                }
                _ if v6.is_loopback() || v6.is_unspecified() => Self::Loopback,
                _ if v6.is_unique_local() => Self::Private,
                _ if v6.is_unicast_link_local() || v6.is_multicast() => Self::Anywhere,
                _ => Self::Public,
            },
        }
    }
}

/// Resolves names, and drops addresses beyond the reach.
#[derive(Clone, Copy, Debug)]
struct Resolver(Reach);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let reach = self.0;
        Box::pin(async move {
            let mut all: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let found = all.first().copied();
            all.retain(|address| Reach::to(address.ip()) <= reach);
            match found {
                Some(address) if all.is_empty() => {
                    Err(io::Error::other(out_of_reach(address.ip())))
                }
                _ => Ok(all.into_iter()),
            }
        })
    }
}

fn out_of_reach(address: IpAddr) -> String {
    format!("leads to {address}: an upstream in a wider network may not lead there")
}

type Connector = HttpsConnector<HttpConnector<Resolver>>;
type Pool = legacy::Client<Connector, Full<Bytes>>;
/// A TCP or TLS connection.
pub type Connection = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;

/// A client with one set of certificate authorities. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    /// A pool for each reach, because a request must not reuse a connection beyond its reach.
    pools: Arc<[Pool; 4]>,
    connector: Connector,
}

impl Client {
    /// Returns the client that trusts the system's certificate authorities.
    pub fn system() -> &'static Self {
        static SYSTEM: OnceLock<Client> = OnceLock::new();
        SYSTEM.get_or_init(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                tracing::warn!("the system has no certificate authorities (ca-certificates)");
            }
            Self::trusting(roots)
        })
    }

    /// Creates a client that trusts only the certificates of this PEM text.
    ///
    /// # Errors
    /// One line: no certificate, or an invalid one.
    pub fn of_pem(pem: &[u8]) -> Result<Self, PemError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(PemError::Syntax)?;
            roots.add(certificate).map_err(PemError::Certificate)?;
        }
        if roots.is_empty() { Err(PemError::Empty) } else { Ok(Self::trusting(roots)) }
    }

    fn trusting(roots: RootCertStore) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the ciphers of TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = |reach| {
            let mut tcp = HttpConnector::new_with_resolver(Resolver(reach));
            tcp.enforce_http(false);
            tcp.set_nodelay(true);
            tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
            let https = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
            https.enable_http1().wrap_connector(tcp)
        };
        let pool = |reach| {
            legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
                .build(connector(reach))
        };
        let pools = Arc::new(Reach::ALL.map(pool));
        Self { pools, connector: connector(Reach::Anywhere) }
    }

    /// Sends a request within `reach`, and waits for the response's head. User name and password of
    /// the URL are not sent.
    ///
    /// # Errors
    /// One line: connection, TLS or HTTP failed, or the address is beyond the reach.
    pub async fn send(
        &self,
        reach: Reach,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        // Literal addresses bypass the resolver.
        let literal = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::from(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::from(address)),
            _ => None,
        };
        if let Some(address) = literal.filter(|address| Reach::to(*address) > reach) {
            return Err(Failure(out_of_reach(address)));
        }
        let mut request = Request::new(Full::new(body));
        *request.uri_mut() = uri(url)?;
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        request.headers_mut().insert(USER_AGENT, AGENT);
        let pool = &self.pools[reach as usize];
        match pool.request(request.clone()).await {
            // The server closed an idle connection while the request was in flight.
            Err(e) if is_incomplete(&e) => pool.request(request).await,
            sent => sent,
        }
        .map_err(|e| failed(&e))
    }

    /// Sends a POST of JSON and returns the status, if the head arrives within `limit`. If the
    /// server closes the connection instead of answering, sends it once more.
    ///
    /// The body is ignored. Up to `max` bytes are read within [`BODY_TIMEOUT`], so that the
    /// connection can be reused.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn post_json(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        body: String,
        max: usize,
        limit: Duration,
    ) -> Result<u16, Failure> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(authorization(url));
        let sent = self.send(Reach::Anywhere, Method::POST, url, headers, body.into());
        let answered = timeout(limit, sent).await.unwrap_or_else(|_| Err(no_answer(limit)));
        let response =
            answered.map_err(|Failure(why)| Failure(format!("{}: {why}", Redacted(url))))?;
        let status = response.status().as_u16();
        let _ = timeout(BODY_TIMEOUT, Limited::new(response.into_body(), max).collect()).await;
        Ok(status)
    }

    /// Opens a connection for another protocol.
    ///
    /// # Errors
    /// One line: connection or TLS failed.
    pub async fn connect(&self, tls: bool, host: &str, port: u16) -> Result<Connection, Failure> {
        let scheme = if tls { "https" } else { "http" };
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let uri: Result<Uri, _> = format!("{scheme}://{host}:{port}/").parse();
        let uri = uri.map_err(|e| Failure(e.to_string()))?;
        let mut connector = self.connector.clone();
        let connected = async {
            poll_fn(|context| connector.poll_ready(context)).await?;
            connector.call(uri).await
        };
        connected.await.map(TokioIo::new).map_err(|e| failed(&*e))
    }
}

/// Maximum bytes of a file of certificate authorities.
const MAX_CA_FILE: usize = 4 << 20;

/// The clients of a configuration, by `ca_file`.
#[derive(Debug)]
pub struct Clients(HashMap<PathBuf, Client>);

impl Clients {
    /// Reads the certificate authorities of the rules for pulls and pushes.
    ///
    /// # Errors
    /// One line: a file is unreadable or has no certificate.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let mut clients = HashMap::new();
        let pulls = config.pull.iter().map(|rule| ("pull", rule.ca_file.as_ref()));
        let pushes = config.push.iter().map(|rule| ("push", rule.ca_file.as_ref()));
        for (section, file) in pulls.chain(pushes) {
            let Some(file) = file else { continue };
            let named = |e: &dyn fmt::Display| {
                Error::new(format!("[{section}] ca_file {}: {e}", file.display()))
            };
            let pem = small::read(file, MAX_CA_FILE).map_err(|e| named(&e))?;
            let client = Client::of_pem(&pem).map_err(|e| named(&e))?;
            clients.insert(file.clone(), client);
        }
        Ok(Self(clients))
    }

    /// Returns the client for this file, or the system's client.
    pub fn of(&self, ca_file: Option<&Path>) -> &Client {
        ca_file.and_then(|file| self.0.get(file)).unwrap_or_else(|| Client::system())
    }
}

/// Returns the failure of a request that timed out.
pub fn no_answer(limit: Duration) -> Failure {
    Failure(format!("no answer within {limit:?}"))
}

/// Returns the reach of the server that answered.
pub fn reached(response: &Response<Incoming>) -> Reach {
    let info = response.extensions().get::<HttpInfo>();
    info.map_or(Reach::Public, |info| Reach::to(info.remote_addr().ip()))
}

/// Returns user name and password of a URL as Basic authorization (RFC 7617).
pub fn authorization(url: &Url) -> HeaderMap {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use percent_encoding::percent_decode_str;

    let mut headers = HeaderMap::new();
    if !url.username().is_empty() || url.password().is_some() {
        let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
        pair.push(b':');
        pair.extend(percent_decode_str(url.password().unwrap_or_default()));
        if let Ok(mut value) =
            HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(pair)))
        {
            value.set_sensitive(true);
            headers.insert(hyper::header::AUTHORIZATION, value);
        }
    }
    headers
}

fn is_incomplete(error: &legacy::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(hyper::Error::is_incomplete_message)
}

/// Returns the request URI: the URL without user name, password and fragment.
fn uri(url: &Url) -> Result<Uri, Failure> {
    let mut url = url.clone();
    url.set_fragment(None);
    // These fail only for URLs without a host, which have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.as_str().parse().map_err(|e| Failure(format!("invalid URL: {e}")))
}

#[cfg(test)]
mod tests;
