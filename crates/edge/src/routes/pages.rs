//! The dashboard and the player page, which are part of the binary (`web/`, `make web`).

use std::time::SystemTime;

use bytes::Bytes;

use crate::files::content_type;
use crate::http::{Body, RequestHead, Response};
use crate::passes::ViewerId;
use crate::state::State;

/// Name below `web/dist`, entity tag, content.
static PAGES: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Pages load nothing from elsewhere; media comes through Media Source Extensions (blob:).
const POLICY: &str = "default-src 'self'; media-src 'self' blob:; frame-ancestors 'self'";

/// What stands in the player page before the viewer's pass.
const PASS: &str = "<meta name=\"mendcast-viewer\" content=\"";

/// A page or script of the player. The page itself carries a pass for its viewer, so it is made for each
/// request.
pub(super) fn player(
    state: &State,
    name: &str,
    head: &RequestHead<'_>,
    now: SystemTime,
) -> Option<Response> {
    let mut response = respond(name, head, now)?;
    if let Body::Bytes(page) = &response.body
        && let Some((start, end)) = core::str::from_utf8(page).ok()?.split_once(PASS)
    {
        let pass = state.passes.page(ViewerId::random(), now);
        let page = Bytes::from(format!("{start}{PASS}{pass}{end}"));
        response
            .headers
            .retain(|(name, _)| !["etag", "cache-control", "content-length"].contains(name));
        response = response
            .with("cache-control", "no-store")
            .with("content-length", page.len().to_string());
        response.body = Body::Bytes(page);
    }
    Some(response)
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
        ("content-security-policy", POLICY.into()),
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
