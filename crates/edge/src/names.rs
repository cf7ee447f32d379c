//! Names of streams, and patterns that match them.

/// Maximum length of a stream's name.
const MAX_NAME: usize = 128;

/// Whether `name` is a valid stream name, which a URL's path can contain without encoding. No part
/// starts with a dot (hidden files) or a tilde (passes).
pub fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let is_part = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '~']) && part.bytes().all(is_plain)
    };
    name.len() <= MAX_NAME && name.split('/').all(is_part)
}

/// Shortens and escapes a peer's text for a log line, so that it cannot end the line or control a
/// terminal. Stream names are unchanged.
pub fn printable(text: &str) -> String {
    let shown: String = text.chars().take(MAX_NAME).collect();
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
        assert!(printable(&"x".repeat(1 << 20)).len() < 2 * MAX_NAME);
    }

    #[test]
    fn names_need_no_encoding_in_a_path() {
        for name in ["live/demo", "a", "live/a-b_c.d~1", "x/y/z"] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(MAX_NAME + 1);
        for name in
            ["", "/a", "a/", "a//b", "a/../b", ".a", "a/~b", "a b", "a?b", "ü", "a%20b", &long]
        {
            assert!(!is_name(name), "{name}");
        }
    }
}
