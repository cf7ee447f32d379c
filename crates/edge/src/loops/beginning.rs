//! How one connection begins: what its client brought along about the path, what that buys when the first live
//! response does, and what the client is given for its next connection. `startup` has the parts; docs/transport-cookie.md
//! what browsers make of it.
//!
//! **Ticket first, then token.** Chromium keeps a token only once it has a session ticket, and Firefox returns the one that
//! came within three probe time-outs behind the ticket. So the ticket is held back until the first frame was
//! delivered and measured something, but no longer than a second, nor longer than there is something to answer;
//! and the token follows a round trip later. Newer tokens follow while they say something new.

use core::any::Any;
use core::num::NonZeroU32;
use core::time::Duration;

use ::quic::{Connection, HandshakeInfo};
use bytes::Bytes;
use delivery::guided;
use startup::cookie::{Correlation, Rules, Verdict};
use startup::decision::{self, Known, Mode};
use startup::perception::DEFAULT_LIMIT;
use startup::{Carrier, Cookie, DeliveryRates, Guided, Perception, Prefix, Refresh};
use units::{Rate, Timestamp};

use crate::beginnings::{Beginnings, Brought};
use crate::clock::unix_now;
use crate::config;
use crate::viewer::{Started, Unit};

/// The longest that a session ticket is held back: shorter visits get theirs even so.
const HOLD: Duration = Duration::from_secs(1);

/// What goes to the client.
#[derive(Debug)]
pub(super) enum Handed {
    /// A session ticket with these bytes of ours.
    Ticket([u8; startup::cookie::LEN]),
    /// A NEW_TOKEN token with them.
    Token([u8; startup::cookie::LEN]),
}

/// What is to be handed over next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Nothing before the handshake is confirmed.
    Nothing,
    /// The ticket, at this time at the latest.
    Ticket(Timestamp),
    /// The first token, at this time.
    Token(Timestamp),
    /// Another token if it says something new, when the connection is served anyway from this time on.
    Refresh(Timestamp),
}

/// The state of a connection's beginning.
#[derive(Debug)]
pub(super) struct Beginning {
    mode: Mode,
    brought: Vec<Brought>,
    /// What the first live response began with.
    begun: Option<(Known, Started)>,
    /// Reads HLS until its first frame is in sight.
    perception: Option<Box<Perception>>,
    /// A playlist was answered: the client will ask for media next.
    awaits_media: bool,
    next: Next,
    refresh: Refresh,
    /// Whom the next cookie is for.
    unit: Unit,
}

impl Beginning {
    /// A connection of this mode; the next one of its viewer is to be known as `unit`.
    pub(super) fn new(mode: Mode, brought: Vec<Brought>, unit: Unit) -> Self {
        Self {
            mode,
            brought,
            begun: None,
            perception: None,
            awaits_media: false,
            next: Next::Nothing,
            refresh: Refresh::default(),
            unit,
        }
    }

    /// A playlist is answered: it, and what is asked for because of it, come before the first frame.
    pub(super) fn on_playlist(&mut self) {
        self.awaits_media = true;
        if self.begun.is_none() && self.perception.is_none() {
            self.perception = Some(Box::new(Perception::new(NonZeroU32::MIN, DEFAULT_LIMIT)));
        }
    }

