use super::*;
use crate::{Arq, Fit, RedundancyAdapter, ReplicaScheduler, SendOpportunity, Written, deadline};
use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use units::{Mark, Rate};

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn arq() -> Recovery<()> {
    Recovery::<()>::new(Arq::scheme(), None, Timestamp::ZERO)
}

/// The arrival of a retransmission sent at this time.
fn copy(ms: u64) -> Option<UnitArrival> {
    arrival(at(ms), CopyKind::Retransmission)
}

#[test]
fn a_lost_round_starts_the_next_round() {
    let mut r = arq();
    let key = r.opened(at(100), at(40), 1_200);
    assert_eq!(r.next_waiting(), Some(key));
    r.copy_sent(at(100), key, CopyKind::Retransmission);
    assert_eq!(r.next_waiting(), None);
    assert!(r.copy_lost(at(200), key, CopyKind::Retransmission));
    assert_eq!(r.next_waiting(), Some(key));
    assert_eq!(r.unit(key).map(|u| u.round), Some(2));
    r.copy_sent(at(200), key, CopyKind::Retransmission);
    assert_eq!(r.statistics().totals.repeated, 1);
    r.finish(at(260), key, None);
    assert!(r.is_empty());
    assert!(r.unit(key).is_none());
}

#[test]
fn the_oldest_data_is_retransmitted_first_after_any_number_of_losses() {
    let mut r = arq();
    let [old, next] = [40, 41].map(|sent| r.opened(at(100), at(sent), 1_200));
    for key in [old, next] {
        r.copy_sent(at(100), key, CopyKind::Retransmission);
    }
    assert_eq!(r.next_waiting(), None);
    // After an outage all is lost, and the loss of later data is detected first.
    let new = r.opened(at(200), at(140), 1_200);
    for key in [next, old] {
        assert!(r.copy_lost(at(200), key, CopyKind::Retransmission));
    }
    for key in [old, next, new] {
        assert_eq!(r.next_waiting(), Some(key));
        r.copy_sent(at(200), key, CopyKind::Retransmission);
    }
    assert_eq!(r.next_waiting(), None);
}

#[test]
fn recovery_latency_covers_only_data_whose_retransmission_was_lost() {
    let mut r = arq();
    let once = r.opened(at(100), at(40), 1_200);
    r.copy_sent(at(100), once, CopyKind::Retransmission);
    r.finish(at(160), once, copy(100));
    let spurious = r.opened(at(200), at(140), 1_200);
    r.copy_sent(at(200), spurious, CopyKind::Retransmission);
    r.finish(at(210), spurious, Some(UnitArrival { sent: at(140), copy: None }));
    r.counted();
    assert_eq!(r.statistics().losses.latencies.count(), 0);
    let times = r.statistics().losses.unit_times;
    assert_eq!(
        (times.count, times.mean()),
        (1, Some(Duration::from_millis(60))),
        "without spurious losses"
    );
    let twice = r.opened(at(300), at(240), 1_200);
    r.copy_sent(at(300), twice, CopyKind::Retransmission);
    r.copy_lost(at(390), twice, CopyKind::Retransmission);
    r.copy_sent(at(391), twice, CopyKind::Retransmission);
    r.finish(at(450), twice, copy(391));
    r.counted();
    assert_eq!(r.statistics().losses.latencies.max(), Some(Duration::from_millis(91)));
    assert_eq!(r.statistics().losses.latencies.count(), 1);
}

#[test]
fn a_round_is_lost_only_with_its_last_outstanding_copy() {
    let mut r = arq();
    let key = r.opened(at(0), at(0), 10);
    r.copy_sent(at(0), key, CopyKind::Retransmission);
    r.copy_sent(at(1), key, CopyKind::Replica);
    assert!(!r.copy_lost(at(2), key, CopyKind::Retransmission));
    assert_eq!(r.next_waiting(), None);
    assert!(r.copy_lost(at(3), key, CopyKind::Replica));
    assert_eq!(r.next_waiting(), Some(key));
}

