//! Errors for people: a line of text that names the file, key or address at fault.

use core::fmt;

/// Why something cannot be done, as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    /// An error that says `text`; line ends in it become `; `.
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
    fn an_error_is_one_line_whatever_its_cause_says() {
        assert_eq!(Error::new("bad\n  worse\n\n").to_string(), "bad; worse");
    }
}
