//! The HTTP client of the server itself: for hooks and for pulling from upstreams. HTTP/1.1, over TLS
//! where the URL says so, one connection a request.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Redirections that are followed.
const MAX_REDIRECTS: usize = 4;

/// Why a request failed: one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn failed(what: &str, e: impl fmt::Display) -> Failure {
    Failure(format!("{what}: {e}"))
}

/// Where a URL points.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl Target {
    /// Reads an `http` or `https` URL.
    ///
    /// # Errors
    /// One line: it is none.
    pub fn parse(url: &str) -> Result<Self, Failure> {
        let uri: Uri = url.parse().map_err(|e| failed(url, e))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(failed(url, "expected http:// or https://")),
        };
        let host = uri.host().ok_or_else(|| failed(url, "has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { tls, host, port, path })
    }

    fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Where a Location header (RFC 9110, section 10.2.2) points from here.
    fn follow(&self, location: &str) -> Result<Self, Failure> {
        if location.contains("://") {
            return Self::parse(location);
        }
        let path = match location.strip_prefix('/') {
            Some(_) => location.to_owned(),
            None => {
                let path = self.path.split('?').next().unwrap_or("/");
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{location}")
            }
        };
        Ok(Self { path, ..self.clone() })
    }
}

/// A GET, redirections followed; `range` as in a Range header. The whole takes at most `limit` until
/// the response's head; the body is the caller's.
///
/// # Errors
/// One line: no connection, no TLS, no HTTP, or too many redirections.
pub async fn get(
    url: &str,
    range: Option<&str>,
    limit: Duration,
) -> Result<Response<Incoming>, Failure> {
    let mut target = Target::parse(url)?;
    let follow = async {
        for _ in 0..=MAX_REDIRECTS {
            let mut request = Request::builder().method(Method::GET);
            if let Some(range) = range {
                request = request.header("range", range);
            }
            let request = request.body(Full::default()).map_err(|e| failed(url, e))?;
            let response = send(&target, request, limit).await?;
            let location = response.headers().get("location").and_then(|value| value.to_str().ok());
            match location {
                Some(location) if response.status().is_redirection() => {
                    target = target.follow(location)?;
                }
                _ => return Ok(response),
            }
        }
        Err(failed(url, "too many redirections"))
    };
    timeout(limit, follow).await.map_err(|_| failed(url, format!("no answer within {limit:?}")))?
}

/// A POST of JSON. Returns the status, and at most `max` bytes of the body.
///
/// # Errors
/// One line, as [`get`]; also when the body is longer.
pub async fn post_json(
    url: &str,
    headers: &[(&'static str, String)],
    body: String,
    max: usize,
    limit: Duration,
) -> Result<(u16, Bytes), Failure> {
    let target = Target::parse(url)?;
    let mut request =
        Request::builder().method(Method::POST).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::from(body)).map_err(|e| failed(url, e))?;
    timeout(limit, async {
        let response = send(&target, request, limit).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), max).collect().await;
        Ok((status, body.map_err(|e| failed(url, e))?.to_bytes()))
    })
    .await
    .map_err(|_| failed(url, format!("no answer within {limit:?}")))?
}

async fn send(
    target: &Target,
    mut request: Request<Full<Bytes>>,
    limit: Duration,
) -> Result<Response<Incoming>, Failure> {
    let name = target.authority();
    *request.uri_mut() = target.path.parse().map_err(|e| failed(&name, e))?;
    let headers = request.headers_mut();
    headers.insert("host", name.parse().map_err(|e| failed(&name, e))?);
    const AGENT: &str = concat!("mendcast/", env!("CARGO_PKG_VERSION"));
    headers.insert("user-agent", const { hyper::header::HeaderValue::from_static(AGENT) });
    let answer = async {
        let tcp = TcpStream::connect((target.host.as_str(), target.port)).await;
        let tcp = tcp.map_err(|e| failed(&name, e))?;
        let _ = tcp.set_nodelay(true);
        if target.tls {
            let server = ServerName::try_from(target.host.clone()).map_err(|e| failed(&name, e))?;
            let tls = TlsConnector::from(tls_config()?).connect(server, tcp).await;
            exchange(tls.map_err(|e| failed(&name, e))?, request).await
        } else {
            exchange(tcp, request).await
        }
        .map_err(|e| failed(&name, e))
    };
    timeout(limit, answer)
        .await
        .map_err(|_| failed(&name, format!("no answer within {limit:?}")))?
}

async fn exchange(
    io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    // It ends with the response's body, or when that is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await
}

/// Trusts whom the system trusts.
fn tls_config() -> Result<Arc<rustls::ClientConfig>, Failure> {
    static CONFIG: OnceLock<Arc<rustls::ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(Failure("the system has no certificate authorities (ca-certificates)".into()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed("TLS", e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        Target::parse(url).expect("a URL")
    }

    #[test]
    fn urls_are_read() {
        let plain = target("http://origin.test/live/a.flv?x=1");
        assert_eq!((plain.tls, plain.port, &*plain.path), (false, 80, "/live/a.flv?x=1"));
        assert_eq!(plain.authority(), "origin.test");
        let other = target("https://[::1]:8443");
        assert_eq!((other.tls, &*other.host, &*other.path), (true, "::1", "/"));
        assert_eq!(other.authority(), "[::1]:8443");
        for url in ["", "live/a", "rtmp://a/b/c", "http://"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn redirections_are_followed_from_where_they_are_met() {
        let from = target("http://a.test:81/x/y.m3u8?q=1");
        assert_eq!(from.follow("https://b.test/z").expect("a URL"), target("https://b.test/z"));
        assert_eq!(from.follow("/z?w").expect("a URL"), target("http://a.test:81/z?w"));
        assert_eq!(from.follow("z").expect("a URL"), target("http://a.test:81/x/z"));
    }
}
