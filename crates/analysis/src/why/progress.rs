//! Bytes of the viewer's request streams that arrived in order, from sent packets and
//! acknowledgements.

use std::collections::BTreeMap;

use super::event::Frame;

/// Maximum number of unacknowledged packets and of streams that are kept.
const MAX_PACKETS: usize = 200_000;
const MAX_STREAMS: usize = 10_000;

/// Stream data of a packet: stream, start and end.
type Chunk = (u64, u64, u64);

#[derive(Debug, Default)]
struct StreamProgress {
    /// End of the data that was sent.
    sent: u64,
    /// End of the data that arrived without a gap.
    arrived: u64,
    /// Data beyond a gap, by start.
    ahead: BTreeMap<u64, u64>,
}

/// Progress of all streams that a client opened for requests.
#[derive(Debug, Default)]
pub(super) struct Progress {
    packets: BTreeMap<u64, Vec<Chunk>>,
    streams: BTreeMap<u64, StreamProgress>,
    /// Bytes that arrived in order, over all streams.
    pub arrived: u64,
    /// Bytes sent at least once.
    pub sent: u64,
}

impl Progress {
    /// Bytes that were sent but did not arrive in order.
    pub(super) fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }

    /// Adds a sent packet. Returns whether it has stream data.
    pub(super) fn on_sent(&mut self, number: u64, frames: &[Frame]) -> bool {
        let mut chunks = Vec::new();
        for frame in frames.iter().filter(|frame| frame.frame_type == "stream") {
            let (Some(id), Some(from)) = (frame.stream_id, frame.offset) else { continue };
            // Client-initiated bidirectional streams (RFC 9000, section 2.1) carry responses.
            if id % 4 != 0 {
                continue;
            }
            let to = from.saturating_add(frame.length.unwrap_or(0));
            if self.streams.len() >= MAX_STREAMS && !self.streams.contains_key(&id) {
                continue;
            }
            let stream = self.streams.entry(id).or_default();
            self.sent = self.sent.saturating_add(to.saturating_sub(stream.sent));
            stream.sent = stream.sent.max(to);
            chunks.push((id, from, to));
        }
        if chunks.is_empty() {
            return false;
        }
        if self.packets.len() >= MAX_PACKETS {
            self.packets.pop_first();
        }
        self.packets.insert(number, chunks);
        true
    }

    /// Removes the acknowledged packets. Returns whether more data arrived in order.
    pub(super) fn on_acked(&mut self, ranges: &[Vec<u64>]) -> bool {
        let before = self.arrived;
        for range in ranges {
            let (Some(&first), Some(&last)) = (range.first(), range.last()) else { continue };
            if first > last {
                continue;
            }
            let numbers: Vec<u64> =
                self.packets.range(first..=last).map(|(number, _)| *number).collect();
            for number in numbers {
                for (id, from, to) in self.packets.remove(&number).unwrap_or_default() {
                    self.on_arrived(id, from, to);
                }
            }
        }
        self.arrived > before
    }

    fn on_arrived(&mut self, id: u64, from: u64, to: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if to <= stream.arrived {
            return;
        }
        let end = stream.ahead.entry(from).or_default();
        *end = to.max(*end);
        let before = stream.arrived;
        while let Some(first) = stream.ahead.first_entry() {
            if *first.key() > stream.arrived {
                break;
            }
            stream.arrived = stream.arrived.max(first.remove());
        }
        self.arrived = self.arrived.saturating_add(stream.arrived - before);
    }
}
