//! RTMP over TCP: publishers, and players.
//!
//! One task per connection drives a sans-IO [`Server`]. It reads whenever the peer sends and writes
//! whenever the peer takes; a player's next tag is pulled only when everything before it was
//! written, so a slow player costs no memory and skips like any other viewer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Buf as _, Bytes, BytesMut};
use media::rtmp::{self, Event, Request, Server};
use relay::{Publisher, Viewer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::entropy::noise;
use crate::hooks::Hook;
use crate::http::parameter;
use crate::ingest::{authorize, lose, publish};
use crate::passes::ViewerId;
use crate::play;
use crate::sessions::{Opening, Session};
use crate::signing::may_play;
use crate::state::{Shared, State};
use crate::viewer::Protocol;

/// Bytes that are read at once.
const READ: usize = 64 * 1024;
/// Pieces that are written at once.
const SLICES: usize = 64;
/// How long the last words to a refused or ended peer may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves `listener` until the drain is over. A connection needs one of `slots`; without one it is
/// closed.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>, slots: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    let mut drained = std::pin::pin!(shared.drained());
    loop {
        let accepted = tokio::select! {
            () = &mut drained => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, remote)) => {
                let Ok(slot) = slots.clone().try_acquire_owned() else {
                    tracing::warn!("RTMP {remote}: too many connections");
                    continue;
                };
                let state = shared.state();
                connections.spawn(async move {
                    match Connection::new(state.clone(), remote).run(stream).await {
                        Ok(()) => tracing::debug!("RTMP {remote}: closed"),
                        Err(e) => {
                            state.live.events.count("rtmp_error");
                            tracing::info!("RTMP {remote}: {e}");
                        }
                    }
                    drop(slot);
                });
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(e) => {
                // Out of descriptors, most likely: trying again at once would spin.
                tracing::warn!("RTMP accept: {e}");
                sleep(Duration::from_millis(500)).await;
            }
        }
    }
    drop(listener);
    let limit = shared.state().config.drain.timeout;
    let finished = timeout(limit, async { while connections.join_next().await.is_some() {} }).await;
    if finished.is_err() {
        tracing::warn!("{} RTMP connections cut off after {limit:?}", connections.len());
    }
}

/// What a connection is for.
enum Role {
    Nothing,
    Publishes(Publisher),
    Plays(Box<Player>),
}

struct Player {
    viewer: Viewer,
    session: Arc<Session>,
    paused: bool,
    /// When the permission to play ends.
    until: Option<SystemTime>,
}

impl Player {
    fn may_go_on(&self) -> bool {
        self.until.is_none_or(|until| SystemTime::now() <= until)
    }
}

struct Connection {
    state: Arc<State>,
    remote: SocketAddr,
    server: Server,
    role: Role,
    output: VecDeque<Bytes>,
    /// No more is read; what waits is written, then the connection is closed.
    ending: bool,
}

impl Connection {
    fn new(state: Arc<State>, remote: SocketAddr) -> Self {
        let config = rtmp::Config {
            max_message: state.config.live.max_tag.as_usize(),
            ..rtmp::Config::default()
        };
        let server = Server::new(config, &noise());
        let (role, output) = (Role::Nothing, VecDeque::new());
        Self { state, remote, server, role, output, ending: false }
    }

    async fn run(mut self, mut stream: TcpStream) -> Result<(), String> {
        let result = self.drive(&mut stream).await;
        if let Role::Publishes(publisher) = core::mem::replace(&mut self.role, Role::Nothing) {
            tracing::info!("{}: publisher {} is gone", publisher.stream().name(), self.remote);
            lose(&self.state.live, publisher, self.state.config.live.linger);
        }
        // What is left may tell the peer why.
        let _ = timeout(FAREWELL, async {
            self.collect();
            for piece in self.output {
                stream.write_all(&piece).await?;
            }
            stream.shutdown().await?;
            // What it sent meanwhile, unread, would turn our words into a reset.
            if result.is_ok() {
                let mut sink = BytesMut::with_capacity(READ);
                while stream.read_buf(&mut sink).await? > 0 {
                    sink.clear();
                }
            }
            io::Result::Ok(())
        })
        .await;
        result
    }

