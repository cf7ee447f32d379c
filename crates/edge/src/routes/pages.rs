//! The dashboard, the player page and players side by side, which are part of the binary (`web/`, `make web`).

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use relay::{Status, Stream};

use crate::files::content_type;
use crate::http::{Body, RequestHead, Response};
use crate::passes::ViewerId;
use crate::play::is_open;
use crate::state::State;

/// Name below `web/dist`, entity tag, content.
static PAGES: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Pages load nothing from elsewhere; media comes through Media Source Extensions (blob:).
const POLICY: &str = "default-src 'self'; media-src 'self' blob:; frame-ancestors 'self'";
/// The page whose players come through origins of their own.
const SIDE_BY_SIDE: &str = "side-by-side.html";
/// Its query names the origins, with any port, so all of https is allowed. Our own address is not: where the admin
/// listener serves the page, which is plain HTTP, the page cannot call its API.
const SIDE_BY_SIDE_POLICY: &str =
    "default-src 'self'; media-src 'self' blob:; connect-src https:; frame-ancestors 'self'";

/// The most streams that the first page lists.
const MAX_LISTED: usize = 200;

/// The first page: the live streams that everybody may play, each with a link to the player.
pub(super) fn home(state: &State, head: &RequestHead<'_>, now: SystemTime) -> Option<Response> {
    // A binary without pages has no first page either.
    let response = respond("player/home.html", head, now).filter(|_| !PAGES.is_empty())?;
    Some(fresh(response, |page| page.replace("<!--streams-->", &streams(state))))
}

/// The list of streams as HTML. Names of streams are plain in HTML and in URLs.
fn streams(state: &State) -> String {
    let mut all = state.live.streams.all();
    all.retain(|stream| stream.status() == Status::Live && is_open(state, stream.name()));
    all.sort_by(|a, b| a.name().cmp(b.name()));
    if all.is_empty() {
        return "<li>No stream is live at the moment.</li>".to_owned();
    }
    let line = |stream: &Arc<Stream>| {
        let (name, viewers) = (stream.name(), stream.stats().viewers);
        let viewers = format!("{viewers} viewer{}", if viewers == 1 { "" } else { "s" });
        format!("<li><a href=\"/player.html?stream={name}\">{name}</a><span>{viewers}</span></li>")
    };
    all.iter().take(MAX_LISTED).map(line).collect()
}

/// The response with its page changed by `change` for this request alone.
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

/// What stands in the player page before the viewer's pass.
const PASS: &str = "<meta name=\"mendcast-viewer\" content=\"";

/// A page or script of the player. The page itself carries a pass for its viewer.
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

/// A line of text that no cache keeps.
pub(super) fn text(text: String, now: SystemTime) -> Response {
    let headers = vec![
        ("date", httpdate::fmt_http_date(now)),
        ("content-type", "text/plain; charset=utf-8".into()),
        ("cache-control", "no-store".into()),
        ("content-length", text.len().to_string()),
    ];
    Response { status: 200, headers, body: Body::Bytes(text.into()) }
}

/// What a page may load.
fn policy(name: &str) -> &'static str {
    if name == SIDE_BY_SIDE { SIDE_BY_SIDE_POLICY } else { POLICY }
}

/// The page `name`, for example `player.html`; `None` if there is no such page. In a binary that
/// was built without pages, those that would be there say so.
pub fn respond(name: &str, head: &RequestHead<'_>, now: SystemTime) -> Option<Response> {
    let date = ("date", httpdate::fmt_http_date(now));
    let Some((_, etag, content)) = PAGES.iter().find(|(page, ..)| *page == name) else {
        let missing = PAGES.is_empty() && name.ends_with(".html");
        return missing.then(|| {
            let text = "This server was built without its web pages: run `make web`, then build it again.\n";
            let headers = vec![date, ("content-type", "text/plain; charset=utf-8".into())];
            Response { status: 503, headers, body: Body::Bytes(Bytes::from_static(text.as_bytes())) }
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
