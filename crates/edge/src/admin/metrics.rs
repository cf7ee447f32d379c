//! Prometheus metrics. Labels have few values, and clients cannot add any: cohort, protocol,
//! format, reason. Statistics per stream or viewer are on the dashboard and in the records.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Error;
use std::sync::Arc;
use std::time::Instant;

use ::quic::DropReason;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode as encode_text;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use recovery::Latencies;
use relay::memory::{Event, Memory};

use super::control::Calls;
use super::format::{self, Format};
use super::outputs::{encode_pushes, encode_recordings, encode_uploads};
use super::process;
use super::visitors::Limited;
use crate::autoplex::AutoPlex;
use crate::bans::Bans;
use crate::certificates::Certificates;
use crate::limits::Place;
use crate::logging;
use crate::loops::pulse::Pulse;
use crate::loops::report::LoopReport;
use crate::saved_paths::SavedPaths;
use crate::sessions::{Key, Totals};
use crate::state::{Shared, State};

/// Upper bounds of latency buckets, in seconds.
const BUCKETS: [f64; 12] = [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0];

/// Returns all metrics as text, including the admin listener's `own`.
pub(super) fn encode_as(format: Format, shared: &Arc<Shared>, own: (&Calls, Limited)) -> String {
    let text = encode(shared, own);
    match format {
        Format::OpenMetrics => text,
        Format::Plain => format::plain(&text),
    }
}

