//! Which viewers have bought a jump lately, in fixed memory: only one connection may use a set of saved
//! parameters (RFC 9959, section 3.2, "Using saved_cwnd").
//!
//! A connection gets a new cookie every few seconds, so that a client could hold a dozen and open a
//! connection with each. Hence it is not cookies that are remembered but viewers in their networks,
//! each with the time of its last jump: a cookie buys one if it was issued after that. What a viewer
//! returns with has then been measured since, and who changes channels every second may jump each
//! time.
//!
//! **Where it errs**, a viewer starts as one without a cookie does, and nothing worse: when two viewers
//! share a place and a 32-bit tag (one chance in 10^9), and when a full place forgot its oldest viewer
//! after the cookie was issued. It never grants a second jump while it runs. It knows of one process
//! only: after a restart, or on another server of the site, a cookie buys a jump once more.

use std::sync::{Mutex, PoisonError};

use crate::cookie::Cookie;

/// Viewers that share a place.
const WAYS: usize = 4;

/// The viewers' latest jumps. All threads of a server share one.
#[derive(Debug)]
pub struct Spent {
    places: Mutex<Vec<Place>>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Place {
    /// The newest jump that was forgotten here, in Unix seconds: cookies issued until then buy none
    /// unless their viewer is remembered.
    forgotten: u32,
    viewers: [Viewer; WAYS],
}

/// A viewer's latest jump, in Unix seconds; 0 for nobody.
#[derive(Clone, Copy, Default, Debug)]
struct Viewer {
    tag: u32,
    jump: u32,
}

impl Spent {
    /// Remembers about `viewers` viewers, at 9 bytes each; the number is rounded up to a power of two.
    /// Enough are those who come within a cookie's lifetime.
    pub fn new(viewers: usize) -> Self {
        let places = viewers.div_ceil(WAYS).clamp(1, 1 << 30).next_power_of_two();
        Self { places: Mutex::new(vec![Place::default(); places]) }
    }

    /// Whether this cookie, which was [accepted](Cookie::accept), buys a jump at `now` (Unix seconds).
    /// If so, the jump is made: the same cookie buys no other, nor does any that its viewer had by then.
    pub fn buy(&self, cookie: &Cookie, now: u64) -> bool {
        let hash = hash(cookie);
        let [issued, now] = [cookie.issued, now].map(|t| u32::try_from(t).unwrap_or(u32::MAX));
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let index = hash as usize & (places.len() - 1);
        let place = &mut places[index];
        let tag = (hash >> 32) as u32;
        let known = place.viewers.iter_mut().find(|viewer| viewer.jump > 0 && viewer.tag == tag);
        if let Some(viewer) = known {
            let is_newer = issued > viewer.jump;
            if is_newer {
                viewer.jump = now.max(viewer.jump);
            }
            return is_newer;
        }
        if issued <= place.forgotten {
            return false;
        }
        let oldest = place.viewers.iter_mut().min_by_key(|viewer| viewer.jump);
        let oldest = oldest.expect("a place has room for some viewers");
        place.forgotten = place.forgotten.max(oldest.jump);
        *oldest = Viewer { tag, jump: now.max(1) };
        true
    }
}

/// Mixes the viewer's number, which is random and which nobody but us can choose, with the network.
fn hash(cookie: &Cookie) -> u64 {
    let mut network = [0; 8];
    network[..6].copy_from_slice(&cookie.prefix.bytes());
    network[6] = cookie.prefix.is_v6().into();
    let mut mixed = cookie.unit ^ u64::from_be_bytes(network).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The finaliser of SplitMix64.
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
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
    fn a_cookie_buys_one_jump_and_so_do_all_that_its_viewer_had_by_then() {
        let spent = Spent::new(1_000);
        assert!(spent.buy(&of(1, 100), 200));
        for issued in [100, 103, 199, 200] {
            assert!(!spent.buy(&of(1, issued), 201), "issued at {issued}");
        }
        assert!(spent.buy(&of(2, 100), 201), "another viewer");
        let elsewhere = "198.51.100.1".parse().expect("an address");
        let moved = Cookie { prefix: crate::Prefix::of(elsewhere), ..of(1, 100) };
        assert!(spent.buy(&moved, 201), "the same viewer in another network");
    }

    #[test]
    fn a_cookie_that_was_issued_after_the_jump_buys_the_next_one() {
        let spent = Spent::new(1_000);
        assert!(spent.buy(&of(1, 100), 200));
        assert!(spent.buy(&of(1, 203), 204));
        assert!(!spent.buy(&of(1, 203), 205));
        assert!(spent.buy(&of(1, 300), 250), "another server's clock is ahead");
        assert!(!spent.buy(&of(1, 250), 251));
    }

    #[test]
    fn memory_does_not_grow_and_what_was_forgotten_is_not_granted_again() {
        let spent = Spent::new(64);
        assert_eq!(size_of::<Place>(), 36);
        assert!((0..10_000).filter(|unit| spent.buy(&of(*unit, 5_000), 100 + unit)).count() > 60);
        assert_eq!(spent.places.lock().expect("nobody panicked").len(), 16);
        let again = (0..10_000).filter(|unit| spent.buy(&of(*unit, 99), 20_000)).count();
        assert_eq!(again, 0, "none of these cookies is newer than its viewer's jump");
    }

    proptest! {
        #[test]
        fn no_cookie_buys_twice_whatever_happens_between(
            events in prop::collection::vec((0..40u64, 0..100u64, 0..20u64), 1..300),
        ) {
            let spent = Spent::new(16);
            let (mut now, mut bought) = (1_000, std::collections::BTreeMap::new());
            for (unit, age, pause) in events {
                now += pause;
                let issued = now - age;
                if spent.buy(&of(unit, issued), now) {
                    let last = bought.insert(unit, now);
                    prop_assert!(last.is_none_or(|last| last < issued), "{unit} at {now}");
                }
            }
        }
    }
}
