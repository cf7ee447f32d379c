//! Address validation tokens (RFC 9000, section 8.1). Retry tokens are short-lived and bound to the
//! client's address, port and connection ID of the Retry, so that one token serves one handshake at
//! a time. NEW_TOKEN tokens live longer, are bound to the client's address, and carry our own bytes
//! for its next connection.
//!
//! The first byte distinguishes the two, as RFC 9000, section 8.1.1, requires. It selects the
//! sub-key, which authenticates it. Everything else is encrypted: observers cannot link connections
//! by it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::CryptoRng;
use super::keyring::{KeyRing, Purpose};

const RETRY: u8 = 0x52;
const ADDRESS: u8 = 0x4e;

/// Content of a Retry token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryToken {
    /// The Destination Connection ID of the Initial that the Retry answered (the transport
    /// parameter original_destination_connection_id must repeat it: RFC 9000, section 7.3).
    pub original_dcid: Vec<u8>,
    /// Issue time, in Unix seconds.
    pub issued: u64,
}

/// Content of a NEW_TOKEN token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressToken {
    /// Bytes of ours for the next connection (the transport cookie), at most
    /// [`MAX_OWN_BYTES`](super::MAX_OWN_BYTES).
    pub own: Vec<u8>,
    /// Issue time, in Unix seconds.
    pub issued: u64,
}

/// Result of opening an Initial packet's Token field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// From our Retry: the address is validated.
    Retry(RetryToken),
    /// From our NEW_TOKEN: the address is validated, provided that the
    /// [`SingleUseLog`](super::SingleUseLog) finds `id` unused.
    Address {
        /// The token's content.
        token: AddressToken,
        /// Identifies the token.
        id: u64,
    },
    /// No proof of anything.
    Invalid(InvalidToken),
}

/// Reason why a token is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidToken {
    /// Not one of ours for this client address: forged, damaged, issued to another address or
    /// sealed by a key that is gone. Proceed as if there were no token (RFC 9000, section 8.1.3).
    NotOurs,
    /// Ours from a Retry, but too old: the client will not take another Retry, so close with
    /// INVALID_TOKEN (RFC 9000, section 8.1.2).
    ExpiredRetry,
    /// Ours from a NEW_TOKEN, but too old. Proceed as if there were no token.
    ExpiredAddress,
}

impl RetryToken {
    /// Maximum time for a client to answer a Retry, in seconds.
    pub const LIFETIME: u64 = 15;

