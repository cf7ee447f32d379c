//! Static files over HTTP: methods, validators, conditions and ranges by RFC 9110, cache headers by
//! RFC 9111.
//!
//! A request path becomes a path below the root, or is rejected. Nothing outside the root is
//! opened, not even through a symbolic link. Small files are cached and shared by all viewers.
//! Threads of a pool access the disk.

mod cache;
mod conditions;

use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use crate::disk::body::FileBody;
use crate::disk::pool::Pool;
use crate::http::{Answer, Body, RequestHead, Response};
use crate::sync::lock;
use crate::viewer::Protocol;
use cache::Cache;
use conditions::{ResponseKind, Validators};

/// The files below a directory.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    cache_control: String,
    cache: Mutex<Cache>,
    pool: Arc<Pool>,
    /// Folders with an `index.html` at startup: `/`, and folders of virtual hosts.
    indexed: Vec<String>,
}

impl Files {
    /// Serves the files below `root` with the Cache-Control header `cache_control`. Caches up to
    /// `memory` bytes of small files. `hosts` have folders of their own.
    ///
    /// # Errors
    /// If `root` is not a readable directory, or a thread cannot be started.
    pub fn new(
        root: &Path,
        cache_control: &str,
        memory: usize,
        hosts: &[config::Host],
    ) -> io::Result<Self> {
        let root = root.canonicalize()?;
        std::fs::read_dir(&root)?;
        let cache = Mutex::new(Cache::new(memory));
        let pool = Arc::new(Pool::start()?);
        let folders = hosts.iter().map(|host| format!("/{}/", host.prefix)).chain(["/".to_owned()]);
        let has_index = |folder: &String| root.join(&folder[1..]).join("index.html").is_file();
        let indexed = folders.filter(has_index).collect();
        Ok(Self { root, cache_control: cache_control.to_owned(), cache, pool, indexed })
    }

    /// Whether `folder`, of the root or a virtual host, had an `index.html` at startup.
    pub fn has_index(&self, folder: &str) -> bool {
        self.indexed.iter().any(|indexed| indexed == folder)
    }

    /// Answers a request at `now`, once the disk has been read.
    pub fn answer(self: &Arc<Self>, head: &RequestHead<'_>, now: SystemTime) -> Answer {
        let (head, files) = (OwnedHead::new(head), self.clone());
        let response = self.pool.run(move || files.respond(&head.borrowed(), now));
        Answer::Later(Box::pin(async move {
            response.await.unwrap_or_else(|_| Response::plain(500, now))
        }))
    }

    /// Answers a request at `now`. Blocks while the disk is read.
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
        let requested: PathBuf = names.iter().collect();
        let mut path = self.root.join(requested).canonicalize().map_err(|e| error_status(&e))?;
        if path.starts_with(&self.root) && path.is_dir() {
            if !wants_directory {
                return Ok(Response::plain(301, now).with("location", location(&names, query)?));
            }
            path = path.join("index.html").canonicalize().map_err(|e| error_status(&e))?;
        } else if wants_directory {
            return Err(404);
        }
        // Links must stay within the root.
        if !path.starts_with(&self.root) {
            return Err(404);
        }
        let metadata = path.metadata().map_err(|e| error_status(&e))?;
        // Opening a pipe or device can block or have side effects.
        if !metadata.is_file() {
            return Err(404);
        }
        let modified = metadata.modified().map_err(|e| error_status(&e))?;
        let (length, content) = self.open(&path, modified, metadata.len())?;
        let found = FoundFile {
            content,
            length,
            modified,
            content_type: content_type(&path),
            cache_control: &self.cache_control,
        };
        Ok(found.respond(head, get, now, &self.pool))
    }

    /// Returns the file's length and content, from the cache if it is unchanged.
    fn open(&self, path: &Path, modified: SystemTime, len: u64) -> Result<(u64, FileContent), u16> {
        let cached = self.lock().get(path, modified, len);
        if let Some(bytes) = cached {
            return Ok((len, FileContent::Bytes(bytes)));
        }
        let file = File::open(path).map_err(|e| error_status(&e))?;
        let small = usize::try_from(len).ok().filter(|&len| self.lock().accepts(len));
        let Some(size) = small else { return Ok((len, FileContent::File(file))) };
        let mut content = vec![0; size];
        file.read_exact_at(&mut content, 0).map_err(|e| error_status(&e))?;
        let bytes = Bytes::from(content);
        self.lock().put(path, modified, bytes.clone());
        Ok((len, FileContent::Bytes(bytes)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        lock(&self.cache)
    }
}

/// A request for another thread.
#[derive(Clone, Debug)]
pub(crate) struct OwnedHead {
    method: String,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
    remote: SocketAddr,
    protocol: Protocol,
}

impl OwnedHead {
    /// Copies a request, without authority, body and properties of its connection.
    pub(crate) fn new(head: &RequestHead<'_>) -> Self {
        let fields = head.fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        Self {
            method: head.method.to_owned(),
            target: head.target.to_owned(),
            fields: fields.collect(),
            remote: head.remote,
            protocol: head.protocol,
        }
    }

    pub(crate) fn borrowed(&self) -> RequestHead<'_> {
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        RequestHead {
            fields: fields.collect(),
            ..RequestHead::new(&self.method, &self.target, self.remote, self.protocol)
        }
    }
}

