//! A file through block codes below QUIC (ART, section 7.2, figure 22) and the share of
//! connections with a failure of such a code (section 4.1, figure 6).
//!
//! The sender is paced at the path's rate within a window of two bandwidth-delay products.

use core::time::Duration;

use links::{Link, LinkConfig, Packet, Passage, Queue};
use units::{Ecn, Timestamp};

use crate::block::{BlockRate, BlockReceiver, BlockSender};
use crate::calls::CallPath;
use crate::clock::{Pace, earliest};
use crate::error::BadValue;
use crate::maker::Engine;
use crate::sender::{EngineSender, PACKET, Sender, Sent};

/// Limit of a transfer.
const LIMIT: Duration = Duration::from_secs(600);
/// Queue of the bottleneck: above the window.
const QUEUE: u64 = 64 << 20;
/// Bytes of number, data packet, and copy flag in a datagram.
const FIELDS: usize = 13;

/// A file over a path.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The path; its trace is not used.
    pub path: CallPath,
    /// Packets of the file. 1 and above.
    pub packets: u32,
}

/// A block code and its time-out.
#[derive(Clone, Copy, Debug)]
pub struct BlockCode {
    /// Data and repair packets.
    pub rate: BlockRate,
    /// Time after which an open block is closed.
    pub timeout: Duration,
}

/// Results of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct TransferOutcome {
    /// Time until the receiver has the file; `None` if it takes longer than 10 minutes.
    pub completion: Option<Duration>,
    /// Packets sent. Repair packets of blocks are redundant.
    pub sent: Sent,
    /// Data packets that the code restored before a retransmission arrived.
    pub restored: u64,
    /// Data packets that arrived by a retransmission. With a code, these are its failures.
    pub by_copies: u64,
}

impl TransferOutcome {
    /// Whether a packet was lost and not restored in time.
    pub fn has_failed(&self) -> bool {
        self.by_copies > 0
    }
}

struct World {
    sender: EngineSender,
    passage: Passage,
    code: Option<(BlockSender, BlockReceiver)>,
    down: Link<Vec<u8>>,
    up: Link<u64>,
    pace: Pace,
    window: usize,
    has_arrived: Vec<bool>,
    missing: usize,
    restored: u64,
    by_copies: u64,
    repairs: u64,
    now: Timestamp,
}

impl Transfer {
    /// Runs the transfer. Equal seeds give paths with equal fates. Without an engine, the sender
    /// knows the fates of its packets: each is delayed until it will arrive.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn run(
        &self,
        engine: Option<&Engine>,
        code: Option<BlockCode>,
        seed: u64,
    ) -> Result<TransferOutcome, BadValue> {
        BadValue::unless(self.packets > 0, "packets", self.packets, "1 and above")?;
        let CallPath { rate, rtt, loss, .. } = &self.path;
        let link = |loss| LinkConfig { delay: Some(*rtt / 2), loss, ..LinkConfig::default() };
        let (rated, queue) = (Some(*rate), Queue::drop_tail(QUEUE));
        let down = LinkConfig { rate: rated, queue, ..link(Some(loss.clone())) };
        let of = |engine: &Engine| EngineSender::new(engine, *rate, *rtt, seed);
        let (mut sender, passage) = match engine {
            Some(engine) => (of(engine), Passage::Ordinary),
            None => {
                let plain = Engine::new("arq", &Default::default())?;
                (of(&plain).unreliable(), Passage::Insistent)
            }
        };
        sender.push(Timestamp::ZERO, 0..self.packets, None);
        let mut world = World {
            sender,
            passage,
            code: code.map(|BlockCode { rate, timeout }| {
                (BlockSender::new(rate, timeout), BlockReceiver::new(rate))
            }),
            down: Link::new(&down, seed, "down"),
            up: Link::new(&link(None), seed, "up"),
            pace: Pace::new(*rate, PACKET.into()),
            window: (2 * rate.bytes_in(*rtt) / u64::from(PACKET)).max(4) as usize,
            has_arrived: vec![false; self.packets as usize],
            missing: self.packets as usize,
            restored: 0,
            by_copies: 0,
            repairs: 0,
            now: Timestamp::ZERO,
        };
        world.transmit();
        while world.missing > 0 && world.step() {}
        let completion = (world.missing == 0).then(|| world.now.since(Timestamp::ZERO));
        Ok(world.outcome(completion))
    }
}

impl World {
    fn step(&mut self) -> bool {
        let block = self.code.as_ref().and_then(|code| code.0.next_timeout());
        let events = [
            self.down.next_event(),
            self.up.next_event(),
            self.sender.next_timer().filter(|at| *at > self.now),
            self.pace.next(),
            block,
        ];
        let Some(next) = earliest(events).filter(|at| *at <= Timestamp::ZERO + LIMIT) else {
            return false;
        };
        self.now = self.now.max(next);
        let now = self.now;
        if let Some((sender, _)) = &mut self.code {
            let repairs = sender.on_timeout(now);
            self.repairs += repairs.len() as u64;
            self.send_all(repairs);
        }
        while let Some(delivered) = self.down.poll(now) {
            self.receive(delivered.packet.payload);
        }
        while let Some(delivered) = self.up.poll(now) {
            self.sender.on_ack(now, delivered.packet.payload, &[]);
        }
        self.sender.on_timer(now);
        self.transmit();
        true
    }

