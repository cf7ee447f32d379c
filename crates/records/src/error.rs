//! User-facing errors: one line that names the file, key or address at fault.

use core::fmt;

/// An error message of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    /// Creates an error. Line breaks in `text` become `; `.
    pub fn new(text: impl fmt::Display) -> Self {
        let text = text.to_string();
        Self(text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; "))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn an_error_has_one_line() {
        assert_eq!(Error::new("bad\n  worse\n\n").to_string(), "bad; worse");
    }
}
