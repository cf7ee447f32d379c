//! How streams come in: published to us over RTMP, or pulled from an upstream.

mod entry;
pub(crate) mod pull;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use relay::{Refusal, Stream};
use tokio::time::sleep;

use crate::bans::Bans;
use crate::config::{Config, TakeOver};
use crate::hooks::Grant;
use crate::live::{Held, Holder, Live, settings};
use crate::names::{is_name, matches};

pub use entry::Entry;

/// What a publisher is told whose stream the operator has ended.
pub const ENDED: &str = "the operator has ended this stream";

/// Whether `remote` may publish `name` with this key. Returns the key that let it in, if one was
/// needed.
///
/// # Errors
/// Why not, in words for the publisher's user.
pub fn authorize<'k>(
    config: &Config,
    name: &str,
    key: Option<&'k str>,
    remote: SocketAddr,
) -> Result<Option<&'k str>, &'static str> {
    if !is_name(name) {
        return Err("this is no name for a stream");
    }
    if config.publish.is_empty() {
        let local = remote.ip().to_canonical().is_loopback();
        return local.then_some(None).ok_or("no publisher from outside is allowed");
    }
    let mut rules = config.publish.iter().filter(|rule| matches(&rule.stream, name)).peekable();
    if rules.peek().is_none() {
        return Err("nobody may publish this stream");
    }
    let given = key.ok_or("a key is missing: STREAM?key=KEY")?;
    let same = |rule: &str| {
        let (rule, given) = (rule.as_bytes(), given.as_bytes());
        aws_lc_rs::constant_time::verify_slices_are_equal(rule, given).is_ok()
    };
    // Every rule is looked at, so that the time tells nothing.
    let right = rules.fold(false, |right, rule| same(&rule.key) | right);
    right.then_some(Some(given)).ok_or("wrong key")
}

/// Starts to publish: a stream that nobody publishes, or that `[live] take_over` allows somebody with
/// this `key` and `grant` to take from the one who does.
///
/// # Errors
/// Why it cannot be, in words for the publisher's user.
pub fn publish(
    live: &Live,
    bans: &Bans,
    config: &Config,
    name: &str,
    key: Option<&str>,
    grant: Grant,
) -> Result<Held, String> {
    let may_replace = |holder: &&Holder| match config.live.take_over {
        TakeOver::Refuse => false,
        TakeOver::SameKey => grant == Grant::Hook || holder.has_key(key),
    };
    let publish = |holder: Option<&Holder>| match live.streams.publish(name, settings(&config.live))
    {
        Err(Refusal::Busy) => {
            let replaced = holder.filter(may_replace);
            replaced.and_then(|holder| holder.replace(&live.streams)).ok_or(Refusal::Busy)
        }
        other => other,
    };
    let held = live.holders.hold(name, key, publish).map_err(|refusal| refusal.to_string())?;
    // A stream that begins later, here or after a restart of the server, has later times: numbers and
    // names of HLS segments, which follow from them, do not come again.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    held.publisher.begin_at(now.as_millis() as u32);
    // A ban that came meanwhile has not found the publisher.
    if bans.refuse_stream(name) {
        live.holders.end(name);
        live.streams.end(held.publisher.stream());
        return Err(ENDED.into());
    }
    Ok(held)
}

/// Gives up a publisher: it may come back within `linger`, then the stream is over.
pub fn lose(live: &Arc<Live>, publisher: Entry, linger: Duration) {
    let (live, stream, number): (_, Arc<Stream>, _) =
        (live.clone(), publisher.stream().clone(), publisher.number());
    drop(publisher);
    tokio::spawn(async move {
        sleep(linger).await;
        if live.streams.end_after(&stream, number) {
            tracing::info!("{}: over", stream.name());
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
    ) -> Result<(), &'static str> {
        let config = Config::parse("edge.toml", config).expect("valid");
        let key_that_counts = authorize(&config, name, key, (from, 1).into())?;
        assert_eq!(key_that_counts, key.filter(|_| !config.publish.is_empty()));
        Ok(())
    }

    #[test]
    fn without_rules_only_this_machine_may_publish() {
        assert_eq!(allowed("", "live/a", None, [127, 0, 0, 1]), Ok(()));
        assert!(allowed("", "live/a", None, [192, 0, 2, 1]).is_err());
    }

    #[test]
    fn a_rule_asks_for_its_key_wherever_the_publisher_is() {
        let local = [127, 0, 0, 1];
        assert_eq!(allowed(KEYS, "live/a", Some("one"), [192, 0, 2, 1]), Ok(()));
        assert_eq!(allowed(KEYS, "live/special", Some("one"), local), Ok(()));
        assert_eq!(allowed(KEYS, "live/special", Some("two"), local), Ok(()));
        assert_eq!(allowed(KEYS, "live/a", Some("two"), local), Err("wrong key"));
        assert!(allowed(KEYS, "live/a", None, local).is_err());
        assert!(allowed(KEYS, "other/a", Some("one"), local).is_err());
    }
}
