//! Who gets copies, when they leave, and that the loss of each is answered.

use super::*;
use crate::{Acked, CopyKind, Fit, Guard, Packet, PathState, Recovery};
use units::{Mark, Rate};

const OFF: SendOpportunity = SendOpportunity { off_mode: true };
const RTT: Duration = Duration::from_millis(160);
const PATH: PathState = PathState {
    smoothed_rtt: RTT,
    min_rtt: RTT,
    latest_rtt: RTT,
    peak_rtt: RTT,
    trough_rtt: RTT,
    pacing_rate: None,
    delivery_rate: Rate::ZERO,
    window: 0,
    in_flight: 0,
    packet: 1_200,
};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// A connection with two packets each 4 ms.
fn connection(mut is_lost: impl FnMut(u64) -> bool) -> Recovery<()> {
    let scheme = scheme(Options::default()).expect("in range");
    let mut r = Recovery::<()>::new(scheme, Some(Guard::new(0.2, None)), Timestamp::ZERO);
    for number in 0..20_000 {
        let sent = at(number / 2 * 4);
        if is_lost(number) {
            r.packet_lost(sent + RTT, number, sent);
        } else {
            r.packet_acked(sent + RTT, sent, 1_200, false, Acked::InTime);
        }
        let _ = r.ack_done(sent + RTT, PATH, |_, _| {});
    }
    r
}

fn outages() -> Recovery<()> {
    let mut is_lost = super::outages();
    connection(|_| is_lost())
}

/// A unit that is retransmitted at 50 s and was first sent so long before.
fn retransmitted(r: &mut Recovery<()>, age: u64) -> UnitKey {
    let key = r.opened(at(50_000), at(50_000 - age), 1_000);
    r.copy_sent(at(50_000), key, CopyKind::Retransmission);
    key
}

/// How long after 50 s replicas leave, if there is a chance each millisecond.
fn leaving(r: &mut Recovery<()>) -> Vec<u64> {
    let mut sent = Vec::new();
    for ms in 0..2_000 {
        while let Some(key) = r.next_replica(at(50_000 + ms), &OFF) {
            r.copy_sent(at(50_000 + ms), key, CopyKind::Replica);
            sent.push(ms);
        }
    }
    sent
}

#[test]
fn copies_leave_behind_the_outage_and_before_the_deadline() {
    let mut r = outages();
    retransmitted(&mut r, 250);
    let copies = leaving(&mut r);
    assert!(!copies.is_empty());
    assert!(copies.iter().all(|ms| (20..150).contains(ms)), "{copies:?}");
}

#[test]
fn independent_losses_are_met_at_once() {
    let mut r = connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0);
    retransmitted(&mut r, 250);
    assert_eq!(leaving(&mut r).first(), Some(&0));
}

#[test]
fn who_has_time_for_retransmissions_gets_no_copies() {
    let mut r = outages();
    let scheme = scheme(Options { patience: Duration::from_secs(3), ..Options::default() });
    r.set_scheme(scheme.expect("in range"));
    retransmitted(&mut r, 250);
    assert_eq!(leaving(&mut r), []);
}

#[test]
fn what_is_late_already_is_waited_for() {
    let mut r = outages();
    retransmitted(&mut r, 450);
    assert!(!leaving(&mut r).is_empty());
}

#[test]
fn what_the_application_says_takes_the_place_of_patience() {
    let unit = |deadline| {
        LostUnit::new(
            at(49_750),
            at(50_000),
            1_000,
            Some(Mark { media_time: Some(Duration::ZERO), deadline, catching_up: None }),
        )
    };
    let planned = |deadline| {
        let mut r = outages();
        let key = r.opened(at(50_000), at(49_750), 1_000);
        let mut copies = Copies::new(Options::default());
        copies.on_retransmitted(at(50_000), key, &unit(deadline), 3, &r.view(at(50_000)));
        (copies.told.slack, copies.told.plan)
    };
    let copies = |deadline| planned(deadline).1.times().len();
    assert!(copies(None) > 0);
    assert!(copies(Some(at(50_100))) > 0);
    assert_eq!(copies(Some(at(52_000))), 0, "it has seconds");
    assert!(copies(Some(at(49_000))) > 0, "others wait behind it");
    // At the same time what a player says is surer than what is guessed.
    let (guessed, said) = (planned(None), planned(Some(at(50_100) + MARGIN)));
    assert_eq!(guessed.0, said.0);
    assert_ne!(guessed.1, said.1);
}

