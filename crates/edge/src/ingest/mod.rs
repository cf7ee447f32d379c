//! Sources of streams: RTMP publishers, and pulls from upstreams.

mod alignment;
mod input;
mod multitrack;
mod publish;
mod publishing;
pub(crate) mod pull;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::SystemTime;

use crate::config::{Config, is_stream_name};
use crate::ladder;
use crate::names::matches;
use crate::tokens::{self, KeySets, Terms};

pub use input::PublisherInput;
pub(crate) use publish::ENDED;
#[cfg(test)]
pub(crate) use publish::publish;
pub(crate) use publishing::Publishing;

/// The proofs of a publisher that it may publish.
#[derive(Clone, Copy, Default, Debug)]
pub struct PublisherProofs<'a> {
    /// The parameter `key`.
    pub key: Option<&'a str>,
    /// The parameter `token`. If present, the key is ignored.
    pub token: Option<&'a str>,
}

/// Checks whether `remote` may publish `name` at `now` with these proofs. Returns the key or token
/// if a rule requires one.
///
/// # Errors
/// The reason, as text for the publisher's user.
pub(crate) fn authorize<'k>(
    config: &Config,
    sets: &KeySets,
    name: &str,
    proofs: PublisherProofs<'k>,
    remote: SocketAddr,
    now: SystemTime,
) -> Result<Option<&'k str>, Cow<'static, str>> {
    if !is_stream_name(name) {
        return Err("invalid stream name".into());
    }
    if ladder::get(config, name).is_some_and(|ladder| !ladder.multitrack) {
        return Err("a [[ladder]] without multitrack has this name".into());
    }
    if config.publish.is_empty() {
        let local = remote.ip().to_canonical().is_loopback();
        let why = "publishing from other hosts needs a [[publish]] rule";
        return local.then_some(None).ok_or(why.into());
    }
    let rules: Vec<_> = config.publish.iter().filter(|rule| matches(&rule.stream, name)).collect();
    if rules.is_empty() {
        return Err("no [[publish]] rule for this stream".into());
    }
    if let Some(token) = proofs.token {
        let terms = rules.iter().map(|rule| Terms {
            key: rule.key.as_deref(),
            jwks: rule.jwks.as_ref(),
            audience: &rule.audience,
        });
        let verified = tokens::verify(token, name, terms, sets, now, config.tokens.leeway);
        sets.count(&verified);
        return verified.map(|_| Some(token)).map_err(|why| why.to_string().into());
    }
    let given = proofs.key.ok_or("missing key: STREAM?key=KEY or STREAM?token=TOKEN")?;
    let same = |rule: &str| {
        let (rule, given) = (rule.as_bytes(), given.as_bytes());
        aws_lc_rs::constant_time::verify_slices_are_equal(rule, given).is_ok()
    };
    // Compare with every rule, so that the time reveals nothing.
    let keys = rules.iter().filter_map(|rule| rule.key.as_deref());
    let is_valid = keys.fold(false, |is_valid, key| same(key) | is_valid);
    is_valid.then_some(Some(given)).ok_or("wrong key".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = r#"
        [[publish]]
        stream = "live/*"
        key = "one"
        [[publish]]
        stream = "live/special"
        key = "two"
    "#;

    fn allowed(
        config: &str,
        name: &str,
        key: Option<&str>,
        from: [u8; 4],
    ) -> Result<(), Cow<'static, str>> {
        let config = Config::parse("edge.toml", config).expect("valid");
        let sets = KeySets::load(&config, None).expect("no files");
        let (proofs, now) = (PublisherProofs { key, token: None }, SystemTime::now());
        let required_key = authorize(&config, &sets, name, proofs, (from, 1).into(), now)?;
        assert_eq!(required_key, key.filter(|_| !config.publish.is_empty()));
        Ok(())
    }

    #[test]
    fn without_rules_only_loopback_may_publish() {
        assert_eq!(allowed("", "live/a", None, [127, 0, 0, 1]), Ok(()));
        assert!(allowed("", "live/a", None, [192, 0, 2, 1]).is_err());
    }

    #[test]
    fn a_rule_requires_its_key_from_every_address() {
        let local = [127, 0, 0, 1];
        assert_eq!(allowed(KEYS, "live/a", Some("one"), [192, 0, 2, 1]), Ok(()));
        assert_eq!(allowed(KEYS, "live/special", Some("one"), local), Ok(()));
        assert_eq!(allowed(KEYS, "live/special", Some("two"), local), Ok(()));
        assert_eq!(allowed(KEYS, "live/a", Some("two"), local), Err("wrong key".into()));
        assert!(allowed(KEYS, "live/a", None, local).is_err());
        assert!(allowed(KEYS, "other/a", Some("one"), local).is_err());
    }
}
