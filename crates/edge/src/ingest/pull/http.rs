//! HTTP requests to an upstream, and to the URLs in its redirections and playlists.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, COOKIE, HeaderMap, HeaderValue, LOCATION, RANGE,
};
use hyper::{Method, Response, StatusCode};
use media::hls::follow;
use tokio::time::timeout;
use url::Url;

use super::cookies::Cookies;
use super::report::{PullError, Reason};
use super::via::{CDN_LOOP, Via};
use crate::client::{Client, Failure, Reach, authorization, no_answer, reached};
use crate::config;

/// Maximum redirections followed per request.
const MAX_REDIRECTS: usize = 4;
/// Maximum bytes discarded before a range, from an origin without range support.
const MAX_SKIPPED: u64 = 64 << 20;

/// An upstream over HTTP.
///
/// URLs in its redirections and playlists are untrusted. They may lead no further into local
/// networks than the upstream itself, and do not get the credentials configured for it.
pub(super) struct Upstream {
    client: Client,
    /// The configured URL, without user name and password.
    url: Url,
    /// Header fields for the origin of `url` only.
    headers: HeaderMap,
    /// Network of the upstream, the limit for URLs that it names.
    reach: Reach,
    /// The CDN-Loop field.
    via: HeaderValue,
    cookies: Cookies,
}

impl Upstream {
    pub(super) fn new(client: Client, mut url: Url, rule: &config::Pull, via: &Via) -> Self {
        let mut headers = authorization(&url);
        for config::Header { name, value } in rule.headers.iter().flatten() {
            headers.append(name, value.clone());
        }
        // These fail only for URLs without a host, which the configuration rejects.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        let (reach, cookies) = (Reach::Public, Cookies::default());
        Self { client, url, headers, reach, via: via.field(), cookies }
    }

    /// Returns the configured URL, without user name and password.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Sends a GET and follows redirections. Returns the final URL and its response of any status.
    /// `range` is the first byte and the number of bytes.
    pub(super) async fn get(
        &mut self,
        url: &Url,
        range: Option<(u64, u64)>,
    ) -> Result<(Url, Response<Incoming>), PullError> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let is_upstream = url == self.url;
            let reach = if is_upstream { Reach::Anywhere } else { self.reach };
            let mut headers = HeaderMap::new();
            if url.origin() == self.url.origin() {
                headers.clone_from(&self.headers);
            }
            headers.insert(CDN_LOOP, self.via.clone());
            // Media is compressed already, and no decoder is available.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if let Some(cookies) = self.cookies.field(&url) {
                headers.append(COOKIE, cookies);
            }
            if let Some((first, count)) = range {
                let last = first.saturating_add(count.max(1) - 1);
                let range = HeaderValue::try_from(format!("bytes={first}-{last}"));
                headers.insert(RANGE, range.expect("digits"));
            }
            let response =
                self.client.send(reach, Method::GET, &url, headers, Bytes::new()).await?;
            self.cookies.take(&url, response.headers());
            if is_upstream {
                self.reach = reached(&response);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            match location.filter(|_| response.status().is_redirection()) {
                None => return Ok((url, response)),
                Some(location) => {
                    let text = "redirection from https to http, or to another scheme";
                    let next = follow(&url, location);
                    url = next.ok_or_else(|| PullError::new(Reason::Status, text))?;
                }
            }
        }
        Err(PullError::new(Reason::Status, "too many redirections"))
    }
}

/// Rejects a response with an error status or a content coding.
pub(super) fn check(response: &Response<Incoming>) -> Result<(), PullError> {
    let status = response.status();
    if !status.is_success() {
        return Err(PullError::new(Reason::Status, format!("status {status}")));
    }
    let coded = response.headers().get_all(CONTENT_ENCODING).iter();
    let coded = coded.filter_map(|value| value.to_str().ok()).find(|value| {
        let value = value.trim();
        !value.is_empty() && !value.eq_ignore_ascii_case("identity")
    });
    match coded {
        None => Ok(()),
        Some(coding) => {
            let text = format!("unrequested content-encoding {}", coding.escape_debug());
            Err(PullError::new(Reason::Content, text))
        }
    }
}

/// Returns true if the response to a request for `range` has the whole resource instead.
pub(super) fn is_whole(response: &Response<Incoming>, range: Option<(u64, u64)>) -> bool {
    range.is_some() && response.status() != StatusCode::PARTIAL_CONTENT
}

