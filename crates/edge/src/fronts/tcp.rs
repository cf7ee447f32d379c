//! HTTP/1.1 (RFC 9112) and HTTP/2 (RFC 9113) over TLS on TCP. Advertises HTTP/3 through `Alt-Svc`
//! (RFC 7838, section 3; RFC 9114, section 3.1).

mod activity;
mod body;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ALT_SVC, HOST, HeaderName, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::server::TlsStream;

use super::handshakes::Turns;
use super::{accept, proxy};
use crate::bans::Refused;
use crate::config::any_contains;
use crate::http::{Answer, RequestHead, Response, max_body};
use crate::identity::ACME_ALPN;
use crate::invitation::alt_svc;
use crate::io::{MeasuredStream, TcpPath};
use crate::limits::{Fault, Permit, Place, ProcessLimits};
use crate::routes::respond;
use crate::state::{Shared, State};
use crate::viewer::Protocol;
use activity::{Activity, Open};
use body::ResponseBody;

/// Maximum header bytes per request, as in HTTP/3.
const MAX_HEADERS: u32 = 16 * 1024;
/// Maximum bytes of a response buffered in memory per stream.
const MAX_SEND_BUFFER: usize = 128 * 1024;
/// Maximum concurrent requests per HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// Timeout for the answer to an HTTP/2 PING.
const PONG_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout for a graceful close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Serves `listener` until the end of the drain.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let port = listener.local_addr().map_or(0, |address| address.port());
    let turns = Arc::new(Turns::new());
    let admit = |stream, peer| {
        let connection = TcpConnection::admit(&shared, stream, peer, port)?;
        Some(connection.run(shared.clone(), turns.clone()))
    };
    accept::serve("TCP", listener, &shared, admit).await;
}

/// An admitted connection.
struct TcpConnection {
    state: Arc<State>,
    stream: TcpStream,
    peer: SocketAddr,
    /// The peer is a load balancer, which sends the client's address.
    is_proxied: bool,
    port: u16,
    place: Permit,
}

impl TcpConnection {
    /// Admits a connection within the limits. Otherwise it is reset without a message, which would
    /// cost a handshake.
    fn admit(shared: &Shared, stream: TcpStream, peer: SocketAddr, port: u16) -> Option<Self> {
        let state = shared.state();
        let balancers = state.config.tcp.proxy_protocol.as_ref();
        let is_proxied = any_contains(balancers, peer.ip());
        let address = (!is_proxied).then(|| peer.ip());
        if address.is_some_and(|address| state.bans.refuse(Refused::Tcp, address)) {
            crate::io::reset(&stream);
            return None;
        }
        match shared.limits().enter(Place::Tcp, &state.config, address) {
            Ok(place) => Some(Self { state, stream, peer, is_proxied, port, place }),
            Err(_) => {
                crate::io::reset(&stream);
                None
            }
        }
    }

    /// Serves the connection, from the PROXY header or TLS handshake to its end.
    async fn run(self, shared: Arc<Shared>, turns: Arc<Turns>) {
        let Self { state, mut stream, peer, is_proxied, port, place } = self;
        crate::io::prepare(&stream, state.config.tcp.idle_timeout);
        let limits = shared.limits();
        let mut remote = peer;
        if is_proxied {
            let client = tokio::select! {
                client = proxy::client(&mut stream, peer) => client,
                () = place.evicted() => return crate::io::reset(&stream),
            };
            match client {
                Ok(client) => remote = client,
                Err(e) => {
                    limits.count(Fault::ProxyHeader);
                    tracing::debug!("{peer}: {e}");
                    return crate::io::reset(&stream);
                }
            }
            if state.bans.refuse(Refused::Tcp, remote.ip())
                || ProcessLimits::identify(&place, Place::Tcp, &state.config, remote.ip()).is_err()
            {
                return crate::io::reset(&stream);
            }
        }
        let accepted = handshake(limits, &turns, &state, stream, remote, &place).await;
        let Some(stream) = accepted else { return };
        if stream.get_ref().1.alpn_protocol() == Some(ACME_ALPN) {
            // The handshake was all that the CA wanted.
            return;
        }
        serve_http(&shared, state, stream, remote, port, place).await;
    }
}

/// Performs the TLS handshake. Returns `None`, which closes the connection, if no place is free or
/// on eviction.
async fn handshake(
    limits: &ProcessLimits,
    turns: &Turns,
    state: &State,
    stream: TcpStream,
    remote: SocketAddr,
    place: &Permit,
) -> Option<TlsStream<MeasuredStream>> {
    let Ok(under_way) = limits.enter(Place::Handshake, &state.config, Some(remote.ip())) else {
        crate::io::reset(&stream);
        return None;
    };
    let accept = turns.accept(MeasuredStream::new(stream), state.tcp_tls.clone());
    tokio::select! {
        accepted = timeout(state.config.tcp.header_timeout, accept) => {
            match accepted {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(e)) => tracing::debug!("TLS handshake: {e}"),
                Err(_) => limits.count(Fault::TlsTimeout),
            }
        }
        () = under_way.evicted() => {}
        () = place.evicted() => {}
    }
    None
}

