//! The connection log: one JSON line per closed connection, and one with the endpoint's counters
//! when a loop ends.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use ::quic::crypto::Cipher;
use ::quic::{
    CloseReason, Connection, DropReason, EcnFault, EndpointStats, PacketDropReason, TokenUse,
};
use delivery::Started;
use serde_json::{Value, json};
use startup::Carrier;

use crate::Error;
use crate::disk::writer::DiskWriter;

/// The writer's number of the only file.
const FILE: u64 = 0;
/// Timeout for writing the last lines at exit.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection log. Its own thread writes the lines; lines that the disk is too slow for are
/// dropped and counted.
#[derive(Debug)]
pub(crate) struct ConnectionLog(DiskWriter);

impl ConnectionLog {
    /// Opens the file for appending.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let error =
            |e: std::io::Error| Error::new(format!("connection log {}: {e}", path.display()));
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(error)?;
        let writer = DiskWriter::start("connection log")?;
        writer.adopt(FILE, file).map_err(error)?;
        Ok(Self(writer))
    }

    fn write(&self, record: &Value) {
        // Dropped lines are counted.
        let _ = self.0.append(FILE, format!("{record}\n").into_bytes());
    }

    /// Returns the number of dropped lines.
    pub(crate) fn lost(&self) -> u64 {
        self.0.lost()
    }

    /// Waits until all lines are written, or for the timeout.
    pub(crate) fn flush(&self) {
        self.0.flush(FLUSH_TIMEOUT);
    }

    /// Logs the end of a connection.
    pub(super) fn closed(&self, connection: &Connection, alpn: &[u8], started: Option<&Started>) {
        let stats = connection.stats();
        let (code, text) = connection.close_reason().map_or((0, ""), CloseReason::code_and_text);
        let by = match connection.close_reason() {
            Some(CloseReason::Transport(_)) => "transport",
            Some(CloseReason::Application { .. }) => "application",
            Some(CloseReason::PeerTransport { .. }) => "peer transport",
            Some(CloseReason::PeerApplication { .. }) => "peer application",
            Some(_) | None => "silence",
        };
        let recovery = &connection.recovery().totals;
        let ecn_failed = EcnFault::ALL.map(|fault| (fault.name(), stats.ecn_failed[fault]));
        let dropped = PacketDropReason::ALL.map(|reason| (reason.name(), stats.dropped[reason]));
        self.write(&json!({
            "event": "connection_closed",
            "remote": connection.addresses().remote.to_string(),
            "alpn": String::from_utf8_lossy(alpn),
            "handshake_ms": stats.handshake.as_secs_f64() * 1e3,
            "resumed": stats.resumed,
            "early_data": stats.early_data,
            "retry": stats.token == TokenUse::Retry,
            "token": match stats.token {
                TokenUse::None => "none",
                TokenUse::Retry => "retry",
                TokenUse::NewToken => "new_token",
                TokenUse::Invalid => "invalid",
            },
            "start": started.map(|started| started.mode.name()),
            "start_cookie": started.and_then(|s| s.carrier).map(Carrier::name),
            "start_window": started.and_then(|started| started.window),
            "jump": delivery::guided(connection).and_then(|guided| guided.verdict().name()),
            "cipher": stats.cipher.map(|cipher| match cipher {
                Cipher::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
                Cipher::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
                Cipher::ChaCha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
            }),
            "key_updates": stats.key_updates,
            "migrations": stats.migrations,
            "bytes_sent": stats.bytes_sent,
            "bytes_received": stats.bytes_received,
            "packets_sent": stats.packets_sent,
            "packets_lost": stats.packets_lost,
            "spurious_losses": stats.spurious_losses,
            "ecn_failed": Value::from_iter(ecn_failed),
            "dropped": Value::from_iter(dropped),
            "retransmissions": recovery.retransmissions,
            "repeated_retransmissions": recovery.repeated,
            "pto_count": stats.pto_count,
            "rtt_ms": connection.rtt().smoothed().as_secs_f64() * 1e3,
            "min_rtt_ms": connection.rtt().min().as_secs_f64() * 1e3,
            "mtu": connection.mtu(),
            "closed_by": by,
            "code": code,
            "reason": text,
        }));
    }

    /// Logs a loop's counters at its end.
    pub(super) fn ended(&self, core: u8, stats: &EndpointStats) {
        let dropped = DropReason::ALL.map(|reason| (reason.name(), stats.dropped[reason]));
        self.write(&json!({
            "event": "endpoint_stats",
            "core": core,
            "accepted": stats.accepted,
            "refused": stats.refused,
            "retries": stats.retries,
            "version_negotiations": stats.version_negotiations,
            "resets": stats.resets,
            "invalid_tokens": stats.invalid_tokens,
            "dropped": Value::from_iter(dropped),
        }));
    }
}
