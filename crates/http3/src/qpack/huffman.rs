//! The Huffman code of RFC 7541, appendix B, which QPACK shares (RFC 9204, section 4.1.2).
//!
//! The code is canonical: codes of equal length are consecutive in the order of their symbols, and
//! shorter codes come first. The code therefore follows from the 257 lengths below, and is computed
//! at compile time.

use bytes::{BufMut, BytesMut};

/// The end-of-string symbol, which never appears in a string (RFC 7541, section 5.2).
const EOS: usize = 256;
/// Length of the shortest code, in bits.
const MIN_LENGTH: usize = 5;
/// Length of the longest code, in bits.
const MAX_LENGTH: usize = 30;

/// Code lengths of all octets and of EOS, in bits.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// Lookup tables of the code.
struct Code {
    /// The code of each symbol, right-aligned.
    codes: [u32; 257],
    /// The symbols in the order of their codes.
    symbols: [u16; 257],
    /// By length in bits: the first longer code, left-aligned in 32 bits; the index of the first
    /// symbol of this length in `symbols`; the code of this symbol.
    lengths: [(u64, u16, u32); MAX_LENGTH + 1],
}

const CODE: Code = build();

const fn build() -> Code {
    let mut built =
        Code { codes: [0; 257], symbols: [0; 257], lengths: [(0, 0, 0); MAX_LENGTH + 1] };
    let (mut code, mut place, mut length) = (0u32, 0u16, MIN_LENGTH);
    while length <= MAX_LENGTH {
        let (first_place, first_code) = (place, code);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                built.codes[symbol] = code;
                built.symbols[place as usize] = symbol as u16;
                code += 1;
                place += 1;
            }
            symbol += 1;
        }
        built.lengths[length] = ((code as u64) << (32 - length), first_place, first_code);
        code <<= 1;
        length += 1;
    }
    built
}

/// Returns the encoded size of `input` in octets, including padding.
pub(crate) fn encoded_length(input: &[u8]) -> usize {
    let bits: usize = input.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the encoded form of `input`.
pub(crate) fn encode(input: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0);
    for &byte in input {
        let symbol = usize::from(byte);
        bits = bits << LENGTHS[symbol] | u64::from(CODE.codes[symbol]);
        count += u32::from(LENGTHS[symbol]);
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        // RFC 7541, section 5.2: the padding is the most significant bits of EOS, all ones.
        out.push((bits << (8 - count)) as u8 | 0xff >> count);
    }
}

/// Appends the decoded form of `input`, at most 8/5 of its length. `None` for an invalid encoding;
/// `out` may then contain partial output.
pub(crate) fn decode(input: &[u8], out: &mut BytesMut) -> Option<()> {
    let mut input = input.iter();
    let (mut bits, mut count) = (0u64, 0usize);
    loop {
        while count <= 32 {
            let Some(&byte) = input.next() else { break };
            bits = bits << 8 | u64::from(byte);
            count += 8;
        }
        // The next 32 bits, padded with ones at the end.
        let window = if count >= 32 {
            (bits >> (count - 32)) as u32
        } else {
            (bits << (32 - count)) as u32 | u32::MAX >> count
        };
        // RFC 7541, section 5.2: padding longer than 7 bits, or different from the EOS prefix,
        // "MUST be treated as a decoding error".
        if count < 8 && window == u32::MAX {
            return Some(());
        }
        let length = (MIN_LENGTH..=MAX_LENGTH).find(|&l| u64::from(window) < CODE.lengths[l].0)?;
        let (_, first_place, first_code) = CODE.lengths[length];
        let place = usize::from(first_place) + ((window >> (32 - length)) - first_code) as usize;
        let symbol = usize::from(CODE.symbols[place]);
        if length > count || symbol == EOS {
            return None;
        }
        out.put_u8(symbol as u8);
        count -= length;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(input: &[u8]) -> Option<Vec<u8>> {
        let mut out = BytesMut::new();
        decode(input, &mut out).map(|()| out.to_vec())
    }

    #[test]
    fn the_code_is_complete_and_ends_with_eos_as_in_rfc_7541_appendix_b() {
        let kraft: u64 = LENGTHS.iter().map(|&length| 1 << (32 - length)).sum();
        assert_eq!(kraft, 1 << 32);
        assert_eq!(CODE.codes[EOS], 0x3fff_ffff);
        for (symbol, code, length) in [
            (b'0', 0x0, 5),
            (b'a', 0x3, 5),
            (b'Z', 0xfd, 8),
            (b'~', 0x1ffd, 13),
            (0, 0x1ff8, 13),
            (1, 0x7f_ffd8, 23),
            (10, 0x3fff_fffc, 30),
            (255, 0x3ff_ffee, 26),
        ] {
            let symbol = usize::from(symbol);
            assert_eq!((CODE.codes[symbol], LENGTHS[symbol]), (code, length), "symbol {symbol}");
        }
    }

    #[test]
    fn strings_match_the_examples_of_rfc_7541_appendix_c_4() {
        for (text, encoded) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-key", "25a849e95ba97d7f"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
        ] {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, encoded);
            assert_eq!(encoded_length(text.as_bytes()), out.len());
            assert_eq!(decoded(&out).as_deref(), Some(text.as_bytes()));
        }
    }

    #[test]
    fn invalid_padding_and_eos_are_decoding_errors() {
        assert_eq!(decoded(&[]), Some(vec![]));
        // '0' is 00000; only padding with 111 is valid.
        assert_eq!(decoded(&[0b0000_0111]), Some(b"0".to_vec()));
        assert_eq!(decoded(&[0b0000_0110]), None);
        assert_eq!(decoded(&[0b0000_0000]), None);
        assert_eq!(decoded(&[0b0000_0111, 0xff]), None, "padding of 11 bits");
        assert_eq!(decoded(&[0xff]), None, "padding of 8 bits");
        assert_eq!(decoded(&[0xff; 3]), None, "padding of 24 bits");
        assert_eq!(decoded(&[0xff; 4]), None, "EOS");
        assert_eq!(decoded(&[0xff; 64]), None, "repeated EOS");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn every_string_round_trips_with_the_announced_length(
            text in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut out = Vec::new();
            encode(&text, &mut out);
            prop_assert_eq!(out.len(), encoded_length(&text));
            prop_assert_eq!(decoded(&out), Some(text));
        }

        #[test]
        fn decoded_strings_encode_to_the_same_bytes(
            input in proptest::collection::vec(any::<u8>(), 0..12),
        ) {
            if let Some(text) = decoded(&input) {
                prop_assert!(text.len() * 5 <= input.len() * 8);
                let mut out = Vec::new();
                encode(&text, &mut out);
                prop_assert_eq!(out, input);
            }
        }
    }
}