#[test]
fn keys_of_finished_units_are_invalid_even_if_the_slot_is_reused() {
    let mut r = arq();
    let old = r.opened(at(0), at(0), 10);
    r.finish(at(1), old, None);
    let new = r.opened(at(2), at(0), 20);
    assert_eq!(old.index(), new.index());
    assert!(r.unit(old).is_none());
    r.copy_sent(at(3), old, CopyKind::Probe);
    assert!(!r.copy_lost(at(3), old, CopyKind::Probe));
    r.finish(at(3), old, None);
    assert_eq!(r.len(), 1);
    assert_eq!(r.unit(new).map(|u| u.bytes), Some(20));
}

#[test]
fn a_split_unit_inherits_round_and_waiting() {
    let mut r = arq();
    let a = r.opened(at(0), at(0), 1_000);
    let b = r.split(a, 400).expect("the unit is unfinished");
    assert_eq!(r.unit(a).map(|u| u.bytes), Some(600));
    assert_eq!(r.unit(b).map(|u| u.bytes), Some(400));
    assert_eq!(r.next_waiting(), Some(a));
    r.copy_sent(at(0), a, CopyKind::Retransmission);
    assert_eq!(r.next_waiting(), Some(b));
}

#[test]
fn a_copy_that_carried_a_part_makes_the_unit_wait_for_the_rest() {
    let mut r = arq();
    let key = r.opened(at(0), at(0), 1_000);
    r.copy_sent(at(0), key, CopyKind::Retransmission);
    r.copy_sent(at(1), key, CopyKind::Probe);
    r.partly_acked(key);
    assert_eq!(r.next_waiting(), None);
    r.partly_acked(key);
    assert_eq!(r.next_waiting(), Some(key));
    assert_eq!(r.unit(key).map(|u| u.round), Some(1));
}

#[test]
fn the_oldest_unit_is_the_unfinished_one_detected_first() {
    let mut r = arq();
    let keys: Vec<_> = (0..4).map(|i| r.opened(at(i), at(0), 1)).collect();
    r.finish(at(9), keys[1], None);
    assert_eq!(r.oldest(), Some(keys[0]));
    r.finish(at(9), keys[0], None);
    assert_eq!(r.oldest(), Some(keys[2]));
    r.abandon(at(9), keys[2]);
    r.counted();
    assert_eq!(r.oldest(), Some(keys[3]));
    assert_eq!((r.statistics().totals.finished, r.statistics().totals.abandoned), (2, 1));
}

/// Records all calls, and wants one replica in off-mode.
#[derive(Debug, Default, Clone)]
struct Spy(Rc<RefCell<Vec<String>>>);

