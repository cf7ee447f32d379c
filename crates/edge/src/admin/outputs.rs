//! Metrics and a description of pushed and recorded streams, and of uploads. Labels come from the
//! configuration.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use serde_json::{Map, Value, json};

use crate::live::Live;
use crate::push::{PushEvent, Pushes, Target, TargetCounts};
use crate::record::Recordings;
use crate::upload::Uploads;

type NoExemplar<'a> = Option<&'a Exemplar<[(&'static str, &'static str); 1], u64>>;

/// Describes the targets of pushes, and the directories of recordings and uploads, without
/// secrets. Targets of removed rules stay, as in metrics.
pub(super) fn describe(live: &Live) -> Value {
    let push = |((stream, target), counts): (Target, Arc<TargetCounts>)| {
        let events = PushEvent::ALL.map(|event| (event.name().into(), counts.of(event).into()));
        json!({
            "stream": stream,
            "target": target,
            "connections": counts.connected.load(Ordering::Relaxed),
            "bytes": counts.bytes.load(Ordering::Relaxed),
            "skips": counts.skips.load(Ordering::Relaxed),
            "events": Map::from_iter(events),
        })
    };
    let recordings = live.recordings.counts().into_iter().map(|(directory, counts, running)| {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        json!({
            "directory": directory,
            "streams": running,
            "queued_bytes": load(&counts.queued),
            "segments": load(&counts.segments),
            "bytes": load(&counts.bytes),
            "removed": load(&counts.removed),
            "gaps": { "queue": load(&counts.queue_gaps), "disk": load(&counts.disk_gaps) },
        })
    });
    let uploads = live.uploads.counts().into_iter().map(|(directory, counts)| {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        json!({
            "directory": directory,
            "files": load(&counts.files),
            "bytes": load(&counts.bytes),
            "failures": load(&counts.failures),
            "lost": load(&counts.lost),
            "pending": load(&counts.pending),
        })
    });
    json!({
        "pushes": live.pushes.counts().into_iter().map(push).collect::<Vec<_>>(),
        "recordings": recordings.collect::<Vec<_>>(),
        "uploads": uploads.collect::<Vec<_>>(),
    })
}

/// Encodes connections, bytes, skips and events of each target.
pub(super) fn encode_pushes(
    encoder: &mut DescriptorEncoder<'_>,
    pushes: &Pushes,
) -> Result<(), Error> {
    let all = pushes.counts();
    let help = "Connections of pushed streams that the target accepted";
    let mut family =
        encoder.encode_descriptor("push_connections", help, None, MetricType::Gauge)?;
    for ((stream, target), counts) in &all {
        let labels = [("stream", stream.as_str()), ("target", target.as_str())];
        let connected = counts.connected.load(Ordering::Relaxed) as i64;
        family.encode_family(&labels)?.encode_gauge(&connected)?;
    }
    for (name, help, is_bytes) in [
        ("push_bytes", "Media bytes passed to targets of pushed streams", true),
        ("push_skips", "Skips to a key frame because a target of pushed streams was slow", false),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for ((stream, target), counts) in &all {
            let labels = [("stream", stream.as_str()), ("target", target.as_str())];
            let count = if is_bytes { &counts.bytes } else { &counts.skips };
            let none: NoExemplar<'_> = None;
            let value = count.load(Ordering::Relaxed) as f64;
            family.encode_family(&labels)?.encode_counter(&value, none)?;
        }
    }
    let help = "Events of pushed streams";
    let mut family = encoder.encode_descriptor("push_events", help, None, MetricType::Counter)?;
    for ((stream, target), counts) in &all {
        for event in PushEvent::ALL {
            let labels =
                [("stream", stream.as_str()), ("target", target.as_str()), ("event", event.name())];
            let none: NoExemplar<'_> = None;
            let value = counts.of(event) as f64;
            family.encode_family(&labels)?.encode_counter(&value, none)?;
        }
    }
    Ok(())
}

/// Encodes running recordings, queue, segments, bytes and gaps of each directory.
pub(super) fn encode_recordings(
    encoder: &mut DescriptorEncoder<'_>,
    recordings: &Recordings,
) -> Result<(), Error> {
    let all = recordings.counts();
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    let help = "Streams that are being recorded";
    let mut family = encoder.encode_descriptor("recordings", help, None, MetricType::Gauge)?;
    for (directory, _, running) in &all {
        let labels = [("directory", directory.as_str())];
        family.encode_family(&labels)?.encode_gauge(&(*running as i64))?;
    }
    let help = "Recorded media that waits for the disk";
    let mut family =
        encoder.encode_descriptor("record_queued_bytes", help, None, MetricType::Gauge)?;
    for (directory, counts, _) in &all {
        let labels = [("directory", directory.as_str())];
        family.encode_family(&labels)?.encode_gauge(&load(&counts.queued))?;
    }
    for (name, help, place) in [
        ("record_segments", "Segments recorded", 0),
        ("record_bytes", "Media bytes recorded", 1),
        ("record_removed", "Recordings removed because of their age or size", 2),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (directory, counts, _) in &all {
            let count = [&counts.segments, &counts.bytes, &counts.removed][place];
            let labels = [("directory", directory.as_str())];
            let none: NoExemplar<'_> = None;
            family.encode_family(&labels)?.encode_counter(&load(count), none)?;
        }
    }
    let help = "Segments missing from recordings";
    let mut family = encoder.encode_descriptor("record_gaps", help, None, MetricType::Counter)?;
    for (directory, counts, _) in &all {
        for (reason, count) in [("queue", &counts.queue_gaps), ("disk", &counts.disk_gaps)] {
            let labels = [("directory", directory.as_str()), ("reason", reason)];
            let none: NoExemplar<'_> = None;
            family.encode_family(&labels)?.encode_counter(&load(count), none)?;
        }
    }
    Ok(())
}

/// Encodes files, bytes, failures and pending uploads of each directory.
pub(super) fn encode_uploads(
    encoder: &mut DescriptorEncoder<'_>,
    uploads: &Uploads,
) -> Result<(), Error> {
    let all = uploads.counts();
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    for (name, help, place) in [
        ("upload_files", "Files uploaded, without playlists", 0),
        ("upload_bytes", "Bytes uploaded, without playlists", 1),
        ("upload_failures", "Failed attempts of uploads", 2),
        ("upload_lost", "Files removed before they were uploaded", 3),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (directory, counts) in &all {
            let count = [&counts.files, &counts.bytes, &counts.failures, &counts.lost][place];
            let labels = [("directory", directory.as_str())];
            let none: NoExemplar<'_> = None;
            family.encode_family(&labels)?.encode_counter(&load(count), none)?;
        }
    }
    let help = "Recordings and record files that are not completely uploaded";
    let mut family = encoder.encode_descriptor("upload_pending", help, None, MetricType::Gauge)?;
    for (directory, counts) in &all {
        let labels = [("directory", directory.as_str())];
        family.encode_family(&labels)?.encode_gauge(&load(&counts.pending))?;
    }
    Ok(())
}
