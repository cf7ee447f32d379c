//! Log lines as JSON: one object per line, safe for arbitrary text of peers.
//!
//! `time` (RFC 3339, UTC, microseconds), `level` and `message` come first, then the event's fields.
//! Values are truncated one by one, so that a line is always a whole object.

use std::fmt::{self, Debug, Write as _};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::line::is_unsafe;

/// Maximum length of a value in bytes, without the truncation mark.
const MAX_VALUE: usize = 1_024;
/// Names that fields of events may not take.
const RESERVED: [&str; 2] = ["time", "level"];

/// Formats events as JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        writer.write_str(&line(time, level, fields))
    }
}

/// The message and fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        let name = field.name();
        let name = if RESERVED.contains(&name) { format!("field_{name}") } else { name.into() };
        self.others.insert(name, value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = truncated(format!("{value:?}"));
        match field.name() {
            "message" => self.message = text,
            _ => self.add(field, text.into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = truncated(value.to_owned()),
            _ => self.add(field, truncated(value.to_owned()).into()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

/// Cuts a long text at a character, and adds how much is missing.
fn truncated(mut text: String) -> String {
    if text.len() > MAX_VALUE {
        let length = text.len();
        let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_VALUE).last();
        text.truncate(end.unwrap_or(0));
        // Writing to a string cannot fail.
        let _ = write!(text, "… ({} bytes more)", length - text.len());
    }
    text
}

/// Returns the line of an event.
fn line(time: String, level: String, fields: Fields) -> String {
    let quoted = |text: String| Value::String(text).to_string();
    let mut line = format!(
        "{{\"time\":{},\"level\":{},\"message\":{}",
        quoted(time),
        quoted(level),
        quoted(fields.message)
    );
    for (name, value) in fields.others {
        let _ = write!(line, ",{}:{value}", quoted(name));
    }
    line.push_str("}\n");
    escape(&line)
}

/// Escapes characters that JSON permits in strings but that break lines, control terminals, or
/// change the display order. The final line feed remains.
fn escape(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for character in line.chars() {
        if character != '\n' && is_unsafe(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt as _;

    use crate::sync::lock;

    /// Collects the output of a subscriber.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Output {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines of events, as text and parsed.
    fn lines(work: impl FnOnce()) -> Vec<(String, Value)> {
        let output = Output::default();
        let writer = output.clone();
        let layer =
            tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).event_format(Json);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, work);
        let text = String::from_utf8(lock(&output.0).clone()).expect("text");
        let parsed = |line: &str| serde_json::from_str(line).expect("JSON");
        text.lines().map(|line| (line.to_owned(), parsed(line))).collect()
    }

    #[test]
    fn a_line_has_time_level_message_and_fields() {
        let all = lines(|| {
            tracing::warn!(stream = "live/a", viewers = 7, share = 0.5, late = true, "pull {}", 1);
            tracing::info!(time = "x", level = ?Some(1), "");
        });
        let (text, first) = &all[0];
        assert!(text.starts_with("{\"time\":\"20"), "{text}");
        let time = first["time"].as_str().expect("a time");
        assert!(time.ends_with('Z') && time.len() == "2026-11-28T10:00:00.000000Z".len(), "{time}");
        assert_eq!((&first["level"], &first["message"]), (&"warn".into(), &"pull 1".into()));
        assert_eq!((&first["stream"], &first["viewers"]), (&"live/a".into(), &7.into()));
        assert_eq!((&first["share"], &first["late"]), (&0.5.into(), &true.into()));
        let second = &all[1].1;
        assert_eq!(second["field_time"], "x");
        assert_eq!((&second["level"], &second["field_level"]), (&"info".into(), &"Some(1)".into()));
    }

    #[test]
    fn text_of_peers_stays_inside_its_string() {
        let hostile = "a\"}\n{\"level\":\"error\"\r\0\u{1b}[2J\u{85}\u{202e}\u{2028}\\\u{feff}é";
        let all = lines(|| tracing::info!(name = hostile, "refused: {hostile}"));
        assert_eq!(all.len(), 1, "one line");
        let (text, value) = &all[0];
        assert_eq!((&value["name"], &value["level"]), (&hostile.into(), &"info".into()));
        assert_eq!(value["message"], format!("refused: {hostile}"));
        assert!(!text.chars().any(is_unsafe), "{text}");
        assert!(
            text.contains("\\u202e") && text.contains("\\u2028") && text.contains('é'),
            "{text}"
        );
    }

    #[test]
    fn long_values_are_truncated_and_the_line_stays_whole() {
        let long = "é\"".repeat(100_000);
        let all = lines(|| tracing::info!(name = %long, "{long}"));
        let (text, value) = &all[0];
        for key in ["name", "message"] {
            let value = value[key].as_str().expect("text");
            assert!(value.len() < MAX_VALUE + 40 && value.ends_with(" bytes more)"), "{value}");
        }
        assert!(text.len() < 8 * MAX_VALUE);
    }
}
