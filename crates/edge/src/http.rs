//! Requests and responses, common to HTTP/1.1, HTTP/2 and HTTP/3.
//!
//! A front parses a request into a [`RequestHead`], calls [`routes`](crate::routes), writes status
//! and headers, and pulls the body through a [`Responder`] whenever its transport has room. A slow
//! viewer therefore costs no task, and at most a chunk of a file. Pending responses and bodies wake
//! a [`Context`], like futures.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::{Buf as _, Bytes};
use delivery::{Buffered, FlvStream, Piece};
use units::Rate;

use crate::cohorts::Cohort;
use crate::disk::body::FileBody;
use crate::io::TcpPath;
use crate::live::FlvBody;
use crate::sessions::{MAX_BEACON, Session};
use crate::viewer::{Protocol, Unit};

/// Path of player reports.
pub(crate) const BEACON: &str = "/beacon";

/// A request (RFC 9110, section 6).
#[derive(Clone, Debug)]
pub struct RequestHead<'a> {
    /// Method, as sent.
    pub method: &'a str,
    /// Requested host and port, of `:authority` or Host; empty if the request has none.
    pub authority: &'a str,
    /// Path and query, as sent (percent-encoded).
    pub target: &'a str,
    /// Header fields, names in lower case.
    pub fields: Vec<(&'a str, &'a [u8])>,
    /// Client address.
    pub remote: SocketAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// The viewer and its cohort, on transports with a recovery scheme.
    pub cohort: Option<(Unit, &'a Cohort)>,
    /// Delivery rate of the path, if known from this or an earlier connection.
    pub path_rate: Option<Rate>,
    /// Path statistics of a TCP connection.
    pub tcp: Option<&'a Arc<TcpPath>>,
    /// Body, if [`max_body`] permits one.
    pub body: &'a [u8],
}

impl<'a> RequestHead<'a> {
    /// Returns a request without authority, fields, body, and knowledge of its path.
    pub(crate) fn new(
        method: &'a str,
        target: &'a str,
        remote: SocketAddr,
        protocol: Protocol,
    ) -> Self {
        Self {
            method,
            authority: "",
            target,
            fields: Vec::new(),
            remote,
            protocol,
            cohort: None,
            path_rate: None,
            tcp: None,
            body: &[],
        }
    }

    /// Returns the target's path, without the query.
    pub fn path(&self) -> &'a str {
        path(self.target)
    }

    /// Returns the target's query, as sent; empty if there is none.
    pub fn query(&self) -> &'a str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// Returns the first value of the query's parameter `name`, as sent.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        parameter(self.query(), name)
    }

    /// Returns the values of the fields called `name` (lower case).
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// Returns the value of the field called `name`, if there is exactly one and it is UTF-8.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        let mut values = self.values(name);
        let only = values.next().filter(|_| values.next().is_none())?;
        core::str::from_utf8(only).ok().map(str::trim)
    }
}

fn path(target: &str) -> &str {
    target.split_once('?').map_or(target, |(path, _)| path)
}

/// Returns the maximum size of a request's body in bytes. Larger ones are rejected. With 0, the
/// body is not read.
pub(crate) fn max_body(method: &str, target: &str) -> usize {
    if method == "POST" && path(target) == BEACON { MAX_BEACON } else { 0 }
}

/// A response, independent of the HTTP version.
#[derive(Debug)]
pub struct Response {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Header fields: names in lower case, values of visible ASCII and spaces.
    pub headers: Vec<(&'static str, String)>,
    /// Body. Empty for HEAD, whatever `content-length` is.
    pub body: Body,
}

impl Response {
    /// Creates a response with `status` and its name as text.
    pub fn plain(status: u16, now: SystemTime) -> Self {
        let text = match status {
            301 => "Moved Permanently",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            413 => "Content Too Large",
            412 => "Precondition Failed",
            429 => "Too Many Requests",
            416 => "Range Not Satisfiable",
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            508 => "Loop Detected",
            _ => "Internal Server Error",
        };
        Self::text(status, text, now)
    }

