//! What a request is answered with, the same for HTTP/1.1, HTTP/2 and HTTP/3.
//!
//! A front turns its request into a [`RequestHead`], asks [`respond`], writes status and headers,
//! and then pulls the body through a [`Responder`] whenever its transport has room. Nothing is
//! pushed: a slow viewer costs no memory and no task.

pub mod tcp;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

use bytes::Bytes;

use crate::server::State;

/// A request without its body (RFC 9110, section 6).
#[derive(Clone, Debug)]
pub struct RequestHead<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// Path and query, as sent (percent-encoded).
    pub target: &'a str,
    /// The header fields, names in lower case.
    pub fields: Vec<(&'a str, &'a [u8])>,
}

impl<'a> RequestHead<'a> {
    /// The values of the fields called `name`, which is in lower case.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// The value of the field called `name` if there is exactly one such field and it is text.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        let mut values = self.values(name);
        let only = values.next().filter(|_| values.next().is_none())?;
        core::str::from_utf8(only).ok().map(str::trim)
    }
}

/// An answer: what every HTTP version writes, in its own form.
#[derive(Debug)]
pub struct Response {
    /// The status code, 200 to 599.
    pub status: u16,
    /// Header fields, names in lower case, values visible ASCII and spaces.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for HEAD, whatever `content-length` says.
    pub body: Body,
}

impl Response {
    /// An answer with `status` and a line of text that names it.
    pub fn plain(status: u16, now: SystemTime) -> Self {
        let text = match status {
            301 => "Moved Permanently",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            412 => "Precondition Failed",
            416 => "Range Not Satisfiable",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
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

    /// This answer with one more header field.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The value of the header field `name`, for tests and logs.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }
}

/// The body of a [`Response`].
#[derive(Debug)]
pub enum Body {
    /// No body.
    Empty,
    /// A body in memory, possibly shared with other responses.
    Bytes(Bytes),
    /// A part of a file.
    File {
        /// The open file.
        file: File,
        /// The first byte to send.
        offset: u64,
        /// The number of bytes to send.
        length: u64,
    },
}

/// Hands out a body as the transport has room for it.
#[derive(Debug)]
pub struct Responder(Body);

/// The most that one [`Responder::fill`] reads from a file.
pub const CHUNK: usize = 64 * 1024;

impl From<Body> for Responder {
    fn from(body: Body) -> Self {
        Self(body)
    }
}

impl Responder {
    /// The next bytes of the body, at least 1 and at most `room` (and at most [`CHUNK`] from a
    /// file); `None` at its end. With `room` 0 a body that is not at its end gives empty bytes.
    ///
    /// A file is read here and now: from the page cache this is a copy, and a chunk from a disk
    /// holds up the caller's loop for one read.
    ///
    /// # Errors
    /// The file cannot be read or has become shorter; the response has to be cut off.
    pub fn fill(&mut self, room: usize) -> io::Result<Option<Bytes>> {
        match &mut self.0 {
            Body::Empty => Ok(None),
            Body::Bytes(bytes) if bytes.is_empty() => Ok(None),
            Body::Bytes(bytes) => Ok(Some(bytes.split_to(room.min(bytes.len())))),
            Body::File { length: 0, .. } => Ok(None),
            Body::File { file, offset, length } => {
                let size = usize::try_from(*length).unwrap_or(usize::MAX).min(room).min(CHUNK);
                let mut chunk = vec![0; size];
                file.read_exact_at(&mut chunk, *offset)?;
                *offset += size as u64;
                *length -= size as u64;
                Ok(Some(chunk.into()))
            }
        }
    }

    /// The bytes that are still to come.
    pub fn remaining(&self) -> u64 {
        match &self.0 {
            Body::Empty => 0,
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File { length, .. } => *length,
        }
    }
}

/// Answers a request, whatever the HTTP version.
pub fn respond(state: &State, head: &RequestHead<'_>, now: SystemTime) -> Response {
    match &state.files {
        Some(files) => files.respond(head, now),
        None => Response::plain(404, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn drained(body: Body, room: usize) -> Vec<u8> {
        let mut responder = Responder::from(body);
        let mut all = Vec::new();
        while let Some(bytes) = responder.fill(room).expect("readable") {
            assert!(!bytes.is_empty() && bytes.len() <= room);
            all.extend_from_slice(&bytes);
        }
        assert_eq!(responder.remaining(), 0);
        all
    }

    #[test]
    fn a_body_comes_out_whole_in_pieces_of_any_size() {
        let content: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&content).expect("written");
        for room in [1_000, CHUNK, usize::MAX] {
            assert_eq!(drained(Body::Bytes(content.clone().into()), room), content);
            let file = file.try_clone().expect("duplicated");
            let part = Body::File { file, offset: 10, length: 150_000 };
            assert_eq!(drained(part, room), content[10..150_010]);
        }
        assert!(drained(Body::Empty, 1).is_empty());
    }

    #[test]
    fn a_body_waits_while_there_is_no_room() {
        let mut responder = Responder::from(Body::Bytes(Bytes::from_static(b"x")));
        assert_eq!(responder.fill(0).expect("readable"), Some(Bytes::new()));
        assert_eq!(responder.remaining(), 1);
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(10).expect("set");
        let mut responder = Responder::from(Body::File { file, offset: 0, length: 11 });
        let error = responder.fill(100).expect_err("one byte is missing");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_repeated_field_has_no_single_value() {
        let fields = vec![("range", b"a".as_slice()), ("range", b"b"), ("if-range", b" c ")];
        let head = RequestHead { method: "GET", target: "/", fields };
        assert_eq!(head.value("range"), None);
        assert_eq!(head.value("if-range"), Some("c"));
        assert_eq!(head.values("range").count(), 2);
    }
}
