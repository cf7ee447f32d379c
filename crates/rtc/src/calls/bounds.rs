//! Senders of no deployment, which bound the others.

use std::collections::{BTreeSet, VecDeque};

use core::time::Duration;

use links::Trace;
use units::Timestamp;

use crate::sender::{Outgoing, Sender, Sent};

/// The clairvoyant sender: first transmissions alone, which the path delays instead of losing them.
#[derive(Debug, Default)]
pub(super) struct Insistent {
    queue: VecDeque<u32>,
    next: u64,
}

impl Sender for Insistent {
    fn push(&mut self, _: Timestamp, ids: core::ops::Range<u32>, _: Option<Timestamp>) {
        self.queue.extend(ids);
    }

    fn on_ack(&mut self, _: Timestamp, _: u64, _: &[u32]) {}

    fn on_timer(&mut self, _: Timestamp) {}

    fn next_timer(&self) -> Option<Timestamp> {
        None
    }

    fn next_packet(&mut self, _: Timestamp) -> Option<Outgoing> {
        let id = self.queue.pop_front()?;
        self.next += 1;
        Some(Outgoing { number: self.next - 1, id: Some(id), batch: None, is_copy: false })
    }

    fn sent(&self) -> Sent {
        Sent { first: self.next, ..Sent::default() }
    }
}

/// The reactive sender: retransmits lost data when its acknowledgement should have arrived. The
/// path does not lose its retransmissions.
#[derive(Debug)]
pub(super) struct Prompt {
    rtt: Duration,
    trace: Option<Trace>,
    queue: VecDeque<u32>,
    lost: VecDeque<u32>,
    /// Data that is not acknowledged, with the time of its acknowledgement.
    waiting: BTreeSet<(Timestamp, u32)>,
    is_acked: Vec<bool>,
    /// Data of each packet.
    ids: Vec<u32>,
    sent: Sent,
}

impl Prompt {
    /// Rows of a trace replace the round-trip time.
    pub(super) fn new(rtt: Duration, trace: Option<Trace>) -> Self {
        Self {
            rtt,
            trace,
            queue: VecDeque::new(),
            lost: VecDeque::new(),
            waiting: BTreeSet::new(),
            is_acked: Vec::new(),
            ids: Vec::new(),
            sent: Sent::default(),
        }
    }

    fn one_way(&self, now: Timestamp) -> Duration {
        match &self.trace {
            Some(Trace::Rows(rows)) => rows.rtt(now) / 2,
            _ => self.rtt / 2,
        }
    }
}

impl Sender for Prompt {
    fn push(&mut self, _: Timestamp, ids: core::ops::Range<u32>, _: Option<Timestamp>) {
        self.is_acked.resize(ids.end as usize, false);
        self.queue.extend(ids);
    }

    fn on_ack(&mut self, _: Timestamp, number: u64, _: &[u32]) {
        let id = self.ids[number as usize];
        self.is_acked[id as usize] = true;
    }

    fn on_timer(&mut self, now: Timestamp) {
        while let Some(&(at, id)) = self.waiting.first()
            && at <= now
        {
            self.waiting.pop_first();
            if !self.is_acked[id as usize] {
                self.lost.push_back(id);
            }
        }
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.waiting.first().map(|(at, _)| *at)
    }

    fn next_packet(&mut self, now: Timestamp) -> Option<Outgoing> {
        let copy = self.lost.pop_front();
        let id = copy.or_else(|| self.queue.pop_front())?;
        if copy.is_some() {
            self.sent.retransmitted += 1;
        } else {
            self.sent.first += 1;
            let arrival = now + self.one_way(now);
            self.waiting.insert((arrival + self.one_way(arrival), id));
        }
        self.ids.push(id);
        let number = self.ids.len() as u64 - 1;
        Some(Outgoing { number, id: Some(id), batch: None, is_copy: copy.is_some() })
    }

    fn sent(&self) -> Sent {
        self.sent
    }
}
