//! Checks of the virtual hosts of a configuration.

use crate::stream_name::is_stream_name;

/// Checks the hosts, which are pairs of names and a prefix. Returns the first wrong key and its
/// problem.
pub(crate) fn fault(hosts: &[(Vec<&str>, &str)]) -> Option<(&'static str, String)> {
    let names = || hosts.iter().flat_map(|(names, _)| names);
    for (index, name) in names().enumerate() {
        if names().take(index).any(|other| other == name) {
            let twice = format!("expected unique names, got {name:?} twice");
            return Some(("names", twice));
        }
    }
    let wrong = hosts.iter().find(|(_, prefix)| !is_stream_name(prefix));
    wrong.map(|(_, prefix)| ("prefix", format!("expected a name such as \"a\", got {prefix:?}")))
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn wrong_hosts_are_errors_that_name_the_key() {
        let parse = |text: &str| Config::parse("edge.toml", text).map_err(|e| e.to_string());
        let host =
            |names: &str, prefix: &str| format!("[[host]]\nnames = {names}\nprefix = {prefix}\n");
        let valid = host(r#"["a.test", "*.a.test"]"#, "\"x/y\"");
        assert_eq!(parse(&valid).expect("valid").host[0].prefix, "x/y");
        let again = host(r#"["b.test", "a.test"]"#, "\"b\"");
        for (text, expected) in [
            (valid + &again, "names: expected unique names, got \"a.test\" twice"),
            (host(r#"["a.test", "a.test"]"#, "\"a\""), "names: expected unique names"),
            (host("[]", "\"a\""), "names: expected"),
            (host(r#"["A.test"]"#, "\"a\""), "names: expected"),
            (host(r#"["a.test:443"]"#, "\"a\""), "names: expected"),
            (host(r#"["a.test"]"#, "\"\""), "prefix: expected a string such as \"tenant\""),
            (host(r#"["a.test"]"#, "\"a/\""), "prefix: expected a name such as"),
            (host(r#"["a.test"]"#, "\"/a\""), "prefix: expected a name such as"),
            (host(r#"["a.test"]"#, "\"../a\""), "prefix: expected a name such as"),
            ("[[host]]\nnames = [\"a.test\"]\n".into(), "prefix"),
            ("[[host]]\nprefix = \"a\"\n".into(), "names"),
        ] {
            let error = parse(&text).expect_err(&text);
            assert!(error.contains("[host]") && error.contains(expected), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
