//! RTMP handshake (specification 1.0, section 5.2) of clients and servers.
//!
//! Only the simple handshake is supported. Clients that use the "complex" handshake put a digest
//! into the random part of C1. OBS, ffmpeg and librtmp accept an S1 without a digest, and an S2
//! that repeats C1, if the version field of S1 is zero. The peer's echo is not verified, because it
//! proves nothing.

use bytes::{BufMut, Bytes, BytesMut};

use super::Error;

/// Random part of C1 or S1.
pub type Random = [u8; 1_528];

const VERSION: u8 = 3;
const PACKET_LEN: usize = 1_536;

#[derive(Debug)]
enum HandshakeState {
    /// Partially received C0 and C1, or S0 and S1. A server also has its first response.
    Hello {
        received: BytesMut,
        answer: Option<Bytes>,
    },
    /// Number of missing bytes of C2 or S2.
    Echo(usize),
    Done,
}

#[derive(Debug)]
pub(super) struct Handshake(HandshakeState);

impl Handshake {
    pub(super) fn server(random: &Random) -> Self {
        Self(HandshakeState::Hello { received: BytesMut::new(), answer: Some(hello(random)) })
    }

    /// Returns the client's handshake and its first bytes.
    pub(super) fn client(random: &Random) -> (Self, Bytes) {
        (Self(HandshakeState::Hello { received: BytesMut::new(), answer: None }), hello(random))
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.0, HandshakeState::Done)
    }

    /// Consumes handshake input, and passes output to `send`.
    pub(super) fn read(
        &mut self,
        input: &mut &[u8],
        mut send: impl FnMut(Bytes),
    ) -> Result<(), Error> {
        if let HandshakeState::Hello { received, answer } = &mut self.0 {
            let taken = input.len().min(1 + PACKET_LEN - received.len());
            received.put_slice(&input[..taken]);
            *input = &input[taken..];
            match received.first() {
                Some(&VERSION) | None => {}
                Some(&version) => return Err(Error::Version(version)),
            }
            if received.len() <= PACKET_LEN {
                return Ok(());
            }
            answer.take().into_iter().for_each(&mut send);
            send(received.split_off(1).freeze());
            self.0 = HandshakeState::Echo(PACKET_LEN);
        }
        if let HandshakeState::Echo(missing) = &mut self.0 {
            let taken = input.len().min(*missing);
            *input = &input[taken..];
            *missing -= taken;
            if *missing == 0 {
                self.0 = HandshakeState::Done;
            }
        }
        Ok(())
    }
}

/// Returns the first packets: version, time 0 (there is no clock), version field 0 (no digest), and
/// random bytes.
fn hello(random: &Random) -> Bytes {
    let mut hello = BytesMut::with_capacity(1 + PACKET_LEN);
    hello.put_u8(VERSION);
    hello.put_bytes(0, 8);
    hello.put_slice(random);
    hello.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(handshake: &mut Handshake, mut input: &[u8]) -> Result<(Vec<u8>, usize), Error> {
        let mut output = Vec::new();
        handshake.read(&mut input, |bytes| output.extend_from_slice(&bytes))?;
        Ok((output, input.len()))
    }

    #[test]
    fn a_digest_in_c1_is_ignored() {
        let mut server = Handshake::server(&[7; 1_528]);
        let mut c1: Vec<u8> = (0..PACKET_LEN).map(|i| (i * 31) as u8).collect();
        c1[4..8].copy_from_slice(&[9, 0, 124, 2]);
        let (output, left) = read(&mut server, &[&[3][..], &c1].concat()).expect("accepted");
        assert_eq!((output.len(), left), (1 + 2 * PACKET_LEN, 0));
        assert_eq!(output[..9], [3, 0, 0, 0, 0, 0, 0, 0, 0], "S1 says that it has no digest");
        assert_eq!(output[9..1 + PACKET_LEN], [7; 1_528]);
        assert_eq!(output[1 + PACKET_LEN..], c1);
        assert!(!server.is_done());
        let (output, left) = read(&mut server, &[0; PACKET_LEN + 5]).expect("accepted");
        assert_eq!((output.len(), left, server.is_done()), (0, 5, true));
    }

    #[test]
    fn other_versions_are_rejected_at_their_first_byte() {
        for version in [0, 6, 8, b'G'] {
            let mut server = Handshake::server(&[0; 1_528]);
            assert_eq!(read(&mut server, &[version]), Err(Error::Version(version)));
        }
    }
}
