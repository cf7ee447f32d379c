//! A driver for connections. Interprets arbitrary bytes as a schedule of actions by a client, the
//! network, the clock and the application on one connection of a server. Runs it in virtual time
//! and checks these invariants after every step:
//!
//! - progress or sleep: events and datagrams end at every moment, and time-outs advance the
//!   deadline;
//! - memory is bounded, not counting the application's written data;
//! - the bytes in flight match the open packets, by independent accounting;
//! - sizes respect the buffer, the path and the peer's limit, and an unvalidated address gets at
//!   most three times its received bytes;
//! - stream data matches the written data, within flow control, and packet numbers are unique;
//! - after a close only the close is sent, and the connection ends by itself;
//! - a client that finally does its best gets everything.
//!
//! The client starts after an honest handshake, with real keys. 1-RTT packets use the testbed's
//! null cipher, so that they are cheap to make.

mod client;
mod frames;
mod handshake;
mod memory;
mod mix;
mod script;
mod setup;
mod shadow;
mod steps;
mod world;

use std::net::SocketAddr;
use std::time::Duration;

use script::Script;
use setup::Setup;
use units::{Ecn, StreamId};
use world::{HOME, World};

pub use shadow::Counts;
pub use world::Most;

/// Steps of a schedule at most.
const MAX_STEPS: u32 = 400;
/// Steps after the connection is over.
const STEPS_AFTER_CLOSE: u32 = 8;
/// Rounds without progress after which a client that does all it can gives up.
const PATIENCE: u32 = 40;

/// Counters of a run, to judge the coverage of schedules.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Steps by kind.
    pub steps: [u32; 19],
    pub counts: Counts,
    pub most: Most,
    pub congestion_events: u64,
    pub timeouts: u64,
    /// Why the connection was closed before its time.
    pub closed: Option<String>,
    pub healed: bool,
    pub datagrams: u64,
}

/// One schedule under way.
struct Driver {
    world: World,
    /// Whether each step is told on the standard error.
    tells: bool,
    steps: [u32; 19],
    /// The newest datagrams of the client.
    replay: [Vec<u8>; 4],
    replays: usize,
    /// Datagrams that come late, and where from.
    late: Vec<(Vec<u8>, SocketAddr)>,
    /// The address before the present one.
    before: SocketAddr,
}

/// The bytes of every stream from `offset` on, `len` of them, at most 65,536.
pub fn pattern(offset: u64, len: usize) -> &'static [u8] {
    const fn bytes() -> [u8; 131_072] {
        let mut bytes = [0; 131_072];
        let mut at = 0;
        while at < bytes.len() {
            let place = at % 65_536;
            bytes[at] = (place ^ place >> 8) as u8;
            at += 1;
        }
        bytes
    }
    static BYTES: [u8; 131_072] = bytes();
    let from = (offset % 65_536) as usize;
    &BYTES[from..from + len]
}

/// Runs a schedule. With `tells`, prints every step to standard error before it runs.
///
/// # Panics
/// If an invariant is violated.
pub fn drive(schedule: &[u8], tells: bool) -> Report {
    let mut script = Script::new(schedule);
    let setup = Setup::read(&mut script);
    if tells {
        eprintln!("{setup:?}");
    }
    let mut driver = Driver {
        world: World::new(setup),
        tells,
        steps: [0; 19],
        replay: Default::default(),
        replays: 0,
        late: Vec::new(),
        before: HOME,
    };
    driver.run(&mut script)
}

