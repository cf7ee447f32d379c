//! Names of streams, and the patterns of the configuration that mean them.

/// The longest name of a stream.
const MAX_NAME: usize = 128;

/// Whether a stream may be called so: what can stand in a URL's path without being encoded, and
/// means itself there. No part begins with a dot, which hides files, or with a tilde, which marks a pass.
pub fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let good =
        |part: &str| !part.is_empty() && !part.starts_with(['.', '~']) && part.bytes().all(plain);
    name.len() <= MAX_NAME && name.split('/').all(good)
}

/// What a peer calls something, for a line of the log: cut, and with escapes for what could end the line
/// or change what a terminal shows. A name of a stream stays as it is.
pub fn printable(text: &str) -> String {
    let shown: String = text.chars().take(MAX_NAME).collect();
    let cut = if shown.len() < text.len() { "…" } else { "" };
    format!("{}{cut}", shown.escape_debug())
}

/// Whether `pattern`, a name or the start of names and `*`, means `name`.
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
    fn nothing_that_a_peer_says_ends_a_line_of_the_log() {
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
    fn names_mean_themselves_in_a_path() {
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