/// Returns all metrics as OpenMetrics text.
fn encode(shared: &Arc<Shared>, (calls, visitors): (&Calls, Limited)) -> String {
    let mut registry = Registry::with_prefix("mendcast");
    let edge = Edge { shared: shared.clone(), calls: calls.all(), visitors };
    registry.register_collector(Box::new(edge));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode_text(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Edge {
    shared: Arc<Shared>,
    /// Control calls by action and result.
    calls: Vec<([&'static str; 2], u64)>,
    /// Connections and requests limited by the admin listener.
    visitors: Limited,
}

type Labels<'a> = [(&'static str, &'a str); 3];
type NoExemplar<'a> = Option<&'a Exemplar<Labels<'a>, u64>>;

fn labels(key: &Key) -> Labels<'_> {
    [("cohort", &key.cohort), ("protocol", key.protocol.name()), ("format", key.format)]
}

type Count = fn(&Totals) -> f64;
type Distribution = fn(&Totals) -> &Latencies;
type BySession = BTreeMap<Key, Totals>;

/// Sums over sessions: name, help text and value.
const COUNTERS: [(&str, &str, Count); 16] = [
    ("sessions", "Viewer sessions", |t| t.sessions as f64),
    ("media_bytes", "Media bytes passed to transports", |t| t.bytes as f64),
    ("skips", "Skips of slow viewers", |t| t.skips as f64),
    ("skipped_seconds", "Media skipped by slow viewers", |t| t.skipped.as_secs_f64()),
    ("thinned_pictures", "Non-reference pictures withheld from viewers that fell behind", |t| {
        t.thinned as f64
    }),
    ("resumed_sessions", "Sessions with TLS resumption", |t| t.resumed as f64),
    ("early_data_sessions", "Sessions with 0-RTT data", |t| t.early_data as f64),
    ("packets_settled", "Packets acknowledged or lost", |t| t.recovery.settled() as f64),
    ("packets_lost", "Packets lost", |t| t.recovery.lost as f64),
    ("first_transmissions", "Packets with first transmissions", |t| {
        t.recovery.first_transmissions as f64
    }),
    ("retransmissions", "First copies of each round", |t| t.recovery.retransmissions as f64),
    ("repeated_retransmissions", "First copies from round 2 on", |t| t.recovery.repeated as f64),
    ("replicas", "Additional copies", |t| t.recovery.replicas as f64),
    ("played_seconds", "Playback time reported by players", |t| t.played_s),
    ("freezes", "Freezes reported by players", |t| t.freezes as f64),
    ("freeze_seconds", "Freeze time reported by players", |t| t.freeze_s),
];

/// Distributions over sessions, in seconds.
const HISTOGRAMS: [(&str, &str, Distribution); 3] = [
    ("first_frame", "Time from request to acknowledged first frame", |t| &t.first_frames),
    ("player_first_frame", "Time from request to first picture", |t| &t.player_first_frames),
    ("recovery_latency", "Time from loss to arrival of a copy", |t| &t.latencies),
];

impl Collector for Edge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let shared = &self.shared;
        let state = shared.state();
        let loops = shared.loops();
        encode_sessions(&mut encoder, &state.sessions.totals())?;
        encode_process(&mut encoder, shared, &state, &loops)?;
        encode_loops(&mut encoder, &loops)?;
        encode_pulses(&mut encoder, shared.pulses())?;
        encode_limits(&mut encoder, self)?;
        let help = "Requests rejected before the hook or an upstream was asked";
        let names = state.live.lookups.rejected();
        let refused = state.hooks.limited().into_iter().chain(names);
        encode_family(&mut encoder, "requests_limited", help, "reason", refused)?;
        let help = "Log lines dropped";
        encode_family(&mut encoder, "log_lines_lost", help, "reason", logging::lost())?;
        let help = "Tokens of viewers and publishers";
        encode_family(&mut encoder, "tokens", help, "outcome", state.key_sets.tokens())?;
        let help = "Loads of key sets";
        encode_family(&mut encoder, "key_set_loads", help, "outcome", state.key_sets.loads())?;
        encode_saved_paths(&mut encoder, &state.saved_paths)?;
        encode_autoplex(&mut encoder, &state.autoplex)?;
        encode_control(&mut encoder, &state.bans, &self.calls)?;
        encode_memory(&mut encoder, state.live.streams.memory())?;
        encode_pushes(&mut encoder, &state.live.pushes)?;
        encode_recordings(&mut encoder, &state.live.recordings)?;
        encode_uploads(&mut encoder, &state.live.uploads)?;
        let help = "Events of publishers and upstreams";
        let events = state.live.events.all();
        encode_family(&mut encoder, "ingest_events", help, "event", events)?;
        let help = "Tolerated violations of media formats";
        let tolerated = state.live.tolerated.all();
        encode_family(&mut encoder, "media_tolerated", help, "reason", tolerated)?;
        let help = "Corrections of media from publishers and upstreams";
        let repairs = state.live.repairs.all();
        encode_family(&mut encoder, "media_repairs", help, "reason", repairs)
    }
}

fn encode_sessions(encoder: &mut DescriptorEncoder<'_>, all: &BySession) -> Result<(), Error> {
    for (name, help, value) in COUNTERS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (key, totals) in all {
            let none: NoExemplar<'_> = None;
            family.encode_family(&labels(key))?.encode_counter(&value(totals), none)?;
        }
    }
    let mut open =
        encoder.encode_descriptor("viewers", "Open sessions", None, MetricType::Gauge)?;
    for (key, totals) in all {
        open.encode_family(&labels(key))?.encode_gauge(&(totals.open as i64))?;
    }
    for (name, help, latencies) in HISTOGRAMS {
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (key, totals) in all {
            let latencies = latencies(totals);
            let none: Option<&HashMap<usize, Exemplar<Labels<'_>, f64>>> = None;
            family.encode_family(&labels(key))?.encode_histogram(
                latencies.sum().as_secs_f64(),
                latencies.count(),
                &buckets(latencies),
                none,
            )?;
        }
    }
    Ok(())
}

