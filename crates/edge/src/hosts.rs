//! Virtual hosts (`[[host]]`): a request to one of their names sees the streams and files below a
//! prefix.
//!
//! A client chooses the name that it requests. So hosts separate names, and `[[play]]` and
//! `[[publish]]` rules of the prefixed names decide on access.

use std::borrow::Cow;

use crate::config;

/// The prefix of the requested host; empty for any other name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scope<'a>(&'a str);

impl<'a> Scope<'a> {
    /// Returns the scope of an authority (RFC 3986, section 3.2): a host, and perhaps a port.
    pub(crate) fn of(hosts: &'a [config::Host], authority: &str) -> Self {
        // Addresses of IPv6 contain colons, but match no name anyway.
        let host = authority.split_once(':').map_or(authority, |(host, _)| host);
        let host = host.strip_suffix('.').unwrap_or(host);
        let parent = host.split_once('.').filter(|(label, _)| !label.is_empty()).map(|(_, up)| up);
        let is_name = |pattern: &str| pattern.eq_ignore_ascii_case(host);
        let is_child = |pattern: &str| {
            pattern.strip_prefix("*.").is_some_and(|above| {
                parent.is_some_and(|parent| parent.eq_ignore_ascii_case(above))
            })
        };
        let with = |matches: &dyn Fn(&str) -> bool| {
            hosts.iter().find(|rule| rule.names.iter().any(|name| matches(name.as_str())))
        };
        Self(with(&is_name).or_else(|| with(&is_child)).map_or("", |rule| &rule.prefix))
    }

    /// Returns the full name of a stream that the client calls `name`.
    pub(crate) fn full<'b>(self, name: &'b str) -> Cow<'b, str> {
        match self.0 {
            "" => name.into(),
            prefix => format!("{prefix}/{name}").into(),
        }
    }

    /// Returns the target of a request (`/live/demo.flv?a=b`) with the prefix.
    pub(crate) fn target<'b>(self, target: &'b str) -> Cow<'b, str> {
        match target.strip_prefix('/').filter(|_| !self.0.is_empty()) {
            Some(rest) => format!("/{}/{rest}", self.0).into(),
            None => target.into(),
        }
    }

    /// Returns a stream's name as the client calls it; `None` if it belongs to other hosts.
    pub(crate) fn local(self, name: &str) -> Option<&str> {
        match self.0 {
            "" => Some(name),
            prefix => name.strip_prefix(prefix)?.strip_prefix('/'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn config() -> Config {
        let text = "[[host]]\nnames = [\"*.a.test\"]\nprefix = \"wild\"\n\
                    [[host]]\nnames = [\"a.test\", \"b.a.test\"]\nprefix = \"x/y\"\n";
        Config::parse("edge.toml", text).expect("valid")
    }

    #[test]
    fn full_names_precede_wildcards_of_one_label() {
        let config = config();
        for (authority, prefix) in [
            ("a.test", "x/y"),
            ("A.TEST:8443", "x/y"),
            ("a.test.", "x/y"),
            ("b.a.test", "x/y"),
            ("c.a.test:443", "wild"),
            ("C.A.test.:443", "wild"),
            ("d.c.a.test", ""),
            (".a.test", ""),
            ("test", ""),
            ("aa.test", ""),
            ("a.test.evil", ""),
            ("", ""),
            (":443", ""),
            ("[::1]:443", ""),
            ("192.0.2.1", ""),
        ] {
            assert_eq!(Scope::of(&config.host, authority), Scope(prefix), "{authority}");
        }
    }

    #[test]
    fn names_and_targets_are_prefixed_and_back() {
        let (none, own) = (Scope(""), Scope("x/y"));
        assert_eq!(
            (none.full("live/a"), own.full("live/a")),
            ("live/a".into(), "x/y/live/a".into())
        );
        assert_eq!(none.target("/live/a.flv?b=/c"), "/live/a.flv?b=/c");
        assert_eq!(own.target("/live/a.flv?b=/c"), "/x/y/live/a.flv?b=/c");
        assert_eq!(own.target("/"), "/x/y/");
        assert_eq!(own.target("*"), "*", "OPTIONS *");
        assert_eq!(
            (none.local("live/a"), own.local("x/y/live/a")),
            (Some("live/a"), Some("live/a"))
        );
        for other in ["live/a", "x/yz/live/a", "x/y", "a/x/y/live"] {
            assert_eq!(own.local(other), None, "{other}");
        }
    }
}
