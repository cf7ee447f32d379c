//! Sources of streams: RTMP publishers, and pulls from upstreams.

mod alignment;
mod input;
pub(crate) mod pull;

use core::fmt;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use relay::{Refusal, Stream};
use tokio::time::sleep;

use crate::bans::Bans;
use crate::config::{Config, TakeOver};
use crate::hooks::Grant;
use crate::ladder;
use crate::live::{ActivePublisher, Live, Publication, settings};
use crate::names::{is_name, matches};
use crate::tokens::{self, KeySets, Terms};

pub use input::PublisherInput;

/// Message to a publisher after the operator ended its stream.
pub const ENDED: &str = "the operator ended this stream";

/// Reason why a publisher is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// The stream has a publisher, or there is no room for another stream.
    Refused(Refusal),
    /// The operator has ended the stream.
    Ended,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Ended => f.write_str(ENDED),
        }
    }
}

impl core::error::Error for Rejection {}

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
    if !is_name(name) {
        return Err("invalid stream name".into());
    }
    if ladder::get(config, name).is_some() {
        return Err("a [[ladder]] has this name".into());
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

/// Starts to publish a stream. If it has a publisher, `[live] take_over` decides by `key` and
/// `grant` whether the new one replaces it.
///
/// # Errors
/// The reason, as text for the publisher's user.
pub fn publish(
    live: &Live,
    bans: &Bans,
    config: &Config,
    name: &str,
    key: Option<&str>,
    grant: Grant,
) -> Result<Publication, Rejection> {
    let may_replace = |active: &&ActivePublisher| match config.live.take_over {
        TakeOver::Refuse => false,
        TakeOver::SameKey => grant == Grant::Hook || active.has_key(key),
    };
    let settings = settings(&config.live);
    let publish = |active: Option<&ActivePublisher>| match live.streams.publish(name, settings) {
        Err(Refusal::Busy) => {
            let replaced = active.filter(may_replace);
            replaced.and_then(|active| active.replace(&live.streams)).ok_or(Refusal::Busy)
        }
        other => other,
    };
    let publication = live.publishers.publish_as(name, key, publish);
    let mut publication = publication.map_err(Rejection::Refused)?;
    // Wall-clock timestamps: a later stream of this name, even after a restart, never reuses the
    // numbers and names of HLS segments, which derive from them.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    match ladder::of_rendition(config, name) {
        Some(ladder) => publication.publisher.align(live.ladders.keys().clone(), &ladder.name),
        None => publication.publisher.begin_at(now.as_millis() as u32),
    }
    // A ban added meanwhile did not find the publisher.
    if bans.refuse_stream(name) {
        live.publishers.end(name);
        live.streams.end(publication.publisher.stream());
        return Err(Rejection::Ended);
    }
    Ok(publication)
}

/// Drops a publisher. The stream ends after `linger`, unless a publisher returns.
pub fn lose(live: &Arc<Live>, publisher: PublisherInput, linger: Duration) {
    let (live, stream, number): (_, Arc<Stream>, _) =
        (live.clone(), publisher.stream().clone(), publisher.number());
    drop(publisher);
    tokio::spawn(async move {
        sleep(linger).await;
        if live.streams.end_after(&stream, number) {
            tracing::info!("{}: stream ended", stream.name());
        }
    });
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
