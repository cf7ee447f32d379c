//! Rate of the bottleneck: start and end of each transmission.
//!
//! Uses only integers. A packet needs `size × 8 × 10^9` bit-nanoseconds of work. The unused part of
//! its last nanosecond is credited to the next packet, so a busy link carries exactly its rate.
//! Delivery opportunities follow mahimahi's `LinkQueue`: each carries 1504 bytes (an IP packet of
//! 1500 and a TUN header of 4), and packets may share or span opportunities. Unused capacity is
//! lost.

use core::time::Duration;
use std::sync::Arc;

use units::{Rate, Timestamp};

use crate::trace::{Opportunities, Rows, Trace};

/// Capacity of a mahimahi delivery opportunity, in bytes.
const OPPORTUNITY_BYTES: u32 = 1504;
/// Header that mahimahi's TUN device adds to each IP packet, in bytes.
const TUN_HEADER: u32 = 4;
/// Work per byte, in bit-nanoseconds.
pub(crate) const WORK_PER_BYTE: u64 = 8_000_000_000;

/// Rate limit and its progress.
#[derive(Debug)]
pub(crate) struct RateServer {
    limit: Limit,
    /// End of the last transmission.
    free_at: Timestamp,
    /// Work already done for the next packet if it follows without a gap.
    credit: u64,
}

#[derive(Debug)]
enum Limit {
    Constant(Rate),
    Rows { rows: Arc<Rows>, cursor: usize },
    Opportunities(Lap),
}

#[derive(Debug)]
struct Lap {
    schedule: Arc<Opportunities>,
    /// Start of the current lap in nanoseconds.
    base: u64,
    /// Index of the first unused opportunity.
    next: usize,
    /// Bytes left in the previous opportunity, at `free_at`.
    left: u32,
}

impl RateServer {
    /// Creates the server of a rate or, without a rate, of a trace. `None` if nothing limits the
    /// link.
    pub(crate) fn new(rate: Option<Rate>, trace: Option<&Trace>) -> Option<Self> {
        let limit = match (rate, trace) {
            (Some(Rate::MAX), _) | (None, None) => return None,
            (Some(rate), _) => Limit::Constant(rate),
            (None, Some(Trace::Rows(rows))) => Limit::Rows { rows: rows.clone(), cursor: 0 },
            (None, Some(Trace::Opportunities(schedule))) => {
                Limit::Opportunities(Lap { schedule: schedule.clone(), base: 0, next: 0, left: 0 })
            }
        };
        Some(Self { limit, free_at: Timestamp::ZERO, credit: 0 })
    }

    /// Returns the start of the transmission of the next packet, which arrived at `arrived`.
    #[inline]
    pub(crate) fn next_start(&mut self, arrived: Timestamp) -> Timestamp {
        match &mut self.limit {
            Limit::Constant(_) | Limit::Rows { .. } => arrived.max(self.free_at),
            Limit::Opportunities(lap) => {
                // An opportunity serves only packets that arrived before it.
                if lap.left > 0 && arrived < self.free_at {
                    return self.free_at;
                }
                lap.left = 0;
                Timestamp::from_nanos(lap.skip_to(arrived.as_nanos()))
            }
        }
    }

    /// Transmits a packet of `size` bytes from `start`, as returned by [`Self::next_start`].
    /// Returns when its last bit leaves, or [`Timestamp::MAX`] for never.
    #[inline]
    pub(crate) fn transmit(&mut self, start: Timestamp, size: u32) -> Timestamp {
        if start > self.free_at {
            self.credit = 0;
        }
        let work = (u64::from(size)).saturating_mul(WORK_PER_BYTE).saturating_sub(self.credit);
        self.free_at = match &mut self.limit {
            Limit::Constant(rate) => {
                let (end, credit) = run(start, work, rate.as_bps());
                self.credit = credit;
                end
            }
            Limit::Rows { rows, cursor } => {
                let (mut now, mut work) = (start, work);
                loop {
                    let (row, until) = rows.at(now, cursor);
                    let rate = row.rate.as_bps();
                    let (end, credit) = run(now, work, rate);
                    if end <= until {
                        self.credit = credit;
                        break end;
                    }
                    let span = until.since(now).as_nanos() as u64;
                    work -= span.saturating_mul(rate).min(work);
                    now = until;
                }
            }
            Limit::Opportunities(lap) => lap.take(self.free_at, size.saturating_add(TUN_HEADER)),
        };
        self.free_at
    }
}

/// Returns the end of `work` started at `now`, and the spare work in the last nanosecond.
#[inline]
fn run(now: Timestamp, work: u64, bps: u64) -> (Timestamp, u64) {
    if bps == 0 {
        return (Timestamp::MAX, 0);
    }
    let nanos = work.div_ceil(bps);
    // `nanos` is a rounded quotient, so the product exceeds `work` by less than `bps`.
    let credit = u128::from(nanos) * u128::from(bps) - u128::from(work);
    (now + Duration::from_nanos(nanos), credit as u64)
}

impl Lap {
    /// Skips all opportunities up to `arrived`. Returns the time of the next one.
    #[inline]
    fn skip_to(&mut self, arrived: u64) -> u64 {
        let (times, period) = (self.schedule.times(), self.schedule.period());
        if self.base + times[self.next] <= arrived {
            let laps = (arrived - self.base) / period;
            if laps > 0 {
                self.base += laps * period;
                self.next = 0;
            }
            let phase = arrived - self.base;
            // The lap's last opportunity is at `period`, after the phase, so the search succeeds.
            self.next += times[self.next..].partition_point(|&t| t <= phase);
        }
        self.base + times[self.next]
    }

    /// Uses `bytes` of the rest at `now` and of the following opportunities. Returns the time of
    /// the last one used.
    fn take(&mut self, mut now: Timestamp, mut bytes: u32) -> Timestamp {
        while bytes > self.left {
            bytes -= self.left;
            self.left = OPPORTUNITY_BYTES;
            let times = self.schedule.times();
            now = Timestamp::from_nanos(self.base + times[self.next]);
            self.next += 1;
            if self.next == times.len() {
                self.next = 0;
                self.base += self.schedule.period();
            }
        }
        self.left -= bytes;
        now
    }
}
