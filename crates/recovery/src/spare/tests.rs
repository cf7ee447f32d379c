//! Tests of the scheme: replicas wait for idle time, and their spacing and number.

use super::*;
use crate::{CopyKind, PathState, Recovery, SendOpportunity, UnitKey};
use units::Timestamp;

const OFF: SendOpportunity = SendOpportunity { off_mode: true };
const ON: SendOpportunity = SendOpportunity { off_mode: false };
const RTT: Duration = Duration::from_millis(200);
/// A quarter of a round-trip time.
const STEP: u64 = 50;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn spare(copies: u32) -> Scheme {
    scheme(copies, DEFAULT_SPREAD).expect("in range")
}

/// Creates a connection over a path of this round-trip time.
fn over(scheme: Scheme, smoothed_rtt: Duration) -> Recovery<()> {
    let mut r = Recovery::<()>::new(scheme, None, Timestamp::ZERO);
    r.decided(at(1), PathState { smoothed_rtt, packet: 1_200, ..PathState::default() });
    r
}

/// Loses and retransmits a unit at this time.
fn lost(r: &mut Recovery<()>, ms: u64) -> UnitKey {
    let key = r.opened(at(ms), at(ms) - RTT, 1_000);
    r.copy_sent(at(ms), key, CopyKind::Retransmission);
    key
}

/// Returns the times at which replicas leave, with an opportunity every millisecond.
fn leaving(r: &mut Recovery<()>, chance: SendOpportunity, from: u64, to: u64) -> Vec<u64> {
    let mut sent = Vec::new();
    for ms in from..to {
        while let Some(key) = r.next_replica(at(ms), &chance) {
            r.copy_sent(at(ms), key, CopyKind::Replica);
            sent.push(ms);
        }
    }
    sent
}

#[test]
fn replicas_wait_as_long_as_anything_else_does() {
    let mut r = over(spare(MAX_COPIES), RTT);
    lost(&mut r, 1_000);
    assert_eq!(leaving(&mut r, ON, 1_000, 4_000), []);
    assert_eq!(leaving(&mut r, OFF, 4_000, 4_001).len(), 10, "all are overdue");
}

#[test]
fn when_idle_makes_any_schedule_wait() {
    use crate::autorec::{self, FixedLife};
    use crate::{art, fixed};
    let made: [fn() -> Scheme; 3] = [
        || fixed::or3_code(Reading::Extra),
        || art::with_schedule(fixed::odd(Reading::Extra), Spread::RoundTrip, 5),
        || autorec::fixed(FixedLife::new(3).expect("in range")),
    ];
    for make in made {
        let mut plain = over(make(), RTT);
        lost(&mut plain, 1_000);
        assert_eq!(leaving(&mut plain, ON, 1_000, 4_000).len(), 3, "without `when_idle`");
        let scheme = make().when_idle();
        assert_eq!((scheme.name, scheme.excess), (make().name, make().excess));
        let mut idle = over(scheme, RTT);
        lost(&mut idle, 1_000);
        assert_eq!(leaving(&mut idle, ON, 1_000, 4_000), []);
        assert_eq!(leaving(&mut idle, OFF, 4_000, 4_500).len(), 3);
    }
}

#[test]
fn copies_are_spaced_by_a_quarter_of_a_round_trip_and_at_least_20_ms() {
    for (rtt, step) in [(200, STEP), (400, 100), (80, 20), (10, 20)] {
        let mut r = over(spare(1), Duration::from_millis(rtt));
        lost(&mut r, 1_000);
        assert_eq!(r.next_timeout(), Some(at(1_000 + step)));
        assert_eq!(leaving(&mut r, OFF, 1_000, 4_000), [1_000 + step]);
        assert_eq!(r.next_timeout(), None);
    }
    let mut r = over(spare(3), RTT);
    lost(&mut r, 1_000);
    assert_eq!(leaving(&mut r, OFF, 1_000, 4_000), [1_050, 1_100, 1_150]);
}

#[test]
fn each_lost_round_gets_the_same_number_of_copies() {
    let mut r = over(spare(2), RTT);
    let key = lost(&mut r, 1_000);
    assert_eq!(leaving(&mut r, OFF, 1_000, 1_060), [1_050]);
    r.copy_lost(at(1_060), key, CopyKind::Retransmission);
    // The second copy has not left, so it is not outstanding and does not prolong the round.
    assert!(r.copy_lost(at(1_061), key, CopyKind::Replica));
    assert_eq!(leaving(&mut r, OFF, 1_062, 1_900), [], "the round is over");
    r.copy_sent(at(1_900), key, CopyKind::Retransmission);
    assert_eq!(leaving(&mut r, OFF, 1_900, 2_100), [1_950, 2_000]);
    r.finish(at(2_100), key, None);
    assert_eq!((r.next_timeout(), r.is_empty()), (None, true));
}

#[test]
fn an_acknowledgement_cancels_a_waiting_copy() {
    let mut r = over(spare(1), RTT);
    let (one, other) = (lost(&mut r, 1_000), lost(&mut r, 1_010));
    r.finish(at(1_040), one, None);
    assert_eq!(r.next_timeout(), Some(at(1_060)));
    assert_eq!(r.next_replica(at(1_070), &OFF), Some(other));
}

#[test]
fn without_copies_it_is_plain_retransmission_and_more_than_ten_are_rejected() {
    assert!(scheme(MAX_COPIES + 1, DEFAULT_SPREAD).is_err());
    for (copies, sent) in [(0, 0), (1, 1), (10, 10)] {
        let mut r = over(spare(copies), RTT);
        lost(&mut r, 1_000);
        assert_eq!(leaving(&mut r, OFF, 1_000, 9_000).len(), sent, "{copies}");
    }
}
