//! Disposable frames: frames that no other frame references, as marked by the codec. Dropping them
//! first keeps all later frames decodable.
//!
//! H.264 (clause 7.4.1): nal_ref_idc is 0 in all slices of a non-reference picture. H.265 (table
//! 7-1): even types up to 8 mark pictures that no other picture of the same sub-layer references,
//! so the picture must also be in the highest sub-layer. The configuration contains the number of
//! sub-layers (ISO/IEC 14496-15, 8.3.3.1). Other codecs are not supported: in AV1 and VP9, the mark
//! follows fields of variable length, which depends on the sequence header.

use crate::codec::Codec;
use crate::{Role, Tag};

/// Properties of a codec configuration that are needed to find disposable frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    codec: Marked,
    /// Size of the length prefix of NAL units, in bytes.
    length_size: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Marked {
    Avc,
    /// The highest sub-layer.
    Hevc(u8),
}

/// Effect of a NAL unit on whether its frame is disposable.
#[derive(PartialEq, Eq)]
enum Importance {
    /// A slice that no other frame references.
    Disposable,
    /// Not a slice, and droppable with its frame.
    Neutral,
    /// Referenced by other frames, or unknown.
    Referenced,
}

impl Marks {
    /// Returns the marks of frames that follow this sequence header; `None` for unsupported codecs.
    pub fn of(header: &Tag) -> Option<Self> {
        let class = header.class();
        if class.role != Role::SequenceHeader {
            return None;
        }
        let payload = header.payload();
        let config = payload.get(class.data_at..)?;
        let (codec, sizes) = match class.codec? {
            Codec::Avc => (Marked::Avc, *config.get(4)?),
            Codec::Hevc => {
                let sizes = *config.get(21)?;
                // 0: unknown.
                (Marked::Hevc((sizes >> 3 & 7).checked_sub(1)?), sizes)
            }
            _ => return None,
        };
        Some(Self { codec, length_size: usize::from(sizes & 3) + 1 })
    }

    /// Whether no other frame references this one.
    pub fn is_disposable(&self, tag: &Tag) -> bool {
        let class = tag.class();
        let is_ours = match self.codec {
            Marked::Avc => class.codec == Some(Codec::Avc),
            Marked::Hevc(_) => class.codec == Some(Codec::Hevc),
        };
        if class.role != Role::InterFrame || !is_ours {
            return false;
        }
        let payload = tag.payload();
        let (mut rest, mut has_slice) = (payload.get(class.data_at..).unwrap_or_default(), false);
        // Each iteration consumes a length and at least one byte.
        while !rest.is_empty() {
            let Some((length, behind)) = rest.split_at_checked(self.length_size) else {
                return false;
            };
            let length = length.iter().fold(0, |all, &byte| all << 8 | usize::from(byte));
            let Some((unit, behind)) = behind.split_at_checked(length) else { return false };
            match self.importance(unit) {
                Importance::Disposable => has_slice = true,
                Importance::Neutral => {}
                Importance::Referenced => return false,
            }
            rest = behind;
        }
        has_slice
    }

