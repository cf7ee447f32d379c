//! How one connection begins: what its client brought along about the path, what that buys when the first live
//! response does, and what the client is given for its next connection. `startup` has the parts; docs/transport-cookie.md
//! what browsers make of it.
//!
//! **Ticket first, then token.** Chromium keeps a token only once it has a session ticket, and Firefox returns the one that
//! came within three probe time-outs behind the ticket. So the ticket is held back until the first frame was
//! delivered and measured something, but no longer than a second, nor longer than there is something to answer;
//! and the token follows a round trip later. Newer tokens follow while they say something new.

use core::num::NonZeroU32;
use core::time::Duration;

use ::quic::{Connection, HandshakeInfo};
use bytes::Bytes;
use delivery::Started;
use startup::cookie::Rules;
use startup::decision::{Inputs, Limits, Mode};
use startup::perception::DEFAULT_LIMIT;
use startup::{Carrier, Cookie, PathState, Perception, Refresh, Refusal};
use units::Timestamp;

use crate::beginnings::{Beginnings, Brought};
use crate::clock::unix_now;
use crate::config;
use crate::viewer::Unit;

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

/// The first response of some size has begun.
#[derive(Debug)]
struct Begun {
    known: Inputs,
    started: Started,
}

/// The state of a connection's beginning.
#[derive(Debug)]
pub(super) struct Beginning {
    mode: Mode,
    brought: Vec<Brought>,
    /// What was made of that; `None` before it was asked for.
    past: Option<Option<(Carrier, PathState)>>,
    begun: Option<Begun>,
    /// A live response has begun.
    is_live: bool,
    /// Reads HLS until its first frame is in sight.
    perception: Option<Box<Perception>>,
    /// A page or a playlist was answered: the client will ask for more.
    awaits_more: bool,
    next: Next,
    refresh: Refresh,
    http_cookie_due: Option<Timestamp>,
    /// Whom the next cookie is for.
    unit: Unit,
}

impl Beginning {
    /// A connection of this mode; the next one of its viewer is to be known as `unit`.
    pub(super) fn new(mode: Mode, brought: Vec<Brought>, unit: Unit) -> Self {
        Self {
            mode,
            brought,
            past: None,
            begun: None,
            is_live: false,
            perception: None,
            awaits_more: false,
            next: Next::Nothing,
            refresh: Refresh::default(),
            http_cookie_due: None,
            unit,
        }
    }

    /// A request brought a cookie along in HTTP. What QUIC and TLS brought goes first, and who has begun knows enough.
    pub(super) fn on_http_cookie(&mut self, cookie: Result<Cookie, Refusal>) {
        let is_known = self.brought.iter().any(|(carrier, _)| *carrier == Carrier::Http);
        if self.past.is_none() && !is_known {
            self.brought.push((Carrier::Http, cookie));
        }
    }

    /// What an HTTP cookie should say that leaves now; once a minute, and only what was measured.
    pub(super) fn next_http_cookie(
        &mut self,
        now: Timestamp,
        connection: &Connection,
    ) -> Option<Cookie> {
        if self.http_cookie_due.is_some_and(|due| now < due) {
            return None;
        }
        let cookie = Some(self.cookie(connection)).filter(|cookie| cookie.samples > 0)?;
        self.http_cookie_due = Some(now + Refresh::RENEWAL);
        Some(cookie)
    }

    /// A page is answered: its scripts, and then the stream, follow.
    pub(super) fn on_page(&mut self) {
        self.awaits_more = true;
    }

