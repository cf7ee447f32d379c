//! A local HTTP origin for tests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use url::Url;

use crate::sync::lock;

pub(super) type Answer = Response<Full<Bytes>>;
type Requests = Arc<Mutex<Vec<(String, HeaderMap)>>>;

/// A server with persistent connections, until it is dropped.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    requests: Requests,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Origin {
    /// Starts an origin that answers after `delay`. `answer` gets path and query.
    pub(super) async fn start(
        delay: Duration,
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1:0", delay, answer).await
    }

    pub(super) async fn start_at(
        address: &str,
        delay: Duration,
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let (requests, connections) = (Requests::default(), Arc::new(AtomicUsize::new(0)));
        let (seen, count, answer) = (requests.clone(), connections.clone(), Arc::new(answer));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (seen, answer) = (seen.clone(), answer.clone());
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let target = request.uri().to_string();
                    lock(&seen).push((target.clone(), request.headers().clone()));
                    let answer = answer.clone();
                    async move {
                        tokio::time::sleep(delay).await;
                        Ok::<_, Infallible>(answer(&target))
                    }
                });
                serving.spawn(async move {
                    // A client may disconnect at any time.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { address, requests, connections, _tasks: tasks }
    }

    /// Returns the URL of a path, which starts with a slash.
    pub(super) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).expect("a URL")
    }

    /// Returns all requests, with path and query.
    pub(super) fn requests(&self) -> Vec<(String, HeaderMap)> {
        lock(&self.requests).clone()
    }

    /// Returns the number of accepted connections.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

pub(super) fn ok(body: impl Into<Bytes>) -> Answer {
    Response::new(Full::new(body.into()))
}

pub(super) fn status(status: u16) -> Answer {
    let mut answer = ok("");
    *answer.status_mut() = status.try_into().expect("a status");
    answer
}

pub(super) fn redirect(to: &str) -> Answer {
    let mut answer = status(302);
    answer.headers_mut().insert("location", to.parse().expect("a field"));
    answer
}
