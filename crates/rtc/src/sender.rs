//! A sender that retransmits lost packets through the crate `recovery`, in the order of calls of a
//! server's connection. There is no congestion control: the platforms pace packets at the path's
//! rate.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use recovery::{Acked, Content, CopyKind, Fit, Packet, Recovery, UnitKey, Written};
use units::{Mark, Rate, Timestamp};

use crate::clock::earliest;
use crate::flight::{Fate, Flight, Record};
use crate::maker::Engine;

/// Bytes of a packet, headers included.
pub(crate) const PACKET: u16 = 1_438;

/// A group of packets under one code.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub key: u32,
    /// The data packets.
    pub ids: Arc<[u32]>,
    /// Number of repair packets.
    pub repairs: usize,
    /// Index of this packet among data and then repair packets.
    pub index: usize,
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub number: u64,
    /// The data packet that it carries; `None` for repair packets.
    pub id: Option<u32>,
    /// Group, if the packet belongs to one.
    pub batch: Option<Batch>,
    /// Whether the data was sent before.
    pub is_copy: bool,
}

/// Packets sent, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// First transmissions.
    pub first: u64,
    /// Retransmissions of lost data, one per loss.
    pub retransmitted: u64,
    /// Repair packets, replicas and probes.
    pub redundant: u64,
}

impl Sent {
    /// Redundancy cost: repair packets and replicas per first transmission.
    pub fn redundancy(&self) -> f64 {
        self.redundant as f64 / self.first.max(1) as f64
    }

    /// The other reading of bandwidth cost: everything but first transmissions, per first
    /// transmission.
    pub fn overhead(&self) -> f64 {
        (self.redundant + self.retransmitted) as f64 / self.first.max(1) as f64
    }
}

/// A sender of a platform.
pub(crate) trait Sender {
    /// Queues the data packets of a frame.
    fn push(&mut self, now: Timestamp, ids: core::ops::Range<u32>, deadline: Option<Timestamp>);
    /// Handles an acknowledgement; `restored` are data packets that the receiver has restored.
    fn on_ack(&mut self, now: Timestamp, number: u64, restored: &[u32]);
    /// Handles timers that are due.
    fn on_timer(&mut self, now: Timestamp);
    /// Returns the next timer. A time that has passed waits for another event: the guard may hold
    /// replicas back.
    fn next_timer(&self) -> Option<Timestamp>;
    /// Returns the packet to send now, if any.
    fn next_packet(&mut self, now: Timestamp) -> Option<Outgoing>;
    fn sent(&self) -> Sent;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    Wanted,
    Acked,
    /// Too late to be useful.
    Expired,
}

#[derive(Clone, Copy, Debug)]
struct DataPacket {
    need: Need,
    captured: Timestamp,
    deadline: Option<Timestamp>,
    first_sent: Option<Timestamp>,
}

/// Data packets of a sender by number.
#[derive(Debug, Default)]
pub(crate) struct Data {
    packets: Vec<DataPacket>,
    /// Packets below are not wanted.
    oldest: usize,
}

impl Content for Data {
    type Piece = u32;

    fn len(_: &u32) -> u32 {
        PACKET.into()
    }

    fn missing(&self, id: &u32, out: &mut Vec<u32>) {
        if self.is_wanted(*id) {
            out.push(*id);
        }
    }

    fn is_abandoned(&self, id: &u32) -> bool {
        self.packets[*id as usize].need == Need::Expired
    }

    fn mark(&self, id: &u32) -> Option<Mark> {
        let DataPacket { captured, deadline, .. } = self.packets[*id as usize];
        deadline?;
        let media_time = Some(captured.since(Timestamp::ZERO));
        Some(Mark { media_time, deadline, catching_up: None })
    }

    fn detach(&mut self, _: &u32) {}
}

impl Data {
    pub(crate) fn push(&mut self, now: Timestamp, deadline: Option<Timestamp>) {
        let need = Need::Wanted;
        self.packets.push(DataPacket { need, captured: now, deadline, first_sent: None });
    }

    pub(crate) fn is_wanted(&self, id: u32) -> bool {
        self.packets[id as usize].need == Need::Wanted
    }

    pub(crate) fn is_sent(&self, id: u32) -> bool {
        self.packets[id as usize].first_sent.is_some()
    }

    pub(crate) fn on_sent(&mut self, now: Timestamp, id: u32) {
        self.packets[id as usize].first_sent.get_or_insert(now);
    }

    pub(crate) fn on_acked(&mut self, id: u32) {
        self.packets[id as usize].need = Need::Acked;
    }

    /// Gives up data that cannot arrive in time.
    pub(crate) fn expire(&mut self, now: Timestamp, one_way: Duration) {
        self.skip();
        for packet in &mut self.packets[self.oldest..] {
            if packet.deadline.is_none_or(|deadline| now + one_way <= deadline) {
                break;
            }
            if packet.need == Need::Wanted {
                packet.need = Need::Expired;
            }
        }
    }

