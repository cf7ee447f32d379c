//! Secrets of a server or fleet: keys for session tickets, address tokens, connection IDs and reset
//! tokens.
//!
//! There are two kinds of master keys, with different lifetimes. *Rotating* keys seal tickets and
//! tokens. The newest valid key seals, and every key in the file opens, so rotation means appending
//! a line and later deleting an old one. A line dated in the future lets a fleet learn a key before
//! its first use. The *static* key derives connection IDs and reset tokens, which must survive
//! rotations and restarts as long as a connection lasts (RFC 9000, section 10.3.2). Each use has
//! its own sub-key by HKDF-SHA256 (RFC 5869), so that a blob never opens as another kind.

use core::fmt;

use aws_lc_rs::{aead, hkdf};

use super::CryptoRng;
use super::cid::CidCipher;

/// Purpose of a sealed blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A TLS session ticket.
    Ticket,
    /// A token sent in a Retry packet.
    RetryToken,
    /// A token sent in a NEW_TOKEN frame.
    AddressToken,
    /// Application data that clients carry like tokens.
    Application,
}

/// A blob that opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsealed {
    /// The sealed content.
    pub plaintext: Vec<u8>,
    /// Identifies the blob, for the [`SingleUseLog`](super::SingleUseLog): 64 random bits that are
    /// part of it.
    pub id: u64,
}

/// A server's keys. Immutable: rotation swaps in a new ring.
pub struct KeyRing {
    /// Sorted by creation time, oldest first; never empty.
    rotating: Vec<Rotating>,
    cids: CidCipher,
}

struct Rotating {
    created: u64,
    id: u8,
    ticket: aead::LessSafeKey,
    retry_token: aead::LessSafeKey,
    address_token: aead::LessSafeKey,
    application: aead::LessSafeKey,
}

/// Error in the text of a keys file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRingError {
    /// The line's number, counted from 1; `None` if the fault is the file's as a whole.
    pub line: Option<usize>,
    /// Description of the error.
    pub reason: &'static str,
}

impl fmt::Display for KeyRingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(self.reason),
        }
    }
}

impl core::error::Error for KeyRingError {}

/// Bytes of a master key.
const MASTER_LEN: usize = 32;
/// Rotating keys in one ring, at most.
const MAX_ROTATING: usize = 64;
const NONCE_LEN: usize = 12;

impl KeyRing {
    /// The ring with the static master key `fixed` and the rotating ones (creation time in Unix
    /// seconds, key).
    ///
    /// # Panics
    /// If `rotating` is empty.
    pub fn new(fixed: &[u8; MASTER_LEN], rotating: &[(u64, [u8; MASTER_LEN])]) -> Self {
        assert!(!rotating.is_empty(), "a key ring needs a rotating key");
        let mut rotating: Vec<_> = rotating.iter().map(Rotating::new).collect();
        rotating.sort_by_key(|key| key.created);
        let cid_key = sub_key(fixed, b"mendcast cid");
        let block_key = cid_key.first_chunk().expect("16 of 32 bytes");
        Self { rotating, cids: CidCipher::new(block_key, &sub_key(fixed, b"mendcast reset")) }
    }

