//! What a viewer sees: times from its first packet on, and bytes.

use core::fmt;
use std::time::{Duration, Instant};

/// A view under way.
#[derive(Debug)]
pub(super) struct Measure {
    /// Just before the first packet was sent.
    start: Instant,
    measured: Measured,
}

/// What came of it. Times count from just before the client's first packet.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub status: u16,
    /// Until the handshake was complete.
    pub connected: Duration,
    /// Until the first byte of the body arrived.
    pub first_byte: Option<Duration>,
    /// Until the last byte arrived or the view was ended.
    pub duration: Duration,
    /// Longest time without a byte after the first one.
    pub longest_gap: Duration,
    /// Of the body.
    pub bytes: u64,
    /// The body ended, rather than the view.
    pub complete: bool,
    last: Duration,
}

impl Measure {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), measured: Measured::default() }
    }

    pub(super) fn connected(&mut self) {
        self.measured.connected = self.start.elapsed();
    }

    pub(super) fn status(&mut self, status: u16) {
        self.measured.status = status;
    }

    /// A piece of the body arrived.
    pub(super) fn take(&mut self, bytes: u64) {
        let (now, m) = (self.start.elapsed(), &mut self.measured);
        if m.first_byte.is_some() {
            m.longest_gap = m.longest_gap.max(now.saturating_sub(m.last));
        }
        m.first_byte.get_or_insert(now);
        m.last = now;
        m.bytes += bytes;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.measured.bytes
    }

    pub(super) fn end(mut self, complete: bool) -> Measured {
        self.measured.duration = self.start.elapsed();
        self.measured.complete = complete;
        self.measured
    }
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

impl Measured {
    /// Rate of the body from its first byte on, in Mbps; 0 if it came in one piece.
    fn mbps(&self) -> f64 {
        let span = self.duration.saturating_sub(self.first_byte.unwrap_or_default());
        if span.is_zero() { 0.0 } else { self.bytes as f64 * 8.0 / 1e6 / span.as_secs_f64() }
    }

    /// One JSON object; the names are an interface to scripts.
    pub(super) fn json(&self, url: &str) -> serde_json::Value {
        serde_json::json!({
            "url": url,
            "protocol": "h3",
            "status": self.status,
            "connect_ms": millis(self.connected),
            "first_byte_ms": self.first_byte.map(millis),
            "duration_ms": millis(self.duration),
            "longest_gap_ms": millis(self.longest_gap),
            "bytes": self.bytes,
            "mbps": (self.mbps() * 1e3).round() / 1e3,
            "complete": self.complete,
        })
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HTTP/3 status {}, connected after {} ms, ",
            self.status,
            millis(self.connected)
        )?;
        match self.first_byte {
            Some(at) => write!(f, "first byte after {} ms, ", millis(at))?,
            None => write!(f, "no content, ")?,
        }
        write!(
            f,
            "{} bytes in {:.3} s ({:.2} Mbps), longest gap {} ms{}",
            self.bytes,
            self.duration.as_secs_f64(),
            self.mbps(),
            millis(self.longest_gap),
            if self.complete { "" } else { ", not to the end" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_from_the_first_byte() {
        let measured = Measured {
            status: 200,
            first_byte: Some(Duration::from_secs(1)),
            duration: Duration::from_secs(3),
            bytes: 500_000,
            complete: true,
            ..Measured::default()
        };
        assert_eq!(measured.json("u")["mbps"], 2.0);
        assert_eq!(measured.json("u")["first_byte_ms"], 1_000.0);
        assert!(!measured.to_string().contains("not to the end"));
        let silent = Measured { first_byte: None, ..measured };
        assert!(silent.json("u")["first_byte_ms"].is_null());
    }
}
