//! Variable-length integers and the two cursors.

use super::*;

#[test]
fn the_sample_encodings_of_rfc_9000_appendix_a1_decode() {
    for (encoding, value) in [
        (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
        (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
        (&[0x7b, 0xbd], 15_293),
        (&[0x25], 37),
        (&[0x40, 0x25], 37),
    ] {
        let mut r = Reader::new(encoding);
        assert_eq!(r.varint(), Ok(value));
        assert!(r.is_empty());
    }
}

#[test]
fn lengths_change_at_the_edges_of_table_4() {
    let edges =
        [0, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, VARINT_MAX].map(varint_len);
    assert_eq!(edges, [1, 1, 2, 2, 4, 4, 8, 8]);
}

#[test]
fn a_failed_read_moves_nothing() {
    let mut r = Reader::new(&[0x40]);
    assert_eq!(r.varint(), Err(Truncated));
    assert_eq!(r.u16(), Err(Truncated));
    assert_eq!(r.bytes(usize::MAX), Err(Truncated));
    assert_eq!((r.position(), r.remaining()), (0, 1));
    assert_eq!(r.u8(), Ok(0x40));
    assert_eq!(r.u8(), Err(Truncated));

    let mut r = Reader::new(&[0x03, 0xaa, 0xbb]);
    assert_eq!(r.prefixed(), Err(Truncated));
    assert_eq!(r.position(), 0);
    assert_eq!(r.rest(), [0x03, 0xaa, 0xbb]);
    assert_eq!((r.position(), r.rest()), (3, &[][..]));
}

#[test]
fn a_length_beyond_the_address_space_is_truncated() {
    assert_eq!(Reader::new(&[0xff; 9]).prefixed(), Err(Truncated));
}

#[test]
fn zeros_are_skipped_up_to_the_first_other_byte_or_the_end() {
    let mut r = Reader::new(&[0, 0, 7, 0]);
    r.skip_zeros();
    assert_eq!((r.position(), r.u8()), (2, Ok(7)));
    r.skip_zeros();
    assert!(r.is_empty());
    r.skip_zeros();
}

#[test]
fn a_length_is_patched_in_place() {
    let bytes = written(|w| {
        w.u8(1);
        let at = w.position();
        w.varint2(0);
        w.u32(0x0203_0405);
        w.fill(9, 2);
        w.reserve(1)[0] = 8;
        w.set_varint2(at, 37);
    });
    assert_eq!(bytes, [1, 0x40, 37, 2, 3, 4, 5, 9, 9, 8]);
}

#[test]
#[should_panic(expected = "2^62")]
fn a_value_without_an_encoding_is_a_bug_of_ours() {
    varint_len(VARINT_MAX + 1);
}

#[test]
fn connection_ids_compare_by_their_bytes() {
    let id = |bytes: &[u8]| ConnectionId::new(bytes);
    assert_eq!(id(&[]), Some(ConnectionId::EMPTY));
    assert_ne!(id(&[0]), id(&[0, 0]));
    assert_eq!(id(&[7; 20]).map(|id| id.len()), Some(20));
    assert_eq!(id(&[7; 21]), None);
    assert_eq!(format!("{:?}", id(&[0x0a, 0xff]).unwrap()), "cid 0aff");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_integer_comes_back_from_its_shortest_encoding(v in varint()) {
        let bytes = written(|w| w.varint(v));
        prop_assert_eq!(bytes.len(), varint_len(v));
        let mut r = Reader::new(&bytes);
        prop_assert_eq!(r.varint(), Ok(v));
        for cut in 0..bytes.len() {
            prop_assert_eq!(Reader::new(&bytes[..cut]).varint(), Err(Truncated));
        }
    }

    #[test]
    fn the_forced_two_byte_encoding_reads_as_the_same_integer(v in 0u64..1 << 14) {
        let bytes = written(|w| w.varint2(v));
        prop_assert_eq!(bytes.len(), 2);
        prop_assert_eq!(Reader::new(&bytes).varint(), Ok(v));
    }
}
