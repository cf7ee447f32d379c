//! The log of closed connections: one line of JSON each, and one of the endpoint's counters at the
//! end of a loop.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ::quic::crypto::Cipher;
use ::quic::{CloseReason, Connection, EndpointStats, TokenUse};
use serde_json::json;

use crate::Error;

/// An open log file; lines that cannot be written are counted, and the server goes on.
#[derive(Debug)]
pub(crate) struct ConnectionLog {
    file: Mutex<File>,
    dropped: AtomicU64,
}

impl ConnectionLog {
    /// Opens the file for appending.
    ///
    /// # Errors
    /// One line: it cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file =
            file.map_err(|e| Error::new(format!("connection log {}: {e}", path.display())))?;
        Ok(Self { file: Mutex::new(file), dropped: AtomicU64::new(0) })
    }

    fn write(&self, record: &serde_json::Value) {
        let line = format!("{record}\n");
        let written =
            self.file.lock().is_ok_and(|mut file| file.write_all(line.as_bytes()).is_ok());
        if !written && self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("the connection log cannot be written; records are dropped");
        }
    }

    /// Notes the end of a connection.
    pub(super) fn closed(&self, connection: &Connection, alpn: &[u8]) {
        let stats = connection.stats();
        let (code, text) = connection.close_reason().map_or((0, ""), CloseReason::code_and_text);
        let by = match connection.close_reason() {
            Some(CloseReason::Transport(_)) => "transport",
            Some(CloseReason::Application { .. }) => "application",
            Some(CloseReason::PeerTransport { .. }) => "peer transport",
            Some(CloseReason::PeerApplication { .. }) => "peer application",
            Some(_) | None => "silence",
        };
        let recovery = connection.recovery().totals();
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

    /// Notes a loop's counters at its end.
    pub(super) fn ended(&self, core: u8, stats: &EndpointStats) {
        let [header, unknown, small, short_id, forged, full, rate_limited] = stats.dropped;
        self.write(&json!({
            "event": "endpoint_stats",
            "core": core,
            "accepted": stats.accepted,
            "refused": stats.refused,
            "retries": stats.retries,
            "version_negotiations": stats.version_negotiations,
            "resets": stats.resets,
            "invalid_tokens": stats.invalid_tokens,
            "dropped": {
                "header": header,
                "unknown_connection": unknown,
                "small_initial": small,
                "short_connection_id": short_id,
                "not_authentic": forged,
                "full": full,
                "rate_limited": rate_limited,
            },
        }));
    }
}
