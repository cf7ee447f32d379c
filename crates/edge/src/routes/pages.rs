//! The web pages built into the binary: dashboard, player, and side-by-side players (`web/`,
//! `make web`).

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use relay::{Status, Stream};

use crate::files::content_type;
use crate::hosts::Scope;
use crate::http::{Body, RequestHead, Response};
use crate::passes::ViewerId;
use crate::play::is_open;
use crate::state::State;

/// Name below `web/dist`, entity tag and content of each page.
static PAGES: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Pages load only from their own origin. Media uses Media Source Extensions (blob:).
const POLICY: &str = "default-src 'self'; media-src 'self' blob:; frame-ancestors 'self'";
/// The page that plays from several origins.
const SIDE_BY_SIDE: &str = "side-by-side.html";
/// The query names origins with any port, so all of https is allowed. The page's own origin is not:
/// served by the plain-HTTP admin listener, the page cannot call its API.
const SIDE_BY_SIDE_POLICY: &str =
    "default-src 'self'; media-src 'self' blob:; connect-src https:; frame-ancestors 'self'";

/// Maximum streams on the home page.
const MAX_LISTED: usize = 200;

/// Returns the home page: open live streams, each with a link to the player.
pub(super) fn home(
    state: &State,
    head: &RequestHead<'_>,
    scope: Scope<'_>,
    now: SystemTime,
) -> Option<Response> {
    // A binary without pages has no home page either.
    let response = respond("player/home.html", head, now).filter(|_| !PAGES.is_empty())?;
    Some(fresh(response, |page| page.replace("<!--streams-->", &streams(state, scope))))
}

/// Returns the list of streams as HTML. Stream names need no escaping in HTML and URLs.
fn streams(state: &State, scope: Scope<'_>) -> String {
    let mut all = state.live.streams.all();
    all.retain(|stream| stream.status() == Status::Live && is_open(state, stream.name()));
    all.retain(|stream| scope.local(stream.name()).is_some());
    all.sort_by(|a, b| a.name().cmp(b.name()));
    if all.is_empty() {
        return "<li>No stream is live at the moment.</li>".to_owned();
    }
    let line = |stream: &Arc<Stream>| {
        let viewers = stream.stats().viewers;
        let name = scope.local(stream.name()).unwrap_or_default();
        let viewers = format!("{viewers} viewer{}", if viewers == 1 { "" } else { "s" });
        format!("<li><a href=\"/player.html?stream={name}\">{name}</a><span>{viewers}</span></li>")
    };
    all.iter().take(MAX_LISTED).map(line).collect()
}

/// Rewrites the page of a response for this request only, which makes it uncacheable.
fn fresh(mut response: Response, change: impl FnOnce(&str) -> String) -> Response {
    if response.status != 200 {
        return response;
    }
    let fixed = ["etag", "cache-control", "content-length"];
    response.headers.retain(|(name, _)| !fixed.contains(name));
    if let Body::Bytes(page) = &response.body {
        let page = change(&String::from_utf8_lossy(page));
        response = response.with("content-length", page.len().to_string());
        response.body = Body::Bytes(page.into());
    }
    response.with("cache-control", "no-store")
}

/// Text in the player page before the viewer's pass.
const PASS: &str = "<meta name=\"mendcast-viewer\" content=\"";

/// Returns a page or script of the player. `player.html` carries a pass for its viewer.
pub(super) fn player(
    state: &State,
    name: &str,
    head: &RequestHead<'_>,
    now: SystemTime,
) -> Option<Response> {
    let response = respond(name, head, now)?;
    if name != "player.html" {
        return Some(response);
    }
    let pass = || state.passes.page(ViewerId::random(), now);
    Some(fresh(response, |page| page.replace(PASS, &format!("{PASS}{}", pass()))))
}

/// Returns an uncacheable line of text.
pub(super) fn text(text: String, now: SystemTime) -> Response {
    let headers = vec![
        ("date", httpdate::fmt_http_date(now)),
        ("content-type", "text/plain; charset=utf-8".into()),
        ("cache-control", "no-store".into()),
        ("content-length", text.len().to_string()),
    ];
    Response { status: 200, headers, body: Body::Bytes(text.into()) }
}

/// Returns the Content-Security-Policy of a page.
fn policy(name: &str) -> &'static str {
    if name == SIDE_BY_SIDE { SIDE_BY_SIDE_POLICY } else { POLICY }
}

/// Returns the page `name`, for example `player.html`; `None` if there is none. A binary built
/// without pages answers with an explanation.
pub fn respond(name: &str, head: &RequestHead<'_>, now: SystemTime) -> Option<Response> {
    let date = ("date", httpdate::fmt_http_date(now));
    let Some((_, etag, content)) = PAGES.iter().find(|(page, ..)| *page == name) else {
        let missing = PAGES.is_empty() && name.ends_with(".html");
        return missing.then(|| {
            let text = "This binary has no web pages: run `make web` and build it again.\n";
            let headers = vec![date, ("content-type", "text/plain; charset=utf-8".into())];
            let body = Body::Bytes(Bytes::from_static(text.as_bytes()));
            Response { status: 503, headers, body }
        });
    };
    let headers = vec![
        date,
        ("etag", (*etag).to_owned()),
        ("cache-control", "no-cache".into()),
        ("content-security-policy", policy(name).into()),
        ("x-content-type-options", "nosniff".into()),
        ("content-type", content_type(name.as_ref()).into()),
    ];
    if head.value("if-none-match") == Some(etag) {
        return Some(Response { status: 304, headers, body: Body::Empty });
    }
    let response = match head.method {
        "GET" => Response { status: 200, headers, body: Body::Bytes(Bytes::from_static(content)) },
        "HEAD" => Response { status: 200, headers, body: Body::Empty },
        _ => return Some(Response::plain(405, now).with("allow", "GET, HEAD")),
    };
    Some(response.with("content-length", content.len().to_string()))
}
