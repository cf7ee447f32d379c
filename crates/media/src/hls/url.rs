//! URLs of segments, which playlists give relative to themselves.

/// Resolves a reference against the URL of what it stands in (RFC 3986, section 5.2). `base` has a
/// scheme and an authority.
pub(super) fn resolve(base: &str, reference: &str) -> String {
    if scheme(reference).is_some() {
        return reference.to_owned();
    }
    let (scheme, behind) = base.split_once("://").unwrap_or(("http", base));
    if reference.starts_with("//") {
        return format!("{scheme}:{reference}");
    }
    let behind = behind.split(['?', '#']).next().unwrap_or(behind);
    let (authority, path) = match behind.find('/') {
        Some(at) => behind.split_at(at),
        None => (behind, "/"),
    };
    let path_end = reference.find(['?', '#']).unwrap_or(reference.len());
    let (relative, query) = reference.split_at(path_end);
    let joined = if relative.starts_with('/') {
        relative.to_owned()
    } else if relative.is_empty() {
        path.to_owned()
    } else {
        let folder = path.rfind('/').map_or("/", |last| &path[..=last]);
        format!("{folder}{relative}")
    };
    format!("{scheme}://{authority}{}{query}", without_dots(&joined))
}

fn scheme(reference: &str) -> Option<&str> {
    let (scheme, _) = reference.split_once(':')?;
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(rest))
        .then_some(scheme)
}

/// RFC 3986, section 5.2.4.
fn without_dots(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            ".." => {
                out.pop();
            }
            "." => {}
            _ => out.push(segment),
        }
        if last && matches!(segment, "." | "..") {
            out.push("");
        }
    }
    format!("/{}", out.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_resolve_as_in_rfc_3986() {
        let base = "http://a/b/c/d;p?q";
        for (reference, expected) in [
            ("https://x/y", "https://x/y"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g/h", "http://g/h"),
            ("g?y", "http://a/b/c/g?y"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("./../g", "http://a/b/g"),
        ] {
            assert_eq!(resolve(base, reference), expected, "{reference}");
        }
        assert_eq!(resolve("https://host:80", "a.ts"), "https://host:80/a.ts");
    }
}
