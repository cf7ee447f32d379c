//! Secrets, hidden from logs, errors and debug output.

use core::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use toml::de::DeValue;

use super::value::{Value, quoted};

/// Minimum length: 16 random characters cannot be guessed.
const MIN_LEN: usize = 16;
/// Maximum length, since secrets are sent in a header.
const MAX_LEN: usize = 512;

/// A secret of 16 to 512 visible ASCII characters.
#[derive(Clone, PartialEq, Eq, PartialOrd)]
pub struct Secret(String);

impl Secret {
    /// Returns the secret, or `None` if its length or characters are invalid.
    pub fn new(text: &str) -> Option<Self> {
        let is_valid = (MIN_LEN..=MAX_LEN).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_valid.then(|| Self(text.to_owned()))
    }

    /// Compares in constant time.
    pub fn is(&self, given: &[u8]) -> bool {
        let [own, given] = [self.0.as_bytes(), given].map(|text| digest(&SHA256, text));
        verify_slices_are_equal(own.as_ref(), given.as_ref()).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Value for Secret {
    fn expected() -> String {
        format!("{MIN_LEN} to {MAX_LEN} letters, digits and punctuation marks without spaces")
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::new(value.as_str()?)
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.0)
    }
    fn may_be_quoted() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_weak_secrets_and_hides_values() {
        let secret = Secret::new("correct-horse-battery").expect("a secret");
        assert!(secret.is(b"correct-horse-battery"));
        for other in [&b"correct-horse-batterz"[..], b"", b"correct-horse-battery "] {
            assert!(!secret.is(other), "{other:?}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        for text in
            ["", "fifteen-letters", "sixteen  letters", "sixteen-lettersü", &"x".repeat(513)]
        {
            assert_eq!(Secret::new(text), None, "{text}");
        }
    }
}
