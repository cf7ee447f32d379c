//! The dashboard's data: one JSON object per second.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use relay::{Status, Stream};
use serde_json::{Value, json};

use super::process::{self, Usage};
use records::Record;

use crate::saved_paths::SavedPaths;
use crate::sessions::{Session, Totals};
use crate::state::{Shared, State};

/// Maximum sessions on the dashboard, newest first.
const MAX_SESSIONS: usize = 200;

/// Minimum interval for rates. Shorter intervals are too noisy.
const MIN_INTERVAL: Duration = Duration::from_millis(500);

/// Counters at the last sample, to compute rates.
pub(super) struct Sampler {
    at: Instant,
    usage: Usage,
    bytes: u64,
    streams: HashMap<String, u64>,
}

impl Sampler {
    pub(super) fn new(shared: &Shared) -> Self {
        let state = shared.state();
        let bytes = state.sessions.totals().values().map(|totals| totals.bytes).sum();
        Self { at: Instant::now(), usage: process::usage(), bytes, streams: ingested(&state) }
    }

    /// Describes all streams with their viewers. The streams' own counts include packagers.
    fn streams(
        &self,
        state: &State,
        sessions: &[Arc<Session>],
        mbps: impl Fn(u64) -> f64,
    ) -> Vec<Value> {
        let watching = viewers_of_streams(sessions);
        let describe = |stream: &Arc<Stream>| {
            let bytes = stream.stats().bytes;
            let before = self.streams.get(stream.name()).copied().unwrap_or(0);
            let viewers = watching.get(stream.name()).copied().unwrap_or(0);
            let mut value = describe_stream(state, stream, viewers);
            value["in_mbps"] = mbps(bytes.saturating_sub(before)).into();
            value
        };
        state.live.streams.all().iter().map(describe).collect()
    }

    pub(super) fn sample(&mut self, shared: &Shared) -> Value {
        let state = shared.state();
        let seconds = self.at.elapsed().as_secs_f64().max(1e-3);
        let mbps = |bytes: u64| bytes as f64 * 8e-6 / seconds;
        let usage = process::usage();
        let totals = state.sessions.totals();
        let mut all = Totals::default();
        totals.values().for_each(|totals| all.merge(totals));

        let mut viewers = json!({ "h3": 0, "h2": 0, "h1": 0, "rtmp": 0 });
        for (key, totals) in &totals {
            let known = viewers[key.protocol.name()].as_u64().unwrap_or(0);
            viewers[key.protocol.name()] = (known + totals.open).into();
        }

        let sessions = state.sessions.all();
        let streams = self.streams(&state, &sessions, mbps);

        let cohorts: Vec<Value> = state
            .cohorts
            .all()
            .iter()
            .map(|cohort| {
                let mut sum = Totals::default();
                let mine = totals.iter().filter(|(key, _)| key.cohort == cohort.name);
                mine.for_each(|(_, totals)| sum.merge(totals));
                let mut value = describe_totals(&sum);
                value["name"] = cohort.name.clone().into();
                value["scheme"] = cohort.scheme.name().into();
                value["start"] = cohort.start.name().into();
                value["weight"] = cohort.weight.into();
                value
            })
            .collect();

        let newest = sessions.iter().rev().take(MAX_SESSIONS);
        let (reused, h3) = totals
            .iter()
            .filter(|(key, _)| key.protocol == crate::viewer::Protocol::Http3)
            .fold((0, 0), |(early, all), (_, t)| (early + t.early_data, all + t.sessions));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let value = json!({
            "time_ms": now.as_millis() as u64,
            "uptime_s": shared.uptime().as_secs(),
            "version": env!("CARGO_PKG_VERSION"),
            "viewers": viewers,
            "zero_rtt_share": (h3 > 0).then(|| reused as f64 / h3 as f64),
            "egress_mbps": mbps(all.bytes.saturating_sub(self.bytes)),
            "cpu_cores": (usage.cpu.saturating_sub(self.usage.cpu)).as_secs_f64() / seconds,
            "rss_mb": usage.resident as f64 * 1e-6,
            "udp_drops": process::udp_drops(shared.ports()),
            "streams": streams,
            "cohorts": cohorts,
            "cookies": describe_cookies(&state.saved_paths),
            "sessions": newest.map(describe_session).collect::<Vec<_>>(),
            "hooks": state.hooks.describe(),
        });
        if self.at.elapsed() >= MIN_INTERVAL {
            let streams = ingested(&state);
            *self = Self { at: Instant::now(), usage, bytes: all.bytes, streams };
        }
        value
    }
}

