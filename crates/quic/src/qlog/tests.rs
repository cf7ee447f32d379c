use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::*;
use crate::wire::{
    TransportError, TransportErrorCode, Writer, put_connection_close, put_stream_header,
};
use units::StreamId;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>, usize);

impl io::Write for Shared {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().expect("one thread");
        if self.1 > 0 && all.len() + data.len() > self.1 {
            return Err(io::Error::other("the disk is full"));
        }
        all.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn records(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().expect("one thread").clone()).expect("UTF-8");
        assert!(text.starts_with(RECORD_SEPARATOR));
        text.split(RECORD_SEPARATOR)
            .skip(1)
            .map(|record| serde_json::from_str(record).expect(record))
            .collect()
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn observer(limit: usize) -> (QlogObserver<Shared>, Shared) {
    let shared = Shared(Arc::default(), limit);
    let unix = Duration::from_secs(1_800_000_000);
    (QlogObserver::new(shared.clone(), &[0xab, 1], at(1_000), unix), shared)
}

#[test]
fn a_log_has_a_header_and_an_event_per_record() {
    let (mut observer, shared) = observer(0);
    let mut buffer = [0; 64];
    let mut w = Writer::new(&mut buffer);
    put_stream_header(&mut w, StreamId(4), 10, Some(3), true);
    w.reserve(3).copy_from_slice(b"abc");
    let error = TransportError::new(TransportErrorCode(7), 0, "\"quoted\"\n\\");
    put_connection_close(&mut w, &error);
    let len = w.position();
    observer.on_event(
        at(1_002),
        &Event::PacketSent {
            ty: PacketType::OneRtt,
            number: 5,
            size: 60,
            payload: &buffer[..len],
            purpose: Purpose::Replica,
        },
    );
    observer.on_event(at(1_003), &Event::Closed { code: 7, reason: "a \"b\"" });
    let records = shared.records();
    assert_eq!(records[0]["qlog_version"], "0.3");
    assert_eq!(records[0]["trace"]["common_fields"]["ODCID"], "ab01");
    assert_eq!(records[0]["trace"]["common_fields"]["reference_time"].as_f64(), Some(1.8e12));
    assert_eq!(records[0]["trace"]["vantage_point"]["type"], "server");
    let sent = &records[1];
    assert_eq!(sent["time"].as_f64(), Some(2.0));
    assert_eq!(sent["name"], "transport:packet_sent");
    let expected: Value = serde_json::json!({
        "header": {"packet_type": "1RTT", "packet_number": 5},
        "raw": {"length": 60},
        "frames": [
            {"frame_type": "stream", "stream_id": 4, "offset": 10, "length": 3, "fin": true},
            {"frame_type": "connection_close", "error_code": 7, "trigger_frame_type": 0,
             "error_space": "transport", "reason": "\"quoted\"\n\\"},
        ],
        "trigger": "replica",
    });
    assert_eq!(sent["data"], expected);
    assert_eq!(records[2]["data"]["reason"], "a \"b\"");
}

#[test]
fn any_payload_gives_valid_records() {
    let (mut observer, shared) = observer(0);
    // Every first byte of a frame, followed by arbitrary bytes.
    for first in 0..=255u8 {
        for fill in [0, 1, 0x40, 0xff] {
            let mut payload = vec![fill; 40];
            payload[0] = first;
            observer.on_event(
                at(1_000),
                &Event::PacketReceived {
                    ty: PacketType::Initial,
                    number: 0,
                    size: 60,
                    payload: &payload,
                },
            );
        }
    }
    let records = shared.records();
    assert_eq!(records.len(), 1 + 256 * 4);
    let names: std::collections::BTreeSet<&str> = records[1..]
        .iter()
        .flat_map(|record| record["data"]["frames"].as_array().expect("frames"))
        .map(|frame| frame["frame_type"].as_str().expect("a name"))
        .collect();
    for name in ["ack", "crypto", "handshake_done", "max_streams", "path_challenge", "unknown"] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
}

#[test]
fn metrics_say_only_what_changed() {
    let (mut observer, shared) = observer(0);
    let metrics = |window| {
        METRICS.map(|name| match name {
            "min_rtt" => Some(1.5),
            "congestion_window" => Some(window),
            _ => None,
        })
    };
    observer.metrics(at(1_001), metrics(12_000.0));
    observer.metrics(at(1_002), metrics(12_000.0));
    observer.metrics(at(1_003), metrics(13_000.0));
    let records = shared.records();
    assert_eq!(records.len(), 3);
    assert_eq!(records[1]["data"], serde_json::json!({"min_rtt": 1.5, "congestion_window": 12000}));
    assert_eq!(records[2]["data"], serde_json::json!({"congestion_window": 13000}));
}

#[test]
fn a_full_disk_ends_the_log_and_nothing_else() {
    let (mut observer, shared) = observer(400);
    for _ in 0..100 {
        observer.on_event(at(1_001), &Event::Migrated);
    }
    assert!(observer.writer.is_none());
    let records = shared.records();
    assert!(records.len() > 1 && records.len() < 100);
}

#[test]
fn states_of_ecn_have_the_names_of_the_draft() {
    let (mut observer, shared) = observer(0);
    observer.on_event(at(1_001), &Event::EcnState { old: None, new: EcnState::Testing });
    let old = Some(EcnState::Testing);
    observer.on_event(at(1_002), &Event::EcnState { old, new: EcnState::Failed });
    let records = shared.records();
    assert_eq!(records[2]["name"], "recovery:ecn_state_updated");
    assert_eq!(records[1]["data"], serde_json::json!({"new": "testing"}));
    assert_eq!(records[2]["data"], serde_json::json!({"old": "testing", "new": "failed"}));
}

#[test]
fn a_lost_packet_names_its_trigger() {
    use crate::detection::LossTrigger::{EarlyRetransmit, PacketThreshold, TimeThreshold};
    let (mut observer, shared) = observer(0);
    for trigger in [PacketThreshold, TimeThreshold, EarlyRetransmit] {
        let lost = Event::PacketLost { ty: PacketType::OneRtt, number: 7, sent: at(900), trigger };
        observer.on_event(at(1_001), &lost);
    }
    let records = shared.records();
    let header = serde_json::json!({"packet_type": "1RTT", "packet_number": 7});
    let names = ["reordering_threshold", "time_threshold", "early_retransmit"];
    for (record, name) in records[1..].iter().zip(names) {
        assert_eq!(record["name"], "recovery:packet_lost");
        assert_eq!(record["data"], serde_json::json!({"header": header, "trigger": name}));
    }
}
