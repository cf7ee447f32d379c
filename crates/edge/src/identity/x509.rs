//! Parses validity and names of X.509 certificates (RFC 5280, sections 4.1 and 4.2.1.6).

use core::net::IpAddr;

const SEQUENCE: u8 = 0x30;
/// The version field, absent for version 1.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The field of extensions, and their elements.
const EXTENSIONS: u8 = 0xa3;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
/// Identifier of the subject alternative name: 2.5.29.17.
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// General names: a DNS name and an IP address.
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// The validity of a certificate in seconds since 1970, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Validity {
    /// 0 for any time before 1970.
    pub start: u64,
    pub end: u64,
}

/// Names in a certificate's subject alternative name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Names {
    /// DNS names in lower case, without a final dot. A wildcard is `*.` and a name.
    pub dns: Vec<String>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
}

/// Splits off the part of a DER certificate before its validity. `None` if malformed.
fn from_validity(der: &[u8]) -> Option<&[u8]> {
    let (SEQUENCE, certificate, _) = element(der)? else { return None };
    let (SEQUENCE, mut rest, _) = element(certificate)? else { return None };
    if let (VERSION, _, after) = element(rest)? {
        rest = after;
    }
    // Serial number, signature algorithm and issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    Some(rest)
}

/// Parses the names of a DER certificate. Malformed certificates and names have none.
pub(super) fn names(der: &[u8]) -> Names {
    let mut names = Names::default();
    let Some(mut rest) = from_validity(der).and_then(alternative_names) else { return names };
    while let Some((kind, content, after)) = element(rest) {
        rest = after;
        match kind {
            DNS_NAME => names.dns.extend(dns_name(content)),
            IP_ADDRESS => {
                let v4 = <[u8; 4]>::try_from(content).map(IpAddr::from);
                let v6 = <[u8; 16]>::try_from(content).map(IpAddr::from);
                names.addresses.extend(v4.or(v6).ok());
            }
            _ => {}
        }
    }
    names
}

/// Returns the content of the subject alternative name, given a certificate from its validity on.
fn alternative_names(mut rest: &[u8]) -> Option<&[u8]> {
    let extensions = loop {
        let (kind, content, after) = element(rest)?;
        if kind == EXTENSIONS {
            break content;
        }
        rest = after;
    };
    let (SEQUENCE, mut extensions, _) = element(extensions)? else { return None };
    loop {
        let (SEQUENCE, extension, after) = element(extensions)? else { return None };
        extensions = after;
        let (OBJECT_IDENTIFIER, identifier, mut value) = element(extension)? else { return None };
        if identifier != ALTERNATIVE_NAME {
            continue;
        }
        // A flag may precede the value.
        loop {
            let (kind, content, after) = element(value)?;
            if kind == OCTET_STRING {
                let (SEQUENCE, names, _) = element(content)? else { return None };
                return Some(names);
            }
            value = after;
        }
    }
}

/// Returns a DNS name in lower case, or `None` if it has characters that no host name has.
fn dns_name(content: &[u8]) -> Option<String> {
    let is_of_host = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_*".contains(byte);
    let name = core::str::from_utf8(content).ok()?.to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    (!name.is_empty() && name.bytes().all(|byte| is_of_host(&byte))).then(|| name.to_owned())
}

/// Parses the validity of a DER certificate; `None` if malformed.
pub(super) fn validity(der: &[u8]) -> Option<Validity> {
    let (SEQUENCE, validity, _) = element(from_validity(der)?)? else { return None };
    let (kind, start, rest) = element(validity)?;
    let start = time(kind, start).unwrap_or(0);
    let (kind, end, _) = element(rest)?;
    Some(Validity { start, end: time(kind, end)? })
}

/// Parses either form of time. Returns seconds since 1970.
fn time(kind: u8, time: &[u8]) -> Option<u64> {
    let time = core::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    match kind {
        // Section 4.1.2.5.1: two-digit years from 1950 to 2049.
        UTC_TIME => {
            let century = if time.get(..2)? < "50" { "20" } else { "19" };
            seconds(&format!("{century}{time}"))
        }
        GENERALIZED_TIME => seconds(time),
        _ => None,
    }
}

/// Splits off the first element (X.690, section 8.1). Returns its tag, its content, and the rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((kind, content, rest))
}

/// Converts `YYYYMMDDhhmmss` to seconds since 1970.
fn seconds(text: &str) -> Option<u64> {
    let ms = units::parse_compact_date(text).filter(|_| text.len() == 14)?;
    u64::try_from(ms / 1_000).ok().filter(|_| ms >= 0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn leap_years_are_counted() {
        for (text, expected) in [
            ("19700101000000", Some(0)),
            ("20000229235959", Some(951_868_799)),
            ("20000301000000", Some(951_868_800)),
            ("20240229120000", Some(1_709_208_000)),
            ("20380119031408", Some(1 << 31)),
            ("99991231235959", Some(253_402_300_799)),
            ("19691231235959", None),
            ("20241301000000", None),
            ("2024022912000", None),
            ("2024022912000x", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn names_are_lower_case_and_complete() {
        let key = rcgen::KeyPair::generate().expect("generated");
        let of = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            let params = rcgen::CertificateParams::new(names).expect("valid");
            params.self_signed(&key).expect("signed").der().to_vec()
        };
        let der = of(&["A.Test", "*.b.test", "192.0.2.1", "::1"]);
        let found = names(&der);
        assert_eq!(found.dns, ["a.test", "*.b.test"]);
        let addresses: [IpAddr; 2] = ["192.0.2.1".parse().expect("v4"), "::1".parse().expect("v6")];
        assert_eq!(found.addresses, addresses);
        assert_eq!(names(&of(&[])), Names::default());
        assert_eq!(dns_name(b"a\n.test"), None);
        assert_eq!(dns_name(b"a.test.").as_deref(), Some("a.test"));
        for at in 0..der.len() {
            let _ = names(&der[..at]);
            let mut broken = der.clone();
            broken[at] ^= 0xff;
            let _ = names(&broken);
        }
    }

    #[test]
    fn the_validity_of_generated_certificates_is_parsed() {
        let key = rcgen::KeyPair::generate().expect("generated");
        // As UTCTime and GeneralizedTime.
        for end in [1_900_000_000u64, 4_000_000_000] {
            let mut params = rcgen::CertificateParams::new(["a.test".to_owned()]).expect("valid");
            params.not_before = (SystemTime::UNIX_EPOCH + Duration::from_secs(end / 2)).into();
            params.not_after = (SystemTime::UNIX_EPOCH + Duration::from_secs(end)).into();
            let certificate = params.self_signed(&key).expect("signed");
            let der = certificate.der();
            assert_eq!(validity(der), Some(Validity { start: end / 2, end }));
            // Truncated and corrupted certificates must not panic.
            for length in 0..der.len().min(300) {
                assert_eq!(validity(&der[..length]), None, "{length}");
            }
            for at in 0..200 {
                let mut broken = der.to_vec();
                broken[at] ^= 0xff;
                let _ = validity(&broken);
            }
        }
    }
}
