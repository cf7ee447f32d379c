//! Path state per network, kept by the server for clients without a cookie. The last resort among
//! the carriers, and bounded in size.

use std::collections::{BTreeMap, BTreeSet};

use crate::cookie::Cookie;
use crate::prefix::Prefix;

/// The newest cookie of each network, up to a capacity.
///
/// ```
/// use mendcast_startup::{Cookie, History, Prefix};
///
/// let mut history = History::new(10_000);
/// let prefix = Prefix::of("192.0.2.7".parse().unwrap());
/// history.record(&Cookie::unmeasured(1_700_000_000, prefix, 7));
/// // Another client of the same /24 finds it.
/// assert!(history.get(Prefix::of("192.0.2.200".parse().unwrap())).is_some());
/// ```
#[derive(Debug)]
pub struct History {
    capacity: usize,
    newest: BTreeMap<Prefix, Cookie>,
    by_time: BTreeSet<(u64, Prefix)>,
}

impl History {
    /// Creates a history for `capacity` networks, at about 200 bytes each. 0 disables it.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, newest: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Records the path state of a connection, without its viewer. The client's address must be
    /// validated, or spoofed addresses could control the contents. Evicts the network with the
    /// oldest state if full. Ignores cookies older than the recorded one.
    pub fn record(&mut self, cookie: &Cookie) {
        let (issued, prefix) = (cookie.issued, cookie.prefix);
        let known = self.newest.get(&prefix).map(|known| known.issued);
        if self.capacity == 0 || known.is_some_and(|known| known > issued) {
            return;
        }
        if let Some(known) = known {
            self.by_time.remove(&(known, prefix));
        } else if self.newest.len() >= self.capacity
            && let Some((_, stalest)) = self.by_time.pop_first()
        {
            self.newest.remove(&stalest);
        }
        self.newest.insert(prefix, Cookie { unit: 0, ..*cookie });
        self.by_time.insert((issued, prefix));
    }

    /// Returns the newest path state of a network. It keeps its issue time and must pass
    /// [`Cookie::accept`] with [`Carrier::History`](crate::Carrier::History).
    pub fn get(&self, prefix: Prefix) -> Option<&Cookie> {
        self.newest.get(&prefix)
    }

    /// Removes a network after a failed jump (RFC 9959, section 3.4).
    pub fn forget(&mut self, prefix: Prefix) {
        if let Some(cookie) = self.newest.remove(&prefix) {
            self.by_time.remove(&(cookie.issued, prefix));
        }
    }

    /// Number of recorded networks.
    pub fn len(&self) -> usize {
        self.newest.len()
    }

    /// Returns true without recorded networks.
    pub fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::cookie;
    use core::net::{IpAddr, Ipv4Addr};

    fn network(n: u16) -> Prefix {
        let [a, b] = n.to_be_bytes();
        Prefix::of(IpAddr::V4(Ipv4Addr::new(10, a, b, 1)))
    }

    fn of(n: u16, issued: u64) -> Cookie {
        Cookie { prefix: network(n), issued, ..cookie() }
    }

    #[test]
    fn the_stalest_network_is_evicted() {
        let mut history = History::new(3);
        for (n, issued) in [(1, 10), (2, 11), (3, 12), (1, 13)] {
            history.record(&of(n, issued));
        }
        history.record(&of(4, 14));
        let kept = [1, 2, 3, 4].map(|n| history.get(network(n)).map(|cookie| cookie.issued));
        assert_eq!(kept, [Some(13), None, Some(12), Some(14)]);
        assert_eq!(history.len(), 3);
    }

    #[test]
    fn the_newest_cookie_is_kept_without_its_viewer() {
        let mut history = History::new(3);
        history.record(&of(1, 10));
        history.record(&of(1, 9));
        let kept = *history.get(network(1)).expect("it is there");
        assert_eq!(kept, Cookie { unit: 0, ..of(1, 10) });
        history.forget(network(1));
        assert!(history.is_empty() && history.get(network(1)).is_none());
        history.record(&of(1, 1));
        assert_eq!(history.len(), 1, "a forgotten network can be recorded again");
    }

    #[test]
    fn capacity_is_respected_also_when_flooded() {
        let mut none = History::new(0);
        none.record(&cookie());
        assert!(none.is_empty());
        let mut small = History::new(50);
        (0..10_000).for_each(|n| small.record(&of(n, u64::from(n) / 7)));
        assert_eq!((small.len(), small.by_time.len()), (50, 50));
    }
}
