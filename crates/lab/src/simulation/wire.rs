//! The path as the ends see it. Datagrams enter and leave the path only here.

use std::net::SocketAddrV4;

use bytes::BytesMut;
use links::{Link, Packet, Path, PathConfig, UDP_IPV4_HEADERS};
use units::{Ecn, Timestamp};

use crate::server::Sent;

/// A datagram, with the client's address as the NAT shows it to the server.
#[derive(Clone)]
pub(super) struct WireDatagram {
    pub client: SocketAddrV4,
    pub ecn: Ecn,
    pub data: BytesMut,
}

pub(super) struct Wire {
    pub path: Path<WireDatagram>,
    /// Datagrams of clients waiting for [`Wire::flush`].
    queued: Vec<Packet<WireDatagram>>,
    /// Reusable buffers of datagrams delivered to the server. Clients keep theirs.
    spare: Vec<BytesMut>,
}

impl Wire {
    pub(super) fn new(config: &PathConfig, seed: u64) -> Self {
        let path = Path::new(config, seed, "path");
        Self { path, queued: Vec::new(), spare: Vec::new() }
    }

    /// Sends a datagram to a client.
    pub(super) fn send_down(&mut self, now: Timestamp, client: SocketAddrV4, sent: &Sent<'_>) {
        let packet = packet(client, sent.ecn, BytesMut::from(sent.data));
        self.path.down.send_as(now, packet, sent.passage);
    }

    /// Queues a datagram of a client until [`Wire::flush`], so that timing of the clients' code
    /// excludes the links.
    pub(super) fn queue_up(&mut self, client: SocketAddrV4, ecn: Ecn, data: &[u8]) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        self.queued.push(packet(client, ecn, buffer));
    }

    /// Sends the clients' queued datagrams to the server.
    pub(super) fn flush(&mut self, now: Timestamp) {
        self.queued.drain(..).for_each(|packet| self.path.up.send(now, packet));
    }

    /// Reuses the buffer of a datagram delivered to the server.
    pub(super) fn recycle(&mut self, buffer: BytesMut) {
        self.spare.push(buffer);
    }
}

fn packet(client: SocketAddrV4, ecn: Ecn, data: BytesMut) -> Packet<WireDatagram> {
    let size = data.len() as u32 + UDP_IPV4_HEADERS;
    Packet { size, ecn, payload: WireDatagram { client, ecn, data } }
}

/// Returns the next datagram that has left the link.
pub(super) fn poll(link: &mut Link<WireDatagram>, now: Timestamp) -> Option<WireDatagram> {
    let delivered = link.poll(now)?;
    let mut datagram = WireDatagram { ecn: delivered.packet.ecn, ..delivered.packet.payload };
    if let Some(corruption) = delivered.corruption {
        corruption.apply(&mut datagram.data);
    }
    Some(datagram)
}
