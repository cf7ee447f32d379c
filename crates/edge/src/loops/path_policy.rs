//! How one connection uses its path: its startup from saved path state, the cap of its user group,
//! and the measurements for its sessions' records.
//!
//! [`Requests`](super::requests::Requests) calls four hooks: the connection has opened
//! ([`PathPolicy::opened`]), a response begins ([`PathPolicy::on_response`]), data may move
//! ([`PathPolicy::on_progress`], and [`PathPolicy::on_filled`] for each response), and nothing is
//! left to answer ([`PathPolicy::on_idle`]). A cookie walks to the initial window in this order:
//! from `opened` (token or ticket) or `on_request` (HTTP) to `on_response`, which judges it and
//! starts the controller.

use std::sync::Arc;
use std::time::Duration;

use ::quic::{Connection, HandshakeInfo};
use delivery::{Body as _, Delivery, FlvStream, Playing, Started};
use startup::Guided;
use units::{Rate, Timestamp};

use super::connection_start::{self, ConnectionStart, Issued};
use super::watch::Watch;
use crate::autoplex::ConnectionCap;
use crate::clock::unix_now;
use crate::cohorts::{Assignment, ClientFacts, Cohort};
use crate::entropy::random;
use crate::http::{RequestHead, Responder, Response};
use crate::ladder;
use crate::path_cookie;
use crate::routes::hls;
use crate::sessions::Session;
use crate::state::State;
use crate::viewer::Unit;

/// Maximum sessions per connection with transport statistics; usually there is one.
const MAX_WATCHES: usize = 32;

/// Interval of updates of the streams' bitrates in sessions.
const BITRATE_PERIOD: Duration = Duration::from_secs(1);