    /// Returns the Token field of a Retry packet to `client` with Source Connection ID `scid`.
    pub fn seal(
        &self,
        keys: &KeyRing,
        client: SocketAddr,
        scid: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Vec<u8> {
        let aad = bound_to(client, scid);
        seal(keys, Purpose::RetryToken, self.issued, &self.original_dcid, &aad, rng)
    }
}

impl AddressToken {
    /// The Token field of a NEW_TOKEN frame to `client`.
    pub fn seal(&self, keys: &KeyRing, client: IpAddr, rng: &mut impl CryptoRng) -> Vec<u8> {
        let aad = address(client).octets();
        seal(keys, Purpose::AddressToken, self.issued, &self.own, &aad, rng)
    }
}

fn seal(
    keys: &KeyRing,
    purpose: Purpose,
    issued: u64,
    content: &[u8],
    aad: &[u8],
    rng: &mut impl CryptoRng,
) -> Vec<u8> {
    let plaintext = [&issued.to_be_bytes(), content].concat();
    let mut token = vec![if purpose == Purpose::RetryToken { RETRY } else { ADDRESS }];
    token.extend(keys.seal(purpose, issued, &plaintext, aad, rng));
    token
}

/// Opens the (non-empty) Token field of an Initial packet with Destination Connection ID `dcid`
/// from `client` at `now` (Unix seconds). `address_lifetime` is the lifetime of a NEW_TOKEN token,
/// in seconds (usually 86 400).
pub fn open_token(
    keys: &KeyRing,
    token: &[u8],
    client: SocketAddr,
    dcid: &[u8],
    now: u64,
    address_lifetime: u64,
) -> Token {
    let not_ours = Token::Invalid(InvalidToken::NotOurs);
    let Some((&kind, blob)) = token.split_first() else {
        return not_ours;
    };
    let opened = match kind {
        RETRY => keys.open(Purpose::RetryToken, blob, &bound_to(client, dcid)),
        ADDRESS => keys.open(Purpose::AddressToken, blob, &address(client.ip()).octets()),
        _ => None,
    };
    let Some(unsealed) = opened else {
        return not_ours;
    };
    let Some((issued, content)) = unsealed.plaintext.split_first_chunk() else {
        return not_ours;
    };
    let issued = u64::from_be_bytes(*issued);
    let age = now.saturating_sub(issued);
    if kind == RETRY {
        if age > RetryToken::LIFETIME {
            return Token::Invalid(InvalidToken::ExpiredRetry);
        }
        return Token::Retry(RetryToken { original_dcid: content.to_vec(), issued });
    }
    if age > address_lifetime {
        return Token::Invalid(InvalidToken::ExpiredAddress);
    }
    Token::Address { token: AddressToken { own: content.to_vec(), issued }, id: unsealed.id }
}

/// One form for an address, whether it arrived on an IPv4 or on a dual-stack socket.
fn address(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Returns the data that binds a Retry token: the client's address and port, and the ID it answers.
fn bound_to(client: SocketAddr, id: &[u8]) -> Vec<u8> {
    [&address(client.ip()).octets()[..], &client.port().to_be_bytes(), id].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{key_ring, rng};
    use super::*;

    const DAY: u64 = 86_400;
    const ID: &[u8] = &[9; 16];

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("a socket address")
    }

    fn retry(issued: u64) -> RetryToken {
        RetryToken { original_dcid: vec![1, 2, 3, 4, 5, 6, 7, 8], issued }
    }

    fn fresh(issued: u64) -> AddressToken {
        AddressToken { own: b"cookie".to_vec(), issued }
    }

    fn open(token: &[u8], client: &str, now: u64) -> Token {
        open_token(&key_ring(), token, addr(client), ID, now, DAY)
    }

    const NOT_OURS: Token = Token::Invalid(InvalidToken::NotOurs);

    #[test]
    fn a_retry_token_proves_address_and_port_for_15_seconds() {
        let token = retry(1000).seal(&key_ring(), addr("192.0.2.1:4433"), ID, &mut rng(1));
        assert_eq!(open(&token, "192.0.2.1:4433", 1015), Token::Retry(retry(1000)));
        assert_eq!(open(&token, "[::ffff:192.0.2.1]:4433", 1015), Token::Retry(retry(1000)));
        let expired = Token::Invalid(InvalidToken::ExpiredRetry);
        assert_eq!(open(&token, "192.0.2.1:4433", 1016), expired);
        assert_eq!(open(&token, "192.0.2.1:4434", 1001), NOT_OURS);
        assert_eq!(open(&token, "192.0.2.2:4433", 1001), NOT_OURS);
        let other_id = open_token(&key_ring(), &token, addr("192.0.2.1:4433"), b"other", 1001, DAY);
        assert_eq!(other_id, NOT_OURS);
    }

    #[test]
    fn an_address_token_proves_the_address_on_any_port_for_its_lifetime() {
        let client = addr("[2001:db8::1]:1");
        let token = fresh(1000).seal(&key_ring(), client.ip(), &mut rng(1));
        let Token::Address { token: opened, .. } = open(&token, "[2001:db8::1]:2", 1000 + DAY)
        else {
            panic!("not accepted");
        };
        assert_eq!(opened, fresh(1000));
        let expired = Token::Invalid(InvalidToken::ExpiredAddress);
        assert_eq!(open(&token, "[2001:db8::1]:2", 1001 + DAY), expired);
        assert_eq!(open(&token, "[2001:db8::2]:1", 1001), NOT_OURS);
    }

    #[test]
    fn every_address_token_has_an_id_of_its_own() {
        let client = addr("192.0.2.1:1");
        let mut rng = rng(1);
        let mut id = || match open(
            &fresh(1000).seal(&key_ring(), client.ip(), &mut rng),
            "192.0.2.1:1",
            1000,
        ) {
            Token::Address { id, .. } => id,
            other => panic!("{other:?}"),
        };
        assert_ne!(id(), id());
    }

    #[test]
    fn no_token_passes_for_one_of_the_other_kind() {
        let client = addr("192.0.2.1:4433");
        let mut token = fresh(1000).seal(&key_ring(), client.ip(), &mut rng(1));
        token[0] = RETRY;
        assert_eq!(open(&token, "192.0.2.1:4433", 1000), NOT_OURS);
        let mut token = retry(1000).seal(&key_ring(), client, ID, &mut rng(1));
        token[0] = ADDRESS;
        assert_eq!(open(&token, "192.0.2.1:4433", 1000), NOT_OURS);
    }

    #[test]
    fn a_token_with_any_bit_flipped_is_not_ours() {
        let mut token = retry(1000).seal(&key_ring(), addr("192.0.2.1:4433"), ID, &mut rng(1));
        for bit in 0..token.len() * 8 {
            token[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&token, "192.0.2.1:4433", 1000), NOT_OURS, "bit {bit}");
            token[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_token_outlives_its_key_only_as_long_as_the_ring_keeps_it() {
        let (old, new) = ((100, [1; 32]), (200, [2; 32]));
        let client = addr("192.0.2.1:4433");
        let before = KeyRing::new(&[0; 32], &[old]);
        let token = fresh(150).seal(&before, client.ip(), &mut rng(1));
        let both = KeyRing::new(&[0; 32], &[old, new]);
        assert!(matches!(open_token(&both, &token, client, ID, 250, DAY), Token::Address { .. }));
        let after = KeyRing::new(&[0; 32], &[new]);
        assert_eq!(open_token(&after, &token, client, ID, 250, DAY), NOT_OURS);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn arbitrary_bytes_are_not_ours(bytes: Vec<u8>) {
            prop_assert_eq!(open(&bytes, "192.0.2.1:4433", 1000), NOT_OURS);
            for kind in [RETRY, ADDRESS] {
                let token = [&[kind], &bytes[..]].concat();
                prop_assert_eq!(open(&token, "192.0.2.1:4433", 1000), NOT_OURS);
            }
        }
    }
}
