//! A small HTTP/1.1 server: an upstream to pull from, or an operator's hooks.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use media::flv;

use super::PATIENCE;
use crate::common::publisher::clip;

/// A request that the origin received.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    /// Names in lower case.
    pub fields: HashMap<String, String>,
    pub body: Vec<u8>,
}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    sockets: Mutex<Vec<TcpStream>>,
    open: AtomicUsize,
    stop: AtomicBool,
}

/// A server that answers in a thread per connection, one request each, until it is dropped.
pub struct Origin {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Origin {
    pub fn start(
        answer: impl Fn(&Request, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let shared: Arc<Shared> = Arc::default();
        let (state, answer) = (shared.clone(), Arc::new(answer));
        let thread = std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if state.stop.load(Ordering::Relaxed) {
                    return;
                }
                lock(&state.sockets).push(socket.try_clone().expect("cloned"));
                let (state, answer) = (state.clone(), answer.clone());
                std::thread::spawn(move || {
                    state.open.fetch_add(1, Ordering::Relaxed);
                    // A client that has gone away is no failure.
                    let _ = serve(socket, &state, &*answer);
                    state.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    /// One that sends the clip round and round, each frame in its time.
    pub fn of_clip() -> Self {
        Self::start(|_, socket| stream_clip(socket))
    }

    /// An origin with one answer for all requests.
    pub fn of_text(status: u16, field: &'static str, body: &'static [u8]) -> Self {
        Self::start(move |_, socket| respond(socket, status, field, body))
    }

    /// The URL of a path, which starts with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Received requests.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// Cuts off all connections.
    pub fn cut(&self) {
        for socket in lock(&self.shared.sockets).drain(..) {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        self.cut();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the origin failed");
        }
    }
}

fn serve(
    mut socket: TcpStream,
    state: &Shared,
    answer: &dyn Fn(&Request, &mut TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut input = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut fields = HashMap::new();
    loop {
        line.clear();
        input.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        fields.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = fields.get("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    input.read_exact(&mut body)?;
    let request = Request { path, fields, body };
    lock(&state.requests).push(request.clone());
    answer(&request, &mut socket)?;
    socket.shutdown(Shutdown::Both)
}

/// An answer that is known as a whole; `field` is a header field, `name: value`.
pub fn respond(socket: &mut TcpStream, status: u16, field: &str, body: &[u8]) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\n{field}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(&[head.as_bytes(), body].concat())
}

/// The head of an answer that ends with the connection.
pub fn respond_endless(socket: &mut TcpStream, kind: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 X\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    socket.write_all(head.as_bytes())
}

/// The clip as HTTP-FLV, round and round.
pub fn stream_clip(socket: &mut TcpStream) -> io::Result<()> {
    respond_endless(socket, "video/x-flv")?;
    socket.write_all(&flv::file_header(true, true))?;
    let (clip, start) = (clip(), Instant::now());
    let length = clip.last().map_or(0, media::Tag::timestamp) + 40;
    for round in 0.. {
        for tag in &clip {
            let time = tag.timestamp() + round * length;
            let due = Duration::from_millis(time.into());
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            socket.write_all(tag.clone().with_timestamp(time).bytes())?;
        }
    }
    Ok(())
}
