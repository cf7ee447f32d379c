//! The result of a view: for people, for scripts, and for the server's records.

use core::fmt;
use std::time::Duration;

use qoe::Policy;
use qoe::player::FREEZE_THRESHOLDS;
use serde_json::{Value, json};

/// How a view ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ViewEnd {
    /// The stream ended.
    Complete,
    /// The viewer had enough.
    Time,
    /// One line: the server or the path cut the stream off, or it is malformed.
    Broken(String),
}

/// Playback of one player.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PolicyPlayback {
    /// Which one.
    pub policy: Policy,
    /// Its times count from the start of connecting.
    pub seen: qoe::Report,
}

/// The result of a view, also of one that is still running. Times count from just before the
/// client's first packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchReport {
    /// URL of the stream.
    pub url: String,
    /// Of the first response, if it came.
    pub status: Option<http::StatusCode>,
    /// Until the handshake was complete.
    pub connected: Duration,
    /// Until the first request was sent, which 0-RTT data may carry before that.
    pub requested: Duration,
    /// The TLS session was resumed.
    pub resumed: bool,
    /// The first request was taken from 0-RTT data.
    pub early_data: bool,
    /// Until the first byte of a body arrived.
    pub first_byte: Option<Duration>,
    /// Until the last byte arrived, the view was ended, or now.
    pub duration: Duration,
    /// Longest time without a byte after the first one.
    pub longest_gap: Duration,
    /// Of bodies.
    pub bytes: u64,
    /// FLV tags, or as many as HLS segments would make.
    pub tags: u64,
    /// Of these, key frames of video.
    pub key_frames: u64,
    /// Reports of the player that the server took.
    pub beacons: u64,
    /// Players, if it is media: [`Policy::PRESETS`] in their order, and the view's own if it is
    /// none of them.
    pub players: Vec<PolicyPlayback>,
    /// What quinn counts. Packets are this end's own, except those received.
    pub transport: quinn::ConnectionStats,
    /// End of the view; `None` while it runs.
    pub end: Option<ViewEnd>,
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

impl WatchReport {
    /// Why the view failed, in one line, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        let url = &self.url;
        let frameless = !self.players.is_empty()
            && self.players.iter().all(|player| player.seen.first_frame.is_none());
        if let Some(status) = self.status.filter(|status| !status.is_success()) {
            return Some(format!("{url}: HTTP status {status}"));
        }
        match &self.end {
            Some(ViewEnd::Broken(why)) => Some(format!("{url}: {why}")),
            Some(ViewEnd::Time) if self.status.is_none() => {
                Some(format!("{url}: no response in time"))
            }
            Some(ViewEnd::Complete) if frameless => {
                Some(format!("{url}: the stream ended before its first frame"))
            }
            _ => None,
        }
    }

    /// Playback of the player with this policy.
    pub(crate) fn player(&self, policy: Policy) -> Option<&qoe::Report> {
        self.players.iter().find(|player| player.policy == policy).map(|player| &player.seen)
    }

    /// Rate of the bodies from the first byte on, in Mbps; 0 if they came in one piece.
    fn mbps(&self) -> f64 {
        let span = self.duration.saturating_sub(self.first_byte.unwrap_or_default());
        if span.is_zero() { 0.0 } else { self.bytes as f64 * 8.0 / 1e6 / span.as_secs_f64() }
    }

    /// One JSON object; the names are an interface to scripts.
    pub(crate) fn json(&self) -> Value {
        let t = &self.transport;
        json!({
            "url": self.url,
            "protocol": "h3",
            "status": self.status.map(|status| status.as_u16()),
            "connect_ms": millis(self.connected),
            "request_ms": millis(self.requested),
            "resumed": self.resumed,
            "early_data": self.early_data,
            "first_byte_ms": self.first_byte.map(millis),
            "duration_ms": millis(self.duration),
            "longest_gap_ms": millis(self.longest_gap),
            "bytes": self.bytes,
            "mbps": (self.mbps() * 1e3).round() / 1e3,
            "complete": self.end == Some(ViewEnd::Complete),
            "error": self.failure(),
            "tags": self.tags,
            "key_frames": self.key_frames,
            "beacons": self.beacons,
            "players": self.players.iter().map(|p| self.player_json(p)).collect::<Vec<_>>(),
            "transport": {
                "rtt_ms": millis(t.path.rtt),
                "rtt_min_ms": millis(t.path.min_rtt),
                "datagrams_received": t.udp_rx.datagrams,
                "packets_sent": t.path.sent_packets,
                "packets_lost": t.path.lost_packets,
            },
        })
    }

    fn player_json(&self, player: &PolicyPlayback) -> Value {
        let seen = &player.seen;
        let counts = FREEZE_THRESHOLDS.iter().zip(seen.freezes);
        let from_ms: serde_json::Map<String, Value> = counts
            .map(|(least, freezes)| (least.as_millis().to_string(), freezes.count.into()))
            .collect();
        let from_request = seen.first_frame.map(|at| at.saturating_sub(self.requested));
        json!({
            "preset": player.policy.to_string(),
            "first_frame_ms": seen.first_frame.map(millis),
            "first_frame_from_request_ms": from_request.map(millis),
            "startup_ms": seen.start.map(millis),
            "freezes": seen.freezes[0].count,
            "freezes_from_ms": from_ms,
            "freeze_s": seconds(seen.freezes[0].total),
            "freeze_s_per_100s": seen.rates().map(|r| (r.freeze_s_per_100s * 1e3).round() / 1e3),
            "played_s": seconds(seen.played),
            "skipped_s": seconds(seen.skipped),
            "live_latency_ms": seen.live_latency.map(millis),
        })
    }

    /// A line about how far the view is; of the players, the one with this policy.
    pub(crate) fn progress(&self, policy: Policy) -> String {
        let mut line =
            format!("{:.1} s, {:.1} MB", self.duration.as_secs_f64(), self.bytes as f64 / 1e6);
        if let Some(seen) = self.player(policy) {
            line += &format!(", {policy}: ");
            line += &match seen.first_frame {
                Some(at) => format!("first frame {:.0} ms, {}", millis(at), Freezing(seen)),
                None => "no frame yet".to_owned(),
            };
        }
        line
    }
}

