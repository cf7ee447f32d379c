//! The queue before the bottleneck: drop-tail in bytes, or CoDel (RFC 8289).
//!
//! The limit excludes the packet in transmission. CoDel marks ECT packets CE instead of dropping
//! them (RFC 8289, section 3 leaves this to the implementation; RFC 3168, section 5).

use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;

use units::Timestamp;

use crate::counters::Counters;
use crate::packet::Item;
use crate::text::{Fields, ParseError, parse_bytes, parse_duration};

/// Queue discipline.
///
/// As text: `500kB`; `500kB,mark=100kB`; `codel` (optionally
/// `codel:limit=500kB,target=5ms,interval=100ms`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// First in, first out. Drops packets that do not fit.
    DropTail {
        /// Capacity in bytes.
        limit: u64,
        /// Queue length in bytes above which arriving ECT packets are marked.
        mark_above: Option<u64>,
    },
    /// CoDel (RFC 8289), with drop-tail at `limit`.
    Codel {
        /// Capacity in bytes.
        limit: u64,
        /// Acceptable standing delay (RFC 8289, section 4.3: 5 ms).
        target: Duration,
        /// Sliding window of the minimum (RFC 8289, section 4.2: 100 ms), above zero.
        interval: Duration,
    },
}

/// Default capacity in bytes.
const DEFAULT_LIMIT: u64 = 500_000;
/// Defaults of RFC 8289, sections 4.3 and 4.2.
const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(100);

impl Queue {
    /// Drop-tail with this capacity in bytes.
    pub const fn drop_tail(limit: u64) -> Self {
        Self::DropTail { limit, mark_above: None }
    }

    /// CoDel with the parameters of RFC 8289 and this capacity in bytes.
    pub const fn codel(limit: u64) -> Self {
        Self::Codel { limit, target: TARGET, interval: INTERVAL }
    }
}

impl Default for Queue {
    /// Drop-tail at 500 kB.
    fn default() -> Self {
        Self::drop_tail(DEFAULT_LIMIT)
    }
}

impl FromStr for Queue {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const EXPECTED: &str = "a size like `500kB`, `500kB,mark=100kB`, `codel` or \
            `codel:limit=500kB,target=5ms,interval=100ms`";
        let text = text.trim();
        if let Some(settings) = text.strip_prefix("codel") {
            let settings = match settings.strip_prefix(':') {
                Some(settings) => settings,
                None if settings.is_empty() => settings,
                None => return Err(ParseError::new(text, EXPECTED)),
            };
            let mut fields = Fields::new(text, settings, EXPECTED)?;
            let limit = fields.optional_with("limit", parse_bytes)?.unwrap_or(DEFAULT_LIMIT);
            let target = fields.optional_with("target", parse_duration)?.unwrap_or(TARGET);
            let interval = fields.optional_with("interval", parse_duration)?.unwrap_or(INTERVAL);
            fields.finish()?;
            return Ok(Self::Codel { limit, target, interval });
        }
        let (limit, settings) = text.split_once(',').unwrap_or((text, ""));
        let limit = parse_bytes(limit).map_err(|_| ParseError::new(text, EXPECTED))?;
        let mut fields = Fields::new(text, settings, EXPECTED)?;
        let mark_above = fields.optional_with("mark", parse_bytes)?;
        fields.finish()?;
        Ok(Self::DropTail { limit, mark_above })
    }
}

/// Queued packets.
#[derive(Debug)]
pub(crate) struct Backlog<T> {
    items: VecDeque<Item<T>>,
    bytes: u64,
    limit: u64,
    mark_above: Option<u64>,
    codel: Option<Codel>,
}

