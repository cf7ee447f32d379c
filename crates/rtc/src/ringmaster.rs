//! A video conference like Ringmaster's (Microsoft, MIT licence; AutoRec, figure 20): video at a
//! constant rate without congestion control. If data is unacknowledged for a second, the next frame
//! is a key frame, and older data is given up. The receiver shows frames in order, or a complete
//! key frame.

use core::time::Duration;

use links::{Link, Packet, Passage};
use units::{Ecn, Timestamp};

use crate::calls::CallPath;
use crate::clock::{Pace, earliest};
use crate::error::BadValue;
use crate::maker::Engine;
use crate::sender::{EngineSender, Outgoing, PACKET, Sender, Sent};
use crate::source::Source;
use crate::streaming_code::{FrameLoss, checked_tau, recoverable, window};

/// Display gaps over which freezes are judged.
const GAPS: usize = 30;
/// A freeze exceeds the mean gap by this much.
const FREEZE: Duration = Duration::from_millis(150);
/// Wait for the last frames.
const DRAIN: Duration = Duration::from_secs(2);
/// Period without a loss after which Tambur sends no parities: a quality report.
const REPORT: Duration = Duration::from_secs(2);

/// A conference.
#[derive(Clone, Debug)]
pub struct Conference {
    /// The path.
    pub path: CallPath,
    /// The video.
    pub source: Source,
    /// Length of the conference.
    pub duration: Duration,
    /// Time without an acknowledgement after which the next frame is a key frame. Default 1 s.
    pub key_after: Duration,
}

/// Amount of Tambur's parity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Parity {
    /// This share of a frame's packets, rounded up. 0 to 1.
    Ratio(f64),
    /// One packet per frame (low cost).
    One,
}

/// Tambur: a streaming code, with or without retransmissions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tambur {
    /// Frames over which a loss can be repaired, τ. 1 to 16, default 3.
    pub tau: u32,
    /// Amount of parity while there is loss.
    pub parity: Parity,
    /// Whether lost packets are also sent again. Tambur's release does not.
    pub retransmits: bool,
    /// Whether the next frame is a key frame if an unacknowledged frame is more than τ frames older
    /// than the newest acknowledged one, as in Tambur's release.
    pub key_behind: bool,
}

impl Tambur {
    /// Checks τ and the amount of parity.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn check(&self) -> Result<(), BadValue> {
        checked_tau(self.tau)?;
        match self.parity {
            Parity::One => Ok(()),
            Parity::Ratio(ratio) => {
                let is_allowed = (0.0..=1.0).contains(&ratio);
                BadValue::unless(is_allowed, "parity", ratio, "0 to 1").map(drop)
            }
        }
    }
}

/// Recovery of a conference.
#[derive(Clone, Debug)]
pub enum Protection {
    /// A scheme of the crate `recovery`.
    Engine(Box<Engine>),
    /// Tambur.
    Tambur(Tambur),
    /// A sender that knows the fates of its packets: each is delayed until it will arrive.
    Clairvoyant,
}

/// Results of a conference.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConferenceOutcome {
    /// Share of the display time spent in freezes.
    pub frozen: f64,
    /// Share of frames that were never shown.
    pub unshown: f64,
    /// Key frames, the first one included.
    pub key_frames: u64,
    /// Packets sent. Packets of frames that grew into key frames are first transmissions.
    pub sent: Sent,
}

/// A frame at both ends.
#[derive(Clone, Debug)]
struct Frame {
    ids: core::ops::Range<u32>,
    is_key: bool,
    missing: u32,
    parity_arrived: u32,
}

/// A packet with data, or parity of a frame.
#[derive(Clone, Debug)]
struct Carried {
    packet: Outgoing,
    parity_of: Option<usize>,
}

type Ack = (Option<u64>, Vec<u32>);

struct World<'a> {
    conference: &'a Conference,
    tambur: Option<Tambur>,
    seed: u64,
    sender: EngineSender,
    /// Frames of waiting parity packets, which leave after data.
    parities: std::collections::VecDeque<usize>,
    parity_sent: u64,
    passage: Passage,
    down: Link<Carried>,
    up: Link<Ack>,
    pace: Pace,
    frames: Vec<Frame>,
    frame_of: Vec<usize>,
    has_arrived: Vec<bool>,
    /// Frames below are settled at the sender.
    behind: usize,
    newest_acked: usize,
    display: Display,
    now: Timestamp,
}

/// Frames shown, and freezes between them.
#[derive(Debug, Default)]
struct Display {
    next: usize,
    shown: u64,
    last: Option<Timestamp>,
    gaps: std::collections::VecDeque<Duration>,
    frozen: Duration,
    began: Timestamp,
}

impl Display {
    fn show(&mut self, now: Timestamp) {
        self.shown += 1;
        let Some(last) = self.last.replace(now) else {
            self.began = now;
            return;
        };
        self.gap(now.since(last));
    }

