//! Findings from columns of the record. Thresholds are rules of thumb, the same as in
//! docs/operate/frozen-viewer.md.

use records::Column;

use super::facts::Facts;
use super::finding::Certainty::{self, Likely, Possible};
use super::finding::Source::{Record, Records};
use super::finding::{Cause, Finding};
use super::gap::QUEUE_MS;
use super::neighbours::Neighbours;

/// Loss rate over TCP above which losses explain freezes.
const TCP_LOSS: f64 = 0.01;
/// A cap below this multiple of the stream's rate leaves no room for key frames and repairs.
const CAP_FACTOR: f64 = 1.5;
/// A path faster than this multiple of the stream is not the bottleneck.
const CAPACITY_FACTOR: f64 = 1.1;
/// Longest run of lost packets, and minimum rounds, of an outage.
const OUTAGE_RUN: f64 = 10.0;
const OUTAGE_ROUNDS: f64 = 3.0;
/// Minimum recovery latency (p95) that explains freezes, in ms; the player's buffer is unknown.
const LATE_MS: f64 = 200.0;
/// Loss rate below which the network delivered everything.
const NO_LOSS: f64 = 0.001;
/// Minimum share of the stream's rate that counts as delivered.
const DELIVERED: f64 = 0.95;
/// Minimum first-frame time of a slow start, in ms.
const SLOW_START_MS: f64 = 2_000.0;
/// Minimum number of neighbours, and their share that froze, for a common cause.
const MIN_NEIGHBOURS: u64 = 3;
const COMMON: f64 = 0.6;

/// Returns the findings of all rules. If the player reported no freeze, they describe a session
/// that did well nevertheless.
pub(super) fn findings(facts: &Facts, neighbours: &Neighbours) -> Vec<Finding> {
    let mut all: Vec<Finding> = [
        common(facts, neighbours),
        tcp(facts),
        cap(facts),
        capacity(facts),
        queue(facts),
        outage(facts),
        late_repairs(facts),
        controller(facts),
        startup(facts),
    ]
    .into_iter()
    .flatten()
    .collect();
    if all.iter().all(|finding| finding.cause == Cause::Startup) {
        all.extend(player(facts, neighbours));
    }
    all
}

/// Grows from 0 at the threshold to 1 at eight times the threshold.
fn above(value: f64, threshold: f64) -> f64 {
    (value / threshold).log2() / 3.0
}

/// Other viewers froze at the same time.
fn common(facts: &Facts, neighbours: &Neighbours) -> Option<Finding> {
    let streams = neighbours.other_streams.share(MIN_NEIGHBOURS);
    let stream = neighbours.same_stream.share(MIN_NEIGHBOURS);
    let network = neighbours.same_network.share(MIN_NEIGHBOURS);
    let counts = |finding: Finding| {
        [
            ("same_stream", neighbours.same_stream),
            ("other_streams", neighbours.other_streams),
            ("same_network", neighbours.same_network),
        ]
        .into_iter()
        .filter(|(_, seen)| seen.sessions > 0)
        .fold(finding, |finding, (name, seen)| {
            let (frozen, all) = (format!("{name}_frozen"), format!("{name}_sessions"));
            finding.with(&frozen, seen.frozen as f64, "sessions", Records).with(
                &all,
                seen.sessions as f64,
                "sessions",
                Records,
            )
        })
    };
    if facts.frozen_s() <= 0.0 {
        return None;
    }
    let is_common = |share: Option<f64>| share.is_some_and(|share| share >= COMMON);
    if is_common(streams) {
        let share = streams.unwrap_or(0.0);
        let sentence = format!(
            "{:.0} % of the viewers of other streams froze at the same time: the server or its \
             uplink.",
            share * 100.0
        );
        let finding = Finding::new(Cause::Server, Likely, share, sentence)
            .helped_by("the server's CPU, UDP drops and uplink (docs/operate/capacity.md)");
        return Some(counts(finding));
    }
    if is_common(stream) {
        let share = stream.unwrap_or(0.0);
        let sentence = format!(
            "{:.0} % of the other viewers of this stream froze at the same time, in other \
             networks: the publisher or upstream stalled.",
            share * 100.0
        );
        let finding = Finding::new(Cause::Publisher, Likely, share, sentence)
            .helped_by("the publisher's uplink and encoder, or the upstream of the pull");
        return Some(counts(finding));
    }
    if is_common(network) {
        let share = network.unwrap_or(0.0);
        let sentence = format!(
            "{:.0} % of the other viewers in the same network froze at the same time, and most \
             elsewhere did not: a shared bottleneck of that network.",
            share * 100.0
        );
        return Some(counts(Finding::new(Cause::Queue, Possible, share, sentence)));
    }
    None
}

