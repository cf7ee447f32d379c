//! A second set of books: an observer that notes every packet of the server and what became of it,
//! and works out what must be in flight (RFC 9002, section 2), independently of the server's own
//! ledger.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use mendcast_quic as quic;
use quic::observer::{Event, Observer, Purpose};
use quic::wire::{Frame, Frames, PacketType};
use units::Timestamp;

use super::memory::uncounted;

/// What became of packets and of the connection, for the report on a run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub sent: u64,
    pub lost: u64,
    pub retransmissions: u64,
    pub replicas: u64,
    pub probes: u64,
    pub mtu_probes: u64,
    pub key_updates: u64,
    pub migrations: u64,
}

#[derive(Clone, Copy)]
struct Sent {
    size: u64,
    /// An ack-eliciting packet in flight.
    open: bool,
    class: Class,
}

/// How certainly an open packet counts as in flight.
#[derive(Clone, Copy)]
enum Class {
    /// On the present path, unless the client moved.
    Plain,
    /// Repeats data: superseded copies are out of flight under [`quic::CopyAccounting::Newest`].
    Copy,
    /// Carries frames of path validation: it counts on no path, or on the present one.
    Validating,
}

/// The books.
#[derive(Default)]
pub struct Shadow {
    /// Number of the first packet of `packets`.
    base: u64,
    packets: VecDeque<Sent>,
    /// Bytes of open packets, by class.
    pub validating: u64,
    pub copies: u64,
    pub plain: u64,
    pub counts: Counts,
}

impl Shadow {
    /// Packets from the oldest one in flight on.
    pub fn span(&self) -> u64 {
        self.packets.len() as u64
    }

    fn on_sent(&mut self, number: u64, size: usize, payload: &[u8], purpose: Purpose) {
        let (mut eliciting, mut validates) = (false, false);
        for frame in Frames::new(payload).flatten() {
            eliciting |= frame.is_ack_eliciting();
            validates |= matches!(frame, Frame::PathChallenge(_) | Frame::PathResponse(_));
        }
        if self.packets.is_empty() {
            self.base = number;
        }
        let next = self.base + self.packets.len() as u64;
        assert!(number >= next, "packet number {number} is used twice");
        let class = match purpose {
            _ if validates => Class::Validating,
            Purpose::Original | Purpose::MtuProbe => Class::Plain,
            Purpose::Retransmission | Purpose::Replica | Purpose::Probe => Class::Copy,
        };
        let skipped = Sent { size: 0, open: false, class };
        self.packets.extend((next..number).map(|_| skipped));
        let packet = Sent { size: size as u64, open: eliciting, class };
        if packet.open {
            *self.sum(class) += packet.size;
        }
        self.packets.push_back(packet);
        self.trim();
    }

    fn sum(&mut self, class: Class) -> &mut u64 {
        match class {
            Class::Plain => &mut self.plain,
            Class::Copy => &mut self.copies,
            Class::Validating => &mut self.validating,
        }
    }

    fn on_over(&mut self, number: u64) {
        let Some(place) = number.checked_sub(self.base) else { return };
        let Some(packet) = self.packets.get_mut(place as usize) else { return };
        if core::mem::take(&mut packet.open) {
            let Sent { size, class, .. } = *packet;
            *self.sum(class) -= size;
        }
    }

    fn on_received(&mut self, payload: &[u8]) {
        for frame in Frames::new(payload) {
            // The server, too, ends at a frame that it cannot read.
            let Ok(frame) = frame else { break };
            if let Frame::Ack(ack) = frame {
                let last = self.base + self.packets.len() as u64;
                for range in ack.ranges() {
                    let first = (*range.start()).max(self.base);
                    (first..(*range.end() + 1).min(last)).for_each(|number| self.on_over(number));
                }
            }
        }
        self.trim();
    }

    fn trim(&mut self) {
        while self.packets.front().is_some_and(|packet| !packet.open) {
            self.packets.pop_front();
            self.base += 1;
        }
    }
}

/// Keeps the books of a connection.
pub struct Bookkeeper(pub Arc<Mutex<Shadow>>);

impl Observer for Bookkeeper {
    fn on_event(&mut self, _: Timestamp, event: &Event<'_>) {
        uncounted(|| {
            let mut shadow = self.0.lock().expect("one thread");
            match *event {
                Event::PacketSent { ty: PacketType::OneRtt, number, size, payload, purpose } => {
                    shadow.on_sent(number, size, payload, purpose);
                    let counts = &mut shadow.counts;
                    counts.sent += 1;
                    match purpose {
                        Purpose::Original => {}
                        Purpose::Retransmission => counts.retransmissions += 1,
                        Purpose::Replica => counts.replicas += 1,
                        Purpose::Probe => counts.probes += 1,
                        Purpose::MtuProbe => counts.mtu_probes += 1,
                    }
                }
                Event::PacketReceived { ty: PacketType::OneRtt, payload, .. } => {
                    shadow.on_received(payload);
                }
                Event::PacketLost { ty: PacketType::OneRtt, number, .. } => {
                    shadow.on_over(number);
                    shadow.trim();
                    shadow.counts.lost += 1;
                }
                Event::KeyUpdated => shadow.counts.key_updates += 1,
                Event::Migrated => shadow.counts.migrations += 1,
                _ => {}
            }
        });
    }
}
