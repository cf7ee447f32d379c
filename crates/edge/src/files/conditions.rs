//! Conditional and range requests: RFC 9110, sections 13 and 14.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http::RequestHead;

/// Validators of a file's version (RFC 9110, section 8.8).
#[derive(Debug)]
pub(super) struct Validators {
    /// Strong entity tag, with quotes.
    pub(super) etag: String,
    /// Modification time in whole seconds.
    pub(super) modified: SystemTime,
}

impl Validators {
    /// Creates the validators of a file of `len` bytes, last modified at `modified`.
    pub(super) fn new(modified: SystemTime, len: u64, now: SystemTime) -> Self {
        let age = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let etag = format!("\"{:x}-{len:x}\"", age.as_nanos());
        // RFC 9110, section 8.8.2.1: not later than the response.
        let shown = modified.min(now).duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { etag, modified: UNIX_EPOCH + Duration::from_secs(shown.as_secs()) }
    }
}

/// Kind of response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// 200 with the whole file.
    Whole,
    /// 206 with `length` > 0 bytes from `start`.
    Part { start: u64, length: u64 },
    /// 304.
    NotModified,
    /// 412.
    Failed,
    /// 416.
    Unsatisfiable,
}

/// Evaluates the conditions in the order of RFC 9110, section 13.2.2. `length` is the file's size.
/// Ranges apply only to GET (section 14.2).
pub(super) fn evaluate(
    head: &RequestHead<'_>,
    validators: &Validators,
    length: u64,
    get: bool,
) -> ResponseKind {
    let date = |name| head.value(name).and_then(|text| httpdate::parse_http_date(text).ok());
    let has = |name| head.values(name).next().is_some();

    if has("if-match") {
        if !listed(head, "if-match", &validators.etag, false) {
            return ResponseKind::Failed;
        }
    } else if date("if-unmodified-since").is_some_and(|date| validators.modified > date) {
        return ResponseKind::Failed;
    }

    if has("if-none-match") {
        if listed(head, "if-none-match", &validators.etag, true) {
            return ResponseKind::NotModified;
        }
    } else if date("if-modified-since").is_some_and(|date| validators.modified <= date) {
        return ResponseKind::NotModified;
    }

    let Some(range) = head.value("range").filter(|_| get) else { return ResponseKind::Whole };
    let same = match head.value("if-range") {
        Some(tag) if tag.contains('"') => tag == validators.etag,
        Some(date) => httpdate::parse_http_date(date).is_ok_and(|d| d == validators.modified),
        // A malformed or repeated field matches nothing.
        None => !has("if-range"),
    };
    if same { parse_range(range, length) } else { ResponseKind::Whole }
}

/// Whether the tags in the fields `name` include `etag` or `*`. `weak` selects the weak comparison
/// of RFC 9110, section 8.8.3.2.
fn listed(head: &RequestHead<'_>, name: &str, etag: &str, weak: bool) -> bool {
    head.values(name).filter_map(|value| core::str::from_utf8(value).ok()).any(|value| {
        value.split(',').map(str::trim).any(|tag| {
            let tag = tag.strip_prefix("W/").filter(|_| weak).unwrap_or(tag);
            tag == "*" || tag == etag
        })
    })
}

/// Parses a byte range (RFC 9110, section 14.1.2). Multiple ranges, other units and malformed ones
/// are ignored, as section 14.2 permits.
fn parse_range(range: &str, length: u64) -> ResponseKind {
    let spec = match range.split_once('=') {
        Some((unit, spec)) if unit.eq_ignore_ascii_case("bytes") => spec.trim(),
        _ => return ResponseKind::Whole,
    };
    let Some((first, last)) = spec.split_once('-') else { return ResponseKind::Whole };
    let (start, end) = match (position(first), position(last)) {
        // Suffix range: the last N bytes.
        (None, Some(suffix)) if first.is_empty() => (length - suffix.min(length), length),
        (Some(start), None) if last.is_empty() => (start, length),
        (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(length)),
        _ => return ResponseKind::Whole,
    };
    if start < end {
        ResponseKind::Part { start, length: end - start }
    } else {
        ResponseKind::Unsatisfiable
    }
}

