//! Packets in flight, loss detection and round-trip times of a sender that gets an acknowledgement
//! per packet (RFC 9002, sections 5 and 6), as in all platforms of this crate.

use core::time::Duration;
use std::collections::VecDeque;

use recovery::PathState;
use units::{Rate, Timestamp};

/// Later packets acknowledged before a packet is lost. The published simulators of Hairpin use a
/// hole of two; RFC 9002 has three.
pub(crate) const PACKET_THRESHOLD: u64 = 2;
/// Lower end of timers (RFC 9002, section 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);

/// Estimates of the round-trip time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    pub smoothed: Duration,
    pub variance: Duration,
    pub min: Duration,
    pub latest: Duration,
    peak: Duration,
    trough: Duration,
    is_first: bool,
}

impl Rtt {
    fn new(initial: Duration) -> Self {
        Self {
            smoothed: initial,
            variance: initial / 2,
            min: initial,
            latest: initial,
            peak: initial,
            trough: initial,
            is_first: true,
        }
    }

    fn add(&mut self, sample: Duration) {
        self.latest = sample;
        if core::mem::take(&mut self.is_first) {
            *self = Self { is_first: false, variance: sample / 2, ..Self::new(sample) };
            return;
        }
        self.min = self.min.min(sample);
        self.variance = (self.variance * 3 + self.smoothed.abs_diff(sample)) / 4;
        self.smoothed = (self.smoothed * 7 + sample) / 8;
        self.peak = sample.max(self.peak - self.peak.saturating_sub(sample) / 64);
        self.trough = sample.min(self.trough + sample.saturating_sub(self.trough) / 64);
    }
}

/// State of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    InFlight,
    Lost,
    Acked,
}

/// A sent packet.
#[derive(Clone, Debug)]
pub(crate) struct Record<T> {
    pub number: u64,
    pub sent: Timestamp,
    pub fate: Fate,
    pub content: T,
}

/// Packets in flight with contents of a sender's choice.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    records: VecDeque<Record<T>>,
    base: u64,
    /// Number of the first packet in flight.
    low: u64,
    largest: Option<u64>,
    last_sent: Timestamp,
    in_flight: usize,
    /// Probe time-outs since the last acknowledgement.
    probes: u32,
    /// First packet that is not yet overdue.
    expected: u64,
    pub rtt: Rtt,
}

impl<T: Clone> Flight<T> {
    pub(crate) fn new(initial_rtt: Duration) -> Self {
        Self {
            records: VecDeque::new(),
            base: 0,
            low: 0,
            largest: None,
            last_sent: Timestamp::ZERO,
            in_flight: 0,
            probes: 0,
            expected: 0,
            rtt: Rtt::new(initial_rtt),
        }
    }

    /// Records a packet that leaves now, and returns its number.
    pub(crate) fn send(&mut self, now: Timestamp, content: T) -> u64 {
        let number = self.base + self.records.len() as u64;
        self.records.push_back(Record { number, sent: now, fate: Fate::InFlight, content });
        self.in_flight += 1;
        self.last_sent = now;
        number
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Record<T>> {
        let at = number.checked_sub(self.base)?;
        self.records.get_mut(at as usize)
    }

    /// Handles an acknowledgement. Returns the packet with its fate before; `None` if it was
    /// acknowledged earlier or is too old.
    pub(crate) fn ack(&mut self, now: Timestamp, number: u64) -> Option<Record<T>> {
        let record = self.get_mut(number).filter(|record| record.fate != Fate::Acked)?;
        let before = record.clone();
        record.fate = Fate::Acked;
        self.in_flight -= usize::from(before.fate == Fate::InFlight);
        self.rtt.add(now.since(before.sent));
        self.largest = self.largest.max(Some(number));
        self.probes = 0;
        self.advance();
        self.forget(now);
        Some(before)
    }

    fn advance(&mut self) {
        while let Some(record) = self.records.get((self.low - self.base) as usize)
            && record.fate != Fate::InFlight
        {
            self.low += 1;
        }
    }

    /// Forgets the oldest packets that are acknowledged, or were lost long ago.
    fn forget(&mut self, now: Timestamp) {
        let keep = self.rtt.smoothed * 3 + Duration::from_millis(100);
        while let Some(front) = self.records.front() {
            let is_over = match front.fate {
                Fate::InFlight => false,
                Fate::Acked => true,
                Fate::Lost => now.since(front.sent) > keep,
            };
            if !is_over {
                break;
            }
            self.records.pop_front();
            self.base += 1;
        }
    }

    fn patience(&self) -> Duration {
        (self.rtt.smoothed.max(self.rtt.latest) * 9 / 8).max(GRANULARITY)
    }

    /// Declares packets lost, and returns their numbers.
    pub(crate) fn detect(&mut self, now: Timestamp) -> Vec<u64> {
        let Some(largest) = self.largest else { return Vec::new() };
        let patience = self.patience();
        let mut lost = Vec::new();
        let from = (self.low - self.base) as usize;
        let open = self.records.iter_mut().skip(from);
        for record in open.take_while(|record| record.number < largest) {
            let is_passed = record.number + PACKET_THRESHOLD <= largest;
            if record.fate == Fate::InFlight && (is_passed || record.sent + patience <= now) {
                record.fate = Fate::Lost;
                self.in_flight -= 1;
                lost.push(record.number);
            }
        }
        self.advance();
        lost
    }

    fn first_in_flight(&self) -> Option<&Record<T>> {
        self.records.get((self.low - self.base) as usize)
    }

    /// Returns the content of the oldest packet in flight.
    pub(crate) fn oldest(&self) -> Option<&Record<T>> {
        self.first_in_flight()
    }

    /// Returns when the next packet is lost by time, or probed.
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        let first = self.first_in_flight()?;
        let is_behind = self.largest.is_some_and(|largest| first.number < largest);
        let lost = is_behind.then(|| first.sent + self.patience());
        lost.into_iter().chain([self.probe_at()]).min()
    }

