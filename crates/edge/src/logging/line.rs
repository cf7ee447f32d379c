//! A log line that is safe for arbitrary text of peers.

use std::fmt::Write as _;

/// Maximum length in bytes, without the truncation mark.
const MAX_LINE: usize = 1_024;
/// Start of a colour sequence. The formatter escapes colours in peers' text.
const ESCAPE: char = '\u{1b}';

/// A safe log line: a single line without control characters, of bounded length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogLine(String);

impl LogLine {
    /// Sanitizes the formatter's text. `has_colours` keeps the formatter's own escape sequences.
    pub(super) fn new(text: &[u8], has_colours: bool) -> Self {
        let text = String::from_utf8_lossy(text);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let mut line = String::with_capacity(text.len().min(MAX_LINE) + 16);
        for (at, character) in text.char_indices() {
            if line.len() >= MAX_LINE {
                // Writing to a string cannot fail.
                let _ = write!(line, "… ({} bytes more)", text.len() - at);
                break;
            }
            if is_unsafe(character) && !(has_colours && character == ESCAPE) {
                line.extend(character.escape_default());
            } else {
                line.push(character);
            }
        }
        line.push('\n');
        Self(line)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

/// Whether a character breaks lines, controls terminals, or changes the display order.
pub(super) fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, has_colours: bool) -> String {
        String::from_utf8(LogLine::new(text.as_bytes(), has_colours).into_bytes()).expect("text")
    }

    #[test]
    fn text_of_peers_is_escaped() {
        let text = "refused: a\nb\r\u{1b}[2Jc\0\u{85}\u{202e}\u{2028}d\n";
        let expected = "refused: a\\nb\\r\\u{1b}[2Jc\\u{0}\\u{85}\\u{202e}\\u{2028}d\n";
        assert_eq!(line(text, false), expected);
        assert!(line(text, true).contains("\u{1b}[2J"), "only the formatter's own escapes remain");
    }

    #[test]
    fn long_lines_are_truncated_at_a_character_with_a_mark() {
        let text = "é".repeat(1_000_000);
        let line = line(&text, false);
        assert!(line.len() <= MAX_LINE + 40, "{}", line.len());
        assert!(line.ends_with("… (1998976 bytes more)\n"), "{}", &line[MAX_LINE..]);
    }

    #[test]
    fn invalid_utf_8_is_replaced() {
        let line = LogLine::new(b"name \xff\xfe\n", false);
        assert_eq!(line.into_bytes(), "name \u{fffd}\u{fffd}\n".as_bytes());
    }
}
