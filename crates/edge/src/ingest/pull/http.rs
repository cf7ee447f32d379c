//! Requests to an upstream over HTTP, and to where it leads.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue, LOCATION, RANGE};
use hyper::{Method, Response, StatusCode};
use media::hls::follow;
use tokio::time::timeout;
use url::Url;

use super::trouble::{Reason, Trouble};
use super::via::{CDN_LOOP, Via};
use crate::client::{Client, Failure, Reach, authorization, no_answer, reached};
use crate::config;

/// Redirections that are followed.
const MAX_REDIRECTS: usize = 4;

/// An upstream over HTTP.
///
/// What it names, in redirections and playlists, is a stranger's word: such a URL leads no further
/// into the networks around this machine than the upstream itself is, and does not get what
/// the configuration says for the upstream alone.
pub(super) struct Upstream {
    client: Client,
    /// As configured, without user name and password.
    url: Url,
    /// For the upstream's own server.
    headers: HeaderMap,
    /// How far it may lead: what it took to reach it.
    reach: Reach,
    /// The field that finds loops.
    via: HeaderValue,
}

impl Upstream {
    pub(super) fn new(client: Client, mut url: Url, rule: &config::Pull, via: &Via) -> Self {
        let mut headers = authorization(&url);
        for config::Header { name, value } in rule.headers.iter().flatten() {
            headers.append(name, value.clone());
        }
        // They fail for URLs without a host, which there are none of.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        Self { client, url, headers, reach: Reach::Public, via: via.field() }
    }

    /// The configured URL, without user name and password.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// A GET of this URL, redirections followed, and where the response came from: whatever its
    /// status is. `range` is the first byte and the number of bytes.
    pub(super) async fn get(
        &mut self,
        url: &Url,
        range: Option<(u64, u64)>,
    ) -> Result<(Url, Response<Incoming>), Trouble> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let is_upstream = url == self.url;
            let reach = if is_upstream { Reach::Anywhere } else { self.reach };
            let mut headers = HeaderMap::new();
            if url.origin() == self.url.origin() {
                headers.clone_from(&self.headers);
            }
            headers.insert(CDN_LOOP, self.via.clone());
            if let Some((first, count)) = range {
                let last = first.saturating_add(count.max(1) - 1);
                let range = HeaderValue::try_from(format!("bytes={first}-{last}"));
                headers.insert(RANGE, range.expect("digits"));
            }
            let response =
                self.client.send(reach, Method::GET, &url, headers, Bytes::new()).await?;
            if is_upstream {
                self.reach = reached(&response);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            match location.filter(|_| response.status().is_redirection()) {
                None => return Ok((url, response)),
                Some(location) => {
                    let refused = "a redirection from https to http, or to what is no HTTP";
                    let next = follow(&url, location);
                    url = next.ok_or_else(|| Trouble::new(Reason::Status, refused))?;
                }
            }
        }
        Err(Trouble::new(Reason::Status, "too many redirections"))
    }
}

/// Refuses a response that does not have what was asked for.
pub(super) fn check(response: &Response<Incoming>, is_range: bool) -> Result<(), Trouble> {
    let status = response.status();
    if status.is_success() && (!is_range || status == StatusCode::PARTIAL_CONTENT) {
        return Ok(());
    }
    Err(Trouble::new(Reason::Status, format!("status {status}")))
}

/// The body of a response: at most `max` bytes, and none of them after a pause of `pause`.
pub(super) async fn body(
    response: Response<Incoming>,
    max: usize,
    pause: Duration,
) -> Result<Bytes, Trouble> {
    let (mut incoming, mut body) = (response.into_body(), BytesMut::new());
    while let Some(frame) = timeout(pause, incoming.frame()).await.map_err(|_| no_answer(pause))? {
        let Ok(data) = frame.map_err(|e| Failure(e.to_string()))?.into_data() else { continue };
        if body.len() + data.len() > max {
            return Err(Trouble::new(Reason::Content, "HLS resource over the limit"));
        }
        body.extend_from_slice(&data);
    }
    Ok(body.freeze())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::super::origin::{Origin, ok, redirect};
    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    fn upstream(url: Url) -> Upstream {
        Upstream::new(Client::system().clone(), url, &config::Pull::default(), &Via::default())
    }

    async fn get(upstream: &mut Upstream, url: &Url) -> Result<String, String> {
        let (from, response) = upstream.get(url, None).await.map_err(|trouble| trouble.text)?;
        check(&response, false).map_err(|trouble| trouble.text)?;
        Ok(from.into())
    }

    #[tokio::test]
    async fn redirections_are_followed_four_times() {
        let origin = Origin::start(NO_TIME, |target| match target {
            "/0" => ok("here"),
            "/1" => redirect("/0"),
            _ => redirect(&format!("/{}", target[1..].parse::<u32>().expect("a number") - 1)),
        })
        .await;
        let mut upstream = upstream(origin.url("/4"));
        assert_eq!(get(&mut upstream, &origin.url("/4")).await, Ok(origin.url("/0").into()));
        let error = get(&mut upstream, &origin.url("/5")).await;
        assert_eq!(error, Err("too many redirections".into()));
        assert_eq!(origin.connections(), 2, "one for the upstream, one for what it names");
    }

    #[tokio::test]
    async fn what_an_upstream_names_is_no_nearer_to_this_machine_than_itself() {
        let inner = Origin::start(NO_TIME, |_| ok("a secret")).await;
        let origin = Origin::start(NO_TIME, |_| ok("")).await;
        let mut upstream = upstream(origin.url("/"));
        assert!(get(&mut upstream, &inner.url("/")).await.is_err(), "before it was reached");
        get(&mut upstream, &origin.url("/")).await.expect("an answer");
        assert_eq!(upstream.reach, Reach::Loopback);
        get(&mut upstream, &inner.url("/")).await.expect("as near as itself");
        for reach in [Reach::Public, Reach::Private] {
            upstream.reach = reach;
            let port = inner.address.port();
            for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0"] {
                let url = Url::parse(&format!("http://{host}:{port}/")).expect("a URL");
                let error = get(&mut upstream, &url).await.expect_err(host);
                assert!(error.contains("may not lead"), "{error}");
            }
        }
        assert_eq!(inner.requests().len(), 1);
        // The upstream itself is where the operator says it is.
        get(&mut upstream, &origin.url("/")).await.expect("an answer");
    }

    #[tokio::test]
    async fn a_redirection_from_a_private_network_to_this_machine_is_refused() {
        // Which address this machine has outside of itself; nothing is sent.
        let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
        let outside = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
        let Ok(outside) = outside.map(|address| address.ip()) else { return };
        if !matches!(Reach::to(outside), Reach::Public | Reach::Private) {
            return;
        }
        let inner = Origin::start(NO_TIME, |_| ok("a secret")).await;
        let to = inner.url("/").to_string();
        let at = format!("{outside}:0");
        let origin = Origin::start_at(&at, NO_TIME, move |_| redirect(&to)).await;
        let error = get(&mut upstream(origin.url("/")), &origin.url("/")).await;
        assert!(error.as_ref().is_err_and(|e| e.contains("may not lead")), "{error:?}");
        assert!(inner.requests().is_empty());
    }
}
