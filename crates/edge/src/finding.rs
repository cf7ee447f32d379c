//! Problems of a configuration on this machine, one line each.

use core::fmt;

/// Problem of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Whether it prevents the server from starting or serving anybody. Otherwise it is a warning.
    pub is_error: bool,
    /// Key, value, problem, and allowed values.
    text: String,
}

impl Finding {
    /// Creates an error, which prevents the server from starting or serving anybody.
    pub(crate) fn error(key: &str, value: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { is_error: true, text: format!("{key} = {value}: {what}") }
    }

    /// Creates a warning.
    pub(crate) fn warning(key: &str, value: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { is_error: false, text: format!("{key} = {value}: {what}") }
    }

    /// The key has no effect.
    pub(crate) fn unused(key: &str, what: &str) -> Self {
        Self { is_error: false, text: format!("{key}: {what}") }
    }

    /// Returns the text without the severity.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.is_error { "error" } else { "warning" };
        // Paths can contain control characters.
        let text = self.text.replace(char::is_control, "?");
        write!(f, "{severity}: {text}")
    }
}
