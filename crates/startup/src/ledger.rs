//! Ledger of recent jumps in fixed memory: only one connection may use a set of saved parameters
//! (RFC 9959, section 3.2, "Using saved_cwnd").
//!
//! Connections get a new cookie every few seconds, so a client could hold a dozen and open a
//! connection with each. The ledger therefore stores the time of the last jump per viewer and
//! network rather than cookies. A cookie permits a jump if it was issued after that time, that is,
//! after a new measurement. Viewers who change channels every second may jump each time.
//!
//! **Errors are conservative**: the viewer starts as without a cookie. This happens when two
//! viewers share a set and a 32-bit tag (probability 10^-9), or when a full set evicted a viewer
//! after its cookie was issued. A second jump is never granted while the process runs. The ledger
//! is local to the process: after a restart or on another server of the site, a cookie permits
//! another jump.

use std::sync::{Mutex, PoisonError};

use units::{GOLDEN_GAMMA, mix64};

use crate::cookie::Cookie;

/// Viewers per set.
const WAYS: usize = 4;

/// Latest jumps of viewers, shared by all threads of a server.
///
/// ```
/// use mendcast_startup::{Cookie, JumpLedger, Prefix};
///
/// let ledger = JumpLedger::new(1_000_000);
/// let prefix = Prefix::of("192.0.2.7".parse().unwrap());
/// let cookie = Cookie::unmeasured(1_700_000_000, prefix, 7);
/// assert!(ledger.claim(&cookie, 1_700_000_060));
/// // A replay permits no second jump.
/// assert!(!ledger.claim(&cookie, 1_700_000_061));
/// ```
#[derive(Debug)]
pub struct JumpLedger {
    sets: Mutex<Vec<Set>>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Set {
    /// Latest evicted jump, in Unix seconds. Older cookies are rejected unless their viewer is in
    /// the set.
    evicted: u32,
    viewers: [ViewerJump; WAYS],
}

/// A viewer's latest jump, in Unix seconds; 0 for an empty entry.
#[derive(Clone, Copy, Default, Debug)]
struct ViewerJump {
    tag: u32,
    jump: u32,
}

impl JumpLedger {
    /// Creates a ledger for about `viewers` viewers, rounded up to a power of two, at 9 bytes each.
    /// It should hold all viewers that arrive within a cookie's lifetime.
    pub fn new(viewers: usize) -> Self {
        let sets = viewers.div_ceil(WAYS).clamp(1, 1 << 30).next_power_of_two();
        Self { sets: Mutex::new(vec![Set::default(); sets]) }
    }

    /// Claims a jump at `now` (Unix seconds) with an [accepted](Cookie::accept) cookie. If it
    /// returns true, neither this cookie nor any other that the viewer had by then permits another
    /// jump.
    pub fn claim(&self, cookie: &Cookie, now: u64) -> bool {
        let hash = hash(cookie);
        let [issued, now] = [cookie.issued, now].map(|t| u32::try_from(t).unwrap_or(u32::MAX));
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let index = hash as usize & (sets.len() - 1);
        let set = &mut sets[index];
        let tag = (hash >> 32) as u32;
        let known = set.viewers.iter_mut().find(|viewer| viewer.jump > 0 && viewer.tag == tag);
        if let Some(viewer) = known {
            let is_newer = issued > viewer.jump;
            if is_newer {
                viewer.jump = now.max(viewer.jump);
            }
            return is_newer;
        }
        if issued <= set.evicted {
            return false;
        }
        let oldest = set.viewers.iter_mut().min_by_key(|viewer| viewer.jump);
        let oldest = oldest.expect("a set is not empty");
        set.evicted = set.evicted.max(oldest.jump);
        *oldest = ViewerJump { tag, jump: now.max(1) };
        true
    }
}

/// Hashes the viewer, a random number chosen by the server, with the network.
fn hash(cookie: &Cookie) -> u64 {
    let mut network = [0; 8];
    network[..6].copy_from_slice(&cookie.prefix.bytes());
    network[6] = cookie.prefix.is_v6().into();
    mix64(cookie.unit ^ u64::from_be_bytes(network).wrapping_mul(GOLDEN_GAMMA))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::cookie;
    use proptest::prelude::*;

    fn of(unit: u64, issued: u64) -> Cookie {
        Cookie { unit, issued, ..cookie() }
    }

    #[test]
    fn a_jump_invalidates_all_cookies_of_its_viewer_until_then() {
        let ledger = JumpLedger::new(1_000);
        assert!(ledger.claim(&of(1, 100), 200));
        for issued in [100, 103, 199, 200] {
            assert!(!ledger.claim(&of(1, issued), 201), "issued at {issued}");
        }
        assert!(ledger.claim(&of(2, 100), 201), "another viewer");
        let elsewhere = "198.51.100.1".parse().expect("an address");
        let moved = Cookie { prefix: crate::Prefix::of(elsewhere), ..of(1, 100) };
        assert!(ledger.claim(&moved, 201), "the same viewer in another network");
    }

    #[test]
    fn a_cookie_issued_after_the_jump_permits_another() {
        let ledger = JumpLedger::new(1_000);
        assert!(ledger.claim(&of(1, 100), 200));
        assert!(ledger.claim(&of(1, 203), 204));
        assert!(!ledger.claim(&of(1, 203), 205));
        assert!(ledger.claim(&of(1, 300), 250), "another server's clock is ahead");
        assert!(!ledger.claim(&of(1, 250), 251));
    }

    #[test]
    fn memory_is_bounded_and_evicted_viewers_get_no_second_jump() {
        let ledger = JumpLedger::new(64);
        assert_eq!(size_of::<Set>(), 36);
        assert!(
            (0..10_000).filter(|unit| ledger.claim(&of(*unit, 5_000), 100 + unit)).count() > 60
        );
        assert_eq!(ledger.sets.lock().expect("not poisoned").len(), 16);
        let again = (0..10_000).filter(|unit| ledger.claim(&of(*unit, 99), 20_000)).count();
        assert_eq!(again, 0, "all cookies are older than their viewer's jump");
    }

    proptest! {
        #[test]
        fn no_cookie_permits_two_jumps(
            events in prop::collection::vec((0..40u64, 0..100u64, 0..20u64), 1..300),
        ) {
            let ledger = JumpLedger::new(16);
            let (mut now, mut bought) = (1_000, std::collections::BTreeMap::new());
            for (unit, age, pause) in events {
                now += pause;
                let issued = now - age;
                if ledger.claim(&of(unit, issued), now) {
                    let last = bought.insert(unit, now);
                    prop_assert!(last.is_none_or(|last| last < issued), "{unit} at {now}");
                }
            }
        }
    }
}
