//! Publisher: a thread that sends the streams to a contestant in real time.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use media::Tag;
use media::flv::file_header;
use media::rtmp::{Client, ClientEvent, Intent, Url};
use rustix::net::{RecvFlags, recv};

use super::media::{GROUP, Streams, TagSource};
use crate::Failure;

/// Publish key.
pub(super) const KEY: &str = "bench";
/// Number of segments in a playlist.
const SEGMENTS: u64 = 5;
const CLOSED: &str = "the server closed the connection";

/// Ingest of a contestant.
#[derive(Clone, Debug)]
pub(super) enum Ingest {
    /// RTMP, as `live/NAME`.
    Rtmp(SocketAddr),
    /// A line with the name, and an endless FLV file, over TCP.
    Flv(SocketAddr),
    /// Media over QUIC, by another program.
    Moq(SocketAddr),
    /// Segments and a playlist in a directory. The segments are FLV; a file server does not care.
    Directory(PathBuf),
}

/// Publishes until dropped.
pub(super) struct Publisher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Publisher {
    /// Publishes the stream of 2 Mbps as `bench`.
    pub(super) fn start(ingest: &Ingest) -> Result<Self, Failure> {
        Self::start_with(ingest, TagSource::new())
    }

    pub(super) fn start_with(ingest: &Ingest, source: TagSource) -> Result<Self, Failure> {
        Ok(Self::feed(vec![Sink::open(ingest, "bench")?], Streams::single(source)))
    }

    /// Publishes the streams as `bench0`, `bench1` and so on.
    pub(super) fn start_many(ingest: &Ingest, streams: Streams) -> Result<Self, Failure> {
        let sinks = (0..streams.len()).map(|stream| Sink::open(ingest, &format!("bench{stream}")));
        Ok(Self::feed(sinks.collect::<Result<_, _>>()?, streams))
    }

    fn feed(mut sinks: Vec<Sink>, mut streams: Streams) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            for sink in &mut sinks {
                sink.put(&TagSource::headers(), false)?;
            }
            while !stopped.load(Ordering::Relaxed) {
                let (stream, due) = streams.due();
                std::thread::sleep((start + due).saturating_duration_since(Instant::now()));
                let (tag, is_key) = streams.next(stream);
                sinks[stream].put(&[tag], is_key)?;
            }
            Ok(())
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// One line: the contestant did not take all of it.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result.map_err(|e| format!("publisher: {e}").into()),
            _ => Err("the publisher failed".into()),
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

enum Sink {
    Rtmp { stream: TcpStream, client: Box<Client>, tags: u64 },
    Flv(TcpStream),
    Directory { path: PathBuf, segment: Vec<u8>, number: u64 },
}

impl Sink {
    fn open(ingest: &Ingest, name: &str) -> Result<Self, Failure> {
        let connect = |address: SocketAddr| {
            let stream = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
            stream.set_nodelay(true)?;
            Ok::<_, Failure>(stream)
        };
        Ok(match ingest {
            Ingest::Rtmp(address) => {
                let mut stream = connect(*address)?;
                let url = format!("rtmp://{address}/live/{name}?key={KEY}");
                let url = Url::parse(&url)?;
                let mut client =
                    Box::new(Client::new(url, Intent::Publish, Default::default(), &[7; 1_528]));
                loop {
                    flush(&mut client, &mut stream)?;
                    match client.poll_event() {
                        Some(ClientEvent::Publishing) => break,
                        Some(ClientEvent::Refused(reason)) => return Err(reason.into()),
                        Some(_) => {}
                        None => {
                            let mut input = [0; 4_096];
                            match stream.read(&mut input)? {
                                0 => return Err(CLOSED.into()),
                                read => client.handle(&input[..read])?,
                            }
                        }
                    }
                }
                Self::Rtmp { stream, client, tags: 0 }
            }
            Ingest::Flv(address) => {
                let mut stream = connect(*address)?;
                stream.write_all(format!("{name}\n").as_bytes())?;
                stream.write_all(&file_header(true, true))?;
                Self::Flv(stream)
            }
            Ingest::Moq(_) => return Err("Media over QUIC has its own publisher".into()),
            Ingest::Directory(path) => {
                Self::Directory { path: path.clone(), segment: Vec::new(), number: 0 }
            }
        })
    }

    fn put(&mut self, put: &[Tag], is_key: bool) -> Result<(), Failure> {
        match self {
            Self::Rtmp { stream, client, tags } => {
                put.iter().for_each(|tag| client.send_tag(tag));
                flush(client, stream)?;
                *tags += 1;
                if tags.is_multiple_of(64) {
                    take(client, stream)?;
                }
                Ok(())
            }
            Self::Flv(stream) => {
                put.iter().try_for_each(|tag| stream.write_all(tag.bytes())).map_err(Into::into)
            }
            Self::Directory { path, segment, number } => {
                if is_key && *number > 0 {
                    // Complete files are renamed into place.
                    let replace = |name: &str, data: &[u8]| {
                        let new = path.join("new");
                        fs::write(&new, data)?;
                        fs::rename(&new, path.join(name))
                    };
                    let first = number.saturating_sub(SEGMENTS - 1).max(1);
                    let mut list = format!(
                        "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:{0}\n\
                         #EXT-X-MEDIA-SEQUENCE:{first}\n",
                        GROUP.as_secs()
                    );
                    for number in first..=*number {
                        list += &format!("#EXTINF:{}.0,\n{number}.ts\n", GROUP.as_secs());
                    }
                    replace(&format!("{number}.ts"), segment)
                        .and_then(|()| replace("index.m3u8", list.as_bytes()))
                        .map_err(|e| format!("{}: {e}", path.display()))?;
                    if let Some(old) = number.checked_sub(2 * SEGMENTS).filter(|&old| old > 0) {
                        // A leftover file only takes up space.
                        let _ = fs::remove_file(path.join(format!("{old}.ts")));
                    }
                    segment.clear();
                }
                *number += u64::from(is_key);
                put.iter().for_each(|tag| segment.extend_from_slice(tag.bytes()));
                Ok(())
            }
        }
    }
}

fn flush(client: &mut Client, stream: &mut TcpStream) -> Result<(), Failure> {
    while let Some(output) = client.poll_output() {
        stream.write_all(&output)?;
    }
    Ok(())
}

/// Handles the server's messages that have arrived. Waiting for them would delay the streams.
fn take(client: &mut Client, stream: &TcpStream) -> Result<(), Failure> {
    let mut input = [0; 4_096];
    match recv(stream, &mut input[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(CLOSED.into()),
        Ok((read, _)) => client.handle(&input[..read]).map_err(Into::into),
        Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
