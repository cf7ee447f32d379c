//! The receiver of a call: frames, and groups with repair packets.

use std::collections::BTreeMap;
use std::sync::Arc;

use units::Timestamp;

use crate::sender::{Batch, Outgoing};
use crate::webrtc_fec::Mask;

/// Groups that are kept. Packets of older ones restore nothing.
const KEPT_BATCHES: u32 = 256;

/// How repair packets restore data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Decoding {
    /// As many packets of a group as it has data packets suffice, as in Hairpin's simulator.
    #[default]
    Mds,
    /// XOR with WebRTC's interleaved masks.
    Xor,
}

#[derive(Debug)]
struct Group {
    ids: Arc<[u32]>,
    data: Vec<bool>,
    repairs: Vec<bool>,
}

impl Group {
    fn restores(&self, decoding: Decoding) -> bool {
        let count = |arrived: &[bool]| arrived.iter().filter(|arrived| **arrived).count();
        match decoding {
            Decoding::Mds => count(&self.data) + count(&self.repairs) >= self.data.len(),
            // WebRTC has no more repair than data packets, and 48 of these: others are no group.
            Decoding::Xor => Mask::new(self.data.len(), self.repairs.len())
                .is_ok_and(|mask| mask.restores(&self.data, &self.repairs)),
        }
    }
}

/// State of the receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    decoding: Decoding,
    /// Frame of each data packet, until it arrives.
    waiting: Vec<Option<usize>>,
    /// Missing packets of each frame, and when it was complete.
    frames: Vec<(u32, Option<Timestamp>)>,
    groups: BTreeMap<u32, Group>,
}

impl Receiver {
    pub(super) fn new(decoding: Decoding) -> Self {
        Self { decoding, waiting: Vec::new(), frames: Vec::new(), groups: BTreeMap::new() }
    }

    /// Adds a frame of `size` packets, and returns their numbers.
    pub(super) fn expect(&mut self, size: u32) -> core::ops::Range<u32> {
        let first = self.waiting.len() as u32;
        let frame = self.frames.len();
        self.waiting.extend((0..size).map(|_| Some(frame)));
        self.frames.push((size, None));
        first..first + size
    }

    /// Takes a packet, and returns the data that it restores.
    pub(super) fn push(&mut self, now: Timestamp, packet: &Outgoing) -> Vec<u32> {
        if let Some(id) = packet.id {
            self.arrive(now, id);
        }
        match &packet.batch {
            Some(batch) if batch.repairs > 0 => self.restore(now, batch),
            _ => Vec::new(),
        }
    }

    fn arrive(&mut self, now: Timestamp, id: u32) -> bool {
        let Some(frame) = self.waiting[id as usize].take() else { return false };
        let (missing, complete) = &mut self.frames[frame];
        *missing -= 1;
        if *missing == 0 {
            *complete = Some(now);
        }
        true
    }

    fn restore(&mut self, now: Timestamp, batch: &Batch) -> Vec<u32> {
        let oldest = batch.key.saturating_sub(KEPT_BATCHES);
        while self.groups.first_key_value().is_some_and(|(key, _)| *key < oldest) {
            self.groups.pop_first();
        }
        let group = self.groups.entry(batch.key).or_insert_with(|| Group {
            ids: Arc::clone(&batch.ids),
            data: vec![false; batch.ids.len()],
            repairs: vec![false; batch.repairs],
        });
        match batch.index.checked_sub(batch.ids.len()) {
            None => group.data[batch.index] = true,
            Some(repair) => group.repairs[repair] = true,
        }
        if !group.restores(self.decoding) {
            return Vec::new();
        }
        let ids = Arc::clone(&group.ids);
        ids.iter().copied().filter(|&id| self.arrive(now, id)).collect()
    }

    /// When each frame was complete.
    pub(super) fn completions(&self) -> impl Iterator<Item = Option<Timestamp>> {
        self.frames.iter().map(|frame| frame.1)
    }
}
