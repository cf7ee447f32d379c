//! Viewers: each receives a stream's tags in its own thread, over HTTP/1.1, 2, 3 or RTMP, and
//! records how the stream ended.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use media::rtmp::{Client, ClientEvent, Config, Intent, Url};
use media::{Tag, flv};
use socket2::{Domain, Socket, Type};
use tokio::sync::oneshot;

use super::http::{Answer, secure};
use super::http3::{Request, Windows, runtime};
use super::{PATIENCE, eventually, until};

/// How a stream ended for a viewer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// In the protocol's good form.
    Clean,
    /// Otherwise: the connection was lost, or something else came than should.
    Cut(String),
}

#[derive(Default)]
struct Seen {
    tags: Vec<Tag>,
    kinds: Option<(bool, bool)>,
    end: Option<End>,
}

/// A viewer that leaves when dropped.
pub struct Viewer {
    seen: Arc<Mutex<Seen>>,
    leave: Option<Box<dyn FnOnce() + Send>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether a viewer reads slowly now.
pub type Slow = Arc<AtomicBool>;

/// Bytes that a slow viewer reads at once, and its rest after that: 200 kB/s.
const SIP: usize = 10_000;
const REST: Duration = Duration::from_millis(50);
/// The receive buffer of a slow viewer's socket.
const SMALL_BUFFER: usize = 8_192;

/// A socket that is read slowly while that is wanted.
struct Sipped(TcpStream, Slow);

impl Read for Sipped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.1.load(Ordering::Relaxed) {
            return self.0.read(buffer);
        }
        std::thread::sleep(REST);
        let length = buffer.len().min(SIP);
        self.0.read(&mut buffer[..length])
    }
}

impl Write for Sipped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts the pieces of an FLV body together.
struct Body(flv::Reader, Arc<Mutex<Seen>>);

impl Body {
    fn new(seen: &Arc<Mutex<Seen>>) -> Self {
        Self(flv::Reader::new(flv::MAX_PAYLOAD), seen.clone())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.0.read(bytes).map_err(|e| e.to_string())?;
        let mut seen = lock(&self.1);
        seen.kinds = self.0.kinds();
        seen.tags.extend(std::iter::from_fn(|| self.0.next_tag()));
        Ok(())
    }
}

