//! Arithmetic in the field of 2^32 elements, Tambur's field (word size 32). Polynomial:
//! x^32 + x^22 + x^2 + x + 1 (Jerasure's). In a field of 2^8 elements, about one in 256 tight
//! patterns of random coefficients would be singular.

/// Lower coefficients of the polynomial.
const POLYNOMIAL: u32 = 0x0040_0007;

/// Product of two elements.
pub(crate) fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut a, mut product) = (a, 0);
    while b != 0 {
        product ^= a & (b & 1).wrapping_neg();
        a = (a << 1) ^ (POLYNOMIAL & (a >> 31).wrapping_neg());
        b >>= 1;
    }
    product
}

/// Inverse of a non-zero element: its power of 2^32 − 2.
pub(crate) fn inverse(a: u32) -> u32 {
    let (mut power, mut square) = (1, a);
    for _ in 1..32 {
        square = multiply(square, square);
        power = multiply(power, square);
    }
    power
}

/// Adds `factor` times `from` to `to`.
pub(crate) fn add_scaled(to: &mut [u32], from: &[u32], factor: u32) {
    if factor != 0 {
        to.iter_mut().zip(from).for_each(|(to, from)| *to ^= multiply(*from, factor));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::mix64;

    #[test]
    fn products_obey_the_laws_of_a_field_and_every_element_has_an_inverse() {
        for n in 0..2_000u64 {
            let [a, b, c] = [0, 1, 2].map(|i| mix64(3 * n + i) as u32 | 1);
            assert_eq!(multiply(a, multiply(b, c)), multiply(multiply(a, b), c));
            assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
            assert_eq!(multiply(a, inverse(a)), 1, "{a}");
        }
        // x^31 · x = x^22 + x^2 + x + 1.
        assert_eq!(multiply(1 << 31, 2), POLYNOMIAL);
        assert_eq!(multiply(0, 7), 0);
    }
}
