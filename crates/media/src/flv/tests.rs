//! Tags and the reader.

use super::read::MAX_SEARCH;
use super::*;
use crate::deviation::Deviation;
use proptest::prelude::*;

fn tags() -> Vec<Tag> {
    [
        Tag::new(Kind::Script, 0, b"\x02\x00\x0aonMetaData\x08\x00\x00\x00\x00\x00\x00\x09"),
        Tag::new(Kind::Video, 0, &[0x17, 0, 0, 0, 0, 1]),
        Tag::new(Kind::Video, 0x0123_4567, &[0x17; 70_000]),
        Tag::new(Kind::Audio, u32::MAX, &[]),
    ]
    .into_iter()
    .map(|tag| tag.expect("short enough"))
    .collect()
}

fn body(tags: &[Tag]) -> Vec<u8> {
    let mut body = file_header(true, true).to_vec();
    tags.iter().for_each(|tag| body.extend_from_slice(tag.bytes()));
    body
}

fn read(body: &[u8], piece: usize) -> Result<Vec<Tag>, Error> {
    let mut reader = Reader::new(100_000);
    for piece in body.chunks(piece) {
        reader.read(piece)?;
    }
    Ok(core::iter::from_fn(|| reader.next_tag()).collect())
}

#[test]
fn a_tag_is_laid_out_as_in_a_file() {
    let tag = Tag::new(Kind::Video, 0x0123_4567, &[0x17, 1, 0, 0, 0]).expect("short enough");
    let expected =
        [&[9, 0, 0, 5, 0x23, 0x45, 0x67, 0x01, 0, 0, 0][..], &[0x17, 1, 0, 0, 0], &[0, 0, 0, 16]]
            .concat();
    assert_eq!(tag.bytes()[..], expected);
    assert_eq!(
        (tag.timestamp(), tag.kind(), tag.role()),
        (0x0123_4567, Kind::Video, Role::KeyFrame)
    );
    assert_eq!(tag.payload()[..], [0x17, 1, 0, 0, 0]);
    let other = tag.clone().with_timestamp(7);
    assert_eq!((other.timestamp(), tag.timestamp()), (7, 0x0123_4567), "a shared one is copied");
    assert_eq!(other.with_timestamp(0x0123_4567), tag);
    assert_eq!(tags()[0].role(), Role::Metadata);
    assert!(Tag::new(Kind::Video, 0, &vec![0; MAX_PAYLOAD + 1]).is_none());
}

#[test]
fn tags_round_trip_for_any_split_into_pieces() {
    for piece in [1, 2, 7, 4_096, 1 << 20] {
        assert_eq!(read(&body(&tags()), piece), Ok(tags()), "{piece}");
    }
}

#[test]
fn a_longer_file_header_is_skipped() {
    let mut long = body(&tags());
    long[8] = 12;
    long.splice(9..9, [1, 2, 3]);
    assert_eq!(read(&long, 5), Ok(tags()));
}

#[test]
fn the_file_header_announces_the_tracks() {
    for kinds in [(true, false), (false, true), (true, true)] {
        let header = file_header(kinds.0, kinds.1);
        let mut reader = Reader::new(1_000);
        assert_eq!((reader.read(&header[..8]), reader.kinds()), (Ok(()), None));
        assert_eq!((reader.read(&header[8..]), reader.kinds()), (Ok(()), Some(kinds)));
    }
}

#[test]
fn broken_bodies_are_rejected() {
    let good = body(&tags());
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        read(&bad, 1_000).map(|tags| tags.len())
    };
    assert_eq!(with(0, b'X'), Err(Error::Signature));
    assert_eq!(with(6, 3), Err(Error::Signature));
    assert_eq!(with(13, 0x29), Err(Error::Encrypted));
    assert_eq!(with(14, 0xff), Err(Error::TooLarge(0xff_0015)));
    let noise = [&good[..13], &vec![0x33; MAX_SEARCH + 20]].concat();
    assert_eq!(read(&noise, 1_000), Err(Error::Lost));
}

/// Returns the tags and deviations of a body, which must not depend on fragmentation.
fn tolerant(body: &[u8]) -> (Vec<Tag>, Vec<(Deviation, u32)>) {
    let read = |piece: usize| {
        let mut reader = Reader::new(100_000);
        body.chunks(piece).for_each(|piece| reader.read(piece).expect("tolerated"));
        let tags: Vec<Tag> = core::iter::from_fn(|| reader.next_tag()).collect();
        (tags, reader.deviations().collect())
    };
    let all = read(1 << 20);
    for piece in [1, 3, 1_000] {
        assert_eq!(read(piece), all, "{piece}");
    }
    all
}

/// Returns many audio and video tags.
fn media() -> Vec<Tag> {
    let tags = (0..40_u8).map(|n| match n % 2 {
        0 => Tag::new(Kind::Video, u32::from(n) * 20, &[0x27, 1, 0, 0, 0, n, n]),
        _ => Tag::new(Kind::Audio, u32::from(n) * 20, &[0xaf, 1, n]),
    });
    tags.map(|tag| tag.expect("short enough")).collect()
}

type Size = fn(&Tag) -> [u8; 4];

