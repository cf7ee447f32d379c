//! Follows an HLS playlist on one connection (RFC 8216, section 6.3).

use std::sync::Mutex;

use bytes::{Bytes, BytesMut};
use media::hls::pull::{Action, Choice, OriginRequest, Pull, Selection, Url};

use super::client::{Http, Stream, next_data};
use super::meter::{Meter, lock};
use super::target::WatchTarget;
use crate::error::Error;

/// Pulls until the stream ends. `first` is the response to the playlist's first request.
///
/// # Errors
/// One line: the connection is lost, or the response is not HLS.
pub(super) async fn follow(
    http: &Http,
    target: &WatchTarget,
    first: Stream,
    meter: &Mutex<Meter>,
) -> Result<(), Error> {
    // Players start with the first variant of the playlist.
    let url = Url::parse(&target.uri.to_string()).map_err(Error::at(&target.uri))?;
    let mut pull = Pull::new(url, Selection { variant: Choice::First, audio: None });
    let mut first = Some(first);
    loop {
        let now = lock(meter).now();
        let request = match pull.next(now) {
            Action::Wait(time) => {
                tokio::time::sleep(time).await;
                continue;
            }
            Action::End => {
                lock(meter).segment(&pull.finish());
                return Ok(());
            }
            Action::Fetch(request) => request,
        };
        let body = match first.take() {
            Some(stream) => body(stream, &request, meter).await,
            None => fetch(http, target, &request, meter).await?,
        };
        match body {
            Ok(body) => {
                let tags = pull.on_response(&body).map_err(Error::new)?;
                lock(meter).segment(&tags);
            }
            Err(e) if !http.is_open() => return Err(e),
            Err(_) => {
                let now = lock(meter).now();
                pull.on_failure(now).map_err(Error::new)?;
            }
        }
    }
}

/// The outer error is of the connection or the URL, the inner one of the response.
async fn fetch(
    http: &Http,
    target: &WatchTarget,
    request: &OriginRequest,
    meter: &Mutex<Meter>,
) -> Result<Result<Bytes, Error>, Error> {
    let resource = WatchTarget::parse(request.url.as_str())?;
    if (&resource.host, resource.port) != (&target.host, target.port) {
        return Err(Error::new(format_args!("{}: on another server", request.url)));
    }
    let mut get = http::Request::get(resource.uri);
    if let Some((start, length)) = request.range {
        let last = start.saturating_add(length).saturating_sub(1);
        get = get.header("range", format!("bytes={start}-{last}"));
    }
    let mut stream = http.send(get, None).await?;
    let expected = if request.range.is_some() { 206 } else { 200 };
    let response = match stream.recv_response().await {
        Ok(response) => response,
        Err(e) => return Ok(Err(Error::new(e))),
    };
    if response.status().as_u16() != expected {
        return Ok(Err(Error::new(format_args!("HTTP status {}", response.status()))));
    }
    Ok(body(stream, request, meter).await)
}

async fn body(
    mut stream: Stream,
    request: &OriginRequest,
    meter: &Mutex<Meter>,
) -> Result<Bytes, Error> {
    let mut body = BytesMut::new();
    while let Some(data) = next_data(&mut stream).await? {
        lock(meter).bytes(data.len());
        body.extend_from_slice(&data);
        if body.len() > request.max_bytes {
            break;
        }
    }
    Ok(body.freeze())
}
