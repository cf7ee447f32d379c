//! All findings of a session, ranked.

use std::path::PathBuf;

use records::{Column, Input as RecordCounts};
use serde::Serialize;

use super::connections::ConnectionLine;
use super::facts::{Facts, utc};
use super::finding::{Cause, Finding, Source};
use super::neighbours::Neighbours;
use super::trace::{Stall, Trace};
use super::{rules, shown};

/// Columns without which a cause cannot be seen, and that cause.
const NEEDED: [(&[Column], &str); 6] = [
    (&[Column::player_freezes, Column::player_freeze_s], "whether the player froze"),
    (&[Column::loss_rate], "losses"),
    (&[Column::rtt_ms, Column::rtt_min_ms], "queues on the path"),
    (&[Column::stream_mbps, Column::goodput_mbps], "whether the path carried the stream"),
    (&[Column::skips], "skipped media"),
    (&[Column::recovery_p95_ms], "late repairs"),
];
/// Sessions shorter than this cannot be judged, in s.
const MIN_SESSION_S: f64 = 2.0;

/// Everything known about a session.
#[derive(Debug)]
pub(super) struct Input {
    pub facts: Facts,
    pub others: Vec<String>,
    pub records: RecordCounts,
    pub neighbours: Neighbours,
    pub qlog: Option<Option<(PathBuf, Trace)>>,
    pub line: Option<ConnectionLine>,
    pub notes: Vec<String>,
}

/// Outcome for the viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The player reported freezes.
    Froze,
    /// The player reported none.
    NoFreeze,
    /// The session ended before a first picture.
    NoPicture,
    /// The player sent no valid report.
    Unreported,
}

/// The session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionSummary {
    /// Location of the record.
    pub record: String,
    /// Viewer ID.
    pub viewer: Option<String>,
    /// Stream.
    pub stream: Option<String>,
    /// Protocol.
    pub protocol: Option<String>,
    /// Format.
    pub format: Option<String>,
    /// Recovery scheme.
    pub scheme: Option<String>,
    /// Network.
    pub prefix: Option<String>,
    /// Start in UTC.
    pub started: Option<String>,
    /// Duration in s.
    pub duration_s: Option<f64>,
    /// Freezes that the player reported.
    pub freezes: Option<f64>,
    /// Frozen time in s that the player reported.
    pub freeze_s: Option<f64>,
}

/// Sources that were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sources {
    /// Number of records read.
    pub records: u64,
    /// Broken lines and unreadable files of records.
    pub unreadable: u64,
    /// The qlog.
    pub qlog: Option<String>,
    /// Damaged events of the qlog.
    pub qlog_broken: u64,
    /// Whether the connection log has the connection.
    pub connection_log: bool,
}

/// Explanation of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The session.
    pub session: SessionSummary,
    /// Outcome for the viewer.
    pub outcome: Outcome,
    /// Causes, most likely first. Empty without enough data, or without a cause.
    pub causes: Vec<Finding>,
    /// Whether no column or qlog supports any conclusion.
    pub is_not_enough_data: bool,
    /// Times without media, from the qlog.
    pub timeline: Vec<Stall>,
    /// Sessions at the same time.
    pub neighbours: Neighbours,
    /// Missing columns, and conclusions that they prevent.
    pub missing: Vec<String>,
    /// Remarks on the data.
    pub notes: Vec<String>,
    /// Sources.
    pub sources: Sources,
}

pub(super) fn explain(input: Input) -> Explanation {
    let Input { facts, others, records, neighbours, qlog, line, mut notes } = input;
    let asked_for_qlog = qlog.is_some();
    let qlog = qlog.flatten();
    let outcome = outcome(&facts);
    let trace = qlog.as_ref().map(|(_, trace)| trace);
    let mut causes = merged(
        trace.map(|trace| shown::findings(trace, &facts)).unwrap_or_default(),
        rules::findings(&facts, &neighbours),
    );
    refine(&mut causes, &facts, &neighbours, line.as_ref());
    // The player is a cause only if nothing else is.
    if causes.iter().any(|finding| finding.cause != Cause::Player) {
        causes.retain(|finding| finding.cause != Cause::Player);
    }
    causes.sort_by(|a, b| b.certainty.cmp(&a.certainty).then(b.strength.total_cmp(&a.strength)));
    let missing = missing(&facts);
    remark(&facts, &others, trace, asked_for_qlog, &mut notes);
    if let Some(line) = &line {
        notes.push(format!(
            "connection log: closed by {} (code {}, `{}`), probe timeouts: {}, migrations: {}",
            line.closed_by, line.code, line.reason, line.pto_count, line.migrations
        ));
    }
    let timeline: Vec<Stall> = trace
        .map(|trace| {
            let counted = shown::counted(trace, &facts);
            counted.into_iter().cloned().collect()
        })
        .unwrap_or_default();
    let has_network = facts[Column::loss_rate].is_some() || trace.is_some();
    Explanation {
        session: summary(&facts),
        outcome,
        is_not_enough_data: causes.is_empty() && (!has_network || outcome == Outcome::Unreported),
        causes,
        timeline,
        neighbours,
        missing,
        notes,
        sources: Sources {
            records: records.records,
            unreadable: records.broken_lines + records.unreadable_files,
            qlog: qlog.as_ref().map(|(path, _)| path.display().to_string()),
            qlog_broken: trace.map_or(0, |trace| trace.broken),
            connection_log: line.is_some(),
        },
    }
}