/// Encodes statistics of the process and of ingest.
fn encode_process(
    encoder: &mut DescriptorEncoder<'_>,
    shared: &Shared,
    state: &State,
    loops: &LoopReport,
) -> Result<(), Error> {
    let (usage, live) = (process::usage(), &state.live);
    for (name, help, value) in [
        ("streams", "Current streams", live.streams.len() as f64),
        ("resident_memory_bytes", "Resident memory", usage.resident as f64),
        ("quic_connections", "Current QUIC connections", loops.connections as f64),
        ("uptime_seconds", "Time since start", shared.uptime().as_secs_f64()),
    ] {
        encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
    }
    encode_certificates(encoder, &state.certificates)?;
    let streams = live.streams.totals();
    let sessions = &state.sessions;
    let udp_drops = process::udp_drops(shared.ports());
    encode_counter(encoder, "cpu_seconds", "CPU time of the process", usage.cpu.as_secs_f64())?;
    for (name, help, value) in [
        ("udp_receive_drops", "Datagrams dropped at full socket buffers", udp_drops),
        ("ingest_bytes", "Media bytes received", streams.bytes),
        ("ingest_jumps", "Jumps of publishers' clocks", streams.jumps),
        (
            "ingest_other_tracks",
            "Tags dropped because they contained only non-default tracks",
            streams.other_tracks,
        ),
        ("cache_overflows", "Groups of pictures too large for the cache", streams.overflows),
        ("viewers_refused", "Viewers rejected by full streams", streams.refused),
        ("records_dropped", "Session records dropped", sessions.records_dropped()),
        ("connection_log_lines_lost", "Connection log lines dropped", shared.log_lines_lost()),
        ("beacons_unmatched", "Player reports without a session", sessions.beacons_unmatched()),
        ("sessions_without_media", "Sessions that ended without media", sessions.without_media()),
        (
            "sessions_without_record",
            "Short sessions without a record, from networks with too many of them",
            sessions.fleeting(),
        ),
    ] {
        encode_counter(encoder, name, help, value as f64)?;
    }
    let help = "Player reports clamped to what their session allows";
    encode_family(encoder, "reports_clamped", help, "reason", sessions.clamped_reports())
}

/// Encodes the expiry of certificates by name, and events of their files. The number of names is
/// that of configured certificates.
fn encode_certificates(
    encoder: &mut DescriptorEncoder<'_>,
    certificates: &Certificates,
) -> Result<(), Error> {
    let mut expiries: BTreeMap<String, u64> = BTreeMap::new();
    for (_, certificate) in certificates.current().all() {
        if let Some(end) = certificate.identity.expires() {
            // Several certificates can have one name, for clients of different abilities.
            let known = expiries.entry(certificate.name()).or_insert(end);
            *known = end.min(*known);
        }
    }
    let (name, help) = ("certificate_expiry_timestamp_seconds", "Expiry of the certificate");
    let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (name, end) in &expiries {
        gauge.encode_family(&[("name", name.as_str())])?.encode_gauge(&(*end as f64))?;
    }
    let help = "Changed files of certificates";
    encode_family(encoder, "certificate_events", help, "event", certificates.events())
}

/// Encodes counters with one label.
fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &'static str,
    counts: impl IntoIterator<Item = (&'static str, u64)>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in counts {
        let none: NoExemplar<'_> = None;
        family.encode_family(&[(label, value)])?.encode_counter(&(count as f64), none)?;
    }
    Ok(())
}

fn encode_counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> Result<(), Error> {
    let none: NoExemplar<'_> = None;
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    metric.encode_counter(&value, none)
}