/// Serves requests until the connection ends.
async fn serve_http(
    shared: &Shared,
    state: Arc<State>,
    stream: TlsStream<MeasuredStream>,
    remote: SocketAddr,
    port: u16,
    place: Permit,
) {
    let Ok(alt_svc) = HeaderValue::from_str(&alt_svc(&state.config, port)) else { return };
    let activity = Arc::new(Activity::new(place, MAX_STREAMS));
    let (tcp, tls) = stream.get_ref();
    let (path, h2) = (tcp.path().clone(), tls.alpn_protocol() == Some(b"h2"));
    let io = TokioIo::new(stream);
    let service = service_fn({
        let (state, activity) = (state.clone(), activity.clone());
        move |request: Request<Incoming>| {
            let open = activity.open();
            let (state, alt_svc, path) = (state.clone(), alt_svc.clone(), path.clone());
            async move {
                let method = request.method().clone();
                let response = answer(&state, request, remote, &path).await;
                let mut response = written(response.for_method(method.as_str()), open);
                response.headers_mut().insert(ALT_SVC, alt_svc);
                Ok::<_, Infallible>(response)
            }
        }
    });
    let times = &state.config.tcp;
    let result = if h2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADERS)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .keep_alive_interval(Some(times.keep_alive).filter(|interval| !interval.is_zero()))
            .keep_alive_timeout(PONG_TIMEOUT)
            .serve_connection(io, service);
        drive(connection, |c| c.graceful_shutdown(), shared, &state, &activity).await
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(times.header_timeout)
            .max_header_size(MAX_HEADERS as usize)
            .max_buf_size(MAX_SEND_BUFFER)
            .serve_connection(io, service);
        drive(connection, |c| c.graceful_shutdown(), shared, &state, &activity).await
    };
    if let Err(e) = result {
        tracing::debug!("connection: {e}");
    }
}

/// Runs a connection to its end. Shuts it down gracefully when the drain starts, on timeout, and on
/// eviction.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    shut_down: fn(Pin<&mut C>),
    shared: &Shared,
    state: &State,
    activity: &Activity,
) -> hyper::Result<()> {
    let mut connection = pin!(connection);
    let mut drained = pin!(shared.drained());
    let mut draining = false;
    let times = &state.config.tcp;
    let deadline = || activity.deadline(times.header_timeout, times.idle_timeout);
    loop {
        tokio::select! {
            result = connection.as_mut() => return result,
            () = &mut drained, if !draining => {
                draining = true;
                shut_down(connection.as_mut());
                continue;
            }
            () = sleep_until(deadline()) => {
                // A response may have made progress since this timer was set.
                if deadline() > Instant::now() {
                    continue;
                }
                if activity.is_unused() {
                    shared.limits().count(Fault::NoRequest);
                }
            }
            () = activity.evicted() => {}
            () = activity.flooded() => {
                shared.limits().count(Fault::Http2Cancels);
                return Ok(());
            }
        }
        shut_down(connection.as_mut());
        return timeout(CLOSE_TIMEOUT, connection).await.unwrap_or(Ok(()));
    }
}

async fn answer(
    state: &Arc<State>,
    request: Request<Incoming>,
    remote: SocketAddr,
    path: &Arc<TcpPath>,
) -> Response {
    let now = SystemTime::now();
    let (parts, incoming) = request.into_parts();
    let hosts = parts.headers.get_all(HOST).iter().count();
    let protocol = match parts.version {
        // RFC 9112, section 3.2: 400 for HTTP/1.1 without Host, and for more than one.
        Version::HTTP_11 if hosts != 1 => return Response::plain(400, now),
        Version::HTTP_2 => Protocol::Http2,
        _ => Protocol::Http1,
    };
    let host = || parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = parts.uri.authority().map(|authority| authority.as_str()).or_else(host);
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let fields = parts.headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes()));
    let mut head = RequestHead {
        authority: authority.unwrap_or_default(),
        fields: fields.collect(),
        path_rate: path.latest_rate(),
        tcp: Some(path),
        ..RequestHead::new(parts.method.as_str(), target, remote, protocol)
    };
    let body = match max_body(head.method, head.target) {
        0 => Bytes::new(),
        max => {
            let content = Limited::new(incoming, max).collect();
            match timeout(state.config.tcp.header_timeout, content).await {
                Ok(Ok(body)) => body.to_bytes(),
                Ok(Err(e)) if e.is::<LengthLimitError>() => return Response::plain(413, now),
                Ok(Err(_)) => return Response::plain(400, now),
                Err(_) => return Response::plain(408, now),
            }
        }
    };
    head.body = &body;
    let answer = respond(state, &head, now);
    match answer {
        Answer::Now(response) => response,
        Answer::Later(response) => response.await,
    }
}

fn written(response: Response, open: Open) -> hyper::Response<ResponseBody> {
    let mut out = hyper::Response::new(ResponseBody::new(response.body.into(), open));
    if let Ok(status) = response.status.try_into() {
        *out.status_mut() = status;
    }
    for (name, value) in response.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            out.headers_mut().append(HeaderName::from_static(name), value);
        }
    }
    out
}

#[cfg(test)]
mod tests;
