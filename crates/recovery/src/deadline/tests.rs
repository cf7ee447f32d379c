//! Tests of the scheme: which units get copies, when copies leave, and answers to their loss.

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

/// Builds a connection that has sent two packets every 4 ms.
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

/// Opens a unit that was first sent `age` ms before 50 s, and retransmits it at 50 s.
fn retransmitted(r: &mut Recovery<()>, age: u64) -> UnitKey {
    let key = r.opened(at(50_000), at(50_000 - age), 1_000);
    r.copy_sent(at(50_000), key, CopyKind::Retransmission);
    key
}

/// Returns the delays in ms after 50 s at which replicas leave, with an opportunity every
/// millisecond.
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
fn copies_leave_after_the_outage_and_before_the_deadline() {
    let mut r = outages();
    retransmitted(&mut r, 250);
    let copies = leaving(&mut r);
    assert!(!copies.is_empty());
    assert!(copies.iter().all(|ms| (20..150).contains(ms)), "{copies:?}");
}

#[test]
fn copies_leave_at_once_under_independent_loss() {
    let mut r = connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0);
    retransmitted(&mut r, 250);
    assert_eq!(leaving(&mut r).first(), Some(&0));
}

#[test]
fn units_with_time_for_retransmissions_get_no_copies() {
    let mut r = outages();
    let scheme = scheme(Options { patience: Duration::from_secs(3), ..Options::default() });
    r.set_scheme(scheme.expect("in range"));
    retransmitted(&mut r, 250);
    assert_eq!(leaving(&mut r), []);
}

#[test]
fn late_units_still_get_copies() {
    let mut r = outages();
    retransmitted(&mut r, 450);
    assert!(!leaving(&mut r).is_empty());
}

#[test]
fn a_deadline_replaces_patience() {
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
        let mut copies = CopyPlanner::new(Options::default());
        copies.on_retransmitted(at(50_000), key, &unit(deadline), 3, &r.view(at(50_000)));
        (copies.last.slack, copies.last.plan)
    };
    let copies = |deadline| planned(deadline).1.times().len();
    assert!(copies(None) > 0);
    assert!(copies(Some(at(50_100))) > 0);
    assert_eq!(copies(Some(at(52_000))), 0, "time for retransmissions");
    assert!(copies(Some(at(49_000))) > 0, "late data delays the data after it");
    // A reported deadline is less uncertain than an assumed one at the same time.
    let (guessed, said) = (planned(None), planned(Some(at(50_100) + TUNING.decode_margin)));
    assert_eq!(guessed.0, said.0);
    assert_ne!(guessed.1, said.1);
}

#[test]
fn unknown_players_are_assumed_to_be_more_patient_on_paths_with_heavy_loss() {
    let hypotheses = |of_1000: u64, deadline: Option<u64>| -> Vec<(f64, f64)> {
        let lost = (of_1000 << 32) / 1_000;
        let mut r = connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 < lost);
        let mark = deadline.map(|ms| Mark {
            media_time: Some(Duration::ZERO),
            deadline: Some(at(ms)),
            catching_up: None,
        });
        let data = Overdue { first_sent: at(49_750), mark };
        let mut copies = CopyPlanner::new(Options::default());
        let model = copies.model(at(50_000), &r.view(at(50_000)));
        let hypotheses = copies.hypotheses(at(50_000), &data, RTT, &model);
        hypotheses.map(|is| (is.slack.left, is.price.as_secs_f64() * 1e3)).collect()
    };
    // 250 of 350 ms have passed, and a copy takes half a round trip and a margin.
    assert_eq!(hypotheses(40, None), [(0.01, 2.0)]);
    for (of_1000, extra_patience, price) in [(100, 0.25, 11.3), (200, 0.75, 362.0)] {
        let [(patient, cheap), (impatient, raised_price)] = hypotheses(of_1000, None)[..] else {
            panic!("two")
        };
        assert!((patient - 0.01 - extra_patience).abs() < 0.03, "{of_1000}: {patient}");
        assert_eq!((cheap, impatient), (2.0, 0.01));
        assert!((raised_price / price - 1.0).abs() < 0.25, "{of_1000}: {raised_price}");
        assert_eq!(hypotheses(of_1000, Some(50_000)).len(), 1, "the deadline is known");
    }
    assert_eq!(hypotheses(900, None)[1].1, MAX_PRICE.as_secs_f64() * 1e3);
    let patience = MAX_PATIENCE + Duration::from_nanos(1);
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
fn answers_get_no_copies_while_others_are_in_flight() {
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
    // After the last copy is lost, a new round starts.
    for _ in 0..copies {
        r.copy_lost(at(50_200), key, CopyKind::Replica);
    }
    assert!(answer(&mut r) > 0);
}

