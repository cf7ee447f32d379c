//! Faults of a configuration on this machine, one line each.

use core::fmt;

/// A fault of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Whether the server does not start, or serves nobody, because of it. Else it is a warning.
    pub is_error: bool,
    /// Key, value, fault, and the allowed values.
    text: String,
}

impl Finding {
    /// The server does not start, or serves nobody.
    pub(crate) fn error(key: &str, value: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { is_error: true, text: format!("{key} = {value}: {what}") }
    }

    /// The server starts; the operator should know.
    pub(crate) fn warning(key: &str, value: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { is_error: false, text: format!("{key} = {value}: {what}") }
    }

    /// The key has no effect.
    pub(crate) fn unused(key: &str, what: &str) -> Self {
        Self { is_error: false, text: format!("{key}: {what}") }
    }

    /// Without its severity.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.is_error { "error" } else { "warning" };
        // A path may hold anything.
        let text = self.text.replace(char::is_control, "?");
        write!(f, "{severity}: {text}")
    }
}
