//! Drives the TLS handshake through the packet-number spaces (RFC 9001, section 4), and applies its
//! completion.

use super::Connection;
use super::event::Event;
use super::peer::Peer;
use super::spaces::{EarlySpace, Handshake, SpaceId};
use crate::crypto::{KeyChange, Level, Tls, TlsConfig, initial_keys};
use crate::wire::{
    ConnectionId, TransportError, TransportErrorCode as Code, TransportParameters, types,
};
use units::Timestamp;

impl Handshake {
    /// Creates a handshake whose first Initial was addressed to `dcid`.
    pub(super) fn new(
        tls: &TlsConfig,
        parameters: Vec<u8>,
        dcid: ConnectionId,
        scid: ConnectionId,
        now: Timestamp,
    ) -> Self {
        let keys = initial_keys(dcid.as_slice());
        Self {
            tls: Tls::new(tls, parameters),
            early: [Some(EarlySpace::new(keys)), None],
            zero_rtt: None,
            client_scid: scid,
            started: now,
            early_packets: Vec::new(),
        }
    }
}

impl Connection {
    /// Passes in-order handshake bytes to TLS and takes its output.
    pub(super) fn advance_handshake(&mut self, now: Timestamp) {
        if let Err(error) = self.try_advance_handshake(now) {
            self.fail(now, error);
        }
    }

    fn try_advance_handshake(&mut self, now: Timestamp) -> Result<(), TransportError> {
        if self.handshake.is_none() {
            // A server accepts no TLS messages from a client after the handshake: QUIC has its own
            // key updates (RFC 9001, section 6), and post-handshake authentication is forbidden
            // (section 4.4).
            return match self.data.crypto_receive.take() {
                None => Ok(()),
                Some(_) => Err(TransportError::new(
                    Code::crypto(UNEXPECTED_MESSAGE),
                    types::CRYPTO,
                    "unexpected TLS message",
                )),
            };
        }
        for (id, level) in
            [(SpaceId::Initial, Level::Initial), (SpaceId::Handshake, Level::Handshake)]
        {
            while let Some(bytes) = self.space_mut(id).and_then(|space| space.crypto_receive.take())
            {
                let Some(handshake) = &mut self.handshake else { break };
                handshake.tls.read(level, &bytes).map_err(|error| {
                    let reason = "TLS handshake failed";
                    TransportError::new(Code::crypto(error.alert), types::CRYPTO, reason)
                })?;
                self.take_parameters()?;
                self.take_tls_output();
            }
        }
        let complete = self.handshake.as_ref().is_some_and(|h| !h.tls.is_handshaking());
        if complete {
            self.on_handshake_complete(now);
        }
        Ok(())
    }

    /// Reads the client's transport parameters once TLS has them.
    fn take_parameters(&mut self) -> Result<(), TransportError> {
        let Some(handshake) = &mut self.handshake else { return Ok(()) };
        if self.peer.known {
            return Ok(());
        }
        let Some(bytes) = handshake.tls.peer_transport_parameters() else { return Ok(()) };
        let parameters = TransportParameters::decode_client(bytes)?;
        // RFC 9000, section 7.3: the parameter is mandatory and must match the Source Connection ID
        // of the client's first Initial.
        if parameters.initial_source_connection_id != Some(handshake.client_scid) {
            return Err(TransportError::new(
                Code::TRANSPORT_PARAMETER_ERROR,
                types::CRYPTO,
                "initial_source_connection_id does not match",
            ));
        }
        self.peer = Peer::from(&parameters);
        self.path.mtud.limit(parameters.max_udp_payload_size);
        self.streams.set_peer_limits(&parameters);
        if let Some(info) = &mut self.info {
            info.rtt_hint = parameters.initial_rtt;
        }
        Ok(())
    }

    /// Moves TLS output to the CRYPTO streams, and changes keys where TLS says so.
    fn take_tls_output(&mut self) {
        let Some(handshake) = &mut self.handshake else { return };
        if self.config.early_data && handshake.zero_rtt.is_none() && self.keys.is_none() {
            handshake.zero_rtt = handshake.tls.zero_rtt_keys();
        }
        loop {
            let mut bytes = Vec::new();
            let change = handshake.tls.write(&mut bytes);
            let newest = handshake.early.iter_mut().rev().flatten().next();
            let target = match self.keys {
                Some(_) => Some(&mut self.data),
                None => newest.map(|early| &mut early.space),
            };
            let idle = bytes.is_empty() && change.is_none();
            if let Some(target) = target {
                target.crypto_send.write(&bytes);
            }
            match change {
                Some(KeyChange::Handshake(keys)) => {
                    handshake.early[1] = Some(EarlySpace::new(keys));
                }
                Some(KeyChange::OneRtt(keys)) => {
                    self.keys = Some(keys);
                    // 1-RTT packets can be sent from here on, so connection IDs can be issued.
                    self.control.local_ids.issue(self.peer.active_connection_id_limit);
                    if let Some(info) = &mut self.info {
                        info.alpn = handshake.tls.alpn().unwrap_or_default();
                        info.server_name = handshake.tls.server_name();
                        info.returned_ticket = handshake.tls.returned_ticket().map(<[u8]>::to_vec);
                    }
                    self.events.push_back(Event::Ready);
                }
                None => {}
            }
            if idle {
                break;
            }
        }
    }

    /// Handles the proof that the client received our Handshake packet.
    pub(super) fn on_handshake_packet(&mut self) {
        // RFC 9000, section 8.1: this validates the client's address.
        self.path.standing.validated = true;
        // RFC 9001, section 4.9.1: "a server MUST discard Initial keys when it first successfully
        // processes a Handshake packet".
        if let Some(handshake) = &mut self.handshake
            && let Some(early) = handshake.early[0].take()
        {
            self.path.in_flight -= early.space.ledger.in_flight(self.path.generation);
            self.probe_timer.reset_backoff();
        }
    }

    /// Confirms the handshake. On a server, that is when it completes (RFC 9001, section 4.1.2).
    fn on_handshake_complete(&mut self, now: Timestamp) {
        let Some(mut handshake) = self.handshake.take() else { return };
        for early in handshake.early.iter().flatten() {
            self.path.in_flight -= early.space.ledger.in_flight(self.path.generation);
        }
        self.probe_timer.reset_backoff();
        self.control.confirm_handshake();
        self.ticket = handshake.tls.take_ticket().map(Box::new);
        self.stats.handshake = now.since(handshake.started);
        self.stats.resumed = handshake.tls.resumed();
        self.stats.cipher = handshake.tls.cipher();
        tracing::debug!(rtt = ?self.path.rtt.smoothed(), "handshake confirmed");
        self.events.push_back(Event::Connected);
    }

    /// Closes the connection if its keys are exhausted, and starts a requested key update.
    pub(super) fn maintain_keys(&mut self, now: Timestamp) -> Result<(), TransportError> {
        let confirmed = self.handshake.is_none();
        let Some(keys) = &mut self.keys else { return Ok(()) };
        // RFC 9001, section 6.6: stop before the confidentiality limit.
        if keys.is_exhausted() {
            let reason = "the keys are used up";
            return Err(TransportError::new(Code::AEAD_LIMIT_REACHED, 0, reason));
        }
        if (self.update_keys || keys.should_update(self.config.key_update_after))
            && keys.initiate_update(confirmed, now).is_ok()
        {
            self.update_keys = false;
            tracing::debug!("key update");
            self.stats.key_updates += 1;
        }
        Ok(())
    }
}

/// The TLS alert (RFC 8446, section 6.2).
const UNEXPECTED_MESSAGE: u8 = 10;
