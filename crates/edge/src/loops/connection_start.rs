//! Start of a connection: saved path state from the client's cookies, the initial window for the
//! first live response, and the cookies for the next connection. See the `startup` crate and, for
//! browser behaviour, docs/develop/transport-cookie.md.
//!
//! **Ticket first, then token.** Chromium keeps a token only if it already has a session ticket.
//! Firefox uses the token that came within three PTOs after the ticket. So the ticket is held back
//! until the first frame was delivered and the path was measured, for at most 1 s and at most until
//! there is nothing left to answer. The token follows one round trip later. Further tokens follow
//! when the path state changes.

use core::time::Duration;

use ::quic::{Connection, HandshakeInfo};
use bytes::Bytes;
use delivery::Started;
use startup::cookie::CookieRules;
use startup::decision::{Inputs, Limits, Mode};
use startup::perception::DEFAULT_LIMIT;
use startup::{Carrier, Cookie, PathState, Perception, Refresh, Refusal};
use units::{Rate, Timestamp};

use crate::clock::unix_now;
use crate::config;
use crate::saved_paths::{ReceivedCookie, SavedPaths};
use crate::viewer::Unit;

/// Maximum delay of a session ticket, so that short visits get one too.
const MAX_TICKET_DELAY: Duration = Duration::from_secs(1);

/// A cookie to send to the client.
#[derive(Debug)]
pub(super) enum Issued {
    /// A session ticket with this application data.
    Ticket([u8; startup::cookie::LEN]),
    /// A NEW_TOKEN token with this application data.
    Token([u8; startup::cookie::LEN]),
}

/// The next cookie to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextCookie {
    /// None before the handshake is confirmed.
    Nothing,
    /// The ticket, at this time at the latest.
    Ticket(Timestamp),
    /// The first token, at this time.
    Token(Timestamp),
    /// A further token, once the connection is served after this time and the path state has
    /// changed.
    Refresh(Timestamp),
}

/// The startup decision, made at the first response of some size.
#[derive(Debug)]
struct StartDecision {
    /// Until the size of the first frame is known.
    inputs: Option<Box<Inputs>>,
    started: Started,
}

/// The start of a connection.
#[derive(Debug)]
pub(super) struct ConnectionStart {
    mode: Mode,
    cookies: Vec<ReceivedCookie>,
    /// The resumed path state; the outer `None` before it was looked up.
    past: Option<Option<Box<(Carrier, PathState)>>>,
    decision: Option<StartDecision>,
    /// A live response has started.
    is_live: bool,
    /// Parses HLS until the first frame is found.
    perception: Option<Box<Perception>>,
    /// A page or playlist was answered, so more requests will follow.
    awaits_more: bool,
    next: NextCookie,
    refresh: Refresh,
    http_cookie_due: Option<Timestamp>,
    /// The experiment unit to put into the next cookie.
    unit: Unit,
}

impl ConnectionStart {
    /// Creates the start of a connection. `unit` identifies the viewer's next connection.
    pub(super) fn new(mode: Mode, cookies: Vec<ReceivedCookie>, unit: Unit) -> Self {
        Self {
            mode,
            cookies,
            past: None,
            decision: None,
            is_live: false,
            perception: None,
            awaits_more: false,
            next: NextCookie::Nothing,
            refresh: Refresh::default(),
            http_cookie_due: None,
            unit,
        }
    }

    /// Adds a cookie from an HTTP request. Cookies from QUIC and TLS take precedence, and after the
    /// startup decision it is ignored.
    pub(super) fn on_http_cookie(&mut self, cookie: Result<Cookie, Refusal>) {
        let is_known = self.cookies.iter().any(|(carrier, _)| *carrier == Carrier::Http);
        if self.past.is_none() && !is_known {
            self.cookies.push((Carrier::Http, cookie));
        }
    }

    /// Returns the path state for an HTTP cookie, at most once per minute and only if measured.
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

    /// Notes the response with a page, which will be followed by requests for scripts and the
    /// stream.
    pub(super) fn on_page(&mut self) {
        self.awaits_more = true;
    }

