//! The HTTP client of the server itself, for hooks and for pulling from upstreams.
//!
//! HTTP/1.1 on connections that are kept. Not HTTP/2: streams that are pulled from one upstream
//! would share one connection, so that a loss in one would hold all up.

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
use rustls::pki_types::pem::PemObject as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;
use url::{Host, Url};

use crate::Error;
use crate::config::Config;
use crate::redacted::Redacted;

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("mendcast/", env!("CARGO_PKG_VERSION")));
/// How long a connection without a request is kept.
const KEPT: Duration = Duration::from_secs(30);
/// Connections without a request that are kept to one server.
const MAX_KEPT: usize = 32;
/// Longest wait for TCP connections to all addresses of one family, together.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest wait for the rest of an answer whose content does not matter.
const READING: Duration = Duration::from_millis(500);

/// Why a request failed: one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error with its causes: what stands outermost says only that something failed.
fn failed(error: &dyn StdError) -> Failure {
    let mut cause = error.source().unwrap_or(error);
    let mut text = cause.to_string();
    while let Some(next) = cause.source() {
        let words = next.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        cause = next;
    }
    Failure(text)
}

/// How far into the networks around this machine a request may lead; each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reach {
    /// Addresses of the internet.
    Public,
    /// Private and shared ones (RFC 1918, RFC 4193, RFC 6598).
    Private,
    /// This machine.
    Loopback,
    /// All others: link-local ones, where clouds keep their secrets, and groups.
    Anywhere,
}

impl Reach {
    const ALL: [Self; 4] = [Self::Public, Self::Private, Self::Loopback, Self::Anywhere];

    /// What it takes to lead to this address.
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
                // Translated (RFC 6052), and compatible with IPv4 (RFC 4291, section 2.5.5.1).
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

/// Resolves names, and leaves out addresses that are out of reach.
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
    format!("leads to {address}, where an upstream from outside may not lead")
}

type Connector = HttpsConnector<HttpConnector<Resolver>>;
type Pool = legacy::Client<Connector, Full<Bytes>>;
/// A TCP connection, with TLS or without.
pub type Connection = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;

/// Requests to servers that one set of certificate authorities vouches for. Clones share their
/// connections.
#[derive(Clone, Debug)]
pub struct Client {
    /// One for each reach: a connection that one request may use is not for all.
    pools: Arc<[Pool; 4]>,
    connector: Connector,
}

impl Client {
    /// Trusts whom the system trusts.
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

    /// Trusts the certificates of this PEM text, and nobody else.
    ///
    /// # Errors
    /// One line: there is none, or one that cannot be read.
    pub fn of_pem(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let added = certificate.map(|certificate| roots.add(certificate));
            added.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        }
        if roots.is_empty() {
            Err("no certificate in it".into())
        } else {
            Ok(Self::trusting(roots))
        }
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
            tcp.set_connect_timeout(Some(CONNECT));
            let https = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
            https.enable_http1().wrap_connector(tcp)
        };
        let pool = |reach| {
            legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(KEPT)
                .pool_max_idle_per_host(MAX_KEPT)
                .build(connector(reach))
        };
        let pools = Arc::new(Reach::ALL.map(pool));
        Self { pools, connector: connector(Reach::Anywhere) }
    }

    /// Sends a request no further than `reach`, and waits for the response's head. User name and
    /// password of the URL are left out.
    ///
    /// # Errors
    /// One line: no connection, no TLS, no HTTP, or out of reach.
    pub async fn send(
        &self,
        reach: Reach,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        // Addresses do not get to see the resolver.
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
            // The server closed a connection that was kept while the request was on its way.
            Err(e) if is_incomplete(&e) => pool.request(request).await,
            sent => sent,
        }
        .map_err(|e| failed(&e))
    }

    /// Sends a POST of JSON and returns the status, if its head comes within `limit`. A server that
    /// closes its connection instead of answering is asked once more.
    ///
    /// The body is not looked at: it is read in [`READING`] up to `max` bytes, so that the connection can be
    /// kept, and whatever is wrong with it changes nothing.
    ///
    /// # Errors
    /// One line, as [`Client::send`].
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
        let _ = timeout(READING, Limited::new(response.into_body(), max).collect()).await;
        Ok(status)
    }

    /// A connection to this server, for another protocol.
    ///
    /// # Errors
    /// One line: no connection or no TLS.
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

/// The clients that a configuration asks for, by what they trust.
#[derive(Debug)]
pub struct Clients(HashMap<PathBuf, Client>);

impl Clients {
    /// Reads the certificate authorities that pulls name.
    ///
    /// # Errors
    /// One line: a file that cannot be read or has none.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let mut clients = HashMap::new();
        for file in config.pull.iter().filter_map(|rule| rule.ca_file.as_ref()) {
            let client = std::fs::read(file).map_err(|e| e.to_string());
            let client = client
                .and_then(|pem| Client::of_pem(&pem))
                .map_err(|e| Error::new(format!("[pull] ca_file {}: {e}", file.display())));
            clients.insert(file.clone(), client?);
        }
        Ok(Self(clients))
    }

    /// The one that trusts this file's authorities, else those of the system.
    pub fn of(&self, ca_file: Option<&Path>) -> &Client {
        ca_file.and_then(|file| self.0.get(file)).unwrap_or_else(|| Client::system())
    }
}

/// `limit` is over.
pub fn no_answer(limit: Duration) -> Failure {
    Failure(format!("no answer within {limit:?}"))
}

/// What it took to reach the server that answered.
pub fn reached(response: &Response<Incoming>) -> Reach {
    let info = response.extensions().get::<HttpInfo>();
    info.map_or(Reach::Public, |info| Reach::to(info.remote_addr().ip()))
}

/// User name and password of a URL as Basic authorization (RFC 7617).
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

/// A URL as requests have it: without user name, password and fragment.
fn uri(url: &Url) -> Result<Uri, Failure> {
    let mut url = url.clone();
    url.set_fragment(None);
    // They fail for URLs without a host, which have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.as_str().parse().map_err(|e| Failure(format!("no URL for a request: {e}")))
}

#[cfg(test)]
mod tests;
