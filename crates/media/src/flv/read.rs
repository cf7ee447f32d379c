//! Reader of FLV bodies that arrive in pieces (FLV specification 10.1, annex E).

use std::collections::VecDeque;

use bytes::{BufMut, BytesMut};

use super::{FILE_HEADER_LEN, HEADER_LEN, Kind, MAX_PAYLOAD, TRAILER_LEN, Tag};
use crate::deviation::{Deviation, Deviations};

/// Bytes that identify a tag in a search: its header and the first payload byte.
const SEARCH_WINDOW: usize = HEADER_LEN + 1;
/// Maximum bytes to search for a tag.
pub(super) const MAX_SEARCH: usize = 1 << 20;

/// Reason to reject an FLV body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The body does not start with the FLV signature.
    #[error("no FLV signature")]
    Signature,
    /// An audio or video tag is encrypted.
    #[error("encrypted FLV tag")]
    Encrypted,
    /// A tag is larger than the reader's limit.
    #[error("FLV tag of {0} bytes is over the limit")]
    TooLarge(usize),
    /// No tag of a known type within `MAX_SEARCH` bytes.
    #[error("no FLV tag of a known type in the last MiB")]
    Lost,
}

/// Reads the tags of an FLV body that arrives in pieces. Each payload is copied once, into its tag.
///
/// The reader is as tolerant as players: it accepts wrong tag sizes, skips tags of unknown types,
/// and searches for the next tag after stray bytes.
///
/// ```
/// use mendcast_media::flv::{Kind, Reader, Tag, file_header};
///
/// let tag = Tag::new(Kind::Audio, 23, &[0xaf, 1, 0x21]).unwrap();
/// let mut body = file_header(true, false).to_vec();
/// body.extend_from_slice(tag.bytes());
///
/// let mut reader = Reader::new(4 << 20);
/// // Pieces of any size.
/// for piece in body.chunks(5) {
///     reader.read(piece).unwrap();
/// }
/// assert_eq!(reader.next_tag(), Some(tag));
/// assert_eq!(reader.next_tag(), None);
/// ```
#[derive(Debug)]
pub struct Reader {
    max_tag: usize,
    kinds: Option<(bool, bool)>,
    state: FlvState,
    /// Whether the last size was wrong, so that the next tag may start elsewhere.
    in_doubt: bool,
    /// Bytes since the last tag that were searched for the next one.
    searched: usize,
    tags: VecDeque<Tag>,
    deviations: Deviations,
}

#[derive(Debug)]
enum FlvState {
    /// Received bytes of a header of this length.
    FileHeader(BytesMut),
    /// The rest of a longer file header.
    Skip(usize),
    /// The size before the first tag, which some writers omit.
    FirstSize(BytesMut),
    TagHeader(BytesMut),
    Payload {
        buffer: BytesMut,
        kind: Kind,
        timestamp: u32,
        missing: usize,
    },
    /// Remaining payload of a skipped tag.
    Skipped(usize),
    Trailer {
        /// `None` for a skipped tag.
        tag: Option<Tag>,
        /// Expected size.
        size: u32,
        bytes: BytesMut,
    },
    /// Newest bytes of a search for a tag.
    Search(BytesMut),
}

impl Reader {
    /// Creates a reader at the start of a body. Rejects payloads above `max_tag` bytes.
    pub fn new(max_tag: usize) -> Self {
        Self {
            max_tag: max_tag.min(MAX_PAYLOAD),
            kinds: None,
            state: FlvState::FileHeader(BytesMut::new()),
            in_doubt: false,
            searched: 0,
            tags: VecDeque::new(),
            deviations: Deviations::default(),
        }
    }

    /// Reads the next bytes of the body.
    ///
    /// # Errors
    /// If the body is invalid. The reader cannot continue.
    pub fn read(&mut self, mut input: &[u8]) -> Result<(), Error> {
        while !input.is_empty() {
            match &mut self.state {
                FlvState::FileHeader(bytes) => {
                    if fill(bytes, &mut input, FILE_HEADER_LEN - 4) {
                        let bytes = core::mem::take(bytes);
                        self.on_file_header(&bytes)?;
                    }
                }
                FlvState::Skip(left) => {
                    if skip(left, &mut input) {
                        self.state = FlvState::FirstSize(BytesMut::new());
                    }
                }
                FlvState::FirstSize(bytes) => {
                    if fill(bytes, &mut input, TRAILER_LEN) {
                        let bytes = core::mem::take(bytes);
                        self.on_first_size(bytes);
                    }
                }
                FlvState::TagHeader(bytes) => {
                    if fill(bytes, &mut input, HEADER_LEN) {
                        let bytes = core::mem::take(bytes);
                        self.on_tag_header(&bytes)?;
                    }
                }
                FlvState::Payload { buffer, missing, .. } => {
                    let taken = input.len().min(*missing);
                    buffer.put_slice(&input[..taken]);
                    input = &input[taken..];
                    *missing -= taken;
                    self.finish_payload();
                }
                FlvState::Skipped(left) => {
                    if skip(left, &mut input) {
                        self.state =
                            FlvState::Trailer { tag: None, size: 0, bytes: BytesMut::new() };
                    }
                }
                FlvState::Trailer { tag, size, bytes } => {
                    if fill(bytes, &mut input, TRAILER_LEN) {
                        self.in_doubt = tag.is_some() && bytes[..] != size.to_be_bytes();
                        // Some writers put 0 there.
                        if self.in_doubt && bytes[..] != [0; TRAILER_LEN] {
                            self.deviations.note(Deviation::FlvTrailer);
                        }
                        self.tags.extend(tag.take());
                        self.state = FlvState::TagHeader(BytesMut::new());
                    }
                }
                FlvState::Search(bytes) => {
                    bytes.put_u8(input[0]);
                    input = &input[1..];
                    self.search()?;
                }
            }
        }
        Ok(())
    }