#[test]
fn on_a_path_that_loses_much_most_players_are_supposed_to_keep_more() {
    let supposed = |of_1000: u64, deadline: Option<u64>| -> Vec<(f64, f64)> {
        let lost = (of_1000 << 32) / 1_000;
        let mut r = connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 < lost);
        let mark = deadline.map(|ms| Mark {
            media_time: Some(Duration::ZERO),
            deadline: Some(at(ms)),
            catching_up: None,
        });
        let data = Overdue { first_sent: at(49_750), mark };
        let mut copies = Copies::new(Options::default());
        let known = copies.known(at(50_000), &r.view(at(50_000)));
        let supposed = copies.supposed(at(50_000), &data, RTT, &known);
        supposed.map(|is| (is.slack.left, is.price.as_secs_f64() * 1e3)).collect()
    };
    // Of 350 ms 250 are over, and half a round trip and a little are under way.
    assert_eq!(supposed(40, None), [(0.01, 2.0)]);
    for (of_1000, longer, price) in [(100, 0.25, 11.3), (200, 0.75, 362.0)] {
        let [(most, cheap), (few, dear)] = supposed(of_1000, None)[..] else { panic!("two") };
        assert!((most - 0.01 - longer).abs() < 0.03, "{of_1000}: {most}");
        assert_eq!((cheap, few), (2.0, 0.01));
        assert!((dear / price - 1.0).abs() < 0.25, "{of_1000}: {dear}");
        assert_eq!(supposed(of_1000, Some(50_000)).len(), 1, "it is known");
    }
    assert_eq!(supposed(900, None)[1].1, DEAREST.as_secs_f64() * 1e3);
    let patience = MOST_PATIENT + Duration::from_nanos(1);
    assert!(Options { patience, ..Options::default() }.checked().is_err());
    for patient_above in [0.0, 1.1, f64::NAN] {
        assert!(Options { patient_above, ..Options::default() }.checked().is_err());
    }
}

#[test]
fn the_loss_of_each_copy_is_answered() {
    let mut r = outages();
    let key = retransmitted(&mut r, 250);
    let copies = leaving(&mut r).len() as u32;
    assert!(copies > 0);
    assert_eq!(r.next_waiting(), None);
    assert!(r.copy_lost(at(50_200), key, CopyKind::Retransmission), "others are in flight");
    assert_eq!(r.next_waiting(), Some(key));
    r.copy_sent(at(50_200), key, CopyKind::Retransmission);
    assert_eq!(r.unit(key).map(|unit| (unit.round, unit.outstanding)), Some((2, copies + 1)));
}

#[test]
fn answers_do_not_bring_copies_of_their_own_while_others_are_in_flight() {
    let mut r = outages();
    let key = retransmitted(&mut r, 250);
    let copies = leaving(&mut r).len();
    assert!(copies > 0);
    let answer = |r: &mut Recovery<()>| {
        r.copy_lost(at(50_200), key, CopyKind::Retransmission);
        assert_eq!(r.next_waiting(), Some(key));
        r.copy_sent(at(50_200), key, CopyKind::Retransmission);
        leaving(r).len()
    };
    assert_eq!(answer(&mut r), 0);
    // Once all are lost it begins anew.
    for _ in 0..copies {
        r.copy_lost(at(50_200), key, CopyKind::Replica);
    }
    assert!(answer(&mut r) > 0);
}

