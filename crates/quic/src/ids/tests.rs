use super::*;
use crate::crypto::KeyRing;

const PLAIN: CidPlain = CidPlain { server: 7, core: 1, slot: 42, sequence: 0, nonce: 99 };

fn keys() -> KeyRing {
    KeyRing::new(&[7; 32], &[(0, [9; 32])])
}

fn remote(sequence: u64) -> RemoteId {
    let id = ConnectionId::new(&(sequence + 1).to_be_bytes()).expect("eight bytes");
    RemoteId { sequence, id, reset_token: Some([sequence as u8; 16]) }
}

fn remote_ids() -> RemoteIds {
    RemoteIds::new(remote(0).id)
}

#[test]
fn ids_are_issued_up_to_what_the_peer_stores() {
    for (limit, expected) in [(2, 1), (3, 2), (100, 2)] {
        let mut ids = LocalIds::new(PLAIN);
        ids.issue(limit);
        let mut sent = Vec::new();
        while let Some(sequence) = ids.next_due() {
            sent.push(sequence);
            ids.sent();
        }
        assert_eq!(sent.len(), expected, "limit {limit}");
        assert!(!ids.is_due());
    }
}

#[test]
fn only_ids_in_force_are_accepted() {
    let keys = keys();
    let cipher = keys.cids();
    let mut ids = LocalIds::new(PLAIN);
    ids.issue(3);
    for sequence in 0..3 {
        let id = ids.get(sequence, cipher);
        let bytes = id.as_slice().try_into().expect("one block");
        assert_eq!(ids.accept(&cipher.decode(bytes)), Some(sequence));
    }
    assert_eq!(ids.accept(&CidPlain { sequence: 3, ..PLAIN }), None);
    assert_eq!(ids.accept(&CidPlain { nonce: 98, ..PLAIN }), None);
    ids.on_retire(0, 1, 3).expect("allowed");
    assert_eq!(ids.accept(&PLAIN), None);
    assert_eq!(ids.accept(&CidPlain { sequence: 3, ..PLAIN }), Some(3), "a new one took its place");
}

#[test]
fn retiring_what_was_never_issued_or_is_in_use_is_a_violation() {
    let mut ids = LocalIds::new(PLAIN);
    ids.issue(3);
    assert_eq!(ids.on_retire(3, 0, 3).map_err(|e| e.code), Err(Code::PROTOCOL_VIOLATION));
    assert_eq!(ids.on_retire(1, 1, 3).map_err(|e| e.code), Err(Code::PROTOCOL_VIOLATION));
    ids.on_retire(1, 0, 3).expect("allowed");
    ids.on_retire(1, 0, 3).expect("a repetition is no error");
}

#[test]
fn a_peer_that_keeps_its_oldest_id_gets_a_bounded_number_of_others() {
    let mut ids = LocalIds::new(PLAIN);
    ids.issue(3);
    let mut retired = 0;
    for sequence in 1..1_000 {
        if ids.on_retire(sequence, 0, 3).is_err() {
            break;
        }
        retired = sequence;
    }
    assert!((20..256).contains(&retired), "{retired}");
    assert_eq!(ids.accept(&PLAIN), Some(0), "the one in use stays");
    // Once it lets go of the oldest, it is served as before.
    ids.on_retire(0, retired, 3).expect("allowed");
    assert!(ids.is_due());
}

#[test]
fn a_lost_frame_is_sent_again_only_while_its_id_is_in_force() {
    let mut ids = LocalIds::new(PLAIN);
    ids.issue(3);
    while ids.next_due().is_some() {
        ids.sent();
    }
    ids.on_lost(1);
    assert_eq!(ids.next_due(), Some(1));
    ids.on_retire(1, 0, 3).expect("allowed");
    assert_ne!(ids.next_due(), Some(1));
}

#[test]
fn the_peers_ids_are_stored_up_to_the_limit_that_it_was_told() {
    let mut ids = remote_ids();
    for sequence in 1..REMOTE_LIMIT as u64 {
        ids.on_new(remote(sequence), 0).expect("within the limit");
        ids.on_new(remote(sequence), 0).expect("a repetition is no error");
    }
    let error = ids.on_new(remote(REMOTE_LIMIT as u64), 0).expect_err("one too many");
    assert_eq!(error.code, Code::CONNECTION_ID_LIMIT_ERROR);
}