    /// Reads the text of a keys file. One line says `static HEX`, one or more (at most 64) say
    /// `CREATED HEX`, with the creation time in Unix seconds; HEX is 64 hexadecimal digits. Empty
    /// lines and those that begin with `#` are skipped. Seal no more than 2^32 blobs with a key
    /// (random nonces): a key per day or week is ample.
    ///
    /// # Errors
    /// [`KeyRingError`] names the first line at fault; it never quotes the line.
    pub fn parse(text: &str) -> Result<Self, KeyRingError> {
        let mut fixed = None;
        let mut rotating = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let fault = |reason| KeyRingError { line: Some(index + 1), reason };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hex) = line
                .split_once(char::is_whitespace)
                .ok_or(fault("expected `static HEX` or `CREATED HEX`"))?;
            let key = parse_hex(hex.trim()).ok_or(fault("a key has 64 hexadecimal digits"))?;
            if name == "static" {
                if fixed.replace(key).is_some() {
                    return Err(fault("a second `static` line"));
                }
            } else {
                let created = name
                    .parse()
                    .map_err(|_| fault("a creation time is a number of Unix seconds"))?;
                if rotating.len() == MAX_ROTATING {
                    return Err(fault("more than 64 rotating keys"));
                }
                rotating.push((created, key));
            }
        }
        let whole = |reason| KeyRingError { line: None, reason };
        if rotating.is_empty() {
            return Err(whole("no `CREATED HEX` line"));
        }
        Ok(Self::new(&fixed.ok_or(whole("no `static HEX` line"))?, &rotating))
    }

    /// What makes connection IDs and reset tokens.
    pub fn cids(&self) -> &CidCipher {
        &self.cids
    }

    /// Seals `plaintext` with AES-256-GCM at the time `now` (Unix seconds), bound to `aad`: adds 29
    /// bytes.
    pub fn seal(
        &self,
        purpose: Purpose,
        now: u64,
        plaintext: &[u8],
        aad: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Vec<u8> {
        let due = self.rotating.partition_point(|key| key.created <= now);
        // If every key is dated in the future the oldest one serves: refusing would only switch
        // tickets off.
        let key = &self.rotating[due.saturating_sub(1)];
        let mut nonce = [0; NONCE_LEN];
        rng.fill_bytes(&mut nonce);

        let tag_len = key.cipher(purpose).algorithm().tag_len();
        let mut blob = Vec::with_capacity(1 + NONCE_LEN + plaintext.len() + tag_len);
        blob.push(key.id);
        blob.extend_from_slice(&nonce);
        blob.extend_from_slice(plaintext);
        let tag = key
            .cipher(purpose)
            .seal_in_place_separate_tag(
                aead::Nonce::assume_unique_for_key(nonce),
                aead::Aad::from(aad),
                &mut blob[1 + NONCE_LEN..],
            )
            .expect("a ticket or token is far below the cipher's length limit");
        blob.extend_from_slice(tag.as_ref());
        blob
    }

    /// Opens what any key of the ring has sealed for this purpose with this `aad`. `None` for
    /// anything else.
    pub fn open(&self, purpose: Purpose, blob: &[u8], aad: &[u8]) -> Option<Unsealed> {
        let (&[id, ref nonce @ ..], sealed) = blob.split_first_chunk::<{ 1 + NONCE_LEN }>()?;
        self.rotating.iter().rev().filter(|key| key.id == id).find_map(|key| {
            let mut plaintext = sealed.to_vec();
            let len = key
                .cipher(purpose)
                .open_in_place(
                    aead::Nonce::assume_unique_for_key(*nonce),
                    aead::Aad::from(aad),
                    &mut plaintext,
                )
                .ok()?
                .len();
            plaintext.truncate(len);
            let (id, _) = nonce.split_first_chunk().expect("a nonce is longer than 8 bytes");
            Some(Unsealed { plaintext, id: u64::from_be_bytes(*id) })
        })
    }
}

impl fmt::Debug for KeyRing {
    /// Names no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let created = self.rotating.iter().map(|key| key.created);
        f.debug_list().entries(created).finish()
    }
}

impl Rotating {
    fn new((created, master): &(u64, [u8; MASTER_LEN])) -> Self {
        let cipher = |label: &[u8]| {
            let key = aead::UnboundKey::new(&aead::AES_256_GCM, &sub_key(master, label))
                .expect("a sub-key has the cipher's length");
            aead::LessSafeKey::new(key)
        };
        Self {
            created: *created,
            id: sub_key(master, b"mendcast key id")[0],
            ticket: cipher(b"mendcast ticket"),
            retry_token: cipher(b"mendcast retry token"),
            address_token: cipher(b"mendcast address token"),
            application: cipher(b"mendcast application"),
        }
    }

    fn cipher(&self, purpose: Purpose) -> &aead::LessSafeKey {
        match purpose {
            Purpose::Ticket => &self.ticket,
            Purpose::RetryToken => &self.retry_token,
            Purpose::AddressToken => &self.address_token,
            Purpose::Application => &self.application,
        }
    }
}

/// HKDF-Expand alone: master keys are uniformly random, there is nothing to extract.
fn sub_key(master: &[u8; MASTER_LEN], label: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, master)
        .expand(&[label], hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut key))
        .expect("32 bytes are one block of SHA-256");
    key
}

