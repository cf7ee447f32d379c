//! The parameter sets of an H.264 stream.
//!
//! A picture names its sets by ID (ITU-T H.264, section 7.4.1.2.1), and a stream may use several in
//! turn without repeating all of them at each key picture.

use bytes::Bytes;

use crate::fmp4::bits::h264_set_id;

/// Sets of a kind that are remembered; an encoder uses one or two.
const MAX_SETS: usize = 16;

/// Sequence and picture parameter sets by ID.
#[derive(Clone, Debug, Default)]
pub(super) struct ParameterSets {
    sequence: Vec<(u32, Bytes)>,
    picture: Vec<(u32, Bytes)>,
}

impl ParameterSets {
    /// Takes the sets of an access unit; gives all that hold from there on, by ID.
    pub(super) fn with(&mut self, sps: &[Bytes], pps: &[Bytes]) -> (Vec<Bytes>, Vec<Bytes>) {
        // A new set under a known ID comes from another encoder, which does not use the old sets.
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
