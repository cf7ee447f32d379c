//! Who may control the server: everybody on this machine where the listener is on loopback, elsewhere those who
//! bring a token along (RFC 6750, section 2.1).
//!
//! A page in the operator's browser reaches loopback as well. It may send simple requests to any address (Fetch
//! standard, section 4.8), but no header of its own without asking first, which nobody here grants. So calls that
//! change something bring the header [`HEADER`], or a token.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hyper::header::{AUTHORIZATION, HeaderMap};

use crate::config::{Network, Secret};
use crate::sync::lock;

/// What a call that changes something brings along if it has no token, with any value.
pub(super) const HEADER: &str = "mendcast-control";
/// Wrong tokens of one address (one /64 of IPv6) within [`WINDOW`]; what comes after that is not looked at.
const MAX_WRONG: u32 = 10;
/// From the first wrong token of an address on.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// Addresses whose wrong tokens are counted; for a further one the oldest is forgotten.
const MAX_COUNTED: usize = 1_000;

/// Why somebody may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Denied {
    /// There is no token that could be brought along.
    NoToken,
    /// None was.
    Missing,
    /// It was a wrong one.
    Wrong,
    /// The address has brought too many wrong ones.
    TooOften,
    /// The call may be a page's.
    NoHeader,
}

/// Who may control the server.
#[derive(Debug)]
pub(super) struct Access {
    /// The listener is on loopback.
    is_local: bool,
    wrong: Mutex<Wrong>,
}

#[derive(Debug, Default)]
struct Wrong {
    /// How many each address brought, and from when on.
    counts: HashMap<Network, (Instant, u32)>,
    /// The same addresses, oldest first.
    order: VecDeque<Network>,
}

impl Access {
    /// For a listener that `is_local` to this machine.
    pub(super) fn new(is_local: bool) -> Self {
        Self { is_local, wrong: Mutex::default() }
    }

    /// Whether the request with these headers may look, or change something.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(
        &self,
        tokens: &[Secret],
        headers: &HeaderMap,
        remote: IpAddr,
        changes: bool,
        now: Instant,
    ) -> Result<(), Denied> {
        let is_local = self.is_local && remote.to_canonical().is_loopback();
        match bearer(headers) {
            Some(given) if !tokens.is_empty() => self.compare(tokens, given, remote, now),
            _ if is_local && changes && !headers.contains_key(HEADER) => Err(Denied::NoHeader),
            _ if is_local => Ok(()),
            _ if tokens.is_empty() => Err(Denied::NoToken),
            _ => Err(Denied::Missing),
        }
    }

    fn compare(
        &self,
        tokens: &[Secret],
        given: &[u8],
        remote: IpAddr,
        now: Instant,
    ) -> Result<(), Denied> {
        let mut wrong = lock(&self.wrong);
        let network = Network::of_subscriber(remote);
        if wrong.is_over(network, now) {
            return Err(Denied::TooOften);
        }
        // All are looked at, so that the time tells nothing.
        if tokens.iter().fold(false, |right, token| token.is(given) | right) {
            return Ok(());
        }
        wrong.count(network, now);
        Err(Denied::Wrong)
    }
}

impl Wrong {
    /// Whether this address has brought too many.
    fn is_over(&mut self, network: Network, now: Instant) -> bool {
        while let Some(oldest) = self.order.front() {
            let since = self.counts.get(oldest).map(|(since, _)| *since);
            if since.is_some_and(|since| now.saturating_duration_since(since) < WINDOW) {
                break;
            }
            self.forget_oldest();
        }
        self.counts.get(&network).is_some_and(|(_, count)| *count >= MAX_WRONG)
    }

    fn count(&mut self, network: Network, now: Instant) {
        if !self.counts.contains_key(&network) {
            if self.order.len() >= MAX_COUNTED {
                self.forget_oldest();
            }
            self.order.push_back(network);
        }
        self.counts.entry(network).or_insert((now, 0)).1 += 1;
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.counts.remove(&oldest);
        }
    }
}