    /// A freeze is a gap above three means of the last 30 gaps, or above their mean plus 150 ms,
    /// whichever is longer (Tambur's evaluation).
    fn gap(&mut self, gap: Duration) {
        if self.gaps.len() == GAPS {
            let mean = self.gaps.iter().sum::<Duration>() / GAPS as u32;
            if gap > (mean * 3).max(mean + FREEZE) {
                self.frozen += gap;
            }
            self.gaps.pop_front();
        }
        self.gaps.push_back(gap);
    }

    fn frozen(&self) -> f64 {
        let shown = self.last.map_or(Duration::ZERO, |last| last.since(self.began));
        if shown.is_zero() { 1.0 } else { self.frozen.as_secs_f64() / shown.as_secs_f64() }
    }
}

impl Conference {
    /// Runs the conference. Equal seeds give paths with equal fates.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn run(&self, protection: &Protection, seed: u64) -> Result<ConferenceOutcome, BadValue> {
        self.source.checked()?;
        let CallPath { rate, rtt, .. } = self.path;
        let arq = |engine: &Engine| EngineSender::new(engine, rate, rtt, seed);
        let plain = || Engine::new("arq", &Default::default());
        let mut passage = Passage::Ordinary;
        let (sender, tambur) = match protection {
            Protection::Engine(engine) => (arq(engine), None),
            Protection::Clairvoyant => {
                passage = Passage::Insistent;
                (arq(&plain()?).unreliable(), None)
            }
            Protection::Tambur(tambur) => {
                tambur.check()?;
                let sender = arq(&plain()?);
                let sender = if tambur.retransmits { sender } else { sender.unreliable() };
                (sender, Some(*tambur))
            }
        };
        let (down, up) = self.path.links(seed);
        let mut world = World {
            conference: self,
            tambur,
            seed,
            sender,
            parities: Default::default(),
            parity_sent: 0,
            passage,
            down,
            up,
            pace: Pace::new(rate, PACKET.into()),
            frames: Vec::new(),
            frame_of: Vec::new(),
            has_arrived: Vec::new(),
            behind: 0,
            newest_acked: 0,
            display: Display::default(),
            now: Timestamp::ZERO,
        };
        while world.step() {}
        Ok(world.outcome())
    }
}