/// Encodes the counters of the event loops.
fn encode_loops(encoder: &mut DescriptorEncoder<'_>, loops: &LoopReport) -> Result<(), Error> {
    let LoopReport { endpoint: quic, sends, counters, .. } = loops;
    let singles = [
        ("quic_accepted", "QUIC connections accepted", quic.accepted),
        ("quic_refused", "QUIC connections rejected", quic.refused),
        ("quic_retries", "Retry packets sent", quic.retries),
        ("quic_resets", "Stateless resets sent", quic.resets),
        (
            "quic_ecn_failed",
            "Paths that dropped ECN-marked packets or marked all CE",
            quic.ecn_failed,
        ),
        ("quic_invalid_tokens", "Invalid address validation tokens", quic.invalid_tokens),
        (
            "quic_version_negotiations",
            "Version Negotiation packets sent",
            quic.version_negotiations,
        ),
        ("quic_forwarded_datagrams", "Datagrams forwarded between event loops", counters.forwarded),
        (
            "quic_timers_postponed",
            "Timers postponed because of unread datagrams",
            counters.timers_postponed,
        ),
        (
            "udp_segmentation_refused",
            "Batches sent datagram by datagram because the kernel did not segment them",
            sends.segmentation_refused,
        ),
        (
            "udp_sends_refused",
            "Sends rejected by the kernel because of destination or size",
            sends.refused,
        ),
        ("udp_device_full", "Sends that found the device queue full", sends.device_full),
    ];
    for (name, help, value) in singles {
        encode_counter(encoder, name, help, value as f64)?;
    }
    let by_endpoint = DropReason::ALL.map(|reason| (reason.name(), quic.dropped[reason]));
    let by_loop = [
        ("port_0", counters.from_port_0),
        ("reflector", counters.from_reflectors),
        ("forward_queue", counters.forwards_dropped),
        ("handshake_queue", counters.handshakes_dropped),
    ];
    let help = "Datagrams dropped before they reached a connection";
    let reasons = by_endpoint.into_iter().chain(by_loop);
    encode_family(encoder, "quic_dropped_datagrams", help, "reason", reasons)
}

/// Encodes the liveness and turn durations of the threads that serve viewers.
fn encode_pulses(encoder: &mut DescriptorEncoder<'_>, pulses: &[Arc<Pulse>]) -> Result<(), Error> {
    let unit = Some(&Unit::Seconds);
    let help = "Time since the start of the loop's last turn; idle loops take one turn per second";
    let mut family = encoder.encode_descriptor("loop_silence", help, unit, MetricType::Gauge)?;
    for pulse in pulses {
        let silence = pulse.silence().as_secs_f64();
        family.encode_family(&[("loop", pulse.name())])?.encode_gauge(&silence)?;
    }
    let help = "Duration of the loop's turns, without waiting";
    let mut family = encoder.encode_descriptor("loop_turn", help, unit, MetricType::Histogram)?;
    for pulse in pulses {
        let (buckets, sum) = pulse.turns();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let none: Option<&HashMap<usize, Exemplar<Labels<'_>, f64>>> = None;
        let labels = [("loop", pulse.name())];
        family.encode_family(&labels)?.encode_histogram(sum, count, &buckets, none)?;
    }
    Ok(())
}

/// Encodes used places, and rejected or closed connections.
fn encode_limits(encoder: &mut DescriptorEncoder<'_>, edge: &Edge) -> Result<(), Error> {
    let limits = edge.shared.limits();
    let help = "Places in use, by limit";
    let mut family = encoder.encode_descriptor("places_used", help, None, MetricType::Gauge)?;
    for place in Place::ALL {
        let used = limits.counts(place).used as i64;
        family.encode_family(&[("place", place.name())])?.encode_gauge(&used)?;
    }
    let help = "Connections rejected or closed by a limit";
    let losses = limits.losses().into_iter().chain(edge.visitors);
    encode_family(encoder, "connections_limited", help, "reason", losses)
}