impl Driver {
    fn run(&mut self, script: &mut Script<'_>) -> Report {
        self.world.settle();
        if self.world.setup.download > 0 {
            self.ask(StreamId(0));
            for _ in 0..self.world.setup.download {
                self.world.write(StreamId(0), 60_000);
            }
            self.world.settle();
        }
        let mut after_close = 0;
        for _ in 0..MAX_STEPS {
            if script.is_over() || self.world.is_tired() || after_close > STEPS_AFTER_CLOSE {
                break;
            }
            self.step(script);
            // Sometimes several datagrams come before the server is served.
            if !script.one_in(6) {
                self.world.settle();
            }
            after_close += u32::from(self.world.closed.is_some());
        }
        self.world.settle();
        let mut report = self.report();
        if self.world.setup.heals && self.world.is_open() && !self.world.is_tired() {
            report.healed = self.heal();
        }
        self.tell(|_| "the end: nothing comes any more".into());
        self.world.end();
        report
    }

    fn report(&mut self) -> Report {
        let counts = self.world.shadow.lock().expect("one thread").counts;
        let (most, datagrams) = (self.world.most, self.world.datagrams);
        let closed = self.world.connection().and_then(|c| c.close_reason().cloned());
        let closed = closed.map(|reason| format!("{reason:?}"));
        let stats = self.world.connection().map(|c| *c.stats()).unwrap_or_default();
        let (congestion_events, timeouts) = (stats.congestion_events, stats.pto_count);
        let steps = self.steps;
        Report {
            steps,
            counts,
            most,
            congestion_events,
            timeouts,
            closed,
            healed: false,
            datagrams,
        }
    }

    fn tell(&self, what: impl FnOnce(&Self) -> String) {
        if self.tells {
            eprintln!("{:?}: {}", self.world.now, what(self));
        }
    }

    /// From here on the network loses nothing, and the client acknowledges all that came, answers
    /// challenges and lets the server send: all that was written must get through. Returns whether
    /// the connection was still open then.
    fn heal(&mut self) -> bool {
        self.tell(|_| "the client does all that it can".into());
        self.world.losses = 0;
        self.world.congested = false;
        self.late.clear();
        self.world.client.held = Default::default();
        self.world.client.withheld = None;
        self.world.client.active = self.world.client.server_ids.len() - 1;
        let base = Duration::from_millis(20).max(self.world.setup.rtt);
        let (mut best, mut without, mut wait) = (self.waiting(), 0, base);
        while best > 0 {
            self.world.advance(wait);
            if !self.world.is_open() || self.world.is_tired() {
                return false;
            }
            self.lively();
            let waiting = self.waiting();
            if waiting < best {
                (best, without, wait) = (waiting, 0, base);
            } else {
                (without, wait) = (without + 1, (wait * 2).min(Duration::from_secs(3_600)));
            }
            let now = self.world.now;
            assert!(without < PATIENCE, "{best} bytes do not get through, at {now:?}");
        }
        true
    }

    /// All that a client can do.
    fn lively(&mut self) {
        let everything = (1 << 62) - 1;
        let mut payload = Vec::new();
        let counts = self.world.setup.transport.ecn.then_some(self.world.client.marks);
        let ranges = frames::acknowledged(&self.world.client, 0, &mut Script::new(&[]));
        frames::put_ranges(&mut payload, &ranges, 0, counts);
        payload.push(0x01);
        client::varints(&mut payload, &[0x10, everything]);
        self.world.client.allow_data(everything);
        for id in self.world.streams.clone() {
            if id.0 & 3 != 2 && payload.len() < 1_000 {
                self.world.client.allow_stream_data(id, everything);
                client::varints(&mut payload, &[0x11, id.0, everything]);
            }
        }
        payload.extend(self.responses());
        let mut datagram = self.world.client.packet(&payload, 1_200);
        let from = self.world.address;
        self.world.deliver(&mut datagram, from, Ecn::NotEct);
        self.world.settle();
    }

    /// Bytes that were written and not acknowledged, of streams that go on.
    fn waiting(&mut self) -> u64 {
        let mut streams = self.world.streams.clone();
        streams.retain(|id| !self.world.client.is_reset(*id) && !self.world.given_up.contains(id));
        let Some(connection) = self.world.connection() else { return 0 };
        let missing = |id| connection.send_progress(id).map_or(0, |p| p.written - p.acked);
        streams.into_iter().map(missing).sum()
    }
}