    /// Whether the file header announces audio, and video; `None` before it arrived.
    pub fn kinds(&self) -> Option<(bool, bool)> {
        self.kinds
    }

    /// The next tag that is complete.
    pub fn next_tag(&mut self) -> Option<Tag> {
        self.tags.pop_front()
    }

    /// Breaches of rules since this was last asked.
    pub fn deviations(&mut self) -> impl Iterator<Item = (Deviation, u32)> + use<> {
        self.deviations.take()
    }

    fn on_file_header(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let length = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) as usize;
        if &bytes[..3] != b"FLV" || length >= 1 << 16 {
            return Err(Error::Signature);
        }
        let least = FILE_HEADER_LEN - TRAILER_LEN;
        if length < least || self.kinds.is_some() {
            self.deviations.note(Deviation::FlvHeader);
        }
        self.kinds = Some((bytes[4] & 4 != 0, bytes[4] & 1 != 0));
        self.state = match length.saturating_sub(least) {
            0 => FlvState::FirstSize(BytesMut::new()),
            more => FlvState::Skip(more),
        };
        Ok(())
    }

    fn on_first_size(&mut self, bytes: BytesMut) {
        // The first byte of such a size is never a tag type.
        let is_tag = Kind::from_number(bytes[0]).is_some();
        if is_tag {
            self.deviations.note(Deviation::FlvHeader);
        }
        self.in_doubt = bytes[..] != [0; TRAILER_LEN];
        self.state = FlvState::TagHeader(if is_tag { bytes } else { BytesMut::new() });
    }

    fn on_tag_header(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let size = u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]) as usize;
        let timestamp = u32::from_be_bytes([bytes[7], bytes[4], bytes[5], bytes[6]]);
        if bytes.starts_with(b"FLV\x01") {
            let (header, rest) = bytes.split_at(FILE_HEADER_LEN - TRAILER_LEN);
            self.on_file_header(header)?;
            return self.read(rest);
        }
        // The sixth bit marks encrypted tags (annex E.4.1).
        let is_encrypted = bytes[0] & 0x20 != 0;
        match Kind::from_number(bytes[0] & !0x20) {
            Some(Kind::Audio | Kind::Video) if is_encrypted && !self.in_doubt => {
                return Err(Error::Encrypted);
            }
            Some(kind) if !is_encrypted && size <= self.max_tag => {
                let buffer = Tag::buffer(size);
                self.state = FlvState::Payload { buffer, kind, timestamp, missing: size };
                self.searched = 0;
                self.finish_payload();
            }
            Some(_) if size > self.max_tag && !self.in_doubt => return Err(Error::TooLarge(size)),
            _ if !self.in_doubt && bytes[8..] == [0; 3] && size <= self.max_tag => {
                self.deviations.note(Deviation::FlvTagType);
                self.state = match size {
                    0 => FlvState::Trailer { tag: None, size: 0, bytes: BytesMut::new() },
                    size => FlvState::Skipped(size),
                };
            }
            _ => {
                self.deviations.note(Deviation::FlvTagType);
                self.state = FlvState::Search(BytesMut::new());
                return self.read(bytes);
            }
        }
        Ok(())
    }

    /// Checks whether a tag starts [`SEARCH_WINDOW`] bytes back, and resumes there.
    fn search(&mut self) -> Result<(), Error> {
        let FlvState::Search(bytes) = &mut self.state else { return Ok(()) };
        self.searched += 1;
        if self.searched > MAX_SEARCH {
            return Err(Error::Lost);
        }
        if bytes.len() < SEARCH_WINDOW {
            return Ok(());
        }
        let size = u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]) as usize;
        let first = bytes[HEADER_LEN];
        let is_payload = match Kind::from_number(bytes[0]) {
            // AAC, MP3, and Enhanced RTMP; AVC and HEVC, or Enhanced RTMP.
            Some(Kind::Audio) => matches!(first >> 4, 2 | 9 | 10 | 14),
            Some(Kind::Video) => first & 0x80 != 0 || matches!(first & 0x0f, 7 | 12),
            Some(Kind::Script) => first == 2,
            None => false,
        };
        if !is_payload || size == 0 || size > self.max_tag || bytes[8..HEADER_LEN] != [0; 3] {
            *bytes = bytes.split_off(1);
            return Ok(());
        }
        let bytes = core::mem::take(bytes);
        self.in_doubt = true;
        self.state = FlvState::TagHeader(BytesMut::new());
        self.read(&bytes)
    }

    fn finish_payload(&mut self) {
        if let FlvState::Payload { buffer, kind, timestamp, missing: 0 } = &mut self.state
            && let Some(tag) = Tag::assemble(core::mem::take(buffer), *kind, *timestamp)
        {
            let size = (tag.bytes().len() - TRAILER_LEN) as u32;
            self.state = FlvState::Trailer { tag: Some(tag), size, bytes: BytesMut::new() };
        }
    }
}

/// Skips up to `left` bytes of `input`. Returns whether none are left.
fn skip(left: &mut usize, input: &mut &[u8]) -> bool {
    let skipped = input.len().min(*left);
    *input = &input[skipped..];
    *left -= skipped;
    *left == 0
}

/// Moves bytes from `input` to `bytes` until it has `len`. Returns whether it does.
fn fill(bytes: &mut BytesMut, input: &mut &[u8], len: usize) -> bool {
    let taken = input.len().min(len - bytes.len());
    bytes.put_slice(&input[..taken]);
    *input = &input[taken..];
    bytes.len() == len
}
