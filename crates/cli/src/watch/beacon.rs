//! Reports of a player to the server, as by the web player: sums over all its views, every few
//! seconds and at the end.

use core::time::Duration;

use bytes::Bytes;
use qoe::Policy;
use serde_json::json;

use super::client::Http;
use super::report::WatchReport;
use super::target::WatchTarget;

/// How often it reports.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// Longest wait for the answer to the last report.
pub(super) const LAST: Duration = Duration::from_secs(3);
/// Sums over a player's views.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Sums {
    /// In its first view.
    first_frame: Option<Duration>,
    played: Duration,
    freezes: u64,
    frozen: Duration,
}

impl Sums {
    /// Adds one more view of the player with this policy.
    #[must_use]
    pub(super) fn with(self, report: &WatchReport, policy: Policy) -> Self {
        let Some(seen) = report.player(policy) else { return self };
        let freezes = seen.noticed();
        Self {
            first_frame: self.first_frame.or(seen.first_frame),
            played: self.played + seen.watched().saturating_sub(freezes.total),
            freezes: self.freezes + freezes.count,
            frozen: self.frozen + freezes.total,
        }
    }

    fn json(&self, pass: &str, stream: &str) -> String {
        let millis = |duration: Duration| (duration.as_secs_f64() * 1e3).round();
        json!({
            "viewer": pass,
            "stream": stream,
            "first_frame_ms": self.first_frame.map(millis),
            "played_s": millis(self.played) / 1e3,
            "freezes": self.freezes,
            "freeze_s": millis(self.frozen) / 1e3,
        })
        .to_string()
    }

    /// Posts them. Returns whether the server took them.
    pub(super) async fn post(&self, http: &Http, target: &WatchTarget, pass: &str) -> bool {
        let authority = target.uri.authority().map_or("", |authority| authority.as_str());
        let request = http::Request::post(format!("https://{authority}/beacon"))
            .header("content-type", "application/json");
        let body = Bytes::from(self.json(pass, target.stream()));
        let Ok(mut stream) = http.send(request, Some(body)).await else { return false };
        stream.recv_response().await.is_ok_and(|response| response.status().is_success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::report::PolicyPlayback;
    use qoe::player::Freezes;

    #[test]
    fn sums_span_views_and_short_freezes_count_as_playback() {
        let ms = Duration::from_millis;
        let policy = Policy::LOW_LATENCY;
        let mut player = qoe::Player::new(policy, units::Timestamp::ZERO);
        let mut seen = player.report(units::Timestamp::ZERO);
        seen.first_frame = Some(ms(80));
        seen.played = ms(9_000);
        seen.freezes[0] = Freezes { count: 3, total: ms(1_000) };
        seen.freezes[1] = Freezes { count: 1, total: ms(900) };
        let players = vec![PolicyPlayback { policy, seen }];
        let report = WatchReport { players, ..WatchReport::default() };
        let sums = Sums::default().with(&report, policy).with(&report, policy);
        assert_eq!(
            sums.json("me", "live/a"),
            "{\"first_frame_ms\":80.0,\"freeze_s\":1.8,\"freezes\":2,\"played_s\":18.2,\
             \"stream\":\"live/a\",\"viewer\":\"me\"}"
        );
        assert_eq!(sums.with(&report, Policy::MOBILE), sums);
    }
}