impl<T> Backlog<T> {
    pub(crate) fn new(queue: Queue) -> Self {
        let (limit, mark_above, codel) = match queue {
            Queue::DropTail { limit, mark_above } => (limit, mark_above, None),
            Queue::Codel { limit, target, interval } => {
                (limit, None, Some(Codel::new(target, interval)))
            }
        };
        Self { items: VecDeque::new(), bytes: 0, limit, mark_above, codel }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Item<T>> {
        self.items.iter()
    }

    pub(crate) fn front(&self) -> Option<&Item<T>> {
        self.items.front()
    }

    /// Enqueues a packet, or drops it if it does not fit.
    #[inline]
    pub(crate) fn push(&mut self, mut item: Item<T>, counters: &mut Counters) {
        let size = item.packet.size;
        if self.bytes + u64::from(size) > self.limit {
            return counters.queue_dropped.add(size);
        }
        if self.mark_above.is_some_and(|threshold| self.bytes > threshold) {
            counters.mark(&mut item.packet);
        }
        self.bytes += u64::from(size);
        self.items.push_back(item);
    }

    /// Dequeues the packet to transmit at `now`. Drops or marks the packets selected by CoDel.
    #[inline]
    pub(crate) fn pop(&mut self, now: Timestamp, counters: &mut Counters) -> Option<Item<T>> {
        let Some(mut codel) = self.codel.take() else { return self.take() };
        let item = codel.dequeue(self, now, counters);
        self.codel = Some(codel);
        item
    }

    fn take(&mut self) -> Option<Item<T>> {
        let item = self.items.pop_front()?;
        self.bytes -= u64::from(item.packet.size);
        Some(item)
    }
}

/// State of RFC 8289, section 5.
#[derive(Debug)]
struct Codel {
    target: Duration,
    interval: Duration,
    first_above: Option<Timestamp>,
    drop_next: Timestamp,
    count: u32,
    last_count: u32,
    dropping: bool,
}

/// Maximum packet size in bytes. With no more than this queued, there is no standing queue (RFC
/// 8289, section 5.6).
const MAX_PACKET: u64 = 1_500;

impl Codel {
    fn new(target: Duration, interval: Duration) -> Self {
        Self {
            target,
            interval,
            first_above: None,
            drop_next: Timestamp::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    /// RFC 8289, section 5.3: the next drop comes after interval / sqrt(count).
    fn control_law(&self, from: Timestamp) -> Timestamp {
        from + self.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }

    /// RFC 8289, section 5.6, `dodequeue`: returns the head and whether it may be dropped.
    fn examine<T>(&mut self, queue: &mut Backlog<T>, now: Timestamp) -> (Option<Item<T>>, bool) {
        let head = queue.take();
        let standing = head
            .as_ref()
            .is_some_and(|item| now.since(item.at) >= self.target && queue.bytes > MAX_PACKET);
        if !standing {
            self.first_above = None;
            return (head, false);
        }
        let since = *self.first_above.get_or_insert(now + self.interval);
        (head, now >= since)
    }

    /// RFC 8289, section 5.5, `deque`.
    fn dequeue<T>(
        &mut self,
        queue: &mut Backlog<T>,
        now: Timestamp,
        counters: &mut Counters,
    ) -> Option<Item<T>> {
        let (mut head, mut may_drop) = self.examine(queue, now);
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                let mut item = head?;
                if counters.mark(&mut item.packet) {
                    self.drop_next = self.control_law(self.drop_next);
                    return Some(item);
                }
                counters.queue_dropped.add(item.packet.size);
                (head, may_drop) = self.examine(queue, now);
                if may_drop {
                    self.drop_next = self.control_law(self.drop_next);
                }
                self.dropping = may_drop;
            }
        } else if may_drop {
            let mut item = head?;
            head = if counters.mark(&mut item.packet) {
                Some(item)
            } else {
                counters.queue_dropped.add(item.packet.size);
                self.examine(queue, now).0
            };
            self.dropping = true;
            // RFC 8289, section 5.5: soon after a dropping state, resumes near its last drop rate.
            let drops = self.count.saturating_sub(self.last_count);
            let recent = now.since(self.drop_next) < 16 * self.interval;
            self.count = if drops > 1 && recent { drops } else { 1 };
            self.last_count = self.count;
            self.drop_next = self.control_law(now);
        }
        head
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
