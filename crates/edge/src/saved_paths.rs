//! State of connection starts, shared by the process: recent jumps, the last measurement of each
//! network, and counters of cookies.
//!
//! Reloads keep it, so that a cookie never buys a second jump.

use core::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use startup::cookie::{CookieRules, Verdict};
use startup::{Carrier, Cookie, History, JumpLedger, PathState, Prefix, Refusal};
use units::Rate;

use crate::sync::lock;

/// Viewers whose last jump is remembered, at 9 bytes each. Covers the visits within a cookie's
/// lifetime.
const VIEWERS: usize = 1 << 17;

/// A cookie that a client sent, by carrier, and the result of opening it.
pub(crate) type ReceivedCookie = (Carrier, Result<Cookie, Refusal>);

/// Saved path state shared by all event loops.
#[derive(Debug)]
pub struct SavedPaths {
    spent: JumpLedger,
    history: Mutex<History>,
    /// Counts by carrier: accepted, then rejected by reason.
    cookies: [[AtomicU64; 1 + Refusal::ALL.len()]; Carrier::ALL.len()],
    /// Viewers without a cookie in a network without a measurement.
    strangers: AtomicU64,
    passed: AtomicU64,
    failed: AtomicU64,
}

impl SavedPaths {
    /// Creates an empty state that remembers the measurements of up to `networks` networks.
    pub(crate) fn new(networks: usize) -> Self {
        Self {
            spent: JumpLedger::new(VIEWERS),
            history: Mutex::new(History::new(networks)),
            cookies: Default::default(),
            strangers: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Returns the saved state of the path to a client with a validated address: from its cookies,
    /// or else from its network. With `buys`, spends the state on a jump, which it can buy once.
    ///
    /// # Errors
    /// [`Refusal::Failed`]: the last jump on this path met congestion. The connection must start
    /// with the initial window, without the defaults for unknown viewers.
    pub(crate) fn look_up(
        &self,
        received: &[ReceivedCookie],
        client: IpAddr,
        now: u64,
        rules: &CookieRules,
        buys: bool,
    ) -> Result<Option<(Carrier, PathState)>, Refusal> {
        let mut is_spent = false;
        for (carrier, cookie) in received {
            match self.judge(*carrier, *cookie, client, now, rules, buys) {
                Ok(past) => return Ok(Some((*carrier, past))),
                // A failed jump concerns the path, whatever other carriers have.
                Err(Refusal::Failed) => return Err(Refusal::Failed),
                // Another carrier may have a newer cookie. The network must not buy a second jump.
                Err(refusal) => is_spent |= refusal == Refusal::Spent,
            }
        }
        if is_spent {
            return Ok(None);
        }
        let Some(cookie) = lock(&self.history).get(Prefix::of(client)).copied() else {
            if received.is_empty() {
                self.strangers.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(None);
        };
        let past = self.judge(Carrier::History, Ok(cookie), client, now, rules, buys);
        Ok(past.ok().map(|past| (Carrier::History, past)))
    }

    /// Returns the usual delivery rate of the path to a client, from its cookies or else from its
    /// network. Spends and counts nothing.
    pub(crate) fn rate(
        &self,
        received: &[ReceivedCookie],
        client: IpAddr,
        now: u64,
        rules: &CookieRules,
    ) -> Option<Rate> {
        let history = lock(&self.history).get(Prefix::of(client)).copied();
        let history = history.map(|cookie| (Carrier::History, cookie));
        let received = received.iter().filter_map(|(c, cookie)| Some((*c, cookie.ok()?)));
        received.chain(history).find_map(|(carrier, cookie)| {
            let past = cookie.accept(carrier, client, now, rules).ok()?;
            let Cookie { usual_rate, max_rate, .. } = past.cookie;
            [usual_rate, max_rate].into_iter().find(|rate| *rate > Rate::ZERO)
        })
    }

    fn judge(
        &self,
        carrier: Carrier,
        cookie: Result<Cookie, Refusal>,
        client: IpAddr,
        now: u64,
        rules: &CookieRules,
        buys: bool,
    ) -> Result<PathState, Refusal> {
        let past = cookie.and_then(|cookie| cookie.accept(carrier, client, now, rules));
        let past = match past {
            Ok(past) if buys && !self.spent.claim(&past.cookie, now) => Err(Refusal::Spent),
            other => other,
        };
        let outcome = past.as_ref().err().map_or(0, |refusal| 1 + *refusal as usize);
        self.cookies[carrier as usize][outcome].fetch_add(1, Ordering::Relaxed);
        past
    }

    /// Records the measurement in an issued cookie for its network.
    pub(crate) fn on_issued(&self, cookie: &Cookie) {
        let mut history = lock(&self.history);
        match cookie.verdict {
            Verdict::Failed => history.forget(cookie.prefix),
            _ if cookie.samples > 0 => history.record(cookie),
            _ => {}
        }
    }

    /// Counts the outcome of a closed connection's jump.
    pub(crate) fn on_verdict(&self, verdict: Verdict) {
        match verdict {
            Verdict::None => {}
            Verdict::Passed => _ = self.passed.fetch_add(1, Ordering::Relaxed),
            Verdict::Failed => _ = self.failed.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns the number of cookies by carrier and outcome.
    pub(crate) fn cookies(&self) -> impl Iterator<Item = ([&'static str; 2], u64)> + '_ {
        let outcomes = || {
            let refused = Refusal::ALL.into_iter().map(Refusal::name);
            core::iter::once("accepted").chain(refused)
        };
        Carrier::ALL.into_iter().zip(&self.cookies).flat_map(move |(carrier, counts)| {
            let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
            outcomes().zip(counts).map(move |(outcome, count)| ([carrier.name(), outcome], count))
        })
    }

    /// Returns the number of viewers without a cookie in an unknown network.
    pub(crate) fn strangers(&self) -> u64 {
        self.strangers.load(Ordering::Relaxed)
    }

    /// Returns the number of jumps of closed connections, by outcome.
    pub(crate) fn jumps(&self) -> [(&'static str, u64); 2] {
        [("passed", &self.passed), ("failed", &self.failed)]
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// Returns the number of remembered networks.
    pub(crate) fn networks(&self) -> usize {
        lock(&self.history).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use units::Rate;

    const NOW: u64 = 1_800_000_000;

    fn client(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn cookie(unit: u64, issued: u64) -> Cookie {
        Cookie {
            min_rtt: Duration::from_millis(50),
            max_rate: Rate::from_mbps(8),
            usual_rate: Rate::from_mbps(6),
            samples: 10,
            ..Cookie::unmeasured(issued, Prefix::of(client(1)), unit)
        }
    }

    fn look_up(
        all: &SavedPaths,
        received: &[ReceivedCookie],
        last: u8,
        buys: bool,
    ) -> Option<Carrier> {
        let found = all.look_up(received, client(last), NOW, &CookieRules::default(), buys);
        found.expect("no jump failed").map(|(carrier, _)| carrier)
    }

    fn count(all: &SavedPaths, carrier: Carrier, outcome: &str) -> u64 {
        let matches = |(labels, _): &([&str; 2], u64)| *labels == [carrier.name(), outcome];
        all.cookies().find(matches).expect("a label").1
    }

    #[test]
    fn the_first_valid_cookie_is_used_before_the_network() {
        let all = SavedPaths::new(10);
        let (token, ticket) = (cookie(1, NOW - 9), cookie(1, NOW - 9));
        let both = [(Carrier::Token, Ok(token)), (Carrier::Ticket, Ok(ticket))];
        assert_eq!(look_up(&all, &both, 1, false), Some(Carrier::Token));
        let damaged = [(Carrier::Token, Err(Refusal::Length)), (Carrier::Ticket, Ok(ticket))];
        assert_eq!(look_up(&all, &damaged, 1, false), Some(Carrier::Ticket));
        assert_eq!(count(&all, Carrier::Token, "length"), 1);
        assert_eq!((look_up(&all, &[], 1, false), all.strangers()), (None, 1));
        all.on_issued(&cookie(1, NOW - 5));
        assert_eq!(look_up(&all, &[], 77, false), Some(Carrier::History), "same network");
        assert_eq!((all.networks(), all.strangers()), (1, 1));
    }

    #[test]
    fn a_cookie_buys_one_jump_over_all_carriers_and_none_by_the_network() {
        let all = SavedPaths::new(10);
        all.on_issued(&cookie(1, NOW - 9));
        let by = |carrier| [(carrier, Ok(cookie(1, NOW - 9)))];
        assert_eq!(look_up(&all, &by(Carrier::Token), 1, true), Some(Carrier::Token));
        for _ in 0..1_000 {
            assert_eq!(look_up(&all, &by(Carrier::Ticket), 1, true), None);
        }
        assert_eq!(count(&all, Carrier::Ticket, "spent"), 1_000);
        assert_eq!(look_up(&all, &[], 2, true), Some(Carrier::History), "another viewer");
        assert_eq!(look_up(&all, &[], 3, true), None, "spent until the next measurement");
    }

    #[test]
    fn a_failed_jump_removes_the_measurement_of_its_network() {
        let all = SavedPaths::new(10);
        all.on_issued(&cookie(1, NOW - 9));
        let failed = Cookie { verdict: Verdict::Failed, ..cookie(2, NOW - 5) };
        all.on_issued(&failed);
        assert_eq!(all.networks(), 0);
        all.on_issued(&cookie(1, NOW - 4));
        let received = [(Carrier::Token, Ok(failed)), (Carrier::Ticket, Ok(cookie(2, NOW - 9)))];
        let found = all.look_up(&received, client(1), NOW, &CookieRules::default(), true);
        assert_eq!(found, Err(Refusal::Failed), "other carriers do not help");
        assert_eq!(count(&all, Carrier::Token, "failed"), 1);
        for verdict in [Verdict::None, Verdict::Passed, Verdict::Failed, Verdict::Failed] {
            all.on_verdict(verdict);
        }
        assert_eq!(all.jumps(), [("passed", 1), ("failed", 2)]);
    }

    #[test]
    fn a_cookie_without_samples_is_not_recorded() {
        let all = SavedPaths::new(10);
        all.on_issued(&Cookie { samples: 0, ..cookie(1, NOW) });
        assert_eq!(all.networks(), 0);
    }
}
