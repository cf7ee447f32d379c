//! The record of a session, from its opening, its transport and its player.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use records::Record;
use records::schema::{Delivery, Session as Columns};

use super::{Session, SessionState};
use crate::viewer::prefix;

impl Session {
    /// Returns the record as of now.
    pub fn record(&self) -> Record {
        let state = self.state();
        let SessionState { transport, first_frame, .. } = &*state;
        let (age, bytes) = (self.age(), self.bytes.load(Ordering::Relaxed));
        let seconds = age.as_secs_f64();
        let first_bytes = self.first_frame_bytes.load(Ordering::Relaxed);
        // TCP fronts have no transport statistics.
        let has_transport = transport.totals.settled() > 0;
        let began = self.began.1.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut record = Record {
            session: Columns {
                session: Some(self.id as i64),
                viewer: Some(self.opening.viewer.to_string()),
                stream: Some(self.opening.stream.clone()),
                protocol: Some(self.opening.protocol.name().into()),
                format: Some(self.opening.format.into()),
                unit: self.opening.unit.map(|unit| unit.to_string()),
                cohort: Some(self.opening.cohort.clone()).filter(|cohort| !cohort.is_empty()),
                scheme: Some(self.opening.scheme.into()).filter(|_| has_transport),
                prefix: Some(prefix(self.opening.remote)),
                started_ms: Some(began.as_millis() as i64),
                duration_s: Some(seconds),
                ..Columns::default()
            },
            delivery: Delivery {
                bytes: Some(bytes as i64),
                goodput_mbps: (seconds > 0.0).then(|| bytes as f64 * 8e-6 / seconds),
                skips: Some(self.skips.load(Ordering::Relaxed) as i64),
                skipped_ms: Some(self.skipped_ms.load(Ordering::Relaxed) as i64),
                thinned: Some(self.thinned.load(Ordering::Relaxed) as i64),
            },
            ..Record::default()
        };
        record.startup.first_frame_ms = first_frame.map(|time| time.as_secs_f64() * 1e3);
        record.startup.first_frame_bytes = (first_bytes > 0).then_some(first_bytes as i64);
        if let Some(started) = &state.started {
            started.write_to(&mut record);
        }
        state.autoplex.write_to(&mut record);
        transport.write_to(age, &mut record);
        if let Some(tcp) = &self.opening.tcp {
            tcp.write_to(&mut record);
        }
        if let Some(player) = state.player.totals() {
            player.write_to(&mut record);
        }
        record
    }
}