fn parse_hex(text: &str) -> Option<[u8; MASTER_LEN]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * MASTER_LEN {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    let mut key = [0; MASTER_LEN];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::super::testing::rng;
    use super::*;

    fn hex(byte: u8) -> String {
        format!("{byte:02x}").repeat(32)
    }

    fn open(ring: &KeyRing, blob: &[u8]) -> Option<Vec<u8>> {
        ring.open(Purpose::Ticket, blob, b"aad").map(|unsealed| unsealed.plaintext)
    }

    #[test]
    fn a_keys_file_reads_as_the_keys_that_it_lists() {
        let text = format!("# ours\n\nstatic {}\n 200  {}\n100 {}\n", hex(1), hex(2), hex(3));
        let parsed = KeyRing::parse(&text).expect("well-formed");
        let built = KeyRing::new(&[1; 32], &[(100, [3; 32]), (200, [2; 32])]);
        let blob = built.seal(Purpose::Ticket, 300, b"text", b"aad", &mut rng(1));
        assert_eq!(open(&parsed, &blob).as_deref(), Some(&b"text"[..]));
        assert_eq!(parsed.cids().reset_token(b"id"), built.cids().reset_token(b"id"));
    }

    #[test]
    fn a_bad_keys_file_is_refused_by_line() {
        let good = format!("static {}\n100 {}\n", hex(1), hex(2));
        let line_3 = |line: &str| KeyRing::parse(&format!("{good}{line}")).map(drop);
        for (line, reason) in [
            ("100", "expected `static HEX` or `CREATED HEX`"),
            ("100 abcd", "a key has 64 hexadecimal digits"),
            (&format!("100 {}", "g".repeat(64)), "a key has 64 hexadecimal digits"),
            (&format!("100 {}é", "a".repeat(62)), "a key has 64 hexadecimal digits"),
            (&format!("soon {}", hex(3)), "a creation time is a number of Unix seconds"),
            (&format!("static {}", hex(3)), "a second `static` line"),
            (&format!("1 {}\n", hex(3)).repeat(64), "more than 64 rotating keys"),
        ] {
            let error = line_3(line).expect_err(line);
            assert_eq!(error.reason, reason);
            assert!(error.line >= Some(3), "{error}");
        }
        let error = KeyRing::parse(&format!("1 {}", hex(1))).map(drop).expect_err("no static");
        assert_eq!(error.to_string(), "no `static HEX` line");
        let error = KeyRing::parse(&format!("static {}", hex(1))).map(drop).expect_err("no key");
        assert_eq!(error.to_string(), "no `CREATED HEX` line");
    }

    #[test]
    fn the_newest_key_that_is_due_seals_and_all_open() {
        let (old, new, future) = ((100, [1; 32]), (200, [2; 32]), (300, [3; 32]));
        let ring = KeyRing::new(&[0; 32], &[old, new, future]);
        for (now, sealer) in [(50, old), (150, old), (250, new), (300, future)] {
            let blob = ring.seal(Purpose::Ticket, now, b"text", b"aad", &mut rng(now));
            assert!(open(&ring, &blob).is_some());
            for key in [old, new, future] {
                let alone = KeyRing::new(&[0; 32], &[key]);
                assert_eq!(open(&alone, &blob).is_some(), key == sealer, "at {now}");
            }
        }
    }

    #[test]
    fn connection_ids_survive_the_rotation_of_the_other_keys() {
        let before = KeyRing::new(&[9; 32], &[(100, [1; 32])]);
        let after = KeyRing::new(&[9; 32], &[(200, [2; 32])]);
        assert_eq!(before.cids().decode(&[5; 16]), after.cids().decode(&[5; 16]));
        assert_eq!(before.cids().reset_token(&[5; 16]), after.cids().reset_token(&[5; 16]));
    }

    #[test]
    fn a_blob_opens_for_its_purpose_and_context_only() {
        let ring = KeyRing::new(&[0; 32], &[(100, [1; 32])]);
        let mut blob = ring.seal(Purpose::Ticket, 100, b"text", b"aad", &mut rng(1));
        assert!(open(&ring, &blob).is_some());
        assert_eq!(ring.open(Purpose::RetryToken, &blob, b"aad"), None);
        assert_eq!(ring.open(Purpose::AddressToken, &blob, b"aad"), None);
        assert_eq!(ring.open(Purpose::Ticket, &blob, b"other"), None);
        for len in 0..blob.len() {
            assert_eq!(open(&ring, &blob[..len]), None);
        }
        for bit in 0..blob.len() * 8 {
            blob[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&ring, &blob), None, "bit {bit}");
            blob[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