/// Reads a response body of at most `max` bytes, with at most `pause` between its parts. If the
/// origin ignored `range`, cuts the body to it.
pub(super) async fn body(
    response: Response<Incoming>,
    range: Option<(u64, u64)>,
    max: usize,
    pause: Duration,
) -> Result<Bytes, PullError> {
    let whole = range.filter(|_| is_whole(&response, range));
    if let Some((first, _)) = whole.filter(|(first, _)| *first > MAX_SKIPPED) {
        let text = format!("range at byte {first} ignored: the origin sends the whole resource");
        return Err(PullError::new(Reason::Content, text));
    }
    let (mut skipped, count) = whole.map_or((0, usize::MAX), |(first, count)| {
        (first as usize, usize::try_from(count).unwrap_or(usize::MAX))
    });
    let (mut incoming, mut body) = (response.into_body(), BytesMut::new());
    while let Some(frame) = timeout(pause, incoming.frame()).await.map_err(|_| no_answer(pause))? {
        let Ok(data) = frame.map_err(|e| Failure(e.to_string()))?.into_data() else { continue };
        let before = skipped.min(data.len());
        skipped -= before;
        let end = before + (data.len() - before).min(count - body.len());
        let data = data.slice(before..end);
        if body.len() + data.len() > max {
            return Err(PullError::new(Reason::Content, "HLS resource over the limit"));
        }
        body.extend_from_slice(&data);
        if body.len() == count {
            break;
        }
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
        let (from, response) = upstream.get(url, None).await.map_err(|error| error.text)?;
        check(&response).map_err(|error| error.text)?;
        Ok(from.into())
    }

    #[tokio::test]
    async fn at_most_four_redirections_are_followed() {
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
        assert_eq!(origin.connections(), 2, "one for the upstream, one for its redirections");
    }

    #[tokio::test]
    async fn a_whole_resource_is_cut_to_the_requested_range() {
        let origin = Origin::start(NO_TIME, |_| ok(&b"0123456789"[..])).await;
        let mut upstream = upstream(origin.url("/"));
        let url = origin.url("/a");
        for (range, expected) in [
            (None, Ok("0123456789")),
            (Some((0, 4)), Ok("0123")),
            (Some((3, 4)), Ok("3456")),
            (Some((8, 4)), Ok("89")),
            (Some((20, 4)), Ok("")),
            (Some((MAX_SKIPPED + 1, 4)), Err("the whole")),
        ] {
            upstream.reach = Reach::Loopback;
            let (_, response) = upstream.get(&url, range).await.expect("an answer");
            check(&response).expect("success");
            assert_eq!(is_whole(&response, range), range.is_some());
            let got = body(response, range, 10, Duration::from_secs(9)).await;
            match expected {
                Ok(text) => assert_eq!(got.expect("a body"), text),
                Err(word) => assert!(got.expect_err("refused").text.contains(word)),
            }
        }
    }

    #[tokio::test]
    async fn content_codings_are_rejected_and_cookies_returned() {
        let origin = Origin::start(NO_TIME, |target| {
            let mut answer = ok("x");
            let (name, value) = match target {
                "/gzip" => ("content-encoding", "gzip"),
                "/identity" => ("content-encoding", "identity"),
                _ => ("set-cookie", "s=1; path=/"),
            };
            answer.headers_mut().insert(name, value.parse().expect("a value"));
            answer
        })
        .await;
        let mut upstream = upstream(origin.url("/"));
        get(&mut upstream, &origin.url("/")).await.expect("an answer");
        let error = get(&mut upstream, &origin.url("/gzip")).await;
        assert_eq!(error, Err("unrequested content-encoding gzip".into()));
        get(&mut upstream, &origin.url("/identity")).await.expect("no coding");
        let sent: Vec<_> = origin
            .requests()
            .iter()
            .map(|(_, headers)| {
                assert_eq!(headers["accept-encoding"], "identity");
                headers.get("cookie").map(|value| value.to_str().expect("text").to_owned())
            })
            .collect();
        assert_eq!(sent, [None, Some("s=1".into()), Some("s=1".into())]);
    }

    #[tokio::test]
    async fn an_upstream_may_not_lead_to_a_more_local_network() {
        let inner = Origin::start(NO_TIME, |_| ok("a secret")).await;
        let origin = Origin::start(NO_TIME, |_| ok("")).await;
        let mut upstream = upstream(origin.url("/"));
        assert!(get(&mut upstream, &inner.url("/")).await.is_err(), "before it was reached");
        get(&mut upstream, &origin.url("/")).await.expect("an answer");
        assert_eq!(upstream.reach, Reach::Loopback);
        get(&mut upstream, &inner.url("/")).await.expect("the upstream's own network");
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
        // The configured URL itself is not restricted.
        get(&mut upstream, &origin.url("/")).await.expect("an answer");
    }

    #[tokio::test]
    async fn a_redirection_from_a_private_network_to_loopback_is_rejected() {
        // Finds this machine's own non-loopback address. Nothing is sent.
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
