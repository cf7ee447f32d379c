//! One direction of a path: a chain of nodes, driven by the caller's time.
//!
//! Each call first advances the bottleneck to the given time, with every step at its own instant.
//! Results therefore do not depend on the frequency of polling.

use core::time::Duration;
use std::sync::Arc;

use units::Timestamp;

use crate::config::{LinkConfig, LossPlace};
use crate::counters::{Counters, Imbalance, Tally};
use crate::delay::{DelayLine, Propagation, Waits};
use crate::ecn::EcnNode;
use crate::loss::LossProcess;
use crate::packet::{Item, Packet, Passage};
use crate::policer::Bucket;
use crate::queue::Backlog;
use crate::random::{DrawStream, Probability};
use crate::rate::RateServer;
use crate::window::Window;

/// Retry interval and maximum number of retries of an insistent packet.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);
const MAX_RETRIES: u32 = 60_000;

/// A packet delivered at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<T> {
    /// Time of arrival.
    pub at: Timestamp,
    /// Index among the packets offered to the link, from 0. A duplicate has the index of its
    /// original.
    pub index: u64,
    /// The packet with its current ECN field.
    pub packet: Packet<T>,
    /// Damage to apply to the payload.
    pub corruption: Option<Corruption>,
}

/// Damage to a packet. The caller applies it, as the link does not access payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption(u64);

