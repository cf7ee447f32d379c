//! Event log of a run, as a hash: times, sizes, packet numbers and frames sent and received by the
//! server. It contains no ciphertext, connection ID or other random bytes, so the same seed gives
//! the same log.

use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{Context, SHA256};
use quic::observer::{Event, Observer};
use quic::wire::{Frame, Frames};
use units::Timestamp;

/// A log that keeps only the hash and the number of its lines.
#[derive(Clone)]
pub struct EventLog(Arc<Mutex<LogState>>);

/// Digest of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// SHA-256 of the lines in hexadecimal.
    pub sha256: String,
    /// Number of lines.
    pub lines: u64,
}

impl Digest {
    /// First 52 bits of the hash, which a floating-point number represents exactly.
    pub(crate) fn start(&self) -> u64 {
        u64::from_str_radix(&self.sha256[..13], 16).expect("hexadecimal digits")
    }
}

struct LogState {
    hash: Context,
    lines: u64,
}

impl Default for EventLog {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LogState { hash: Context::new(&SHA256), lines: 0 })))
    }
}

impl EventLog {
    /// Returns the current digest.
    pub fn digest(&self) -> Digest {
        let state = self.0.lock().expect("a run has one thread");
        let hash = state.hash.clone().finish();
        let sha256 = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Digest { sha256, lines: state.lines }
    }

    fn line(&self, values: &[u64]) {
        let mut state = self.0.lock().expect("a run has one thread");
        for value in values {
            state.hash.update(&value.to_le_bytes());
        }
        state.lines += 1;
    }

    fn frames(&self, payload: &[u8]) {
        for frame in Frames::new(payload).flatten() {
            match frame {
                Frame::Stream { id, offset, data, fin } => {
                    self.line(&[0x08, id.0, offset, data.len() as u64, u64::from(fin)]);
                }
                Frame::Crypto { offset, data } => self.line(&[0x06, offset, data.len() as u64]),
                Frame::Ack(ack) => {
                    self.line(&[0x02, ack.largest, ack.delay]);
                    ack.ranges().for_each(|range| self.line(&[*range.start(), *range.end()]));
                }
                Frame::MaxData(max) => self.line(&[0x10, max]),
                Frame::MaxStreamData { id, max } => self.line(&[0x11, id.0, max]),
                Frame::NewConnectionId { sequence, retire_prior_to, .. } => {
                    self.line(&[0x18, sequence, retire_prior_to]);
                }
                Frame::RetireConnectionId { sequence } => self.line(&[0x19, sequence]),
                // The packet's size suffices for other frames.
                _ => {}
            }
        }
    }
}

impl Observer for EventLog {
    fn on_event(&mut self, now: Timestamp, event: &Event<'_>) {
        let now = now.as_nanos();
        match event {
            Event::PacketSent { ty, number, size, payload, purpose } => {
                self.line(&[1, now, *ty as u64, *number, *size as u64, *purpose as u64]);
                self.frames(payload);
            }
            Event::PacketReceived { ty, number, size, payload } => {
                self.line(&[2, now, *ty as u64, *number, *size as u64]);
                self.frames(payload);
            }
            Event::PacketLost { ty, number, sent, .. } => {
                self.line(&[3, now, *ty as u64, *number, sent.as_nanos()]);
            }
            Event::Metrics { window, in_flight, .. } => self.line(&[4, now, *window, *in_flight]),
            // Derived from events already in the log.
            Event::UnitFinished { .. } | Event::EcnState { .. } => {}
            Event::RecoveryDecision { reasons, .. } => {
                let values = reasons.iter().map(|(_, value)| value.to_bits());
                self.line(&[8, now].into_iter().chain(values).collect::<Vec<_>>());
            }
            Event::KeyUpdated => self.line(&[5, now]),
            Event::Migrated => self.line(&[6, now]),
            Event::Closed { code, .. } => self.line(&[7, now, *code]),
        }
    }
}