#[test]
fn explain_reports_the_last_decision() {
    let mut r = outages();
    retransmitted(&mut r, 250);
    let mut said = Vec::new();
    r.explain(&mut |name, value| said.push((name, value)));
    let of = |name: &str| said.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    // 250 of 350 ms have passed, and a copy takes half a round trip and a margin.
    assert_eq!(of("slack_ms"), Some(10.0), "{said:?}");
    assert!(of("late_ms") < of("late_without_copies_ms"), "{said:?}");
    assert_eq!((of("copies_planned"), of("had_time")), (Some(1.0), Some(0.0)));
    assert_eq!(of("level"), Some(1.0));
    assert!(of("first_copy_after_ms").is_some_and(|ms| ms >= 20.0), "{said:?}");
}

/// Retransmits a unit at 50 s and returns the value that `explain` reports under `name`.
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
fn explain_counts_the_reasons_for_no_copies() {
    let with = |options| {
        let mut r = outages();
        r.set_scheme(scheme(options).expect("in range"));
        r
    };
    let seconds = Duration::from_secs(3);
    let patient = with(Options { patience: seconds, ..Options::default() });
    assert_eq!(said(patient, 250, "had_time"), Some(1.0));
    // No copy saves nearly all of the lateness.
    let late = said(outages(), 250, "late_without_copies_ms").expect("said");
    let raised_price =
        with(Options { price: Duration::from_secs_f64(late * 0.98e-3), ..Options::default() });
    assert_eq!(said(raised_price, 250, "copies_too_dear"), Some(1.0));
    let lossy = || connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0);
    assert_eq!(said(lossy(), 250, "copies_too_dear"), Some(1.0), "it did not have time");
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
fn the_source_of_loss_probabilities_is_configurable() {
    let of = |correlation| {
        let mut r = outages();
        r.set_scheme(scheme(Options { correlation, ..Options::default() }).expect("in range"));
        said(r, 160, "lost_again_percent").expect("said")
    };
    // 160 ms after an outage of 20 ms, and after a loss with the prior of calls.
    assert!(of(CorrelationSource::Measured) < 8.0, "{}", of(CorrelationSource::Measured));
    assert!(
        (15.0..25.0).contains(&of(CorrelationSource::Prior)),
        "{}",
        of(CorrelationSource::Prior)
    );
    assert!(
        of(CorrelationSource::Independent) < of(CorrelationSource::Measured) + 1.0,
        "{}",
        of(CorrelationSource::Independent)
    );
}

fn packet(unit: Option<UnitKey>) -> Packet {
    Packet { number: 7, sent: at(49_900), bytes: 1_200, copy: None, unit }
}

#[test]
fn heavy_loss_limits_copies_to_patient_players_or_those_worth_the_raised_price() {
    // At 25 % loss patience is a second longer, and a copy for 350 ms must save a second.
    let copies = |age: u64, price: u64| {
        let mut r = connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0);
        let options = Options { price: Duration::from_millis(price), ..Options::default() };
        r.set_scheme(scheme(options).expect("in range"));
        retransmitted(&mut r, age);
        (leaving(&mut r).len(), value(&r, "slack_ms").expect("said"))
    };
    let (none, of_impatient) = copies(250, 2);
    assert_eq!(none, 0, "1.35 s leave time, and no copy for 350 ms is worth a second");
    assert!((of_impatient - 10.0).abs() < 1.0, "{of_impatient}");
    let (some, of_patient) = copies(1_250, 2);
    assert!(
        some > 0 && (-50.0..100.0).contains(&of_patient),
        "late for nearly all players: {some}, {of_patient}"
    );
    assert!(copies(250, 0).0 > 0, "a price of 0 is not raised");
}

/// Reports a packet sent at 49.9 s as overdue at 50 s.
fn overdue(r: &mut Recovery<()>) -> Option<UnitKey> {
    r.overdue(at(50_000), &packet(None), [1_200], &mut ())
}

/// Writes the replica that is due at 50 s, if any.
fn write_replica(r: &mut Recovery<()>, at_chance: &SendOpportunity) -> Option<UnitKey> {
    let key = r.next_replica(at(50_000), at_chance)?;
    r.copy(at(50_000), key, CopyKind::Replica, &(), |_| Fit::Whole);
    r.sent(at(50_000), 1_250, Some(CopyKind::Replica));
    Some(key)
}

#[test]
fn a_copy_of_overdue_data_becomes_the_retransmission_when_its_packet_is_lost() {
    let mut r = outages();
    assert!(r.takes_overdue());
    let key = overdue(&mut r).expect("the outage is over");
    assert_eq!(r.next_waiting(), None, "the loss is not known yet");
    assert_eq!(write_replica(&mut r, &OFF), Some(key));
    assert_eq!(write_replica(&mut r, &OFF), None, "one copy per unit");
    let loss = r.lost(at(50_050), &packet(Some(key)), [1_200], &mut ());
    assert_eq!((loss.opened, loss.signals, r.len()), (None, true, 1));
    assert_eq!(r.next_waiting(), None, "the copy is in flight");
    // The packet's overhead still counts against the guard.
    assert_eq!(r.statistics().totals.replica_bytes, 50);
    // If that copy is lost as well, an ordinary round follows.
    assert!(r.copy_lost(at(50_200), key, CopyKind::Replica));
    assert_eq!(r.next_waiting(), Some(key));
}

