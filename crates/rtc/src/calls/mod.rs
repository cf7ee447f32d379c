//! A call in virtual time: frames at a fixed rate, an acknowledgement per packet, and a deadline
//! for each frame (AutoRec, section VII-A; modelled on Hairpin's published simulator).

mod bounds;
mod code;
mod receiver;

use core::time::Duration;

use links::{Link, LinkConfig, Loss, Packet, Passage, Trace};
use qoe::Deadlines;
use units::{Ecn, Rate, Timestamp};

use crate::clock::{Pace, earliest};
use crate::error::BadValue;
use crate::hairpin::Planner;
use crate::maker::Engine;
use crate::sender::{EngineSender, Outgoing, PACKET, Sender, Sent};
use crate::source::Source;
use crate::webrtc_fec::Version;
use bounds::{Insistent, Prompt};
use code::{CodeSender, Rule};

pub use code::LossCount;
use receiver::Receiver;

pub use receiver::Decoding;

/// Longest wait for the last frames.
const DRAIN: Duration = Duration::from_secs(1);

/// Path of a call.
#[derive(Clone, Debug)]
pub struct CallPath {
    /// Rate at which packets are paced.
    pub rate: Rate,
    /// Round-trip time, and the estimate before the first sample.
    pub rtt: Duration,
    /// Loss from the sender to the receiver. Acknowledgements are not lost.
    pub loss: Loss,
    /// Rows that replace round-trip time and loss. Their bandwidth is ignored, as by the published
    /// simulator.
    pub trace: Option<Trace>,
}

impl CallPath {
    /// Returns both directions.
    pub(crate) fn links<T: Clone, A: Clone>(&self, seed: u64) -> (Link<T>, Link<A>) {
        let plain = LinkConfig {
            rate: Some(Rate::MAX),
            delay: self.trace.is_none().then(|| self.rtt / 2),
            trace: self.trace.clone(),
            ..LinkConfig::default()
        };
        let loss = self.trace.is_none().then(|| self.loss.clone());
        let down = LinkConfig { loss, ..plain.clone() };
        let up = LinkConfig { loss: Some(Loss::None), ..plain };
        (Link::new(&down, seed, "down"), Link::new(&up, seed, "up"))
    }
}

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The path.
    pub path: CallPath,
    /// The video.
    pub source: Source,
    /// Time from a frame's capture until it must be complete. Above 0.
    pub deadline: Duration,
    /// Length of the call.
    pub duration: Duration,
}

/// Recovery of a call.
#[derive(Clone, Debug)]
pub enum Policy {
    /// A scheme of the crate `recovery`, with any client.
    Engine(Box<Engine>),
    /// WebRTC's repair packets on first transmissions, and retransmissions.
    WebRtc(Version, Decoding),
    /// Hairpin with this λ, and the numerator of its loss rate.
    Hairpin(f64, LossCount),
    /// A sender that knows the fates of its packets: each is delayed until it will arrive. No
    /// sender has fewer late frames.
    Clairvoyant,
    /// A sender that retransmits lost data one round-trip time after its transmission, as soon as
    /// an acknowledgement could be missed, and whose retransmissions are never lost. No sender has
    /// fewer late frames if its copies wait for signs of a loss.
    Reactive,
}

/// Results of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallOutcome {
    /// Frames, and those that missed their deadline.
    pub deadlines: Deadlines,
    /// Packets sent.
    pub sent: Sent,
}

/// An acknowledgement: the packet, and data that it restored.
type Ack = (u64, Vec<u32>);

struct World<'a> {
    call: &'a Call,
    seed: u64,
    sender: Box<dyn Sender>,
    receiver: Receiver,
    /// Of first transmissions and of copies.
    passages: [Passage; 2],
    down: Link<Outgoing>,
    up: Link<Ack>,
    pace: Pace,
    frame: u64,
    now: Timestamp,
}

