//! Extensible priorities (RFC 9218): the parameters `u` and `i` of the `priority` header field and
//! PRIORITY_UPDATE frames, and a bounded store of updates that arrive before their request.

use quic::streams::Priority;
use units::StreamId;

/// Maximum number of stored updates for future requests. The oldest is evicted first.
const MAX_EARLY_UPDATES: usize = 16;

/// Parses a Priority Field Value, a dictionary of structured fields (RFC 8941, section 3.2).
///
/// RFC 9218, section 4: unknown parameters, values out of range and values of another type are
/// ignored; the parameter then has its default.
pub(crate) fn parse(field_value: &[u8]) -> Priority {
    let mut priority = Priority::default();
    for member in members(field_value) {
        let member = member.split(|&byte| byte == b';').next().unwrap_or_default();
        match member.trim_ascii() {
            [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
            b"i" | b"i=?1" => priority.incremental = true,
            b"i=?0" => priority.incremental = false,
            _ => {}
        }
    }
    priority
}

/// Returns the members of a dictionary, which are separated by commas outside of strings.
fn members(field_value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    field_value.split(move |&byte| {
        let escapes = quoted && !escaped && byte == b'\\';
        quoted ^= byte == b'"' && !escaped;
        escaped = escapes;
        byte == b',' && !quoted
    })
}

/// Updates for requests that have not arrived.
///
/// RFC 9218, section 7: servers "SHOULD buffer the most recently received PRIORITY_UPDATE frame and
/// apply it once the referenced stream is opened"; the bound is an addition.
#[derive(Debug, Default)]
pub(crate) struct EarlyUpdates(Vec<(StreamId, Priority)>);

impl EarlyUpdates {
    /// Stores the update, and replaces an older one for the same stream.
    pub(crate) fn put(&mut self, id: StreamId, priority: Priority) {
        self.take(id);
        if self.0.len() == MAX_EARLY_UPDATES {
            self.0.remove(0);
        }
        self.0.push((id, priority));
    }

    /// Removes and returns the update for a stream.
    pub(crate) fn take(&mut self, id: StreamId) -> Option<Priority> {
        let place = self.0.iter().position(|entry| entry.0 == id)?;
        let (_, priority) = self.0.remove(place);
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
        Some(priority)
    }

    /// Heap memory, in bytes.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        self.0.capacity() * size_of::<(StreamId, Priority)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_and_other_input_is_ignored() {
        let p = |urgency, incremental| Priority { urgency, incremental };
        for (value, expected) in [
            ("", p(3, false)),
            ("u=0", p(0, false)),
            ("u=5, i", p(5, true)),
            ("i,u=7", p(7, true)),
            ("u=1, u=2", p(2, false)),
            ("i, i=?0", p(3, false)),
            ("i;x=1, u=2;y", p(2, true)),
            ("u=8", p(3, false)),
            ("u=-1", p(3, false)),
            ("u=3.0, i=1", p(3, false)),
            ("u=1;a=\"x, u=6\"", p(1, false)),
            ("x=\"\\\", u=6\", i", p(3, true)),
            ("x=\"unended, u=6", p(3, false)),
            ("U=1, \u{ff}, =, ,,;;", p(3, false)),
        ] {
            assert_eq!(parse(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn early_updates_are_bounded_and_the_newest_wins() {
        let mut updates = EarlyUpdates::default();
        let urgent = |urgency| Priority { urgency, incremental: false };
        for index in 0..100 {
            updates.put(StreamId(4 * index), urgent(1));
        }
        updates.put(StreamId(4 * 99), urgent(6));
        assert_eq!(updates.0.len(), MAX_EARLY_UPDATES);
        assert_eq!(updates.take(StreamId(4 * 99)), Some(urgent(6)));
        assert_eq!(updates.take(StreamId(4 * 99)), None);
        assert_eq!(updates.take(StreamId(0)), None);
    }
}
