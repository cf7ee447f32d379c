//! Steps of a schedule: actions of the client, the network, the clock and the application.

use std::time::Duration;

use mendcast_quic::streams::{Priority, ReadOutcome};
use units::{Direction, Ecn, Rate, StreamId};

use super::client::varints;
use super::frames::{self, Kind, LAWFUL, LAWLESS};
use super::memory::counted;
use super::mix::{self, Step};
use super::script::Script;
use super::setup::scheme;
use super::world::{HOME, World};
use super::{Driver, pattern};

/// Bytes of frames in a packet of the client.
const MOST: usize = 1_350;

impl Driver {
    /// Takes the next step.
    pub fn step(&mut self, script: &mut Script<'_>) {
        let step = script.weighted(mix::of(self.world.setup.profile));
        self.steps[step as usize] += 1;
        match step {
            Step::Packet => self.packet(script),
            Step::Burst => self.burst(script),
            Step::Ack => self.ack(script),
            Step::Rounds => self.rounds(script),
            Step::Answer => self.answer(script),
            Step::Move => self.relocate(script),
            Step::Old => self.old(script),
            Step::Late => self.late(script),
            Step::Garbage => self.garbage(script),
            Step::Losses => {
                self.world.losses = match script.byte() {
                    0..=99 => 0,
                    100..=129 => 1 << script.below(16),
                    130..=149 => 0xffff,
                    _ => u16::from(script.byte()) << 8 | u16::from(script.byte()),
                };
                self.world.congested = script.one_in(8);
                self.tell(|d| format!("losses {:016b}", d.world.losses));
            }
            Step::Hold => self.hold(script),
            Step::Keys => {
                self.world.client.update_keys();
                self.tell(|_| "the client updates its keys".into());
            }
            Step::SwitchId => {
                let count = self.world.client.server_ids.len();
                self.world.client.active = usize::from(script.byte()) % count;
                self.tell(|d| format!("addresses ID {}", d.world.client.active));
            }
            Step::Wait => self.wait(script),
            Step::Deadline => self.deadline(script),
            Step::Poll => {
                let room = script.pick(&[0, 50, 64, 80, 100, 200, 1_000, 1_200, 3_000, 65_507]);
                let (room, segments) =
                    (room + usize::from(script.byte()), script.pick(&[1, 0, 2, 64]));
                self.tell(|_| format!("poll with {room} bytes, {segments} segments"));
                // A time-out that nobody asked for changes nothing.
                self.world.time_out();
                self.world.transmit(room, segments);
            }
            Step::Write => self.write(script),
            Step::Application => self.application(script),
            Step::Close => {
                self.tell(|_| "the application closes".into());
                let now = self.world.now;
                if let Some(connection) = self.world.connection() {
                    counted(|| connection.close(now, 7, "enough"));
                }
            }
        }
    }

