//! Names of hosts for certificates.

use toml::de::DeValue;

use crate::value::{Value, quoted};

/// Maximum length of a name and of a label (RFC 1035, section 2.3.4).
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A DNS name in lower case with at least two labels, without wildcard.
#[derive(Clone, PartialEq, Eq, PartialOrd, Debug)]
pub struct DomainName(String);

impl DomainName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for DomainName {
    fn expected() -> String {
        r#"a DNS name such as "edge.example" (lower case, no wildcard)"#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        let text = value.as_str()?;
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_label = |label: &str| {
            (1..=MAX_LABEL).contains(&label.len())
                && label.bytes().all(is_plain)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_address = text.parse::<core::net::IpAddr>().is_ok();
        let is_name = text.len() <= MAX_NAME && text.contains('.') && text.split('.').all(is_label);
        (is_name && !is_address).then(|| Self(text.to_owned()))
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.0)
    }
}

/// A DNS name, or `*.` and a DNS name for all names with one more label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Debug)]
pub struct HostPattern(String);

impl HostPattern {
    /// Returns the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for HostPattern {
    fn expected() -> String {
        r#"a DNS name such as "edge.example" or "*.edge.example" (lower case)"#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        let text = value.as_str()?;
        let name = text.strip_prefix("*.").unwrap_or(text);
        DomainName::read(&DeValue::String(name.into())).map(|_| Self(text.to_owned()))
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_labels_of_letters_digits_and_hyphens() {
        let read = |text: &str| DomainName::read(&DeValue::String(text.into()));
        for text in ["edge.example", "a-1.b.c", "xn--bcher-kva.example", "1.2.3.4.in-addr.arpa"] {
            assert_eq!(read(text).expect(text).as_str(), text);
        }
        let long = format!("{}.example", "a".repeat(64));
        for text in [
            "",
            "localhost",
            "*.a.b",
            "A.example",
            "a..b",
            ".a.b",
            "a.b.",
            "-a.b",
            "a_b.c",
            "1.2.3.4",
            "bücher.example",
            &long,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_first_label_of_a_pattern_may_be_a_wildcard() {
        let read = |text: &str| HostPattern::read(&DeValue::String(text.into()));
        for text in ["edge.example", "*.edge.example"] {
            assert_eq!(read(text).expect(text).as_str(), text);
        }
        for text in ["*", "*.", "*.example", "a.*.example", "*.*.example", "a*.edge.example"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
