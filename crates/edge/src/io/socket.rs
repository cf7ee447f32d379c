//! UDP sockets of the event loops: segmentation offload (GSO), coalesced receive (GRO), ECN
//! (RFC 9000, section 13.4), no IP fragmentation (section 14) and local addresses per datagram.
//!
//! Sockets are non-blocking and independent of a runtime; the loop polls their descriptors.
//!
//! **Without GSO.** If the kernel lacks it, batches hold one datagram
//! ([`max_batch`](UdpSocket::max_batch)). If a segmented batch fails because of the device or the
//! destination (EIO, EINVAL, EMSGSIZE, EOPNOTSUPP), its datagrams are sent one by one, with one
//! system call each. GSO then pauses for this destination, for 5 s, and twice as long after each
//! further failure, up to 10 min (`segmentation`). `mendcast_udp_segmentation_refused_total` counts
//! these batches.
//!
//! `quinn-udp` configures the socket and receives. It is not used for sending: after one EINVAL or
//! EIO from any destination it disables segmentation and IPv4 ECN for the life of the socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg, setsockopt, sockopt};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, UdpSocketState};
use socket2::{Domain, Protocol, Type};
use units::Ecn;

use super::segmentation::PausedDestinations;

/// Socket buffer sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// SO_RCVBUF.
    pub receive: usize,
    /// SO_SNDBUF.
    pub send: usize,
}

/// A non-blocking UDP socket that shares its port with the sockets of other loops.
#[derive(Debug)]
pub struct UdpSocket {
    socket: std::net::UdpSocket,
    receiver: UdpSocketState,
    /// Maximum datagrams per send.
    max_batch: usize,
    /// Destinations for which segmentation is paused.
    paused: PausedDestinations,
    stats: SendStats,
    address: SocketAddr,
}

/// Counters of failed or degraded sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStats {
    /// Batches that the kernel did not segment and that were sent datagram by datagram.
    pub segmentation_refused: u64,
    /// Sends rejected because of their destination or size.
    pub refused: u64,
    /// Sends that found the device queue full.
    pub device_full: u64,
}

impl SendStats {
    /// Adds the counters of another socket.
    pub fn add(&mut self, other: &Self) {
        self.segmentation_refused += other.segmentation_refused;
        self.refused += other.refused;
        self.device_full += other.device_full;
    }
}

/// The full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullQueue {
    /// The socket's send buffer. The socket becomes writable again.
    Socket,
    /// The device queue (ENOBUFS). No event signals free space.
    Device,
}

/// Reason why a batch, or the rest of it, was not sent.
#[derive(Debug)]
pub enum SendError {
    /// A queue is full; the first `sent` bytes were sent.
    Full {
        /// Sent bytes, a number of whole datagrams.
        sent: usize,
        /// The full queue.
        full: FullQueue,
    },
    /// The kernel rejects this destination or size: no route, or above the device's MTU. The
    /// socket remains usable.
    Refused(io::Error),
}

/// A received datagram.
#[derive(Debug)]
pub struct ReceivedDatagram<'a> {
    /// The sender's address, in the form that [`UdpSocket::send`] expects: IPv4-mapped on an IPv6
    /// socket.
    pub from: SocketAddr,
    /// The local destination address, if the kernel reports it.
    pub to: Option<IpAddr>,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
    /// The UDP payload, decrypted in place.
    pub payload: &'a mut [u8],
}

/// A receive buffer, shared by all sockets of a loop, with the result of the last
/// [`UdpSocket::receive`].
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    filled: usize,
}

/// Slot size: the largest UDP payload or GRO batch.
const SLOT_BYTES: usize = 64 * 1024;

impl Default for ReceiveBuffer {
    fn default() -> Self {
        let metas = [RecvMeta::default(); BATCH_SIZE];
        Self { bytes: vec![0; BATCH_SIZE * SLOT_BYTES], metas, filled: 0 }
    }
}

