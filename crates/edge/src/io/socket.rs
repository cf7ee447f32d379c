//! One UDP socket of an event loop: batches with segmentation offload (GSO), coalesced receive
//! (GRO), ECN (RFC 9000, section 13.4), no IP fragmentation (section 14), the local address of
//! each datagram.
//!
//! The socket is non-blocking and tied to no runtime: a loop waits for its descriptor in whatever
//! way it likes.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

#[cfg(target_os = "linux")]
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Type};
use units::Ecn;

/// Sizes of a socket's buffers in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// SO_RCVBUF.
    pub receive: usize,
    /// SO_SNDBUF.
    pub send: usize,
}

/// A non-blocking UDP socket that shares its port with those of the other loops.
#[derive(Debug)]
pub struct UdpSocket {
    socket: std::net::UdpSocket,
    offload: UdpSocketState,
    address: SocketAddr,
}

/// A received datagram.
#[derive(Debug)]
pub struct Received<'a> {
    /// The sender; an IPv4 sender on an IPv6 socket as an IPv4-mapped address, as it has to be
    /// given to [`UdpSocket::send`].
    pub from: SocketAddr,
    /// The local address that it was sent to, if the kernel says so.
    pub to: Option<IpAddr>,
    /// The ECN field of its IP header.
    pub ecn: Ecn,
    /// The UDP payload, to be decrypted in place.
    pub payload: &'a mut [u8],
}

/// The memory into which a loop receives: one for all of its sockets.
#[derive(Debug)]
pub struct ReceiveBuffer(Vec<u8>);

/// Enough for the largest UDP payload, and for what GRO coalesces.
const SLOT: usize = 64 * 1024;

impl Default for ReceiveBuffer {
    fn default() -> Self {
        Self(vec![0; BATCH_SIZE * SLOT])
    }
}

