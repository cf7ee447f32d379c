//! The operator's listener: dashboard, metrics, health and control. Plain HTTP/1.1, meant for this
//! machine or a private network.
//!
//! `/` is the dashboard. It shows `/api/events` (server-sent events, one per second); `/api/state`
//! is a single event. `/groups.html` shows user groups from `/api/autoplex`. `/side-by-side.html`
//! plays one stream through several origins, given in its query. `/metrics` is for Prometheus.
//! `/healthz` reports liveness, `/readyz` readiness for viewers. The rest of `/api` is the control
//! API.

mod access;
mod control;
mod format;
mod metrics;
mod outputs;
mod process;
mod snapshot;
mod user_groups;
mod visitors;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HOST;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::http::{self, RequestHead};
use crate::routes::pages;
use crate::state::Shared;
use crate::sync::lock;
use crate::viewer::Protocol;
use control::{Control, ControlResource, Reply};
use format::Format;
use snapshot::Sampler;
use visitors::{EventStream, Visitor, Visitors};

/// Returns the OpenAPI description of the admin listener, docs/reference/openapi.json.
pub fn openapi() -> String {
    control::openapi::describe()
}

/// Interval of dashboard events.
const PERIOD: Duration = Duration::from_secs(1);
/// Timeout for a request head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);

/// State shared by all requests.
struct Handler {
    shared: Arc<Shared>,
    /// Dashboard events.
    events: watch::Receiver<Bytes>,
    /// Sampler of `/api/state`, with rates since the last request.
    sampler: Mutex<Sampler>,
    control: Control,
    visitors: Visitors,
}

/// Serves `listener` until the end of the drain, so that `/readyz` can report draining.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let (sender, events) = watch::channel(Bytes::new());
    let sampler = tokio::spawn(sample(shared.clone(), sender));
    let address = listener.local_addr();
    let is_local = address.is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let handler = Arc::new(Handler {
        shared: shared.clone(),
        events,
        sampler: Mutex::new(Sampler::new(&shared)),
        control: Control::new(is_local),
        visitors: Visitors::default(),
    });
    let mut connections = JoinSet::new();
    let mut finished = pin!(shared.finished());
    loop {
        let accepted = tokio::select! {
            () = &mut finished => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, remote)) => {
                let visitor = Arc::new(handler.visitors.enter());
                connections.spawn(handler.clone().receive(stream, remote, visitor));
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(e) => {
                tracing::warn!("admin accept: {e}");
                sleep(Duration::from_millis(500)).await;
            }
        }
    }
    sampler.abort();
}

/// Takes a sample per second while any client subscribes.
async fn sample(shared: Arc<Shared>, sender: watch::Sender<Bytes>) {
    let mut sampler = Sampler::new(&shared);
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // One receiver belongs to the listener itself.
        if sender.receiver_count() > 1 {
            let text = sampler.sample(&shared).to_string();
            sender.send_replace(format!("data: {text}\n\n").into());
        }
    }
}

