//! Numbers in few bytes, for cookies: magnitudes in 16 bits, shares in 8.

/// Bits of a magnitude behind its leading one.
const FRACTION: u32 = 11;
const MAX_EXPONENT: u32 = (1 << (16 - FRACTION)) - 1;

/// A magnitude in 16 bits, as floating-point numbers are made: exact below 4,096, then rounded down to
/// 12 bits, at most 2^42; above it saturates.
pub(crate) fn from_number(number: u64) -> u16 {
    let bits = u64::BITS - number.leading_zeros();
    // Numbers without the leading one are those of the first exponent, as IEEE 754 has it.
    let exponent = bits.saturating_sub(FRACTION);
    if exponent > MAX_EXPONENT {
        return u16::MAX;
    }
    let shifted = number >> exponent.saturating_sub(1);
    (exponent << FRACTION) as u16 | (shifted as u16 & ((1 << FRACTION) - 1))
}

/// What [`from_number`] has made.
pub(crate) fn number(code: u16) -> u64 {
    let exponent = u32::from(code) >> FRACTION;
    let fraction = u64::from(code) & ((1 << FRACTION) - 1);
    match exponent {
        0 => fraction,
        _ => (fraction | 1 << FRACTION) << (exponent - 1),
    }
}

const UNKNOWN: u8 = u8::MAX;
/// Codes 1 to 254 are spread evenly over the logarithms from here to 1.
const SMALLEST: f64 = 1e-4;
const STEPS: f64 = 253.0;

/// A share from 0 to 1 in 8 bits, to 2 %; what is not a number from 0 on is unknown, what is above 1 is 1.
pub(crate) fn from_share(share: Option<f64>) -> u8 {
    match share {
        Some(share) if share >= 1.0 => UNKNOWN - 1,
        Some(share) if share >= SMALLEST => {
            let place = 1.0 - share.ln() / SMALLEST.ln();
            1 + (place * STEPS).round() as u8
        }
        Some(share) if share >= 0.0 => 0,
        _ => UNKNOWN,
    }
}

/// What [`from_share`] has made.
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
    fn shares_know_none_and_certainty() {
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
        fn what_is_read_back_is_near(number_in in 0..1u64 << 42, share_in in 1e-4..1.0f64) {
            let back = number(from_number(number_in));
            prop_assert!(back <= number_in && (number_in - back) as f64 <= number_in as f64 / 2_048.0);
            let back = share(from_share(Some(share_in))).expect("a share");
            prop_assert!((back / share_in - 1.0).abs() < 0.02, "{share_in} {back}");
        }
    }
}