    /// A playlist is answered: it, and what is asked for because of it, come before the first frame.
    pub(super) fn on_playlist(&mut self) {
        self.awaits_more = true;
        if !self.is_live && self.perception.is_none() {
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

    /// The first live response begins; `first_frame` is its size up to the end of the first frame, if that is there. Gives
    /// how the connection started, to the first of its sessions.
    pub(super) fn on_live(
        &mut self,
        connection: &mut Connection,
        first_frame: Option<u64>,
        all: &Beginnings,
        config: &config::Startup,
    ) -> Option<Started> {
        if core::mem::replace(&mut self.is_live, true) {
            return None;
        }
        self.perception = None;
        if self.begun.is_none() {
            let past = self.past(connection, all, config);
            self.begin(connection, first_frame, past, config);
        }
        self.started().copied()
    }

    /// A response of this length begins. It has no first frame, but the path that a cookie knows is the same: where there is
    /// one, all of the response is taken for a first frame.
    pub(super) fn on_other(
        &mut self,
        connection: &mut Connection,
        length: u64,
        all: &Beginnings,
        config: &config::Startup,
    ) {
        if self.begun.is_none()
            && length > congestion::initial_window(connection.mtu())
            && let Some(past) = self.past(connection, all, config)
        {
            self.begin(connection, Some(length), Some(past), config);
        }
    }

    /// What is known about the path, by what the client brought or by its network.
    fn past(
        &mut self,
        connection: &Connection,
        all: &Beginnings,
        config: &config::Startup,
    ) -> Option<(Carrier, PathState)> {
        if let Some(known) = self.past {
            return known;
        }
        let client = connection.addresses().remote.ip();
        let rules = rules(config);
        let buys = delivery::knows_nothing(connection) && self.mode.needs_past();
        let past = match all.past(&self.brought, client, unix_now(), &rules, buys) {
            Ok(past) => past,
            Err(_) => {
                self.mode = Mode::Iw10;
                None
            }
        };
        self.past = Some(past);
        past
    }

    fn begin(
        &mut self,
        connection: &mut Connection,
        first_frame: Option<u64>,
        past: Option<(Carrier, PathState)>,
        config: &config::Startup,
    ) {
        let (carrier, past) = past.unzip();
        let rtt = connection.rtt();
        let handshake_rtt = rtt.first_sample().map(|_| rtt.min());
        let known = Inputs { first_frame, past, handshake_rtt };
        let started = start(connection, self.mode, &known, config);
        self.begun = Some(Begun { known, started: Started { carrier, ..started } });
    }

    /// How the connection started, if it has.
    pub(super) fn started(&self) -> Option<&Started> {
        self.begun.as_ref().map(|begun| &begun.started)
    }

    /// Whether the size of the first frame would still change how the connection starts.
    pub(super) fn awaits_size(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun.known.first_frame.is_none())
    }

    /// The size of the first frame came in sight after its response began. Says how the connection starts again, if that is
    /// still of use.
    pub(super) fn on_size(
        &mut self,
        connection: &mut Connection,
        first_frame: u64,
        config: &config::Startup,
    ) -> Option<Started> {
        let begun = self.begun.as_mut()?;
        begun.known.first_frame = Some(first_frame);
        let again = start(connection, self.mode, &begun.known, config);
        again.window?;
        begun.started = Started { carrier: begun.started.carrier, ..again };
        Some(begun.started)
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
        } else if !self.awaits_more {
            self.hold_until(now);
        }
        // What was sent meanwhile has measured the path, perhaps for the first time.
        if let Next::Refresh(due) = &mut self.next
            && !delivery::knows_nothing(connection)
        {
            *due = now.min(*due);
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
        let past = self.past.as_ref().and_then(Option::as_ref).map(|(_, past)| &past.cookie);
        delivery::learned(connection, past, unix_now(), self.unit.0)
    }
}

fn start(
    connection: &mut Connection,
    mode: Mode,
    known: &Inputs,
    config: &config::Startup,
) -> Started {
    let limits = Limits {
        mtu: connection.mtu(),
        max_jump: config.max_jump.0,
        usual_window: config.usual_window.0,
        usual_rtt: config.usual_rtt,
    };
    delivery::start(connection, mode, known, &limits)
}

/// How cookies are judged.
pub(super) fn rules(config: &config::Startup) -> Rules {
    Rules { lifetime: config.lifetime, ..Rules::default() }
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
