//! Parses the validity of X.509 certificates (RFC 5280, section 4.1).

const SEQUENCE: u8 = 0x30;
/// The version field, absent for version 1.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The validity of a certificate in seconds since 1970, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Validity {
    /// 0 for any time before 1970.
    pub start: u64,
    pub end: u64,
}

/// Parses the validity of a DER certificate; `None` if malformed.
pub(super) fn validity(der: &[u8]) -> Option<Validity> {
    let (SEQUENCE, certificate, _) = element(der)? else { return None };
    let (SEQUENCE, mut rest, _) = element(certificate)? else { return None };
    if let (VERSION, _, after) = element(rest)? {
        rest = after;
    }
    // Serial number, signature algorithm and issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (SEQUENCE, validity, _) = element(rest)? else { return None };
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
    if text.len() != 14 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hours, minutes, seconds) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // With years starting in March, the leap day is last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    // Days from 1 March of year 0 to 1 January 1970.
    let days = days - 719_468;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
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
