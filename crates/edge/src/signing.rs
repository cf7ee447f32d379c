//! Signed URLs: who may play is decided by those who know the stream's key, for a limited time, and
//! without asking anybody.
//!
//! A signature covers the stream's name and the time until which it holds:
//! `sig = hex(HMAC-SHA256(key, "NAME\nEXPIRES"))`, sent as `?expires=EXPIRES&sig=SIG` with EXPIRES in
//! seconds since 1970. It is the same for FLV, HLS and RTMP. When it expires, so does what is being played.

use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;

use crate::clock::unix;
use crate::config::Config;
use crate::hex::hex;
use crate::names::matches;

/// The query that lets somebody play `name` until `expires`.
pub fn sign(key: &str, name: &str, expires: u64) -> String {
    let tag = hmac::sign(&hmac_key(key), message(name, expires).as_bytes());
    format!("expires={expires}&sig={}", hex(tag.as_ref()))
}

fn hmac_key(key: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes())
}

fn message(name: &str, expires: u64) -> String {
    format!("{name}\n{expires}")
}

/// The permission to play a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permission {
    /// When it ends; `None` for as long as there is a stream.
    pub until: Option<SystemTime>,
}

/// The permission to play `name` at `now` with these parameters, `None` if there is none. Streams that
/// no rule names are free.
pub fn may_play(
    config: &Config,
    name: &str,
    expires: Option<&str>,
    signature: Option<&str>,
    now: SystemTime,
) -> Option<Permission> {
    let mut rules = config.play.iter().filter(|rule| matches(&rule.stream, name)).peekable();
    if rules.peek().is_none() {
        return Some(Permission { until: None });
    }
    let seconds = expires?.parse::<u64>().ok()?;
    let until = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    let tag = unhex(signature?)?;
    let text = message(name, seconds);
    let is_signed = |key: &str| hmac::verify(&hmac_key(key), text.as_bytes(), &tag).is_ok();
    let granted = unix(now) <= seconds && rules.any(|rule| is_signed(&rule.key));
    granted.then_some(Permission { until: Some(until) })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_stream_and_its_time() {
        let text = "[[play]]\nstream = \"paid/*\"\nkey = \"secret\"";
        let config = Config::parse("edge.toml", text).expect("valid");
        let query = sign("secret", "paid/a", 1_000);
        let (expires, signature) = query.split_once("&sig=").expect("both");
        let expires = expires.trim_start_matches("expires=");
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let may = |name: &str, expires: &str, signature: &str, now: u64| {
            may_play(&config, name, Some(expires), Some(signature), at(now)).is_some()
        };
        assert!(may("paid/a", expires, signature, 1_000));
        assert!(!may("paid/a", expires, signature, 1_001), "over");
        assert!(!may("paid/b", expires, signature, 1_000), "another stream");
        assert!(!may("paid/a", "2000", signature, 1_000), "another time");
        assert!(!may("paid/a", expires, &signature.replace(&signature[..1], "x"), 1_000));
        assert!(!may("paid/a", expires, "", 1_000));
        assert_eq!(may_play(&config, "paid/a", None, None, at(0)), None);
        let free = Permission { until: None };
        assert_eq!(may_play(&config, "live/free", None, None, at(0)), Some(free));
        let tag = Some(signature);
        let signed = may_play(&config, "paid/a", Some(expires), tag, at(0)).expect("signed");
        assert_eq!(signed.until, Some(at(1_000)));
        let never = Some("18446744073709551615");
        assert_eq!(may_play(&config, "paid/a", never, tag, at(0)), None);
        let other = sign("guess", "paid/a", 1_000);
        assert!(!may("paid/a", "1000", other.split_once("&sig=").expect("both").1, 0));
    }
}