    /// Creates a response with `status` and a line of text.
    pub fn text(status: u16, text: &str, now: SystemTime) -> Self {
        let body = Bytes::from(format!("{status} {text}\n"));
        Self {
            status,
            headers: vec![
                ("date", httpdate::fmt_http_date(now)),
                ("content-type", "text/plain; charset=utf-8".into()),
                ("content-length", body.len().to_string()),
            ],
            body: Body::Bytes(body),
        }
    }

    /// Adds a header field.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Removes the body if `method` is HEAD (RFC 9110, section 9.3.2: "the server MUST NOT send
    /// content in the response"). The fields are kept.
    pub fn for_method(mut self, method: &str) -> Self {
        if method == "HEAD" {
            self.body = Body::Empty;
        }
        self
    }

    /// Returns the value of the header field `name`.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }
}

/// Body of a [`Response`].
#[derive(Debug)]
pub enum Body {
    /// No body.
    Empty,
    /// Data in memory, possibly shared with other responses.
    Bytes(Bytes),
    /// A part of a file.
    File(FileBody),
    /// A part of a recording.
    Recorded {
        /// The part.
        file: FileBody,
        /// Session of the viewer, if known.
        session: Option<Arc<Session>>,
    },
    /// Consecutive parts of a media segment.
    Parts {
        /// The parts.
        parts: VecDeque<Bytes>,
        /// Session of the viewer, if known.
        session: Option<Arc<Session>>,
        /// Slack of the player, by the playlist.
        slack: Option<Duration>,
    },
    /// A live stream as FLV.
    Flv(Box<FlvBody>),
}

/// Hands out a body whenever the transport has room.
#[derive(Debug)]
pub struct Responder(Body);

impl From<Body> for Responder {
    fn from(body: Body) -> Self {
        Self(body)
    }
}

impl delivery::Body for Responder {
    /// Pending while a live body waits for its publisher, or a file for the disk. Fails if a file
    /// cannot be read or has become shorter, or a segment's viewer was kicked or banned.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Piece>>> {
        let shared = match &mut self.0 {
            Body::Empty => None,
            Body::Bytes(bytes) => Some(core::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Body::File(body) => ready!(body.poll_next(context))?,
            Body::Recorded { file, session } => {
                check_stay(session.as_deref(), context)?;
                ready!(file.poll_next(context))?
            }
            Body::Parts { parts, session, .. } => {
                check_stay(session.as_deref(), context)?;
                parts.pop_front()
            }
            Body::Flv(body) => return body.poll_next(context).map(Ok),
        };
        Poll::Ready(Ok(shared.map(|shared| Bytes::new().chain(shared))))
    }

    fn live(&self) -> Option<&FlvStream> {
        self.flv().map(FlvBody::stream)
    }

    fn slack(&self) -> Option<Duration> {
        let Body::Parts { session, slack, .. } = &self.0 else { return None };
        let buffered = session.as_ref().and_then(|session| session.buffered());
        slack.map(|slack| buffered.map_or(slack, |has| slack.min(has.media)))
    }

    fn is_over(&self) -> bool {
        self.session().is_some_and(|session| session.stay().is_over())
    }

    fn buffered(&self) -> Option<Buffered> {
        self.flv()?.session().buffered()
    }

    fn on_path_rate(&mut self, rate: Rate) {
        if let Body::Flv(body) = &mut self.0 {
            body.on_path_rate(rate);
        }
    }

