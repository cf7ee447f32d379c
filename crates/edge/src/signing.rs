//! Signed URLs: who may play is decided by those who know the stream's key, for a limited time, and
//! without asking anybody.
//!
//! A signature covers the stream's name and the time until which it holds:
//! `sig = hex(HMAC-SHA256(key, "NAME\nEXPIRES"))`, sent as `?expires=EXPIRES&sig=SIG` with EXPIRES in
//! seconds since 1970. It is the same for FLV, HLS and RTMP. When it expires, so does what is being played.

use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;

use crate::clock::unix;
use crate::config::{Config, Play};
use crate::hex::hex;
use crate::names::matches;
use crate::passes::Grant;

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
    /// Under which rule it was given.
    pub grant: Grant,
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
    let is_asked = config.hooks.on_play.is_some();
    if rules.peek().is_none() {
        return Some(Permission { until: None, grant: grant(None, is_asked) });
    }
    let seconds = expires?.parse::<u64>().ok()?;
    let until = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    let tag = unhex(signature?)?;
    let text = message(name, seconds);
    let is_signed = |key: &str| hmac::verify(&hmac_key(key), text.as_bytes(), &tag).is_ok();
    let rule = rules.find(|rule| unix(now) <= seconds && is_signed(&rule.key))?;
    Some(Permission { until: Some(until), grant: grant(Some(rule), is_asked) })
}

/// Returns the grant of a `rule`, or of no rule (`None`), with or without a hook's consent.
fn grant(rule: Option<&Play>, is_asked: bool) -> Grant {
    let (stream, key) = rule.map_or(("", ""), |rule| (&rule.stream, &rule.key));
    if rule.is_none() && !is_asked {
        return Grant::FREE;
    }
    let text = format!("mendcast grant\n{}\n{is_asked}\n{stream}", rule.is_some());
    let tag = hmac::sign(&hmac_key(key), text.as_bytes());
    Grant(tag.as_ref().iter().take(8).fold(0, |grant, byte| grant << 8 | u64::from(*byte)))
}

/// Whether a permission to play `name` that was given before still holds: its rule and its key are
/// there, and no hook is asked now that was not. For a stream that is free now all do.
pub(crate) fn holds(config: &Config, name: &str, given: Grant) -> bool {
    let is_asked = config.hooks.on_play.is_some();
    let mut rules = config.play.iter().filter(|rule| matches(&rule.stream, name)).peekable();
    if rules.peek().is_none() {
        return !is_asked || given == grant(None, true);
    }
    rules.any(|rule| given == grant(Some(rule), is_asked) || given == grant(Some(rule), true))
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
        let free = Permission { until: None, grant: Grant::FREE };
        assert_eq!(may_play(&config, "live/free", None, None, at(0)), Some(free));
        let tag = Some(signature);
        let signed = may_play(&config, "paid/a", Some(expires), tag, at(0)).expect("signed");
        assert_eq!(signed.until, Some(at(1_000)));
        let never = Some("18446744073709551615");
        assert_eq!(may_play(&config, "paid/a", never, tag, at(0)), None);
        let other = sign("guess", "paid/a", 1_000);
        assert!(!may("paid/a", "1000", other.split_once("&sig=").expect("both").1, 0));
    }

    #[test]
    fn a_permission_holds_as_long_as_the_rule_and_the_key_that_gave_it() {
        const HOOK: &str = "[hooks]\non_play = \"http://127.0.0.1:1/\"\n";
        let config = |rules: &[(&str, &str)], hook: &str| {
            let rule = |(stream, key): &(&str, &str)| {
                format!("[[play]]\nstream = \"{stream}\"\nkey = \"{key}\"\n")
            };
            let text: String = rules.iter().map(rule).collect();
            Config::parse("edge.toml", &(hook.to_owned() + &text)).expect("valid")
        };
        let given = |config: &Config, key: &str| {
            let query = sign(key, "live/a", 1_000);
            let (expires, signature) = query.split_once("&sig=").expect("both");
            let expires = expires.strip_prefix("expires=");
            let now = SystemTime::UNIX_EPOCH;
            may_play(config, "live/a", expires, Some(signature), now).expect("granted").grant
        };
        let (a, b) = (("live/*", "one"), ("live/*", "two"));
        let free = given(&config(&[], ""), "");
        let one = given(&config(&[a], ""), "one");
        let asked = given(&config(&[], HOOK), "");
        let both = given(&config(&[a], HOOK), "one");
        for (what, given, now, expected) in [
            ("nothing changed", free, config(&[], ""), true),
            ("a rule came", free, config(&[a], ""), false),
            ("a rule of other streams came", free, config(&[("paid/*", "one")], ""), true),
            ("a hook came", free, config(&[], HOOK), false),
            ("the rule stays", one, config(&[a], ""), true),
            ("another key came", one, config(&[b, a], ""), true),
            ("the key went", one, config(&[b], ""), false),
            ("its streams changed", one, config(&[("live/a", "one")], ""), false),
            ("the rule went", one, config(&[], ""), true),
            ("the rule stays, a hook came", one, config(&[a], HOOK), false),
            ("the rule went, a hook came", one, config(&[], HOOK), false),
            ("the hook stays", asked, config(&[], HOOK), true),
            ("the hook went", asked, config(&[], ""), true),
            ("the hook stays, a rule came", asked, config(&[a], HOOK), false),
            ("both stay", both, config(&[a], HOOK), true),
            ("of both the hook went", both, config(&[a], ""), true),
            ("of both the key went", both, config(&[b], HOOK), false),
        ] {
            assert_eq!(holds(&now, "live/a", given), expected, "{what}");
        }
    }
}