    /// A packet of any frames.
    fn packet(&mut self, script: &mut Script<'_>) {
        let shape = script.byte();
        let lawless = self.world.setup.profile & 3 == 3;
        let count = 1 + (shape & 3);
        if shape & 0x1c == 0x1c {
            let gap = u64::from(script.below(8)) + 1;
            self.world.client.next += gap;
            self.tell(|_| format!("{gap} numbers left out"));
        }
        let (mut payload, mut told) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let kind = match script.one_in(8) {
                true if lawless => script.weighted(LAWLESS),
                _ => script.weighted(LAWFUL),
            };
            if kind == Kind::Response {
                self.prove();
            }
            let before = payload.len();
            told.push(frames::put(&mut payload, kind, &mut self.world.client, script));
            if payload.len() > MOST {
                payload.truncate(before);
            }
        }
        if payload.is_empty() {
            payload.push(0x01);
        }
        let size = match shape >> 5 & 3 {
            0 | 1 => 0,
            2 => 1_200,
            _ => usize::from(script.byte()) * 5,
        };
        self.tell(|_| format!("packet {told:?} in at least {size} bytes"));
        self.send(&payload, size, script);
    }

    /// Many small packets, perhaps with a gap in the numbers before each, so that the server's
    /// acknowledgements grow.
    fn burst(&mut self, script: &mut Script<'_>) {
        let count = script.pick(&[2, 8, 20, 40, 80]);
        let shape = script.byte();
        let frames: &[u8] = match shape >> 6 {
            0 | 1 => &[0x01],
            2 => &[0x00],
            _ => &[0x1a, 1, 2, 3, 4, 5, 6, 7, 8],
        };
        let gap = [0, 1, 1, 2, 70][usize::from(shape & 0x3f) % 5];
        let serves = script.one_in(2);
        self.tell(|_| {
            format!("{count} packets with {frames:x?}, {gap} numbers left out before each")
        });
        for _ in 0..count {
            self.world.client.next += gap;
            self.deliver(frames);
            if serves {
                self.world.settle();
            }
        }
    }

    /// Sends a packet; some get lost, late, or marked.
    fn send(&mut self, payload: &[u8], size: usize, script: &mut Script<'_>) {
        let mut datagram = self.world.client.packet(payload, size);
        self.replay[self.replays % 4] = datagram.clone();
        self.replays += 1;
        match script.byte() {
            200..=215 => self.tell(|_| "  it gets lost".into()),
            216..=231 => {
                self.tell(|_| "  it comes late".into());
                self.late.push((datagram, self.world.address));
            }
            fate => {
                let ecn = if fate >= 232 { Ecn::Ce } else { Ecn::NotEct };
                let from = self.world.address;
                self.world.deliver(&mut datagram, from, ecn);
            }
        }
    }

    /// A packet with nothing but an ACK, as a rule.
    fn ack(&mut self, script: &mut Script<'_>) {
        let mut payload = Vec::new();
        let told = frames::put(&mut payload, Kind::Ack, &mut self.world.client, script);
        self.tell(|_| told);
        self.send(&payload, 0, script);
    }

    /// Round trips of a client that acknowledges.
    fn rounds(&mut self, script: &mut Script<'_>) {
        let (count, shape) = (script.pick(&[1, 3, 8, 20, 60]), script.byte());
        let time = match script.byte() {
            ms @ 0..=199 => Duration::from_millis(u64::from(ms)),
            long => Duration::from_millis(u64::from(long) * 10),
        };
        let (held_first, feeds) = (script.one_in(4), script.one_in(2));
        self.tell(|_| format!("{count} rounds of {time:?}, acknowledging by {shape:#x}"));
        for round in 0..count {
            // The queue of the path grows, in some.
            let more = if shape & 0x20 == 0 { Duration::ZERO } else { time * round / 16 };
            self.world.advance(time + more);
            if held_first && round == 0 {
                let oldest = self.world.client.largest();
                self.world.client.held.insert(oldest..oldest + 1);
            }
            if !self.world.is_open() || self.world.is_tired() {
                return;
            }
            if feeds {
                self.feed(StreamId(0));
            }
            let counts = self.world.setup.transport.ecn.then_some(self.world.client.marks);
            let shape = if shape & 0x40 == 0 { 0 } else { shape };
            let ranges = frames::acknowledged(&self.world.client, shape, script);
            let mut payload = Vec::new();
            frames::put_ranges(&mut payload, &ranges, 0, counts);
            self.deliver(&payload);
            self.world.settle();
        }
    }

    /// Answers all challenges, as it should.
    fn answer(&mut self, script: &mut Script<'_>) {
        self.tell(|d| format!("answers {} challenges", d.world.client.challenges.len()));
        let payload = self.responses();
        if !payload.is_empty() {
            self.send(&payload, 1_200, script);
        }
    }

    /// PATH_RESPONSE frames for all challenges.
    pub fn responses(&mut self) -> Vec<u8> {
        let mut payload = Vec::new();
        for (data, address) in core::mem::take(&mut self.world.client.challenges) {
            self.world.proves(address);
            payload.push(0x1b);
            payload.extend(data);
        }
        payload
    }

    /// The client answers its newest challenge.
    fn prove(&mut self) {
        if let Some((_, address)) = self.world.client.challenges.last() {
            let address = *address;
            self.world.proves(address);
        }
    }

    fn relocate(&mut self, script: &mut Script<'_>) {
        let byte = script.byte();
        let now = self.world.address;
        let address = &mut self.world.address;
        match byte >> 6 {
            0 | 1 => address.set_port(4_000 + u16::from(byte & 15)),
            2 => address.set_ip([10, 0, 1, byte & 7].into()),
            _ => *address = if byte & 1 == 0 { HOME } else { self.before },
        }
        self.before = now;
        self.tell(|d| format!("moves to {}", d.world.address));
    }

    fn old(&mut self, script: &mut Script<'_>) {
        let place = usize::from(script.below(4));
        let mut datagram = self.replay[place].clone();
        self.tell(|_| format!("datagram {place} again"));
        if !datagram.is_empty() {
            let from = self.world.address;
            self.world.deliver(&mut datagram, from, Ecn::NotEct);
        }
    }

    fn late(&mut self, script: &mut Script<'_>) {
        let all = script.one_in(2);
        self.tell(|d| format!("of {} late datagrams arrive", d.late.len()));
        while let Some((mut datagram, from)) = self.late.pop() {
            self.world.deliver(&mut datagram, from, Ecn::NotEct);
            if !all {
                return;
            }
        }
    }

    /// A datagram that does not authenticate, or ends like a stateless reset.
    fn garbage(&mut self, script: &mut Script<'_>) {
        let mut datagram = self.world.client.packet(&[0x01], usize::from(script.byte()) * 4);
        let kind = script.below(4);
        let end = datagram.len();
        match kind {
            0 => datagram[end - 1] ^= 0x55,
            1 => datagram.truncate(usize::from(script.byte())),
            2 => {
                let (at, value) = (usize::from(script.byte()) % end, script.byte());
                datagram[at] ^= value;
                // The null cipher does not tell.
                self.world.client.wild = true;
            }
            _ if script.one_in(2) => {
                let token = frames::reset_token(u64::from(script.below(4)));
                datagram[end - 16..].copy_from_slice(&token);
            }
            _ => datagram[end - 16..].fill(0xee),
        }
        self.tell(|_| format!("garbage of kind {kind}"));
        let from = self.world.address;
        self.world.deliver(&mut datagram, from, Ecn::NotEct);
    }

    /// Packets that are never acknowledged, though they arrived.
    fn hold(&mut self, script: &mut Script<'_>) {
        let shape = script.byte();
        if shape & 0x0c == 0x0c {
            self.tell(|_| "withholds the next data of stream 0".into());
            return self.world.client.withhold(StreamId(0));
        }
        let newest = self.world.client.largest();
        let number = newest.saturating_sub(u64::from(shape >> 4));
        let count = 1 + u64::from(shape & 3);
        self.tell(|_| format!("holds back {number} and {count} packets in all"));
        self.world.client.held.insert(number..number + count);
    }

    /// A third of the silence that ends the connection.
    fn patience(&self) -> Duration {
        let idle = Duration::from_millis(self.world.setup.parameters.idle_ms);
        let idle = if idle.is_zero() { Duration::from_secs(30) } else { idle };
        idle.min(self.world.setup.transport.idle_timeout) / 3
    }

    /// Time passes, in silence or with a sign of life now and then.
    fn wait(&mut self, script: &mut Script<'_>) {
        let (time, mode) = (waiting(script), script.below(4));
        if mode == 2 {
            // What serves the server is late: datagrams come before the time-outs that were due.
            let time = time.min(Duration::from_secs(2));
            self.tell(|_| format!("nobody looks at the clock for {time:?}"));
            self.world.now += time;
            return;
        }
        let lives = mode & 1 == 1;
        self.tell(|_| format!("wait {time:?} {}", if lives { "with signs of life" } else { "" }));
        let end = self.world.now + time;
        let step = self.patience();
        for _ in 0..if lives { 40 } else { 0 } {
            if end.since(self.world.now) <= step || !self.world.is_open() {
                break;
            }
            self.world.advance(step);
            self.deliver(&[0x01]);
            self.world.settle();
        }
        self.world.advance(end.since(self.world.now));
    }

    /// Exactly the next deadline, perhaps several times.
    fn deadline(&mut self, script: &mut Script<'_>) {
        let (count, lives) = (script.pick(&[1, 1, 2, 5, 12]), script.below(4) > 0);
        self.tell(|_| format!("{count} deadlines {}", if lives { "but the last" } else { "" }));
        for _ in 0..count {
            let now = self.world.now;
            let deadline = self.world.connection().and_then(|connection| connection.deadline());
            let Some(at) = deadline else { return };
            if lives && at.since(now) > self.patience() {
                return;
            }
            self.world.advance(at.since(now));
        }
    }

    fn write(&mut self, script: &mut Script<'_>) {
        let id = self.known_stream(script);
        let len = script.pick(&[1, 100, 1_000, 5_000, 20_000, 60_000, 60_000]);
        let finish = script.one_in(6);
        self.tell(|_| {
            format!("writes {len} bytes to {id:?}{}", if finish { ", the last" } else { "" })
        });
        let unsent = self.world.connection().and_then(|c| c.unsent(id)).unwrap_or(0);
        if unsent < 300_000 {
            self.world.write(id, len);
        }
        if finish && let Some(connection) = self.world.connection() {
            let _ = counted(|| connection.finish(id));
        }
    }

    /// Writes as bodies are pulled: little more than the sent data.
    fn feed(&mut self, id: StreamId) {
        let unsent = self.world.connection().and_then(|connection| connection.unsent(id));
        if unsent.is_some_and(|unsent| unsent < 60_000) {
            self.world.write(id, 60_000);
        }
    }

    /// A stream that the application knows, or a new one.
    fn known_stream(&mut self, script: &mut Script<'_>) -> StreamId {
        let byte = script.byte();
        if self.world.streams.is_empty() || byte >= 250 {
            // So that there is a stream to answer on.
            let id = frames::client_stream(&self.world.client, byte % 200);
            self.ask(id);
            return id;
        }
        self.world.streams[usize::from(byte) % self.world.streams.len()]
    }

    /// The client asks for something on one of its streams, if it is new.
    pub fn ask(&mut self, id: StreamId) {
        let stream = self.world.client.stream(id);
        if stream.offset > 0 || stream.over {
            return;
        }
        stream.offset = 10;
        let mut payload = Vec::new();
        varints(&mut payload, &[0x0e, id.0, 0, 10]);
        payload.extend(pattern(0, 10));
        self.deliver(&payload);
        self.world.settle();
    }

    /// A packet with these frames arrives from where the client is.
    fn deliver(&mut self, payload: &[u8]) {
        let mut datagram = self.world.client.packet(payload, 0);
        let from = self.world.address;
        self.world.deliver(&mut datagram, from, Ecn::NotEct);
    }

    fn application(&mut self, script: &mut Script<'_>) {
        let what = script.below(14);
        let id = self.known_stream(script);
        let (a, b) = (script.byte(), script.byte());
        self.tell(|_| format!("application {what} on {id:?} with {a}, {b}"));
        let World { server, handle, now, streams, given_up, .. } = &mut self.world;
        let (handle, now) = (*handle, *now);
        match what {
            11 => return counted(|| server.release_ticket(handle, now, &[a; 8])),
            12 => return counted(|| server.send_new_token(handle, now, &[a; 8])),
            _ => {}
        }
        let Some(connection) = server.connection(handle) else { return };
        counted(|| match what {
            0..=2 => read(connection, id, usize::from(a) << (b & 7)),
            3 => drop(connection.finish(id)),
            4 => {
                let _ = connection.reset(id, u64::from(a));
                super::memory::uncounted(|| given_up.insert(id));
            }
            5 => drop(connection.stop_sending(id, u64::from(a))),
            6 | 7 => {
                let direction = [Direction::Bidirectional, Direction::Unidirectional];
                if let Some(id) = connection.open(direction[usize::from(a & 1)]) {
                    super::memory::uncounted(|| streams.push(id));
                }
            }
            8 => {
                let priority = Priority { urgency: a & 15, incremental: b & 1 == 1 };
                connection.set_priority(id, priority);
            }
            9 => connection.set_scheme(scheme(a, u64::from(b))),
            10 => connection.update_keys(),
            _ if a & 1 == 0 => connection.start(congestion::Start {
                window: (b & 1 == 1).then(|| u64::from(a) * 1_000),
                rate: (b & 2 == 2).then(|| Rate::from_kbps(u64::from(b) * 100)),
                rtt: (b & 4 == 4).then(|| Duration::from_millis(u64::from(a))),
            }),
            _ => connection.cap(congestion::Cap {
                rate: (b & 1 == 1).then(|| Rate::from_kbps(u64::from(a) * 100)),
                in_flight: (b & 2 == 2).then(|| u64::from(a) * 1_000),
                halfway: congestion::Halfway {
                    rate: (b & 4 == 4).then(|| Rate::from_kbps(u64::from(a) * 50)),
                    in_flight: (b & 8 == 8).then(|| u64::from(a) * 500),
                },
            }),
        });
    }
}

/// Reads up to `max` bytes, which are as the client wrote them.
fn read(connection: &mut mendcast_quic::Connection, id: StreamId, max: usize) {
    let _: Result<ReadOutcome, _> = connection.read(id, max);
}

/// From nothing to hours.
fn waiting(script: &mut Script<'_>) -> Duration {
    match script.byte() {
        0..=29 => Duration::ZERO,
        30..=59 => Duration::from_micros(u64::from(script.byte()) * 10),
        60..=159 => Duration::from_millis(u64::from(script.byte())),
        160..=229 => Duration::from_millis(u64::from(script.byte()) * 4),
        230..=249 => Duration::from_millis(u64::from(script.byte()) * 40),
        250..=253 => Duration::from_secs(u64::from(script.byte())),
        _ => Duration::from_secs(u64::from(script.byte()) * 60),
    }
}
