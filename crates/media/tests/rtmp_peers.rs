//! Interoperability of RTMP with ffmpeg, which publishes and plays, as client and as server, and
//! with librtmp, the origin of OBS's RTMP, as a client through curl.
//!
//! Loopback only, on ports chosen by the kernel. Tests without their program print a message and
//! pass.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mendcast_media::rtmp::{
    Client, ClientEvent, Config, Error, Event, Intent, Request, Server, Url,
};
use mendcast_media::{Kind, Role, Tag, flv};

/// Much longer than a test takes on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(40);
/// Two seconds of a test picture and a tone.
const SOURCE: &str = "-f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=frequency=440 \
    -t 2 -c:v libx264 -preset ultrafast -g 25 -pix_fmt yuv420p -c:a aac -f flv";

/// An external program, and the reader of its output.
struct Program {
    child: Child,
    output: Option<JoinHandle<Vec<u8>>>,
}

impl Program {
    /// Starts ffmpeg; `None`, with a message, if it is not installed.
    fn ffmpeg(arguments: &str) -> Option<Self> {
        Self::start(
            "ffmpeg",
            &format!("-nostdin -hide_banner -loglevel error {arguments}"),
            Vec::new(),
        )
    }

    /// Starts curl, if it supports RTMP through librtmp.
    fn curl(arguments: &str, input: Vec<u8>) -> Option<Self> {
        let version = Command::new("curl").arg("--version").output();
        let version = version.map(|output| output.stdout).unwrap_or_default();
        if !String::from_utf8_lossy(&version).contains("librtmp") {
            println!("SKIPPED: there is no curl with librtmp");
            return None;
        }
        Self::start("curl", &format!("--silent --show-error {arguments}"), input)
    }

    fn start(program: &str, arguments: &str, input: Vec<u8>) -> Option<Self> {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                println!("SKIPPED: {program} cannot be started: {error}");
                return None;
            }
        };
        // The comparison detects missing data of either side.
        if let Some(mut stdin) = child.stdin.take() {
            spawn(move || stdin.write_all(&input));
        }
        let output = child.stdout.take().map(|mut stdout| {
            spawn(move || {
                let mut bytes = Vec::new();
                let _ = stdout.read_to_end(&mut bytes);
                bytes
            })
        });
        Some(Self { child, output })
    }

    /// Returns the tags that the program wrote until its end.
    fn finish(mut self) -> Vec<Tag> {
        let start = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < TIMEOUT, "the program does not end");
            sleep(Duration::from_millis(20));
        }
        let body = self.output.take().expect("once").join().expect("no panic");
        let mut reader = flv::Reader::new(flv::MAX_PAYLOAD);
        reader.read(&body).expect("FLV");
        core::iter::from_fn(|| reader.next_tag()).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

trait Side {
    fn handle(&mut self, input: &[u8]) -> Result<(), Error>;
    fn poll_output(&mut self) -> Option<Bytes>;
}

impl Side for Server {
    fn handle(&mut self, input: &[u8]) -> Result<(), Error> {
        self.handle(input)
    }
    fn poll_output(&mut self) -> Option<Bytes> {
        self.poll_output()
    }
}

impl Side for Client {
    fn handle(&mut self, input: &[u8]) -> Result<(), Error> {
        self.handle(input)
    }
    fn poll_output(&mut self) -> Option<Bytes> {
        self.poll_output()
    }
}

/// Transfers bytes until the peer closes. Returns whether `step` has reported completion.
fn drive<S: Side>(
    mut socket: TcpStream,
    side: &mut S,
    mut step: impl FnMut(&mut S) -> bool,
) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
    let start = Instant::now();
    let mut input = vec![0; 16 << 10];
    let mut is_done = false;
    loop {
        assert!(start.elapsed() < TIMEOUT, "the session does not end");
        if !is_done {
            is_done = step(side);
            while let Some(bytes) = side.poll_output() {
                if let Err(error) = socket.write_all(&bytes) {
                    assert!(is_done, "{error}");
                }
            }
            if is_done {
                // The peer may already have closed the connection.
                let _ = socket.shutdown(Shutdown::Write);
            }
        }
        match socket.read(&mut input) {
            Ok(0) => break,
            Ok(_) if is_done => {}
            Ok(len) => side.handle(&input[..len]).expect("RTMP"),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // The peer closed without reading all acknowledgements.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            Err(e) => panic!("{e}"),
        }
    }
    is_done || step(side)
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let port = listener.local_addr().expect("bound").port();
    (listener, format!("rtmp://127.0.0.1:{port}/live/demo"))
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("a socket");
    let start = Instant::now();
    loop {
        if let Ok((socket, _)) = listener.accept() {
            socket.set_nonblocking(false).expect("a socket");
            return socket;
        }
        assert!(start.elapsed() < TIMEOUT, "nobody comes");
        sleep(Duration::from_millis(10));
    }
}