impl RedundancyAdapter for Spy {
    fn on_event(&mut self, event: &RecoveryEvent) {
        let name = match event {
            RecoveryEvent::Opened { .. } => "opened",
            RecoveryEvent::CopySent { .. } => "sent",
            RecoveryEvent::CopySettled { acked, .. } => {
                if *acked {
                    "arrived"
                } else {
                    "lost"
                }
            }
            RecoveryEvent::CopySuperseded { .. } => "superseded",
            RecoveryEvent::RoundLost { .. } => "round lost",
            RecoveryEvent::Finished { .. } => "finished",
            RecoveryEvent::Abandoned { .. } => "abandoned",
        };
        self.0.borrow_mut().push(name.into());
    }
    fn on_interval(&mut self, metrics: &IntervalMetrics, _: &View<'_>) {
        self.0.borrow_mut().push(format!("interval {}/{}", metrics.lost, metrics.acked));
    }
    fn level(&mut self, _: UnitKey, round: u32, _: &View<'_>) -> u32 {
        7 + round
    }
    fn on_new_path(&mut self) {
        self.0.borrow_mut().push("new path".into());
    }
    fn ceiling(&self) -> u32 {
        3
    }
    fn explain(&self, _: &mut dyn FnMut(&'static str, f64)) {}
}

impl ReplicaScheduler for Spy {
    fn on_interval(&mut self, _: &IntervalMetrics, ceiling: u32) {
        self.0.borrow_mut().push(format!("ceiling {ceiling}"));
    }
    fn on_replica_sent(&mut self, _: Timestamp, _: UnitKey, _: &LostUnit) {
        self.0.borrow_mut().push("replica".into());
    }
    fn on_retransmitted(
        &mut self,
        _: Timestamp,
        _: UnitKey,
        unit: &LostUnit,
        level: u32,
        _: &View<'_>,
    ) {
        self.0.borrow_mut().push(format!("round {} level {level}", unit.round));
    }
    fn on_finished(&mut self, _: UnitKey) {
        self.0.borrow_mut().push("over".into());
    }
    fn poll(&mut self, _: Timestamp, at: &SendOpportunity, t: &UnitTable) -> Option<UnitKey> {
        if at.off_mode { t.oldest() } else { None }
    }
    fn next_timeout(&self) -> Option<Timestamp> {
        Some(at(77))
    }
}

#[test]
fn the_scheme_receives_every_event_and_decides_on_level_and_replica() {
    let spy = Spy::default();
    let scheme = Scheme {
        adapter: Box::new(spy.clone()),
        scheduler: Box::new(spy.clone()),
        ..Arq::scheme()
    };
    let mut r = Recovery::<()>::new(scheme, None, Timestamp::ZERO);
    assert_eq!(r.next_timeout(), None);
    let key = r.opened(at(1), at(0), 1);
    assert_eq!(r.next_timeout(), Some(at(77)));
    r.copy_sent(at(1), key, CopyKind::Retransmission);
    assert_eq!(r.next_replica(at(2), &SendOpportunity { off_mode: false }), None);
    assert_eq!(r.next_replica(at(2), &SendOpportunity { off_mode: true }), Some(key));
    r.copy_sent(at(2), key, CopyKind::Replica);
    r.packet_lost(at(3), 7, at(1));
    assert!(!r.copy_lost(at(3), key, CopyKind::Retransmission));
    assert!(r.copy_lost(at(3), key, CopyKind::Replica));
    r.packet_acked(at(4), at(1), 1_200, true, Acked::AfterLoss);
    r.finish(at(4), key, None);
    // A copy is still counted after a sibling finished the unit.
    r.copy_acked(at(5), key, CopyKind::Replica, at(2));
    let path = PathState { smoothed_rtt: Duration::from_millis(10), ..PathState::default() };
    assert!(!r.decided(at(49), path));
    assert!(r.decided(at(50), path));
    let expected = [
        "opened",
        "round 1 level 8",
        "sent",
        "replica",
        "sent",
        "lost",
        "lost",
        "over",
        "round lost",
        "over",
        "finished",
        "arrived",
        "interval 0/1",
        "ceiling 3",
    ];
    assert_eq!(*spy.0.borrow(), expected);
    let totals = r.statistics().totals;
    assert_eq!((totals.replicas, totals.replicas_acked, totals.replicas_lost), (1, 1, 1));
}

#[test]
fn a_split_packet_finishes_with_its_last_part_and_counts_its_maximum_rounds() {
    let mut r = arq();
    let a = r.opened(at(0), at(0), 1_000);
    let b = r.split(a, 400).expect("unfinished");
    let c = r.split(b, 100).expect("unfinished");
    for key in [a, b, c] {
        r.copy_sent(at(1), key, CopyKind::Retransmission);
    }
    assert!(r.copy_lost(at(50), b, CopyKind::Retransmission));
    r.copy_sent(at(51), b, CopyKind::Retransmission);
    r.finish(at(52), a, copy(1));
    r.finish(at(52), c, copy(1));
    r.counted();
    assert_eq!(r.statistics().totals.finished, 0);
    r.finish(at(99), b, copy(51));
    r.counted();
    let totals = r.statistics().totals;
    assert_eq!((totals.finished, totals.finished_late), (1, 1));
    assert_eq!((totals.rounds, totals.rounds_max, totals.copies), (2, 2, 2));
    // The next split packet reuses the slot.
    let d = r.opened(at(200), at(150), 10);
    let e = r.split(d, 5).expect("unfinished");
    r.abandon(at(201), d);
    r.finish(at(202), e, None);
    r.counted();
    assert_eq!((r.statistics().totals.finished, r.statistics().totals.abandoned), (2, 1));
}

#[test]
fn the_earliest_sent_copy_in_an_acknowledgement_ends_recovery() {
    let mut r = arq();
    let key = r.opened(at(100), at(40), 1_200);
    r.copy_sent(at(100), key, CopyKind::Retransmission);
    r.copy_sent(at(110), key, CopyKind::Replica);
    r.copy_sent(at(120), key, CopyKind::Replica);
    // The newest copy is reported first.
    let replica = |ms| arrival(at(ms), CopyKind::Replica);
    r.copy_acked(at(180), key, CopyKind::Replica, at(120));
    r.finish(at(180), key, replica(120));
    r.copy_acked(at(180), key, CopyKind::Replica, at(110));
    r.counted();
    assert_eq!(r.statistics().losses.latencies.max(), Some(Duration::from_millis(10)));
    assert_eq!(
        (
            r.statistics().totals.rounds,
            r.statistics().totals.copies,
            r.statistics().totals.rounds_max
        ),
        (1, 3, 1)
    );
    // In off-mode a replica is sent together with the retransmission; the one that arrived counts.
    for (arrives, count) in [(CopyKind::Replica, 2), (CopyKind::Retransmission, 2)] {
        let key = r.opened(at(200), at(140), 1_200);
        r.copy_sent(at(200), key, CopyKind::Retransmission);
        r.copy_sent(at(200), key, CopyKind::Replica);
        r.finish(at(260), key, replica(200));
        r.copy_acked(at(260), key, arrives, at(200));
        r.counted();
        assert_eq!(r.statistics().losses.latencies.count(), count, "{arrives:?}");
    }
    assert_eq!(
        r.statistics().losses.latencies.sum(),
        Duration::from_millis(10),
        "only the first has one"
    );
}

#[test]
fn losses_of_copies_signal_congestion_by_scheme_or_under_heavy_loss() {
    use LossSignal::{Every, WhollyLost, WhollyLostUnlessHeavy};
    let original = |number| Packet { number, sent: at(0), bytes: 1_200, copy: None, unit: None };
    for (signal, each_signals, heavy_signals) in
        [(WhollyLostUnlessHeavy, false, true), (WhollyLost, false, false), (Every, true, true)]
    {
        let scheme = Scheme { signal, ..Arq::scheme() };
        let mut r = Recovery::<()>::new(scheme, None, Timestamp::ZERO);
        (0..20).for_each(|n| r.acked(at(n), &original(n), Acked::InTime, &()));
        let loss = r.lost(at(50), &original(20), [1_000], &mut ());
        assert!(loss.signals && loss.round_lost.is_none());
        let key = loss.opened.expect("all of it is missing");
        let copies = [CopyKind::Retransmission, CopyKind::Replica, CopyKind::Replica];
        copies.iter().for_each(|&kind| r.copy_sent(at(50), key, kind));
        let copy = |kind| Packet { copy: Some(kind), unit: Some(key), ..original(30) };
        let lose = |r: &mut Recovery<()>, ms, kind| r.lost(at(ms), &copy(kind), [], &mut ());
        assert_eq!(lose(&mut r, 60, copies[0]).signals, each_signals);
        (40..45).for_each(|n| assert!(r.lost(at(60), &original(n), [], &mut ()).signals));
        assert_eq!(lose(&mut r, 61, copies[1]).signals, heavy_signals, "7 of 27 is heavy");
        r.acked(at(3_000), &original(50), Acked::InTime, &());
        r.copy_sent(at(3_000), key, CopyKind::Replica);
        assert_eq!(lose(&mut r, 3_001, copies[2]).signals, each_signals, "no longer heavy");
        let last = lose(&mut r, 3_002, copies[2]);
        assert!(last.signals && last.round_lost == Some(key), "the last of its round");
    }
}

/// Bytes 0 to 99 of a stream, each acknowledged or not.
#[derive(Default)]
struct Data {
    acked: Vec<u32>,
    is_reset: bool,
    /// Rate of the stream while the viewer catches up.
    catching_up: Option<Rate>,
    detached: Vec<core::ops::RangeInclusive<u32>>,
}

impl Content for Data {
    type Piece = (u32, u32);

    fn len((first, last): &(u32, u32)) -> u32 {
        last - first + 1
    }

    fn missing(&self, &(first, last): &(u32, u32), out: &mut Vec<(u32, u32)>) {
        for byte in (first..=last).filter(|byte| !self.acked.contains(byte) && !self.is_reset) {
            match out.last_mut() {
                Some((_, end)) if *end + 1 == byte => *end = byte,
                _ => out.push((byte, byte)),
            }
        }
    }

    fn is_abandoned(&self, _: &(u32, u32)) -> bool {
        self.is_reset
    }

    fn mark(&self, (first, _): &(u32, u32)) -> Option<Mark> {
        Some(Mark {
            media_time: Some(Duration::from_secs(u64::from(*first))),
            deadline: None,
            catching_up: self.catching_up,
        })
    }

    fn detach(&mut self, &(first, last): &(u32, u32)) {
        self.detached.push(first..=last);
    }
}

const LOST: Packet = Packet { number: 1, sent: at(40), bytes: 1_200, copy: None, unit: None };

/// Loses a packet that carried all data.
fn lose_all(r: &mut Recovery<Data>, data: &mut Data) -> UnitKey {
    r.lost(at(100), &LOST, [(0, 99)], data).opened.expect("something is missing")
}

fn written(
    r: &mut Recovery<Data>,
    key: UnitKey,
    data: &Data,
    room: u32,
) -> (Written, Vec<(u32, u32)>) {
    let (mut all, mut room) = (Vec::new(), room);
    let result = r.copy(at(101), key, CopyKind::Retransmission, data, |&(first, last)| {
        let len = last - first + 1;
        if room == 0 {
            return Fit::None;
        }
        let fits = room.min(len);
        room -= fits;
        all.push((first, first + fits - 1));
        if fits == len {
            Fit::Whole
        } else {
            Fit::Part((first, first + fits - 1), (first + fits, last))
        }
    });
    (result, all)
}

#[test]
fn replicas_precede_waiting_data_while_a_viewer_catches_up_on_a_wide_path() {
    let (stream, waiting) = (Rate::from_mbps(4), SendOpportunity { off_mode: false });
    for (catching_up, kbps, leaves) in
        [(Some(stream), 6_000, true), (Some(stream), 5_999, false), (None, 100_000, false)]
    {
        let scheme = crate::fixed::or3_code(crate::fixed::Reading::Extra).when_idle();
        let (mut r, mut data) = (Recovery::new(scheme, None, at(0)), Data::default());
        let delivery_rate = Rate::from_kbps(kbps);
        let path = PathState { delivery_rate, packet: 1_200, ..PathState::default() };
        r.ack_done(at(1), path, |_, _| {});
        data.catching_up = catching_up;
        let key = lose_all(&mut r, &mut data);
        written(&mut r, key, &data, 100);
        assert_eq!(r.next_replica(at(102), &waiting), leaves.then_some(key), "{kbps}");
        assert_eq!(r.next_replica(at(102), &SendOpportunity { off_mode: true }), Some(key));
    }
}

#[test]
fn a_unit_covers_missing_data_and_ends_with_its_last_byte() {
    let (mut r, mut data) = (Recovery::new(Arq::scheme(), None, at(0)), Data::default());
    data.acked.extend(10..20);
    let key = lose_all(&mut r, &mut data);
    let unit = r.unit(key).expect("unfinished");
    assert_eq!(
        (unit.bytes, unit.mark.and_then(|mark| mark.media_time)),
        (90, Some(Duration::ZERO))
    );
    data.acked.extend(0..10);
    assert_eq!(written(&mut r, key, &data, 100), (Written::Copy, vec![(20, 99)]));
    // The packet arrives late, after a part of it arrived otherwise.
    let late = Packet { unit: Some(key), ..LOST };
    data.acked.extend(20..98);
    r.acked(at(110), &late, Acked::AfterLoss, &data);
    assert_eq!(r.len(), 1);
    let copy = Packet { copy: Some(CopyKind::Retransmission), sent: at(101), ..late };
    data.acked.extend(98..100);
    r.acked(at(160), &copy, Acked::InTime, &data);
    let mut seen = Vec::new();
    r.ack_done(at(160), PathState::default(), |when, unit| seen.push((when, unit.copies)));
    assert_eq!((r.len(), seen), (0, vec![(at(160), 1)]));
    assert_eq!(written(&mut r, key, &data, 100).0, Written::Over);
    assert!(r.lost(at(170), &LOST, [(0, 99)], &mut data).opened.is_none(), "nothing is missing");
}

#[test]
fn the_rest_of_a_retransmission_becomes_a_new_unit() {
    let (mut r, mut data) = (Recovery::new(Arq::scheme(), None, at(0)), Data::default());
    let key = lose_all(&mut r, &mut data);
    assert_eq!(written(&mut r, key, &data, 0), (Written::NoRoom, vec![]));
    assert_eq!(written(&mut r, key, &data, 60), (Written::Copy, vec![(0, 59)]));
    let rest = r.next_waiting().expect("the rest");
    assert_eq!((r.len(), r.unit(rest).map(|unit| unit.bytes)), (2, Some(40)));
    assert_eq!(written(&mut r, rest, &data, 100), (Written::Copy, vec![(60, 99)]));
}

#[test]
fn data_is_detached_once_when_its_second_round_begins() {
    let (mut r, mut data) = (Recovery::new(Arq::scheme(), None, at(0)), Data::default());
    let key = lose_all(&mut r, &mut data);
    for round in 1..4 {
        assert_eq!(written(&mut r, key, &data, 100).0, Written::Copy, "round {round}");
        let copy = Packet { copy: Some(CopyKind::Retransmission), unit: Some(key), ..LOST };
        assert_eq!(r.lost(at(200), &copy, [], &mut data).round_lost, Some(key));
    }
    assert_eq!(data.detached, [0..=99]);
}

#[test]
fn a_unit_whose_stream_was_reset_is_abandoned() {
    let (mut r, mut data) = (Recovery::new(Arq::scheme(), None, at(0)), Data::default());
    let key = lose_all(&mut r, &mut data);
    data.is_reset = true;
    assert_eq!(written(&mut r, key, &data, 100).0, Written::Over);
    let totals = &r.statistics().totals;
    assert_eq!((r.len(), totals.abandoned, totals.finished), (0, 1, 0));
}

#[test]
fn an_interval_measures_its_own_packets() {
    let mut r = arq();
    let path = PathState { smoothed_rtt: Duration::from_millis(10), ..PathState::default() };
    let spy = Spy::default();
    r.set_scheme(Scheme { adapter: Box::new(spy.clone()), ..Arq::scheme() });
    (0..19).for_each(|n| r.packet_acked(at(n), at(n), 100, false, Acked::InTime));
    r.packet_lost(at(19), 19, at(0));
    assert!(r.decided(at(60), path));
    assert!(r.decided(at(120), path));
    // Measurements of another path are discarded.
    r.packet_lost(at(121), 20, at(60));
    r.on_new_path(at(122));
    assert!(r.decided(at(180), path));
    let expected = ["interval 1/19", "interval 0/0", "new path", "interval 0/0"];
    assert_eq!(*spy.0.borrow(), expected);
}

#[test]
fn units_abandoned_during_an_acknowledgement_are_not_counted_as_finished() {
    let mut r = arq();
    let a = r.opened(at(0), at(0), 1_000);
    r.split(a, 400).expect("the unit is unfinished");
    r.finish(at(1), a, copy(0));
    r.close();
    r.counted();
    assert_eq!((r.statistics().totals.finished, r.is_empty()), (0, true));
}

#[test]
fn packets_of_the_old_path_do_not_count_for_the_new_one() {
    let mut r = arq();
    r.set_scheme(deadline::scheme(deadline::Options::default()).expect("in range"));
    let packet =
        |number, sent| Packet { number, sent: at(sent), bytes: 1_200, copy: None, unit: None };
    r.overdue(at(5_000), &packet(999, 4_500), [1_200], &mut ());
    r.acked(at(5_000), &packet(998, 4_500), Acked::InTime, &());
    r.on_new_path(at(5_000));
    for number in 0..1_000 {
        if number % 2 == 0 {
            r.lost(at(5_050), &packet(number, 4_000), [1_200], &mut ());
        } else {
            r.acked(at(5_050), &packet(number, 4_000), Acked::InTime, &());
        }
    }
    let _ = r.ack_done(at(5_050), PathState::default(), |_, _| {});
    let view = r.view(at(20_000));
    let correlation = view.correlation.expect("asked for");
    assert_eq!((view.loss_rate, correlation.episodes(), view.overdue_lost), (0.0, 0, 0.5));
    // Packets sent on the new path count.
    for number in 1_000..2_000 {
        r.lost(at(6_000), &packet(number, 5_000 + number), [1_200], &mut ());
    }
    let _ = r.ack_done(at(6_000), PathState::default(), |_, _| {});
    let view = r.view(at(20_000));
    assert!(
        (view.loss_rate - 1.0).abs() < 1e-9 && view.correlation.is_some_and(|c| c.episodes() > 0)
    );
}
