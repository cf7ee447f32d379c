//! Received packets of one packet-number space: duplicates, what to acknowledge and when
//! (RFC 9000, sections 13.2 and 19.3).

use crate::ranges::RangeSet;
use crate::wire::{EcnCounts, Writer, put_ack};
use core::time::Duration;
use units::{Ecn, Timestamp};

/// Ranges kept and reported at most; older ones count as received.
const MAX_RANGES: usize = 64;

/// Received packet numbers of one space.
#[derive(Debug, Default)]
pub(crate) struct ReceivedNumbers {
    ranges: RangeSet,
    /// Numbers below this count as duplicates: their ranges were given up.
    floor: u64,
    largest: Option<u64>,
    largest_time: Timestamp,
    ecn: EcnCounts,
    /// Ack-eliciting packets since the last acknowledgement was sent.
    eliciting: u32,
    deadline: Option<Timestamp>,
}

impl ReceivedNumbers {
    /// Largest received number.
    pub(crate) fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// Whether a packet with this number was seen before (RFC 9000, section 12.3: duplicates
    /// MUST be discarded).
    #[inline]
    pub(crate) fn is_duplicate(&self, number: u64) -> bool {
        number < self.floor || self.ranges.contains(number)
    }

    /// Books a packet that was processed without error.
    pub(crate) fn on_packet(
        &mut self,
        now: Timestamp,
        number: u64,
        eliciting: bool,
        ecn: Ecn,
        every: u32,
        max_delay: Duration,
    ) {
        // RFC 9000, section 13.2.1: an immediate acknowledgement when a packet arrives out of
        // order, or with a gap before it, or CE-marked.
        let expected = self.largest.map_or(0, |l| l + 1);
        let urgent = number != expected || ecn == Ecn::Ce;
        self.ranges.insert(number..number + 1);
        if self.ranges.len() > MAX_RANGES {
            self.ranges.truncate_oldest(MAX_RANGES);
            self.floor = self.ranges.min().unwrap_or(self.floor);
        }
        if self.largest.is_none_or(|l| l < number) {
            self.largest = Some(number);
            self.largest_time = now;
        }
        match ecn {
            Ecn::NotEct => {}
            Ecn::Ect0 => self.ecn.ect0 += 1,
            Ecn::Ect1 => self.ecn.ect1 += 1,
            Ecn::Ce => self.ecn.ce += 1,
        }
        if eliciting {
            self.eliciting += 1;
            let due = if urgent || self.eliciting >= every { now } else { now + max_delay };
            self.deadline = Some(self.deadline.map_or(due, |d| d.min(due)));
        }
    }

    /// Time by which an acknowledgement must be sent.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Returns true if an acknowledgement would tell the peer something new.
    #[inline]
    pub(crate) fn wants_ack(&self) -> bool {
        self.eliciting > 0
    }

    /// Writes an ACK frame of at most `limit` bytes, with as many ranges as fit. Returns the
    /// largest acknowledged number.
    pub(crate) fn write_ack(
        &mut self,
        now: Timestamp,
        exponent: u32,
        w: &mut Writer<'_>,
        limit: usize,
    ) -> Option<u64> {
        let largest = self.largest?;
        let delay = now.since(self.largest_time).as_micros() as u64 >> exponent;
        let none = EcnCounts::default();
        let ecn = if self.ecn == none { None } else { Some(self.ecn) };
        if put_ack(w, &self.ranges, delay, ecn, limit) == 0 {
            return None;
        }
        self.eliciting = 0;
        self.deadline = None;
        Some(largest)
    }

    /// An acknowledgement of everything up to `largest` reached the peer: the ranges before the
    /// one that holds it need no further report (RFC 9000, section 13.2.4).
    pub(crate) fn on_ack_acked(&mut self, largest: u64) {
        self.ranges.remove(0..largest.saturating_sub(1));
        self.floor = self.floor.max(largest.saturating_sub(1));
    }
}
