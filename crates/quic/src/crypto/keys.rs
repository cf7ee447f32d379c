//! Packet and header protection (RFC 9001, section 5), the public Initial keys (section 5.2), and
//! the integrity tag of Retry packets (section 5.8).
//!
//! In addition to TLS ciphers there is a null cipher for the testbed. It keeps the 16-byte tag, so
//! that packet sizes, key phases and failures are realistic, and spends no CPU time on the payload.

use aws_lc_rs::aead;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic;

use crate::wire::Truncated;

/// Bytes that packet protection adds to a payload (RFC 9001, section 5.3: every cipher suite of
/// QUIC has a 16-byte tag).
pub const TAG_LEN: usize = 16;

/// Bytes of ciphertext that header protection samples (RFC 9001, section 5.4.2).
const SAMPLE_LEN: usize = 16;

/// Where the sample starts, counted from the packet number: the number is taken to be 4 bytes long
/// (RFC 9001, section 5.4.2).
const SAMPLE_OFFSET: usize = 4;

/// A packet that does not authenticate under the key: to be dropped and counted
/// (RFC 9001, section 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecryptError;

/// The key that protects the payloads of one direction (RFC 9001, section 5.3).
pub struct PacketKey(PacketCipher);

enum PacketCipher {
    Real(Box<dyn quic::PacketKey>),
    Null { generation: u8 },
}

impl PacketKey {
    pub(super) fn real(key: Box<dyn quic::PacketKey>) -> Self {
        debug_assert_eq!(key.tag_len(), TAG_LEN);
        Self(PacketCipher::Real(key))
    }

    /// The null cipher after `generation` key updates (modulo 256); for the testbed only.
    pub fn null(generation: u8) -> Self {
        Self(PacketCipher::Null { generation })
    }

    /// Encrypts in place. `header` is the unprotected header through its packet number, `pn` the
    /// full packet number; the last [`TAG_LEN`] bytes of `payload_and_tag` receive the tag.
    ///
    /// # Panics
    /// If `payload_and_tag` has no room for the tag: a bug of the caller.
    pub fn seal(&self, pn: u64, header: &[u8], payload_and_tag: &mut [u8]) {
        let plain_len =
            payload_and_tag.len().checked_sub(TAG_LEN).expect("the caller leaves room for the tag");
        let (payload, tag) = payload_and_tag.split_at_mut(plain_len);
        match &self.0 {
            PacketCipher::Real(key) => {
                let sealed = key
                    .encrypt_in_place(pn, header, payload)
                    .expect("a datagram is far below the cipher's length limit of 2^36 bytes");
                tag.copy_from_slice(sealed.as_ref());
            }
            PacketCipher::Null { generation } => tag.copy_from_slice(&null_tag(*generation)),
        }
    }

    /// Decrypts in place and returns the length of the plaintext, which then stands at the start
    /// of `payload_and_tag`.
    ///
    /// # Errors
    /// [`DecryptError`] if the packet is not authentic (or shorter than a tag); the buffer's
    /// contents are then unspecified.
    pub fn open(
        &self,
        pn: u64,
        header: &[u8],
        payload_and_tag: &mut [u8],
    ) -> Result<usize, DecryptError> {
        let plain_len = payload_and_tag.len().checked_sub(TAG_LEN).ok_or(DecryptError)?;
        match &self.0 {
            PacketCipher::Real(key) => {
                key.decrypt_in_place(pn, header, payload_and_tag).map_err(|_| DecryptError)?;
            }
            PacketCipher::Null { generation } => {
                if payload_and_tag[plain_len..] != null_tag(*generation) {
                    return Err(DecryptError);
                }
            }
        }
        Ok(plain_len)
    }

    /// How many packets this key may seal (RFC 9001, section 6.6); `u64::MAX` stands for no limit.
    pub fn confidentiality_limit(&self) -> u64 {
        match &self.0 {
            PacketCipher::Real(key) => key.confidentiality_limit(),
            PacketCipher::Null { .. } => u64::MAX,
        }
    }

    /// How many packets of a connection may fail to authenticate under this cipher
    /// (RFC 9001, section 6.6).
    pub fn integrity_limit(&self) -> u64 {
        match &self.0 {
            PacketCipher::Real(key) => key.integrity_limit(),
            PacketCipher::Null { .. } => u64::MAX,
        }
    }
}

/// Returns the null cipher's tag after `generation` key updates (modulo 256), which a testbed
/// client writes too. Keys of different phases must not open each other's packets.
pub fn null_tag(generation: u8) -> [u8; TAG_LEN] {
    let mut tag = [0xc0; TAG_LEN];
    tag[TAG_LEN - 1] = generation;
    tag
}

/// The key that masks packet numbers and the low bits of first bytes in one direction
/// (RFC 9001, section 5.4). Key updates leave it alone.
pub struct HeaderKey(HeaderCipher);

enum HeaderCipher {
    Real(Box<dyn quic::HeaderProtectionKey>),
    Null,
}

impl HeaderKey {
    pub(super) fn real(key: Box<dyn quic::HeaderProtectionKey>) -> Self {
        debug_assert_eq!(key.sample_len(), SAMPLE_LEN);
        Self(HeaderCipher::Real(key))
    }

    /// No masking; for the testbed only.
    pub fn null() -> Self {
        Self(HeaderCipher::Null)
    }

