//! Block codes below QUIC (ART, section 7.2: "9 data packets are used to create 1 redundant
//! packet"): a shim before the link groups sealed datagrams and adds Reed-Solomon repair packets;
//! another one after the link restores lost datagrams before the unmodified client sees them.
//!
//! Datagrams leave at once, with a header of 8 bytes. A block that is not full after a time-out is
//! closed, so that the last datagrams of a burst are protected as well.

use core::time::Duration;
use std::collections::BTreeMap;

use units::Timestamp;

use crate::error::BadValue;

/// Bytes of the header: block, index, data packets of the block (0 while it is open), and their
/// longest length.
pub const HEADER: usize = 8;
/// Blocks that the receiver keeps.
const KEPT_BLOCKS: u32 = 64;

/// Numbers of data and repair packets in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRate {
    data: u8,
    repair: u8,
}

impl BlockRate {
    /// Creates a rate.
    ///
    /// # Errors
    /// One of the numbers is not between 1 and 255, or both together exceed 256.
    pub fn new(data: u32, repair: u32) -> Result<Self, BadValue> {
        let within = |key, n: u32| {
            u8::try_from(n)
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| BadValue::new(key, n, "1 to 255 packets"))
        };
        let rate =
            Self { data: within("block.data", data)?, repair: within("block.repair", repair)? };
        BadValue::unless(data + repair <= 256, "block", data + repair, "at most 256 packets")?;
        Ok(rate)
    }

    /// Data packets of a full block.
    pub fn data(self) -> usize {
        self.data.into()
    }

    /// Repair packets of a block.
    pub fn repair(self) -> usize {
        self.repair.into()
    }
}

/// Header of a packet of the shim.
#[derive(Clone, Copy)]
struct Header {
    block: u32,
    /// Index among data and then repair packets.
    index: u8,
    /// Data packets of a closed block, from 1; 0 in data packets.
    data: u8,
    /// Length of a shard in repair packets.
    shard: u16,
}

impl Header {
    fn write(self, body: &[u8]) -> Vec<u8> {
        let mut packet = Vec::with_capacity(HEADER + body.len());
        packet.extend(self.block.to_be_bytes());
        packet.extend([self.index, self.data]);
        packet.extend(self.shard.to_be_bytes());
        packet.extend(body);
        packet
    }

    fn read(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (head, body) = packet.split_at_checked(HEADER)?;
        let block = u32::from_be_bytes(head[..4].try_into().ok()?);
        let shard = u16::from_be_bytes(head[6..].try_into().ok()?);
        Some((Self { block, index: head[4], data: head[5], shard }, body))
    }
}

/// A datagram with its length, padded to a shard of the code.
fn shard(datagram: &[u8], length: usize) -> Vec<u8> {
    let mut shard = (datagram.len() as u16).to_be_bytes().to_vec();
    shard.extend(datagram);
    shard.resize(length, 0);
    shard
}

/// Length of shards for a longest datagram: even, as the code requires.
fn shard_length(longest: usize) -> usize {
    (2 + longest).next_multiple_of(2)
}

/// The shim at the sender.
#[derive(Debug)]
pub struct BlockSender {
    rate: BlockRate,
    timeout: Duration,
    block: u32,
    open: Vec<Vec<u8>>,
    closes: Option<Timestamp>,
}

impl BlockSender {
    /// Creates the shim. A block is closed `timeout` after its first datagram.
    pub fn new(rate: BlockRate, timeout: Duration) -> Self {
        Self { rate, timeout, block: 0, open: Vec::new(), closes: None }
    }

    /// Takes a datagram of up to 65,000 bytes, and returns the packets to send now: the datagram,
    /// and the repair packets of a full block.
    pub fn push(&mut self, now: Timestamp, datagram: &[u8]) -> Vec<Vec<u8>> {
        let index = self.open.len() as u8;
        let head = Header { block: self.block, index, data: 0, shard: 0 };
        let mut packets = vec![head.write(datagram)];
        self.open.push(datagram.to_vec());
        self.closes = self.closes.or(Some(now + self.timeout));
        if self.open.len() == self.rate.data() {
            packets.extend(self.close());
        }
        packets
    }

    /// Returns when [`BlockSender::on_timeout`] must be called.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.closes
    }

    /// Returns the repair packets of a block that has been open for the time-out.
    pub fn on_timeout(&mut self, now: Timestamp) -> Vec<Vec<u8>> {
        if self.closes.is_some_and(|at| at <= now) { self.close() } else { Vec::new() }
    }

    fn close(&mut self) -> Vec<Vec<u8>> {
        let open = core::mem::take(&mut self.open);
        let longest = open.iter().map(Vec::len).max().unwrap_or(0);
        let length = shard_length(longest);
        let shards = open.iter().map(|datagram| shard(datagram, length));
        let repairs = reed_solomon_simd::encode(open.len(), self.rate.repair(), shards)
            .expect("counts are checked and shards have one even length");
        let head =
            Header { block: self.block, index: 0, data: open.len() as u8, shard: length as u16 };
        self.block += 1;
        self.closes = None;
        let indices = 0..=u8::MAX;
        indices.zip(repairs).map(|(index, body)| Header { index, ..head }.write(&body)).collect()
    }
}

/// A block at the receiver.
#[derive(Debug, Default)]
struct Block {
    data: BTreeMap<u8, Vec<u8>>,
    repairs: BTreeMap<u8, Vec<u8>>,
    /// Data packets and repair packets of the block, and the length of shards, once known.
    closed: Option<(u8, usize)>,
}

/// The shim at the receiver.
#[derive(Debug)]
pub struct BlockReceiver {
    rate: BlockRate,
    blocks: BTreeMap<u32, Block>,
    restored: u64,
}

