//! Random clients: well-formed and damaged frames of every type in every packet number space, with
//! valid protection, mixed with replays, migrations and key updates. The server application acts
//! randomly too. The server must not panic or spin, must send only well-formed packets (checked by
//! the client), and must end the connection.

use std::time::Duration;

use bytes::Bytes;
use mendcast_quic::wire::{PacketType, put_crypto, put_path_challenge, put_path_response};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use units::{Direction, StreamId};

use crate::raw::{Raw, ack, frames, honest, varint};
use crate::{client, connected};

/// Connections that are tried; `make fuzz` sets more.
const CASES: u64 = 2_000;
const STEPS: u32 = 40;
/// Bytes of a polite client's streams.
const SIZE: u64 = 2_000;

/// Frames of 1-RTT packets that a client may send at any time.
const LAWFUL: [u64; 22] = [
    0x01, 0x02, 0x02, 0x03, 0x04, 0x05, 0x08, 0x0a, 0x0c, 0x0e, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13,
    0x14, 0x15, 0x16, 0x18, 0x19, 0x1a,
];

struct Dice {
    rng: ChaCha8Rng,
    /// Keeps to the rules, most of the time: such clients get far.
    polite: bool,
    /// Sequence number of its newest connection ID.
    sequence: u64,
}

impl Dice {
    /// From 0 to `n` - 1.
    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Small as a rule, sometimes near a limit, sometimes anything.
    fn number(&mut self) -> u64 {
        if self.polite {
            return self.below(500);
        }
        match self.below(8) {
            0 => self.below(1 << 62),
            1 => (1 << 62) - 1 - self.below(3),
            2 => 65_536 - 50 + self.below(100),
            3 => self.below(2_000),
            _ => self.below(20),
        }
    }

    fn stream(&mut self) -> StreamId {
        if self.polite {
            return StreamId(4 * self.below(10));
        }
        StreamId(if self.one_in(10) { self.number() } else { self.below(40) })
    }

    fn bytes(&mut self, max: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.below(max + 1) as usize];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// A frame of this type (RFC 9000, section 19) with random fields that can be read.
    fn frame(&mut self, ty: u64, raw: &Raw, packet: PacketType) -> Vec<u8> {
        let mut frame = varint(ty);
        let numbers = match ty {
            0x00 | 0x01 | 0x1e => 0,
            0x02 | 0x03 => {
                let received = raw.numbers(packet);
                let nth = self.below(received.len().max(1) as u64) as usize;
                let top = received.get(nth).copied().unwrap_or(0);
                let low = if self.polite { top } else { top.saturating_sub(self.below(5)) };
                let mut frame = ack(low, top);
                if ty == 0x03 {
                    frame[0] = 0x03;
                    (0..3).for_each(|_| frame.extend(varint(self.below(30))));
                }
                return frame;
            }
            0x06 => return frames(|w| put_crypto(w, self.number() % 70_000, &self.bytes(30))),
            0x07 => {
                let token = self.bytes(20);
                frame.extend([varint(token.len() as u64), token].concat());
                return frame;
            }
            0x08..=0x0f => {
                frame.extend(varint(self.stream().0));
                let data = self.bytes(60);
                if ty & 4 != 0 {
                    // A polite client's streams all have the same size.
                    let end = self.polite && ty & 1 != 0;
                    let offset = if end { SIZE - data.len() as u64 } else { self.number() };
                    frame.extend(varint(offset));
                }
                if ty & 2 != 0 {
                    frame.extend(varint(data.len() as u64));
                }
                frame.extend(data);
                return frame;
            }
            0x18 => {
                self.sequence += 1;
                let sequence = if self.polite { self.sequence } else { self.below(30) };
                frame.extend(varint(sequence));
                frame.extend(varint(sequence - self.below(sequence.min(3) + 1)));
                let id = if self.polite { 8 } else { 1 + self.below(20) as u8 };
                frame.push(id);
                frame.extend((0..id + 16).map(|n| n ^ sequence as u8));
                return frame;
            }
            0x19 if self.polite => return [frame, varint(1)].concat(),
            0x04 if self.polite => {
                return [frame, varint(self.stream().0), varint(0), varint(SIZE)].concat();
            }
            0x1a => return frames(|w| put_path_challenge(w, [7; 8])),
            0x1b => return frames(|w| put_path_response(w, [7; 8])),
            0x1c | 0x1d => {
                frame.extend(varint(self.number()));
                if ty == 0x1c {
                    frame.extend(varint(self.number()));
                }
                let reason = self.bytes(300);
                frame.extend([varint(reason.len() as u64), reason].concat());
                return frame;
            }
            0x04 => 3,
            0x05 | 0x11 | 0x15 => 2,
            _ => 1,
        };
        for field in 0..numbers {
            let stream = field == 0 && [0x04, 0x05, 0x11, 0x15].contains(&ty);
            frame.extend(varint(if stream { self.stream().0 } else { self.number() }));
        }
        frame
    }