    /// Notes the response with a playlist, which precedes the first frame with the requests it
    /// causes.
    pub(super) fn on_playlist(&mut self, config: &config::Startup) {
        self.awaits_more = true;
        if !self.is_live && self.perception.is_none() {
            let frames = delivery::video_frames(config);
            self.perception = Some(Box::new(Perception::new(frames, DEFAULT_LIMIT)));
        }
    }

    /// Parses the body of a response after the playlist. Returns the bytes from its start to the
    /// end of the first frame, if it contains that.
    pub(super) fn perceive<'a>(&mut self, body: impl Iterator<Item = &'a Bytes>) -> Option<u64> {
        let perception = self.perception.as_mut()?;
        body.for_each(|piece| _ = perception.read(piece));
        let before = perception.bytes_before();
        let size = perception.end_body().known()?;
        Some(size.saturating_sub(before))
    }

    /// Starts the first live response. `first_frame` is its size up to the end of the first frame,
    /// if known. Returns the startup decision for the first session of the connection.
    pub(super) fn on_live(
        &mut self,
        connection: &mut Connection,
        first_frame: Option<u64>,
        all: &SavedPaths,
        config: &config::Startup,
    ) -> Option<Started> {
        if core::mem::replace(&mut self.is_live, true) {
            return None;
        }
        self.perception = None;
        if self.decision.is_none() {
            let past = self.past(connection, all, config);
            self.begin(connection, first_frame, past, config);
        }
        self.started().copied()
    }

    /// Starts a response of this length without a first frame. With a saved path state, the whole
    /// response is treated as the first frame.
    pub(super) fn on_other(
        &mut self,
        connection: &mut Connection,
        length: u64,
        all: &SavedPaths,
        config: &config::Startup,
    ) {
        if self.decision.is_none()
            && length > congestion::initial_window(connection.mtu())
            && let Some(past) = self.past(connection, all, config)
        {
            self.begin(connection, Some(length), Some(past), config);
        }
    }

    /// Returns the path state from the client's cookies or for its network.
    fn past(
        &mut self,
        connection: &Connection,
        all: &SavedPaths,
        config: &config::Startup,
    ) -> Option<(Carrier, PathState)> {
        if let Some(past) = &self.past {
            return past.as_deref().copied();
        }
        let client = connection.addresses().remote.ip();
        let rules = rules(config);
        let buys = delivery::is_unmeasured(connection) && self.mode.needs_past();
        let past = match all.look_up(&self.cookies, client, unix_now(), &rules, buys) {
            Ok(past) => past,
            Err(_) => {
                self.mode = Mode::Iw10;
                None
            }
        };
        self.past = Some(past.map(Box::new));
        past
    }

    /// Returns the rate of the path: as measured, or else as saved.
    pub(super) fn rate(
        &self,
        connection: &Connection,
        all: &SavedPaths,
        config: &config::Startup,
    ) -> Option<Rate> {
        let measured = delivery::guided(connection).map(|guided| guided.rates().usual());
        measured.filter(|rate| *rate > Rate::ZERO).or_else(|| {
            let client = connection.addresses().remote.ip();
            all.rate(&self.cookies, client, unix_now(), &rules(config))
        })
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
        let inputs = Inputs { first_frame, past, handshake_rtt };
        let started = start(connection, self.mode, &inputs, config);
        let inputs = first_frame.is_none().then(|| Box::new(inputs));
        self.decision = Some(StartDecision { inputs, started: Started { carrier, ..started } });
    }

    /// Returns the startup decision, if made.
    pub(super) fn started(&self) -> Option<&Started> {
        self.decision.as_ref().map(|decision| &decision.started)
    }

    /// Whether the size of the first frame would still change the startup decision.
    pub(super) fn awaits_size(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.inputs.is_some())
    }

    /// Sets the first-frame size, known only after the response started. Returns the new startup
    /// decision if it still has an effect.
    pub(super) fn on_size(
        &mut self,
        connection: &mut Connection,
        first_frame: u64,
        config: &config::Startup,
    ) -> Option<Started> {
        let decision = self.decision.as_mut()?;
        let inputs = Inputs { first_frame: Some(first_frame), ..*decision.inputs.take()? };
        let updated = start(connection, self.mode, &inputs, config);
        updated.window?;
        decision.started = Started { carrier: decision.started.carrier, ..updated };
        Some(decision.started)
    }

    /// Notes that the handshake is confirmed.
    pub(super) fn on_connected(&mut self, now: Timestamp) {
        if self.next == NextCookie::Nothing {
            self.next = NextCookie::Ticket(now + MAX_TICKET_DELAY);
        }
    }

    /// Notes that the viewer has received the first frame.
    pub(super) fn on_first_frame(&mut self, now: Timestamp, connection: &Connection) {
        self.hold_until(now + connection.rtt().smoothed());
    }

    /// Notes that the last response in progress, of `media` or not, was passed to the transport. A
    /// client without further requests may soon close.
    pub(super) fn on_idle(&mut self, now: Timestamp, connection: &Connection, media: bool) {
        if media {
            self.hold_until(now + 2 * connection.rtt().smoothed());
        } else if !self.awaits_more {
            self.hold_until(now);
        }
        // The response may have produced the first measurement of the path.
        if let NextCookie::Refresh(due) = &mut self.next
            && !delivery::is_unmeasured(connection)
        {
            *due = now.min(*due);
        }
    }

    fn hold_until(&mut self, at: Timestamp) {
        if let NextCookie::Ticket(due) = &mut self.next {
            *due = at.min(*due);
        }
    }

    /// Returns when [`ConnectionStart::issue`] has a cookie.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self.next {
            NextCookie::Ticket(due) | NextCookie::Token(due) => Some(due),
            NextCookie::Nothing | NextCookie::Refresh(_) => None,
        }
    }

    /// Returns the cookie to send now.
    pub(super) fn issue(
        &mut self,
        now: Timestamp,
        connection: &Connection,
        all: &SavedPaths,
    ) -> Option<Issued> {
        match self.next {
            NextCookie::Ticket(due) if due <= now => {
                self.next = NextCookie::Token(now + connection.rtt().smoothed());
                Some(Issued::Ticket(self.cookie(connection).encode()))
            }
            NextCookie::Token(due) | NextCookie::Refresh(due) if due <= now => {
                self.next = NextCookie::Refresh(now + Refresh::PERIOD);
                if self.past.is_some() && !delivery::is_unmeasured(connection) {
                    // The measurements replace them.
                    self.cookies = Vec::new();
                }
                let cookie = self.cookie(connection);
                let is_due = self.refresh.is_due(now, &cookie);
                is_due.then(|| {
                    all.on_issued(&cookie);
                    Issued::Token(cookie.encode())
                })
            }
            _ => None,
        }
    }

    /// Returns the current path state as a cookie.
    fn cookie(&self, connection: &Connection) -> Cookie {
        let past = self.past.as_ref().and_then(Option::as_ref).map(|past| &past.1.cookie);
        delivery::path_state(connection, past, unix_now(), self.unit.0)
    }
}

fn start(
    connection: &mut Connection,
    mode: Mode,
    inputs: &Inputs,
    config: &config::Startup,
) -> Started {
    let limits = Limits {
        mtu: connection.mtu(),
        max_jump: config.max_jump.0,
        usual_window: config.usual_window.0,
        usual_rtt: config.usual_rtt,
    };
    delivery::start(connection, mode, inputs, &limits)
}

/// Returns the validity rules of cookies.
pub(super) fn rules(config: &config::Startup) -> CookieRules {
    CookieRules { lifetime: config.lifetime, ..CookieRules::default() }
}

/// Returns the cookies of the handshake. Tickets and tokens may carry no application data.
pub(super) fn handshake_cookies(info: &HandshakeInfo) -> Vec<ReceivedCookie> {
    let carried = [
        (Carrier::Token, info.returned_token.as_deref()),
        (Carrier::Ticket, info.returned_ticket.as_deref()),
    ];
    let carried = carried.into_iter().filter_map(|(carrier, bytes)| {
        Some((carrier, Cookie::decode(bytes.filter(|bytes| !bytes.is_empty())?)))
    });
    let mut cookies: Vec<_> = carried.collect();
    cookies.shrink_to_fit();
    cookies
}
