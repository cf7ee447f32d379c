//! Names of streams.

/// Maximum length of a stream's name, in bytes.
pub const MAX_STREAM_NAME: usize = 128;

/// Whether `name` is a valid stream name, which a URL's path can contain without encoding. No part
/// starts with a dot (hidden files) or a tilde (passes).
pub fn is_stream_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let is_part = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '~']) && part.bytes().all(is_plain)
    };
    name.len() <= MAX_STREAM_NAME && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_no_encoding_in_a_path() {
        for name in ["live/demo", "a", "live/a-b_c.d~1", "x/y/z"] {
            assert!(is_stream_name(name), "{name}");
        }
        let long = "a".repeat(MAX_STREAM_NAME + 1);
        for name in
            ["", "/a", "a/", "a//b", "a/../b", ".a", "a/~b", "a b", "a?b", "ü", "a%20b", &long]
        {
            assert!(!is_stream_name(name), "{name}");
        }
    }
}