fn connect(url: &Url) -> TcpStream {
    let start = Instant::now();
    loop {
        if let Ok(socket) = TcpStream::connect((url.host.as_str(), url.port)) {
            return socket;
        }
        assert!(start.elapsed() < TIMEOUT, "nobody listens");
        sleep(Duration::from_millis(20));
    }
}

/// Receives the tags that a peer publishes to the server on this socket.
fn received(socket: TcpStream) -> (Request, Vec<Tag>) {
    let mut server = Server::new(Config::default(), &[7; 1_528]);
    let (mut request, mut tags, mut has_ended) = (None, Vec::new(), false);
    let is_done = drive(socket, &mut server, |server| {
        while let Some(event) = server.poll_event() {
            match event {
                Event::Publish(asked) => {
                    request = Some(asked);
                    server.accept();
                }
                Event::Tag(tag) => tags.push(tag),
                Event::Unpublish => has_ended = true,
                other => panic!("{other:?}"),
            }
        }
        has_ended
    });
    assert!(is_done, "FCUnpublish or deleteStream");
    (request.expect("a request"), tags)
}

/// Returns the tags that ffmpeg publishes to the server.
fn published() -> Option<Vec<Tag>> {
    let (listener, url) = listen();
    let _ffmpeg = Program::ffmpeg(&format!("{SOURCE} {url}?key=1"))?;
    let (request, tags) = received(accept(&listener));
    assert_eq!((&*request.app, &*request.stream, &*request.query), ("live", "demo", "key=1"));
    Some(tags)
}

/// Plays these tags from the server to a peer on this socket.
fn play(socket: TcpStream, tags: &[Tag]) {
    let mut server = Server::new(small_chunks(), &[7; 1_528]);
    let is_done = drive(socket, &mut server, |server| match server.poll_event() {
        Some(Event::Play(request)) => {
            assert_eq!((&*request.app, &*request.stream), ("live", "demo"));
            server.accept();
            tags.iter().for_each(|tag| server.send_tag(tag));
            server.end_of_stream();
            true
        }
        Some(other) => panic!("{other:?}"),
        None => false,
    });
    assert!(is_done);
}

/// Returns the same tags at times that require extended timestamps, at least for the first of each
/// kind.
fn later(tags: &[Tag]) -> Vec<Tag> {
    let later = |tag: &Tag| {
        let time = tag.timestamp() + 0x0123_4567;
        Tag::new(tag.kind(), time, &tag.payload()).expect("as long as before")
    };
    tags.iter().map(later).collect()
}

/// Chunks so small that even metadata and sequence headers need several.
fn small_chunks() -> Config {
    Config { chunk_size: 20, ..Config::default() }
}

fn roles(tags: &[Tag], role: Role) -> Vec<&Tag> {
    tags.iter().filter(|tag| tag.role() == role).collect()
}

/// Returns coded data, which must arrive unchanged, with its time since the first frame.
fn frames(tags: &[Tag], kind: Kind) -> Vec<(u32, Bytes)> {
    let is_frame = |tag: &&Tag| {
        let roles = [Role::KeyFrame, Role::InterFrame, Role::AudioFrame];
        tag.kind() == kind && roles.contains(&tag.role())
    };
    let frames: Vec<&Tag> = tags.iter().filter(is_frame).collect();
    let start = frames.first().map_or(0, |tag| tag.timestamp());
    frames.iter().map(|tag| (tag.timestamp() - start, tag.payload())).collect()
}

fn assert_same_media(got: &[Tag], expected: &[Tag]) {
    for kind in [Kind::Audio, Kind::Video] {
        let header = |tags: &[Tag]| {
            let headers = roles(tags, Role::SequenceHeader);
            headers.iter().find(|tag| tag.kind() == kind).map(|tag| tag.payload())
        };
        assert_eq!(header(got), header(expected), "{kind:?}");
        let (got, expected) = (frames(got, kind), frames(expected, kind));
        assert_eq!(got.len(), expected.len(), "{kind:?}");
        assert!(got == expected, "{kind:?} frames differ");
    }
}

