//! A publisher of the demo clip over RTMP, with no encoder.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use media::rtmp::{Client, ClientEvent, Config, Intent, Url};
use media::{Role, Tag, flv};

/// The demo clip: ten seconds, a key frame every two.
pub fn clip() -> Vec<Tag> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/demo.flv");
    let mut reader = flv::Reader::new(flv::MAX_PAYLOAD);
    reader.read(&std::fs::read(path).expect("readable")).expect("FLV");
    std::iter::from_fn(|| reader.next_tag()).collect()
}

/// A pause: its start, from the start of the stream, and its duration. Delayed data is sent at its
/// end, at once.
#[derive(Clone, Copy)]
pub struct Pause {
    pub at: Duration,
    pub length: Duration,
}

/// Publishes the clip round and round, each frame in its time; ends in good form when dropped.
pub struct Publisher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Returns once the first key frame is sent.
    pub fn start(server: SocketAddr, stream: &str, pause: Option<Pause>) -> Self {
        let url = Url::parse(&format!("rtmp://{server}/{stream}")).expect("a URL");
        let stop = Arc::new(AtomicBool::new(false));
        let (started, wait) = channel();
        let connection = Connection {
            socket: TcpStream::connect(server).expect("connected"),
            client: Client::new(url, Intent::Publish, Config::default(), &[7; 1_528]),
        };
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            // The server may be gone before.
            let _ = connection.publish(pause, &started, &seen);
        });
        wait.recv_timeout(Duration::from_secs(10)).expect("published");
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the publisher failed");
        }
    }
}

struct Connection {
    socket: TcpStream,
    client: Client,
}

impl Connection {
    fn publish(
        mut self,
        pause: Option<Pause>,
        started: &Sender<()>,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        self.socket.set_read_timeout(Some(Duration::from_millis(1)))?;
        while self.exchange()? != Some(ClientEvent::Publishing) {}
        let (clip, start) = (clip(), Instant::now());
        let length = clip.last().map_or(0, Tag::timestamp) + 40;
        for round in 0.. {
            for tag in &clip {
                let time = tag.timestamp() + round * length;
                let mut due = Duration::from_millis(time.into());
                if let Some(pause) = pause.filter(|p| due >= p.at && due < p.at + p.length) {
                    due = pause.at + pause.length;
                }
                while start.elapsed() < due {
                    self.exchange()?;
                    if stop.load(Ordering::Relaxed) {
                        self.client.close();
                        return self.write();
                    }
                    let left = due.saturating_sub(start.elapsed());
                    std::thread::sleep(left.min(Duration::from_millis(20)));
                }
                // Delayed tags are sent at once, without reading in between.
                self.client.send_tag(&tag.clone().with_timestamp(time));
                self.write()?;
                if tag.role() == Role::KeyFrame {
                    // Fails if the starting thread has given up.
                    let _ = started.send(());
                }
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        while let Some(bytes) = self.client.poll_output() {
            self.socket.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Writes pending output and reads available input. Returns after at most a millisecond.
    fn exchange(&mut self) -> io::Result<Option<ClientEvent>> {
        self.write()?;
        let mut buffer = [0; 4_096];
        match self.socket.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => self.client.handle(&buffer[..length]).expect("RTMP"),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
        Ok(self.client.poll_event())
    }
}
