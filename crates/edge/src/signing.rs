//! Signed URLs, which let viewers play for a limited time without a hook.
//!
//! `sig = hex(HMAC-SHA256(key, "NAME\nEXPIRES"))` covers the stream's name and the expiry. It is
//! sent as `?expires=EXPIRES&sig=SIG`, with EXPIRES in seconds since 1970, over FLV, HLS and RTMP.
//! When it expires, playback ends.

use core::fmt;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;

use crate::clock::unix;
use crate::config::{Config, Play, Value as _};
use crate::hex::hex;
use crate::names::matches;
use crate::passes::Grant;
use crate::tokens::{self, KeySets, Terms, TokenError};

/// Returns the query that permits playing `name` until `expires`.
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

/// Permission to play a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permission {
    /// Expiry, or `None` if unlimited.
    pub until: Option<SystemTime>,
    /// The rule that granted it.
    pub grant: Grant,
}

/// The proofs of a request that it may play: a signed URL or a token.
#[derive(Clone, Copy, Default, Debug)]
pub struct Proofs<'a> {
    /// The parameter `expires`.
    pub expires: Option<&'a str>,
    /// The parameter `sig`.
    pub signature: Option<&'a str>,
    /// The token of the parameter `token` or of `Authorization: Bearer`. If present, the signature
    /// is ignored.
    pub token: Option<&'a str>,
}

/// Reason why a request may not play.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No valid signature.
    Signature,
    /// The token is invalid.
    Token(TokenError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signature => f.write_str("no valid signature"),
            Self::Token(why) => why.fmt(f),
        }
    }
}

/// Returns the permission to play `name` at `now`, if the signature or token is valid. Streams
/// without a rule are free.
///
/// # Errors
/// The reason, which contains no secret.
pub(crate) fn may_play(
    config: &Config,
    sets: &KeySets,
    name: &str,
    proofs: Proofs<'_>,
    now: SystemTime,
) -> Result<Permission, Refusal> {
    let rules: Vec<_> = config.play.iter().filter(|rule| matches(&rule.stream, name)).collect();
    let has_hook = config.hooks.on_play.is_some();
    if rules.is_empty() {
        return Ok(Permission { until: None, grant: grant(None, has_hook) });
    }
    let (rule, until) = match proofs.token {
        Some(token) => {
            let terms = rules.iter().map(|rule| Terms {
                key: rule.key.as_deref(),
                jwks: rule.jwks.as_ref(),
                audience: &rule.audience,
            });
            let leeway = config.tokens.leeway;
            let verified = tokens::verify(token, name, terms, sets, now, leeway);
            sets.count(&verified);
            let (index, until) = verified.map_err(Refusal::Token)?;
            (rules[index], until)
        }
        None => signed(&rules, name, proofs, now).ok_or(Refusal::Signature)?,
    };
    Ok(Permission { until: Some(until), grant: grant(Some(rule), has_hook) })
}

/// Returns the rule that has signed a URL, and the URL's expiry.
fn signed<'a>(
    rules: &[&'a Play],
    name: &str,
    proofs: Proofs<'_>,
    now: SystemTime,
) -> Option<(&'a Play, SystemTime)> {
    let seconds = proofs.expires?.parse::<u64>().ok()?;
    let until = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    let tag = unhex(proofs.signature?)?;
    let text = message(name, seconds);
    let is_signed = |key: &str| hmac::verify(&hmac_key(key), text.as_bytes(), &tag).is_ok();
    let has_signed = |rule: &&&Play| rule.key.as_deref().is_some_and(is_signed);
    let rule = rules.iter().find(|rule| unix(now) <= seconds && has_signed(rule))?;
    Some((rule, until))
}

/// Returns the grant of a `rule`, or of no rule (`None`), with or without a hook's consent.
fn grant(rule: Option<&Play>, has_hook: bool) -> Grant {
    if rule.is_none() && !has_hook {
        return Grant::FREE;
    }
    let stream = rule.map_or("", |rule| &rule.stream);
    let key = rule.and_then(|rule| rule.key.as_deref()).unwrap_or_default();
    let mut text = format!("mendcast grant\n{}\n{has_hook}\n{stream}", rule.is_some());
    if let Some(source) = rule.and_then(|rule| rule.jwks.as_ref()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}", source.toml().unwrap_or_default());
    }
    let tag = hmac::sign(&hmac_key(key), text.as_bytes());
    Grant(tag.as_ref().iter().take(8).fold(0, |grant, byte| grant << 8 | u64::from(*byte)))
}