/// Parses digits. Saturates at 2^64 - 1, which is beyond any file.
fn position(digits: &str) -> Option<u64> {
    let valid = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    valid.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::viewer::Protocol;

    const MODIFIED: SystemTime = UNIX_EPOCH;

    fn outcome(fields: &[(&'static str, &str)]) -> ResponseKind {
        let validators = Validators::new(
            MODIFIED + Duration::from_millis(784_111_777_500),
            1000,
            MODIFIED + Duration::from_secs(2_000_000_000),
        );
        assert_eq!(validators.etag, "\"ae1b981da166f00-3e8\"");
        let fields = fields.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let (remote, protocol) = (([127, 0, 0, 1], 1).into(), Protocol::Http3);
        let head = RequestHead { fields, ..RequestHead::new("GET", "/", remote, protocol) };
        evaluate(&head, &validators, 1000, true)
    }

    const SAME: &str = "\"ae1b981da166f00-3e8\"";
    const OTHER: &str = "\"other\"";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn parses_ranges_by_rfc_9110_section_14_1_2() {
        let part = |start, length| ResponseKind::Part { start, length };
        let cases = [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-499", part(0, 500)),
            ("bytes=500-", part(500, 500)),
            ("bytes=-1", part(999, 1)),
            ("bytes=-5000", part(0, 1000)),
            ("bytes=990-5000", part(990, 10)),
            ("BYTES=1-1", part(1, 1)),
            ("bytes=0-99999999999999999999999", part(0, 1000)),
            ("bytes=1000-", ResponseKind::Unsatisfiable),
            ("bytes=99999999999999999999999-", ResponseKind::Unsatisfiable),
            ("bytes=-0", ResponseKind::Unsatisfiable),
            ("bytes=5-4", ResponseKind::Whole),
            ("bytes=0-1,3-4", ResponseKind::Whole),
            ("bytes=-", ResponseKind::Whole),
            ("bytes=a-b", ResponseKind::Whole),
            ("bytes=+1-2", ResponseKind::Whole),
            ("bytes=1", ResponseKind::Whole),
            ("lines=1-2", ResponseKind::Whole),
            ("", ResponseKind::Whole),
        ];
        for (range, expected) in cases {
            assert_eq!(outcome(&[("range", range)]), expected, "{range}");
        }
        assert_eq!(parse_range("bytes=0-", 0), ResponseKind::Unsatisfiable);
        assert_eq!(parse_range("bytes=-1", 0), ResponseKind::Unsatisfiable);
    }

    #[test]
    fn evaluates_conditions_in_the_order_of_rfc_9110_section_13_2_2() {
        let weak = format!("W/{SAME}");
        let list = format!("{OTHER}, {weak}");
        let cases: &[(&[(&'static str, &str)], ResponseKind)] = &[
            (&[("if-none-match", SAME)], ResponseKind::NotModified),
            (&[("if-none-match", &list)], ResponseKind::NotModified),
            (&[("if-none-match", "*")], ResponseKind::NotModified),
            (&[("if-none-match", OTHER), ("if-none-match", SAME)], ResponseKind::NotModified),
            (&[("if-none-match", OTHER)], ResponseKind::Whole),
            (&[("if-none-match", OTHER), ("if-modified-since", AFTER)], ResponseKind::Whole),
            (&[("if-modified-since", AFTER)], ResponseKind::NotModified),
            (&[("if-modified-since", DATE)], ResponseKind::NotModified),
            (&[("if-modified-since", BEFORE)], ResponseKind::Whole),
            (&[("if-modified-since", "yesterday")], ResponseKind::Whole),
            (&[("if-match", SAME)], ResponseKind::Whole),
            (&[("if-match", "*")], ResponseKind::Whole),
            (&[("if-match", &weak)], ResponseKind::Failed),
            (&[("if-match", OTHER), ("if-none-match", SAME)], ResponseKind::Failed),
            (&[("if-unmodified-since", BEFORE)], ResponseKind::Failed),
            (&[("if-unmodified-since", DATE)], ResponseKind::Whole),
            (&[("if-none-match", SAME), ("range", "bytes=0-0")], ResponseKind::NotModified),
        ];
        for (fields, expected) in cases {
            assert_eq!(outcome(fields), *expected, "{fields:?}");
        }
    }

    #[test]
    fn if_range_allows_ranges_of_the_same_version_only() {
        let part = ResponseKind::Part { start: 0, length: 1 };
        let weak = format!("W/{SAME}");
        let cases = [
            (SAME, part),
            (DATE, part),
            (&weak, ResponseKind::Whole),
            (OTHER, ResponseKind::Whole),
            (AFTER, ResponseKind::Whole),
            ("garbage", ResponseKind::Whole),
        ];
        for (if_range, expected) in cases {
            let got = outcome(&[("range", "bytes=0-0"), ("if-range", if_range)]);
            assert_eq!(got, expected, "{if_range}");
        }
        let twice = [("range", "bytes=0-0"), ("if-range", SAME), ("if-range", SAME)];
        assert_eq!(outcome(&twice), ResponseKind::Whole);
    }

    #[test]
    fn future_modification_times_are_clamped_to_now() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let validators = Validators::new(now + Duration::from_secs(50), 1, now);
        assert_eq!(validators.modified, now);
    }
}