impl Corruption {
    /// Flips one to four bits of `data`. No effect on empty data.
    pub fn apply(self, data: &mut [u8]) {
        let bits = data.len() as u64 * 8;
        for flip in 0..=(self.0 & 3) {
            let bit = self.0.rotate_right(16 * flip as u32).checked_rem(bits).unwrap_or(0);
            if let Some(byte) = data.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}

/// One direction of a path.
///
/// Times must not decrease from call to call.
///
/// ```
/// use mendcast_links::{Link, LinkConfig, Packet};
/// use units::{Ecn, Timestamp};
/// use std::time::Duration;
///
/// let config = LinkConfig {
///     rate: Some("12mbps".parse().unwrap()),
///     delay: Some(Duration::from_millis(30)),
///     ..LinkConfig::default()
/// };
/// let mut link = Link::new(&config, 1, "down");
/// // 1,500 bytes on the wire take 1 ms at 12 Mbps.
/// link.send(Timestamp::ZERO, Packet::datagram(1_472, Ecn::NotEct, "frame"));
/// let arrival = link.next_event().unwrap();
/// let mut now = arrival;
/// let delivered = loop {
///     match link.poll(now) {
///         Some(delivered) => break delivered,
///         None => now = link.next_event().unwrap(),
///     }
/// };
/// assert_eq!(delivered.at, Timestamp::from_millis(31));
/// assert_eq!(delivered.packet.payload, "frame");
/// ```
#[derive(Debug)]
pub struct Link<T> {
    blackhole: Vec<Window>,
    mtu: u32,
    policer: Option<Bucket>,
    ecn: EcnNode,
    loss: LossProcess,
    loss_place: LossPlace,
    bottleneck: Option<Bottleneck<T>>,
    duplicate: Probability,
    duplicate_draws: DrawStream,
    corrupt: Probability,
    corrupt_draws: DrawStream,
    line: DelayLine<T>,
    /// Highest index delivered.
    latest: u64,
    counters: Counters,
}

#[derive(Debug)]
struct Bottleneck<T> {
    server: RateServer,
    queue: Backlog<T>,
    /// The packet in transmission. Its `at` is when its last bit leaves.
    transmitting: Option<Item<T>>,
    /// Time before which nothing leaves; `None` if the queue is empty.
    next: Option<Timestamp>,
}

impl<T> Bottleneck<T> {
    /// Returns the next packet that leaves up to `now`, with its departure in `at`.
    #[inline]
    fn leave(&mut self, now: Timestamp, counters: &mut Counters) -> Option<Item<T>> {
        loop {
            if let Some(item) = &self.transmitting {
                self.next = Some(item.at);
                return if item.at <= now { self.transmitting.take() } else { None };
            }
            let Some(head) = self.queue.front() else {
                self.next = None;
                return None;
            };
            let start = self.server.next_start(head.at);
            if start > now {
                self.next = Some(start);
                return None;
            }
            self.transmitting = self.queue.pop(start, counters).map(|mut item| {
                item.at = self.server.transmit(start, item.packet.size);
                item
            });
        }
    }
}

impl<T: Clone> Link<T> {
    /// Creates a link. Its nodes draw from streams determined by `seed`, `name` and their role.
    pub fn new(config: &LinkConfig, seed: u64, name: &str) -> Self {
        let propagation = match (config.delay, config.rows()) {
            (None, Some(rows)) => Propagation::Rows { rows: Arc::clone(rows), cursor: 0 },
            (delay, _) => Propagation::Fixed(delay.unwrap_or_default()),
        };
        let waits = Waits {
            bunches: config.bunches,
            steps: config.rtt_steps.clone(),
            jitter: config.jitter,
            reorder: config.reorder,
        };
        let line = DelayLine::new(propagation, waits, seed, name);
        Self {
            blackhole: config.blackhole.clone(),
            mtu: config.mtu.unwrap_or(u32::MAX),
            policer: config.policer.map(Bucket::new),
            ecn: EcnNode::new(config.ecn, seed, name),
            loss: LossProcess::new(config.loss.as_ref(), config.rows(), seed, name),
            loss_place: config.loss_place,
            bottleneck: RateServer::new(config.rate, config.trace.as_ref()).map(|server| {
                Bottleneck {
                    server,
                    queue: Backlog::new(config.queue),
                    transmitting: None,
                    next: None,
                }
            }),
            duplicate: config.duplicate,
            duplicate_draws: DrawStream::new(seed, name, "duplicate"),
            corrupt: config.corrupt,
            corrupt_draws: DrawStream::new(seed, name, "corrupt"),
            line,
            latest: 0,
            counters: Counters::default(),
        }
    }

    /// Offers a packet at time `now`.
    #[inline]
    pub fn send(&mut self, now: Timestamp, packet: Packet<T>) {
        self.send_as(now, packet, Passage::Ordinary);
    }

    /// Like [`Self::send`], for a packet that losses may spare. It has an index and can be dropped
    /// by the queue like any other packet.
    #[inline]
    pub fn send_as(&mut self, now: Timestamp, mut packet: Packet<T>, passage: Passage) {
        self.advance(now);
        let (index, size) = (self.counters.sent.packets, packet.size);
        self.counters.sent.add(size);
        let mut not_before = now;
        if self.is_dead(now) {
            match self.first_passage(now, index, passage) {
                Some(at) => not_before = at,
                None => return self.counters.blackholed.add(size),
            }
        }
        if size > self.mtu {
            return self.counters.mtu_dropped.add(size);
        }
        if self.policer.as_mut().is_some_and(|policer| !policer.passes(now, size)) {
            return self.counters.policed.add(size);
        }
        if !self.ecn.passes(now, index, &mut packet, &mut self.counters) {
            return self.counters.ecn_dropped.add(size);
        }
        if self.loss_place == LossPlace::BeforeQueue
            && self.loss.is_lost(now, index)
            && passage != Passage::Spared
        {
            match self.first_passage(now, index, passage) {
                Some(at) => not_before = not_before.max(at),
                None => return self.counters.lost.add(size),
            }
        }
        let item = Item { at: now, index, packet, passage, not_before };
        match &mut self.bottleneck {
            Some(bottleneck) => {
                bottleneck.queue.push(item, &mut self.counters);
                self.advance(now);
            }
            None => self.propagate(item),
        }
    }

    /// Returns the earliest time at which [`Self::poll`] may return a packet. It may still return
    /// `None`.
    #[inline]
    pub fn next_event(&self) -> Option<Timestamp> {
        let arrival = self.line.next_due();
        let Some(leaving) = self.bottleneck.as_ref().and_then(|b| b.next) else { return arrival };
        // A packet that never leaves is not an event.
        let leaving = (leaving < Timestamp::MAX).then(|| self.line.earliest(leaving));
        arrival.into_iter().chain(leaving).min()
    }

    /// Returns the next packet that arrives up to `now`, in order of arrival. Call until `None`.
    #[inline]
    pub fn poll(&mut self, now: Timestamp) -> Option<Delivered<T>> {
        self.advance(now);
        let Item { at, index, packet, .. } = self.line.pop(now)?;
        let counters = &mut self.counters;
        counters.delivered.add(packet.size);
        if index < self.latest {
            counters.reordered.add(packet.size);
        }
        self.latest = self.latest.max(index);
        let damaged = self.corrupt.hit(self.corrupt_draws.at(2 * index));
        if damaged {
            counters.corrupted.add(packet.size);
        }
        let corruption = damaged.then(|| Corruption(self.corrupt_draws.at(2 * index + 1)));
        Some(Delivered { at, index, packet, corruption })
    }

    /// Current totals.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes in the queue, without the packet in transmission.
    pub fn queued_bytes(&self) -> u64 {
        self.bottleneck.as_ref().map_or(0, |b| b.queue.bytes())
    }

    /// Packets inside the link: queued, in transmission, or propagating.
    pub fn in_flight(&self) -> Tally {
        let mut inside = Tally::default();
        let bottleneck = self.bottleneck.iter().flat_map(|b| b.queue.iter().chain(&b.transmitting));
        bottleneck.chain(self.line.iter()).for_each(|item| inside.add(item.packet.size));
        inside
    }

    /// Checks that sent + duplicated = delivered + discarded + in flight, in packets and in bytes.
    ///
    /// # Errors
    /// Returns both sides if they differ, which is a defect of the model.
    pub fn check_conservation(&self) -> Result<(), Imbalance> {
        self.counters.check(self.in_flight())
    }

    /// Advances the bottleneck to `now`.
    #[inline]
    fn advance(&mut self, now: Timestamp) {
        while let Some(item) =
            self.bottleneck.as_mut().and_then(|b| b.leave(now, &mut self.counters))
        {
            self.propagate(item);
        }
    }

    fn is_dead(&self, now: Timestamp) -> bool {
        self.blackhole.iter().any(|window| window.contains(now))
    }

    /// Returns the departure of an insistent packet that was lost at `from`.
    fn first_passage(&self, from: Timestamp, index: u64, passage: Passage) -> Option<Timestamp> {
        if passage != Passage::Insistent {
            return None;
        }
        let mut ahead = self.loss.clone();
        (1..=MAX_RETRIES).find_map(|tries| {
            let at = from + RETRY_INTERVAL * tries;
            let is_lost = ahead.is_lost(at, index + u64::from(tries));
            (!is_lost && !self.is_dead(at)).then_some(at)
        })
    }

    /// Starts the propagation of a fully transmitted packet.
    #[inline]
    fn propagate(&mut self, mut item: Item<T>) {
        let (index, size) = (item.index, item.packet.size);
        let is_lost = self.loss_place == LossPlace::AfterQueue && self.loss.is_lost(item.at, index);
        // A packet that waits for losses to end departs after them.
        if is_lost && item.passage != Passage::Spared && item.not_before <= item.at {
            match self.first_passage(item.at, index, item.passage) {
                Some(at) => item.not_before = at,
                None => return self.counters.lost.add(size),
            }
        }
        if self.duplicate.hit(self.duplicate_draws.at(index)) {
            self.counters.duplicated.add(size);
            self.line.push(item.clone());
        }
        self.line.push(item);
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