fn assert_complete(tags: &[Tag]) {
    assert_eq!(tags[0].role(), Role::Metadata, "{:?}", &tags[..4]);
    let headers: Vec<_> = tags[1..3].iter().map(|tag| (tag.role(), tag.kind())).collect();
    assert!(headers.contains(&(Role::SequenceHeader, Kind::Video)), "{headers:?}");
    assert!(headers.contains(&(Role::SequenceHeader, Kind::Audio)), "{headers:?}");
    let keys: Vec<u32> = roles(tags, Role::KeyFrame).iter().map(|tag| tag.timestamp()).collect();
    // Video starts after the AAC encoder's priming samples.
    assert!(keys.len() == 2 && keys[0] < 100 && keys[1] - keys[0] == 1_000, "{keys:?}");
    assert_eq!(roles(tags, Role::InterFrame).len(), 48);
    assert!(roles(tags, Role::AudioFrame).len() > 80);
}

#[test]
fn ffmpeg_publishes_to_the_server() {
    if let Some(tags) = published() {
        assert_complete(&tags);
    }
}

#[test]
fn ffmpeg_plays_from_the_server() {
    let Some(tags) = published().map(|tags| later(&tags)) else { return };
    let (listener, url) = listen();
    let arguments = format!("-i {url} -c copy -f flv pipe:1");
    let Some(ffmpeg) = Program::ffmpeg(&arguments) else { return };
    play(accept(&listener), &tags);
    assert_same_media(&ffmpeg.finish(), &tags);
}

#[test]
fn librtmp_plays_from_the_server() {
    let Some(tags) = published().map(|tags| later(&tags)) else { return };
    let (listener, url) = listen();
    let Some(curl) = Program::curl(&url, Vec::new()) else { return };
    play(accept(&listener), &tags);
    assert_same_media(&curl.finish(), &tags);
}

#[test]
fn librtmp_publishes_to_the_server() {
    let Some(tags) = published().map(|tags| later(&tags)) else { return };
    let mut body = flv::file_header(true, true).to_vec();
    tags.iter().for_each(|tag| body.extend_from_slice(tag.bytes()));
    let (listener, url) = listen();
    let Some(_curl) = Program::curl(&format!("--upload-file - {url}"), body) else { return };
    let (request, got) = received(accept(&listener));
    assert_eq!((&*request.app, &*request.stream), ("live", "demo"));
    assert_same_media(&got, &tags);
}

#[test]
fn the_client_publishes_to_ffmpeg() {
    let Some(tags) = published().map(|tags| later(&tags)) else { return };
    let (listener, url) = listen();
    drop(listener);
    let arguments = format!("-listen 1 -i {url} -c copy -f flv pipe:1");
    let Some(ffmpeg) = Program::ffmpeg(&arguments) else { return };
    let url = Url::parse(&url).expect("our own URL");
    let socket = connect(&url);
    let mut client = Client::new(url, Intent::Publish, small_chunks(), &[7; 1_528]);
    let is_done = drive(socket, &mut client, |client| match client.poll_event() {
        Some(ClientEvent::Publishing) => {
            tags.iter().for_each(|tag| client.send_tag(tag));
            client.close();
            true
        }
        Some(other) => panic!("{other:?}"),
        None => false,
    });
    assert!(is_done);
    assert_same_media(&ffmpeg.finish(), &tags);
}

#[test]
fn the_client_plays_from_ffmpeg() {
    let (listener, url) = listen();
    drop(listener);
    let Some(_ffmpeg) = Program::ffmpeg(&format!("{SOURCE} -listen 1 {url}")) else { return };
    let url = Url::parse(&url).expect("our own URL");
    let socket = connect(&url);
    let mut client = Client::new(url, Intent::Play, Config::default(), &[7; 1_528]);
    let (mut is_playing, mut tags) = (false, Vec::new());
    // This server closes the connection without a message.
    drive(socket, &mut client, |client| {
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Playing => is_playing = true,
                ClientEvent::Tag(tag) => tags.push(tag),
                other => panic!("{other:?}"),
            }
        }
        false
    });
    assert!(is_playing);
    assert_complete(&tags);
}