    fn send_all(&mut self, packets: Vec<Vec<u8>>) {
        for payload in packets {
            // On the wire, all packets are full.
            let packet = Packet { size: PACKET.into(), ecn: Ecn::NotEct, payload };
            self.down.send_as(self.now, packet, self.passage);
        }
    }

    fn receive(&mut self, packet: Vec<u8>) {
        let Some((_, receiver)) = &mut self.code else { return self.arrive(&packet, false) };
        let before = receiver.restored();
        let datagrams = receiver.push(&packet);
        let restored = (receiver.restored() - before) as usize;
        let direct = datagrams.len() - restored;
        for (at, datagram) in datagrams.iter().enumerate() {
            self.arrive(datagram, at >= direct);
        }
    }

    fn arrive(&mut self, datagram: &[u8], is_restored: bool) {
        let Some((fields, _)) = datagram.split_at_checked(FIELDS) else { return };
        let number = u64::from_be_bytes(fields[..8].try_into().expect("8 bytes"));
        let id = u32::from_be_bytes(fields[8..12].try_into().expect("4 bytes"));
        if !core::mem::replace(&mut self.has_arrived[id as usize], true) {
            self.missing -= 1;
            self.restored += u64::from(is_restored);
            self.by_copies += u64::from(!is_restored && fields[12] == 1);
        }
        self.up.send(self.now, Packet::datagram(40, Ecn::NotEct, number));
    }

    fn transmit(&mut self) {
        let now = self.now;
        self.pace.is_asked = false;
        while self.sender.in_flight() < self.window || self.sender.has_probe() {
            if !self.pace.is_free(now) {
                self.pace.is_asked = true;
                return;
            }
            let Some(packet) = self.sender.next_packet(now) else { return };
            let mut datagram = packet.number.to_be_bytes().to_vec();
            datagram.extend(packet.id.unwrap_or(0).to_be_bytes());
            datagram.push(packet.is_copy.into());
            self.pace.on_sent(now);
            let packets = match &mut self.code {
                Some((sender, _)) => sender.push(now, &datagram),
                None => vec![datagram],
            };
            self.repairs += packets.len() as u64 - 1;
            self.send_all(packets);
        }
    }

    fn outcome(&self, completion: Option<Duration>) -> TransferOutcome {
        let mut sent = self.sender.sent();
        sent.redundant += self.repairs;
        TransferOutcome { completion, sent, restored: self.restored, by_copies: self.by_copies }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maker::SchemeKeys;
    use units::Rate;

    fn transfer(loss: &str) -> Transfer {
        let path = CallPath {
            rate: Rate::from_mbps(100),
            rtt: Duration::from_millis(20),
            loss: loss.parse().expect("a loss model"),
            trace: None,
        };
        Transfer { path, packets: 2_000 }
    }

    fn run(loss: &str, code: Option<(u32, u32)>) -> TransferOutcome {
        let arq = Engine::new("arq", &SchemeKeys::default()).expect("known");
        let code = code.map(|(data, repair)| BlockCode {
            rate: BlockRate::new(data, repair).expect("in range"),
            timeout: Duration::from_millis(5),
        });
        transfer(loss).run(Some(&arq), code, 5).expect("in range")
    }

    #[test]
    fn a_file_without_loss_takes_its_packets_at_the_rate_and_half_a_round_trip() {
        let outcome = run("none", None);
        let expected = Rate::from_mbps(100).time_for(2_000 * u64::from(PACKET));
        let took = outcome.completion.expect("complete").saturating_sub(expected);
        assert!((10..=14).contains(&took.as_millis()), "{took:?}");
        assert_eq!((outcome.sent.first, outcome.sent.overhead()), (2_000, 0.0));
        let coded = run("none", Some((9, 1)));
        assert!((0.110..0.113).contains(&coded.sent.redundancy()), "{coded:?}");
        assert_eq!((coded.restored, coded.by_copies), (0, 0));
    }

    #[test]
    fn no_transfer_completes_before_the_clairvoyant_senders() {
        let bound = transfer("4%").run(None, None, 5).expect("in range");
        assert_eq!((bound.sent.overhead(), bound.has_failed()), (0.0, false));
        let took = bound.completion.expect("complete");
        assert!((240..260).contains(&took.as_millis()), "{took:?}");
        for code in [None, Some((9, 1)), Some((3, 1))] {
            assert!(run("4%", code).completion.is_some_and(|t| t >= took), "{code:?}");
        }
    }

    #[test]
    fn a_code_restores_single_losses_and_fails_in_bursts() {
        let single = run("script:100,300,500", Some((9, 1)));
        assert_eq!((single.restored, single.has_failed()), (3, false));
        let burst = run("script:100-103", Some((9, 1)));
        assert!(burst.completion.is_some() && burst.by_copies == 4, "{burst:?}");
        let retransmitted = run("script:100-103", None);
        assert_eq!((retransmitted.sent.retransmitted, retransmitted.by_copies), (4, 4));
    }
}
