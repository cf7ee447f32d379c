//! Senders for receivers that restore lost packets: WebRTC's and Hairpin's.
//!
//! Packets of a frame and their repair packets form a group. The first loss of a group starts a
//! wait for the acknowledgements of its other packets; then the data that is still missing becomes
//! the group of the next round (as in Hairpin's published simulator).

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use units::{Rate, Timestamp};

use crate::clock::earliest;
use crate::flight::Flight;
use crate::hairpin::{Planner, rounds_left};
use crate::sender::{Batch, Data, Outgoing, PACKET, Sender, Sent};
use crate::webrtc_fec::{self, Version};

/// Longest wait for the other packets of a group.
const MAX_WAIT: Duration = Duration::from_millis(16);
/// Added to the wait.
const EXTRA_WAIT: Duration = Duration::from_micros(500);

/// Rule for repair packets.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    WebRtc(Version),
    Hairpin(Planner, LossCount),
}

/// Numerator of a loss rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LossCount {
    /// Retransmitted packets, as in Hairpin's published simulator. Restored packets are not
    /// counted, and neither is a loss that is about to be answered.
    #[default]
    Retransmissions,
    /// Detected losses.
    Losses,
}

/// Loss rate: retransmitted or lost packets per sent packet in a window.
#[derive(Debug)]
struct LossRate {
    window: Duration,
    sent: VecDeque<Timestamp>,
    lost: VecDeque<Timestamp>,
    /// Highest rates of past seconds, for WebRTC's maximum filter.
    maxima: VecDeque<f64>,
    second: u64,
}

/// Window of Hairpin's estimate.
const SHORT_WINDOW: Duration = Duration::from_millis(34);
/// Window of WebRTC's mean, and number of windows of its maximum filter.
const LONG_WINDOW: Duration = Duration::from_secs(1);
const MAXIMA: usize = 10;

impl LossRate {
    fn new(window: Duration) -> Self {
        let [sent, lost] = [VecDeque::new(), VecDeque::new()];
        Self { window, sent, lost, maxima: VecDeque::new(), second: 0 }
    }

    fn rate(&mut self, now: Timestamp) -> f64 {
        for times in [&mut self.sent, &mut self.lost] {
            while times.front().is_some_and(|at| now.since(*at) > self.window) {
                times.pop_front();
            }
        }
        if self.sent.is_empty() { 0.0 } else { self.lost.len() as f64 / self.sent.len() as f64 }
    }

    /// Highest rate of the last windows.
    fn highest(&mut self, now: Timestamp) -> f64 {
        let second = now.as_nanos() / 1_000_000_000;
        let rate = self.rate(now);
        if second > self.second {
            self.second = second;
            self.maxima.push_back(rate);
            if self.maxima.len() > MAXIMA {
                self.maxima.pop_front();
            }
        }
        self.maxima.iter().copied().fold(rate, f64::max)
    }
}

#[derive(Debug)]
struct Frame {
    ids: core::ops::Range<u32>,
    deadline: Timestamp,
    /// When the next round leaves, if a loss was detected.
    due: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Carried {
    id: Option<u32>,
    frame: usize,
    batch: Batch,
    is_first: bool,
}

/// A sender with repair packets.
#[derive(Debug)]
pub(crate) struct CodeSender {
    rule: Rule,
    data: Data,
    frames: Vec<Frame>,
    /// Newest packet with each data packet.
    newest: Vec<u64>,
    queue: VecDeque<Carried>,
    flight: Flight<Carried>,
    loss: LossRate,
    rate: Rate,
    batches: u32,
    sent: Sent,
    /// Frames below are complete or expired.
    oldest: usize,
}

impl CodeSender {
    pub(crate) fn new(rule: Rule, rate: Rate, rtt: Duration) -> Self {
        let window = match rule {
            Rule::WebRtc(_) => LONG_WINDOW,
            Rule::Hairpin(..) => SHORT_WINDOW,
        };
        Self {
            rule,
            data: Data::default(),
            frames: Vec::new(),
            newest: Vec::new(),
            queue: VecDeque::new(),
            flight: Flight::new(rtt),
            loss: LossRate::new(window),
            rate,
            batches: 0,
            sent: Sent::default(),
            oldest: 0,
        }
    }