    /// Masks the header of a sealed packet with its packet number at `pn_offset..pn_offset +
    /// pn_len`.
    ///
    /// # Panics
    /// If the packet is shorter than `pn_offset + 20` bytes, the end of the sample (the sender pads
    /// for it: RFC 9001, section 5.4.2), or `pn_len` is not within 1..=4.
    pub fn protect(&self, packet: &mut [u8], pn_offset: usize, pn_len: usize) {
        assert!((1..=4).contains(&pn_len), "a packet number has 1 to 4 bytes");
        if let HeaderCipher::Real(key) = &self.0 {
            let (header, sample) = packet.split_at_mut(pn_offset + SAMPLE_OFFSET);
            let (first, number) = split_header(header, pn_offset);
            key.encrypt_in_place(&sample[..SAMPLE_LEN], first, &mut number[..pn_len])
                .expect("the sample and the packet number have the lengths that the key wants");
        }
    }

    /// Unmasks the header in place and returns the first byte, the truncated packet number and its
    /// length in bytes (1..=4). Nothing here is authentic until the payload has been opened
    /// (RFC 9001, section 9.5), so the caller checks reserved bits after that only.
    ///
    /// # Errors
    /// [`Truncated`] if there is no complete sample; the packet is then unchanged.
    pub fn unprotect(
        &self,
        packet: &mut [u8],
        pn_offset: usize,
    ) -> Result<(u8, u64, usize), Truncated> {
        // RFC 9001, section 5.4.2: "An endpoint MUST discard packets that are not long enough to
        // contain a complete sample." The null cipher drops the same packets.
        if packet.len() < pn_offset + SAMPLE_OFFSET + SAMPLE_LEN || pn_offset == 0 {
            return Err(Truncated);
        }
        let (header, sample) = packet.split_at_mut(pn_offset + SAMPLE_OFFSET);
        let (first, number) = split_header(header, pn_offset);
        if let HeaderCipher::Real(key) = &self.0 {
            key.decrypt_in_place(&sample[..SAMPLE_LEN], first, number).map_err(|_| Truncated)?;
        }
        let pn_len = usize::from(*first & 0x03) + 1;
        let truncated = number[..pn_len].iter().fold(0u64, |pn, &byte| pn << 8 | u64::from(byte));
        Ok((*first, truncated, pn_len))
    }
}

/// The first byte, and the four bytes that a packet number may occupy.
fn split_header(header: &mut [u8], pn_offset: usize) -> (&mut u8, &mut [u8]) {
    let (before, number) = header.split_at_mut(pn_offset);
    (&mut before[0], number)
}

/// The two keys of one direction.
pub struct DirectionKeys {
    /// Masks headers.
    pub header: HeaderKey,
    /// Protects payloads.
    pub packet: PacketKey,
}

impl DirectionKeys {
    pub(super) fn real(keys: quic::DirectionalKeys) -> Self {
        Self { header: HeaderKey::real(keys.header), packet: PacketKey::real(keys.packet) }
    }
}

/// The keys of an encryption level: `local` seals what we send, `remote` opens what we receive.
pub struct Keys {
    /// For packets that we send.
    pub local: DirectionKeys,
    /// For packets that the peer sends.
    pub remote: DirectionKeys,
}

impl Keys {
    pub(super) fn real(keys: quic::Keys) -> Self {
        Self { local: DirectionKeys::real(keys.local), remote: DirectionKeys::real(keys.remote) }
    }
}

/// The server's Initial keys for a client that chose `client_dcid` as the Destination Connection ID
/// of its first Initial packet, or of the first one after a Retry (RFC 9001, section 5.2).
pub fn initial_keys(client_dcid: &[u8]) -> Keys {
    initial_keys_of(rustls::Side::Server, client_dcid)
}

pub(super) fn initial_keys_of(side: rustls::Side, client_dcid: &[u8]) -> Keys {
    let suite = TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(|suite| suite.quic_suite())
        .expect("AES-128-GCM is a TLS 1.3 suite with QUIC keys");
    Keys::real(suite.keys(client_dcid, side, quic::Version::V1))
}

/// RFC 9001, section 5.8: the key and nonce of the Retry integrity tag in version 1.
const RETRY_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const RETRY_NONCE: [u8; 12] =
    [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];

/// Returns the Retry Integrity Tag that ends a Retry packet (RFC 9001, section 5.8).
/// `original_dcid` is the Destination Connection ID of the client's Initial (0..=20 bytes),
/// `retry_without_tag` the packet without the tag.
pub fn retry_tag(original_dcid: &[u8], retry_without_tag: &[u8]) -> [u8; TAG_LEN] {
    let mut pseudo_packet = Vec::with_capacity(1 + original_dcid.len() + retry_without_tag.len());
    pseudo_packet
        .push(u8::try_from(original_dcid.len()).expect("a connection ID has at most 20 bytes"));
    pseudo_packet.extend_from_slice(original_dcid);
    pseudo_packet.extend_from_slice(retry_without_tag);

    let key = aead::UnboundKey::new(&aead::AES_128_GCM, &RETRY_KEY)
        .expect("the key has the cipher's length");
    let tag = aead::LessSafeKey::new(key)
        .seal_in_place_separate_tag(
            aead::Nonce::assume_unique_for_key(RETRY_NONCE),
            aead::Aad::from(&pseudo_packet),
            &mut [],
        )
        .expect("a Retry packet is far below the cipher's length limit");
    tag.as_ref().try_into().expect("the cipher's tag has 16 bytes")
}

#[cfg(test)]
mod tests;
