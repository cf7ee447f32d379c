//! Randomness from the operating system.

use ::quic::crypto::CryptoRng;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng as _;

use crate::Error;

/// Returns 32 bytes from the operating system's generator.
pub(crate) fn random() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| Error::new("the system has no random numbers"))?;
    Ok(bytes)
}

/// Creates a generator. If the system has no random numbers, it is predictable, but then TLS
/// handshakes fail, too.
pub(crate) fn generator() -> impl CryptoRng {
    ChaCha12Rng::from_seed(random().unwrap_or_default())
}

/// Returns a number in 0..1 that spreads the attempts of many servers.
pub(crate) fn jitter() -> f64 {
    let [high, low, ..] = random().unwrap_or_default();
    f64::from(u16::from_be_bytes([high, low])) / 65536.0
}

/// Returns bytes for an RTMP handshake, which need to be unique, not secret.
pub(crate) fn noise() -> media::rtmp::Random {
    let mut noise = [0; 1_528];
    let seed = random().unwrap_or_default();
    noise.iter_mut().zip(seed.iter().cycle()).for_each(|(byte, seed)| *byte = *seed);
    noise
}
