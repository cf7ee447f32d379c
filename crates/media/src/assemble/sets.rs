//! In-band parameter sets, and the sequence header derived from them.

use bytes::Bytes;

use crate::codec::Codec;
use crate::fmp4::bits;
use crate::fmp4::config::{Video, nal};

/// Maximum number of parameter sets that are not in the sequence header yet.
const MAX_SETS: usize = 64;
/// Maximum size of a parameter set, in bytes. Its length in a record has 16 bits.
const MAX_SET_BYTES: usize = 1 << 14;

/// Parameter sets that the current sequence header lacks.
#[derive(Debug, Default)]
pub(super) struct Sets {
    new: Vec<Bytes>,
}

impl Sets {
    /// Records a parameter set of a frame.
    pub(super) fn note(&mut self, codec: Codec, unit: &[u8], header: Option<&Video>) {
        let unit = trimmed(unit);
        let Some(key) = key(codec, unit).filter(|_| unit.len() <= MAX_SET_BYTES) else { return };
        let is_known =
            header.is_some_and(|video| video.parameter_sets.iter().any(|set| trimmed(set) == unit));
        let unit_role = self.new.iter().position(|set| self::key(codec, set) == Some(key));
        match (unit_role, is_known) {
            (Some(unit_role), true) => drop(self.new.remove(unit_role)),
            (Some(unit_role), false) if self.new[unit_role] != unit => {
                self.new[unit_role] = Bytes::copy_from_slice(unit);
            }
            (None, false) if self.new.len() < MAX_SETS => {
                self.new.push(Bytes::copy_from_slice(unit));
            }
            _ => {}
        }
    }

    /// Returns a configuration with the new sets, and with the sets of `header` that they do not
    /// replace. `None` without new sets, or if a decoder needs more sets.
    pub(super) fn build(&mut self, codec: Codec, header: Option<&Video>) -> Option<Video> {
        if self.new.is_empty() {
            return None;
        }
        let old = header.map_or(&[][..], |video| &video.parameter_sets).iter();
        let is_replaced = |set: &Bytes| {
            let key = key(codec, set);
            key.is_none() || self.new.iter().any(|new| self::key(codec, new) == key)
        };
        let all: Vec<Bytes> =
            self.new.iter().chain(old.filter(|set| !is_replaced(set))).cloned().collect();
        let built = record(codec, &all).or_else(|| record(codec, &self.new))?;
        self.new.clear();
        Some(built)
    }

    pub(super) fn clear(&mut self) {
        self.new.clear();
    }
}

fn record(codec: Codec, sets: &[Bytes]) -> Option<Video> {
    let of = |kind: u8| -> Vec<Bytes> {
        let same = |set: &&Bytes| self::kind(codec, set) == kind;
        sets.iter().filter(same).cloned().collect()
    };
    match codec {
        Codec::Hevc => {
            let [vps, sps, pps] = [nal::HEVC_VPS, nal::HEVC_SPS, nal::HEVC_PPS].map(of);
            if vps.is_empty() || pps.is_empty() {
                return None;
            }
            Video::from_h265_sets(&vps, &sps, &pps)
        }
        _ => {
            let [sps, pps] = [nal::AVC_SPS, nal::AVC_PPS].map(of);
            if pps.is_empty() {
                return None;
            }
            Video::from_h264_sets(&sps, &pps)
        }
    }
}

fn kind(codec: Codec, set: &[u8]) -> u8 {
    let first = set.first().copied().unwrap_or(0);
    if codec == Codec::Hevc { first >> 1 & 0x3f } else { first & 0x1f }
}

/// Returns type and ID of a parameter set.
fn key(codec: Codec, set: &[u8]) -> Option<(u8, u32)> {
    let id = if codec == Codec::Hevc { bits::h265_set_id(set) } else { bits::h264_set_id(set) };
    Some((kind(codec, set), id?))
}

/// Returns the set without the trailing zeros that some encoders append.
fn trimmed(set: &[u8]) -> &[u8] {
    let length = set.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &set[..length]
}
