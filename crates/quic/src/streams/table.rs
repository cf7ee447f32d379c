//! Where the streams of a connection live: a slab, and an index from identifier to slot. Neither
//! allocates while it is empty. Most streams have one part only, so each part has its own memory.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use units::StreamId;

use super::interface::Priority;
use super::recv::RecvStream;
use super::send::{SendStream, Sendable};

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) priority: Priority,
    /// `None` on a unidirectional stream of the peer.
    pub(super) send: Option<Box<SendStream>>,
    /// `None` on a unidirectional stream of ours.
    pub(super) recv: Option<Box<RecvStream>>,
    /// How the stream stands in the schedule, if it does.
    pub(super) scheduled: Option<Sendable>,
    /// Events that wait for the application (bits of `flags::event`). The stream is in the queue
    /// of events exactly while this is not zero.
    pub(super) events: u8,
    /// Control frames that are due (bits of `flags::of_stream`). The stream is in the queue of
    /// control frames exactly while this is not zero.
    pub(super) control: u8,
}

impl Stream {
    /// Both parts are finished, and the application has been told.
    pub(super) fn is_over(&self) -> bool {
        self.events == 0
            && self.send.as_deref().is_none_or(SendStream::is_done)
            && self.recv.as_deref().is_none_or(RecvStream::is_done)
    }
}

/// Spreads identifiers by a multiplication. Identifiers are dense and a peer can only choose within
/// its stream limit, so that a keyed hash is not needed.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // 2^64 divided by the golden ratio; the table takes its index from the low bits, where a
        // product alone mixes least.
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

/// The streams of one connection.
#[derive(Debug, Default)]
pub(super) struct StreamTable {
    slots: Vec<Option<Stream>>,
    free: Vec<u32>,
    index: HashMap<StreamId, u32, BuildHasherDefault<IdHasher>>,
}

impl StreamTable {
    pub(super) fn find(&self, id: StreamId) -> Option<u32> {
        self.index.get(&id).copied()
    }

    /// The stream `id` if it still lives in `slot`.
    pub(super) fn get(&self, slot: u32, id: StreamId) -> Option<&Stream> {
        self.slots.get(slot as usize)?.as_ref().filter(|stream| stream.id == id)
    }

    /// The stream `id` if it still lives in `slot`.
    pub(super) fn get_mut(&mut self, slot: u32, id: StreamId) -> Option<&mut Stream> {
        self.slots.get_mut(slot as usize)?.as_mut().filter(|stream| stream.id == id)
    }

    /// The stream in a slot that is known to be taken.
    pub(super) fn at(&mut self, slot: u32) -> &mut Stream {
        self.slots[slot as usize].as_mut().expect("slots come from the index or a queue")
    }

    pub(super) fn insert(&mut self, stream: Stream) -> u32 {
        let id = stream.id;
        let stream = Some(stream);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = stream;
                slot
            }
            None => {
                self.slots.push(stream);
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(id, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) {
        if let Some(stream) = self.slots[slot as usize].take() {
            self.index.remove(&stream.id);
            self.free.push(slot);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Stream)> {
        (0..).zip(&self.slots).filter_map(|(slot, stream)| Some((slot, stream.as_ref()?)))
    }
}
