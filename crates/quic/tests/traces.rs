//! Traces of one connection. In a process of its own: with other threads, a call site could be
//! registered before this subscriber exists, and stay disabled.

#[allow(dead_code, reason = "one test uses a part of it")]
#[path = "common/mod.rs"]
mod common;

use common::{Pair, Setup, content, read};
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Collects events and spans as lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Lines {
    fn push(&self, line: Line) {
        self.0.lock().expect("one thread").push(line.0);
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("mendcast")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("span {}", span.metadata().name()));
        span.record(&mut line);
        self.push(line);
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.push(line);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn traces_name_address_trigger_and_reason() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let mut pair = Pair::new(&Setup::new(9));
        pair.both(|link| {
            link.loss = Some(read("5%"));
            link.duplicate = read("5%");
        });
        pair.answer = content(300_000);
        pair.connect();
        assert_eq!(pair.download(Duration::from_secs(60)), pair.answer);
    });
    let lines = lines.0.lock().expect("one thread");
    let has = |parts: &[&str]| {
        let found = lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line with {parts:?}");
    };
    has(&["span quic", "remote="]);
    has(&["DEBUG", "handshake confirmed"]);
    has(&["TRACE", "packet lost", "number=", "trigger=\"reordering_threshold\""]);
    has(&["TRACE", "packet dropped", "reason=\"duplicate\""]);
    has(&["DEBUG", "congestion event", "kind=Loss"]);
    has(&["TRACE", "lost unit recovered"]);
}