    fn repairs(&mut self, now: Timestamp, frame: usize, missing: usize, is_first: bool) -> usize {
        let Frame { ids, deadline, .. } = &self.frames[frame];
        let (size, left, rtt) = (ids.len(), deadline.since(now), self.flight.rtt);
        match &mut self.rule {
            Rule::WebRtc(_) if !is_first => 0,
            Rule::WebRtc(version) => {
                let loss = self.loss.highest(now);
                webrtc_fec::repairs(*version, loss, rtt.smoothed, missing)
            }
            Rule::Hairpin(planner, _) => {
                let loss = self.loss.rate(now);
                // The simulator rounds the estimate up to milliseconds.
                let estimate = (rtt.smoothed + rtt.variance).as_micros().div_ceil(1_000);
                let rounds = rounds_left(left, Duration::from_millis(estimate as u64));
                planner.repairs(loss, size, rounds, missing)
            }
        }
    }

    /// Queues a group, retransmissions before new data.
    fn queue_batch(&mut self, now: Timestamp, frame: usize, ids: Vec<u32>, is_first: bool) {
        let repairs = self.repairs(now, frame, ids.len(), is_first);
        let (key, count) = (self.batches, ids.len());
        self.batches += 1;
        let ids: Arc<[u32]> = ids.into();
        let carried = (0..count + repairs).map(|index| Carried {
            id: ids.get(index).copied(),
            frame,
            batch: Batch { key, ids: Arc::clone(&ids), repairs, index },
            is_first,
        });
        if is_first {
            self.queue.extend(carried);
        } else {
            carried.rev().for_each(|carried| self.queue.push_front(carried));
        }
    }

    /// Schedules the next round of a frame after a loss.
    fn schedule(&mut self, now: Timestamp, frame: usize, packets: usize) {
        let burst = self.rate.time_for(u64::from(PACKET) * packets as u64);
        let wait = (burst + EXTRA_WAIT).min(MAX_WAIT);
        self.frames[frame].due.get_or_insert(now + wait);
    }

    fn detect(&mut self, now: Timestamp) {
        for number in self.flight.detect(now) {
            let Some(record) = self.flight.get_mut(number) else { continue };
            let (frame, id) = (record.content.frame, record.content.id);
            let packets = record.content.batch.ids.len() + record.content.batch.repairs;
            if matches!(self.rule, Rule::Hairpin(_, LossCount::Losses)) {
                self.loss.lost.push_back(now);
            }
            let is_newest = id.is_some_and(|id| self.newest[id as usize] == number);
            if is_newest && id.is_some_and(|id| self.data.is_wanted(id)) {
                self.schedule(now, frame, packets);
            }
        }
    }

    /// Starts the rounds that are due.
    fn start_rounds(&mut self, now: Timestamp) {
        self.data.expire(now, self.flight.rtt.min / 2);
        for frame in self.oldest..self.frames.len() {
            if self.frames[frame].due.is_none_or(|due| due > now) {
                continue;
            }
            self.frames[frame].due = None;
            let ids = self.frames[frame].ids.clone();
            let missing = ids.filter(|&id| self.data.is_wanted(id) && self.data.is_sent(id));
            let missing: Vec<u32> = missing.collect();
            if !missing.is_empty() {
                self.queue_batch(now, frame, missing, false);
            }
        }
        while let Some(frame) = self.frames.get(self.oldest)
            && frame.due.is_none()
            && frame.ids.clone().all(|id| !self.data.is_wanted(id))
        {
            self.oldest += 1;
        }
    }
}

impl Sender for CodeSender {
    fn push(&mut self, now: Timestamp, ids: core::ops::Range<u32>, deadline: Option<Timestamp>) {
        let frame = self.frames.len();
        let deadline = deadline.unwrap_or(Timestamp::MAX);
        self.frames.push(Frame { ids: ids.clone(), deadline, due: None });
        for _ in ids.clone() {
            self.data.push(now, Some(deadline));
            self.newest.push(0);
        }
        self.queue_batch(now, frame, ids.collect(), true);
    }