impl BlockReceiver {
    /// Creates the shim.
    pub fn new(rate: BlockRate) -> Self {
        Self { rate, blocks: BTreeMap::new(), restored: 0 }
    }

    /// Number of datagrams that were restored.
    pub fn restored(&self) -> u64 {
        self.restored
    }

    /// Takes a packet, and returns the datagrams for the client: a new one, and restored ones.
    /// Packets that are malformed or of old blocks are passed on or dropped.
    pub fn push(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        let Some((head, body)) = Header::read(packet) else { return Vec::new() };
        let newest = self.blocks.last_key_value().map_or(head.block, |(block, _)| *block);
        let oldest = newest.max(head.block).saturating_sub(KEPT_BLOCKS);
        self.blocks = self.blocks.split_off(&oldest);
        let is_data = head.data == 0;
        let mut out = if is_data { vec![body.to_vec()] } else { Vec::new() };
        if head.block < oldest {
            return out;
        }
        let block = self.blocks.entry(head.block).or_default();
        if is_data {
            if block.data.insert(head.index, body.to_vec()).is_some() {
                out.clear();
            }
        } else if usize::from(head.index) < self.rate.repair() {
            block.closed = Some((head.data, head.shard.into()));
            block.repairs.insert(head.index, body.to_vec());
        }
        let restored = block.restore(self.rate);
        self.restored += restored.len() as u64;
        out.extend(restored);
        out
    }
}

impl Block {
    /// Restores all lost datagrams if enough packets have arrived.
    fn restore(&mut self, rate: BlockRate) -> Vec<Vec<u8>> {
        let Some((count, length)) = self.closed else { return Vec::new() };
        let missing = usize::from(count).saturating_sub(self.data.len());
        if missing == 0 || self.repairs.len() < missing {
            return Vec::new();
        }
        let data = self.data.iter().map(|(&at, body)| (usize::from(at), shard(body, length)));
        let repairs = self.repairs.iter().map(|(&at, body)| (usize::from(at), body));
        // Packets with inconsistent lengths are no code word.
        let decoded = reed_solomon_simd::decode(count.into(), rate.repair(), data, repairs);
        let mut restored = Vec::new();
        for (at, shard) in decoded.into_iter().flatten() {
            let size = usize::from(u16::from_be_bytes([shard[0], shard[1]]));
            let Some(datagram) = shard.get(2..2 + size) else { continue };
            self.data.insert(at as u8, datagram.to_vec());
            restored.push(datagram.to_vec());
        }
        restored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(n: u8) -> Vec<u8> {
        (0..=n % 7 + 1).map(|at| at.wrapping_mul(31) ^ n).collect()
    }

    /// Sends `data` datagrams through the code, and loses the packets of the bits of `lost`.
    fn passed(rate: BlockRate, data: u8, lost: u32) -> Vec<Vec<u8>> {
        let mut sender = BlockSender::new(rate, Duration::from_millis(5));
        let mut receiver = BlockReceiver::new(rate);
        let mut packets = Vec::new();
        for n in 0..data {
            packets.extend(sender.push(Timestamp::ZERO, &datagram(n)));
        }
        assert!(sender.on_timeout(Timestamp::from_millis(4)).is_empty());
        packets.extend(sender.on_timeout(Timestamp::from_millis(5)));
        assert_eq!(packets.len(), usize::from(data) + rate.repair());
        let arrived = packets.iter().enumerate().filter(|(at, _)| lost & 1 << at == 0);
        let mut out: Vec<_> = arrived.flat_map(|(_, packet)| receiver.push(packet)).collect();
        out.sort();
        out
    }

    /// All patterns of losses of small blocks, full and closed by the time-out. Any `data` packets
    /// of a block must give all datagrams, and fewer only those that arrived.
    #[test]
    fn every_pattern_of_losses_is_restored_as_the_code_promises() {
        for (full, repair, data) in [(3, 1, 3), (4, 2, 4), (5, 3, 5), (5, 3, 2), (9, 1, 9)] {
            let rate = BlockRate::new(full, repair).expect("in range");
            let packets = u32::from(data) + repair;
            for lost in 0u32..1 << packets {
                let arrived = (0..data).filter(|n| lost & 1 << n == 0);
                let mut expected: Vec<_> = if lost.count_ones() <= repair {
                    (0..data).map(datagram).collect()
                } else {
                    arrived.map(datagram).collect()
                };
                expected.sort();
                assert_eq!(passed(rate, data, lost), expected, "{full}+{repair}, {lost:b}");
            }
        }
    }

    #[test]
    fn damaged_repair_packets_are_not_mistaken_for_others() {
        let rate = BlockRate::new(2, 1).expect("in range");
        let mut sender = BlockSender::new(rate, Duration::from_millis(5));
        let mut packets = sender.push(Timestamp::ZERO, b"first");
        packets.extend(sender.push(Timestamp::ZERO, b"second"));
        let mut receiver = BlockReceiver::new(rate);
        assert_eq!(receiver.push(&packets[0]), [b"first".to_vec()]);
        packets[2][HEADER + 4] ^= 1;
        assert_ne!(receiver.push(&packets[2]), [b"second".to_vec()], "the code is no copy");
        assert!(receiver.push(&packets[0][..5]).is_empty(), "shorter than the header");
    }

    #[test]
    fn impossible_rates_are_rejected_with_key_and_value() {
        let text = |data, repair| BlockRate::new(data, repair).expect_err("rejected").to_string();
        assert_eq!(text(9, 256), "block.repair = 256: expected 1 to 255 packets");
        assert_eq!(text(0, 1), "block.data = 0: expected 1 to 255 packets");
        assert_eq!(text(200, 100), "block = 300: expected at most 256 packets");
    }
}