    fn payload(&mut self, raw: &Raw, packet: PacketType) -> Vec<u8> {
        let mut payload = Vec::new();
        for _ in 0..1 + self.below(6) {
            let ty = match packet {
                _ if self.one_in(if self.polite { 500 } else { 10 }) => self.below(0x22),
                PacketType::OneRtt => LAWFUL[self.below(22) as usize],
                _ => [0x01, 0x02, 0x06][self.below(3) as usize],
            };
            // Without a length, a STREAM frame takes the rest.
            payload.extend(self.frame(ty, raw, packet));
        }
        if self.one_in(if self.polite { 200 } else { 4 }) {
            for _ in 0..1 + self.below(3) {
                let at = self.below(payload.len() as u64) as usize;
                payload[at] = self.below(256) as u8;
            }
        }
        if self.one_in(if self.polite { 200 } else { 10 }) {
            payload.truncate(self.below(payload.len() as u64 + 1) as usize);
        }
        payload.truncate(1_100);
        payload
    }

    /// What an application might do at this moment.
    fn application(&mut self, raw: &mut Raw) {
        let Some(handle) = raw.handle else { return };
        let Some(connection) = raw.server.connection(handle) else { return };
        let id = StreamId(self.below(40));
        match self.below(9) {
            0 => drop(connection.write(id, Bytes::from(vec![1; self.below(50_000) as usize]))),
            1 => drop(connection.finish(id)),
            2 => drop(connection.reset(id, self.number())),
            3 => drop(connection.stop_sending(id, self.number())),
            4 => drop(connection.open(Direction::Unidirectional)),
            // This client does not follow, and is deaf from then on.
            5 if !self.polite => connection.update_keys(),
            6 => raw.server.send_new_token(handle, raw.now, b"own"),
            _ => {
                for id in (0..40).map(StreamId) {
                    let _ = connection.read(id, 1_000);
                }
            }
        }
        raw.collect();
    }
}

fn case(seed: u64) {
    let mut dice =
        Dice { rng: ChaCha8Rng::seed_from_u64(seed), polite: !seed.is_multiple_of(4), sequence: 0 };
    let early = dice.one_in(4);
    let mut raw = if early { client(&honest()) } else { connected() };
    if early {
        let hello = raw.hello();
        raw.initial(&hello);
    }
    let home = raw.address;
    let mut replay = Vec::new();
    for _ in 0..STEPS {
        let ty = match early {
            true if dice.one_in(3) => PacketType::Initial,
            true => PacketType::Handshake,
            false => PacketType::OneRtt,
        };
        match dice.below(30) {
            0 => raw.address.set_port(1_024 + dice.below(60_000) as u16),
            1 => raw.address.set_ip((0x0b00_0000 + dice.below(99) as u32).to_be_bytes().into()),
            2 => raw.address = home,
            3 if !early => raw.update_keys(),
            4 => raw.skip_numbers(ty, dice.below(1_000)),
            5 if !dice.polite => raw.flip = dice.below(256) as u8 & 0x1c,
            6 => {
                let mut old: Vec<u8> = Vec::clone(&replay);
                raw.deliver(&mut old);
            }
            7 if early && dice.one_in(4) => raw.handshake(),
            _ => {}
        }
        let payload = dice.payload(&raw, ty);
        let mut packet = raw.packet(ty, &payload);
        if dice.one_in(20) {
            let at = dice.below(packet.len() as u64) as usize;
            packet[at] ^= 1 << dice.below(8);
        }
        if early && dice.one_in(3) {
            let payload = dice.payload(&raw, PacketType::Handshake);
            packet.extend(raw.packet(PacketType::Handshake, &payload));
        }
        if dice.one_in(5) {
            replay.clone_from(&packet);
        }
        raw.deliver(&mut packet);
        dice.application(&mut raw);
        raw.wait(Duration::from_micros(dice.below(80_000)));
        let Some(connection) = raw.handle.and_then(|handle| raw.server.connection(handle)) else {
            break;
        };
        assert!(connection.in_flight() < 1 << 32, "bytes in flight: {}", connection.in_flight());
        if connection.is_drained() {
            break;
        }
    }
    raw.wait(Duration::from_secs(600));
    for handle in raw.server.handles().collect::<Vec<_>>() {
        raw.handle = Some(handle);
        raw.wait(Duration::from_secs(600));
        let ended = raw.server.connection(handle).is_none_or(|c| c.is_drained());
        assert!(ended, "the connection never ends");
    }
}

/// `MENDCAST_CASES` sets how many connections are tried.
#[test]
fn mutated_frames_never_panic() {
    let cases = std::env::var("MENDCAST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES);
    for seed in 0..cases {
        let outcome = std::panic::catch_unwind(|| case(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
