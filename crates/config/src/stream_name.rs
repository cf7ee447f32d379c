//! Names of streams in rules.

/// Maximum length of a stream's name.
pub(crate) const MAX_NAME: usize = 128;

/// Whether `name` is a valid stream name, which a URL's path can contain without encoding. No part
/// starts with a dot (hidden files) or a tilde (passes).
pub(crate) fn is_stream(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let is_part = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '~']) && part.bytes().all(is_plain)
    };
    name.len() <= MAX_NAME && name.split('/').all(is_part)
}
