//! Parameter sets of an H.264 stream.
//!
//! Pictures refer to their sets by ID (ITU-T H.264, section 7.4.1.2.1), and a stream may alternate
//! between several sets without repeating all of them at each key frame.

use bytes::Bytes;

use crate::fmp4::bits::h264_set_id;

/// Maximum number of stored sets per type. Encoders use one or two.
const MAX_SETS: usize = 16;

/// Sequence and picture parameter sets by ID.
#[derive(Clone, Debug, Default)]
pub(super) struct ParameterSets {
    sequence: Vec<(u32, Bytes)>,
    picture: Vec<(u32, Bytes)>,
}

impl ParameterSets {
    /// Adds the sets of an access unit. Returns all sets that now apply, by ID.
    pub(super) fn with(&mut self, sps: &[Bytes], pps: &[Bytes]) -> (Vec<Bytes>, Vec<Bytes>) {
        // A new set with a known ID comes from another encoder, which does not use the old sets.
        let is_other = |new: &Bytes| {
            let id = h264_set_id(new);
            let same = self.sequence.iter().find(|(known, _)| Some(*known) == id);
            same.is_some_and(|(_, known)| known != new)
        };
        if sps.iter().any(is_other) {
            *self = Self::default();
        }
        for (known, new) in [(&mut self.sequence, sps), (&mut self.picture, pps)] {
            for set in new {
                put(known, set);
            }
        }
        let all = |sets: &[(u32, Bytes)]| sets.iter().map(|(_, set)| set.clone()).collect();
        (all(&self.sequence), all(&self.picture))
    }
}

fn put(sets: &mut Vec<(u32, Bytes)>, set: &Bytes) {
    let Some(id) = h264_set_id(set) else { return };
    match sets.binary_search_by_key(&id, |(known, _)| *known) {
        Ok(at) => sets[at].1 = set.clone(),
        Err(at) if sets.len() < MAX_SETS => sets.insert(at, (id, set.clone())),
        Err(_) => {}
    }
}
