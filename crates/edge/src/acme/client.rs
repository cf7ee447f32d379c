//! The HTTP client of the ACME library: the server's own, with limits.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::time::timeout;
use url::Url;

use crate::client::{Client, Reach, no_answer};

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response in bytes.
const MAX_RESPONSE: usize = 1 << 20;

/// Sends requests to the CA.
pub(super) struct CaClient(pub(super) Client);

type Answer = Result<BytesResponse, Error>;

impl HttpClient for CaClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let sent = timeout(REQUEST_TIMEOUT, send(client, request));
            sent.await.unwrap_or_else(|_| Err(failed(no_answer(REQUEST_TIMEOUT).0)))
        })
    }
}

async fn send(client: Client, request: Request<BodyWrapper<Bytes>>) -> Answer {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await;
    let body = body.to_bytes();
    let url = Url::parse(&head.uri.to_string()).map_err(|e| failed(e.to_string()))?;
    let sent = client.send(Reach::Anywhere, head.method, &url, head.headers, body);
    let response = sent.await.map_err(|why| failed(format!("{}: {why}", url.as_str())))?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_RESPONSE).collect().await;
    let body = body.map_err(|e| failed(e.to_string()))?.to_bytes();
    Ok(Response::from_parts(head, Full::new(body)).into())
}

fn failed(why: String) -> Error {
    Error::Other(why.into())
}
