//! NAL units of a video tag: their limits, and their place in an access unit.

use bytes::Bytes;

use crate::codec::Codec;
use crate::fmp4::config::nal;

/// NAL units of a picture at most. Level 6.2 of H.265 allows 600 slices.
pub(super) const MAX_UNITS: usize = 4_096;

/// The place of a NAL unit in an access unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Access unit delimiter: the first unit.
    Delimiter,
    /// Parameter set.
    Set,
    /// Any other unit before the slices.
    Before,
    /// The first slice of a picture; `sync` if it belongs to an IDR picture.
    First { sync: bool },
    /// Any other slice.
    Slice,
    /// A unit after the slices: suffix SEI, end of sequence, filler data.
    Behind,
}

/// The place of this unit, which has at least one byte.
pub(super) fn place(codec: Codec, unit: &[u8]) -> Place {
    let byte = |at: usize| unit.get(at).copied().unwrap_or(0);
    if codec == Codec::Hevc {
        let layer = (byte(0) & 1) << 5 | byte(1) >> 3;
        return match byte(0) >> 1 & 0x3f {
            0..=31 if layer > 0 => Place::Slice,
            // first_slice_segment_in_pic_flag
            kind @ 0..=31 if byte(2) & 0x80 != 0 => Place::First { sync: matches!(kind, 19 | 20) },
            0..=31 => Place::Slice,
            nal::HEVC_VPS | nal::HEVC_SPS | nal::HEVC_PPS if layer == 0 => Place::Set,
            nal::HEVC_AUD => Place::Delimiter,
            36..=38 | 40 | 45..=47 | 56..=63 => Place::Behind,
            _ => Place::Before,
        };
    }
    match byte(0) & 0x1f {
        // first_mb_in_slice is 0, which as ue(v) is one bit.
        kind @ (1 | 2 | nal::AVC_IDR) if byte(1) & 0x80 != 0 => {
            Place::First { sync: kind == nal::AVC_IDR }
        }
        // Partitions B and C, auxiliary and extension slices follow others.
        1..=5 | 19..=21 => Place::Slice,
        nal::AVC_SPS | nal::AVC_PPS => Place::Set,
        nal::AVC_AUD => Place::Delimiter,
        10..=12 => Place::Behind,
        _ => Place::Before,
    }
}

/// How NAL units are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Length-prefixed, with this many bytes per length.
    Lengths(usize),
    /// By start codes.
    StartCodes,
}

/// The NAL units of a tag.
#[derive(Debug)]
pub(super) struct Units {
    pub(super) units: Vec<Bytes>,
    pub(super) form: Form,
    /// There were units without content.
    pub(super) has_empty: bool,
    /// The last unit was cut off.
    pub(super) is_cut: bool,
}

impl Units {
    /// Splits a tag into units. `size` is the bytes per length according to the sequence header;
    /// `last` is the form of the stream so far.
    pub(super) fn read(data: &Bytes, size: usize, last: Option<Form>) -> Self {
        let zeros = data.iter().take_while(|byte| **byte == 0).count();
        let starts_with_code = zeros >= 2 && data.get(zeros) == Some(&1);
        if starts_with_code && last == Some(Form::StartCodes) {
            return Self::by_start_codes(data);
        }
        let read = Self::by_lengths(data, size);
        if !read.is_cut && !read.has_empty {
            return read;
        }
        if size != 4 {
            let four = Self::by_lengths(data, 4);
            if !four.is_cut && !four.has_empty {
                return four;
            }
        }
        if !read.is_cut {
            return read;
        }
        // A first unit of one byte is no more than a delimiter without content, a start code of
        // three bytes may be the length of 256 to 511 bytes.
        let is_length = zeros != 3 && !read.units.is_empty() && last.is_some();
        if starts_with_code && !is_length {
            return Self::by_start_codes(data);
        }
        read
    }

    fn by_lengths(data: &Bytes, size: usize) -> Self {
        let mut read =
            Self { units: Vec::new(), form: Form::Lengths(size), has_empty: false, is_cut: false };
        let mut at = 0;
        // Each pass takes at least a byte.
        while at < data.len() {
            let Some(length) = data.get(at..at + size) else {
                read.is_cut = true;
                break;
            };
            let length = length.iter().fold(0, |value, byte| value << 8 | usize::from(*byte));
            at += size;
            if length > data.len() - at || read.units.len() == MAX_UNITS {
                read.is_cut = true;
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
        let mut read =
            Self { units: Vec::new(), form: Form::StartCodes, has_empty: false, is_cut: false };
        let mut starts = data.windows(3).enumerate().filter(|(_, code)| *code == [0, 0, 1]);
        let mut start = starts.next().map(|(at, _)| at + 3);
        while let Some(from) = start {
            let next = starts.next().map(|(at, _)| at);
            // Zeros belong to the next start code or trail the unit, which ends in a bit of 1.
            let unit = &data[from..next.unwrap_or(data.len())];
            let length = unit.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if read.units.len() == MAX_UNITS {
                read.is_cut = true;
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