#[test]
fn it_says_why() {
    let mut r = outages();
    retransmitted(&mut r, 250);
    let mut said = Vec::new();
    r.explain(&mut |name, value| said.push((name, value)));
    let of = |name: &str| said.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    // Of 350 ms 250 are over, and half a round trip and a little are under way.
    assert_eq!(of("slack_ms"), Some(10.0), "{said:?}");
    assert!(of("late_ms") < of("late_without_copies_ms"), "{said:?}");
    assert_eq!((of("copies_planned"), of("had_time")), (Some(1.0), Some(0.0)));
    assert_eq!(of("level"), Some(1.0));
    assert!(of("first_copy_after_ms").is_some_and(|ms| ms >= 20.0), "{said:?}");
}

/// What is said of one name when a unit was retransmitted at 50 s.
fn said(mut r: Recovery<()>, age: u64, name: &str) -> Option<f64> {
    retransmitted(&mut r, age);
    overdue(&mut r);
    value(&r, name)
}

fn value(r: &Recovery<()>, name: &str) -> Option<f64> {
    let mut value = None;
    r.explain(&mut |known, is| value = (known == name).then_some(is).or(value));
    value
}

#[test]
fn it_counts_what_it_declines() {
    let with = |options| {
        let mut r = outages();
        r.set_scheme(scheme(options).expect("in range"));
        r
    };
    let seconds = Duration::from_secs(3);
    let patient = with(Options { patience: seconds, ..Options::default() });
    assert_eq!(said(patient, 250, "had_time"), Some(1.0));
    // No copy takes nearly all of it off.
    let late = said(outages(), 250, "late_without_copies_ms").expect("said");
    let dear =
        with(Options { price: Duration::from_secs_f64(late * 0.98e-3), ..Options::default() });
    assert_eq!(said(dear, 250, "copies_too_dear"), Some(1.0));
    let lossy = || connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0);
    assert_eq!(said(lossy(), 250, "copies_too_dear"), Some(1.0), "not that it had time");
    assert_eq!(said(outages(), 250, "overdue_wanted"), Some(1.0));
    let full = || {
        let mut r = outages();
        let long = RTT + Duration::from_millis(60);
        let path = PathState { latest_rtt: long, peak_rtt: long, ..PATH };
        let _ = r.ack_done(at(45_000), path, |_, _| {});
        r
    };
    assert_eq!(said(full(), 250, "queue_was_full"), Some(1.0));
    assert_eq!(said(full(), 250, "overdue_declined"), Some(1.0));
}

#[test]
fn what_says_how_losses_come_together_can_be_chosen() {
    let of = |together| {
        let mut r = outages();
        r.set_scheme(scheme(Options { together, ..Options::default() }).expect("in range"));
        said(r, 160, "lost_again_percent").expect("said")
    };
    // 160 ms behind an outage of 20 ms, and behind a call's loss.
    assert!(of(Together::Measured) < 8.0, "{}", of(Together::Measured));
    assert!((15.0..25.0).contains(&of(Together::Expected)), "{}", of(Together::Expected));
    assert!(of(Together::Nothing) < of(Together::Measured) + 1.0, "{}", of(Together::Nothing));
}

fn packet(unit: Option<UnitKey>) -> Packet {
    Packet { number: 7, sent: at(49_900), bytes: 1_200, copy: None, unit }
}

#[test]
fn on_a_path_that_loses_much_copies_are_for_those_who_keep_more_or_are_worth_their_price() {
    // A quarter is lost: data is of use for a second longer, and a copy for those with 350 ms has to bring a second.
    let copies = |age: u64, price: u64| {
        let mut r = connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0);
        let options = Options { price: Duration::from_millis(price), ..Options::default() };
        r.set_scheme(scheme(options).expect("in range"));
        retransmitted(&mut r, age);
        (leaving(&mut r).len(), value(&r, "slack_ms").expect("said"))
    };
    let (none, of_few) = copies(250, 2);
    assert_eq!(none, 0, "who keeps 1.35 s has time, and for others none is worth a second");
    assert!((of_few - 10.0).abs() < 1.0, "{of_few}");
    let (some, of_most) = copies(1_250, 2);
    assert!(
        some > 0 && (-50.0..100.0).contains(&of_most),
        "late for nearly all: {some}, {of_most}"
    );
    assert!(copies(250, 0).0 > 0, "what costs nothing gets no dearer");
}