/// A file that a request asks for.
struct FoundFile<'a> {
    content: FileContent,
    length: u64,
    modified: SystemTime,
    content_type: &'static str,
    cache_control: &'a str,
}

impl FoundFile<'_> {
    /// Returns the response by the request's conditions and range. `get` tells whether the method
    /// is GET.
    fn respond(
        self,
        head: &RequestHead<'_>,
        get: bool,
        now: SystemTime,
        pool: &Arc<Pool>,
    ) -> Response {
        let Self { content, length, .. } = self;
        let validators = Validators::new(self.modified, length, now);
        let outcome = conditions::evaluate(head, &validators, length, get);

        let mut response = match outcome {
            ResponseKind::Failed => return Response::plain(412, now),
            ResponseKind::Unsatisfiable => {
                let range = format!("bytes */{length}");
                return Response::plain(416, now).with("content-range", range);
            }
            // RFC 9110, section 15.4.5: validators and Cache-Control, but no content.
            ResponseKind::NotModified => {
                let headers = vec![("date", httpdate::fmt_http_date(now))];
                Response { status: 304, headers, body: Body::Empty }
            }
            ResponseKind::Whole | ResponseKind::Part { .. } => {
                let (status, start, len) = match outcome {
                    ResponseKind::Part { start, length } => (206, start, length),
                    _ => (200, 0, length),
                };
                let headers = vec![
                    ("date", httpdate::fmt_http_date(now)),
                    ("content-type", self.content_type.into()),
                    ("content-length", len.to_string()),
                    ("accept-ranges", "bytes".into()),
                    ("x-content-type-options", "nosniff".into()),
                ];
                let body = content.part(start, len, pool);
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
        response.headers.push(("cache-control", self.cache_control.to_owned()));
        response
    }
}

/// Answers a GET or HEAD request for the file at `path`, which is not a link, with the
/// Cache-Control header `cache_control`. Blocks while the disk is read; `pool` reads the body.
pub(crate) fn respond_with(
    path: &Path,
    cache_control: &str,
    head: &RequestHead<'_>,
    now: SystemTime,
    pool: &Arc<Pool>,
) -> Response {
    let opened = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path);
    let found = opened.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    let (file, metadata) = match found {
        Ok(found) => found,
        Err(error) => return Response::plain(error_status(&error), now),
    };
    let Some(modified) = metadata.modified().ok().filter(|_| metadata.is_file()) else {
        return Response::plain(404, now);
    };
    let found = FoundFile {
        content: FileContent::File(file),
        length: metadata.len(),
        modified,
        content_type: content_type(path),
        cache_control,
    };
    found.respond(head, head.method == "GET", now, pool).for_method(head.method)
}

enum FileContent {
    Bytes(Bytes),
    File(File),
}

impl FileContent {
    /// Returns `length` bytes from `start`, which must lie within the content.
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

/// Returns the decoded path segments of `target` (RFC 3986, section 3.3).
///
/// # Errors
/// Status 400 if it is not a path or leaves the root, 404 for hidden names.
fn segments(target: &str) -> Result<Vec<String>, u16> {
    let path = target.strip_prefix('/').ok_or(400u16)?;
    let mut names = Vec::new();
    for segment in path.split('/') {
        let name = percent_decoded(segment).ok_or(400u16)?;
        match name.as_str() {
            "" | "." => continue,
            ".." => return Err(400),
            // Hidden files (.git, .htpasswd) are private, except RFC 8615's directory.
            hidden if hidden.starts_with('.') && hidden != ".well-known" => return Err(404),
            _ if name.contains(['/', '\0']) => return Err(400),
            _ => names.push(name),
        }
    }
    Ok(names)
}

/// Decodes percent-encoding. Returns `None` if it is malformed or the result is not UTF-8.
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

/// Returns the redirect of a directory requested without its slash, relative to the request: a
/// virtual host's client does not know the path's start. It is built from the decoded name, so that
/// no request can make it point to another host. 404 for the root, which has a slash.
fn location(names: &[String], query: Option<&str>) -> Result<String, u16> {
    let mut out = String::new();
    for byte in names.last().ok_or(404u16)?.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out.push('/');
    if let Some(query) = query.filter(|q| q.bytes().all(|b| b.is_ascii_graphic())) {
        out.push('?');
        out.push_str(query);
    }
    Ok(out)
}

/// Returns the status for a file that cannot be opened or read.
fn error_status(error: &io::Error) -> u16 {
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

/// Returns the media type for the extension of `path`.
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
