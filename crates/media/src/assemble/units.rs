//! NAL units of a video tag: delimitation, and position in an access unit.

use bytes::Bytes;

use crate::codec::Codec;
use crate::fmp4::config::nal;

/// Maximum number of NAL units in a frame. Level 6.2 of H.265 allows 600 slices.
pub(super) const MAX_UNITS: usize = 4_096;

/// Position of a NAL unit in an access unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UnitRole {
    /// Access unit delimiter, the first unit.
    Delimiter,
    /// Parameter set.
    Set,
    /// Any other unit before the slices.
    Prefix,
    /// First slice of a frame; `sync` if it belongs to an IDR picture.
    FirstSlice { sync: bool },
    /// Any other slice.
    Slice,
    /// A unit after the slices: suffix SEI, end of sequence, filler data.
    Suffix,
}

/// Returns the position of a unit, which has at least one byte.
pub(super) fn unit_role(codec: Codec, unit: &[u8]) -> UnitRole {
    let byte = |at: usize| unit.get(at).copied().unwrap_or(0);
    if codec == Codec::Hevc {
        let layer = (byte(0) & 1) << 5 | byte(1) >> 3;
        return match byte(0) >> 1 & 0x3f {
            0..=31 if layer > 0 => UnitRole::Slice,
            // first_slice_segment_in_pic_flag
            kind @ 0..=31 if byte(2) & 0x80 != 0 => {
                UnitRole::FirstSlice { sync: matches!(kind, 19 | 20) }
            }
            0..=31 => UnitRole::Slice,
            nal::HEVC_VPS | nal::HEVC_SPS | nal::HEVC_PPS if layer == 0 => UnitRole::Set,
            nal::HEVC_AUD => UnitRole::Delimiter,
            36..=38 | 40 | 45..=47 | 56..=63 => UnitRole::Suffix,
            _ => UnitRole::Prefix,
        };
    }
    match byte(0) & 0x1f {
        // first_mb_in_slice is 0, which is a single bit in ue(v).
        kind @ (1 | 2 | nal::AVC_IDR) if byte(1) & 0x80 != 0 => {
            UnitRole::FirstSlice { sync: kind == nal::AVC_IDR }
        }
        // Partitions B and C, auxiliary and extension slices follow others.
        1..=5 | 19..=21 => UnitRole::Slice,
        nal::AVC_SPS | nal::AVC_PPS => UnitRole::Set,
        nal::AVC_AUD => UnitRole::Delimiter,
        10..=12 => UnitRole::Suffix,
        _ => UnitRole::Prefix,
    }
}

/// Delimitation of NAL units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Length prefixes with this number of bytes.
    Lengths(usize),
    /// Start codes.
    StartCodes,
}

/// NAL units of a tag.
#[derive(Debug)]
pub(super) struct Units {
    pub(super) units: Vec<Bytes>,
    pub(super) form: Form,
    /// Whether there were empty units.
    pub(super) has_empty: bool,
    /// Whether the last unit was truncated.
    pub(super) is_truncated: bool,
}

impl Units {
    /// Splits a tag into units. `size` is the size of length prefixes according to the sequence
    /// header, and `last` the delimitation in the previous tag.
    pub(super) fn read(data: &Bytes, size: usize, last: Option<Form>) -> Self {
        let zeros = data.iter().take_while(|byte| **byte == 0).count();
        let starts_with_code = zeros >= 2 && data.get(zeros) == Some(&1);
        if starts_with_code && last == Some(Form::StartCodes) {
            return Self::by_start_codes(data);
        }
        let read = Self::by_lengths(data, size);
        if !read.is_truncated && !read.has_empty {
            return read;
        }
        if size != 4 {
            let four = Self::by_lengths(data, 4);
            if !four.is_truncated && !four.has_empty {
                return four;
            }
        }
        if !read.is_truncated {
            return read;
        }
        // A first unit of one byte is at most a delimiter without content. A start code of three
        // bytes may be a length of 256 to 511 bytes.
        let is_length = zeros != 3 && !read.units.is_empty() && last.is_some();
        if starts_with_code && !is_length {
            return Self::by_start_codes(data);
        }
        read
    }

    fn by_lengths(data: &Bytes, size: usize) -> Self {
        let mut read = Self {
            units: Vec::new(),
            form: Form::Lengths(size),
            has_empty: false,
            is_truncated: false,
        };
        let mut at = 0;
        // Each iteration consumes at least a byte.
        while at < data.len() {
            let Some(length) = data.get(at..at + size) else {
                read.is_truncated = true;
                break;
            };
            let length = length.iter().fold(0, |value, byte| value << 8 | usize::from(*byte));
            at += size;
            if length > data.len() - at || read.units.len() == MAX_UNITS {
                read.is_truncated = true;
                break;
            }
            match length {
                0 => read.has_empty = true,
                _ => read.units.push(data.slice(at..at + length)),
            }
            at += length;
        }
        read
    }

    fn by_start_codes(data: &Bytes) -> Self {
        let mut read = Self {
            units: Vec::new(),
            form: Form::StartCodes,
            has_empty: false,
            is_truncated: false,
        };
        let mut starts = data.windows(3).enumerate().filter(|(_, code)| *code == [0, 0, 1]);
        let mut start = starts.next().map(|(at, _)| at + 3);
        while let Some(from) = start {
            let next = starts.next().map(|(at, _)| at);
            // Zeros belong to the next start code or trail the unit, which ends in a bit of 1.
            let unit = &data[from..next.unwrap_or(data.len())];
            let length = unit.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if read.units.len() == MAX_UNITS {
                read.is_truncated = true;
                break;
            }
            match length {
                0 => read.has_empty = true,
                _ => read.units.push(data.slice(from..from + length)),
            }
            start = next.map(|at| at + 3);
        }
        read
    }
}
