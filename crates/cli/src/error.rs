//! The error of a command.

use core::fmt;

/// A message of one line: the file, option or address at fault, and the problem.
#[derive(Debug)]
pub(crate) struct Error(String);

impl Error {
    /// Creates an error. Line breaks in `text` become `; `.
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Self(text.to_string().lines().collect::<Vec<_>>().join("; "))
    }

    /// Returns a function that prefixes an error with the thing at fault, for `map_err`.
    pub(crate) fn at<E: fmt::Display>(subject: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |why| Self::new(format_args!("{subject}: {why}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Error {}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

#[cfg(feature = "lab")]
impl From<lab::Error> for Error {
    fn from(error: lab::Error) -> Self {
        Self::new(error)
    }
}

#[cfg(any(feature = "edge", feature = "lab"))]
impl From<records::Error> for Error {
    fn from(error: records::Error) -> Self {
        Self::new(error)
    }
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn an_error_is_one_line_that_begins_with_the_thing_at_fault() {
        let error: Error = Error::at("edge.toml")("bad\nworse");
        assert_eq!(error.to_string(), "edge.toml: bad; worse");
    }
}
