//! The path as the ends see it: the one place where datagrams enter and leave it. What is to stand between
//! an end and the path stands here.

use std::net::SocketAddrV4;

use bytes::BytesMut;
use links::{Link, Packet, Path, PathConfig, UDP_IPV4_HEADERS};
use units::{Ecn, Timestamp};

use crate::server::Sent;

/// A datagram, with the client's address as the NAT shows it to the server.
#[derive(Clone)]
pub(super) struct Datagram {
    pub client: SocketAddrV4,
    pub ecn: Ecn,
    pub data: BytesMut,
}

pub(super) struct Wire {
    pub path: Path<Datagram>,
    /// Datagrams of clients that wait for [`Wire::flush`].
    queued: Vec<Packet<Datagram>>,
    /// Buffers of datagrams that have arrived at the server; clients keep theirs.
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

    /// Takes a datagram of a client. Links have no part in the time that is taken of clients' code, so it
    /// leaves with the next [`Wire::flush`].
    pub(super) fn queue_up(&mut self, client: SocketAddrV4, ecn: Ecn, data: &[u8]) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        self.queued.push(packet(client, ecn, buffer));
    }

    /// Sends what clients have queued to the server.
    pub(super) fn flush(&mut self, now: Timestamp) {
        self.queued.drain(..).for_each(|packet| self.path.up.send(now, packet));
    }

    /// Takes the buffer of a datagram that has arrived at the server.
    pub(super) fn recycle(&mut self, buffer: BytesMut) {
        self.spare.push(buffer);
    }
}

fn packet(client: SocketAddrV4, ecn: Ecn, data: BytesMut) -> Packet<Datagram> {
    let size = data.len() as u32 + UDP_IPV4_HEADERS;
    Packet { size, ecn, payload: Datagram { client, ecn, data } }
}

/// The next datagram that is at the link's end, as the link has left it.
pub(super) fn poll(link: &mut Link<Datagram>, now: Timestamp) -> Option<Datagram> {
    let delivered = link.poll(now)?;
    let mut datagram = Datagram { ecn: delivered.packet.ecn, ..delivered.packet.payload };
    if let Some(corruption) = delivered.corruption {
        corruption.apply(&mut datagram.data);
    }
    Some(datagram)
}
