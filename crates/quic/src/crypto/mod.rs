//! Everything cryptographic of the transport: packet and header protection with key updates
//! (RFC 9001 sections 5 and 6), the TLS handshake (RFC 9001 section 4), session tickets that carry
//! bytes of ours, address tokens (RFC 9000 section 8.1), connection IDs and reset tokens.
//!
//! TLS itself is hidden behind [`Tls`]: no other module names the library. Nothing here reads a
//! clock or draws from a global generator, with one exception: the handshake's own key shares and
//! randoms come from the cryptographic library. Their sizes are constant, so that a testbed run
//! stays reproducible packet by packet.

mod cid;
mod keyring;
mod keys;
mod one_rtt;
mod single_use;
#[cfg(test)]
mod testing;
mod ticket;
mod tls;
mod token;

pub use cid::{CidCipher, CidPlain};
pub use keyring::{KeyRing, KeyRingError, Purpose, Unsealed};
pub use keys::{
    DecryptError, DirectionKeys, HeaderKey, Keys, PacketKey, TAG_LEN, initial_keys, null_tag,
    retry_tag,
};
pub use one_rtt::{OneRtt, OpenError, Opened, UpdateRefused};
pub use rand_chacha::rand_core::CryptoRng;
pub use single_use::SingleUseLog;
pub use ticket::{MAX_OWN_BYTES, PendingTicket};
pub use tls::{
    Cipher, ConfigError, KeyChange, KeyLog, Level, OneRttProtection, ResolvesServerCert,
    SystemTime, TimeProvider, Tls, TlsConfig, TlsError, TlsSettings, UnixTime,
};
pub use token::{AddressToken, InvalidToken, RetryToken, Token, open_token};