    fn skip(&mut self) {
        while self.packets.get(self.oldest).is_some_and(|packet| packet.need != Need::Wanted) {
            self.oldest += 1;
        }
    }

    /// Returns when the oldest wanted packet was first sent.
    fn oldest_sent(&mut self) -> Option<Timestamp> {
        self.skip();
        self.packets.get(self.oldest)?.first_sent
    }
}

#[derive(Clone, Copy, Debug)]
struct Carried {
    id: u32,
    copy: Option<CopyKind>,
    unit: Option<UnitKey>,
}

/// A sender with a scheme of the crate `recovery`.
#[derive(Debug)]
pub(crate) struct EngineSender {
    recovery: Recovery<Data>,
    data: Data,
    fresh: VecDeque<u32>,
    flight: Flight<Carried>,
    rate: Rate,
    probe_due: bool,
    /// Whether lost data is sent again.
    retransmits: bool,
    sent: Sent,
    /// Time of the last detected loss.
    lost_at: Option<Timestamp>,
}

fn packet(record: &Record<Carried>) -> Packet {
    let Carried { copy, unit, .. } = record.content;
    Packet { number: record.number, sent: record.sent, bytes: PACKET, copy, unit }
}

impl EngineSender {
    /// `rtt` is the estimate before the first sample.
    pub(crate) fn new(engine: &Engine, rate: Rate, rtt: Duration, seed: u64) -> Self {
        Self {
            recovery: engine.recovery(seed, Timestamp::ZERO),
            data: Data::default(),
            fresh: VecDeque::new(),
            flight: Flight::new(rtt),
            rate,
            probe_due: false,
            retransmits: true,
            sent: Sent::default(),
            lost_at: None,
        }
    }

    /// Returns the sender without retransmissions.
    pub(crate) fn unreliable(self) -> Self {
        Self { retransmits: false, ..self }
    }

    /// Returns whether a loss was detected within `span`.
    pub(crate) fn has_lost_within(&self, now: Timestamp, span: Duration) -> bool {
        self.lost_at.is_some_and(|at| now.since(at) <= span)
    }

    /// Returns when the oldest unacknowledged data was first sent.
    pub(crate) fn oldest_sent(&mut self) -> Option<Timestamp> {
        self.data.oldest_sent()
    }

    /// Returns whether data of this number is acknowledged or given up.
    pub(crate) fn is_settled(&self, id: u32) -> bool {
        !self.data.is_wanted(id)
    }

    /// Returns the data of a packet that is not forgotten.
    pub(crate) fn carried(&mut self, number: u64) -> Option<u32> {
        self.flight.get_mut(number).map(|record| record.content.id)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flight.in_flight()
    }

    /// Returns whether a probe waits. A window must not hold it back.
    pub(crate) fn has_probe(&self) -> bool {
        self.probe_due
    }

    /// Gives up all data.
    pub(crate) fn abandon(&mut self) {
        self.fresh.clear();
        for packet in &mut self.data.packets[self.data.oldest..] {
            if packet.need == Need::Wanted {
                packet.need = Need::Expired;
            }
        }
    }

    fn detect(&mut self, now: Timestamp) {
        for number in self.flight.detect(now) {
            self.lost_at = Some(now);
            if !self.retransmits {
                continue;
            }
            let Some(record) = self.flight.get_mut(number) else { continue };
            let id = record.content.id;
            let lost = self.recovery.lost(now, &packet(record), [id], &mut self.data);
            record.content.unit = record.content.unit.or(lost.opened);
        }
    }

    fn path(&self) -> recovery::PathState {
        self.flight.path(self.rate, PACKET)
    }

    fn send(&mut self, now: Timestamp, carried: Carried) -> Outgoing {
        let Carried { id, copy, .. } = carried;
        let number = self.flight.send(now, carried);
        self.recovery.sent(now, PACKET, copy);
        self.data.on_sent(now, id);
        match copy {
            None => self.sent.first += 1,
            Some(CopyKind::Retransmission) => self.sent.retransmitted += 1,
            Some(CopyKind::Replica | CopyKind::Probe) => self.sent.redundant += 1,
        }
        Outgoing { number, id: Some(id), batch: None, is_copy: copy.is_some() }
    }

    /// Writes a copy of a unit, which has one packet. `None` if nothing of it is missing.
    fn copy(&mut self, now: Timestamp, key: UnitKey, kind: CopyKind) -> Option<Outgoing> {
        let mut written = None;
        let write = |id: &u32| {
            written = Some(*id);
            Fit::Whole
        };
        match self.recovery.copy(now, key, kind, &self.data, write) {
            Written::Copy => {
                let carried = Carried { id: written?, copy: Some(kind), unit: Some(key) };
                Some(self.send(now, carried))
            }
            Written::NoRoom | Written::Over => None,
        }
    }