/// Returns true if an earlier permission to play `name` is still valid: its rule and key still
/// exist, and no hook has been added. If the stream is free now, every permission is valid.
pub(crate) fn holds(config: &Config, name: &str, given: Grant) -> bool {
    let has_hook = config.hooks.on_play.is_some();
    let mut rules = config.play.iter().filter(|rule| matches(&rule.stream, name)).peekable();
    if rules.peek().is_none() {
        return !has_hook || given == grant(None, true);
    }
    rules.any(|rule| given == grant(Some(rule), has_hook) || given == grant(Some(rule), true))
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

    /// Returns the permission of a signed URL.
    fn play(
        config: &Config,
        name: &str,
        expires: Option<&str>,
        signature: Option<&str>,
        now: SystemTime,
    ) -> Option<Permission> {
        let sets = KeySets::load(config, None).expect("no files");
        may_play(config, &sets, name, Proofs { expires, signature, token: None }, now).ok()
    }

    #[test]
    fn signatures_are_valid_for_their_stream_and_time() {
        let text = "[[play]]\nstream = \"paid/*\"\nkey = \"secret\"";
        let config = Config::parse("edge.toml", text).expect("valid");
        let query = sign("secret", "paid/a", 1_000);
        let (expires, signature) = query.split_once("&sig=").expect("both");
        let expires = expires.trim_start_matches("expires=");
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let may = |name: &str, expires: &str, signature: &str, now: u64| {
            play(&config, name, Some(expires), Some(signature), at(now)).is_some()
        };
        assert!(may("paid/a", expires, signature, 1_000));
        assert!(!may("paid/a", expires, signature, 1_001), "expired");
        assert!(!may("paid/b", expires, signature, 1_000), "another stream");
        assert!(!may("paid/a", "2000", signature, 1_000), "another time");
        assert!(!may("paid/a", expires, &signature.replace(&signature[..1], "x"), 1_000));
        assert!(!may("paid/a", expires, "", 1_000));
        assert_eq!(play(&config, "paid/a", None, None, at(0)), None);
        let free = Permission { until: None, grant: Grant::FREE };
        assert_eq!(play(&config, "live/free", None, None, at(0)), Some(free));
        let tag = Some(signature);
        let signed = play(&config, "paid/a", Some(expires), tag, at(0)).expect("signed");
        assert_eq!(signed.until, Some(at(1_000)));
        let never = Some("18446744073709551615");
        assert_eq!(play(&config, "paid/a", never, tag, at(0)), None);
        let other = sign("guess", "paid/a", 1_000);
        assert!(!may("paid/a", "1000", other.split_once("&sig=").expect("both").1, 0));
    }

    #[test]
    fn permissions_are_valid_as_long_as_their_rule_and_key() {
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
            play(config, "live/a", expires, Some(signature), now).expect("granted").grant
        };
        let (a, b) = (("live/*", "one"), ("live/*", "two"));
        let free = given(&config(&[], ""), "");
        let one = given(&config(&[a], ""), "one");
        let asked = given(&config(&[], HOOK), "");
        let both = given(&config(&[a], HOOK), "one");
        for (what, given, now, expected) in [
            ("nothing changed", free, config(&[], ""), true),
            ("rule added", free, config(&[a], ""), false),
            ("rule of other streams added", free, config(&[("paid/*", "one")], ""), true),
            ("hook added", free, config(&[], HOOK), false),
            ("same rule", one, config(&[a], ""), true),
            ("key added", one, config(&[b, a], ""), true),
            ("key removed", one, config(&[b], ""), false),
            ("streams changed", one, config(&[("live/a", "one")], ""), false),
            ("rule removed", one, config(&[], ""), true),
            ("same rule, hook added", one, config(&[a], HOOK), false),
            ("rule removed, hook added", one, config(&[], HOOK), false),
            ("same hook", asked, config(&[], HOOK), true),
            ("hook removed", asked, config(&[], ""), true),
            ("same hook, rule added", asked, config(&[a], HOOK), false),
            ("same rule and hook", both, config(&[a], HOOK), true),
            ("same rule, hook removed", both, config(&[a], ""), true),
            ("same hook, key removed", both, config(&[b], HOOK), false),
        ] {
            assert_eq!(holds(&now, "live/a", given), expected, "{what}");
        }
    }
}
