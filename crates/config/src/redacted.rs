//! URLs without secrets, for logs, errors, metrics and the dashboard.

use std::fmt;

use url::Url;

/// Displays a URL without user name, password, query and fragment, which may be secret.
#[derive(Clone, Copy)]
pub struct Redacted<'a>(pub &'a Url);

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.0;
        write!(f, "{}://{}", url.scheme(), url.host_str().unwrap_or_default())?;
        if let Some(port) = url.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(url.path())?;
        if url.query().is_some() {
            f.write_str("?…")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hides_secrets() {
        for (url, shown) in [
            (
                "https://user:password@host:8443/live/a.flv?token=x#y",
                "https://host:8443/live/a.flv?…",
            ),
            ("http://user@[::1]/a", "http://[::1]/a"),
            ("rtmps://u:p@host:1936/live/a?key=x", "rtmps://host:1936/live/a?…"),
            ("http://host/?", "http://host/?…"),
        ] {
            let url = Url::parse(url).expect("a URL");
            assert_eq!(Redacted(&url).to_string(), shown);
        }
    }
}
