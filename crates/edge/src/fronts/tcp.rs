//! HTTP/1.1 (RFC 9112) and HTTP/2 (RFC 9113) over TLS on TCP, which invite viewers to HTTP/3 by
//! `Alt-Svc` (RFC 7838, section 3; RFC 9114, section 3.1).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{ALT_SVC, HOST, HeaderName, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use crate::http::{Answer, RequestHead, Responder, Response, max_body};
use crate::routes::respond;
use crate::state::{Shared, State};
use crate::viewer::Protocol;

/// Bytes of headers in one request, as in HTTP/3.
const MAX_HEADERS: u32 = 16 * 1024;
/// Bytes of response that wait in memory for one stream's viewer.
const MAX_SEND_BUFFER: usize = 128 * 1024;
/// Requests at the same time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// How long an idle connection may take to say good-bye.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves `listener` until the drain is over; HTTP/3 is on UDP port `port`. A connection needs one
/// of `slots`; without one it waits, and so does everything behind it in the kernel's queue.
pub(crate) async fn serve(
    listener: TcpListener,
    port: u16,
    shared: Arc<Shared>,
    slots: Arc<Semaphore>,
) {
    let mut connections = JoinSet::new();
    let mut drained = pin!(shared.drained());
    loop {
        let accepted = tokio::select! {
            () = &mut drained => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            // The peer gave up in the kernel's queue.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(e) => {
                // Out of descriptors, most likely: trying again at once would spin.
                tracing::warn!("accept: {e}");
                sleep(Duration::from_millis(500)).await;
                continue;
            }
        };
        let slot = tokio::select! {
            () = &mut drained => break,
            slot = slots.clone().acquire_owned() => slot,
        };
        let shared = shared.clone();
        connections.spawn(async move {
            connection(stream, remote, port, &shared).await;
            drop(slot);
        });
    }
    drop(listener);
    let limit = shared.state().config.drain.timeout;
    let finished = timeout(limit, async { while connections.join_next().await.is_some() {} }).await;
    if finished.is_err() {
        tracing::warn!("{} TCP connections cut off after {limit:?}", connections.len());
    }
}

/// One connection, from the TLS handshake to its end.
async fn connection(stream: TcpStream, remote: SocketAddr, port: u16, shared: &Shared) {
    let state = shared.state();
    let times = &state.config.tcp;
    crate::io::prepare(&stream);
    let acceptor = TlsAcceptor::from(state.tcp_tls.clone());
    let stream = match timeout(times.header_timeout, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return tracing::debug!("TLS handshake: {e}"),
        Err(_) => return tracing::debug!("TLS handshake: timed out"),
    };
    let Ok(alt_svc) = HeaderValue::from_str(&format!("h3=\":{port}\"; ma=86400")) else { return };

    let activity = Arc::new(Activity::new());
    let idle = times.idle_timeout;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    let service = service_fn({
        let (state, activity) = (state.clone(), activity.clone());
        move |request: Request<Incoming>| {
            activity.touch();
            let (state, activity, alt_svc) = (state.clone(), activity.clone(), alt_svc.clone());
            async move {
                let response = answer(&state, request, remote).await;
                let mut response = written(response, activity);
                response.headers_mut().insert(ALT_SVC, alt_svc);
                Ok::<_, Infallible>(response)
            }
        }
    });
    let result = if h2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADERS)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .serve_connection(io, service);
        drive(connection, |c| c.graceful_shutdown(), shared, &activity, idle).await
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(times.header_timeout)
            .max_header_size(MAX_HEADERS as usize)
            .max_buf_size(MAX_SEND_BUFFER)
            .serve_connection(io, service);
        drive(connection, |c| c.graceful_shutdown(), shared, &activity, idle).await
    };
    if let Err(e) = result {
        tracing::debug!("connection: {e}");
    }
}

/// Runs a connection to its end, and brings that about when the drain starts, or when for `idle`
/// no request came and no response could go on.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    shut_down: fn(Pin<&mut C>),
    shared: &Shared,
    activity: &Activity,
    idle: Duration,
) -> hyper::Result<()> {
    let mut connection = pin!(connection);
    let mut drained = pin!(shared.drained());
    let mut draining = false;
    loop {
        tokio::select! {
            result = connection.as_mut() => return result,
            () = &mut drained, if !draining => {
                draining = true;
                shut_down(connection.as_mut());
            }
            () = sleep_until(activity.last() + idle) => {
                // A response may have gone on since this timer was set.
                if activity.last() + idle <= Instant::now() {
                    shut_down(connection.as_mut());
                    return timeout(FAREWELL, connection).await.unwrap_or(Ok(()));
                }
            }
        }
    }
}

/// When something last happened on a connection.
#[derive(Debug)]
struct Activity {
    start: Instant,
    /// Milliseconds after `start`.
    last: AtomicU64,
}

impl Activity {
    fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    fn touch(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

async fn answer(state: &Arc<State>, request: Request<Incoming>, remote: SocketAddr) -> Response {
    let now = SystemTime::now();
    let (parts, incoming) = request.into_parts();
    let hosts = parts.headers.get_all(HOST).iter().count();
    let protocol = match parts.version {
        // RFC 9112, section 3.2: 400 for HTTP/1.1 without Host, and for more than one.
        Version::HTTP_11 if hosts != 1 => return Response::plain(400, now),
        Version::HTTP_2 => Protocol::Http2,
        _ => Protocol::Http1,
    };
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let fields = parts.headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes()));
    let (method, fields) = (parts.method.as_str(), fields.collect());
    let mut head =
        RequestHead { method, target, fields, remote, protocol, cohort: None, body: &[] };
    let body = match max_body(head.method, head.target) {
        0 => Bytes::new(),
        max => match Limited::new(incoming, max).collect().await {
            Ok(body) => body.to_bytes(),
            Err(e) if e.is::<LengthLimitError>() => return Response::plain(413, now),
            Err(_) => return Response::plain(400, now),
        },
    };
    head.body = &body;
    let answer = respond(state, &head, now);
    match answer {
        Answer::Now(response) => response,
        Answer::Later(response) => response.await,
    }
}

fn written(response: Response, activity: Arc<Activity>) -> hyper::Response<ResponseBody> {
    let body = ResponseBody { responder: response.body.into(), activity };
    let mut out = hyper::Response::new(body);
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

/// A [`Responder`] that hyper pulls when it has room.
#[derive(Debug)]
struct ResponseBody {
    responder: Responder,
    activity: Arc<Activity>,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.activity.touch();
        self.responder.poll_fill(context).map(|next| next.transpose().map(|r| r.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.responder.remaining() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.responder.remaining().map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests;
