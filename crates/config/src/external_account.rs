//! The binding of an ACME account to an account with the CA (RFC 8555, section 7.3.4).

use core::fmt;

use toml::de::DeValue;

use crate::value::{Value, quoted};

/// Maximum length of each part.
const MAX_LEN: usize = 512;
/// Minimum length of the HMAC key: 16 bytes in base64url.
const MIN_KEY: usize = 22;

/// Key ID and HMAC key, separated by a colon. Debug output hides the key.
#[derive(Clone, PartialEq, Eq, PartialOrd)]
pub struct ExternalAccount {
    /// Identifier of the key, visible ASCII characters.
    pub id: String,
    /// The key in base64url (RFC 4648, section 5) without padding, as CAs show it.
    pub key: String,
}

impl ExternalAccount {
    fn parse(text: &str) -> Option<Self> {
        let (id, key) = text.rsplit_once(':')?;
        let (id, key) = (id.trim(), key.trim().trim_end_matches('='));
        let is_id = (1..=MAX_LEN).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        let is_letter = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        // A single letter behind whole groups of four encodes no byte.
        let is_key = (MIN_KEY..=MAX_LEN).contains(&key.len())
            && key.len() % 4 != 1
            && key.bytes().all(is_letter);
        (is_id && is_key).then(|| Self { id: id.to_owned(), key: key.to_owned() })
    }
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Value for ExternalAccount {
    fn expected() -> String {
        "the CA's key ID, a colon and its HMAC key in base64url".into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
    fn toml(&self) -> Option<String> {
        quoted(&format!("{}:{}", self.id, self.key))
    }
    fn may_be_quoted() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

    #[test]
    fn key_id_and_key_are_read() {
        for (text, id) in [
            (format!("kid-1:{KEY}"), "kid-1"),
            (format!("https://ca.example/7 : {KEY}=="), "https://ca.example/7"),
        ] {
            let read = ExternalAccount::parse(&text).expect("valid");
            assert_eq!((&read.id[..], &read.key[..]), (id, KEY));
            assert!(!format!("{read:?}").contains(KEY), "{read:?}");
        }
    }

    #[test]
    fn other_text_is_rejected() {
        let long = format!("kid:{}", "a".repeat(600));
        for text in [KEY, "", ":", "kid:", "kid:short", "kid:AAAAAAAAAAAAAAAAAAAAAA+/", &long] {
            assert_eq!(ExternalAccount::parse(text), None, "{text}");
        }
        assert_eq!(ExternalAccount::parse(&format!(":{KEY}")), None);
        assert_eq!(ExternalAccount::parse(&format!("a b:{KEY}")), None);
    }
}
