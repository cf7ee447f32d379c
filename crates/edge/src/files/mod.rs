//! Static files over HTTP: RFC 9110 for methods, validators, conditions and ranges, RFC 9111 for
//! the cache headers.
//!
//! A request path becomes a path below the root or a refusal; nothing outside the root is ever
//! opened, also not through a symbolic link. Small files stay in memory so that all viewers share
//! one copy of a hot one. Whatever asks the disk is done by a few threads of its own.

mod cache;
mod conditions;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;

use crate::disk::body::FileBody;
use crate::disk::pool::Pool;
use crate::http::{Answer, Body, RequestHead, Response};
use crate::sync::lock;
use cache::Cache;
use conditions::{Outcome, Validators};

/// The files below one directory.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    cache_control: String,
    cache: Mutex<Cache>,
    pool: Arc<Pool>,
    has_index: bool,
}

impl Files {
    /// Serves the files below `root` with `cache_control` as their `Cache-Control`, and keeps up
    /// to `memory` bytes of small files in memory.
    ///
    /// # Errors
    /// `root` is no directory or cannot be read, or a thread cannot be started.
    pub fn new(root: &Path, cache_control: &str, memory: usize) -> io::Result<Self> {
        let root = root.canonicalize()?;
        std::fs::read_dir(&root)?;
        let cache = Mutex::new(Cache::new(memory));
        let pool = Arc::new(Pool::start()?);
        let has_index = root.join("index.html").is_file();
        Ok(Self { root, cache_control: cache_control.to_owned(), cache, pool, has_index })
    }

    /// Whether there was a first page of the operator's own at the start.
    pub fn has_index(&self) -> bool {
        self.has_index
    }

    /// Answers a request of the time `now`, as soon as the disk has.
    pub fn answer(self: &Arc<Self>, head: &RequestHead<'_>, now: SystemTime) -> Answer {
        let (method, target) = (head.method.to_owned(), head.target.to_owned());
        let fields = head.fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        let fields: Vec<(String, Vec<u8>)> = fields.collect();
        let (remote, protocol, files) = (head.remote, head.protocol, self.clone());
        let response = self.pool.run(move || {
            let (method, target) = (method.as_str(), target.as_str());
            let fields = fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            let fields = fields.collect();
            let (cohort, body) = (None, &[][..]);
            let head =
                RequestHead { method, target, fields, remote, protocol, cohort, tcp: None, body };
            files.respond(&head, now)
        });
        Answer::Later(Box::pin(async move {
            response.await.unwrap_or_else(|_| Response::plain(500, now))
        }))
    }

    /// Answers a request of the time `now`; this may take as long as the disk likes.
    fn respond(&self, head: &RequestHead<'_>, now: SystemTime) -> Response {
        let get = match head.method {
            "GET" => true,
            "HEAD" => false,
            // RFC 9110, section 15.5.6: a 405 MUST carry Allow.
            _ => return Response::plain(405, now).with("allow", "GET, HEAD"),
        };
        let mut response =
            self.get(head, get, now).unwrap_or_else(|status| Response::plain(status, now));
        if !get {
            // RFC 9110, section 9.3.2: as GET, but without content.
            response.body = Body::Empty;
        }
        response
    }

    fn get(&self, head: &RequestHead<'_>, get: bool, now: SystemTime) -> Result<Response, u16> {
        let (target, query) = match head.target.split_once('?') {
            Some((target, query)) => (target, Some(query)),
            None => (head.target, None),
        };
        let names = segments(target)?;
        let wants_directory = target.ends_with('/');
        let asked: PathBuf = names.iter().collect();
        let mut path = self.root.join(asked).canonicalize().map_err(|e| refusal(&e))?;
        if path.starts_with(&self.root) && path.is_dir() {
            if !wants_directory {
                return Ok(Response::plain(301, now).with("location", location(&names, query)));
            }
            path = path.join("index.html").canonicalize().map_err(|e| refusal(&e))?;
        } else if wants_directory {
            return Err(404);
        }
        // Links may point anywhere within the root, and nowhere else.
        if !path.starts_with(&self.root) {
            return Err(404);
        }
        let metadata = path.metadata().map_err(|e| refusal(&e))?;
        // Opening a pipe or a device would block or worse.
        if !metadata.is_file() {
            return Err(404);
        }
        let modified = metadata.modified().map_err(|e| refusal(&e))?;
        let (length, content) = self.open(&path, modified, metadata.len())?;
        let validators = Validators::new(modified, length, now);
        let outcome = conditions::evaluate(head, &validators, length, get);

        let mut response = match outcome {
            Outcome::Failed => return Ok(Response::plain(412, now)),
            Outcome::Unsatisfiable => {
                let range = format!("bytes */{length}");
                return Ok(Response::plain(416, now).with("content-range", range));
            }
            // RFC 9110, section 15.4.5: no content, but the validators and Cache-Control.
            Outcome::NotModified => {
                let headers = vec![("date", httpdate::fmt_http_date(now))];
                Response { status: 304, headers, body: Body::Empty }
            }
            Outcome::Whole | Outcome::Part { .. } => {
                let (status, start, len) = match outcome {
                    Outcome::Part { start, length } => (206, start, length),
                    _ => (200, 0, length),
                };
                let headers = vec![
                    ("date", httpdate::fmt_http_date(now)),
                    ("content-type", content_type(&path).into()),
                    ("content-length", len.to_string()),
                    ("accept-ranges", "bytes".into()),
                    ("x-content-type-options", "nosniff".into()),
                ];
                let body = content.part(start, len, &self.pool);
                let response = Response { status, headers, body };
                if status == 206 {
                    let range = format!("bytes {start}-{}/{length}", start + len - 1);
                    response.with("content-range", range)
                } else {
                    response
                }
            }
        };
        response.headers.push(("etag", validators.etag));
        response.headers.push(("last-modified", httpdate::fmt_http_date(validators.modified)));
        response.headers.push(("cache-control", self.cache_control.clone()));
        Ok(response)
    }

