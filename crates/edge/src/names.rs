//! Names of streams, and the patterns of the configuration that mean them.

/// The longest name of a stream.
const MAX_NAME: usize = 128;

/// Whether a stream may be called so: what can stand in a URL's path without being encoded, and
/// means itself there. No part begins with a dot, which hides files, or with a tilde, which marks a pass.
pub fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let good =
        |part: &str| !part.is_empty() && !part.starts_with(['.', '~']) && part.bytes().all(plain);
    name.len() <= MAX_NAME && name.split('/').all(good)
}

/// Whether `pattern`, a name or the start of names and `*`, means `name`.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_themselves_in_a_path() {
        for name in ["live/demo", "a", "live/a-b_c.d~1", "x/y/z"] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(MAX_NAME + 1);
        for name in
            ["", "/a", "a/", "a//b", "a/../b", ".a", "a/~b", "a b", "a?b", "ü", "a%20b", &long]
        {
            assert!(!is_name(name), "{name}");
        }
    }
}
