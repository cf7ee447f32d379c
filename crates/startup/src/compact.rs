//! Compact encodings for cookies: magnitudes in 16 bits, fractions in 8.

/// Bits of a magnitude after its leading one.
const FRACTION: u32 = 11;
const MAX_EXPONENT: u32 = (1 << (16 - FRACTION)) - 1;

/// Encodes a magnitude as a 16-bit floating-point number: exact below 4,096, then rounded down to
/// 12 bits. Saturates near 2^42.
pub(crate) fn from_number(number: u64) -> u16 {
    let bits = u64::BITS - number.leading_zeros();
    // The first exponent has no implicit leading one, like subnormal numbers in IEEE 754.
    let exponent = bits.saturating_sub(FRACTION);
    if exponent > MAX_EXPONENT {
        return u16::MAX;
    }
    let shifted = number >> exponent.saturating_sub(1);
    (exponent << FRACTION) as u16 | (shifted as u16 & ((1 << FRACTION) - 1))
}

/// Decodes the result of [`from_number`].
pub(crate) fn number(code: u16) -> u64 {
    let exponent = u32::from(code) >> FRACTION;
    let fraction = u64::from(code) & ((1 << FRACTION) - 1);
    match exponent {
        0 => fraction,
        _ => (fraction | 1 << FRACTION) << (exponent - 1),
    }
}

const UNKNOWN: u8 = u8::MAX;
/// Codes 1 to 254 divide the logarithms from here to 1 evenly.
const SMALLEST: f64 = 1e-4;
const STEPS: f64 = 253.0;

/// Encodes a fraction with 2 % precision. NaN and negative values are unknown, values above 1 are
/// 1.
pub(crate) fn from_share(share: Option<f64>) -> u8 {
    match share {
        Some(share) if share >= 1.0 => UNKNOWN - 1,
        Some(share) if share >= SMALLEST => {
            let position = 1.0 - share.ln() / SMALLEST.ln();
            1 + (position * STEPS).round() as u8
        }
        Some(share) if share >= 0.0 => 0,
        _ => UNKNOWN,
    }
}

/// Decodes the result of [`from_share`].
pub(crate) fn share(code: u8) -> Option<f64> {
    match code {
        UNKNOWN => None,
        0 => Some(0.0),
        _ => Some(SMALLEST.powf(1.0 - f64::from(code - 1) / STEPS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_below_4096_are_exact_and_the_largest_saturate() {
        for exact in 0..4_096 {
            assert_eq!(number(from_number(exact)), exact);
        }
        let largest = number(u16::MAX);
        assert_eq!(largest, 4_095 << 30);
        for huge in [largest, largest + 1, 1 << 62, u64::MAX] {
            assert_eq!(number(from_number(huge)), largest);
        }
        assert!((0..u16::MAX).all(|code| number(code) < number(code + 1)));
        assert!((0..=u16::MAX).all(|code| from_number(number(code)) == code));
    }

    #[test]
    fn shares_encode_unknown_zero_and_one() {
        assert_eq!(share(from_share(Some(0.0))), Some(0.0));
        assert_eq!(share(from_share(Some(1.0))), Some(1.0));
        assert_eq!(share(from_share(Some(7.0))), Some(1.0));
        assert_eq!(share(from_share(Some(f64::INFINITY))), Some(1.0));
        for unknown in [None, Some(f64::NAN), Some(-0.1)] {
            assert_eq!(share(from_share(unknown)), None);
        }
        assert!((0..UNKNOWN).all(|code| from_share(share(code)) == code));
    }

    proptest! {
        #[test]
        fn encoding_is_precise(number_in in 0..1u64 << 42, share_in in 1e-4..1.0f64) {
            let back = number(from_number(number_in));
            prop_assert!(back <= number_in);
            prop_assert!((number_in - back) as f64 <= number_in as f64 / 2_048.0);
            let back = share(from_share(Some(share_in))).expect("a share");
            prop_assert!((back / share_in - 1.0).abs() < 0.02, "{share_in} {back}");
        }
    }
}
