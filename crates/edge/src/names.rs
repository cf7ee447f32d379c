//! Names of streams in logs, and patterns that match them.

use crate::config::MAX_STREAM_NAME;

/// Shortens and escapes a peer's text for a log line, so that it cannot end the line or control a
/// terminal. Stream names are unchanged.
pub fn printable(text: &str) -> String {
    let shown: String = text.chars().take(MAX_STREAM_NAME).collect();
    let cut = if shown.len() < text.len() { "…" } else { "" };
    format!("{}{cut}", shown.escape_debug())
}

/// Whether `pattern`, a name or a prefix and `*`, matches `name`.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_peers_cannot_forge_log_lines() {
        assert_eq!(printable("live/demo-1"), "live/demo-1");
        assert_eq!(printable("OBS (v31.0; Linux)"), "OBS (v31.0; Linux)");
        let forged = "a\n2026-11-22T00:00:00Z ERROR all is lost\r\u{1b}[2J\u{85}\u{2028}\u{202e}";
        let shown = printable(forged);
        assert!(
            !shown.chars().any(|c| c.is_control() || "\u{2028}\u{202e}".contains(c)),
            "{shown}"
        );
        assert!(shown.starts_with("a\\n2026"), "{shown}");
        assert!(printable(&"x".repeat(1 << 20)).len() < 2 * MAX_STREAM_NAME);
    }
}
