//! One RTMP connection: a publisher, a player, or neither yet.
//!
//! One task drives a sans-IO [`Server`]. It reads and writes whenever the socket is ready. A
//! player's next tags are pulled only after everything before them was written, so a slow player
//! costs no memory and skips like any other viewer.
//!
//! Each state has a deadline that unrelated traffic does not extend: for the handshake, and then
//! for the first request. Publishers must send media, and players must read. A silent player is
//! pinged after the media, so only a reading player can answer.

mod deadlines;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::{Buf as _, Bytes, BytesMut};
use media::flv;
use media::rtmp::{self, Event, Request, Server};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::naming::{proofs, publisher_proofs, stream_name};
use super::places::Places;
use super::roles::{RoleEvent, RtmpPlayer, RtmpRole, Waiting, poll_tags};
use super::transport::{AbnormalEnd, Transport, received, send};
use crate::bans::Refused;
use crate::entropy::noise;
use crate::hooks::Hook;
use crate::ingest::pull::Via;
use crate::ingest::{ENDED, Publishing, authorize};
use crate::limits::Place;
use crate::live::{Admission, DeviationLog, Dismissal, Missing};
use crate::names::printable;
use crate::passes::ViewerId;
use crate::play::{self, ViewerRejection};
use crate::sessions::Opening;
use crate::signing::may_play;
use crate::state::{Shared, State};
use crate::viewer::Protocol;

/// Read buffer size in bytes.
const READ_SIZE: usize = 64 * 1024;
/// Maximum slices per write.
const MAX_SLICES: usize = 64;
/// Timeout for the final messages to a rejected or ended peer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Times for the deadlines.
struct Times {
    /// Start of the connection, or end of its publishing or playing.
    idle: Instant,
    /// Last arrival of data.
    last_received: Instant,
    /// Last write, or last time without pending output.
    last_sent: Instant,
    /// Time of the unanswered ping.
    pinged: Option<Instant>,
    /// Last refill of the allowance for messages without media.
    allowed: Instant,
}

/// Waits until publishers must leave: some time after the start of a drain.
async fn drained(shared: &Shared) {
    shared.drained().await;
    sleep(shared.state().config.drain.publishers).await;
}

pub(super) struct RtmpConnection {
    shared: Arc<Shared>,
    state: Arc<State>,
    remote: SocketAddr,
    places: Places,
    server: Server,
    role: RtmpRole,
    output: VecDeque<Bytes>,
    /// Whether TLS has sent everything that was written.
    is_flushed: bool,
    /// Logged protocol violations of the peer.
    deviations: DeviationLog,
    /// Bytes received.
    received: u64,
    times: Times,
    /// Stop reading, write the pending output, then close.
    ending: bool,
}

impl RtmpConnection {
    pub(super) fn new(
        shared: Arc<Shared>,
        state: Arc<State>,
        remote: SocketAddr,
        places: Places,
    ) -> Self {
        let config = rtmp::Config {
            max_message: state.config.live.max_tag.as_usize(),
            multitrack: state.config.ladder.iter().any(|ladder| ladder.multitrack),
            ..rtmp::Config::default()
        };
        let now = Instant::now();
        Self {
            server: Server::new(config, &noise()),
            shared,
            state,
            remote,
            places,
            role: RtmpRole::Nothing,
            output: VecDeque::new(),
            is_flushed: true,
            deviations: DeviationLog::default(),
            received: 0,
            times: Times {
                idle: now,
                last_received: now,
                last_sent: now,
                pinged: None,
                allowed: now,
            },
            ending: false,
        }
    }

    pub(super) async fn run<S: Transport>(mut self, mut stream: S) -> Result<(), AbnormalEnd> {
        let result = self.drive(&mut stream).await;
        if let RtmpRole::Publishes(held) = self.become_idle() {
            tracing::info!("{}: publisher {} disconnected", held.name(), self.remote);
            held.leave(&self.state);
        }
        if matches!(result, Err(AbnormalEnd::Evicted | AbnormalEnd::Late(..))) {
            crate::io::reset(stream.tcp());
            return result;
        }
        // The pending output may tell the peer the reason.
        let _ = timeout(CLOSE_TIMEOUT, async {
            self.collect();
            for piece in self.output {
                stream.write_all(&piece).await?;
            }
            stream.shutdown().await?;
            // Drain unread data, which would turn the close into a reset.
            if result.is_ok() {
                let mut sink = BytesMut::with_capacity(READ_SIZE);
                while stream.read_buf(&mut sink).await? > 0 {
                    sink.clear();
                }
            }
            io::Result::Ok(())
        })
        .await;
        result
    }

