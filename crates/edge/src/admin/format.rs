//! Text formats of `/metrics`, and content negotiation between them.

use std::collections::HashSet;

/// A text format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text format, version 0.0.4.
    Plain,
}

impl Format {
    /// Returns the format preferred by the header field `Accept`. Defaults to the older one, which
    /// every client reads.
    pub(super) fn accepted(accept: Option<&str>) -> Self {
        let (mut open, mut plain) = (0.0f64, 0.0f64);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
            let weight = weight.unwrap_or(1.0f64);
            match kind.as_str() {
                "application/openmetrics-text" => open = open.max(weight),
                "text/plain" | "text/*" | "*/*" => plain = plain.max(weight),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Plain }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Converts OpenMetrics text to the older format: counter families get their samples' names, and
/// unit lines and the end marker are removed.
pub(super) fn plain(text: &str) -> String {
    let counters: HashSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("#"), Some("UNIT" | "EOF"), _) => {}
            (Some("#"), Some(what), Some(name)) if counters.contains(name) => {
                let rest = words.next().unwrap_or_default();
                out.extend(["# ", what, " ", name, "_total ", rest, "\n"]);
            }
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_the_accept_field() {
        for (accept, format) in [
            (None, Format::Plain),
            (Some("*/*"), Format::Plain),
            (Some("text/plain;version=0.0.4"), Format::Plain),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            (
                Some("application/openmetrics-text; version=1.0.0; q=0.5, text/plain;q=0.2"),
                Format::OpenMetrics,
            ),
            (Some("application/openmetrics-text;q=0.1,text/plain;q=0.9"), Format::Plain),
            (Some("application/openmetrics-text;q=0"), Format::Plain),
            (Some("application/json"), Format::Plain),
            (Some(";;,q=,"), Format::Plain),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept:?}");
        }
    }
}