impl Viewer {
    /// Runs `watch` until it has seen the end.
    fn start(
        leave: impl FnOnce() + Send + 'static,
        watch: impl FnOnce(&Arc<Mutex<Seen>>) -> Result<(), String> + Send + 'static,
    ) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let shared = seen.clone();
        let thread = std::thread::spawn(move || {
            let end = watch(&shared).map_or_else(End::Cut, |()| End::Clean);
            lock(&shared).end = Some(end);
        });
        Self { seen, leave: Some(Box::new(leave)), thread: Some(thread) }
    }

    /// Watches `path` over HTTP/1.1.
    pub fn h1(address: SocketAddr, path: &str) -> Self {
        let socket = TcpStream::connect(address).expect("connected");
        Self::h1_on(socket, path, Slow::default())
    }

    /// The same with little room, and slowly while that is wanted.
    pub fn slow_h1(address: SocketAddr, path: &str, slow: &Slow) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        // Before the connection: the window follows from it.
        socket.set_recv_buffer_size(SMALL_BUFFER).expect("set");
        socket.connect(&address.into()).expect("connected");
        Self::h1_on(socket.into(), path, slow.clone())
    }

    fn h1_on(socket: TcpStream, path: &str, slow: Slow) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let (other, path) = (socket.try_clone().expect("cloned"), path.to_owned());
        // It may be over already.
        let leave = move || drop(other.shutdown(Shutdown::Both));
        Self::start(leave, move |seen| {
            let io = Box::new(secure(Sipped(socket, slow)));
            let mut answer = Answer::of(io, "GET", &path).map_err(|e| e.to_string())?;
            if answer.status != 200 {
                return Err(format!("status {}", answer.status));
            }
            let mut body = Body::new(seen);
            while let Some(piece) = answer.next().map_err(|e| e.to_string())? {
                body.take(&piece)?;
            }
            Ok(())
        })
    }

    /// Watches `path` over HTTP/2, with curl.
    pub fn h2(address: SocketAddr, path: &str) -> Self {
        let mut child = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--insecure", "--no-buffer", "--http2"])
            .arg(format!("https://{address}{path}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("curl");
        let mut output = child.stdout.take().expect("piped");
        let child = Arc::new(Mutex::new(child));
        let other = child.clone();
        let leave = move || drop(other.lock().expect("no panic there").kill());
        Self::start(leave, move |seen| {
            let mut body = Body::new(seen);
            let mut buffer = [0; 16_384];
            loop {
                match output.read(&mut buffer).map_err(|e| e.to_string())? {
                    0 => break,
                    length => body.take(&buffer[..length])?,
                }
            }
            let mut child = child.lock().expect("no panic there");
            let status = child.wait().map_err(|e| e.to_string())?;
            status.success().then_some(()).ok_or_else(|| format!("curl: {status}"))
        })
    }

    /// Watches `path` over HTTP/3.
    pub fn h3(address: SocketAddr, path: &str) -> Self {
        Self::h3_with(address, path, Windows::Usual, Slow::default())
    }

    /// The same with tiny windows, and slowly while that is wanted.
    pub fn slow_h3(address: SocketAddr, path: &str, slow: &Slow) -> Self {
        Self::h3_with(address, path, Windows::Tiny, slow.clone())
    }

    fn h3_with(address: SocketAddr, path: &str, windows: Windows, slow: Slow) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let path = path.to_owned();
        let leave = move || {
            // It may be over already.
            let _ = stop.send(());
        };
        Self::start(leave, move |seen| {
            runtime().block_on(async {
                let mut request = Request::send(address, "GET", &path, windows).await?;
                if request.status != 200 {
                    return Err(format!("status {}", request.status));
                }
                let (mut body, mut taken) = (Body::new(seen), 0);
                loop {
                    let data = tokio::select! {
                        data = request.next() => data?,
                        _ = &mut stopped => {
                            request.close().await;
                            return Err("left".into());
                        }
                    };
                    let Some(data) = data else { return Ok(()) };
                    body.take(&data)?;
                    taken += data.len();
                    if taken >= SIP && slow.load(Ordering::Relaxed) {
                        tokio::time::sleep(REST).await;
                    }
                    taken %= SIP;
                }
            })
        })
    }

    /// Plays `stream` over RTMP.
    pub fn rtmp(address: SocketAddr, stream: &str) -> Self {
        let mut socket = TcpStream::connect(address).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let other = socket.try_clone().expect("cloned");
        let url = Url::parse(&format!("rtmp://{address}/{stream}")).expect("a URL");
        // It may be over already.
        let leave = move || drop(other.shutdown(Shutdown::Both));
        Self::start(leave, move |seen| {
            let mut client = Client::new(url, Intent::Play, Config::default(), &[7; 1_528]);
            let mut buffer = vec![0; 65_536];
            loop {
                while let Some(bytes) = client.poll_output() {
                    socket.write_all(&bytes).map_err(|e| e.to_string())?;
                }
                match socket.read(&mut buffer).map_err(|e| e.to_string())? {
                    0 => return Err("closed".into()),
                    length => client.handle(&buffer[..length]).map_err(|e| e.to_string())?,
                }
                while let Some(event) = client.poll_event() {
                    match event {
                        ClientEvent::Tag(tag) => lock(seen).tags.push(tag),
                        ClientEvent::Refused(why) => return Err(format!("refused: {why}")),
                        ClientEvent::Ended => return Ok(()),
                        ClientEvent::Playing | ClientEvent::Publishing => {}
                    }
                }
            }
        })
    }

    /// Received tags.
    pub fn tags(&self) -> Vec<Tag> {
        lock(&self.seen).tags.clone()
    }

    /// The same frames with their times in the stream, which all viewers share.
    pub fn stream_frames(&self) -> Vec<Tag> {
        let base = self.tags().iter().find_map(flv::time_base).expect("the base of its times");
        let placed = |tag: Tag| {
            let time = base.wrapping_add(tag.timestamp());
            tag.with_timestamp(time)
        };
        self.frames().into_iter().map(placed).collect()
    }

    /// Received frames: all tags except headers.
    pub fn frames(&self) -> Vec<Tag> {
        self.tags().into_iter().filter(|tag| !tag.role().is_header()).collect()
    }

    /// Tracks announced by the FLV header: audio, video.
    pub fn kinds(&self) -> Option<(bool, bool)> {
        lock(&self.seen).kinds
    }

    /// Waits for this number of frames.
    pub fn wait_for_frames(&self, count: usize) {
        until(&format!("{count} frames"), || {
            if let Some(end) = self.has_ended() {
                panic!("{end:?} after {} frames of {count}", self.frames().len());
            }
            self.frames().len() >= count
        });
    }

    /// Waits for this number of additional frames.
    pub fn wait_for_more(&self, count: usize) {
        self.wait_for_frames(self.frames().len() + count);
    }

    /// How it ended, if it did.
    pub fn has_ended(&self) -> Option<End> {
        lock(&self.seen).end.clone()
    }

    /// Waits for the end.
    pub fn end(&self) -> End {
        eventually("the end of a stream", || self.has_ended())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        if let Some(leave) = self.leave.take() {
            leave();
        }
        if let Some(thread) = self.thread.take() {
            let watched = thread.join();
            assert!(watched.is_ok() || std::thread::panicking(), "the viewer failed");
        }
    }
}