impl World<'_> {
    fn next_frame(&self) -> Option<Timestamp> {
        let at = self.conference.source.at(self.frames.len() as u64);
        (at.since(Timestamp::ZERO) < self.conference.duration).then_some(at)
    }

    fn step(&mut self) -> bool {
        let events = [
            self.next_frame(),
            self.down.next_event(),
            self.up.next_event(),
            self.sender.next_timer().filter(|at| *at > self.now),
            self.pace.next(),
        ];
        let end = Timestamp::ZERO + self.conference.duration + DRAIN;
        let Some(next) = earliest(events).filter(|at| *at <= end) else { return false };
        self.now = self.now.max(next);
        let now = self.now;
        if self.next_frame().is_some_and(|at| at <= now) {
            self.capture();
        }
        while let Some(delivered) = self.down.poll(now) {
            let ack = self.receive(&delivered.packet.payload);
            self.up.send(now, Packet::datagram(40, Ecn::NotEct, ack));
        }
        while let Some(delivered) = self.up.poll(now) {
            let (number, restored) = delivered.packet.payload;
            self.acked(number, &restored);
        }
        self.sender.on_timer(now);
        self.transmit();
        true
    }

    /// Whether the next frame must be a key frame.
    fn needs_key(&mut self) -> bool {
        let (now, after) = (self.now, self.conference.key_after);
        let is_stuck = self.sender.oldest_sent().is_some_and(|at| now.since(at) > after);
        let settled = |frame: &Frame| frame.ids.clone().all(|id| self.sender.is_settled(id));
        while self.frames.get(self.behind).is_some_and(settled) {
            self.behind += 1;
        }
        let is_behind = self.tambur.is_some_and(|tambur| {
            tambur.key_behind && self.behind + (tambur.tau as usize) < self.newest_acked
        });
        is_stuck || is_behind
    }

    fn capture(&mut self) {
        let n = self.frames.len() as u64;
        let is_asked = self.needs_key();
        if is_asked {
            self.sender.abandon();
            self.parities.clear();
            self.behind = self.frames.len();
        }
        let source = &self.conference.source;
        let is_key = is_asked || source.is_key(n);
        let size = source.size(n, is_key, self.seed);
        let first = self.frame_of.len() as u32;
        let ids = first..first + size;
        self.frame_of.extend(ids.clone().map(|_| self.frames.len()));
        self.has_arrived.resize(self.frame_of.len(), false);
        let parity = self.parity(size);
        self.sender.push(self.now, ids.clone(), None);
        self.parities.extend((0..parity).map(|_| self.frames.len()));
        self.frames.push(Frame { ids, is_key, missing: size, parity_arrived: 0 });
    }

    /// Parity packets of a frame: none without a recent loss.
    fn parity(&self, size: u32) -> u32 {
        match self.tambur {
            Some(tambur) if self.sender.has_lost_within(self.now, REPORT) => match tambur.parity {
                Parity::One => 1,
                Parity::Ratio(ratio) => (f64::from(size) * ratio).ceil() as u32,
            },
            _ => 0,
        }
    }

    fn receive(&mut self, carried: &Carried) -> Ack {
        let (number, id) = (carried.packet.number, carried.packet.id);
        match (carried.parity_of, id) {
            (Some(frame), _) => self.frames[frame].parity_arrived += 1,
            (None, Some(id)) => self.arrive(id),
            (None, None) => {}
        }
        let restored = self.restore();
        self.show();
        (carried.parity_of.is_none().then_some(number), restored)
    }

    fn arrive(&mut self, id: u32) {
        if !core::mem::replace(&mut self.has_arrived[id as usize], true) {
            self.frames[self.frame_of[id as usize]].missing -= 1;
        }
    }

    /// Restores frames with data that the parities determine. A lost packet misses one symbol of U
    /// and one of V, because a packet has stripes of both; a parity packet has two symbols.
    fn restore(&mut self) -> Vec<u32> {
        let Some(tambur) = self.tambur else { return Vec::new() };
        let has_arrived =
            |frame: &Frame| frame.parity_arrived > 0 || frame.missing < frame.ids.len() as u32;
        let Some(newest) = self.frames.iter().rposition(has_arrived) else { return Vec::new() };
        let length = window(tambur.tau);
        let losses: Vec<FrameLoss> = (0..length)
            .map(|at| {
                let frame = (newest + 1 + at).checked_sub(length).map(|at| &self.frames[at]);
                frame.map_or_else(FrameLoss::default, |frame| FrameLoss {
                    lost: [frame.missing; 2],
                    parity: 2 * frame.parity_arrived,
                })
            })
            .collect();
        if losses.iter().all(|loss| loss.lost[0] == 0) {
            return Vec::new();
        }
        let known = recoverable(tambur.tau, &losses);
        let mut restored = Vec::new();
        for (at, known) in known.iter().enumerate() {
            if losses[at].lost[0] > 0 && known[0] && known[1] {
                let ids = self.frames[newest + 1 + at - length].ids.clone();
                restored.extend(ids.filter(|&id| !self.has_arrived[id as usize]));
            }
        }
        restored.iter().for_each(|&id| self.arrive(id));
        restored
    }

    /// Shows complete frames in order, and jumps to a complete key frame.
    fn show(&mut self) {
        loop {
            let later = self.frames.iter().enumerate().skip(self.display.next);
            let mut later = later.filter(|(_, frame)| frame.missing == 0);
            let next = later.find(|(at, frame)| *at == self.display.next || frame.is_key);
            let Some(at) = next.map(|(at, _)| at) else { return };
            self.display.next = at + 1;
            self.display.show(self.now);
        }
    }

    fn acked(&mut self, number: Option<u64>, restored: &[u32]) {
        let newest = restored.iter().map(|&id| self.frame_of[id as usize]).max();
        self.newest_acked = self.newest_acked.max(newest.unwrap_or(0));
        if let Some((number, id)) = number.and_then(|n| Some((n, self.sender.carried(n)?))) {
            self.newest_acked = self.newest_acked.max(self.frame_of[id as usize]);
            self.sender.on_ack(self.now, number, restored);
        } else {
            self.sender.on_ack(self.now, u64::MAX, restored);
        }
    }

    fn transmit(&mut self) {
        let now = self.now;
        while self.pace.is_free(now) {
            let (packet, parity_of) = match self.sender.next_packet(now) {
                Some(packet) => (packet, None),
                None => match self.parities.pop_front() {
                    Some(frame) => {
                        self.parity_sent += 1;
                        let (number, id) = (u64::MAX, None);
                        (Outgoing { number, id, batch: None, is_copy: false }, Some(frame))
                    }
                    None => {
                        self.pace.is_asked = false;
                        return;
                    }
                },
            };
            self.pace.on_sent(now);
            let payload = Carried { packet, parity_of };
            let packet = Packet { size: PACKET.into(), ecn: Ecn::NotEct, payload };
            self.down.send_as(now, packet, self.passage);
        }
        self.pace.is_asked = true;
    }

    fn outcome(&self) -> ConferenceOutcome {
        let mut sent = self.sender.sent();
        sent.redundant += self.parity_sent;
        let frames = self.frames.len().max(1) as f64;
        ConferenceOutcome {
            frozen: self.display.frozen(),
            unshown: 1.0 - self.display.shown as f64 / frames,
            key_frames: self.frames.iter().filter(|frame| frame.is_key).count() as u64,
            sent,
        }
    }
}

#[cfg(test)]
mod tests;