impl Handler {
    /// Serves the requests of one connection.
    async fn receive(
        self: Arc<Self>,
        stream: TcpStream,
        remote: SocketAddr,
        visitor: Arc<Visitor>,
    ) {
        let asking = visitor.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (handler, visitor) = (self.clone(), asking.clone());
            async move {
                visitor.touch();
                Ok::<_, Infallible>(handler.answer(request, remote, &visitor).await)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            result = connection => {
                if let Err(e) = result {
                    tracing::debug!("admin connection: {e}");
                }
            }
            () = visitor.over() => tracing::debug!("admin connection closed: idle"),
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        remote: SocketAddr,
        visitor: &Arc<Visitor>,
    ) -> Response<AdminBody> {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
        let hosts = self.shared.state().config.admin.hosts.clone().unwrap_or_default();
        let path = request.uri().path();
        // Monitoring may use any name. Its responses are useless to a page of another site.
        let is_open = matches!(path, "/metrics" | "/healthz" | "/readyz");
        if !is_open && !is_own_name(host, &hosts) {
            let text = "403 Forbidden: use an address, localhost, or a name from [admin] hosts\n";
            return text_response(403, text.into());
        }
        if let Some(resource) = ControlResource::of(path) {
            return json_response(
                self.control.answer(&self.shared, resource, request, remote).await,
            );
        }
        if !matches!(request.method().as_str(), "GET" | "HEAD") {
            let mut refused = text_response(405, "405 Method Not Allowed\n".into());
            refused.headers_mut().insert("allow", const { header("GET, HEAD") });
            return refused;
        }
        if path == "/api/autoplex" {
            return self.user_groups().await;
        }
        self.show(&request, remote, visitor)
    }

    /// Returns the state of user groups. Reads a file, so runs on a blocking thread.
    async fn user_groups(&self) -> Response<AdminBody> {
        let state = self.shared.state();
        let told = tokio::task::spawn_blocking(move || user_groups::describe(&state).to_string());
        match told.await {
            Ok(text) => with_type(text_response(200, text), "application/json"),
            Err(_) => text_response(500, "500 Internal Server Error\n".into()),
        }
    }

    /// Answers read-only requests.
    fn show(
        &self,
        request: &Request<Incoming>,
        remote: SocketAddr,
        visitor: &Arc<Visitor>,
    ) -> Response<AdminBody> {
        let shared = &self.shared;
        match request.uri().path() {
            "/api/events" => {
                let Some(place) = visitor.events() else {
                    let mut full = text_response(503, "503 Too many event streams\n".into());
                    full.headers_mut().insert("retry-after", const { header("5") });
                    return full;
                };
                let events = Events::new(self.events.clone(), place);
                let mut response = Response::new(AdminBody::Events(events));
                let headers = response.headers_mut();
                headers.insert("content-type", const { header("text/event-stream") });
                headers.insert("cache-control", const { header("no-store") });
                response
            }
            "/api/state" => {
                let text = lock(&self.sampler).sample(shared).to_string();
                with_type(text_response(200, text), "application/json")
            }
            "/api/outputs" => {
                let text = outputs::describe(&shared.state().live).to_string();
                with_type(text_response(200, text), "application/json")
            }
            "/api/openapi.json" => with_type(text_response(200, openapi()), "application/json"),
            "/metrics" => {
                let accept = request.headers().get("accept").and_then(|field| field.to_str().ok());
                let format = Format::accepted(accept);
                let own = (&self.control.calls, self.visitors.limited());
                let text = metrics::encode_as(format, shared, own);
                with_type(text_response(200, text), format.content_type())
            }
            "/healthz" => probe("ok", &shared.faults()),
            "/readyz" => probe("ready", &shared.unready_reasons()),
            path => page(request, path, remote),
        }
    }
}

/// Returns a health response: 200 unless there are reasons `against`.
fn probe(good: &str, against: &[String]) -> Response<AdminBody> {
    match against {
        [] => text_response(200, format!("{good}\n")),
        lines => text_response(503, lines.join("\n") + "\n"),
    }
}

/// Returns the dashboard, the side-by-side players, or a file of theirs.
fn page(request: &Request<Incoming>, path: &str, remote: SocketAddr) -> Response<AdminBody> {
    let name = if path == "/" { "dashboard.html" } else { path.trim_start_matches('/') };
    let fields = request.headers().iter().map(|(n, v)| (n.as_str(), v.as_bytes()));
    let method = request.method().as_str();
    let head = RequestHead {
        fields: fields.collect(),
        ..RequestHead::new(method, path, remote, Protocol::Http1)
    };
    match pages::respond(name, &head, SystemTime::now()) {
        Some(page) => written(page),
        None => text_response(404, "404 Not Found\n".into()),
    }
}

/// Converts a response of the control API.
fn json_response(reply: Reply) -> Response<AdminBody> {
    let response = text_response(reply.status, format!("{}\n", reply.body));
    let mut response = with_type(response, "application/json");
    if let Some((name, value)) = reply.field
        && let Ok(value) = value.try_into()
    {
        response.headers_mut().insert(name, value);
    }
    response
}

const fn header(value: &'static str) -> hyper::header::HeaderValue {
    hyper::header::HeaderValue::from_static(value)
}

/// Whether a Host header is an address, localhost or one of `hosts`. A page of another site with a
/// name that points here (DNS rebinding) sends its own name.
fn is_own_name(host: &str, hosts: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_named = |own: &String| own.eq_ignore_ascii_case(name);
    name == "localhost" || address.parse::<IpAddr>().is_ok() || hosts.iter().any(is_named)
}

fn text_response(status: u16, text: String) -> Response<AdminBody> {
    let mut response = Response::new(AdminBody::Whole(Some(text.into())));
    if let Ok(status) = status.try_into() {
        *response.status_mut() = status;
    }
    with_type(response, "text/plain; charset=utf-8")
}

fn with_type(mut response: Response<AdminBody>, kind: &'static str) -> Response<AdminBody> {
    response.headers_mut().insert("content-type", header(kind));
    response.headers_mut().insert("cache-control", const { header("no-store") });
    response
}

/// Converts a page to hyper's response.
fn written(page: http::Response) -> Response<AdminBody> {
    let body = match page.body {
        http::Body::Bytes(bytes) => Some(bytes),
        _ => None,
    };
    let mut response = Response::new(AdminBody::Whole(body));
    if let Ok(status) = page.status.try_into() {
        *response.status_mut() = status;
    }
    for (name, value) in page.headers {
        if let Ok(value) = value.try_into() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The body of a response.
enum AdminBody {
    Whole(Option<Bytes>),
    Events(Events),
}

/// An endless stream of server-sent events (HTML, section 9.2).
struct Events {
    next: Pin<Box<dyn Future<Output = Next> + Send>>,
    place: EventStream,
}

/// The next event and the source of further ones; `None` at the end.
type Next = Option<(watch::Receiver<Bytes>, Bytes)>;

impl Events {
    fn new(receiver: watch::Receiver<Bytes>, place: EventStream) -> Self {
        Self { next: Box::pin(next_event(receiver)), place }
    }
}

async fn next_event(mut receiver: watch::Receiver<Bytes>) -> Next {
    receiver.changed().await.ok()?;
    let event = receiver.borrow_and_update().clone();
    Some((receiver, event))
}

impl Body for AdminBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut *self {
            Self::Whole(bytes) => bytes.take().filter(|bytes| !bytes.is_empty()),
            Self::Events(events) => {
                ready!(events.next.as_mut().poll(context)).map(|(receiver, event)| {
                    events.place.touch();
                    events.next = Box::pin(next_event(receiver));
                    event
                })
            }
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Events(_) => SizeHint::new(),
        }
    }
}

#[cfg(test)]
mod tests;