#[test]
fn wrong_trailing_sizes_are_tolerated() {
    fn size(tag: &Tag) -> u32 {
        tag.payload().len() as u32
    }
    let sizes: [(Size, bool); 6] = [
        (|tag| size(tag).to_be_bytes(), true),
        (|tag| (size(tag) + 15).to_be_bytes(), true),
        (|tag| (size(tag) + 11).to_le_bytes(), true),
        (|_| [0xde, 0xad, 0xbe, 0xef], true),
        (|_| [9; 4], true),
        (|_| [0; 4], false),
    ];
    for (number, (size, is_wrong)) in sizes.into_iter().enumerate() {
        let mut body = file_header(true, true).to_vec();
        for tag in media() {
            body.extend_from_slice(&tag.bytes()[..tag.bytes().len() - TRAILER_LEN]);
            body.extend_from_slice(&size(&tag));
        }
        let (tags, seen) = tolerant(&body);
        assert_eq!(tags, media(), "{number}");
        let expected = [(Deviation::FlvTrailer, 40)];
        assert_eq!(seen, &expected[..usize::from(is_wrong)], "{number}");
    }
}

#[test]
fn tags_of_unknown_types_are_skipped() {
    let other = |number: u8, payload: &[u8]| {
        let mut tag = Tag::new(Kind::Script, 7, payload).expect("short enough").bytes().to_vec();
        tag[0] = number;
        tag
    };
    let mut body = file_header(true, true).to_vec();
    for tag in media() {
        body.extend_from_slice(tag.bytes());
        body.extend(other(0, b"junk"));
        body.extend(other(15, b"\0\x02\0\x0aonTextData"));
        body.extend(other(0x32, b"encrypted data"));
        body.extend(other(15, b""));
    }
    assert_eq!(tolerant(&body), (media(), vec![(Deviation::FlvTagType, 160)]));
}

#[test]
fn missing_wrong_and_repeated_file_headers_are_tolerated() {
    let media = media();
    let tags: Vec<u8> = media.iter().flat_map(|tag| tag.bytes().to_vec()).collect();
    let header = file_header(true, true);
    let mut short = header.to_vec();
    short[8] = 5;
    for (start, seen) in [
        (&header[..], None),
        // Without PreviousTagSize, with a size of 9, and with an invalid one.
        (&header[..9], Some(Deviation::FlvHeader)),
        (&[&header[..9], &[0, 0, 0, 9]].concat(), None),
        (&[&header[..9], &[0xff; 4]].concat(), None),
        (&short, Some(Deviation::FlvHeader)),
    ] {
        let (read, deviations) = tolerant(&[start, &tags].concat());
        assert_eq!(read, media, "{start:?}");
        assert_eq!(deviations.first().map(|seen| seen.0), seen, "{start:?}");
    }
    let half = tags.len() / 2;
    let split = media[..20].iter().map(|tag| tag.bytes().len()).sum::<usize>();
    assert!(split.abs_diff(half) < 50);
    let again = [&header[..], &tags[..split], &header, &tags[split..]].concat();
    assert_eq!(tolerant(&again), (media.clone(), vec![(Deviation::FlvHeader, 1)]));
    // A tag with a size one byte too small is damaged; later tags are found.
    let mut shorter = [&header[..], &tags].concat();
    shorter[16] -= 1;
    let (read, seen) = tolerant(&shorter);
    assert_eq!(read[read.len() - 39..], media[1..]);
    assert!(!seen.is_empty());
    // Stray bytes, and a truncated tag.
    for noise in [&[0x47; 100][..], &[0; 30], &tags[..5], b"HTTP/1.1 200 OK\r\n\r\n"] {
        let body = [&header[..], &tags[..split], noise, &tags[split..]].concat();
        let (read, seen) = tolerant(&body);
        let good = read.iter().filter(|tag| media.contains(tag)).count();
        assert!(good >= 38 && read.len() <= good + 1, "{noise:?}");
        assert!(!seen.is_empty(), "{noise:?}");
    }
}

proptest! {
    #[test]
    fn damage_never_panics(at in 0..200usize, bytes in any::<[u8; 3]>(), piece in 1..300usize) {
        let mut bad = body(&tags());
        bad[at..at + 3].copy_from_slice(&bytes);
        let _ = read(&bad, piece);
    }
}

#[test]
fn a_tag_with_another_timestamp_shares_its_payload() {
    for tag in tags() {
        for time in [0, 7, 0x89ab_cdef] {
            let (head, rest) = tag.at(time);
            let whole = [&head[..], &rest[..]].concat();
            assert_eq!(whole[..], tag.clone().with_timestamp(time).bytes()[..]);
        }
    }
    let long = Tag::new(Kind::Video, 0, &[0x27; 5_000]).expect("short enough");
    let (head, rest) = long.at(9);
    assert_eq!(head.len(), HEADER_LEN);
    assert_eq!(rest.as_ptr(), long.bytes()[HEADER_LEN..].as_ptr());
}

#[test]
fn the_timestamp_base_round_trips() {
    for base in [0, 1, 1_800_000_000, u32::MAX] {
        let tag = time_base_tag(base);
        assert_eq!((time_base(&tag), tag.role()), (Some(base), Role::Metadata));
    }
    let odd = |payload: &[u8]| time_base(&Tag::new(Kind::Script, 0, payload).expect("short"));
    assert!(tags().iter().all(|tag| time_base(tag).is_none()));
    for number in [-1.0, 4_294_967_296.0, f64::NAN] {
        let mut payload = BytesMut::from(&b"\x02\x00\x0aonMendcast"[..]);
        amf0::object([("time", number.into())]).write(&mut payload);
        assert_eq!(odd(&payload), None, "{number}");
    }
    assert_eq!(odd(b"\x02\x00\x0aonMendcast"), None);
    assert_eq!(odd(b"\x02\x00\x0aonMendcast\x03\x00\x04ti"), None);
}