/// Returns the ingested bytes of each stream.
fn ingested(state: &State) -> HashMap<String, u64> {
    let streams = state.live.streams.all();
    streams.iter().map(|s| (s.name().to_owned(), s.stats().bytes)).collect()
}

/// Returns the number of sessions per stream.
pub(super) fn viewers_of_streams(sessions: &[Arc<Session>]) -> HashMap<&str, u64> {
    let mut viewers: HashMap<&str, u64> = HashMap::new();
    for session in sessions {
        *viewers.entry(&session.opening().stream).or_default() += 1;
    }
    viewers
}

/// Describes a stream with this number of viewers.
pub(super) fn describe_stream(state: &State, stream: &Arc<Stream>, viewers: u64) -> Value {
    let pull = state.live.pulls.status(stream.name());
    let (gop, age, codecs) = stream.with_cache(|cache| {
        let mut groups = cache.groups().rev();
        let newest = groups.next().map(|group| group.timestamp);
        let before = groups.next().map(|group| group.timestamp);
        let end = cache.newest().map(media::Tag::timestamp);
        let between = |from: Option<u32>, to: Option<u32>| Some(to?.wrapping_sub(from?));
        let headers = cache.headers();
        let names: Vec<String> = [&headers.video, &headers.audio]
            .into_iter()
            .flatten()
            .filter_map(|header| Some(format!("{:?}", header.class().codec?)))
            .collect();
        (between(before, newest), between(newest, end), names.join(" "))
    });
    json!({
        "name": stream.name(),
        "source": if pull.is_some() { "pull" } else { "publish" },
        "status": match stream.status() {
            Status::Waiting => "connecting",
            Status::Live => "live",
            Status::Interrupted => "waiting",
            Status::Ended => "ended",
        },
        "viewers": viewers,
        "gop_ms": gop,
        "key_frame_age_ms": age,
        "skips": stream.stats().skips,
        "thinned": stream.stats().thinned,
        "codecs": codecs,
        "corrections": stream.corrections(),
        "error": pull.and_then(|pull| pull.error),
    })
}

fn describe_totals(t: &Totals) -> Value {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let watched = t.played_s + t.freeze_s;
    let hours = (watched > 0.0).then_some(watched / 3_600.0);
    let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let first = (t.first_frames.count() > 0).then(|| {
        let at = |q| t.first_frames.quantile(q).map(ms);
        json!({ "p50": at(0.5), "p90": at(0.9), "p99": at(0.99) })
    });
    let recovery = t.latencies.mean().map(|mean| {
        let p95 = t.latencies.quantile(0.95).map(ms);
        json!({ "mean": ms(mean), "p95": p95, "max": t.latencies.max().map(ms) })
    });
    json!({
        "viewers": t.open,
        "sessions": t.sessions,
        "first_frame_ms": first,
        "freezes_per_hour": hours.map(|hours| t.freezes as f64 / hours),
        "freeze_s_per_hour": hours.map(|hours| t.freeze_s / hours),
        "loss_rate": ratio(t.recovery.lost, t.recovery.settled()),
        "retransmission_ratio": ratio(t.recovery.retransmissions, t.recovery.first_transmissions),
        "recovery_ms": recovery,
        "redundancy_cost": ratio(t.recovery.replicas, t.recovery.first_transmissions),
    })
}

/// Describes transport cookies and the outcomes of jumps.
fn describe_cookies(all: &SavedPaths) -> Value {
    let (mut accepted, mut refused) = (0, BTreeMap::new());
    for ([_, outcome], count) in all.cookies().filter(|(_, count)| *count > 0) {
        match outcome {
            "accepted" => accepted += count,
            reason => *refused.entry(reason).or_insert(0) += count,
        }
    }
    let jumps = BTreeMap::from(all.jumps());
    json!({
        "accepted": accepted,
        "refused": refused,
        "strangers": all.strangers(),
        "jumps": jumps,
    })
}

fn describe_session(session: &Arc<Session>) -> Value {
    let Record { session: about, delivery, startup, path, player, .. } = session.record();
    json!({
        "id": session.id().to_string(),
        "stream": about.stream,
        "cohort": about.cohort,
        "protocol": about.protocol,
        "prefix": about.prefix,
        "rtt_ms": path.rtt_ms,
        "goodput_mbps": delivery.goodput_mbps,
        "loss_rate": path.loss_rate,
        // As measured by the player, if known.
        "first_frame_ms": player.player_first_frame_ms.or(startup.first_frame_ms),
        "freezes": player.player_freezes,
        "freeze_s": player.player_freeze_s,
        "skips": delivery.skips,
        "thinned": delivery.thinned,
        "age_s": about.duration_s,
        "repair": session
            .reasons()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect::<serde_json::Map<_, Value>>(),
    })
}