fn tcp(facts: &Facts) -> Option<Finding> {
    let loss = facts[Column::loss_rate].filter(|loss| *loss >= TCP_LOSS && facts.is_tcp())?;
    let sentence = format!(
        "The session came over TCP and lost {:.1} % of its packets: each loss blocks the data \
         after it, and no recovery scheme acts.",
        loss * 100.0
    );
    let finding = Finding::new(Cause::Tcp, Likely, above(loss, TCP_LOSS / 2.0), sentence);
    Some(
        with(finding, facts, &[Column::loss_rate, Column::packets_lost])
            .helped_by("HTTP/3 (docs/operate/play.md)")
            .helped_by("a larger player buffer"),
    )
}

fn cap(facts: &Facts) -> Option<Finding> {
    let (cap, stream) = facts[Column::cap_mbps].zip(facts[Column::stream_mbps])?;
    if stream <= 0.0 || cap >= CAP_FACTOR * stream {
        return None;
    }
    let sentence = format!(
        "AutoPlex capped the session at {cap:.2} Mbps, {:.2} times the stream's rate.",
        cap / stream
    );
    let strength = above(CAP_FACTOR * stream, cap.max(1e-6)) + 0.3;
    let finding = Finding::new(Cause::Cap, Likely, strength, sentence);
    Some(
        with(finding, facts, &[Column::cap_mbps, Column::stream_mbps])
            .helped_by("a higher floor, or no cap for this user group (docs/operate/autoplex.md)"),
    )
}

fn capacity(facts: &Facts) -> Option<Finding> {
    let stream = facts[Column::stream_mbps].filter(|rate| *rate > 0.0)?;
    // A rate of flights that were not application-limited is the path's. Any other is a lower
    // bound, which counts only if media was withheld.
    let withheld =
        facts[Column::skips].unwrap_or(0.0) + facts[Column::thinned].unwrap_or(0.0) > 0.0;
    let any = facts[Column::max_bandwidth_mbps].filter(|_| withheld);
    let path = facts[Column::open_rate_mbps].or(any).filter(|rate| *rate > 0.0)?;
    if path >= CAPACITY_FACTOR * stream {
        return None;
    }
    let certainty = if withheld { Likely } else { Possible };
    let sentence = format!(
        "The path carried at most {path:.2} Mbps for a stream of {stream:.2} Mbps{}.",
        if withheld { ", and media was skipped" } else { "" }
    );
    let strength = 0.5 + above(CAPACITY_FACTOR * stream, path);
    let finding = Finding::new(Cause::Capacity, certainty, strength, sentence);
    Some(lower_rendition(
        with(
            finding,
            facts,
            &[
                Column::open_rate_mbps,
                Column::max_bandwidth_mbps,
                Column::stream_mbps,
                Column::goodput_mbps,
                Column::skips,
                Column::skipped_ms,
                Column::thinned,
            ],
        ),
        path,
    ))
}

/// Adds the rendition that the path carries.
pub(super) fn lower_rendition(finding: Finding, path_mbps: f64) -> Finding {
    finding
        .helped_by(format!("a rendition of at most {:.2} Mbps", path_mbps * 0.8))
        .helped_by("nothing in the transport: no scheme or buffer makes the path faster")
}

fn queue(facts: &Facts) -> Option<Finding> {
    let (end, least) = facts[Column::rtt_ms].zip(facts[Column::rtt_min_ms])?;
    let growth = end - least;
    if growth < QUEUE_MS {
        return None;
    }
    let sentence = format!(
        "The round-trip time grew by {growth:.0} ms: a queue on the path fills, by other traffic \
         of the household or because the bottleneck is hardly faster than the stream."
    );
    let finding = Finding::new(Cause::Queue, Likely, above(growth, QUEUE_MS / 2.0), sentence);
    Some(
        with(finding, facts, &[Column::rtt_ms, Column::rtt_min_ms])
            .helped_by("a lower rendition")
            .helped_by("on the viewer's side: a wired network, no parallel uploads"),
    )
}

fn outage(facts: &Facts) -> Option<Finding> {
    let (run, rounds) = facts[Column::burst_longest].zip(facts[Column::rounds_max])?;
    if run <= OUTAGE_RUN || rounds < OUTAGE_ROUNDS {
        return None;
    }
    let sentence = format!(
        "{run:.0} packets in a row were lost, and lost data needed up to {rounds:.0} rounds: the \
         path was silent for a while, as with Wi-Fi and mobile hand-overs."
    );
    let finding = Finding::new(Cause::Outage, Likely, above(run, OUTAGE_RUN / 2.0), sentence);
    Some(
        with(
            finding,
            facts,
            &[
                Column::burst_longest,
                Column::bursts,
                Column::rounds_max,
                Column::recovery_max_ms,
                Column::packets_lost,
            ],
        )
        .helped_by(longer_buffer(facts))
        .helped_by("no recovery scheme: while the path is silent, copies are lost as well"),
    )
}

/// Recommends a buffer from the longest repair.
fn longer_buffer(facts: &Facts) -> String {
    let longest = facts[Column::recovery_max_ms].zip(facts[Column::rtt_ms]);
    longest.map_or("a larger player buffer".to_owned(), |(latency, rtt)| {
        // Detection, repair and transmission each take up to a round trip.
        format!("a player buffer of at least {:.1} s", (latency + 2.0 * rtt) / 1e3)
    })
}

