//! QPACK: examples of the RFC, invalid input, and round trips.

use bytes::Bytes;
use proptest::prelude::*;

use super::static_table::{Match, STATIC_TABLE, find};
use super::{DecodeError, DecoderStream, check_encoder_stream, decode, encode};
use crate::error::code;

fn lines(section: &[u8]) -> Result<Vec<(String, String)>, DecodeError> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let fields = decode(section, 16 * 1024)?;
    Ok(fields.iter().map(|field| (text(&field.name), text(&field.value))).collect())
}

fn fails(section: &[u8]) -> bool {
    matches!(lines(section), Err(DecodeError::Failed(_)))
}

#[test]
fn a_literal_with_name_reference_decodes_as_in_rfc_9204_appendix_b_1() {
    let section = [b"\x00\x00\x51\x0b".as_slice(), b"/index.html"].concat();
    assert_eq!(lines(&section), Ok(vec![(":path".into(), "/index.html".into())]));
}

#[test]
fn the_static_table_has_the_entries_of_rfc_9204_appendix_a() {
    for (index, entry) in [
        (0, (":authority", "")),
        (1, (":path", "/")),
        (17, (":method", "GET")),
        (25, (":status", "200")),
        (53, ("content-type", "text/plain")),
        (63, (":status", "100")),
        (85, ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'")),
        (98, ("x-frame-options", "sameorigin")),
    ] {
        assert_eq!(STATIC_TABLE[index], entry);
        assert_eq!(find(entry.0, entry.1), Match::Line(index));
    }
    assert_eq!(find(":status", "418"), Match::Name(24));
    assert_eq!(find("x-unknown", ""), Match::None);
}

#[test]
fn the_encoder_takes_the_shortest_form() {
    assert_eq!(encode([(":status", "200")])[..], [0, 0, 0xc0 | 25]);
    // Index 92 takes a second byte after a prefix of 4 bits; "m" has 6 bits, so its Huffman code is
    // not shorter.
    assert_eq!(encode([("server", "m")])[..], [0, 0, 0x5f, 92 - 15, 1, b'm']);
    // A name of 7 letters would need a second length byte; its Huffman form has 5 bytes.
    assert_eq!(encode([("x-abcde", "")])[2] & 0xf8, 0x28);
}

#[test]
fn references_to_the_dynamic_table_fail() {
    assert!(fails(&[1, 0]), "Required Insert Count");
    assert!(fails(&[0, 0x80]), "negative Base");
    assert!(fails(&[0, 0, 0x80]), "indexed");
    assert!(fails(&[0, 0, 0x10]), "indexed with post-Base index");
    assert!(fails(&[0, 0, 0x40, 0]), "name reference");
    assert!(fails(&[0, 0, 0x00, 0]), "name reference with post-Base index");
    assert_eq!(lines(&[0, 0x05]), Ok(vec![]), "a positive Base does no harm");
}

#[test]
fn static_indices_end_at_98() {
    assert_eq!(lines(&[0, 0, 0xff, 98 - 63]).map(|l| l.len()), Ok(1));
    assert!(fails(&[0, 0, 0xff, 99 - 63]));
    assert!(fails(&[0, 0, 0x5f, 99 - 15, 0]));
}

#[test]
fn integers_above_62_bits_and_unterminated_integers_fail() {
    let integer = |bytes: &[u8]| [&[0, 0, 0xff], bytes].concat();
    assert!(fails(&integer(&[0xff; 12])), "no end");
    assert!(fails(&integer(&[0x80; 12])), "no end, and no value either");
    // A length of exactly 2^62 - 1 is a valid integer, although the string is truncated.
    let long = [0, 0, 0x27, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f];
    assert_eq!(lines(&long), Err(DecodeError::TRUNCATED));
    let mut longer = long;
    longer[3] = 0xf9;
    assert!(fails(&longer));
    assert_ne!(lines(&longer), Err(DecodeError::TRUNCATED));
}

#[test]
fn truncated_sections_fail() {
    let section = encode([(":path", "/live/a.flv"), ("x-name", "some value"), ("age", "0")]);
    let whole = lines(&section).expect("encoded by our encoder");
    for length in 0..section.len() {
        match lines(&section[..length]) {
            Ok(some) => assert!(some.len() < whole.len()),
            Err(error) => assert_eq!(error, DecodeError::TRUNCATED),
        }
    }
}

#[test]
fn the_decoded_size_is_limited() {
    let section = encode([("abc", "defgh"), ("abc", "defgh")]);
    assert_eq!(decode(&section, 80).map(|fields| fields.len()), Ok(2));
    assert_eq!(decode(&section, 79), Err(DecodeError::TooLarge));
}

#[test]
fn the_encoder_stream_may_only_set_a_capacity_of_0() {
    assert_eq!(check_encoder_stream(&[0x20, 0x20]), Ok(()));
    for wrong in [&[0x21][..], &[0x3f], &[0xc0, 0], &[0x40], &[0x00], &[0x20, 0x02]] {
        let error = check_encoder_stream(wrong).expect_err("not for a capacity of 0");
        assert_eq!(error.code, code::QPACK_ENCODER_STREAM_ERROR);
    }
}

#[test]
fn the_decoder_stream_may_only_cancel_streams() {
    let mut stream = DecoderStream::default();
    assert_eq!(stream.check(&[0x40, 0x7e, 0x7f]), Ok(()));
    assert_eq!(stream.check(&[0x80]), Ok(()));
    assert_eq!(
        stream.check(&[0x01, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        Ok(())
    );
    for wrong in
        [&[0x00][..], &[0x01], &[0x80], &[0x7f, 0x01, 0x00], &[&[0x7f][..], &[0xff; 9]].concat()]
    {
        let error = DecoderStream::default().check(wrong).expect_err("nothing was referred to");
        assert_eq!(error.code, code::QPACK_DECODER_STREAM_ERROR);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn field_sections_round_trip(
        fields in proptest::collection::vec(("[a-z:-]{0,20}", ".{0,40}"), 0..20),
        known in proptest::collection::vec(0usize..99, 0..10),
    ) {
        let all: Vec<(&str, &str)> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .chain(known.iter().map(|&index| STATIC_TABLE[index]))
            .collect();
        let decoded = decode(&encode(all.iter().copied()), u64::MAX).expect("our own encoding");
        let decoded: Vec<(&[u8], &[u8])> =
            decoded.iter().map(|field| (&field.name[..], &field.value[..])).collect();
        let all: Vec<(&[u8], &[u8])> =
            all.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        prop_assert_eq!(decoded, all);
    }

    #[test]
    fn arbitrary_sections_give_fields_within_the_limit_or_an_error(
        section in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let section = [vec![0, 0], section].concat();
        if let Ok(fields) = decode(&section, 1_000) {
            prop_assert!(fields.len() <= 1_000 / 32);
        }
    }
}