/// The token of `Authorization: Bearer TOKEN`; the scheme's name may be in any case (RFC 9110, section 11.1).
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const TOKEN: &str = "correct-horse-battery";

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &str)| {
            (name.parse().expect("a name"), HeaderValue::from_str(value).expect("a value"))
        };
        fields.iter().map(field).collect()
    }

    fn with_token(token: &str) -> HeaderMap {
        headers(&[("authorization", &format!("Bearer {token}"))])
    }

    fn tokens() -> Vec<Secret> {
        vec![Secret::new(TOKEN).expect("a secret")]
    }

    #[test]
    fn on_loopback_a_header_is_enough_and_elsewhere_a_token_is_needed() {
        let (local, far) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([192, 0, 2, 7]));
        let (none, own, now) = (headers(&[]), headers(&[(HEADER, "1")]), Instant::now());
        let on_loopback = Access::new(true);
        assert_eq!(on_loopback.check(&[], &none, local, false, now), Ok(()));
        assert_eq!(on_loopback.check(&[], &none, local, true, now), Err(Denied::NoHeader));
        assert_eq!(on_loopback.check(&[], &own, local, true, now), Ok(()));
        assert_eq!(on_loopback.check(&tokens(), &own, local, true, now), Ok(()));
        let right = with_token(TOKEN);
        assert_eq!(on_loopback.check(&tokens(), &right, local, true, now), Ok(()));
        let wrong = with_token("wrong");
        assert_eq!(on_loopback.check(&tokens(), &wrong, local, false, now), Err(Denied::Wrong));
        // Whoever comes from elsewhere all the same is not local.
        assert_eq!(on_loopback.check(&[], &own, far, true, now), Err(Denied::NoToken));
        let outside = Access::new(false);
        for changes in [false, true] {
            for remote in [local, far] {
                let check = |tokens: &[Secret], headers: &HeaderMap| {
                    outside.check(tokens, headers, remote, changes, now)
                };
                assert_eq!(check(&[], &own), Err(Denied::NoToken));
                assert_eq!(check(&[], &right), Err(Denied::NoToken));
                assert_eq!(check(&tokens(), &own), Err(Denied::Missing));
                assert_eq!(check(&tokens(), &right), Ok(()));
                assert_eq!(check(&tokens(), &wrong), Err(Denied::Wrong));
                assert_eq!(
                    check(&tokens(), &headers(&[("authorization", "Basic x")])),
                    Err(Denied::Missing)
                );
            }
        }
    }

    #[test]
    fn an_address_that_guesses_is_not_listened_to_for_a_minute_and_others_are() {
        let (access, start) = (Access::new(false), Instant::now());
        let (guesser, other) = (IpAddr::from([192, 0, 2, 7]), IpAddr::from([192, 0, 2, 8]));
        let check = |remote, token: &str, now| {
            access.check(&tokens(), &with_token(token), remote, false, now)
        };
        for _ in 0..MAX_WRONG {
            assert_eq!(check(guesser, "wrong", start), Err(Denied::Wrong));
        }
        assert_eq!(check(guesser, "wrong", start), Err(Denied::TooOften));
        assert_eq!(check(guesser, TOKEN, start), Err(Denied::TooOften), "nobody learns by asking");
        assert_eq!(check(other, TOKEN, start), Ok(()));
        assert_eq!(check(guesser, TOKEN, start + WINDOW), Ok(()));
        for n in 0..10 * MAX_COUNTED as u32 {
            assert_eq!(check(IpAddr::V4(n.into()), "wrong", start + WINDOW), Err(Denied::Wrong));
        }
        let wrong = lock(&access.wrong);
        assert!(wrong.counts.len() <= MAX_COUNTED && wrong.order.len() == wrong.counts.len());
    }
}
