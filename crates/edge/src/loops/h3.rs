//! HTTP/3 (RFC 9114) as application protocol.

use std::collections::VecDeque;

use ::quic::Connection;
use ::quic::streams::StreamEvent;
use bytes::BytesMut;
use delivery::Framing;
use http3::{OverQuic, RequestHead as Head, SendError, Server, code};
use units::{StreamId, Timestamp};

use super::application::{Application, ClientAction, ReceivedRequest};
use crate::config;
use crate::http::{Response, max_body};
use crate::viewer::Protocol;

/// Maximum requests waiting for their body, and as many for the end of the handshake. Players send
/// reports one by one.
const MAX_KEPT: usize = 8;

/// A request that waits for its body.
struct Upload {
    id: StreamId,
    head: Box<Head>,
    body: BytesMut,
    max: usize,
}

/// HTTP/3 on one connection.
pub(super) struct H3 {
    server: Box<Server>,
    uploads: Vec<Upload>,
    /// Unsafe requests in 0-RTT data, which may be replays. They wait for the handshake.
    held: Vec<(StreamId, ReceivedRequest)>,
    actions: VecDeque<ClientAction>,
    /// Whether [`ClientAction::Flooding`] was reported.
    is_flooding: bool,
}

impl H3 {
    /// Starts the protocol by sending SETTINGS.
    pub(super) fn start(now: Timestamp, connection: &mut Connection, quic: &config::Quic) -> Self {
        let config = http3::Config {
            max_concurrent_requests: quic.max_streams as usize,
            grease: now.as_nanos() as u32,
            request_timeout: quic.request_timeout,
            unused_timeout: quic.unused_timeout,
            ..http3::Config::default()
        };
        let mut server = Box::new(Server::new(config));
        server.start(&mut OverQuic::new(connection, now));
        let (uploads, held, actions) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { server, uploads, held, actions, is_flooding: false }
    }

    fn take_events(&mut self, now: Timestamp, connection: &mut Connection) {
        while let Some(event) = self.server.poll_event() {
            match event {
                http3::Event::Request { id, head, end } => {
                    self.on_request(now, connection, id, head, end);
                }
                http3::Event::BodyReadable(id) => self.take_body(now, connection, id),
                http3::Event::RequestEnd(id) => {
                    if let Some(Upload { head, body, .. }) = self.take_upload(id) {
                        self.ask(now, connection, id, &head, body);
                    }
                }
                http3::Event::Cancelled { id, .. } => {
                    self.uploads.retain(|upload| upload.id != id);
                    self.held.retain(|(held, _)| *held != id);
                    self.actions.push_back(ClientAction::Over(id));
                }
                http3::Event::Trailers { .. } | http3::Event::GoAway => {}
            }
        }
        if self.server.is_flooding() && !core::mem::replace(&mut self.is_flooding, true) {
            self.actions.push_back(ClientAction::Flooding);
        }
    }

    fn on_request(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        head: Box<Head>,
        end: bool,
    ) {
        let max = max_body(&text(&head.method), &text(&head.path));
        if end || max == 0 {
            // Without a body the discard has no effect.
            self.server.discard_body(&mut OverQuic::new(connection, now), id);
            self.ask(now, connection, id, &head, BytesMut::new());
        } else if self.uploads.len() < MAX_KEPT {
            self.uploads.push(Upload { id, head, body: BytesMut::new(), max });
        } else {
            self.reject(now, connection, id);
        }
    }

    fn take_upload(&mut self, id: StreamId) -> Option<Upload> {
        let index = self.uploads.iter().position(|upload| upload.id == id)?;
        Some(self.uploads.swap_remove(index))
    }

    fn take_body(&mut self, now: Timestamp, connection: &mut Connection, id: StreamId) {
        let Some(upload) = self.uploads.iter_mut().find(|upload| upload.id == id) else { return };
        let t = &mut OverQuic::new(connection, now);
        while let http3::BodyRead::Data(data) = self.server.read_body(t, id, 65_536) {
            upload.body.extend_from_slice(&data);
            if upload.body.len() > upload.max {
                self.server.discard_body(t, id);
                self.take_upload(id);
                self.actions.push_back(ClientAction::Refused(id, 413));
                return;
            }
        }
    }

    /// Passes a request on, or holds it until the handshake is confirmed.
    fn ask(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        head: &Head,
        body: BytesMut,
    ) {
        let fields = head.headers.iter().map(|field| (text(&field.name), field.value.clone()));
        let request = ReceivedRequest {
            method: text(&head.method),
            authority: text(&head.authority),
            target: text(&head.path),
            fields: fields.collect(),
            body,
            protocol: Protocol::Http3,
        };
        let is_safe = matches!(&head.method[..], b"GET" | b"HEAD");
        if is_safe || !head.early || !connection.is_early() {
            self.actions.push_back(ClientAction::Request(id, request));
        } else if self.held.len() < MAX_KEPT {
            self.held.push((id, request));
        } else {
            self.reject(now, connection, id);
        }
    }

    /// Rejects a request, so that the client may repeat it.
    fn reject(&mut self, now: Timestamp, connection: &mut Connection, id: StreamId) {
        self.server.cancel(&mut OverQuic::new(connection, now), id, code::H3_REQUEST_REJECTED);
    }
}

fn text(bytes: &[u8]) -> String {
    core::str::from_utf8(bytes).unwrap_or_default().to_owned()
}

impl Application for H3 {
    fn framing(&mut self) -> &mut dyn Framing {
        &mut *self.server
    }

    fn on_stream(&mut self, now: Timestamp, connection: &mut Connection, event: StreamEvent) {
        self.server.on_stream_event(&mut OverQuic::new(connection, now), event);
        self.take_events(now, connection);
    }

    fn on_connected(&mut self) {
        let held = self.held.drain(..).map(|(id, request)| ClientAction::Request(id, request));
        self.actions.extend(held);
    }

    fn poll(&mut self) -> Option<ClientAction> {
        let action = self.actions.pop_front();
        if action.is_none() {
            // Viewers send one request.
            self.actions = VecDeque::new();
        }
        action
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.server.deadline()
    }

    fn on_timeout(&mut self, now: Timestamp, connection: &mut Connection) {
        if self.server.deadline().is_some_and(|at| at <= now) {
            self.server.on_timeout(&mut OverQuic::new(connection, now));
            self.take_events(now, connection);
        }
    }

    fn respond(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        response: &Response,
        is_empty: bool,
    ) -> bool {
        let headers: Vec<(&str, &str)> =
            response.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let t = &mut OverQuic::new(connection, now);
        match self.server.respond(t, id, response.status, &headers, is_empty) {
            Ok(()) => !is_empty,
            // The client cancelled the request meanwhile.
            Err(SendError::Gone) => false,
            // Usually the client's limit on field sections is too small.
            Err(_) => {
                self.server.cancel(t, id, code::H3_INTERNAL_ERROR);
                false
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.server.is_drained()
    }

    fn go_away(&mut self, now: Timestamp, connection: &mut Connection) {
        self.server.go_away(&mut OverQuic::new(connection, now));
    }
}
