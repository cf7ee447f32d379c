//! How connections begin, as far as the whole process knows: who jumped lately, what was measured last in each
//! network, and how often what clients brought along was of use.
//!
//! It outlives every configuration: a reload gives nobody a second jump.

use core::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use startup::cookie::{Rules, Verdict};
use startup::{Carrier, Cookie, History, JumpLedger, PathState, Prefix, Refusal};

use crate::sync::lock;

/// Viewers whose latest jump is remembered, at 9 bytes each: those who come within a cookie's lifetime.
const VIEWERS: usize = 1 << 17;

/// What a client brought along: what was made of it, by the way it came.
pub(crate) type Brought = (Carrier, Result<Cookie, Refusal>);

/// What all event loops share.
#[derive(Debug)]
pub struct Beginnings {
    spent: JumpLedger,
    history: Mutex<History>,
    /// By carrier: accepted, then refused by reason.
    cookies: [[AtomicU64; 1 + Refusal::ALL.len()]; Carrier::ALL.len()],
    /// Viewers of whom nothing was known.
    strangers: AtomicU64,
    passed: AtomicU64,
    failed: AtomicU64,
}

impl Beginnings {
    /// Nobody has come yet. What `networks` networks measured last will be remembered.
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

    /// What is known about the path to this client, whose address is validated: from what it brought, or else from its
    /// network. If the past `buys` a jump, it buys it here and now, and no second one.
    ///
    /// # Errors
    /// [`Refusal::Failed`]: the last jump on this path met congestion. Who comes back then is no stranger, whom experience
    /// helps: it starts with the initial window.
    pub(crate) fn past(
        &self,
        brought: &[Brought],
        client: IpAddr,
        now: u64,
        rules: &Rules,
        buys: bool,
    ) -> Result<Option<(Carrier, PathState)>, Refusal> {
        let mut is_spent = false;
        for (carrier, cookie) in brought {
            match self.judge(*carrier, *cookie, client, now, rules, buys) {
                Ok(past) => return Ok(Some((*carrier, past))),
                // This is about the path: another carrier knows nothing better.
                Err(Refusal::Failed) => return Err(Refusal::Failed),
                // Another carrier may have a newer one; the network's is no way to a second jump.
                Err(refusal) => is_spent |= refusal == Refusal::Spent,
            }
        }
        if is_spent {
            return Ok(None);
        }
        let Some(cookie) = lock(&self.history).get(Prefix::of(client)).copied() else {
            if brought.is_empty() {
                self.strangers.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(None);
        };
        let past = self.judge(Carrier::History, Ok(cookie), client, now, rules, buys);
        Ok(past.ok().map(|past| (Carrier::History, past)))
    }

    fn judge(
        &self,
        carrier: Carrier,
        cookie: Result<Cookie, Refusal>,
        client: IpAddr,
        now: u64,
        rules: &Rules,
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

    /// A connection issues this cookie.
    pub(crate) fn on_issued(&self, cookie: &Cookie) {
        let mut history = lock(&self.history);
        match cookie.verdict {
            Verdict::Failed => history.forget(cookie.prefix),
            _ if cookie.samples > 0 => history.record(cookie),
            _ => {}
        }
    }

    /// A connection is over whose jump came to this.
    pub(crate) fn on_verdict(&self, verdict: Verdict) {
        match verdict {
            Verdict::None => {}
            Verdict::Passed => _ = self.passed.fetch_add(1, Ordering::Relaxed),
            Verdict::Failed => _ = self.failed.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Cookies by carrier and outcome: accepted, or why not.
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

    /// Viewers of whom nothing was known.
    pub(crate) fn strangers(&self) -> u64 {
        self.strangers.load(Ordering::Relaxed)
    }

    /// Jumps of connections that are over, by what became of them.
    pub(crate) fn jumps(&self) -> [(&'static str, u64); 2] {
        [("passed", &self.passed), ("failed", &self.failed)]
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// Networks that are remembered.
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

    fn past(all: &Beginnings, brought: &[Brought], last: u8, buys: bool) -> Option<Carrier> {
        let found = all.past(brought, client(last), NOW, &Rules::default(), buys);
        found.expect("no jump failed").map(|(carrier, _)| carrier)
    }

    fn count(all: &Beginnings, carrier: Carrier, outcome: &str) -> u64 {
        let is_it = |(labels, _): &([&str; 2], u64)| *labels == [carrier.name(), outcome];
        all.cookies().find(is_it).expect("a label").1
    }

    #[test]
    fn the_first_carrier_with_a_good_cookie_counts_and_then_the_network() {
        let all = Beginnings::new(10);
        let (token, ticket) = (cookie(1, NOW - 9), cookie(1, NOW - 9));
        let both = [(Carrier::Token, Ok(token)), (Carrier::Ticket, Ok(ticket))];
        assert_eq!(past(&all, &both, 1, false), Some(Carrier::Token));
        let damaged = [(Carrier::Token, Err(Refusal::Length)), (Carrier::Ticket, Ok(ticket))];
        assert_eq!(past(&all, &damaged, 1, false), Some(Carrier::Ticket));
        assert_eq!(count(&all, Carrier::Token, "length"), 1);
        assert_eq!((past(&all, &[], 1, false), all.strangers()), (None, 1));
        all.on_issued(&cookie(1, NOW - 5));
        assert_eq!(past(&all, &[], 77, false), Some(Carrier::History), "of the same network");
        assert_eq!((all.networks(), all.strangers()), (1, 1));
    }

    #[test]
    fn a_cookie_buys_one_jump_by_whatever_way_it_comes_and_none_by_the_network() {
        let all = Beginnings::new(10);
        all.on_issued(&cookie(1, NOW - 9));
        let by = |carrier| [(carrier, Ok(cookie(1, NOW - 9)))];
        assert_eq!(past(&all, &by(Carrier::Token), 1, true), Some(Carrier::Token));
        for _ in 0..1_000 {
            assert_eq!(past(&all, &by(Carrier::Ticket), 1, true), None);
        }
        assert_eq!(count(&all, Carrier::Ticket, "spent"), 1_000);
        assert_eq!(past(&all, &[], 2, true), Some(Carrier::History), "another viewer of it");
        assert_eq!(past(&all, &[], 3, true), None, "until somebody measured again");
    }

    #[test]
    fn a_jump_that_failed_is_forgotten_for_its_network() {
        let all = Beginnings::new(10);
        all.on_issued(&cookie(1, NOW - 9));
        let failed = Cookie { verdict: Verdict::Failed, ..cookie(2, NOW - 5) };
        all.on_issued(&failed);
        assert_eq!(all.networks(), 0);
        all.on_issued(&cookie(1, NOW - 4));
        let brought = [(Carrier::Token, Ok(failed)), (Carrier::Ticket, Ok(cookie(2, NOW - 9)))];
        let judged = all.past(&brought, client(1), NOW, &Rules::default(), true);
        assert_eq!(judged, Err(Refusal::Failed), "by no other way either");
        assert_eq!(count(&all, Carrier::Token, "failed"), 1);
        for verdict in [Verdict::None, Verdict::Passed, Verdict::Failed, Verdict::Failed] {
            all.on_verdict(verdict);
        }
        assert_eq!(all.jumps(), [("passed", 1), ("failed", 2)]);
    }

    #[test]
    fn nothing_is_kept_of_a_connection_that_measured_nothing() {
        let all = Beginnings::new(10);
        all.on_issued(&Cookie { samples: 0, ..cookie(1, NOW) });
        assert_eq!(all.networks(), 0);
    }
}