impl Policy {
    fn sender(&self, path: &CallPath, seed: u64) -> Result<Box<dyn Sender>, BadValue> {
        let coded = |rule| Box::new(CodeSender::new(rule, path.rate, path.rtt));
        Ok(match self {
            Self::Engine(engine) => Box::new(EngineSender::new(engine, path.rate, path.rtt, seed)),
            Self::WebRtc(version, _) => coded(Rule::WebRtc(*version)),
            Self::Hairpin(lambda, count) => coded(Rule::Hairpin(Planner::new(*lambda)?, *count)),
            Self::Clairvoyant => Box::new(Insistent::default()),
            Self::Reactive => Box::new(Prompt::new(path.rtt, path.trace.clone())),
        })
    }
}

impl Call {
    /// Runs the call. Equal seeds give paths with equal fates.
    ///
    /// # Errors
    /// A value of the call or the policy is out of range.
    pub fn run(&self, policy: &Policy, seed: u64) -> Result<CallOutcome, BadValue> {
        self.source.checked()?;
        let deadline = self.deadline;
        if deadline.is_zero() {
            return Err(BadValue::new("deadline", "0", "above 0"));
        }
        let (down, up) = self.path.links(seed);
        let decoding = match policy {
            Policy::WebRtc(_, decoding) => *decoding,
            _ => Decoding::Mds,
        };
        let passages = match policy {
            Policy::Clairvoyant => [Passage::Insistent; 2],
            Policy::Reactive => [Passage::Ordinary, Passage::Spared],
            _ => [Passage::Ordinary; 2],
        };
        let mut world = World {
            call: self,
            seed,
            sender: policy.sender(&self.path, seed)?,
            receiver: Receiver::new(decoding),
            passages,
            down,
            up,
            pace: Pace::new(self.path.rate, PACKET.into()),
            frame: 0,
            now: Timestamp::ZERO,
        };
        while world.step() {}
        Ok(world.outcome())
    }
}

impl World<'_> {
    fn next_frame(&self) -> Option<Timestamp> {
        let at = self.call.source.at(self.frame);
        (at.since(Timestamp::ZERO) < self.call.duration).then_some(at)
    }

    /// Handles the next event; false at the end of the call.
    fn step(&mut self) -> bool {
        let events = [
            self.next_frame(),
            self.down.next_event(),
            self.up.next_event(),
            self.sender.next_timer().filter(|at| *at > self.now),
            self.pace.next(),
        ];
        let end = Timestamp::ZERO + self.call.duration + DRAIN;
        let Some(next) = earliest(events).filter(|at| *at <= end) else { return false };
        self.now = self.now.max(next);
        let now = self.now;
        if self.next_frame().is_some_and(|at| at <= now) {
            self.capture();
        }
        while let Some(delivered) = self.down.poll(now) {
            let packet = delivered.packet.payload;
            let restored = self.receiver.push(now, &packet);
            self.up.send(now, Packet::datagram(40, Ecn::NotEct, (packet.number, restored)));
        }
        while let Some(delivered) = self.up.poll(now) {
            let (number, restored) = delivered.packet.payload;
            self.sender.on_ack(now, number, &restored);
        }
        self.sender.on_timer(now);
        self.transmit();
        true
    }

    fn capture(&mut self) {
        let source = &self.call.source;
        let size = source.size(self.frame, source.is_key(self.frame), self.seed);
        let ids = self.receiver.expect(size);
        self.sender.push(self.now, ids, Some(self.now + self.call.deadline));
        self.frame += 1;
    }

    fn transmit(&mut self) {
        let now = self.now;
        while self.pace.is_free(now) {
            let Some(packet) = self.sender.next_packet(now) else {
                self.pace.is_asked = false;
                return;
            };
            self.pace.on_sent(now);
            let passage = self.passages[usize::from(packet.is_copy)];
            let size = u32::from(PACKET);
            let packet = Packet { size, ecn: Ecn::NotEct, payload: packet };
            self.down.send_as(now, packet, passage);
        }
        self.pace.is_asked = true;
    }

    fn outcome(&self) -> CallOutcome {
        let mut deadlines = Deadlines::new(self.call.deadline);
        for (n, complete) in (0..).zip(self.receiver.completions()) {
            deadlines.on_frame(self.call.source.at(n), complete);
        }
        CallOutcome { deadlines, sent: self.sender.sent() }
    }
}

#[cfg(test)]
mod tests;
