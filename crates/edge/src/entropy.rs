//! Randomness from the operating system.

use ::quic::crypto::CryptoRng;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng as _;

use crate::Error;

/// 32 bytes from the operating system's generator.
pub(crate) fn random() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::new("no randomness from the system"))?;
    Ok(bytes)
}

/// A generator of its own for each use. Without randomness from the system no TLS handshake succeeds either.
pub(crate) fn generator() -> impl CryptoRng {
    ChaCha12Rng::from_seed(random().unwrap_or_default())
}

/// Bytes for a handshake. Nothing secret depends on them: they only have to differ.
pub(crate) fn noise() -> media::rtmp::Random {
    let mut noise = [0; 1_528];
    let seed = random().unwrap_or_default();
    noise.iter_mut().zip(seed.iter().cycle()).for_each(|(byte, seed)| *byte = *seed);
    noise
}