    async fn drive(&mut self, stream: &mut TcpStream) -> Result<(), String> {
        crate::io::prepare(stream);
        let idle = self.state.config.rtmp.timeout;
        let (mut reader, mut writer) = stream.split();
        let mut input = BytesMut::with_capacity(READ);
        let mut heard = Instant::now();
        loop {
            self.collect();
            if self.ending && self.output.is_empty() {
                return Ok(());
            }
            let slices: Vec<IoSlice<'_>> =
                self.output.iter().take(SLICES).map(|piece| IoSlice::new(piece)).collect();
            let (idle_role, pulls) = match &self.role {
                Role::Plays(player) => (false, slices.is_empty() && !player.paused && !self.ending),
                _ => (true, false),
            };
            let next = poll_fn(|context| match &mut self.role {
                Role::Plays(player) => player.viewer.poll_next(context),
                _ => core::task::Poll::Pending,
            });
            tokio::select! {
                read = reader.read_buf(&mut input), if !self.ending => {
                    if read.map_err(|e| e.to_string())? == 0 {
                        return Ok(());
                    }
                    heard = Instant::now();
                    let result = self.server.handle(&input);
                    input.clear();
                    self.take_events().await;
                    result.map_err(|e| e.to_string())?;
                }
                written = writer.write_vectored(&slices), if !slices.is_empty() => {
                    let written = written.map_err(|e| e.to_string())?;
                    // A player that takes what we send is there, though it says little.
                    heard = Instant::now();
                    self.advance(written);
                }
                tag = next, if pulls => self.play(tag),
                () = sleep_until(heard + idle), if idle_role || !slices.is_empty() => {
                    return Err(format!("nothing heard for {idle:?}"));
                }
            }
        }
    }

    /// Moves what the server has to say to the output.
    fn collect(&mut self) {
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
                    let Role::Publishes(publisher) = &self.role else { continue };
                    // A stream that was ended takes no more; the publisher should know.
                    self.ending |= !publisher.push(tag);
                }
                Event::Unpublish => {
                    if let Role::Publishes(publisher) =
                        core::mem::replace(&mut self.role, Role::Nothing)
                    {
                        let stream = publisher.stream().clone();
                        drop(publisher);
                        tracing::info!("{}: published no more", stream.name());
                        self.state.live.streams.end(&stream);
                    }
                }
                Event::Paused(now) => {
                    if let Role::Plays(player) = &mut self.role {
                        player.paused = now;
                    }
                }
                Event::StopPlay => self.role = Role::Nothing,
            }
        }
    }

    async fn on_publish(&mut self, request: &Request) {
        let name = format!("{}/{}", request.app, request.stream);
        let key = parameter(&request.query, "key");
        let config = &self.state.config;
        let live = &self.state.live;
        let granted = async {
            authorize(config, &name, key, self.remote)?;
            let what = json!({
                "stream": name,
                "protocol": Protocol::Rtmp.name(),
                "remote": self.remote.ip().to_string(),
                "query": request.query,
            });
            self.state.hooks.ask(&config.hooks, Hook::Publish, what).await?;
            publish(live, config, &name)
        };
        match granted.await {
            Ok(publisher) => {
                live.events.count("published");
                tracing::info!("{name}: published by {} ({})", self.remote, request.flash_ver);
                self.server.accept();
                self.role = Role::Publishes(publisher);
            }
            Err(why) => {
                live.events.count("publish_refused");
                tracing::warn!("{name}: publisher {} refused: {why}", self.remote);
                self.server.refuse(&why);
                self.ending = true;
            }
        }
    }

    async fn on_play(&mut self, request: &Request) {
        let name = format!("{}/{}", request.app, request.stream);
        match self.admit(&name, request).await {
            Ok(player) => {
                self.server.accept();
                self.role = Role::Plays(Box::new(player));
            }
            Err(why) => {
                tracing::debug!("{name}: player {} refused: {why}", self.remote);
                self.server.refuse(why);
                self.ending = true;
            }
        }
    }

    async fn admit(&self, name: &str, request: &Request) -> Result<Player, &'static str> {
        let parameter = |name: &str| parameter(&request.query, name);
        let (expires, signature) = (parameter("expires"), parameter("sig"));
        let now = SystemTime::now();
        let permission = may_play(&self.state.config, name, expires, signature, now);
        let until = permission.ok_or("no valid signature")?.until;
        if !play::is_known(&self.state, name) {
            return Err("no such stream");
        }
        let opening = Opening {
            stream: name.to_owned(),
            protocol: Protocol::Rtmp,
            format: "rtmp",
            remote: self.remote.ip(),
            viewer: ViewerId::random(),
            unit: None,
            cohort: String::new(),
            scheme: "",
        };
        if !play::ask_hook(self.state.clone(), opening.clone(), request.query.clone()).await {
            return Err("refused");
        }
        let stream = play::find(&self.state, name).ok_or("no such stream")?;
        let mut viewer = play::watch(&self.state, stream).ok_or("too many viewers")?;
        let kinds = poll_fn(|context| viewer.poll_kinds(context)).await;
        kinds.ok_or("the upstream has no such stream")?;
        let session = self.state.sessions.open(opening);
        Ok(Player { viewer, session, paused: false, until })
    }

    /// Hands a player its next tag.
    fn play(&mut self, tag: Option<media::Tag>) {
        match (tag, &self.role) {
            (Some(tag), Role::Plays(player)) if player.may_go_on() => {
                self.server.send_tag(&tag);
                let progress = player.viewer.progress();
                player.session.on_media(progress.bytes, progress.skips, progress.skipped_ms);
            }
            _ => {
                self.server.end_of_stream();
                self.role = Role::Nothing;
                self.ending = true;
            }
        }
    }
}
