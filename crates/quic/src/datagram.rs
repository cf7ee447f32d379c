//! A received datagram.

use crate::path::Addresses;
use units::Ecn;

/// A received datagram, from the socket to its connection: borrowed from a receive buffer
/// (`Datagram<&mut [u8]>`), or kept in a queue (`Datagram<Vec<u8>>`).
#[derive(Clone, Copy, Debug)]
pub struct Datagram<B> {
    /// Addresses of both sides, and the socket.
    pub addresses: Addresses,
    /// ECN codepoint of the IP header.
    pub ecn: Ecn,
    /// UDP payload. Decrypted in place.
    pub payload: B,
}

impl<B: AsRef<[u8]>> Datagram<B> {
    /// Copies the payload, for a queue.
    pub fn kept(&self) -> Datagram<Vec<u8>> {
        let Self { addresses, ecn, ref payload } = *self;
        Datagram { addresses, ecn, payload: payload.as_ref().to_vec() }
    }
}

impl<B: AsMut<[u8]>> Datagram<B> {
    /// Borrows the payload.
    pub fn borrowed(&mut self) -> Datagram<&mut [u8]> {
        let Self { addresses, ecn, ref mut payload } = *self;
        Datagram { addresses, ecn, payload: payload.as_mut() }
    }
}