impl UdpSocket {
    /// Binds to `address` with SO_REUSEPORT; `only_v6` keeps an IPv6 socket from taking IPv4.
    /// The kernel may grant smaller buffers than asked: see
    /// [`warn_about_buffers`](Self::warn_about_buffers).
    ///
    /// # Errors
    /// The address is in use (without SO_REUSEPORT or by another user) or not this machine's.
    pub fn bind(address: SocketAddr, only_v6: bool, buffers: Buffers) -> io::Result<Self> {
        let socket =
            socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(only_v6)?;
        }
        socket.set_reuse_port(true)?;
        socket.set_recv_buffer_size(buffers.receive)?;
        socket.set_send_buffer_size(buffers.send)?;
        socket.bind(&address.into())?;
        let socket = std::net::UdpSocket::from(socket);
        let offload = UdpSocketState::new((&socket).into())?;
        // quinn-udp 0.6.3 asks for receive timestamps, but its control buffer of 96 bytes has no
        // room for them beside the segment size, the local address and the ECN field: of a
        // coalesced receive the kernel then drops the last, ECN. Nothing here uses the timestamps.
        #[cfg(target_os = "linux")]
        setsockopt(&socket, sockopt::ReceiveTimestampns, &false)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, offload, address })
    }

    /// The bound address.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The buffer sizes that the kernel granted.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn buffers(&self) -> io::Result<Buffers> {
        let socket = socket2::SockRef::from(&self.socket);
        // Linux doubles what is asked for, for its own bookkeeping, and reports the double.
        let half = if cfg!(target_os = "linux") { 2 } else { 1 };
        let receive = socket.recv_buffer_size()? / half;
        Ok(Buffers { receive, send: socket.send_buffer_size()? / half })
    }

    /// Logs one warning if the kernel granted less than `wanted`.
    pub fn warn_about_buffers(&self, wanted: Buffers) {
        let Ok(granted) = self.buffers() else { return };
        if granted.receive < wanted.receive || granted.send < wanted.send {
            tracing::warn!(
                "{}: UDP buffers are {} (receive) and {} (send) bytes instead of {} and {}: raise \
                 net.core.rmem_max and net.core.wmem_max",
                self.address,
                granted.receive,
                granted.send,
                wanted.receive,
                wanted.send,
            );
        }
    }

    /// How many datagrams of one size one [`send`](Self::send) may take; at least 1. Falls to 1
    /// for good when the network device turns out not to support segmentation.
    pub fn max_batch(&self) -> usize {
        self.offload.max_gso_segments()
    }

    /// Sends `payload` to `to` as datagrams of `segment` bytes (the last may be shorter), from the
    /// local address `from` if given. At most [`max_batch`](Self::max_batch) datagrams and 65,507
    /// bytes.
    ///
    /// # Errors
    /// `WouldBlock` when the send buffer is full; anything else concerns this destination or
    /// size (an unreachable host, a datagram above the path's MTU), and the socket goes on.
    pub fn send(
        &self,
        to: SocketAddr,
        from: Option<IpAddr>,
        ecn: Ecn,
        segment: usize,
        payload: &[u8],
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: to,
            ecn: match ecn {
                Ecn::NotEct => None,
                Ecn::Ect0 => Some(EcnCodepoint::Ect0),
                Ecn::Ect1 => Some(EcnCodepoint::Ect1),
                Ecn::Ce => Some(EcnCodepoint::Ce),
            },
            contents: payload,
            segment_size: Some(segment).filter(|&size| size > 0 && size < payload.len()),
            src_ip: from,
        };
        self.offload.try_send((&self.socket).into(), &transmit)
    }

    /// Takes what has arrived, up to one batch, and calls `each` for every datagram in order.
    /// Returns whether the batch was full, so that more may wait.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; anything else is an error that the network reported,
    /// and the socket goes on.
    pub fn receive(
        &self,
        buffer: &mut ReceiveBuffer,
        mut each: impl FnMut(Received<'_>),
    ) -> io::Result<bool> {
        let mut slots = buffer.0.chunks_exact_mut(SLOT);
        // The closure runs exactly BATCH_SIZE times, as the buffer was made for; an empty slot
        // would receive nothing.
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            core::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let filled = self.offload.recv((&self.socket).into(), &mut slices, &mut metas)?;
        for (slice, meta) in slices.iter_mut().zip(&metas).take(filled) {
            let ecn = match meta.ecn {
                None => Ecn::NotEct,
                Some(EcnCodepoint::Ect0) => Ecn::Ect0,
                Some(EcnCodepoint::Ect1) => Ecn::Ect1,
                Some(EcnCodepoint::Ce) => Ecn::Ce,
            };
            let length = meta.len.min(slice.len());
            // An empty datagram has stride 0.
            for payload in slice[..length].chunks_mut(meta.stride.max(1)) {
                each(Received { from: meta.addr, to: meta.dst_ip, ecn, payload });
            }
        }
        Ok(filled == BATCH_SIZE)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const BUFFERS: Buffers = Buffers { receive: 256 * 1024, send: 256 * 1024 };

    fn bound(address: &str) -> UdpSocket {
        UdpSocket::bind(address.parse().expect("an address"), false, BUFFERS).expect("bound")
    }

    struct Datagram {
        from: SocketAddr,
        to: Option<IpAddr>,
        ecn: Ecn,
        payload: Vec<u8>,
    }

    /// What arrives at `socket` until `count` datagrams are there, or two seconds have passed.
    fn arrivals(socket: &UdpSocket, count: usize) -> Vec<Datagram> {
        let mut buffer = ReceiveBuffer::default();
        let mut all = Vec::new();
        let end = Instant::now() + Duration::from_secs(2);
        while all.len() < count && Instant::now() < end {
            let received = socket.receive(&mut buffer, |datagram| {
                all.push(Datagram {
                    from: datagram.from,
                    to: datagram.to,
                    ecn: datagram.ecn,
                    payload: datagram.payload.to_vec(),
                });
            });
            match received {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                other => drop(other.expect("loopback has no errors")),
            }
        }
        all
    }

    #[test]
    fn a_batch_arrives_as_its_datagrams_with_their_ecn_field() {
        for (from, at) in
            [("127.0.0.1", "127.0.0.1:0"), ("::1", "[::1]:0"), ("127.0.0.1", "[::]:0")]
        {
            let ip: IpAddr = from.parse().expect("an address");
            let receiver = bound(at);
            let sender = bound(&SocketAddr::new(ip, 0).to_string());
            let to = SocketAddr::new(ip, receiver.local_address().port());
            let count = sender.max_batch().min(20);
            let payload: Vec<u8> = (0..count * 1200 - 100).map(|i| (i / 1200) as u8).collect();
            sender.send(to, None, Ecn::Ect0, 1200, &payload).expect("the batch fits");
            let all = arrivals(&receiver, count);
            assert_eq!(all.len(), count);
            for (index, (datagram, sent)) in all.iter().zip(payload.chunks(1200)).enumerate() {
                assert_eq!(datagram.payload, sent, "datagram {index}");
                assert_eq!(datagram.ecn, Ecn::Ect0, "from {from} at {at}");
                assert_eq!(datagram.from.ip().to_canonical(), ip);
                assert_eq!(datagram.to.map(|to| to.to_canonical()), Some(ip));
            }
        }
    }

    #[test]
    fn every_ecn_codepoint_crosses_both_address_families() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (sender, receiver) = (bound(address), bound(address));
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                sender.send(receiver.local_address(), None, ecn, 4, b"data").expect("sent");
                let all = arrivals(&receiver, 1);
                assert_eq!((all.len(), all[0].ecn), (1, ecn), "{address}");
            }
        }
    }

    #[test]
    fn a_dual_stack_socket_answers_an_ipv4_peer_from_the_address_it_used() {
        let (server, client) = (bound("[::]:0"), bound("127.0.0.1:0"));
        let port = server.local_address().port();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        client.send(to, None, Ecn::Ect0, 5, b"hello").expect("sent");
        let all = arrivals(&server, 1);
        assert_eq!(all[0].from.ip().to_canonical(), client.local_address().ip());
        assert_eq!(all[0].ecn, Ecn::Ect0);
        server.send(all[0].from, all[0].to, Ecn::Ect0, 5, b"again").expect("sent");
        let back = arrivals(&client, 1);
        assert_eq!((back[0].from, back[0].payload.as_slice()), (to, b"again".as_slice()));
    }

    #[test]
    fn nothing_to_receive_would_block() {
        let error = bound("127.0.0.1:0").receive(&mut ReceiveBuffer::default(), |_| ());
        assert_eq!(error.expect_err("empty").kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_granted_buffers_are_reported() {
        let granted = bound("127.0.0.1:0").buffers().expect("readable");
        assert!(granted.receive > 0 && granted.receive <= BUFFERS.receive, "{granted:?}");
        let greedy = Buffers { receive: 1 << 30, send: 1 << 30 };
        let socket = UdpSocket::bind(([127, 0, 0, 1], 0).into(), false, greedy).expect("bound");
        let granted = socket.buffers().expect("readable");
        assert!(granted.receive < 1 << 30, "the kernel caps what is asked: {granted:?}");
    }
}