    fn on_ack(&mut self, now: Timestamp, number: u64, restored: &[u32]) {
        restored.iter().for_each(|&id| self.data.on_acked(id));
        let Some(record) = self.flight.ack(now, number) else { return };
        if let Some(id) = record.content.id {
            self.data.on_acked(id);
        }
        self.detect(now);
    }

    fn on_timer(&mut self, now: Timestamp) {
        self.detect(now);
        if self.flight.takes_probe(now)
            && let Some(record) = self.flight.oldest()
        {
            let (frame, packets) = (record.content.frame, 0);
            self.schedule(now, frame, packets);
        }
        self.start_rounds(now);
    }

    fn next_timer(&self) -> Option<Timestamp> {
        let due = self.frames[self.oldest..].iter().map(|frame| frame.due);
        earliest(due.chain([self.flight.next_timer()]))
    }

    fn next_packet(&mut self, now: Timestamp) -> Option<Outgoing> {
        self.data.expire(now, self.flight.rtt.min / 2);
        let carried = loop {
            let next = self.queue.pop_front()?;
            let is_useful = match next.id {
                Some(id) => self.data.is_wanted(id),
                None => next.batch.ids.iter().any(|&id| self.data.is_wanted(id)),
            };
            if is_useful {
                break next;
            }
        };
        let (id, batch, is_first) = (carried.id, carried.batch.clone(), carried.is_first);
        let number = self.flight.send(now, carried);
        self.loss.sent.push_back(now);
        match id {
            Some(id) => {
                self.newest[id as usize] = number;
                self.data.on_sent(now, id);
                if is_first {
                    self.sent.first += 1;
                } else {
                    self.sent.retransmitted += 1;
                    if !matches!(self.rule, Rule::Hairpin(_, LossCount::Losses)) {
                        self.loss.lost.push_back(now);
                    }
                }
            }
            None => self.sent.redundant += 1,
        }
        Some(Outgoing { number, id, batch: Some(batch), is_copy: !is_first })
    }

    fn sent(&self) -> Sent {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hairpin::STANDARD;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn drain(sender: &mut CodeSender, now: Timestamp) -> Vec<Outgoing> {
        core::iter::from_fn(|| sender.next_packet(now)).collect()
    }

    #[test]
    fn the_data_that_is_missing_after_a_round_is_the_next_group() {
        let rule =
            Rule::Hairpin(Planner::new(STANDARD).expect("in range"), LossCount::Retransmissions);
        let rtt = Duration::from_millis(30);
        let mut sender = CodeSender::new(rule, Rate::from_mbps(12), rtt);
        let ids = |batch: &[Outgoing]| batch.iter().filter_map(|p| p.id).collect::<Vec<_>>();
        // The second and the fifth packet of both frames are lost.
        sender.push(at(0), 0..6, Some(at(100)));
        assert_eq!(drain(&mut sender, at(0)).len(), 6, "no repair packets without a loss");
        sender.push(at(17), 6..12, Some(at(117)));
        assert_eq!(drain(&mut sender, at(17)).len(), 6);
        [0, 2, 3, 5].iter().for_each(|number| sender.on_ack(at(30), *number, &[]));
        [35, 40].iter().for_each(|now| sender.on_timer(at(*now)));
        let first = drain(&mut sender, at(40));
        assert_eq!((ids(&first), first.len()), (vec![1, 4], 2), "no retransmission was counted");
        [6, 8, 9, 11].iter().for_each(|number| sender.on_ack(at(47), *number, &[]));
        [52, 57].iter().for_each(|now| sender.on_timer(at(*now)));
        let second = drain(&mut sender, at(57));
        assert!(ids(&second) == [7, 10] && second.len() > 2, "the last round: {second:?}");
        // The receiver restores both packets from one of data and one of repair.
        sender.on_ack(at(70), first[0].number, &[]);
        sender.on_ack(at(70), first[1].number, &[]);
        sender.on_ack(at(87), second[2].number, &[7, 10]);
        assert!(sender.next_packet(at(87)).is_none());
    }
}