#[test]
fn an_id_given_twice_differently_is_a_violation() {
    let mut ids = remote_ids();
    ids.on_new(remote(1), 0).expect("new");
    let other = RemoteId { sequence: 1, ..remote(2) };
    assert_eq!(ids.on_new(other, 0).map_err(|e| e.code), Err(Code::PROTOCOL_VIOLATION));
    let same_id = RemoteId { sequence: 5, ..remote(1) };
    assert_eq!(ids.on_new(same_id, 0).map_err(|e| e.code), Err(Code::PROTOCOL_VIOLATION));
}

#[test]
fn retire_prior_to_moves_on_and_retires_each_once() {
    let mut ids = remote_ids();
    ids.on_new(remote(1), 0).expect("new");
    ids.on_new(remote(2), 2).expect("new");
    assert_eq!(ids.active.sequence, 2);
    let mut retired = Vec::new();
    while let Some(sequence) = ids.next_due() {
        retired.push(sequence);
        ids.sent();
    }
    retired.sort_unstable();
    assert_eq!(retired, [0, 1]);
    // RFC 9000, section 19.15: a late frame with a retired number is retired at once.
    ids.on_new(RemoteId { sequence: 1, ..remote(1) }, 2).expect("late");
    assert_eq!((ids.active.sequence, ids.next_due()), (2, Some(1)));
}

#[test]
fn unacknowledged_retirements_have_a_limit() {
    let mut ids = remote_ids();
    let mut last = Ok(());
    let mut count = 0;
    for sequence in 1..100 {
        last = ids.on_new(remote(sequence), sequence);
        if last.is_err() {
            break;
        }
        count += 1;
        while ids.next_due().is_some() {
            ids.sent();
        }
    }
    assert_eq!(last.map_err(|e| e.code), Err(Code::CONNECTION_ID_LIMIT_ERROR));
    assert_eq!(count, MAX_RETIRING);
    // With acknowledgements there is none.
    let mut ids = remote_ids();
    for sequence in 1..100 {
        ids.on_new(remote(sequence), sequence).expect("acknowledged in time");
        while ids.next_due().is_some() {
            ids.sent();
            ids.on_acked();
        }
    }
}

#[test]
fn a_reset_is_known_by_the_token_of_the_id_in_use() {
    let mut ids = remote_ids();
    ids.on_new(remote(1), 0).expect("new");
    assert!(!ids.is_reset(&[1; 16]), "the first ID has no token, and the second is not in use");
    assert_eq!(ids.rotate(), Ok(true));
    assert!(ids.is_reset(&[1; 16]) && !ids.is_reset(&[2; 16]));
    assert_eq!(ids.rotate(), Ok(false), "there is no other");
}

#[test]
fn an_id_that_is_given_again_after_its_retirement_is_not_taken() {
    let id = |n: u8| ConnectionId::new(&[n; 8]).expect("an ID");
    let given = |n: u8| RemoteId { sequence: n.into(), id: id(n), reset_token: Some([n; 16]) };
    let mut ids = RemoteIds::new(id(0));
    ids.on_new(given(1), 0).expect("room");
    ids.on_new(given(2), 0).expect("room");
    assert_eq!((ids.rotate(), ids.rotate()), (Ok(true), Ok(true)));
    // A late copy of the frame: 1 is retired, and brings nothing new.
    ids.on_new(given(1), 0).expect("nothing to object to");
    for n in 3..=5 {
        ids.on_new(given(n), 0).expect("room");
    }
    assert!(ids.on_new(given(6), 0).is_err());
}

#[test]
fn sequence_numbers_with_gaps_have_a_bound() {
    let mut ids = RemoteIds::new(ConnectionId::new(&[0; 8]).expect("an ID"));
    let refused = (1..1_000u64).find(|&n| {
        let id = ConnectionId::new(&n.to_be_bytes()).expect("an ID");
        let result = ids.on_new(RemoteId { sequence: 2 * n, id, reset_token: Some([1; 16]) }, 0);
        // As if the client acknowledged at once that its IDs are retired.
        while ids.next_due().is_some() {
            ids.sent();
            ids.on_acked();
        }
        result.is_err() || ids.rotate().is_err()
    });
    assert!(refused.is_some_and(|n| n <= 40), "{refused:?}");
}