    /// The file's length and content, from memory if it is there and still the same.
    fn open(&self, path: &Path, modified: SystemTime, len: u64) -> Result<(u64, Content), u16> {
        let cached = self.lock().get(path, modified, len);
        if let Some(bytes) = cached {
            return Ok((len, Content::Bytes(bytes)));
        }
        let file = File::open(path).map_err(|e| refusal(&e))?;
        let small = usize::try_from(len).ok().filter(|&len| self.lock().takes(len));
        let Some(size) = small else { return Ok((len, Content::File(file))) };
        let mut content = vec![0; size];
        file.read_exact_at(&mut content, 0).map_err(|e| refusal(&e))?;
        let bytes = Bytes::from(content);
        self.lock().put(path, modified, bytes.clone());
        Ok((len, Content::Bytes(bytes)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        lock(&self.cache)
    }
}

enum Content {
    Bytes(Bytes),
    File(File),
}

impl Content {
    /// The part of `length` bytes from `start`, which lies within the content.
    fn part(self, start: u64, length: u64, pool: &Arc<Pool>) -> Body {
        match self {
            Self::Bytes(bytes) => {
                let start = start as usize;
                Body::Bytes(bytes.slice(start..start + length as usize))
            }
            Self::File(file) => Body::File(FileBody::new(file, start, length, pool.clone())),
        }
    }
}

/// The decoded names on the way from the root to `target` (RFC 3986, section 3.3).
///
/// # Errors
/// 400 for what is no path, or tries to leave the root; 404 for names that are never served.
fn segments(target: &str) -> Result<Vec<String>, u16> {
    let path = target.strip_prefix('/').ok_or(400u16)?;
    let mut names = Vec::new();
    for segment in path.split('/') {
        let name = percent_decoded(segment).ok_or(400u16)?;
        match name.as_str() {
            "" | "." => continue,
            ".." => return Err(400),
            // A hidden file is seldom meant for viewers (.git, .htpasswd); RFC 8615 has the one
            // exception.
            hidden if hidden.starts_with('.') && hidden != ".well-known" => return Err(404),
            _ if name.contains(['/', '\0']) => return Err(400),
            _ => names.push(name),
        }
    }
    Ok(names)
}

/// `segment` without percent-encoding; `None` if that is broken or gives no UTF-8.
fn percent_decoded(segment: &str) -> Option<String> {
    let mut out = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            out.push((digit()? * 16 + digit()?) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// Where a directory that was asked for without its slash is: built from the decoded names, so
/// that no request can make it point to another host.
fn location(names: &[String], query: Option<&str>) -> String {
    let mut out = String::from("/");
    for name in names {
        for byte in name.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    out.push(char::from(byte));
                }
                _ => out.push_str(&format!("%{byte:02X}")),
            }
        }
        out.push('/');
    }
    if let Some(query) = query.filter(|q| q.bytes().all(|b| b.is_ascii_graphic())) {
        out.push('?');
        out.push_str(query);
    }
    out
}

/// The status for a file that cannot be opened or read.
fn refusal(error: &io::Error) -> u16 {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound, PermissionDenied};
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ELOOP: i32 = 40;
    match (error.kind(), error.raw_os_error()) {
        (NotFound | NotADirectory | InvalidFilename, _) | (_, Some(ELOOP)) => 404,
        (PermissionDenied, _) => 403,
        (_, Some(ENFILE | EMFILE)) => 503,
        _ => 500,
    }
}

/// The media type for the extension of `path`.
pub(crate) fn content_type(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" | "md" | "log" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "json" | "map" => "application/json",
        "xml" => "application/xml",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "flv" => "video/x-flv",
        "mp4" | "m4v" | "cmfv" => "video/mp4",
        "m4s" => "video/iso.segment",
        "m4a" | "cmfa" => "audio/mp4",
        "ts" => "video/mp2t",
        "webm" => "video/webm",
        "mkv" => "video/x-matroska",
        "mp3" => "audio/mpeg",
        "aac" => "audio/aac",
        "ogg" | "opus" => "audio/ogg",
        "wav" => "audio/wav",
        "m3u8" => "application/vnd.apple.mpegurl",
        "mpd" => "application/dash+xml",
        "vtt" => "text/vtt; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests;