    fn importance(&self, unit: &[u8]) -> Importance {
        match (self.codec, unit) {
            (Marked::Avc, [head, ..]) => match head & 0x1f {
                // Slices and their partitions.
                1..=4 if head & 0x60 == 0 => Importance::Disposable,
                // SEI, delimiter, filler.
                6 | 9 | 12 => Importance::Neutral,
                _ => Importance::Referenced,
            },
            (Marked::Hevc(highest), [head, layers, ..]) => {
                let (layer, sub_layer) =
                    ((head & 1) << 5 | layers >> 3, (layers & 7).checked_sub(1));
                match head >> 1 & 0x3f {
                    // TRAIL_N, TSA_N, STSA_N, RADL_N, RASL_N.
                    0 | 2 | 4 | 6 | 8 if layer == 0 && sub_layer >= Some(highest) => {
                        Importance::Disposable
                    }
                    // Delimiter, filler, SEI.
                    35 | 38..=40 => Importance::Neutral,
                    _ => Importance::Referenced,
                }
            }
            _ => Importance::Referenced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn tag(payload: &[u8]) -> Tag {
        Tag::new(Kind::Video, 0, payload).expect("short")
    }

    fn avc_header(length_size: u8) -> Tag {
        tag(&[0x17, 0, 0, 0, 0, 1, 0x64, 0, 0x1f, 0xfc | (length_size - 1), 0xe0, 0])
    }

    /// Returns an H.265 sequence header with this number of temporal layers.
    fn hevc_header(layers: u8) -> Tag {
        let mut config = [0; 23];
        config[21] = layers << 3 | 3;
        tag(&[&[0x90, b'h', b'v', b'c', b'1'], &config[..]].concat())
    }

    /// Returns an inter frame of NAL units with 4-byte lengths.
    fn avc(units: &[&[u8]]) -> Tag {
        let mut payload = vec![0x27, 1, 0, 0, 0];
        for unit in units {
            payload.extend((unit.len() as u32).to_be_bytes());
            payload.extend(*unit);
        }
        tag(&payload)
    }

    fn hevc(kind: u8, sub_layer: u8) -> Tag {
        let unit = [kind << 1, sub_layer + 1, 1, 2, 3];
        tag(&[&[0xa1, b'h', b'v', b'c', b'1', 0, 0, 0, 0, 0, 0, 5], &unit[..]].concat())
    }

    #[test]
    fn h264_reference_frames_are_kept() {
        let marks = Marks::of(&avc_header(4)).expect("H.264");
        let is = |units: &[&[u8]]| marks.is_disposable(&avc(units));
        assert!(is(&[&[0x01, 9]]));
        assert!(is(&[&[0x09, 0xf0], &[0x06, 5], &[0x01, 9], &[0x01, 9]]), "delimiter, SEI, slices");
        assert!(!is(&[&[0x21, 9]]) && !is(&[&[0x41, 9]]) && !is(&[&[0x61, 9]]));
        assert!(!is(&[&[0x01, 9], &[0x41, 9]]), "one of the two fields is a reference");
        assert!(!is(&[&[0x68, 1], &[0x01, 9]]), "parameter sets stay");
        assert!(!is(&[&[0x06, 5]]) && !is(&[]), "no slice");
        assert!(!is(&[&[0x0e, 9], &[0x01, 9]]), "of scalable streams nothing is known");
        let key = tag(&[0x17, 1, 0, 0, 0, 0, 0, 0, 2, 0x01, 9]);
        assert!(!marks.is_disposable(&key));
        let short = Marks::of(&avc_header(2)).expect("H.264");
        assert!(short.is_disposable(&tag(&[0x27, 1, 0, 0, 0, 0, 2, 0x01, 9])));
        assert!(!short.is_disposable(&avc(&[&[0x01, 9]])), "an empty unit");
    }

    #[test]
    fn h265_frames_referenced_in_any_sub_layer_are_kept() {
        let one = Marks::of(&hevc_header(1)).expect("H.265");
        assert!([0, 2, 4, 6, 8].iter().all(|&kind| one.is_disposable(&hevc(kind, 0))));
        assert!(
            [1, 3, 9, 10, 16, 19, 21, 32, 34, 40]
                .iter()
                .all(|&kind| !one.is_disposable(&hevc(kind, 0)))
        );
        let three = Marks::of(&hevc_header(3)).expect("H.265");
        assert!(!three.is_disposable(&hevc(0, 1)) && three.is_disposable(&hevc(0, 2)));
        assert_eq!(Marks::of(&hevc_header(0)), None, "how many there are is not known");
        assert!(!one.is_disposable(&avc(&[&[0x01, 9]])), "of another codec");
    }

    #[test]
    fn other_pictures_are_kept_and_no_input_panics() {
        let others: [&[u8]; 6] = [
            &[0x90, b'a', b'v', b'0', b'1', 0x81, 0, 12, 0],
            &[0x90, b'v', b'p', b'0', b'9', 0, 0, 0, 0],
            &[0x17, 0, 0, 0, 0, 1, 2, 3],
            &[0x27, 1, 0, 0, 0, 0, 0, 0, 2, 1, 9],
            &[0x22, 0],
            &[],
        ];
        assert!(others.iter().all(|payload| Marks::of(&tag(payload)).is_none()));
        let marks = Marks::of(&avc_header(4)).expect("H.264");
        let whole = avc(&[&[0x01, 9, 9], &[0x01, 8]]).payload();
        for end in 0..whole.len() {
            let cut = &whole[..end];
            // The prefix of 12 bytes ends after the first unit.
            assert_eq!(marks.is_disposable(&tag(cut)), end == 12, "{end}");
            let mut huge = cut.to_vec();
            huge.extend([0xff; 4]);
            assert!(!marks.is_disposable(&tag(&huge)), "{end}");
        }
    }
}
