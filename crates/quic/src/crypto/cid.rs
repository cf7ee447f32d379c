//! Connection IDs that this server issues, and their stateless reset tokens (RFC 9000, sections 5.1
//! and 10.3).
//!
//! A connection ID is one encrypted AES-128 block that names the connection's location. Holders of
//! the key (another core that received the datagram, a load balancer) can route by it. To others,
//! successive IDs of a connection are unrelated (RFC 9000, section 5.1: they "MUST NOT contain any
//! information that can be used … to correlate them").

use aws_lc_rs::cipher::{
    AES_128, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::hmac;

/// Decrypted content of a connection ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CidPlain {
    /// The server of a fleet that issued it.
    pub server: u16,
    /// The core (thread) that owns the connection.
    pub core: u8,
    /// Sequence number of the ID, modulo 256 (RFC 9000, section 5.1.1).
    pub sequence: u8,
    /// The connection's place in that core's table.
    pub slot: u32,
    /// Distinguishes successive tenants of the slot, and genuine IDs from foreign ones: any 16
    /// bytes decode to something, so the holder of the slot compares this number.
    pub nonce: u64,
}

/// Encrypts and decrypts connection IDs and derives their reset tokens.
pub struct CidCipher {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
    reset: hmac::Key,
}

impl CidCipher {
    /// From the two secrets that a [`KeyRing`](super::KeyRing) derives for it.
    pub(super) fn new(block_key: &[u8; 16], reset_key: &[u8; 32]) -> Self {
        let key =
            || UnboundCipherKey::new(&AES_128, block_key).expect("the key has the cipher's length");
        Self {
            encrypting: EncryptingKey::ecb(key()).expect("AES has an ECB mode"),
            decrypting: DecryptingKey::ecb(key()).expect("AES has an ECB mode"),
            reset: hmac::Key::new(hmac::HMAC_SHA256, reset_key),
        }
    }

    /// The connection ID that says `plain`.
    pub fn encode(&self, plain: &CidPlain) -> [u8; 16] {
        let mut block = [0; 16];
        block[0..2].copy_from_slice(&plain.server.to_be_bytes());
        block[2] = plain.core;
        block[3] = plain.sequence;
        block[4..8].copy_from_slice(&plain.slot.to_be_bytes());
        block[8..16].copy_from_slice(&plain.nonce.to_be_bytes());
        // A single block has no mode to speak of: this is AES as a permutation.
        self.encrypting
            .less_safe_encrypt(&mut block, EncryptionContext::None)
            .expect("one whole block");
        block
    }

    /// Decrypts a connection ID. Foreign bytes decode to arbitrary values.
    pub fn decode(&self, id: &[u8; 16]) -> CidPlain {
        let mut block = *id;
        self.decrypting.decrypt(&mut block, DecryptionContext::None).expect("one whole block");
        let [s0, s1, core, sequence, l0, l1, l2, l3, nonce @ ..] = block;
        CidPlain {
            server: u16::from_be_bytes([s0, s1]),
            core,
            sequence,
            slot: u32::from_be_bytes([l0, l1, l2, l3]),
            nonce: u64::from_be_bytes(nonce),
        }
    }

    /// The stateless reset token of a connection ID: HMAC-SHA256 of it, cut to 16 bytes
    /// (RFC 9000, section 10.3.2 suggests a pseudorandom function of a static key and the ID).
    pub fn reset_token(&self, id: &[u8]) -> [u8; 16] {
        let tag = hmac::sign(&self.reset, id);
        let mut token = [0; 16];
        token.copy_from_slice(&tag.as_ref()[..16]);
        token
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cipher(seed: u8) -> CidCipher {
        CidCipher::new(&[seed; 16], &[seed ^ 0xff; 32])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_connection_id_says_what_was_put_in(
            server: u16, core: u8, sequence: u8, slot: u32, nonce: u64,
        ) {
            let plain = CidPlain { server, core, sequence, slot, nonce };
            let id = cipher(1).encode(&plain);
            prop_assert_eq!(cipher(1).decode(&id), plain);
            prop_assert_ne!(cipher(2).decode(&id), plain);
        }
    }

    #[test]
    fn the_block_is_aes_128() {
        // FIPS 197, appendix C.1.
        let key = core::array::from_fn(|i| i as u8);
        let plain = CidPlain {
            server: 0x0011,
            core: 0x22,
            sequence: 0x33,
            slot: 0x4455_6677,
            nonce: 0x8899_aabb_ccdd_eeff,
        };
        let expected = 0x69c4e0d86a7b0430d8cdb78070b4c55a_u128.to_be_bytes();
        assert_eq!(CidCipher::new(&key, &[0; 32]).encode(&plain), expected);
    }

    #[test]
    fn successive_ids_of_a_connection_share_nothing_visible() {
        let first = CidPlain { server: 1, core: 2, sequence: 0, slot: 3, nonce: 4 };
        let second = CidPlain { sequence: 1, ..first };
        let (a, b) = (cipher(1).encode(&first), cipher(1).encode(&second));
        assert!(a.iter().zip(&b).filter(|(a, b)| a == b).count() <= 4);
    }

    #[test]
    fn reset_tokens_depend_on_the_id_and_on_the_key() {
        let token = cipher(1).reset_token(&[7; 16]);
        assert_eq!(token, cipher(1).reset_token(&[7; 16]));
        assert_ne!(token, cipher(1).reset_token(&[8; 16]));
        assert_ne!(token, cipher(2).reset_token(&[7; 16]));
    }
}