/// Encodes bans and control calls.
fn encode_control(
    encoder: &mut DescriptorEncoder<'_>,
    bans: &Bans,
    calls: &[([&'static str; 2], u64)],
) -> Result<(), Error> {
    let help = "Current bans";
    let count = bans.count(Instant::now()) as i64;
    encoder.encode_descriptor("bans", help, None, MetricType::Gauge)?.encode_gauge(&count)?;
    let help = "Connections and requests rejected by a ban";
    encode_family(encoder, "banned", help, "what", bans.refused())?;
    let (help, calls) = ("Control calls", calls.iter().copied());
    encode_pairs(encoder, "control_calls", help, ["action", "result"], calls)
}

/// Encodes statistics of session starts.
fn encode_saved_paths(encoder: &mut DescriptorEncoder<'_>, all: &SavedPaths) -> Result<(), Error> {
    let help = "Transport cookies received, by carrier and outcome";
    encode_pairs(encoder, "transport_cookies", help, ["carrier", "outcome"], all.cookies())?;
    let help = "First live responses without a saved path state";
    encode_counter(encoder, "transport_strangers", help, all.strangers() as f64)?;
    let help = "First flights beyond the initial window, by outcome";
    encode_family(encoder, "jumps", help, "verdict", all.jumps())?;
    let help = "Networks with a remembered path state";
    let mut gauge = encoder.encode_descriptor("known_networks", help, None, MetricType::Gauge)?;
    gauge.encode_gauge(&(all.networks() as f64))
}

fn encode_autoplex(encoder: &mut DescriptorEncoder<'_>, all: &AutoPlex) -> Result<(), Error> {
    let help = "Sessions by role in AutoPlex";
    encode_family(encoder, "autoplex_sessions", help, "part", all.sessions())?;
    let help = "Sessions that AutoPlex should have capped but did not, by reason";
    encode_family(encoder, "autoplex_absent", help, "reason", all.absent())?;
    let help = "User group tables loaded, and files rejected";
    encode_family(encoder, "autoplex_tables", help, "outcome", all.tables())?;
    let table = all.table();
    let help = "User groups in the current table";
    let groups = table.as_ref().map_or(0, |table| table.groups().len());
    let mut gauge = encoder.encode_descriptor("autoplex_groups", help, None, MetricType::Gauge)?;
    gauge.encode_gauge(&(groups as f64))?;
    let help = "Decision time of the current table, in Unix seconds; 0 without a table";
    let name = "autoplex_decided_timestamp_seconds";
    let issued = table.map_or(0, |table| table.times().issued);
    let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    gauge.encode_gauge(&(issued as f64))
}

/// Encodes counters with two labels.
fn encode_pairs(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    labels: [&'static str; 2],
    counts: impl IntoIterator<Item = ([&'static str; 2], u64)>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for ([one, other], count) in counts {
        let none: NoExemplar<'_> = None;
        let labels = [(labels[0], one), (labels[1], other)];
        family.encode_family(&labels)?.encode_counter(&(count as f64), none)?;
    }
    Ok(())
}

/// Encodes the memory usage of streams, and evictions.
fn encode_memory(encoder: &mut DescriptorEncoder<'_>, memory: &Memory) -> Result<(), Error> {
    for (name, help, value) in [
        ("stream_memory_bytes", "Memory used for media of streams", memory.held()),
        ("stream_memory_limit_bytes", "Memory limit for media of streams", memory.limit()),
    ] {
        let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&(value as f64))?;
    }
    let help = "Evictions and rejections because of the memory limit for streams";
    let events = Event::ALL.map(|event| (event.name(), memory.count_of(event)));
    encode_family(encoder, "stream_memory_events", help, "event", events)
}

/// Returns counts per bucket, not cumulative; the last one is for the rest.
fn buckets(latencies: &Latencies) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut out: Vec<_> = BUCKETS
        .into_iter()
        .map(|end| {
            let all = latencies.count_up_to(std::time::Duration::from_secs_f64(end));
            let own = all - below;
            below = all;
            (end, own)
        })
        .collect();
    out.push((f64::INFINITY, latencies.count() - below));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::server::Edge;
    use std::collections::BTreeSet;
    use units::Timestamp;

    fn edge() -> Edge {
        let mut config = Config::default();
        config.server.listen = vec![([127, 0, 0, 1], 0).into()];
        config.server.cores = 2;
        config.admin.listen = Some(([127, 0, 0, 1], 0).into());
        Edge::open(config).expect("opened")
    }

    fn scrape(edge: &Edge) -> String {
        encode(edge.shared(), (&Calls::default(), [("admin_evicted", 0), ("admin_events", 0)]))
    }

    const METRICS: &str = include_str!("../../../../docs/operate/metrics.md");
    const PUSH: &str = include_str!("../../../../docs/operate/push.md");
    const RECORD: &str = include_str!("../../../../docs/operate/record.md");
    const ALERTS: &str = include_str!("../../../../docs/operate/alerts.md");
    const FROZEN: &str = include_str!("../../../../docs/operate/frozen-viewer.md");
    const LIMITS: &str = include_str!("../../../../docs/operate/limits.md");

    /// Returns the metric names in a text, without the suffixes of histograms.
    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names = words.filter(|word| word.starts_with("mendcast_"));
        let added = ["_bucket", "_sum", "_count"];
        let plain = |word| added.into_iter().find_map(|end| str::strip_suffix(word, end));
        names.map(|word| plain(word).unwrap_or(word)).collect()
    }

    /// Returns the families of a scrape, by their names in queries.
    fn families(scrape: &str) -> BTreeSet<String> {
        let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let of_query = |(name, kind): (&str, &str)| match kind {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        };
        types.map(of_query).collect()
    }

    #[test]
    fn manual_lists_exactly_the_metrics_of_a_scrape() {
        let scraped = families(&scrape(&edge()));
        let pages = [METRICS, PUSH, RECORD];
        let cells = pages
            .iter()
            .flat_map(|page| page.lines())
            .filter_map(|line| line.strip_prefix("| `mendcast_"));
        let listed: Vec<_> = cells
            .filter_map(|cell| Some(format!("mendcast_{}", cell.split_once('`')?.0)))
            .collect();
        let set: BTreeSet<_> = listed.iter().cloned().collect();
        assert_eq!(set.len(), listed.len(), "a metric is listed twice");
        assert_eq!(set, scraped);
    }

    #[test]
    fn alerts_and_dashboard_query_only_existing_metrics() {
        let scraped = families(&scrape(&edge()));
        let board = include_str!("../../../../deploy/grafana.json");
        serde_json::from_str::<serde_json::Value>(board).expect("JSON");
        for (what, text, least) in [
            ("metrics.md", METRICS, 60),
            ("alerts.md", ALERTS, 15),
            ("frozen-viewer.md", FROZEN, 4),
            ("limits.md", LIMITS, 5),
            ("deploy/grafana.json", board, 20),
        ] {
            let asked = names(text);
            assert!(asked.len() >= least, "{what} names {} metrics", asked.len());
            let unknown: Vec<_> = asked.iter().filter(|name| !scraped.contains(**name)).collect();
            assert!(unknown.is_empty(), "{what}: {unknown:?}");
        }
    }

    #[test]
    fn older_format_has_the_same_samples() {
        let open = scrape(&edge());
        let plain = format::plain(&open);
        let samples = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(samples(&open), samples(&plain));
        assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF") && !plain.contains("# UNIT"));
        // Each family name is a prefix of its samples' names.
        for (name, _) in plain.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split_once(' ')) {
            let is_of = |sample: &String| sample.starts_with(name);
            let is_empty = !open.contains(&format!("\n{name}"));
            assert!(is_empty || samples(&plain).iter().any(is_of), "{name}");
        }
        assert!(plain.contains("# TYPE mendcast_records_dropped_total counter\n"));
        assert!(plain.contains("# HELP mendcast_records_dropped_total Session records"));
    }

    #[test]
    fn each_loop_exports_its_silence_and_turns() {
        let edge = edge();
        let pulse = &edge.shared().pulses()[1];
        pulse.end(Timestamp::ZERO, Timestamp::from_millis(3));
        let text = scrape(&edge);
        for line in [
            "mendcast_loop_turn_seconds_bucket{le=\"0.002\",loop=\"quic-1\"} 0",
            "mendcast_loop_turn_seconds_bucket{le=\"0.005\",loop=\"quic-1\"} 1",
            "mendcast_loop_turn_seconds_count{loop=\"quic-1\"} 1",
            "mendcast_loop_turn_seconds_count{loop=\"tcp-0\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(text.contains("mendcast_loop_silence_seconds{loop=\"quic-1\"} "));
    }
}
