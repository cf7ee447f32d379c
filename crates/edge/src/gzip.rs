//! GZIP (RFC 1952) for playlists: DEFLATE (RFC 1951) with fixed codes, a fifth of the text's size.
//!
//! Not a dependency, because nothing else is compressed and this encoder fits on a page.

use crate::http::RequestHead;

/// Size of the hash table with the last position of each three bytes.
const HASH_TABLE_SIZE: usize = 1 << 12;
/// Maximum distance and length of a match (RFC 1951, section 3.2.5).
const MAX_DISTANCE: usize = 32_768;
const MAX_MATCH: usize = 258;

/// Whether the client accepts GZIP (RFC 9110, section 12.5.3).
pub fn is_accepted(head: &RequestHead<'_>) -> bool {
    let lists = head.values("accept-encoding").filter_map(|value| core::str::from_utf8(value).ok());
    lists.flat_map(|list| list.split(',')).any(|item| {
        let (coding, parameter) = item.split_once(';').unwrap_or((item, ""));
        let weight = parameter.trim().strip_prefix("q=").map(str::parse::<f32>);
        coding.trim().eq_ignore_ascii_case("gzip") && !matches!(weight, Some(Ok(0.0)))
    })
}

/// Compresses the data into a GZIP member.
pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = Bits { bytes: vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff], held: 0, count: 0 };
    // Final block, with fixed codes.
    out.put(0b011, 3);
    let mut last_seen = vec![usize::MAX; HASH_TABLE_SIZE];
    let mut at = 0;
    while at < data.len() {
        let found = data.get(at..at + 3).and_then(|three| {
            let hash = three.iter().fold(0_usize, |hash, byte| hash * 77 + usize::from(*byte));
            let before = core::mem::replace(&mut last_seen[hash % HASH_TABLE_SIZE], at);
            let distance = at.checked_sub(before).filter(|distance| *distance <= MAX_DISTANCE)?;
            let pairs = data[at..].iter().zip(&data[before..]).take(MAX_MATCH);
            let length = pairs.take_while(|(a, b)| a == b).count();
            (length >= 3).then_some((length, distance))
        });
        match found {
            Some((length, distance)) => {
                out.put_match(length, distance);
                at += length;
            }
            None => {
                out.put_symbol(usize::from(data[at]));
                at += 1;
            }
        }
    }
    out.put_symbol(256);
    out.put(0, (8 - out.count % 8) % 8);
    let mut bytes = out.bytes;
    bytes.extend_from_slice(&crc_32(data).to_le_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
    bytes
}

/// Bit writer, lowest bit of each byte first.
struct Bits {
    bytes: Vec<u8>,
    held: u64,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u64, bits: u32) {
        self.held |= value << self.count;
        self.count += bits;
        while self.count >= 8 {
            self.bytes.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// Writes a code, highest bit first.
    fn put_code(&mut self, code: u64, bits: u32) {
        self.put(code.reverse_bits() >> (64 - bits), bits);
    }

    /// Writes the fixed code of a literal or length (section 3.2.6).
    fn put_symbol(&mut self, symbol: usize) {
        let value = symbol as u64;
        match symbol {
            0..=143 => self.put_code(0x30 + value, 8),
            144..=255 => self.put_code(0x190 + value - 144, 9),
            256..=279 => self.put_code(value - 256, 7),
            _ => self.put_code(0xc0 + value - 280, 8),
        }
    }

    /// Writes a reference to earlier bytes (section 3.2.5).
    fn put_match(&mut self, length: usize, distance: usize) {
        // Four symbols share a number of extra bits. The longest match has its own symbol.
        let (symbol, extra, bits) = match length {
            MAX_MATCH => (285, 0, 0),
            3..=10 => (length + 254, 0, 0),
            _ => {
                let (symbol, rest, bits) = split(length - 3, 2);
                (symbol + 257, rest, bits)
            }
        };
        self.put_symbol(symbol);
        self.put(extra, bits);
        let (symbol, rest, bits) = split(distance - 1, 1);
        self.put_code(symbol as u64, 5);
        self.put(rest, bits);
    }
}

/// Returns the symbol of a number, its extra bits, and their count. `1 << log` symbols share a
/// count.
fn split(number: usize, log: u32) -> (usize, u64, u32) {
    if number < 2 << log {
        return (number, 0, 0);
    }
    let bits = number.ilog2() - log;
    let symbol = ((bits as usize) << log) + (number >> bits);
    (symbol, (number & ((1 << bits) - 1)) as u64, bits)
}

/// Computes the CRC of RFC 1952, section 8.
fn crc_32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Returns the output of `gzip -dc`, or `None` if that is not installed.
    fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
        let mut command = Command::new("gzip");
        let command = command.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut input = child.stdin.take().expect("piped");
        let bytes = packed.to_vec();
        let writer = std::thread::spawn(move || input.write_all(&bytes));
        let output = child.wait_with_output().expect("exited");
        writer.join().expect("no panic").expect("read");
        assert!(output.status.success(), "gzip accepts it");
        Some(output.stdout)
    }

    #[test]
    fn parses_accept_encoding() {
        for (value, takes) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("br;q=1.0, gzip; q=0", false),
            ("gzip;q=0.0", false),
            ("identity", false),
            ("x-gzip", false),
            ("", false),
        ] {
            let (remote, protocol) = (([127, 0, 0, 1], 1).into(), crate::viewer::Protocol::Http1);
            let head = RequestHead {
                fields: vec![("accept-encoding", value.as_bytes())],
                ..RequestHead::new("GET", "/", remote, protocol)
            };
            assert_eq!(is_accepted(&head), takes, "{value}");
        }
    }

    #[test]
    fn the_gzip_program_decompresses_the_output() {
        let line = "#EXT-X-PART:DURATION=0.320,URI=\"899795648-8e3f542b53644110.0.m4s\"\n";
        let mut noise = 1_u32;
        let random: Vec<u8> = (0..70_000)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        let far = [&random[..], &random[..40_000], &vec![7; 1_000]].concat();
        // Matches of every length, and distances from near to far.
        let lengths: Vec<u8> = (3..300_usize)
            .flat_map(|n| [&vec![b'x'; n][..], &random[n * 5..n * 6], &random[..n]].concat())
            .collect();
        for data in [&b""[..], b"a", line.repeat(60).as_bytes(), &random, &far, &lengths] {
            let packed = gzip(data);
            assert!(packed.len() < data.len() + data.len() / 8 + 30);
            if let Some(text) = unpacked(&packed) {
                assert!(text == data, "{} bytes", data.len());
            }
        }
        assert!(gzip(line.repeat(60).as_bytes()).len() * 20 < line.len() * 60);
    }

    #[test]
    fn symbols_follow_rfc_1951() {
        for (length, expected) in
            [(11, (265, 0, 1)), (12, (265, 1, 1)), (130, (280, 15, 4)), (257, (284, 30, 5))]
        {
            let (symbol, extra, bits) = split(length - 3, 2);
            assert_eq!((symbol + 257, extra, bits), expected, "{length}");
        }
        for (distance, expected) in
            [(1, (0, 0, 0)), (5, (4, 0, 1)), (24_577, (29, 0, 13)), (32_768, (29, 8_191, 13))]
        {
            assert_eq!(split(distance - 1, 1), expected, "{distance}");
        }
        assert_eq!(crc_32(b"123456789"), 0xcbf4_3926);
    }
}