#[test]
fn overdue_data_waits_for_idle_time_until_its_packet_is_lost() {
    let mut r = outages();
    let key = overdue(&mut r).expect("the outage is over");
    let busy = SendOpportunity { off_mode: false };
    assert_eq!(write_replica(&mut r, &busy), None);
    assert!(r.opportunity(at(50_000), false, false).off_mode, "overdue data is not waiting");
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
fn overdue_data_precedes_new_data_if_most_of_it_was_lost() {
    let leaves = |lost: u32, arrived: u32| {
        let mut r = outages();
        let key = overdue(&mut r).expect("the outage is over");
        (0..lost).for_each(|_| r.count_loss(at(50_000), &packet(None)));
        (0..arrived).for_each(|_| r.acked(at(50_000), &packet(None), Acked::InTime, &()));
        r.next_replica(at(50_000), &SendOpportunity { off_mode: false }) == Some(key)
    };
    assert!(!leaves(60, 0), "too few packets");
    assert!(leaves(70, 0) && leaves(200, 20));
    assert!(!leaves(200, 40), "acknowledgements are lost too");
}

#[test]
fn an_unneeded_copy_of_overdue_data_counts_against_the_guard() {
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
    // The content bytes of a lost packet's copy are refunded once.
    let key = overdue(&mut r).expect("wanted");
    write_replica(&mut r, &OFF);
    for _ in 0..2 {
        r.lost(at(50_050), &packet(Some(key)), [1_200], &mut ());
    }
    assert_eq!(before - budget(&r), 1_250 + 50);
    let totals = &r.statistics().totals;
    assert_eq!((totals.replicas, totals.retransmissions), (1, 1));
    r.finish(at(50_060), key, None);
    // Without a copy sent there is nothing to refund.
    let key = overdue(&mut r).expect("wanted");
    r.lost(at(50_070), &packet(Some(key)), [1_200], &mut ());
    assert_eq!(before - budget(&r), 1_250 + 50);
    r.finish(at(50_070), key, None);
    // A peer that never confirms a loss gets no more than the guard's budget.
    for _ in 0..1_000 {
        overdue(&mut r);
    }
    let more = core::iter::from_fn(|| write_replica(&mut r, &OFF)).take(1_000).count();
    assert!((20..40).contains(&more), "{more}");
}

#[test]
fn overdue_data_gets_no_copy_during_an_outage() {
    // Outages of 0.5 s every 5 s, with two packets every 4 ms.
    let mut r = connection(|n| n % 2_500 < 250);
    assert_eq!(overdue(&mut r), None);
    let options = Options { overdue: false, ..Options::default() };
    assert!(!scheme(options).expect("in range").overdue);
}

#[test]
fn overdue_data_gets_a_copy_only_if_a_retransmission_would_be_late() {
    let leaves = |patience| {
        let mut r = outages();
        r.set_scheme(scheme(Options { patience, ..Options::default() }).expect("in range"));
        overdue(&mut r).is_some()
    };
    assert!(leaves(Duration::from_millis(200)));
    assert!(!leaves(Duration::from_secs(1)));
}

#[test]
fn overdue_data_of_impatient_players_gets_copies_worth_the_raised_price() {
    // At 10 % loss, a retransmission would be in time for patient players and late for half of the
    // others.
    let leaves = |patient_above, price| {
        let mut r = connection(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 < (1 << 32) / 10);
        let price = Duration::from_millis(price);
        let options = Options { patient_above, price, ..Options::default() };
        r.set_scheme(scheme(options).expect("in range"));
        overdue(&mut r).is_some()
    };
    assert!(leaves(0.01, 2), "saves more than 45 ms");
    assert!(!leaves(0.01, 10), "saves less than 226 ms");
    assert!(leaves(1.0, 10));
}

#[test]
fn overdue_data_gets_no_copies_where_only_acknowledgements_are_lost() {
    let mut r = outages();
    for number in 10..210 {
        let packet = Packet { number, ..packet(None) };
        let unit = r.overdue(at(50_000), &packet, [1_200], &mut ());
        r.acked(at(50_010), &Packet { unit, ..packet }, Acked::InTime, &());
    }
    // Each packet takes 1/128 off the estimate, which falls from 1/2 below 1/3.
    assert_eq!(value(&r, "overdue_wanted"), Some(52.0));
    assert!(value(&r, "overdue_lost_percent").is_some_and(|percent| percent < 15.0));
}

#[test]
fn a_full_queue_allows_no_copies() {
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
    assert!(copies(20, 20) > 0, "a key frame's queue");
    assert!(copies(30, 100) > 0, "the queue was much longer without loss");
    assert_eq!(copies(60, 100), 0);
    let long = RTT + ms(60);
    let path = PathState { latest_rtt: long, peak_rtt: long, trough_rtt: long, ..PATH };
    assert!(copies_on(path) > 0, "the path has become longer");
}