fn late_repairs(facts: &Facts) -> Option<Finding> {
    let late = facts[Column::units_late].filter(|units| *units > 0.0)?;
    let latency = facts[Column::recovery_p95_ms].filter(|ms| *ms >= LATE_MS)?;
    let sentence = format!(
        "{late:.0} lost packets needed more than one repair, and 5 % of those waited {latency:.0} \
         ms or longer for the copy that arrived."
    );
    let finding = Finding::new(Cause::Loss, Likely, above(latency, LATE_MS / 2.0), sentence);
    let finding = with(
        finding,
        facts,
        &[
            Column::loss_rate,
            Column::packets_lost,
            Column::bursts,
            Column::units_late,
            Column::units_finished,
            Column::recovery_p95_ms,
            Column::recovery_max_ms,
            Column::replicas,
            Column::rtt_ms,
        ],
    );
    let finding = match facts.text(Column::scheme).as_deref() {
        Some("arq") | None => finding.helped_by(
            "`[recovery] scheme = \"deadline\"`, which sends copies to players with small buffers",
        ),
        Some(_) => finding,
    };
    Some(finding.helped_by(longer_buffer(facts)))
}

fn controller(facts: &Facts) -> Option<Finding> {
    let name = facts.text(Column::congestion_controller)?;
    let loss = facts[Column::loss_rate]?;
    let (rate, stream) = facts[Column::goodput_mbps].zip(facts[Column::stream_mbps])?;
    let growth = facts[Column::rtt_ms].zip(facts[Column::rtt_min_ms]).map(|(a, b)| a - b)?;
    let is_reactive = matches!(name.as_str(), "cubic" | "copa" | "cubic-lsquic");
    if !is_reactive
        || facts.is_tcp()
        || loss < TCP_LOSS
        || rate >= 0.9 * stream
        || growth >= QUEUE_MS
    {
        return None;
    }
    let sentence = format!(
        "`{name}` reduces its rate after losses: {:.1} % of the packets were lost without a queue, \
         and the viewer got {:.0} % of the stream.",
        loss * 100.0,
        rate / stream * 100.0
    );
    let finding = Finding::new(Cause::Controller, Likely, 1.0 - rate / stream, sentence);
    Some(
        with(finding, facts, &[Column::loss_rate, Column::goodput_mbps, Column::stream_mbps])
            .helped_by("`[quic] congestion = \"bbr\"`"),
    )
}

fn startup(facts: &Facts) -> Option<Finding> {
    let first = facts[Column::player_first_frame_ms].or(facts[Column::first_frame_ms])?;
    if first < SLOW_START_MS {
        return None;
    }
    let sentence = format!("The first picture took {:.1} s: a slow start.", first / 1e3);
    let finding = Finding::new(Cause::Startup, Possible, above(first, SLOW_START_MS), sentence);
    Some(
        with(finding, facts, &[Column::player_first_frame_ms, Column::first_frame_ms])
            .helped_by("1 to 2 s between key frames, and a startup mode with saved path state"),
    )
}

/// Without any other cause, the network delivered the stream.
fn player(facts: &Facts, neighbours: &Neighbours) -> Option<Finding> {
    let loss = facts[Column::loss_rate]?;
    let (rate, stream) = facts[Column::goodput_mbps].zip(facts[Column::stream_mbps])?;
    let skips = facts[Column::skips]?;
    if loss >= NO_LOSS || rate < DELIVERED * stream || skips > 0.0 || facts.frozen_s() <= 0.0 {
        return None;
    }
    let others = match neighbours.same_stream.share(MIN_NEIGHBOURS) {
        Some(_) => {
            "Most other viewers of the stream did not freeze, so the player or its device \
                    did."
        }
        None => {
            "The player, its device or the media froze the picture; without other viewers of \
                 the stream, a short stall of the publisher is possible as well."
        }
    };
    let sentence = format!(
        "The network delivered the stream: {:.2} % loss, {rate:.2} of {stream:.2} Mbps, no skips. \
         {others}",
        loss * 100.0
    );
    let certainty: Certainty =
        if neighbours.same_stream.share(MIN_NEIGHBOURS).is_some() { Likely } else { Possible };
    let finding = Finding::new(Cause::Player, certainty, 0.5, sentence);
    Some(
        with(
            finding,
            facts,
            &[Column::loss_rate, Column::goodput_mbps, Column::stream_mbps, Column::skips],
        )
        .helped_by("`player.html?stream=…` on the same device (docs/operate/frozen-viewer.md)")
        .helped_by("a larger player buffer, if it is below 0.5 s"),
    )
}

/// Adds the columns that the record has.
fn with(finding: Finding, facts: &Facts, columns: &[Column]) -> Finding {
    columns.iter().fold(finding, |finding, column| match facts[*column] {
        Some(value) => finding.with(column.name(), value, column.unit(), Record),
        None => finding,
    })
}