    /// The body of an answer that came after the playlist. Gives the bytes from its beginning to the end of the first
    /// frame, if that is in it.
    pub(super) fn perceive<'a>(&mut self, body: impl Iterator<Item = &'a Bytes>) -> Option<u64> {
        let perception = self.perception.as_mut()?;
        body.for_each(|piece| _ = perception.read(piece));
        let before = perception.bytes_before();
        let size = perception.end_body().known()?;
        Some(size.saturating_sub(before))
    }

    /// The first live response begins; `first_frame` is its size up to the end of the first frame, if that is there. Says
    /// how the connection starts, unless that was decided already or it knows its path by itself.
    pub(super) fn on_live(
        &mut self,
        connection: &mut Connection,
        first_frame: Option<u64>,
        all: &Beginnings,
        config: &config::Startup,
    ) -> Option<Started> {
        if self.begun.is_some() {
            return None;
        }
        self.perception = None;
        let client = connection.addresses().remote.ip();
        let rules = Rules { lifetime: config.lifetime, ..Rules::default() };
        let buys = knows_nothing(connection) && self.mode.needs_past();
        let past = all.past(&self.brought, client, unix_now(), &rules, buys);
        let (carrier, past) = past.unzip();
        let rtt = connection.rtt();
        let handshake_rtt = rtt.first_sample().map(|_| rtt.min());
        let started = Started { mode: self.mode, carrier, window: None, rate: None };
        self.begun = Some((Known { first_frame, past, handshake_rtt }, started));
        self.decide(connection, config);
        self.begun.map(|(_, started)| started)
    }

    /// Whether the size of the first frame would still change how the connection starts.
    pub(super) fn awaits_size(&self) -> bool {
        self.begun.is_some_and(|(known, _)| known.first_frame.is_none())
    }

    /// The size of the first frame came in sight after its response began.
    pub(super) fn on_size(
        &mut self,
        connection: &mut Connection,
        first_frame: u64,
        config: &config::Startup,
    ) -> Option<Started> {
        let (known, _) = self.begun.as_mut()?;
        known.first_frame = Some(first_frame);
        self.decide(connection, config);
        self.begun.map(|(_, started)| started)
    }

    fn decide(&mut self, connection: &mut Connection, config: &config::Startup) {
        let Some((known, started)) = &mut self.begun else { return };
        // Ten datagrams are what controllers start with.
        if self.mode == Mode::Iw10 || !knows_nothing(connection) {
            return;
        }
        let limits = decision::Limits {
            mtu: connection.mtu(),
            max_jump: config.max_jump.0,
            usual_window: config.usual_window.0,
            usual_rtt: config.usual_rtt,
        };
        let decision = decision::decide(self.mode, known, &limits);
        let start = decision.start;
        // If more than that is in flight by now, the start is over.
        let has_room = start.window.is_some_and(|window| connection.in_flight() <= window);
        if let Some(guided) = guided_mut(connection).filter(|_| has_room) {
            guided.begin(&decision);
            (started.window, started.rate) = (start.window, start.rate);
        }
    }

    /// The handshake is confirmed.
    pub(super) fn on_connected(&mut self, now: Timestamp) {
        if self.next == Next::Nothing {
            self.next = Next::Ticket(now + HOLD);
        }
    }

    /// The viewer has all of the first frame.
    pub(super) fn on_first_frame(&mut self, now: Timestamp, connection: &Connection) {
        self.hold_until(now + connection.rtt().smoothed());
    }

    /// An answer was handed to the transport, of `media` or not, and it was the last one under way. A client that has what
    /// it came for may be gone in a moment.
    pub(super) fn on_idle(&mut self, now: Timestamp, connection: &Connection, media: bool) {
        if media {
            self.hold_until(now + 2 * connection.rtt().smoothed());
        } else if !self.awaits_media {
            self.hold_until(now);
        }
    }

    fn hold_until(&mut self, at: Timestamp) {
        if let Next::Ticket(due) = &mut self.next {
            *due = at.min(*due);
        }
    }

    /// When [`Beginning::hand_over`] has something.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self.next {
            Next::Ticket(due) | Next::Token(due) => Some(due),
            Next::Nothing | Next::Refresh(_) => None,
        }
    }

    /// What the client is given now.
    pub(super) fn hand_over(
        &mut self,
        now: Timestamp,
        connection: &Connection,
        all: &Beginnings,
    ) -> Option<Handed> {
        match self.next {
            Next::Ticket(due) if due <= now => {
                self.next = Next::Token(now + connection.rtt().smoothed());
                Some(Handed::Ticket(self.cookie(connection).encode()))
            }
            Next::Token(due) | Next::Refresh(due) if due <= now => {
                self.next = Next::Refresh(now + Refresh::PERIOD);
                let cookie = self.cookie(connection);
                let is_due = self.refresh.is_due(now, &cookie);
                is_due.then(|| {
                    all.on_issued(&cookie);
                    Handed::Token(cookie.encode())
                })
            }
            _ => None,
        }
    }

    /// What this connection knows about its path.
    fn cookie(&self, connection: &Connection) -> Cookie {
        let guided = guided(connection);
        let rates = guided.map(Guided::rates);
        let recovery = connection.recovery();
        let t = &recovery.totals;
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let verdict = guided.map(Guided::verdict).unwrap_or_default();
        let measured = Cookie {
            issued: unix_now(),
            prefix: Prefix::of(connection.addresses().remote.ip()),
            min_rtt: connection.rtt().min(),
            max_rate: rates.map_or(Rate::ZERO, DeliveryRates::max),
            usual_rate: rates.map_or(Rate::ZERO, DeliveryRates::usual),
            samples: rates.map_or(0, DeliveryRates::count),
            loss: ratio(t.lost, t.settled()).unwrap_or(0.0),
            retransmission_loss: ratio(t.repeated, t.retransmissions),
            correlation: recovery.correlation.as_ref().map(Correlation::from).unwrap_or_default(),
            verdict,
            unit: self.unit.0,
        };
        // What leaves in one flight measures nothing: a jump that passed says that the old measure holds.
        match self.begun.and_then(|(known, _)| known.past).map(|past| past.cookie) {
            Some(Cookie { max_rate, usual_rate, samples, .. })
                if measured.samples == 0 && verdict == Verdict::Passed =>
            {
                Cookie { max_rate, usual_rate, samples, ..measured }
            }
            _ => measured,
        }
    }
}

/// What the client brought along. Tickets and tokens may carry nothing of ours.
pub(super) fn brought(info: &HandshakeInfo) -> Vec<Brought> {
    let carried = [
        (Carrier::Token, info.returned_token.as_deref()),
        (Carrier::Ticket, info.returned_ticket.as_deref()),
    ];
    let carried = carried.into_iter().filter_map(|(carrier, bytes)| {
        Some((carrier, Cookie::decode(bytes.filter(|bytes| !bytes.is_empty())?)))
    });
    carried.collect()
}

/// Whether the connection has not measured its path yet.
fn knows_nothing(connection: &Connection) -> bool {
    guided(connection).is_some_and(|guided| guided.rates().count() == 0)
}

fn guided_mut(connection: &mut Connection) -> Option<&mut Guided> {
    let controller: &mut dyn Any = connection.controller_mut();
    controller.downcast_mut()
}
