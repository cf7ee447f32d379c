//! Access to the control API: on loopback for everybody on this machine, elsewhere with a token
//! (RFC 6750, section 2.1).
//!
//! A web page in the operator's browser can reach loopback too. It may send simple requests to any
//! address (Fetch standard, section 4.8), but custom headers only after a CORS preflight, which is
//! never granted here. So calls that change something need the header [`HEADER`] or a token.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hyper::header::{AUTHORIZATION, HeaderMap};

use crate::config::{Network, Secret};
use crate::sync::lock;

/// Header required, with any value, on changing calls without a token.
pub(super) const HEADER: &str = "mendcast-control";
/// Maximum wrong tokens per address (/64 of IPv6) within [`WRONG_TOKEN_WINDOW`]. Further tokens are
/// not checked.
const MAX_WRONG_TOKENS: u32 = 10;
/// Starts with the first wrong token of an address.
pub(super) const WRONG_TOKEN_WINDOW: Duration = Duration::from_secs(60);
/// Maximum addresses with counted wrong tokens. Beyond it the oldest is dropped.
const MAX_COUNTED: usize = 1_000;

/// Reason for denied access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessDenied {
    /// No token is configured.
    NoToken,
    /// The call has no token.
    Missing,
    /// The token is wrong.
    Wrong,
    /// The address has sent too many wrong tokens.
    TooOften,
    /// The call lacks [`HEADER`] and may come from a web page.
    NoHeader,
}

/// Access control of a listener.
#[derive(Debug)]
pub(super) struct Access {
    /// Whether the listener is on loopback.
    is_local: bool,
    wrong: Mutex<Wrong>,
}

#[derive(Debug, Default)]
struct Wrong {
    /// Wrong tokens by address, and the time of the first.
    counts: HashMap<Network, (Instant, u32)>,
    /// The same addresses, oldest first.
    order: VecDeque<Network>,
}

impl Access {
    /// Creates the access control of a listener; `is_local` if it is on loopback.
    pub(super) fn new(is_local: bool) -> Self {
        Self { is_local, wrong: Mutex::default() }
    }

    /// Checks whether a request with these headers may read or, if `changes`, change something.
    ///
    /// # Errors
    /// The reason for denied access.
    pub(super) fn check(
        &self,
        tokens: &[Secret],
        headers: &HeaderMap,
        remote: IpAddr,
        changes: bool,
        now: Instant,
    ) -> Result<(), AccessDenied> {
        let is_local = self.is_local && remote.to_canonical().is_loopback();
        match bearer(headers) {
            Some(given) if !tokens.is_empty() => self.compare(tokens, given, remote, now),
            _ if is_local && changes && !headers.contains_key(HEADER) => {
                Err(AccessDenied::NoHeader)
            }
            _ if is_local => Ok(()),
            _ if tokens.is_empty() => Err(AccessDenied::NoToken),
            _ => Err(AccessDenied::Missing),
        }
    }

    fn compare(
        &self,
        tokens: &[Secret],
        given: &[u8],
        remote: IpAddr,
        now: Instant,
    ) -> Result<(), AccessDenied> {
        let mut wrong = lock(&self.wrong);
        let network = Network::of_subscriber(remote);
        if wrong.is_over(network, now) {
            return Err(AccessDenied::TooOften);
        }
        // Compare with all tokens, for constant time.
        if tokens.iter().fold(false, |right, token| token.is(given) | right) {
            return Ok(());
        }
        wrong.count(network, now);
        Err(AccessDenied::Wrong)
    }
}

impl Wrong {
    /// Whether this address has sent too many wrong tokens.
    fn is_over(&mut self, network: Network, now: Instant) -> bool {
        while let Some(oldest) = self.order.front() {
            let since = self.counts.get(oldest).map(|(since, _)| *since);
            if since.is_some_and(|since| now.saturating_duration_since(since) < WRONG_TOKEN_WINDOW)
            {
                break;
            }
            self.forget_oldest();
        }
        self.counts.get(&network).is_some_and(|(_, count)| *count >= MAX_WRONG_TOKENS)
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

/// Returns the token of `Authorization: Bearer TOKEN`. The scheme is case-insensitive (RFC 9110,
/// section 11.1).
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
    fn loopback_needs_a_header_and_other_listeners_a_token() {
        let (local, far) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([192, 0, 2, 7]));
        let (none, own, now) = (headers(&[]), headers(&[(HEADER, "1")]), Instant::now());
        let on_loopback = Access::new(true);
        assert_eq!(on_loopback.check(&[], &none, local, false, now), Ok(()));
        assert_eq!(on_loopback.check(&[], &none, local, true, now), Err(AccessDenied::NoHeader));
        assert_eq!(on_loopback.check(&[], &own, local, true, now), Ok(()));
        assert_eq!(on_loopback.check(&tokens(), &own, local, true, now), Ok(()));
        let right = with_token(TOKEN);
        assert_eq!(on_loopback.check(&tokens(), &right, local, true, now), Ok(()));
        let wrong = with_token("wrong");
        assert_eq!(
            on_loopback.check(&tokens(), &wrong, local, false, now),
            Err(AccessDenied::Wrong)
        );
        // A remote address is not local, even on this listener.
        assert_eq!(on_loopback.check(&[], &own, far, true, now), Err(AccessDenied::NoToken));
        let outside = Access::new(false);
        for changes in [false, true] {
            for remote in [local, far] {
                let check = |tokens: &[Secret], headers: &HeaderMap| {
                    outside.check(tokens, headers, remote, changes, now)
                };
                assert_eq!(check(&[], &own), Err(AccessDenied::NoToken));
                assert_eq!(check(&[], &right), Err(AccessDenied::NoToken));
                assert_eq!(check(&tokens(), &own), Err(AccessDenied::Missing));
                assert_eq!(check(&tokens(), &right), Ok(()));
                assert_eq!(check(&tokens(), &wrong), Err(AccessDenied::Wrong));
                assert_eq!(
                    check(&tokens(), &headers(&[("authorization", "Basic x")])),
                    Err(AccessDenied::Missing)
                );
            }
        }
    }

    #[test]
    fn guessing_address_is_blocked_for_a_minute() {
        let (access, start) = (Access::new(false), Instant::now());
        let (guesser, other) = (IpAddr::from([192, 0, 2, 7]), IpAddr::from([192, 0, 2, 8]));
        let check = |remote, token: &str, now| {
            access.check(&tokens(), &with_token(token), remote, false, now)
        };
        for _ in 0..MAX_WRONG_TOKENS {
            assert_eq!(check(guesser, "wrong", start), Err(AccessDenied::Wrong));
        }
        assert_eq!(check(guesser, "wrong", start), Err(AccessDenied::TooOften));
        assert_eq!(
            check(guesser, TOKEN, start),
            Err(AccessDenied::TooOften),
            "a right token gets the same answer"
        );
        assert_eq!(check(other, TOKEN, start), Ok(()));
        assert_eq!(check(guesser, TOKEN, start + WRONG_TOKEN_WINDOW), Ok(()));
        for n in 0..10 * MAX_COUNTED as u32 {
            assert_eq!(
                check(IpAddr::V4(n.into()), "wrong", start + WRONG_TOKEN_WINDOW),
                Err(AccessDenied::Wrong)
            );
        }
        let wrong = lock(&access.wrong);
        assert!(wrong.counts.len() <= MAX_COUNTED && wrong.order.len() == wrong.counts.len());
    }
}