    async fn drive<S: Transport>(&mut self, stream: &mut S) -> Result<(), AbnormalEnd> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut input = BytesMut::with_capacity(READ_SIZE);
        let shared = self.shared.clone();
        let mut drained = pin!(drained(&shared));
        let mut is_drained = false;
        let mut timer = pin!(sleep_until(self.deadline()));
        loop {
            self.collect();
            if self.ending && self.output.is_empty() {
                return Ok(());
            }
            // It may end early: deadlines mostly move back, and each move would cost a lock.
            let deadline = self.deadline();
            if deadline < timer.deadline() {
                timer.as_mut().reset(deadline);
            }
            let slices: Vec<IoSlice<'_>> =
                self.output.iter().take(MAX_SLICES).map(|piece| IoSlice::new(piece)).collect();
            let pulls = slices.is_empty() && self.is_flushed && !self.ending;
            let role = &mut self.role;
            let next = poll_fn(|context| match role {
                RtmpRole::Plays(player) if player.session.stay().poll_over(context).is_ready() => {
                    Poll::Ready(RoleEvent::Tags(Vec::new()))
                }
                RtmpRole::Plays(player) if pulls && !player.paused => {
                    poll_tags(&mut player.viewer, context).map(RoleEvent::Tags)
                }
                RtmpRole::Waits(waiting) => {
                    waiting.viewer.poll_kinds(context).map(RoleEvent::Kinds)
                }
                RtmpRole::Publishes(held) => held.poll_lost(context).map(RoleEvent::Lost),
                _ => Poll::Pending,
            });
            tokio::select! {
                read = reader.read_buf(&mut input), if !self.ending => {
                    if received(read)? == 0 {
                        return Ok(());
                    }
                    self.received += input.len() as u64;
                    self.allow_messages();
                    let result = self.server.handle(&input);
                    input.clear();
                    self.take_events().await;
                    // After the events: a hook may have taken a while to answer.
                    (self.times.last_received, self.times.pinged) = (Instant::now(), None);
                    self.take_deviations();
                    result.map_err(|e| AbnormalEnd::Peer(e.to_string()))?;
                    // Let other connections run before reading on.
                    yield_now().await;
                }
                sent = send(&mut writer, &slices), if !slices.is_empty() || !self.is_flushed => {
                    self.is_flushed = slices.is_empty() || !S::IS_BUFFERED;
                    self.advance(sent?);
                    self.times.last_sent = Instant::now();
                }
                next = next => self.take_next(next),
                () = &mut timer => {
                    self.on_deadline()?;
                    timer.as_mut().reset(self.deadline());
                }
                () = self.places.evicted() => return Err(AbnormalEnd::Evicted),
                () = &mut drained, if !is_drained => {
                    is_drained = true;
                    self.on_drained();
                }
            }
        }
    }

    /// Ends publishing when the drain's grace period is over: the stream ends for its viewers, and
    /// the publisher reconnects to another server.
    fn on_drained(&mut self) {
        match self.become_idle() {
            RtmpRole::Publishes(held) => {
                let name = held.name();
                tracing::info!("{name}: publisher {} disconnected by the drain", self.remote);
                held.end(&self.state);
                self.server.revoke("the server is going away");
                self.ending = true;
            }
            RtmpRole::Nothing => self.ending = true,
            role => self.role = role,
        }
    }

    /// Moves the server's pending messages to the output.
    fn collect(&mut self) {
        if !self.has_unsent() {
            self.times.last_sent = Instant::now();
        }
        self.output.extend(core::iter::from_fn(|| self.server.poll_output()));
    }

    fn advance(&mut self, mut written: usize) {
        while written > 0
            && let Some(piece) = self.output.front_mut()
        {
            let taken = written.min(piece.len());
            piece.advance(taken);
            written -= taken;
            if piece.is_empty() {
                self.output.pop_front();
            }
        }
    }

    async fn take_events(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Publish(request) => self.on_publish(&request).await,
                Event::Play(request) => self.on_play(&request).await,
                Event::Tag(tag) => {
                    let RtmpRole::Publishes(held) = &mut self.role else { continue };
                    if let Err(loss) = held.push(tag, &self.state) {
                        self.on_lost(loss);
                    }
                }
                Event::Unpublish => {
                    if let RtmpRole::Publishes(held) = self.become_idle() {
                        tracing::info!("{}: publishing stopped", held.name());
                        held.end(&self.state);
                    }
                }
                Event::Paused(now) => {
                    if let RtmpRole::Plays(player) = &mut self.role {
                        player.paused = now;
                    }
                }
                Event::StopPlay => {
                    if let RtmpRole::Waits(_) = self.become_idle() {
                        // Completes the pending play request; nobody reads the answer.
                        self.server.refuse("");
                    }
                }
            }
        }
    }

    /// Counts the peer's tolerated protocol violations, and logs each kind once.
    fn take_deviations(&mut self) {
        let met = self.server.deviations();
        let who = match &self.role {
            RtmpRole::Publishes(held) => held.name(),
            _ => "RTMP",
        };
        self.deviations.record(&self.state.live.tolerated, who, met);
    }

    /// Ends the connection of a publisher that has lost its stream.
    fn on_lost(&mut self, loss: Dismissal) {
        let (event, how, why) = match loss {
            Dismissal::TakenOver => {
                ("taken_over", "taken over from", "another publisher has taken the stream over")
            }
            Dismissal::Ended => ("ended_by_operator", "ended for", ENDED),
        };
        if let RtmpRole::Publishes(held) = self.become_idle() {
            self.state.live.events.count(event);
            tracing::info!("{}: {how} publisher {}", held.name(), self.remote);
            match loss {
                // Tracks that the other publisher lacks may return.
                Dismissal::TakenOver => held.leave(&self.state),
                Dismissal::Ended => held.end(&self.state),
            }
        }
        self.server.revoke(why);
        self.ending = true;
    }

    /// Resets the role and returns the previous one.
    fn become_idle(&mut self) -> RtmpRole {
        self.times.idle = Instant::now();
        core::mem::replace(&mut self.role, RtmpRole::Nothing)
    }

    /// Marks the newcomer busy, so that it keeps its place until the request is answered.
    fn on_request(&self) {
        self.places.newcomer.iter().for_each(crate::limits::Permit::busy);
    }

    async fn on_publish(&mut self, request: &Request) {
        self.on_request();
        let config = &self.state.config;
        let name = stream_name(&config.host, request);
        let live = &self.state.live;
        let bans = &self.state.bans;
        let granted = async {
            if bans.refuse(Refused::Publish, self.remote.ip()) {
                return Err(Cow::from("refused"));
            }
            if bans.refuse_stream(&name) {
                return Err(ENDED.into());
            }
            let (sets, now) = (&self.state.key_sets, SystemTime::now());
            let proofs = publisher_proofs(request);
            let key = authorize(config, sets, &name, proofs, self.remote, now)?;
            let via = Via::of([request.cdn_loop.as_bytes()].into_iter());
            let via = via.ok_or("the stream passed this server already")?;
            let what = json!({
                "stream": name,
                "protocol": Protocol::Rtmp.name(),
                "remote": self.remote.ip().to_string(),
                "query": request.query,
            });
            let asker = play::asker(config, self.remote.ip());
            let asked = self.state.hooks.ask(&config.hooks, Hook::Publish, asker, what);
            let grant = asked.await.map_err(|why| why.to_string())?;
            let admission = Admission::new(key, grant);
            let held = Publishing::start(&self.state, &name, admission, via);
            held.map_err(|why| why.to_string().into())
        };
        match granted.await {
            Ok(held) => {
                live.events.count("published");
                let encoder = printable(&request.flash_ver);
                tracing::info!("{name}: published by {} ({encoder})", self.remote);
                self.server.accept();
                self.role = RtmpRole::Publishes(held);
                self.places.newcomer = None;
            }
            Err(why) => {
                live.events.count("publish_refused");
                let name = printable(&name);
                tracing::warn!("{name}: publisher {} refused: {why}", self.remote);
                self.server.refuse(&why);
                self.ending = true;
            }
        }
    }

    async fn on_play(&mut self, request: &Request) {
        self.on_request();
        let name = stream_name(&self.state.config.host, request);
        match self.admit(&name, request).await {
            Ok(waiting) => {
                self.role = RtmpRole::Waits(Box::new(waiting));
                self.places.newcomer = None;
            }
            Err(why) => self.refuse_player(&name, &why),
        }
    }

    fn refuse_player(&mut self, name: &str, why: &str) {
        tracing::debug!("{}: player {} refused: {why}", printable(name), self.remote);
        self.server.refuse(why);
        self.ending = true;
    }

    async fn admit(&mut self, name: &str, request: &Request) -> Result<Waiting, Cow<'static, str>> {
        let (config, sets, now) = (&self.state.config, &self.state.key_sets, SystemTime::now());
        let permission = may_play(config, sets, name, proofs(request), now);
        let until = permission.map_err(|why| why.to_string())?.until;
        if !play::is_known(&self.state, name) {
            return Err("no such stream".into());
        }
        let opening = Opening {
            stream: name.to_owned(),
            protocol: Protocol::Rtmp,
            format: "rtmp",
            remote: self.remote.ip(),
            viewer: ViewerId::random(),
            granted: now,
            until,
            unit: None,
            cohort: String::new(),
            scheme: "",
            tcp: None,
        };
        if self.state.bans.refuse_player(&opening) {
            return Err("refused".into());
        }
        // A player that waits for the hook or the stream already holds its places.
        if self.places.player.is_none() {
            let (limits, address) = (self.shared.limits(), self.remote.ip());
            let place = limits.enter(Place::RtmpPlayer, &self.state.config, Some(address));
            self.places.player = Some(place.map_err(|_| "too many players")?);
        }
        let permits = play::reserve(&self.state, &opening);
        let permits = permits.map_err(|_| "too many viewers at this address")?;
        let asked = play::ask_hook(self.state.clone(), opening.clone(), request.query.clone());
        let _asked = asked.await.map_err(ViewerRejection::reason)?;
        let stream = play::find(&self.state, name, opening.remote, Via::default());
        let stream = stream.map_err(Missing::reason)?;
        let viewer = play::watch(&self.state, stream).ok_or("too many viewers")?;
        Ok(Waiting { viewer, opening, permits })
    }

    /// Passes a stream event to the player or publisher.
    fn take_next(&mut self, next: RoleEvent) {
        if let RoleEvent::Lost(loss) = next {
            return self.on_lost(loss);
        }
        match (next, self.become_idle()) {
            (RoleEvent::Kinds(None), RtmpRole::Waits(waiting)) => {
                self.refuse_player(&waiting.opening.stream, "the upstream has no such stream");
            }
            (RoleEvent::Kinds(Some(_)), RtmpRole::Waits(waiting)) => {
                let Waiting { viewer, opening, permits } = *waiting;
                let name = opening.stream.clone();
                let Some(session) = play::begin(&self.state, opening, permits) else {
                    return self.refuse_player(&name, "refused");
                };
                self.server.accept();
                let player = RtmpPlayer { viewer, session, paused: false, based: false };
                self.role = RtmpRole::Plays(Box::new(player));
            }
            (RoleEvent::Tags(tags), RtmpRole::Plays(mut player)) if !tags.is_empty() => {
                for (tag, time) in tags {
                    if !player.based
                        && !tag.role().is_header()
                        && let Some(origin) = player.viewer.origin()
                    {
                        player.based = true;
                        self.server.send_tag(&flv::time_base_tag(origin));
                    }
                    self.server.send_tag_at(&tag, time);
                }
                let progress = player.viewer.progress();
                player.session.on_media(&progress);
                self.role = RtmpRole::Plays(player);
            }
            _ => {
                self.server.end_of_stream();
                self.ending = true;
            }
        }
    }
}
