//! A tap between a server and a link: forwards datagrams at once, and notes when the server's left.
//!
//! Times are the kernel's (SO_TIMESTAMPNS). Over loopback a datagram arrives within the sender's
//! system call, so they do not depend on when this thread runs. A GSO batch has one time.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::Failure;
use crate::client::socket;

/// Maximum wait for a datagram or the end, in milliseconds.
const WAIT: u16 = 100;

/// A datagram of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// Time since the epoch.
    pub at: Duration,
    /// UDP payload in bytes.
    pub bytes: usize,
}

/// A running tap.
pub(super) struct Tap {
    /// Address for the link.
    pub address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Departure>, Failure>>,
}

impl Tap {
    pub(super) fn start(server: SocketAddr) -> Result<Self, Failure> {
        let (front, back) = (socket()?, socket()?);
        back.connect(server)?;
        setsockopt(&back, sockopt::ReceiveTimestampns, &true)?;
        for socket in [&front, &back] {
            socket.set_nonblocking(true)?;
        }
        let (address, ended) = (front.local_addr()?, Arc::new(AtomicBool::new(false)));
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || forward(&front, &back, &end));
        Ok(Self { address, ended, thread })
    }

    /// Ends the tap. Returns what left the server.
    pub(super) fn end(self) -> Result<Vec<Departure>, Failure> {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the tap panicked")?
    }
}

fn forward(
    front: &UdpSocket,
    back: &UdpSocket,
    ended: &AtomicBool,
) -> Result<Vec<Departure>, Failure> {
    let (mut buffer, mut client, mut departures) = (vec![0; 1 << 16], None, Vec::new());
    while !ended.load(Ordering::Relaxed) {
        let mut fds = [front, back].map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        // An interrupted wait only ends early.
        let _ = poll(&mut fds, WAIT);
        while let Some((len, from)) = available(front.recv_from(&mut buffer))? {
            client = Some(from);
            // A full or closed socket loses the datagram, as a network would.
            let _ = back.send(&buffer[..len]);
        }
        while let Some(departure) = available(receive(back, &mut buffer))? {
            departures.push(departure);
            if let Some(client) = client {
                let _ = front.send_to(&buffer[..departure.bytes], client);
            }
        }
    }
    Ok(departures)
}

/// Returns `None` if there is nothing to read. A connected socket also reports a closed peer.
fn available<T>(read: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> std::io::Result<Departure> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let stamp = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    let at = stamp.ok_or_else(|| std::io::Error::other("the kernel gave no time"))?;
    Ok(Departure { at, bytes: message.bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_forwards_both_ways_and_notes_what_the_server_sent() {
        let (server, client) = (socket().expect("bound"), socket().expect("bound"));
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        }
        let tap = Tap::start(server.local_addr().expect("bound")).expect("started");
        let mut buffer = [0; 100];
        client.send_to(b"question", tap.address).expect("sent");
        let (len, from) = server.recv_from(&mut buffer).expect("forwarded");
        assert_eq!(&buffer[..len], b"question");
        for answer in [&b"first"[..], b"second one"] {
            server.send_to(answer, from).expect("sent");
            let (len, _) = client.recv_from(&mut buffer).expect("forwarded");
            assert_eq!(&buffer[..len], answer);
        }
        let departures = tap.end().expect("no failure");
        let sizes: Vec<usize> = departures.iter().map(|departure| departure.bytes).collect();
        assert_eq!(sizes, [5, 10]);
        assert!(departures[0].at < departures[1].at, "{departures:?}");
    }
}
