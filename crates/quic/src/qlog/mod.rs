//! qlog: an [`Observer`] that writes a connection's events as a JSON text sequence
//! (draft-ietf-quic-qlog-main-schema-02 and -quic-events-01, version "0.3", which qvis opens).
//!
//! The caller supplies the writer and so decides how to handle a full or slow disk. At the first
//! error the log ends; the connection continues. The log contains only the client's first
//! destination ID, and no stream data or tokens.

mod frames;
mod json;

use core::fmt::Write as _;
use core::time::Duration;
use std::io;

use recovery::LostUnit;
use units::Timestamp;

use self::json::{hex, string};
use crate::ecn::EcnState;
use crate::observer::{Event, Observer, Purpose};
use crate::wire::PacketType;

/// Starts each record of a JSON text sequence (RFC 7464, section 2.2).
const RECORD_SEPARATOR: char = '\u{1e}';

/// Writes the log of one connection.
#[derive(Debug)]
pub struct QlogObserver<W> {
    /// `None` after an error.
    writer: Option<W>,
    start: Timestamp,
    line: String,
    last: Metrics,
    state: &'static str,
}

/// Values of `recovery:metrics_updated`, in milliseconds, bytes and bits per second, in the order
/// of [`METRICS`]. Only changed values are written.
type Metrics = [Option<f64>; METRICS.len()];

const METRICS: [&str; 8] = [
    "min_rtt",
    "smoothed_rtt",
    "latest_rtt",
    "rtt_variance",
    "congestion_window",
    "bytes_in_flight",
    "ssthresh",
    "pacing_rate",
];

impl<W: io::Write> QlogObserver<W> {
    /// Writes the header. `odcid` is the client's first destination connection ID; times in the
    /// log count from `start`, which was at `unix` after 1970.
    pub fn new(writer: W, odcid: &[u8], start: Timestamp, unix: Duration) -> Self {
        let mut this = Self {
            writer: Some(writer),
            start,
            line: String::with_capacity(512),
            last: [None; METRICS.len()],
            state: "",
        };
        let mut id = String::with_capacity(2 * odcid.len());
        hex(&mut id, odcid);
        let reference = millis(unix);
        this.record(|line| {
            let _ = write!(
                line,
                "{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON-SEQ\",\"title\":\"mendcast\",\
                 \"trace\":{{\"vantage_point\":{{\"name\":\"mendcast\",\"type\":\"server\"}},\
                 \"common_fields\":{{\"ODCID\":\"{id}\",\"group_id\":\"{id}\",\
                 \"protocol_type\":[\"QUIC\"],\"time_format\":\"relative\",\
                 \"reference_time\":{reference}}}}}}}"
            );
        });
        this
    }

    fn record(&mut self, body: impl FnOnce(&mut String)) {
        let Some(writer) = &mut self.writer else { return };
        self.line.clear();
        self.line.push(RECORD_SEPARATOR);
        body(&mut self.line);
        self.line.push('\n');
        if writer.write_all(self.line.as_bytes()).is_err() {
            self.writer = None;
        }
    }

    /// An event with the members that `data` writes.
    fn event(&mut self, now: Timestamp, name: &str, data: impl FnOnce(&mut String)) {
        let time = millis(now.since(self.start));
        self.record(|line| {
            let _ = write!(line, "{{\"time\":{time},\"name\":\"{name}\",\"data\":{{");
            data(line);
            line.push_str("}}");
        });
    }

    fn metrics(&mut self, now: Timestamp, new: Metrics) {
        let old = self.last;
        if new == old {
            return;
        }
        self.last = new;
        self.event(now, "recovery:metrics_updated", |line| {
            let values = METRICS.iter().zip(new).zip(old);
            let changed = values.filter(|((_, new), old)| new != old);
            let mut comma = "";
            for (name, value) in changed.filter_map(|((name, new), _)| Some((name, new?))) {
                let _ = write!(line, "{comma}\"{name}\":{value}");
                comma = ",";
            }
        });
    }
}

impl<W: io::Write> QlogObserver<W> {
    fn congestion_state(&mut self, now: Timestamp, new: &'static str) {
        let old = core::mem::replace(&mut self.state, new);
        if new != old {
            self.event(now, "recovery:congestion_state_updated", |line| {
                if !old.is_empty() {
                    let _ = write!(line, "\"old\":\"{old}\",");
                }
                let _ = write!(line, "\"new\":\"{new}\"");
            });
        }
    }
}

impl<W: io::Write> QlogObserver<W> {
    /// An event of later drafts (-05 and on).
    fn ecn_state(&mut self, now: Timestamp, old: Option<EcnState>, new: EcnState) {
        self.event(now, "recovery:ecn_state_updated", |line| {
            if let Some(old) = old {
                let _ = write!(line, "\"old\":\"{}\",", old.name());
            }
            let _ = write!(line, "\"new\":\"{}\"", new.name());
        });
    }
}

