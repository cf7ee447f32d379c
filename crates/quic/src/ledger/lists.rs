//! Reusable frame lists of packets with more than one STREAM frame.

use super::record::{Carried, PacketContent, SentFrame};

/// Lists of frames, by the key in a packet's [`PacketContent`].
#[derive(Debug, Default)]
pub(super) struct Lists {
    lists: Vec<Vec<SentFrame>>,
    free: Vec<u32>,
}

impl Lists {
    /// Keeps a list until its packet is settled.
    pub(super) fn keep(&mut self, frames: &[SentFrame]) -> PacketContent {
        let key = self.free.pop().unwrap_or_else(|| {
            self.lists.push(Vec::new());
            self.lists.len() as u32 - 1
        });
        self.lists[key as usize].extend_from_slice(frames);
        PacketContent::list(key)
    }

    /// The list of a packet; none if it carries no list.
    #[inline]
    pub(super) fn get(&self, content: PacketContent) -> &[SentFrame] {
        match content.get() {
            Carried::List(key) => &self.lists[key as usize],
            _ => &[],
        }
    }

    /// The packet is settled: its list is free for another.
    #[inline]
    pub(super) fn release(&mut self, content: PacketContent) {
        if let Carried::List(key) = content.get() {
            self.lists[key as usize].clear();
            self.free.push(key);
        }
    }

    /// Gives the memory back if no list is kept.
    pub(super) fn shrink(&mut self) {
        if self.free.len() == self.lists.len() {
            *self = Self::default();
        }
    }

    /// Memory that free lists hold.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.free.is_empty()
    }
}
