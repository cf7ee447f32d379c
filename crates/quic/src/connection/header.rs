//! Unpredictable parts of 1-RTT headers: skipped packet numbers (RFC 9000, section 21.4) and fixed
//! bits (RFC 9287, section 3).

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::Rng;

/// The next skipped packet number, and the fixed bits of the next packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderRandomness {
    next_skip: u64,
    /// Indexed by the low bits of the packet numbers.
    fixed_bits: u64,
}

impl HeaderRandomness {
    pub(super) fn new(seed: u64) -> Self {
        Self { next_skip: 16 + seed % 64, fixed_bits: seed }
    }

    /// Draws the values of the packet with this number. Returns true if the number is to be
    /// skipped: about one in two windows of `window` packets. That catches a peer that acknowledges
    /// unsent packets within a few round trips, however late it starts.
    #[inline]
    pub(super) fn skips(
        &mut self,
        number: u64,
        window: impl FnOnce() -> u64,
        rng: &mut ChaCha12Rng,
    ) -> bool {
        if number.is_multiple_of(64) {
            self.fixed_bits = rng.next_u64();
        }
        let skips = number == self.next_skip;
        if skips {
            let spread = window().clamp(64, 65_536);
            self.next_skip += spread + rng.next_u64() % (2 * spread);
        }
        skips
    }

    /// Returns the fixed bit of a packet: "an unpredictable value".
    #[inline]
    pub(super) fn fixed_bit(&self, number: u64) -> bool {
        self.fixed_bits >> (number % 64) & 1 == 1
    }
}