/// Freezes and latency, in words.
struct Freezing<'a>(&'a qoe::Report);

impl fmt::Display for Freezing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.freezes[0];
        match all.count {
            0 => write!(f, "no freeze")?,
            1 => write!(f, "1 freeze, {} s", seconds(all.total))?,
            count => write!(f, "{count} freezes, {} s", seconds(all.total))?,
        }
        if let Some(rates) = self.0.rates().filter(|_| all.count > 0) {
            write!(f, " ({:.2} s per 100 s)", rates.freeze_s_per_100s)?;
        }
        write!(f, ", played {} s", seconds(self.0.played))?;
        if !self.0.skipped.is_zero() {
            write!(f, ", skipped {} s", seconds(self.0.skipped))?;
        }
        match self.0.live_latency {
            Some(latency) => write!(f, ", {:.1} s behind live", latency.as_secs_f64()),
            None => Ok(()),
        }
    }
}

impl fmt::Display for WatchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "HTTP/3 status {}, ", status.as_u16())?,
            None => write!(f, "HTTP/3, no response, ")?,
        }
        write!(f, "connected after {} ms", millis(self.connected))?;
        match (self.resumed, self.early_data) {
            (_, true) => write!(f, " (0-RTT), ")?,
            (true, false) => write!(f, " (resumed), ")?,
            (false, false) => write!(f, ", ")?,
        }
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
            if self.end == Some(ViewEnd::Complete) { "" } else { ", not to the end" }
        )?;
        if self.players.is_empty() {
            return Ok(());
        }
        let path = &self.transport.path;
        write!(f, "\n{} tags, {} key frames, ", self.tags, self.key_frames)?;
        write!(f, "round trip {} ms, ", millis(path.rtt))?;
        write!(f, "{} of {} packets of ours lost", path.lost_packets, path.sent_packets)?;
        for PolicyPlayback { policy, seen } in &self.players {
            write!(f, "\n{policy:12} ")?;
            match seen.first_frame {
                Some(at) => write!(f, "first frame {} ms, ", millis(at))?,
                None => write!(f, "no frame")?,
            }
            match (seen.first_frame, seen.start) {
                (Some(_), Some(at)) => write!(f, "startup {} ms, {}", millis(at), Freezing(seen))?,
                (Some(_), None) => write!(f, "never started")?,
                (None, _) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_from_the_first_byte() {
        let report = WatchReport {
            first_byte: Some(Duration::from_secs(1)),
            duration: Duration::from_secs(3),
            bytes: 500_000,
            end: Some(ViewEnd::Complete),
            ..WatchReport::default()
        };
        assert_eq!(report.json()["mbps"], 2.0);
        assert_eq!(report.json()["first_byte_ms"], 1_000.0);
        assert!(!report.to_string().contains("not to the end"));
        let silent = WatchReport { first_byte: None, end: Some(ViewEnd::Time), ..report };
        assert!(silent.json()["first_byte_ms"].is_null());
        assert!(silent.to_string().ends_with("not to the end"));
    }

    #[test]
    fn a_view_fails_without_success_or_frames() {
        let url = "u".to_owned();
        let mut report =
            WatchReport { url, end: Some(ViewEnd::Complete), ..WatchReport::default() };
        assert_eq!(report.failure(), None);
        report.status = Some(http::StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(report.failure().as_deref(), Some("u: HTTP status 503 Service Unavailable"));
        report.status = None;
        report.end = Some(ViewEnd::Time);
        assert_eq!(report.failure().as_deref(), Some("u: no response in time"));
        report.status = Some(http::StatusCode::OK);
        assert_eq!(report.failure(), None);
        report.end = Some(ViewEnd::Complete);
        let policy = Policy::MOBILE;
        let seen = qoe::Player::new(policy, units::Timestamp::ZERO).report(units::Timestamp::ZERO);
        report.players.push(PolicyPlayback { policy, seen });
        assert_eq!(report.failure().as_deref(), Some("u: the stream ended before its first frame"));
        report.end = Some(ViewEnd::Broken("cut off".into()));
        assert_eq!(report.failure().as_deref(), Some("u: cut off"));
    }
}