/// Returns a random number for a new viewer's unit; 0 without system randomness, so that the
/// network alone decides.
fn random_number() -> u64 {
    let random = random().unwrap_or_default();
    random.iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// The path policy of one connection.
pub(super) struct PathPolicy {
    viewer: Assignment,
    /// The start of the connection and the cookies for the next one.
    start: ConnectionStart,
    /// The cap of the user group, from the first session on.
    cap: Option<Box<ConnectionCap>>,
    /// Transport statistics for the sessions of this connection.
    watches: Vec<Watch>,
    /// Time of the next bitrate update.
    bitrate_due: Timestamp,
}

impl PathPolicy {
    /// Chooses the viewer's cohort after protocol negotiation, and applies its recovery scheme.
    pub(super) fn opened(
        now: Timestamp,
        connection: &mut Connection,
        state: &State,
        info: &HandshakeInfo,
    ) -> Self {
        let cookies = connection_start::handshake_cookies(info);
        let cookie = cookies.iter().find_map(|(_, cookie)| cookie.as_ref().ok().copied());
        let client = connection.addresses().remote.ip();
        let viewer = state
            .cohorts
            .choose(&ClientFacts { unit: cookie.map(|cookie| Unit(cookie.unit)), remote: client });
        let unit = state.cohorts.next_unit(&viewer, random_number());
        let start = ConnectionStart::new(viewer.cohort.start, cookies, unit);
        let mut scheme = viewer.cohort.scheme.build(viewer.unit.0 ^ now.as_nanos());
        // Records include the loss correlation.
        scheme.correlation |= state.config.records.directory.is_some();
        connection.set_scheme(scheme);
        let rules = connection_start::rules(&state.config.startup);
        if let Some(expected) =
            cookie.and_then(|cookie| cookie.expected(client, unix_now(), &rules))
        {
            connection.expect(&expected);
        }
        Self { viewer, start, cap: None, watches: Vec::new(), bitrate_due: Timestamp::ZERO }
    }

    /// Returns the viewer's unit and cohort.
    pub(super) fn cohort(&self) -> (Unit, &Cohort) {
        (self.viewer.unit, &self.viewer.cohort)
    }

    /// Notes that the handshake is confirmed.
    pub(super) fn on_connected(&mut self, now: Timestamp) {
        self.start.on_connected(now);
    }

    /// Returns the delivery rate of the path, as measured or saved.
    pub(super) fn rate(&self, connection: &Connection, state: &State) -> Option<Rate> {
        self.start.rate(connection, &state.saved_paths, &state.config.startup)
    }

    /// Takes the saved path state of a request's HTTP cookie.
    pub(super) fn on_request(&mut self, state: &State, head: &RequestHead<'_>) {
        if state.config.startup.http_cookie
            && let Some(cookie) = path_cookie::read(head, &state.quic.keys())
        {
            self.start.on_http_cookie(cookie);
        }
    }

    /// Returns the HTTP cookie for a response, if one is due.
    pub(super) fn next_http_cookie(
        &mut self,
        now: Timestamp,
        connection: &Connection,
        state: &State,
        response: &Response,
    ) -> Option<String> {
        let startup = &state.config.startup;
        if !startup.http_cookie || !path_cookie::may_carry(response) {
            return None;
        }
        let cookie = self.start.next_http_cookie(now, connection)?;
        Some(path_cookie::field(&cookie, &state.quic.keys(), startup.lifetime))
    }

    /// Handles the start of a response with this body: makes the startup decision at the first one
    /// of some size, and measures and caps from the first session on.
    pub(super) fn on_response(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        state: &State,
        content_type: Option<&str>,
        body: &Responder,
    ) {
        match content_type {
            Some(hls::PLAYLIST) => self.start.on_playlist(&state.config.startup),
            Some(kind) if kind.starts_with("text/html") => self.start.on_page(),
            _ => {}
        }
        self.begin(connection, state, body);
        if let Some(session) = body.session() {
            self.measure(now, connection, session);
            if self.cap.is_none() {
                let (all, config) = (&state.autoplex, &state.config.autoplex);
                let address = connection.addresses().remote.ip();
                let cap = ConnectionCap::begin(all, config, address, self.viewer.unit, session);
                self.cap = cap.map(Box::new);
            }
        }
    }

    /// Makes the startup decision at the first response of some size.
    fn begin(&mut self, connection: &mut Connection, state: &State, body: &Responder) {
        let start = &mut self.start;
        let first_frame = match body.live() {
            Some(live) => live.first_frame_ahead(),
            None => start.perceive(body.pieces()),
        };
        let (all, config) = (&state.saved_paths, &state.config.startup);
        if let Some(session) = body.session() {
            if let Some(started) = start.on_live(connection, first_frame, all, config) {
                session.on_started(started);
            }
        } else if let Some(length) = body.remaining() {
            start.on_other(connection, length, all, config);
        }
    }

    /// Starts the transport statistics of a session.
    fn measure(&mut self, now: Timestamp, connection: &Connection, session: &Arc<Session>) {
        self.watches.retain(Watch::is_open);
        let is_known = self.watches.iter().any(|watch| watch.is_of(session));
        if !is_known && self.watches.len() < MAX_WATCHES {
            // Most connections have one session, and a vector makes room for four.
            self.watches.reserve_exact(1);
            self.watches.push(Watch::new(session, now, connection));
        }
    }

    /// Handles a moment at which data may move: updates the sessions' statistics and bitrates, and
    /// applies the cap.
    pub(super) fn on_progress(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        state: &State,
        responses: &[Delivery<Responder>],
    ) {
        for watch in &mut self.watches {
            watch.update(now, connection, false);
        }
        let is_bitrate_due = now >= self.bitrate_due;
        let is_cap_due = self.cap.as_ref().is_some_and(|cap| cap.is_due(now));
        if !is_bitrate_due && !is_cap_due {
            return;
        }
        let media = |response: &Delivery<Responder>| {
            let (body, streams) = (response.body(), &state.live.streams);
            let session = body.session()?.clone();
            let playing = body.live().map(FlvStream::playing).unwrap_or_else(|| Playing {
                bitrate: ladder::bitrate(&state.config, streams, &session.opening().stream),
                lag: None,
            });
            Some((session, playing))
        };
        let Some((session, playing)) = responses.iter().find_map(media) else { return };
        if let Some(rate) = playing.bitrate.filter(|_| is_bitrate_due) {
            self.bitrate_due = now + BITRATE_PERIOD;
            session.on_autoplex(|columns| columns.bitrate = Some(rate));
        }
        if let Some(cap) = self.cap.as_mut().filter(|_| is_cap_due) {
            cap.update(now, connection, &state.autoplex, playing);
        }
    }

    /// Handles data of a response that was passed to the transport. `has_shown` if the viewer has
    /// received the first frame since the last call.
    pub(super) fn on_filled(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        state: &State,
        response: &Delivery<Responder>,
        has_shown: bool,
    ) {
        if has_shown {
            self.start.on_first_frame(now, connection);
        }
        let live = response.body().live().filter(|_| self.start.awaits_size());
        if let Some((size, session)) =
            live.and_then(FlvStream::first_frame_ahead).zip(response.body().session())
            && let Some(started) = self.start.on_size(connection, size, &state.config.startup)
        {
            session.on_started(started);
        }
    }

    /// Notes that the last response in progress, of `media` or not, was passed to the transport.
    pub(super) fn on_idle(&mut self, now: Timestamp, connection: &Connection, media: bool) {
        self.start.on_idle(now, connection, media);
    }

    /// Updates the sessions' statistics for the last time, as viewers may be about to leave.
    pub(super) fn on_last_chance(&mut self, now: Timestamp, connection: &Connection) {
        self.watches.iter_mut().for_each(|watch| watch.update(now, connection, true));
    }

    /// Counts the outcome of the jump when the connection is closed.
    pub(super) fn on_closed(&mut self, now: Timestamp, connection: &Connection, state: &State) {
        self.on_last_chance(now, connection);
        let jump = delivery::guided(connection).map(Guided::verdict).unwrap_or_default();
        state.saved_paths.on_verdict(jump);
    }

    /// Returns when [`PathPolicy::issue`] has a cookie.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.start.deadline()
    }

    /// Returns the ticket or token to send now.
    pub(super) fn issue(
        &mut self,
        now: Timestamp,
        connection: &Connection,
        state: &State,
    ) -> Option<Issued> {
        self.start.issue(now, connection, &state.saved_paths)
    }

    /// Returns the startup decision, if made.
    pub(super) fn started(&self) -> Option<&Started> {
        self.start.started()
    }
}