/// What becomes of a packet that is overdue after 100 ms.
fn overdue(r: &mut Recovery<()>) -> Option<UnitKey> {
    r.overdue(at(50_000), &packet(None), [1_200], &mut ())
}

/// Writes the replica that is due at 50 s, if there is one.
fn write_replica(r: &mut Recovery<()>, at_chance: &SendOpportunity) -> Option<UnitKey> {
    let key = r.next_replica(at(50_000), at_chance)?;
    r.copy(at(50_000), key, CopyKind::Replica, &(), |_| Fit::Whole);
    r.sent(at(50_000), 1_250, Some(CopyKind::Replica));
    Some(key)
}

#[test]
fn a_copy_of_overdue_data_is_the_retransmission_if_its_packet_is_then_lost() {
    let mut r = outages();
    assert!(r.takes_overdue());
    let key = overdue(&mut r).expect("the outage is over by now");
    assert_eq!(r.next_waiting(), None, "nobody knows that it is lost");
    assert_eq!(write_replica(&mut r, &OFF), Some(key));
    assert_eq!(write_replica(&mut r, &OFF), None, "each unit once");
    let loss = r.lost(at(50_050), &packet(Some(key)), [1_200], &mut ());
    assert_eq!((loss.opened, loss.signals, r.len()), (None, true, 1));
    assert_eq!(r.next_waiting(), None, "the copy is in flight");
    // The overhead of the packet stays the guard's.
    assert_eq!(r.statistics().totals.replica_bytes, 50);
    // If that copy is lost too, the next round is an ordinary one.
    assert!(r.copy_lost(at(50_200), key, CopyKind::Replica));
    assert_eq!(r.next_waiting(), Some(key));
}

#[test]
fn overdue_data_waits_for_idle_time_until_its_packet_is_lost() {
    let mut r = outages();
    let key = overdue(&mut r).expect("the outage is over by now");
    let busy = SendOpportunity { off_mode: false };
    assert_eq!(write_replica(&mut r, &busy), None);
    assert!(r.opportunity(at(50_000), false, false).off_mode, "it is nothing that waits");
    r.lost(at(50_010), &packet(Some(key)), [1_200], &mut ());
    assert_eq!((r.next_waiting(), write_replica(&mut r, &OFF)), (Some(key), None));
    r.copy_sent(at(50_010), key, CopyKind::Retransmission);
    assert_eq!(r.statistics().totals.retransmissions, 1);
    // An acknowledgement ends the wait.
    let key = overdue(&mut r).expect("wanted");
    r.finish(at(50_020), key, None);
    assert_eq!(write_replica(&mut r, &OFF), None);
}

#[test]
fn overdue_data_leaves_ahead_of_new_data_if_most_of_it_was_lost() {
    let leaves = |lost: u32, arrived: u32| {
        let mut r = outages();
        let key = overdue(&mut r).expect("the outage is over by now");
        (0..lost).for_each(|_| r.count_loss(at(50_000), &packet(None)));
        (0..arrived).for_each(|_| r.acked(at(50_000), &packet(None), Acked::InTime, &()));
        r.next_replica(at(50_000), &SendOpportunity { off_mode: false }) == Some(key)
    };
    assert!(!leaves(60, 0), "too few packets");
    assert!(leaves(70, 0) && leaves(200, 20));
    assert!(!leaves(200, 40), "acknowledgements are lost too");
}