    fn probe_at(&self) -> Timestamp {
        let wait = self.rtt.smoothed + (self.rtt.variance * 4).max(GRANULARITY);
        self.last_sent + wait * (1 << self.probes.min(6))
    }

    /// Returns true, and waits twice as long for the next time-out, if the probe timer has fired.
    pub(crate) fn takes_probe(&mut self, now: Timestamp) -> bool {
        let is_due = self.in_flight > 0 && self.probe_at() <= now;
        self.probes += u32::from(is_due);
        is_due
    }

    /// Returns when the next packet in flight becomes overdue: three variances after the expected
    /// acknowledgement, as in the crate `quic`.
    pub(crate) fn next_overdue(&self) -> Option<Timestamp> {
        if self.probes > 0 {
            return None;
        }
        let from = self.expected.saturating_sub(self.base) as usize;
        let record = self.records.iter().skip(from).find(|r| r.fate == Fate::InFlight)?;
        let wait = self.rtt.smoothed + (self.rtt.variance * 3).max(GRANULARITY);
        Some(record.sent + wait)
    }

    /// Returns the next overdue packet, once.
    pub(crate) fn take_overdue(&mut self, now: Timestamp) -> Option<Record<T>> {
        self.next_overdue().filter(|at| *at <= now)?;
        let from = self.expected.saturating_sub(self.base) as usize;
        let record = self.records.iter().skip(from).find(|r| r.fate == Fate::InFlight)?.clone();
        self.expected = record.number + 1;
        Some(record)
    }

    /// State of a path without congestion control and a pacing rate.
    pub(crate) fn path(&self, rate: Rate, packet: u16) -> PathState {
        PathState {
            smoothed_rtt: self.rtt.smoothed,
            min_rtt: self.rtt.min,
            latest_rtt: self.rtt.latest,
            peak_rtt: self.rtt.peak,
            trough_rtt: self.rtt.trough,
            pacing_rate: Some(rate),
            delivery_rate: rate,
            window: u64::MAX / 4,
            in_flight: self.in_flight as u64 * u64::from(packet),
            packet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn packets_are_lost_by_later_ones_or_by_time_and_may_still_be_acknowledged() {
        let mut flight = Flight::new(Duration::from_millis(30));
        (0..4).for_each(|n| assert_eq!(flight.send(at(n), ()), n));
        assert!(flight.ack(at(31), 1).is_some());
        assert!(flight.detect(at(31)).is_empty());
        assert!(flight.ack(at(32), 2).is_some());
        assert_eq!(flight.detect(at(32)), [0], "two later ones are acknowledged");
        assert_eq!(flight.in_flight(), 1);
        let late = flight.ack(at(40), 0).expect("still known");
        assert_eq!(late.fate, Fate::Lost);
        assert!(flight.ack(at(40), 0).is_none());
        assert!(!flight.takes_probe(at(50)));
        assert!(flight.takes_probe(flight.next_timer().expect("in flight")));
        assert_eq!(flight.in_flight(), 1, "a probe declares nothing lost");
    }

    #[test]
    fn packets_become_overdue_once_and_in_order() {
        let mut flight = Flight::new(Duration::from_millis(30));
        assert_eq!([0, 1, 2].map(|n| flight.send(at(n), n)), [0, 1, 2]);
        flight.ack(at(30), 0);
        let due = flight.next_overdue().expect("in flight");
        assert!(flight.take_overdue(at(40)).is_none() && due > at(60));
        assert_eq!(flight.take_overdue(due).map(|record| record.content), Some(1));
        assert!(flight.take_overdue(due).is_none(), "the next one is due later");
    }
}