    fn probe(&mut self, now: Timestamp) -> Option<Outgoing> {
        if let Some(key) = self.recovery.oldest()
            && let Some(out) = self.copy(now, key, CopyKind::Probe)
        {
            return Some(out);
        }
        let record = self.flight.oldest().filter(|r| self.data.is_wanted(r.content.id))?;
        let carried = Carried { copy: Some(CopyKind::Probe), unit: None, ..record.content };
        let first_sent = record.sent;
        self.recovery.probed(now, first_sent);
        Some(self.send(now, carried))
    }
}

impl Sender for EngineSender {
    fn push(&mut self, now: Timestamp, ids: core::ops::Range<u32>, deadline: Option<Timestamp>) {
        for id in ids {
            self.data.push(now, deadline);
            self.fresh.push_back(id);
        }
    }

    fn on_ack(&mut self, now: Timestamp, number: u64, restored: &[u32]) {
        restored.iter().for_each(|&id| self.data.on_acked(id));
        let Some(record) = self.flight.ack(now, number) else { return };
        self.data.on_acked(record.content.id);
        let acked = match record.fate {
            Fate::Lost => Acked::AfterLoss,
            Fate::InFlight | Fate::Acked => Acked::InTime,
        };
        self.recovery.acked(now, &packet(&record), acked, &self.data);
        self.detect(now);
        let path = self.path();
        self.recovery.ack_done(now, path, |_, _| {});
    }

    fn on_timer(&mut self, now: Timestamp) {
        self.detect(now);
        self.probe_due |= self.flight.takes_probe(now) && self.retransmits;
        while self.recovery.takes_overdue()
            && let Some(record) = self.flight.take_overdue(now)
        {
            let id = record.content.id;
            if record.content.copy.is_some() {
                continue;
            }
            let unit = self.recovery.overdue(now, &packet(&record), [id], &mut self.data);
            if let Some(kept) = self.flight.get_mut(record.number) {
                kept.content.unit = unit;
            }
        }
    }

    fn next_timer(&self) -> Option<Timestamp> {
        let overdue = self.recovery.takes_overdue().then(|| self.flight.next_overdue()).flatten();
        earliest([self.flight.next_timer(), self.recovery.next_timeout(), overdue])
    }

    fn next_packet(&mut self, now: Timestamp) -> Option<Outgoing> {
        self.data.expire(now, self.flight.rtt.min / 2);
        while self.fresh.front().is_some_and(|id| !self.data.is_wanted(*id)) {
            self.fresh.pop_front();
        }
        if core::mem::take(&mut self.probe_due)
            && let Some(out) = self.probe(now)
        {
            return Some(out);
        }
        let opportunity = self.recovery.opportunity(now, !self.fresh.is_empty(), false);
        while let Some(key) = self.recovery.next_waiting() {
            if let Some(out) = self.copy(now, key, CopyKind::Retransmission) {
                return Some(out);
            }
        }
        while let Some(key) = self.recovery.next_replica(now, &opportunity) {
            if let Some(out) = self.copy(now, key, CopyKind::Replica) {
                return Some(out);
            }
        }
        let id = self.fresh.pop_front()?;
        Some(self.send(now, Carried { id, copy: None, unit: None }))
    }

    fn sent(&self) -> Sent {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maker::SchemeKeys;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn lost_data_is_sent_again_until_its_deadline() {
        let engine = Engine::new("arq", &SchemeKeys::default()).expect("known");
        let ms = Duration::from_millis;
        let mut sender = EngineSender::new(&engine, Rate::from_mbps(12), ms(30), 1);
        sender.push(at(0), 0..4, Some(at(100)));
        let numbers: Vec<_> = (0..4).map(|_| sender.next_packet(at(0)).expect("new").id).collect();
        assert_eq!(numbers, [Some(0), Some(1), Some(2), Some(3)]);
        for number in [1, 2, 3] {
            sender.on_ack(at(30), number, &[]);
        }
        let again = sender.next_packet(at(30)).expect("lost");
        assert_eq!((again.id, again.number), (Some(0), 4));
        assert!(sender.next_packet(at(30)).is_none());
        // The second loss is detected by the probe time-out, too late for the deadline.
        sender.push(at(90), 4..5, Some(at(190)));
        assert_eq!(sender.next_packet(at(90)).map(|out| out.id), Some(Some(4)));
        sender.on_timer(at(400));
        assert!(sender.next_packet(at(400)).is_none(), "expired");
        assert_eq!(sender.sent(), Sent { first: 5, retransmitted: 1, redundant: 0 });
    }

    #[test]
    fn restored_data_is_not_sent_again() {
        let engine = Engine::new("arq", &SchemeKeys::default()).expect("known");
        let rtt = Duration::from_millis(30);
        let mut sender = EngineSender::new(&engine, Rate::from_mbps(12), rtt, 1);
        sender.push(at(0), 0..4, Some(at(100)));
        (0..4).for_each(|_| drop(sender.next_packet(at(0))));
        sender.on_ack(at(30), 2, &[0]);
        sender.on_ack(at(31), 3, &[]);
        assert_eq!(sender.next_packet(at(31)).map(|out| out.id), Some(Some(1)));
        assert!(sender.next_packet(at(31)).is_none());
    }
}