fn outcome(facts: &Facts) -> Outcome {
    let first = facts[Column::player_first_frame_ms].or(facts[Column::first_frame_ms]);
    match (facts[Column::player_freezes], first) {
        (Some(freezes), _) if freezes > 0.0 => Outcome::Froze,
        (Some(_), Some(_)) => Outcome::NoFreeze,
        (Some(_), None) if facts[Column::player_played_s].is_some_and(|s| s > 0.0) => {
            Outcome::NoFreeze
        }
        (_, None) if facts[Column::loss_rate].is_some() && !facts.is_tcp() && !facts.is_hls() => {
            Outcome::NoPicture
        }
        _ => Outcome::Unreported,
    }
}

/// Merges findings of one cause; the qlog's sentence is kept.
fn merged(shown: Vec<Finding>, recorded: Vec<Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = shown;
    for finding in recorded {
        match all.iter_mut().find(|known| known.cause == finding.cause) {
            Some(known) => known.absorb(finding),
            None => all.push(finding),
        }
    }
    all
}

/// Uses one source to judge findings of another.
fn refine(
    causes: &mut [Finding],
    facts: &Facts,
    neighbours: &Neighbours,
    line: Option<&ConnectionLine>,
) {
    let share = neighbours.same_stream.share(3);
    for finding in causes.iter_mut() {
        match finding.cause {
            Cause::Publisher if share.is_some_and(|share| share < 0.25) => {
                finding.sentence.push_str(
                    " Most other viewers of the stream did not freeze: check this viewer's \
                     session (skips, cap, pauses) before the publisher.",
                );
                finding.strength *= 0.5;
            }
            Cause::Capacity if finding.help.is_empty() => {
                let path = finding.evidence.iter().find(|known| known.name == "delivered");
                let path = path.map_or(0.0, |evidence| evidence.value);
                *finding = rules::lower_rendition(finding.clone(), path);
            }
            Cause::Controller if finding.help.is_empty() => {
                let name = facts.text(Column::congestion_controller);
                if name.as_deref() != Some("bbr") {
                    finding.help.push("`[quic] congestion = \"bbr\"`".to_owned());
                }
            }
            Cause::Loss if facts.text(Column::scheme).as_deref() == Some("arq") => {
                let scheme = "`[recovery] scheme = \"deadline\"`, which sends copies to players \
                              with small buffers"
                    .to_owned();
                if !finding.help.contains(&scheme) {
                    finding.help.push(scheme);
                }
            }
            Cause::Server if finding.help.is_empty() => finding
                .help
                .push("the server's CPU and event loops (docs/operate/capacity.md)".to_owned()),
            _ => {}
        }
    }
    if let Some(line) = line.filter(|line| line.migrations > 0)
        && let Some(finding) = causes.iter_mut().find(|known| known.cause == Cause::PathChange)
    {
        let evidence =
            finding.clone().with("migrations", line.migrations as f64, "", Source::ConnectionLog);
        *finding = evidence;
    }
}

fn missing(facts: &Facts) -> Vec<String> {
    let mut all = Vec::new();
    for (columns, conclusion) in NEEDED {
        // Without losses there is no recovery latency.
        let is_moot = columns == [Column::recovery_p95_ms]
            && (facts[Column::recovery_count].is_some() || facts.is_tcp());
        let absent: Vec<&str> = columns
            .iter()
            .filter(|column| facts[**column].is_none())
            .map(|column| column.name())
            .collect();
        if !absent.is_empty() && !is_moot {
            all.push(format!("{conclusion} (no {})", absent.join(", ")));
        }
    }
    all
}

fn remark(
    facts: &Facts,
    others: &[String],
    trace: Option<&Trace>,
    asked_for_qlog: bool,
    notes: &mut Vec<String>,
) {
    if facts.is_clamped {
        notes.push(
            "the player's report contradicts the server's clock and is ignored; fix the player"
                .to_owned(),
        );
    }
    if !facts.impossible.is_empty() {
        notes.push(format!("impossible values, ignored: {}", facts.impossible.join(", ")));
    }
    if facts[Column::duration_s].is_some_and(|s| s < MIN_SESSION_S) {
        notes.push(format!("the session was shorter than {MIN_SESSION_S:.0} s"));
    }
    if facts[Column::started_ms].is_none() || facts[Column::duration_s].is_none() {
        notes.push("the record has no time: neighbours are unknown".to_owned());
    }
    match trace {
        Some(trace) => {
            if let Some(at) = trace.cut_at_s() {
                notes.push(format!("the qlog ends at {at:.1} s; later stalls are unknown"));
            }
            if trace.broken > 0 {
                notes.push(format!("damaged events in the qlog, skipped: {}", trace.broken));
            }
            if trace.path_changes > 0 {
                notes.push(format!("changes of the viewer's address: {}", trace.path_changes));
            }
        }
        None if !asked_for_qlog => notes.push(
            "without a qlog (--qlog) times of losses and stalls are unknown \
             (docs/operate/traces.md)"
                .to_owned(),
        ),
        None => {}
    }
    if !others.is_empty() {
        notes.push(format!("other sessions of this viewer: {}", others.join(", ")));
    }
}

fn summary(facts: &Facts) -> SessionSummary {
    SessionSummary {
        record: facts.place.clone(),
        viewer: facts.text(Column::viewer),
        stream: facts.text(Column::stream),
        protocol: facts.text(Column::protocol),
        format: facts.text(Column::format),
        scheme: facts.text(Column::scheme),
        prefix: facts.text(Column::prefix),
        started: facts[Column::started_ms].map(utc),
        duration_s: facts[Column::duration_s],
        freezes: facts[Column::player_freezes],
        freeze_s: facts[Column::player_freeze_s],
    }
}