#[test]
fn a_copy_of_overdue_data_that_arrives_too_is_at_the_guards_expense() {
    let mut r = outages();
    let budget = |r: &Recovery<()>| r.guard().expect("given").budget();
    let key = overdue(&mut r).expect("wanted");
    assert_eq!(r.next_replica(at(50_000), &OFF), Some(key));
    let before = budget(&r);
    write_replica(&mut r, &OFF);
    r.acked(at(50_010), &packet(Some(key)), Acked::InTime, &());
    let totals = &r.statistics().totals;
    assert_eq!((before - budget(&r), totals.replicas, totals.replica_bytes), (1_250, 1, 1_250));
    r.finish(at(50_010), key, None);
    // The content of a lost packet's copy is given back, once.
    let key = overdue(&mut r).expect("wanted");
    write_replica(&mut r, &OFF);
    for _ in 0..2 {
        r.lost(at(50_050), &packet(Some(key)), [1_200], &mut ());
    }
    assert_eq!(before - budget(&r), 1_250 + 50);
    let totals = &r.statistics().totals;
    assert_eq!((totals.replicas, totals.retransmissions), (1, 1));
    r.finish(at(50_060), key, None);
    // A unit whose copy has not left has nothing to give back.
    let key = overdue(&mut r).expect("wanted");
    r.lost(at(50_070), &packet(Some(key)), [1_200], &mut ());
    assert_eq!(before - budget(&r), 1_250 + 50);
    r.finish(at(50_070), key, None);
    // A peer that never confirms a loss gets no more than the guard has.
    for _ in 0..1_000 {
        overdue(&mut r);
    }
    let more = core::iter::from_fn(|| write_replica(&mut r, &OFF)).take(1_000).count();
    assert!((20..40).contains(&more), "{more}");
}

#[test]
fn what_is_overdue_in_a_bad_time_that_lasts_waits_for_its_end() {
    // Half a second of each five, with a packet each 2 ms.
    let mut r = connection(|n| n % 2_500 < 250);
    assert_eq!(overdue(&mut r), None);
    let options = Options { overdue: false, ..Options::default() };
    assert!(!scheme(options).expect("in range").overdue);
}

#[test]
fn what_is_overdue_leaves_again_only_if_it_would_be_late_otherwise() {
    let leaves = |patience| {
        let mut r = outages();
        r.set_scheme(scheme(Options { patience, ..Options::default() }).expect("in range"));
        overdue(&mut r).is_some()
    };
    assert!(leaves(Duration::from_millis(200)));
    assert!(!leaves(Duration::from_secs(1)));
}

#[test]
fn what_is_overdue_leaves_again_for_those_who_keep_little_if_that_is_worth_their_price() {
    // A tenth is lost. A round later it would be in time for who keeps half a second more, and late for half of the others.
    let leaves = |patient_above, price| {
        let mut r = connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 < (1 << 32) / 10);
        let price = Duration::from_millis(price);
        let options = Options { patient_above, price, ..Options::default() };
        r.set_scheme(scheme(options).expect("in range"));
        overdue(&mut r).is_some()
    };
    assert!(leaves(0.01, 2), "worth 45 ms");
    assert!(!leaves(0.01, 10), "but not 226 ms");
    assert!(leaves(1.0, 10));
}

#[test]
fn where_acknowledgements_are_lost_and_not_data_nothing_leaves_again() {
    let mut r = outages();
    for number in 10..210 {
        let packet = Packet { number, ..packet(None) };
        let unit = r.overdue(at(50_000), &packet, [1_200], &mut ());
        r.acked(at(50_010), &Packet { unit, ..packet }, Acked::InTime, &());
    }
    // Each takes a 128th off what is expected, which falls from a half below a third.
    assert_eq!(value(&r, "overdue_wanted"), Some(52.0));
    assert!(value(&r, "overdue_lost_percent").is_some_and(|percent| percent < 15.0));
}

#[test]
fn where_the_queue_is_what_loses_packets_there_are_no_copies() {
    let ms = Duration::from_millis;
    let copies_on = |path| {
        let mut r = outages();
        let _ = r.ack_done(at(45_000), path, |_, _| {});
        retransmitted(&mut r, 250);
        leaving(&mut r).len()
    };
    let copies = |latest: u64, peak: u64| {
        let path = PathState { latest_rtt: RTT + ms(latest), peak_rtt: RTT + ms(peak), ..PATH };
        copies_on(path)
    };
    assert!(copies(0, 0) > 0);
    assert!(copies(20, 20) > 0, "a key frame");
    assert!(copies(30, 100) > 0, "others waited much longer, and were not lost");
    assert_eq!(copies(60, 100), 0);
    let long = RTT + ms(60);
    let path = PathState { latest_rtt: long, peak_rtt: long, trough_rtt: long, ..PATH };
    assert!(copies_on(path) > 0, "the path is longer, and the first round trip was of another");
}
