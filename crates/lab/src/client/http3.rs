//! Minimal HTTP/3 client (RFC 9114) for a viewer: one GET, and the content of the response. Written
//! by hand, because `quinn-proto` has no HTTP.

/// Content of the client's control stream: its type and empty SETTINGS.
pub(super) const CONTROL: &[u8] = &[0x00, 0x04, 0x00];

const DATA: u64 = 0;
const HEADERS: u64 = 1;
/// QPACK field section prefix without dynamic table references, and `:status: 200` (index 25 of the
/// static table).
const OK: &[u8] = &[0x00, 0x00, 0xc0 | 25];

/// HEADERS frame with a GET of `path` at `authority`, each shorter than 40 bytes.
pub(super) fn get(authority: &str, path: &str) -> Vec<u8> {
    // `:method: GET`, `:scheme: https`, then literals with the names `:authority` and `:path`.
    let mut section = vec![0x00, 0x00, 0xc0 | 17, 0xc0 | 23];
    for (name, value) in [(0, authority), (1, path)] {
        section.extend([0x50 | name, value.len() as u8]);
        section.extend(value.bytes());
    }
    let mut frame = vec![HEADERS as u8];
    // Two-byte length, encoded as a QUIC integer.
    frame.extend((section.len() as u16 | 0x4000).to_be_bytes());
    frame.extend(section);
    frame
}

/// Incremental parser of a response.
#[derive(Default)]
pub(crate) struct ResponseReader {
    /// Incomplete type and length of the current frame.
    frame_header: Vec<u8>,
    kind: u64,
    /// Remaining payload of the current frame, in bytes.
    left: u64,
    /// First bytes of the head.
    head: Vec<u8>,
}

impl ResponseReader {
    /// Parses bytes of the stream and passes content to `on_content`. Returns false if the status
    /// is not 200 or content precedes the head.
    pub(crate) fn take(&mut self, mut data: &[u8], mut on_content: impl FnMut(&[u8])) -> bool {
        while !data.is_empty() {
            if self.left == 0 {
                self.frame_header.push(data[0]);
                data = &data[1..];
                let kind = varint(&self.frame_header);
                let length = kind.and_then(|(_, at)| varint(&self.frame_header[at..]));
                if let (Some((kind, _)), Some((length, _))) = (kind, length) {
                    (self.kind, self.left) = (kind, length);
                    self.frame_header.clear();
                }
                continue;
            }
            let (part, rest) = data.split_at(data.len().min(self.left as usize));
            (data, self.left) = (rest, self.left - part.len() as u64);
            match self.kind {
                DATA if self.head.len() < OK.len() => return false,
                DATA => on_content(part),
                HEADERS => {
                    let missing = OK.len() - self.head.len();
                    self.head.extend(&part[..missing.min(part.len())]);
                    if !OK.starts_with(&self.head) {
                        return false;
                    }
                }
                _ => {}
            }
        }
        true
    }
}

/// Parses a QUIC variable-length integer. Returns its value and length, if complete.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?;
    let value =
        rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Head with `status`, a frame of unknown type, and the content in two frames.
    fn answer(status: u8) -> Vec<u8> {
        let mut bytes = vec![HEADERS as u8, 4, 0, 0, 0xc0 | status, 0xff];
        bytes.extend([0x21, 2, 9, 9]);
        bytes.extend([DATA as u8, 3, 1, 2, 3]);
        bytes.extend([DATA as u8, 0x40, 2, 4, 5]);
        bytes
    }

    #[test]
    fn the_content_comes_out_however_it_is_cut() {
        for size in 1..20 {
            let (mut reader, mut content) = (ResponseReader::default(), Vec::new());
            for part in answer(25).chunks(size) {
                assert!(reader.take(part, |bytes| content.extend_from_slice(bytes)));
            }
            assert_eq!(content, [1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn another_status_and_content_without_a_head_are_seen() {
        assert!(!ResponseReader::default().take(&answer(27), |_| ()));
        assert!(!ResponseReader::default().take(&answer(25)[10..], |_| ()));
    }
}
