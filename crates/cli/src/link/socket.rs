//! A socket of the relay: non-blocking, with large buffers. Datagrams of one size that are due together
//! to one address leave in one call (UDP GSO), and what the kernel has coalesced is taken in one (GRO):
//! the relay shares its machine with what it is to test.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};

/// Largest UDP payload, and the most that one call coalesces.
pub(super) const MAX_PAYLOAD: usize = 65_535;
/// The most that one call sends as several datagrams: an IP packet's 65,535 bytes without the longest headers.
const MAX_RUN: usize = 65_000;
/// The most datagrams that one call sends; kernels before 6.9 take no more (UDP_MAX_SEGMENTS).
const MAX_SEGMENTS: usize = 64;
/// Sizes of the buffers that are asked for, in bytes. The kernel may grant less.
const BUFFERS: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Socket(UdpSocket);

/// What one call has received: datagrams of `segment` bytes each, of which the last may be shorter.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub from: SocketAddr,
    bytes: &'a [u8],
    segment: usize,
}

impl<'a> Received<'a> {
    /// In the order in which they came. An empty datagram is one as well.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> {
        let empty: Option<&[u8]> = self.bytes.is_empty().then_some(&[]);
        empty.into_iter().chain(self.bytes.chunks(self.segment.max(1)))
    }
}

impl Socket {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        let options = socket2::SockRef::from(&socket);
        options.set_recv_buffer_size(BUFFERS)?;
        options.set_send_buffer_size(BUFFERS)?;
        // A kernel that cannot hands datagrams over one by one.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        Ok(Self(socket))
    }

    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.0.connect(to)
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The next datagrams; `None` if there are none at present.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Received<'a>>> {
        let mut control = nix::cmsg_space!(i32);
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::empty();
        let message =
            recvmsg::<SockaddrStorage>(self.0.as_raw_fd(), &mut slices, Some(&mut control), flags);
        let message = match message.map_err(io::Error::from) {
            Ok(message) => message,
            Err(e) if is_passing(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let length = message.bytes;
        let segment = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
            _ => None,
        });
        let from = message.address.as_ref().and_then(internet).ok_or(ErrorKind::InvalidData)?;
        Ok(Some(Received { from, bytes: &buffer[..length], segment: segment.unwrap_or(length) }))
    }

    /// Sends the datagrams to `to`, or to whom the socket is connected. What finds no room is lost, as
    /// is what the network refuses.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn send(&self, to: Option<SocketAddr>, run: &Run) -> io::Result<()> {
        let slices: Vec<IoSlice<'_>> =
            run.datagrams.iter().map(|data| IoSlice::new(data)).collect();
        let segment = run.datagrams.first().map_or(0, Vec::len) as u16;
        if slices.len() > 1 {
            let segments = [ControlMessage::UdpGsoSegments(&segment)];
            match self.send_message(to, &slices, &segments) {
                // No segmentation here, or datagrams above what the device carries.
                Err(Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE | Errno::EOPNOTSUPP) => {}
                other => return passed(other),
            }
        }
        slices.chunks(1).try_for_each(|slice| passed(self.send_message(to, slice, &[])))
    }

    fn send_message(
        &self,
        to: Option<SocketAddr>,
        slices: &[IoSlice<'_>],
        control: &[ControlMessage<'_>],
    ) -> Result<(), Errno> {
        let address = to.map(SockaddrStorage::from);
        let fd = self.0.as_raw_fd();
        sendmsg(fd, slices, control, MsgFlags::empty(), address.as_ref()).map(drop)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Datagrams that one call may send: to one address, and of one size but for the last, which may be shorter.
#[derive(Debug, Default)]
pub(super) struct Run {
    datagrams: Vec<Vec<u8>>,
    bytes: usize,
}

impl Run {
    /// Whether `data` can follow what is there.
    pub(super) fn takes(&self, data: &[u8]) -> bool {
        let (Some(first), Some(last)) = (self.datagrams.first(), self.datagrams.last()) else {
            return true;
        };
        self.datagrams.len() < MAX_SEGMENTS
            && self.bytes + data.len() <= MAX_RUN
            && last.len() == first.len()
            && (1..=first.len()).contains(&data.len())
    }

    /// The caller has asked whether it is taken.
    pub(super) fn push(&mut self, data: Vec<u8>) {
        self.bytes += data.len();
        self.datagrams.push(data);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }
}

fn internet(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into()))
}

fn passed(sent: Result<(), Errno>) -> io::Result<()> {
    sent.map_err(io::Error::from).or_else(|e| if is_passing(&e) { Ok(()) } else { Err(e) })
}

/// Errors that say something about one datagram, or nothing: the relay goes on.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
    ) || error.raw_os_error() == Some(Errno::EMSGSIZE as i32)
        || error.raw_os_error() == Some(Errno::ENOBUFS as i32)
}
