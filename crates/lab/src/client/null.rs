//! Null cipher for `quinn-proto`: a TLS session with 1-RTT keys that leave packets unchanged and
//! append the 16-byte tag of [`quic::crypto::null_tag`]. Handshake and transport are the library's own, so
//! the sequence of packets equals the real cipher's.

use std::any::Any;
use std::sync::Arc;

use bytes::BytesMut;
use quic::crypto::null_tag;
use quinn_proto as quinn;
use quinn_proto::crypto::{
    CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};

pub(super) struct ClientConfig(pub Arc<quinn::crypto::rustls::QuicClientConfig>);

impl quinn::crypto::ClientConfig for ClientConfig {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn quinn::crypto::Session>, ConnectError> {
        let real = self.0.clone().start_session(version, server_name, params)?;
        Ok(Box::new(NullSession { real, keys_handed_out: 0, generation: 0 }))
    }
}

struct NullSession {
    real: Box<dyn quinn::crypto::Session>,
    /// Handshake keys are handed out first, 1-RTT keys second.
    keys_handed_out: u8,
    /// Generation of the latest 1-RTT keys.
    generation: u8,
}

impl quinn::crypto::Session for NullSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.real.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.real.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.real.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.real.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.real.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.real.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.real.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.real.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.real.write_handshake(buf)?;
        self.keys_handed_out += 1;
        if self.keys_handed_out < 2 {
            return Some(keys);
        }
        Some(Keys {
            header: KeyPair { local: Box::new(Null(0)), remote: Box::new(Null(0)) },
            packet: KeyPair { local: Box::new(Null(0)), remote: Box::new(Null(0)) },
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.generation = self.generation.wrapping_add(1);
        let key = || Box::new(Null(self.generation));
        Some(KeyPair { local: key(), remote: key() })
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.real.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.real.export_keying_material(output, label, context)
    }
}

/// Key of a generation.
struct Null(u8);

impl PacketKey for Null {
    fn encrypt(&self, _packet: u64, buf: &mut [u8], _header_len: usize) {
        let tag = null_tag(self.0);
        let payload = buf.len() - tag.len();
        buf[payload..].copy_from_slice(&tag);
    }

    fn decrypt(
        &self,
        _packet: u64,
        _header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let tag = null_tag(self.0);
        let length = payload.len().checked_sub(tag.len()).ok_or(CryptoError)?;
        if payload[length..] != tag {
            return Err(CryptoError);
        }
        payload.truncate(length);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        null_tag(self.0).len()
    }

    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        u64::MAX
    }
}

impl HeaderKey for Null {
    fn decrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn encrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    /// As for AES and ChaCha20 (RFC 9001, section 5.4.2), because it determines padding.
    fn sample_size(&self) -> usize {
        16
    }
}