/// Milliseconds with a resolution of a microsecond.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

fn packet_type(ty: PacketType) -> &'static str {
    match ty {
        PacketType::Initial => "initial",
        PacketType::ZeroRtt => "0RTT",
        PacketType::Handshake => "handshake",
        PacketType::OneRtt => "1RTT",
    }
}

fn header(line: &mut String, ty: PacketType, number: u64) {
    let ty = packet_type(ty);
    let _ = write!(line, "\"header\":{{\"packet_type\":\"{ty}\",\"packet_number\":{number}}}");
}

/// Header, size and frames of a packet.
fn packet(line: &mut String, ty: PacketType, number: u64, size: usize, payload: &[u8]) {
    header(line, ty, number);
    let _ = write!(line, ",\"raw\":{{\"length\":{size}}},\"frames\":[");
    frames::write(line, payload);
    line.push(']');
}

fn recovered(line: &mut String, now: Timestamp, unit: &LostUnit) {
    let (bytes, rounds, copies) = (unit.bytes, unit.round, unit.copies);
    let _ = write!(line, "\"bytes\":{bytes},\"rounds\":{rounds},\"copies\":{copies}");
    let _ = write!(line, ",\"after\":{}", millis(now.since(unit.first_sent)));
    if let Some(media_time) = unit.mark.and_then(|mark| mark.media_time) {
        let _ = write!(line, ",\"media_time\":{}", millis(media_time));
    }
}

/// The draft's triggers, and beyond them `replica` for a further copy of a round.
fn trigger(purpose: Purpose) -> Option<&'static str> {
    match purpose {
        Purpose::Original => None,
        Purpose::Retransmission => Some("retransmit_reordered"),
        Purpose::Replica => Some("replica"),
        Purpose::Probe => Some("pto_probe"),
        Purpose::MtuProbe => Some("mtu_probe"),
    }
}

impl<W: io::Write> Observer for QlogObserver<W> {
    fn on_event(&mut self, now: Timestamp, event: &Event<'_>) {
        if self.writer.is_none() {
            return;
        }
        match event {
            Event::PacketSent { ty, number, size, payload, purpose } => {
                self.event(now, "transport:packet_sent", |line| {
                    packet(line, *ty, *number, *size, payload);
                    if let Some(trigger) = trigger(*purpose) {
                        let _ = write!(line, ",\"trigger\":\"{trigger}\"");
                    }
                });
            }
            Event::PacketReceived { ty, number, size, payload } => {
                self.event(now, "transport:packet_received", |line| {
                    packet(line, *ty, *number, *size, payload);
                });
            }
            Event::PacketLost { ty, number, trigger, .. } => {
                self.event(now, "recovery:packet_lost", |line| {
                    header(line, *ty, *number);
                    let _ = write!(line, ",\"trigger\":\"{}\"", trigger.name());
                });
            }
            Event::Metrics { rtt, window, in_flight, pacing_rate, controller } => {
                let measured = rtt.first_sample().is_some();
                let time = |value| Some(millis(value)).filter(|_| measured);
                let number = |value: u64| value as f64;
                let new = [
                    time(rtt.min()),
                    time(rtt.smoothed()),
                    time(rtt.latest()),
                    time(rtt.variance()),
                    Some(number(*window)),
                    Some(number(*in_flight)),
                    controller.ssthresh.map(number),
                    pacing_rate.map(|rate| number(rate.as_bps())),
                ];
                self.metrics(now, new);
                self.congestion_state(now, controller.state);
            }
            // These are no events of the draft: they have names of our own, as it allows.
            Event::UnitFinished { unit } => {
                self.event(now, "mendcast:lost_data_recovered", |line| recovered(line, now, unit));
            }
            Event::RecoveryDecision { scheme, reasons, .. } => {
                self.event(now, "mendcast:recovery_decision", |line| {
                    let _ = write!(line, "\"scheme\":\"{scheme}\"");
                    for (name, value) in reasons.iter().filter(|(_, value)| value.is_finite()) {
                        let _ = write!(line, ",\"{name}\":{value}");
                    }
                });
            }
            Event::KeyUpdated => {
                for key in ["server_1rtt_secret", "client_1rtt_secret"] {
                    self.event(now, "security:key_updated", |line| {
                        let _ = write!(line, "\"key_type\":\"{key}\"");
                    });
                }
            }
            Event::EcnState { old, new } => self.ecn_state(now, *old, *new),
            Event::Migrated => self.event(now, "connectivity:path_updated", |_| {}),
            Event::Closed { code, reason } => {
                self.event(now, "connectivity:connection_closed", |line| {
                    let _ = write!(line, "\"connection_code\":{code},\"reason\":");
                    string(line, reason);
                });
                // Flush now: the connection may be kept for long.
                if let Some(writer) = &mut self.writer
                    && writer.flush().is_err()
                {
                    self.writer = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