impl ReceiveBuffer {
    /// Returns the datagrams of the last receive, in order.
    pub fn datagrams(&mut self) -> impl Iterator<Item = ReceivedDatagram<'_>> {
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES).zip(&self.metas).take(self.filled);
        slots.flat_map(|(slot, meta)| {
            let ecn = match meta.ecn {
                None => Ecn::NotEct,
                Some(EcnCodepoint::Ect0) => Ecn::Ect0,
                Some(EcnCodepoint::Ect1) => Ecn::Ect1,
                Some(EcnCodepoint::Ce) => Ecn::Ce,
            };
            let length = meta.len.min(SLOT_BYTES);
            // An empty datagram has stride 0.
            let payloads = slot[..length].chunks_mut(meta.stride.max(1));
            payloads.map(move |payload| ReceivedDatagram {
                from: meta.addr,
                to: meta.dst_ip,
                ecn,
                payload,
            })
        })
    }
}

impl UdpSocket {
    /// Binds to `address` with SO_REUSEPORT. `only_v6` keeps an IPv6 socket from accepting IPv4.
    /// The kernel may grant smaller buffers than requested: see
    /// [`warn_about_buffers`](Self::warn_about_buffers).
    ///
    /// # Errors
    /// The address is in use (without SO_REUSEPORT or by another user) or not local.
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
        let receiver = UdpSocketState::new((&socket).into())?;
        // quinn-udp 0.6.3 enables receive timestamps, but its control buffer of 96 bytes cannot
        // hold them beside segment size, local address and ECN: the kernel then drops the ECN field
        // of coalesced receives. Timestamps are unused here. A sandbox without them refuses the
        // option (ENOPROTOOPT) and also refused it to quinn-udp.
        match setsockopt(&socket, sockopt::ReceiveTimestampns, &false) {
            Ok(()) | Err(Errno::ENOPROTOOPT) => {}
            Err(e) => return Err(e.into()),
        }
        let address = socket.local_addr()?;
        let max_batch = receiver.max_gso_segments();
        let (paused, stats) = (PausedDestinations::default(), SendStats::default());
        Ok(Self { socket, receiver, max_batch, paused, stats, address })
    }

    /// Returns the bound address.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the granted buffer sizes.
    ///
    /// # Errors
    /// The system call failed.
    pub fn buffers(&self) -> io::Result<Buffers> {
        let socket = socket2::SockRef::from(&self.socket);
        // Linux doubles the requested size for bookkeeping and reports the double.
        let half = if cfg!(target_os = "linux") { 2 } else { 1 };
        let receive = socket.recv_buffer_size()? / half;
        Ok(Buffers { receive, send: socket.send_buffer_size()? / half })
    }

    /// Logs a warning if the kernel granted less than `wanted`.
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

    /// Returns the maximum number of datagrams per [`send`](Self::send), at least 1.
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// Returns the counters of failed and degraded sends.
    pub fn send_stats(&self) -> &SendStats {
        &self.stats
    }

    /// Sends `payload` to `to` as datagrams of `segment` bytes (the last may be shorter), from the
    /// local address `from` if given. At most [`max_batch`](Self::max_batch) datagrams and 65,507
    /// bytes. If the kernel cannot segment for this destination, this and the next batches are
    /// sent datagram by datagram for a while.
    ///
    /// # Errors
    /// See [`SendError`]. Datagrams after a rejected one are not sent.
    pub fn send(
        &mut self,
        to: SocketAddr,
        from: Option<IpAddr>,
        ecn: Ecn,
        segment: usize,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let segment = segment.max(1);
        if payload.len() <= segment {
            return self.send_whole(to, from, ecn, None, payload).map_err(|e| self.failed(e, 0));
        }
        let paused = self.paused.contains(to.ip());
        if !paused {
            match self.send_whole(to, from, ecn, u16::try_from(segment).ok(), payload) {
                Ok(()) => {
                    self.paused.remove(to.ip());
                    return Ok(());
                }
                // EIO: the device has no segmentation or checksums. EINVAL, EMSGSIZE: too many
                // segments for this kernel, or segments above the MTU. In the last case the single
                // datagrams fail too.
                Err(Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE | Errno::EOPNOTSUPP) => {}
                Err(e) => return Err(self.failed(e, 0)),
            }
        }
        for (index, datagram) in payload.chunks(segment).enumerate() {
            self.send_whole(to, from, ecn, None, datagram)
                .map_err(|e| self.failed(e, index * segment))?;
            // The datagram was accepted, so segmentation caused the error.
            if index == 0 && !paused {
                self.stats.segmentation_refused += 1;
                self.paused.insert(to.ip(), Instant::now());
            }
        }
        Ok(())
    }

    /// Sends with one system call.
    fn send_whole(
        &self,
        to: SocketAddr,
        from: Option<IpAddr>,
        ecn: Ecn,
        segment: Option<u16>,
        payload: &[u8],
    ) -> Result<(), Errno> {
        let mark = match ecn {
            Ecn::NotEct => 0u8,
            Ecn::Ect1 => 1,
            Ecn::Ect0 => 2,
            Ecn::Ce => 3,
        };
        let class = i32::from(mark);
        let v4 = |ip| in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: in_addr { s_addr: u32::from_ne_bytes(ip) },
            ipi_addr: in_addr { s_addr: 0 },
        };
        let v6 = |ip| in6_pktinfo { ipi6_addr: in6_addr { s6_addr: ip }, ipi6_ifindex: 0 };
        let (info4, info6) = match from {
            Some(IpAddr::V4(ip)) => (Some(v4(ip.octets())), None),
            Some(IpAddr::V6(ip)) => (None, Some(v6(ip.octets()))),
            None => (None, None),
        };
        // An IPv4-mapped destination on an IPv6 socket gets an IPv4 header.
        let field = match to.ip().to_canonical() {
            IpAddr::V4(_) => ControlMessage::Ipv4Tos(&mark),
            IpAddr::V6(_) => ControlMessage::Ipv6TClass(&class),
        };
        let mut control = [field; 3];
        let mut filled = 1;
        let more = [
            segment.as_ref().map(ControlMessage::UdpGsoSegments),
            info4.as_ref().map(ControlMessage::Ipv4PacketInfo),
            info6.as_ref().map(ControlMessage::Ipv6PacketInfo),
        ];
        for message in more.into_iter().flatten() {
            control[filled] = message;
            filled += 1;
        }
        let (iov, address) = ([IoSlice::new(payload)], SockaddrStorage::from(to));
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
        loop {
            match sendmsg(fd, &iov, &control[..filled], flags, Some(&address)) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Counts and classifies an error after `sent` bytes.
    fn failed(&mut self, error: Errno, sent: usize) -> SendError {
        match error {
            Errno::EAGAIN => SendError::Full { sent, full: FullQueue::Socket },
            Errno::ENOBUFS => {
                self.stats.device_full += 1;
                SendError::Full { sent, full: FullQueue::Device }
            }
            error => {
                self.stats.refused += 1;
                SendError::Refused(error.into())
            }
        }
    }

    /// Receives up to one batch into `buffer`. Returns whether the batch was full, so that more
    /// datagrams may be waiting.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is waiting. Other errors were reported by the network; the socket
    /// remains usable. The buffer is empty after an error.
    pub fn receive(&self, buffer: &mut ReceiveBuffer) -> io::Result<bool> {
        let ReceiveBuffer { bytes, metas, filled } = buffer;
        *filled = 0;
        let mut slots = bytes.chunks_exact_mut(SLOT_BYTES);
        // The buffer has exactly BATCH_SIZE slots; an empty slot would receive nothing.
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            core::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        *filled = self.receiver.recv((&self.socket).into(), &mut slices, metas)?;
        Ok(*filled == BATCH_SIZE)
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

    /// Returns the datagrams that arrive at `socket`: `count`, or fewer after 2 s.
    fn arrivals(socket: &UdpSocket, count: usize) -> Vec<Datagram> {
        let mut buffer = ReceiveBuffer::default();
        let mut all = Vec::new();
        let end = Instant::now() + Duration::from_secs(2);
        while all.len() < count && Instant::now() < end {
            match socket.receive(&mut buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                other => drop(other.expect("loopback has no errors")),
            }
            all.extend(buffer.datagrams().map(|datagram| Datagram {
                from: datagram.from,
                to: datagram.to,
                ecn: datagram.ecn,
                payload: datagram.payload.to_vec(),
            }));
        }
        all
    }

    #[test]
    fn batch_arrives_as_datagrams_with_their_ecn_field() {
        for (from, at) in
            [("127.0.0.1", "127.0.0.1:0"), ("::1", "[::1]:0"), ("127.0.0.1", "[::]:0")]
        {
            let ip: IpAddr = from.parse().expect("an address");
            let receiver = bound(at);
            let mut sender = bound(&SocketAddr::new(ip, 0).to_string());
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
            let (mut sender, receiver) = (bound(address), bound(address));
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                sender.send(receiver.local_address(), None, ecn, 4, b"data").expect("sent");
                let all = arrivals(&receiver, 1);
                assert_eq!((all.len(), all[0].ecn), (1, ecn), "{address}");
            }
        }
    }

    #[test]
    fn dual_stack_socket_replies_from_the_address_the_peer_used() {
        let (mut server, mut client) = (bound("[::]:0"), bound("127.0.0.1:0"));
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
    fn receive_without_data_would_block() {
        let error = bound("127.0.0.1:0").receive(&mut ReceiveBuffer::default());
        assert_eq!(error.expect_err("empty").kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn granted_buffers_are_reported() {
        let granted = bound("127.0.0.1:0").buffers().expect("readable");
        assert!(granted.receive > 0 && granted.receive <= BUFFERS.receive, "{granted:?}");
        let greedy = Buffers { receive: 1 << 30, send: 1 << 30 };
        let socket = UdpSocket::bind(([127, 0, 0, 1], 0).into(), false, greedy).expect("bound");
        let granted = socket.buffers().expect("readable");
        assert!(granted.receive < 1 << 30, "the kernel caps the request: {granted:?}");
    }

    /// Sends a batch of ten datagrams and returns how many arrive.
    fn batch_of_ten(sender: &mut UdpSocket, receiver: &UdpSocket) -> usize {
        let to = receiver.local_address();
        sender.send(to, None, Ecn::Ect0, 100, &[7; 1_000]).expect("sent");
        let all = arrivals(receiver, 10);
        assert!(
            all.iter().all(|datagram| datagram.ecn == Ecn::Ect0 && datagram.payload == [7; 100])
        );
        all.len()
    }

    #[test]
    fn unreachable_destination_does_not_affect_others() {
        let (mut sender, receiver) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
        let batch = sender.max_batch();
        assert!(batch > 1, "this kernel segments");
        // Sending to port 0 fails with EINVAL.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        for payload in [&[1; 100][..], &[1; 1_000]] {
            let error = sender.send(nowhere, None, Ecn::NotEct, 100, payload);
            assert!(matches!(error, Err(SendError::Refused(_))), "{error:?}");
        }
        assert_eq!((sender.max_batch(), sender.send_stats().refused), (batch, 2));
        assert_eq!(batch_of_ten(&mut sender, &receiver), 10);
        assert_eq!(sender.send_stats().segmentation_refused, 0, "the address is not paused");
    }

    #[test]
    fn batches_fall_back_to_single_datagrams() {
        let receiver = bound("0.0.0.0:0");
        let mut sender = bound("127.0.0.1:0");
        let at = |last| SocketAddr::from(([127, 0, 0, last], receiver.local_address().port()));
        // More segments than any kernel accepts per call.
        let many = vec![9; 300];
        sender.send(at(1), None, Ecn::Ect0, 1, &many).expect("sent");
        let all = arrivals(&receiver, many.len());
        assert_eq!(all.len(), many.len());
        assert!(all.iter().all(|datagram| datagram.ecn == Ecn::Ect0 && datagram.payload == [9]));
        assert_eq!(sender.send_stats().segmentation_refused, 1);
        assert!(sender.paused.contains(at(1).ip()));
        // While paused, segmentation is not tried; other destinations are unaffected.
        sender.send(at(1), None, Ecn::Ect0, 1, &many).expect("sent");
        assert_eq!(arrivals(&receiver, many.len()).len(), many.len());
        assert_eq!(sender.send_stats().segmentation_refused, 1);
        assert!(!sender.paused.contains(at(2).ip()));
    }

    #[test]
    fn only_full_queues_are_retried() {
        let mut socket = bound("127.0.0.1:0");
        for (error, room) in
            [(Errno::EAGAIN, FullQueue::Socket), (Errno::ENOBUFS, FullQueue::Device)]
        {
            let failed = socket.failed(error, 1_200);
            assert!(matches!(failed, SendError::Full { sent: 1_200, full } if full == room));
        }
        for error in [Errno::EMSGSIZE, Errno::ENETUNREACH, Errno::EPERM] {
            assert!(matches!(socket.failed(error, 0), SendError::Refused(_)), "{error}");
        }
        let expected = SendStats { refused: 3, device_full: 1, ..SendStats::default() };
        assert_eq!(*socket.send_stats(), expected);
    }
}