    fn on_first_frame(&mut self) {
        if let Some(session) = self.session() {
            session.on_first_frame();
        }
    }
}

/// Fails once the viewer may no longer stay. The length was announced, so a body can only be cut
/// off.
fn check_stay(session: Option<&Session>, context: &mut Context<'_>) -> io::Result<()> {
    let is_over = session.is_some_and(|session| session.stay().poll_over(context).is_ready());
    if is_over { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
}

impl Responder {
    fn flv(&self) -> Option<&FlvBody> {
        match &self.0 {
            Body::Flv(body) => Some(body),
            _ => None,
        }
    }

    /// Returns the number of remaining bytes, if known.
    pub fn remaining(&self) -> Option<u64> {
        match &self.0 {
            Body::Empty => Some(0),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::File(body) | Body::Recorded { file: body, .. } => Some(body.remaining()),
            Body::Parts { parts, .. } => Some(parts.iter().map(|part| part.len() as u64).sum()),
            Body::Flv(_) => None,
        }
    }

    /// Returns the pieces in memory.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        let (one, parts) = match &self.0 {
            Body::Bytes(bytes) => (Some(bytes), None),
            Body::Parts { parts, .. } => (None, Some(parts)),
            _ => (None, None),
        };
        one.into_iter().chain(parts.into_iter().flatten())
    }

    /// Returns the session of the viewer, if the body is media.
    pub fn session(&self) -> Option<&Arc<Session>> {
        match &self.0 {
            Body::Flv(body) => Some(body.session()),
            Body::Parts { session, .. } | Body::Recorded { session, .. } => session.as_ref(),
            _ => None,
        }
    }
}

/// A response, possibly pending.
pub enum Answer {
    /// Available.
    Now(Response),
    /// Pending.
    Later(Pin<Box<dyn Future<Output = Response> + Send>>),
}

impl Answer {
    /// As [`Response::for_method`].
    pub fn for_method(self, method: &str) -> Self {
        match self {
            Self::Later(response) if method == "HEAD" => {
                Self::Later(Box::pin(async { response.await.for_method("HEAD") }))
            }
            Self::Now(response) => Self::Now(response.for_method(method)),
            later => later,
        }
    }
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Now(response)
    }
}

/// Returns the value of the parameter `name` in a query.
pub(crate) fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::disk::pool::Pool;
    use bytes::BufMut as _;
    use delivery::Body as _;
    use std::fs::File;
    use std::io::Write;

    fn part_of(file: File, offset: u64, length: u64) -> Body {
        let pool = Arc::new(Pool::start().expect("started"));
        Body::File(FileBody::new(file, offset, length, pool))
    }

    fn fill(responder: &mut Responder) -> io::Result<Option<Piece>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("made");
        runtime.block_on(core::future::poll_fn(|context| responder.poll_fill(context)))
    }

    pub(crate) fn drained(body: Body) -> Vec<u8> {
        let mut responder = Responder::from(body);
        let mut all = Vec::new();
        while let Some(piece) = fill(&mut responder).expect("readable") {
            assert!(piece.has_remaining());
            all.put(piece);
        }
        assert_eq!(responder.remaining(), Some(0));
        all
    }

    #[test]
    fn bodies_are_complete() {
        let content: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&content).expect("written");
        assert_eq!(drained(Body::Bytes(content.clone().into())), content);
        assert_eq!(drained(part_of(file, 10, 150_000)), content[10..150_010]);
        assert!(drained(Body::Empty).is_empty());
    }

    #[test]
    fn truncated_files_are_errors() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(10).expect("set");
        let mut responder = Responder::from(part_of(file, 0, 11));
        let error = fill(&mut responder).expect_err("one byte is missing");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn parses_path_parameters_and_fields() {
        let fields = vec![("range", b"a".as_slice()), ("range", b"b"), ("if-range", b" c ")];
        let remote = ([127, 0, 0, 1], 1).into();
        let target = "/live/a.flv?x=1&viewer=7";
        let head =
            RequestHead { fields, ..RequestHead::new("GET", target, remote, Protocol::Http3) };
        assert_eq!((head.path(), head.parameter("viewer")), ("/live/a.flv", Some("7")));
        assert_eq!(head.parameter("y"), None);
        assert_eq!(head.value("range"), None);
        assert_eq!(head.value("if-range"), Some("c"));
        assert_eq!(head.values("range").count(), 2);
    }
}
