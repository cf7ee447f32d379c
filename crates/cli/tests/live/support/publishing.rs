//! A publisher with every byte under the test's control: rejected, malformed, or unlike any
//! encoder.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use media::rtmp::{Client, ClientEvent, Config, Intent, Url};
use media::{Kind, Tag};

use super::PATIENCE;

pub struct Publishing {
    socket: TcpStream,
    client: Client,
}

impl Publishing {
    /// Publishes `stream`, `app/name` with a query or without one.
    ///
    /// # Errors
    /// The server's reason for its refusal.
    pub fn open(address: SocketAddr, stream: &str) -> Result<Self, String> {
        Self::open_as(address, stream, |bytes| bytes)
    }

    /// As above, with each piece of output modified.
    ///
    /// # Errors
    /// The server refuses or closes the connection.
    pub fn open_as(
        address: SocketAddr,
        stream: &str,
        mut change: impl FnMut(Vec<u8>) -> Vec<u8>,
    ) -> Result<Self, String> {
        let mut url = Url::parse(&format!("rtmp://{address}/{stream}")).expect("a URL");
        // Also what no URL holds.
        let name = stream.split_once('/').expect("an application and a name").1;
        name.clone_into(&mut url.stream);
        let mut socket = TcpStream::connect(address).map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(Duration::from_secs(2))).map_err(|e| e.to_string())?;
        let mut client = Client::new(url, Intent::Publish, Config::default(), &[7; 1_528]);
        let mut buffer = [0; 4_096];
        loop {
            while let Some(bytes) = client.poll_output() {
                socket.write_all(&change(bytes.to_vec())).map_err(|e| e.to_string())?;
            }
            match client.poll_event() {
                Some(ClientEvent::Publishing) => return Ok(Self { socket, client }),
                Some(ClientEvent::Refused(why)) => return Err(why),
                _ => {}
            }
            match socket.read(&mut buffer).map_err(|e| e.to_string())? {
                0 => return Err("closed".into()),
                length => client.handle(&buffer[..length]).map_err(|e| e.to_string())?,
            }
        }
    }

    /// Where the server sees it.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("connected")
    }

    /// The bytes of a tag on the wire.
    pub fn message(&mut self, tag: &Tag) -> Vec<u8> {
        self.client.send_tag(tag);
        let pieces = std::iter::from_fn(|| self.client.poll_output());
        pieces.flat_map(|piece| piece.to_vec()).collect()
    }

    /// Sends a tag. Returns whether the connection still takes it.
    pub fn send(&mut self, tag: &Tag) -> bool {
        let bytes = self.message(tag);
        self.send_bytes(&bytes)
    }

    /// Sends anything.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// Waits until the server closes the connection. Returns the reason, if it gave one.
    pub fn closed(mut self) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 4_096];
        let mut reason = None;
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return reason,
                Ok(length) => {
                    // What breaks the protocol is no reason.
                    let _ = self.client.handle(&buffer[..length]);
                    while let Some(event) = self.client.poll_event() {
                        if let ClientEvent::Refused(why) = event {
                            reason = Some(why);
                        }
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return reason,
            }
            assert!(Instant::now() < end, "the connection stays open");
        }
    }
}

/// A picture of this size: the decoder's configuration, a key frame, or one that needs others.
pub fn picture(start: [u8; 2], time: u32, size: usize) -> Tag {
    let mut payload = vec![start[0], start[1], 0, 0, 0];
    payload.resize(size.max(6), 1);
    Tag::new(Kind::Video, time, &payload).expect("small enough")
}

/// The configuration of a decoder.
pub const CONFIGURATION: [u8; 2] = [0x17, 0];
/// A key frame.
pub const KEY: [u8; 2] = [0x17, 1];
/// Any other frame.
pub const INTER: [u8; 2] = [0x27, 1];
