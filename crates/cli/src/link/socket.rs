//! A socket of the relay: non-blocking, with large buffers. Datagrams of one size for one address
//! and time are sent in one call (UDP GSO), and coalesced ones are received in one (GRO): the
//! relay shares its machine with the programs under test. The ECN field is forwarded; the rest of
//! the traffic class is 0.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use units::Ecn;

/// Largest UDP payload, and limit of a coalesced read.
pub(super) const MAX_PAYLOAD: usize = 65_535;
/// Largest segmented send: an IP packet's 65,535 bytes without the longest headers.
const MAX_RUN: usize = 65_000;
/// Maximum number of datagrams per call; the limit of kernels before 6.9 (UDP_MAX_SEGMENTS).
const MAX_SEGMENTS: usize = 64;
/// Sizes of the buffers that are asked for, in bytes. The kernel may grant less.
const BUFFERS: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Socket {
    socket: UdpSocket,
    /// Remote end of a connected socket.
    peer: Option<SocketAddr>,
}

/// Datagrams received in one call: `segment` bytes each, the last perhaps shorter, with one ECN
/// field (the kernel coalesces no others).
#[derive(Debug)]
pub(super) struct ReceivedBatch<'a> {
    pub from: SocketAddr,
    pub ecn: Ecn,
    bytes: &'a [u8],
    segment: usize,
}

impl<'a> ReceivedBatch<'a> {
    /// The datagrams, in order of arrival. They may be empty.
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
        // A socket for IPv6 may take IPv4 too, and one for IPv4 refuses the option of IPv6.
        let tos = setsockopt(&socket, sockopt::IpRecvTos, &true);
        let class = setsockopt(&socket, sockopt::Ipv6RecvTClass, &true);
        if address.is_ipv6() { class } else { tos }?;
        Ok(Self { socket, peer: None })
    }

    pub(super) fn connect(&mut self, to: SocketAddr) -> io::Result<()> {
        self.peer = Some(to);
        self.socket.connect(to)
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The next datagrams; `None` if there are none at present.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn receive<'a>(
        &self,
        buffer: &'a mut [u8],
    ) -> io::Result<Option<ReceivedBatch<'a>>> {
        let mut control = nix::cmsg_space!(i32, u8, i32);
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::empty();
        let fd = self.socket.as_raw_fd();
        let message = recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut control), flags);
        let message = match message.map_err(io::Error::from) {
            Ok(message) => message,
            Err(e) if is_passing(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let length = message.bytes;
        let (mut segment, mut ecn) = (length, Ecn::NotEct);
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::UdpGroSegments(size) => {
                    segment = usize::try_from(size).unwrap_or(length);
                }
                ControlMessageOwned::Ipv4Tos(tos) => ecn = field(tos),
                ControlMessageOwned::Ipv6TClass(class) => ecn = field(class as u8),
                _ => {}
            }
        }
        let from = message.address.as_ref().and_then(internet).ok_or(ErrorKind::InvalidData)?;
        Ok(Some(ReceivedBatch { from, ecn, bytes: &buffer[..length], segment }))
    }

    /// Sends the datagrams to `to`, or to the connected address. Datagrams that do not fit the
    /// socket's buffer, or that the network rejects, are lost.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn send(&self, to: Option<SocketAddr>, run: &DatagramRun) -> io::Result<()> {
        let slices: Vec<IoSlice<'_>> =
            run.datagrams.iter().map(|data| IoSlice::new(data)).collect();
        let segment = run.datagrams.first().map_or(0, Vec::len) as u16;
        let (tos, class) = (bits(run.ecn), i32::from(bits(run.ecn)));
        let ecn = match to.or(self.peer) {
            _ if run.ecn == Ecn::NotEct => None,
            Some(SocketAddr::V6(to)) if to.ip().to_ipv4_mapped().is_none() => {
                Some(ControlMessage::Ipv6TClass(&class))
            }
            _ => Some(ControlMessage::Ipv4Tos(&tos)),
        };
        if slices.len() > 1 {
            let segments = ControlMessage::UdpGsoSegments(&segment);
            let control: Vec<_> = ecn.into_iter().chain([segments]).collect();
            match self.send_message(to, &slices, &control) {
                // No segmentation support, or datagrams larger than the device's MTU.
                Err(Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE | Errno::EOPNOTSUPP) => {}
                other => return passed(other),
            }
        }
        let control = ecn.as_slice();
        slices.chunks(1).try_for_each(|slice| passed(self.send_message(to, slice, control)))
    }

    fn send_message(
        &self,
        to: Option<SocketAddr>,
        slices: &[IoSlice<'_>],
        control: &[ControlMessage<'_>],
    ) -> Result<(), Errno> {
        let address = to.map(SockaddrStorage::from);
        let fd = self.socket.as_raw_fd();
        sendmsg(fd, slices, control, MsgFlags::empty(), address.as_ref()).map(drop)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Datagrams that one call may send: to one address, with one ECN field, and of one size but for
/// the last, which may be shorter.
#[derive(Debug)]
pub(super) struct DatagramRun {
    ecn: Ecn,
    datagrams: Vec<Vec<u8>>,
    bytes: usize,
}

impl DatagramRun {
    /// An empty run of datagrams with this ECN field.
    pub(super) fn new(ecn: Ecn) -> Self {
        Self { ecn, datagrams: Vec::new(), bytes: 0 }
    }

    /// Returns whether `data` with this ECN field can join the run.
    pub(super) fn takes(&self, ecn: Ecn, data: &[u8]) -> bool {
        if ecn != self.ecn {
            return false;
        }
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

/// The ECN field in a type of service or a traffic class (RFC 3168, section 5).
fn field(tos: u8) -> Ecn {
    match tos & 0b11 {
        0b01 => Ecn::Ect1,
        0b10 => Ecn::Ect0,
        0b11 => Ecn::Ce,
        _ => Ecn::NotEct,
    }
}

/// The bits of an ECN field.
const fn bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0b00,
        Ecn::Ect1 => 0b01,
        Ecn::Ect0 => 0b10,
        Ecn::Ce => 0b11,
    }
}

fn internet(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into()))
}

fn passed(sent: Result<(), Errno>) -> io::Result<()> {
    sent.map_err(io::Error::from).or_else(|e| if is_passing(&e) { Ok(()) } else { Err(e) })
}

/// Errors that concern a single datagram, or none: the relay continues.
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
