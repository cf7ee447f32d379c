//! What leaves when: never in the way of anything else, not at the moment of the retransmission, and
//! so many a round.

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

/// A connection over a path of this round-trip time.
fn spare(copies: u32) -> Scheme {
    scheme(copies, APART).expect("in range")
}

fn over(scheme: Scheme, smoothed_rtt: Duration) -> Recovery<()> {
    let mut r = Recovery::<()>::new(scheme, None, Timestamp::ZERO);
    r.decided(at(1), PathState { smoothed_rtt, packet: 1_200, ..PathState::default() });
    r
}

/// A unit that was detected and retransmitted at this time.
fn lost(r: &mut Recovery<()>, ms: u64) -> UnitKey {
    let key = r.opened(at(ms), at(ms) - RTT, 1_000);
    r.copy_sent(at(ms), key, CopyKind::Retransmission);
    key
}

/// Replicas that leave between two times if there is a chance every millisecond, and when.
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
fn no_replica_leaves_while_anything_else_waits_however_long_that_lasts() {
    let mut r = over(spare(MAX_COPIES), RTT);
    lost(&mut r, 1_000);
    assert_eq!(leaving(&mut r, ON, 1_000, 4_000), []);
    assert_eq!(leaving(&mut r, OFF, 4_000, 4_001).len(), 10, "all were due long ago");
}

#[test]
fn any_schedule_becomes_one_that_waits_until_nothing_else_does() {
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
        assert_eq!(leaving(&mut plain, ON, 1_000, 4_000).len(), 3, "it would");
        let scheme = make().when_idle();
        assert_eq!((scheme.name, scheme.opportunism), (make().name, make().opportunism));
        let mut idle = over(scheme, RTT);
        lost(&mut idle, 1_000);
        assert_eq!(leaving(&mut idle, ON, 1_000, 4_000), []);
        assert_eq!(leaving(&mut idle, OFF, 4_000, 4_500).len(), 3);
    }
}

#[test]
fn a_copy_leaves_a_quarter_of_a_round_trip_after_the_retransmission_and_20_ms_at_least() {
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
fn each_lost_round_gets_as_many_copies_again_and_none_that_is_over() {
    let mut r = over(spare(2), RTT);
    let key = lost(&mut r, 1_000);
    assert_eq!(leaving(&mut r, OFF, 1_000, 1_060), [1_050]);
    r.copy_lost(at(1_060), key, CopyKind::Retransmission);
    // The second copy of the round has not left: what is outstanding decides when the round is lost.
    assert!(r.copy_lost(at(1_061), key, CopyKind::Replica));
    assert_eq!(leaving(&mut r, OFF, 1_062, 1_900), [], "the round is over");
    r.copy_sent(at(1_900), key, CopyKind::Retransmission);
    assert_eq!(leaving(&mut r, OFF, 1_900, 2_100), [1_950, 2_000]);
    r.finish(at(2_100), key, None);
    assert_eq!((r.next_timeout(), r.is_empty()), (None, true));
}

#[test]
fn an_acknowledgement_cancels_a_copy_that_waits() {
    let mut r = over(spare(1), RTT);
    let (one, other) = (lost(&mut r, 1_000), lost(&mut r, 1_010));
    r.finish(at(1_040), one, None);
    assert_eq!(r.next_timeout(), Some(at(1_060)));
    assert_eq!(r.next_replica(at(1_070), &OFF), Some(other));
}

#[test]
fn without_copies_it_is_plain_retransmission_and_more_than_ten_are_refused() {
    assert!(scheme(MAX_COPIES + 1, APART).is_err());
    for (copies, sent) in [(0, 0), (1, 1), (10, 10)] {
        let mut r = over(spare(copies), RTT);
        lost(&mut r, 1_000);
        assert_eq!(leaving(&mut r, OFF, 1_000, 9_000).len(), sent, "{copies}");
    }
}
