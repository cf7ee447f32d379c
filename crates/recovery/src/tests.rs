use super::*;
use std::cell::RefCell;
use std::rc::Rc;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn arq() -> Recovery {
    Recovery::new(Arq::scheme(), None, Timestamp::ZERO)
}

/// A retransmission of this time.
fn copy(ms: u64) -> Option<Arrival> {
    Some(Arrival { sent: at(ms), copy: Some(CopyKind::Retransmission) })
}

#[test]
fn a_lost_round_makes_the_unit_wait_again_with_the_next_round() {
    let mut r = arq();
    let key = r.open(at(100), at(40), 1_200);
    assert_eq!(r.next_waiting(), Some(key));
    r.on_copy_sent(at(100), key, CopyKind::Retransmission);
    assert_eq!(r.next_waiting(), None);
    assert!(r.on_copy_lost(at(200), key, CopyKind::Retransmission));
    assert_eq!(r.next_waiting(), Some(key));
    assert_eq!(r.unit(key).map(|u| u.round), Some(2));
    r.on_copy_sent(at(200), key, CopyKind::Retransmission);
    assert_eq!(r.totals().repeated, 1);
    r.on_finished(at(260), key, None);
    assert!(r.is_empty());
    assert!(r.unit(key).is_none());
}

#[test]
fn recovery_latency_is_that_of_data_whose_retransmission_was_lost() {
    let mut r = arq();
    let once = r.open(at(100), at(40), 1_200);
    r.on_copy_sent(at(100), once, CopyKind::Retransmission);
    r.on_finished(at(160), once, copy(100));
    let spurious = r.open(at(200), at(140), 1_200);
    r.on_copy_sent(at(200), spurious, CopyKind::Retransmission);
    r.on_finished(at(210), spurious, Some(Arrival { sent: at(140), copy: None }));
    r.on_ack_taken();
    assert_eq!(r.latencies().count(), 0);
    let times = r.unit_times();
    assert_eq!(
        (times.count, times.mean()),
        (1, Some(Duration::from_millis(60))),
        "no spurious ones"
    );
    let twice = r.open(at(300), at(240), 1_200);
    r.on_copy_sent(at(300), twice, CopyKind::Retransmission);
    r.on_copy_lost(at(390), twice, CopyKind::Retransmission);
    r.on_copy_sent(at(391), twice, CopyKind::Retransmission);
    r.on_finished(at(450), twice, copy(391));
    r.on_ack_taken();
    assert_eq!(r.latencies().max(), Some(Duration::from_millis(91)));
    assert_eq!(r.latencies().count(), 1);
}

#[test]
fn a_round_is_lost_only_with_its_last_outstanding_copy() {
    let mut r = arq();
    let key = r.open(at(0), at(0), 10);
    r.on_copy_sent(at(0), key, CopyKind::Retransmission);
    r.on_copy_sent(at(1), key, CopyKind::Replica);
    assert!(!r.on_copy_lost(at(2), key, CopyKind::Retransmission));
    assert_eq!(r.next_waiting(), None);
    assert!(r.on_copy_lost(at(3), key, CopyKind::Replica));
    assert_eq!(r.next_waiting(), Some(key));
}

#[test]
fn a_key_of_a_finished_unit_names_nothing_even_when_its_place_is_taken_again() {
    let mut r = arq();
    let old = r.open(at(0), at(0), 10);
    r.on_finished(at(1), old, None);
    let new = r.open(at(2), at(0), 20);
    assert_eq!(old.index(), new.index());
    assert!(r.unit(old).is_none());
    r.on_copy_sent(at(3), old, CopyKind::Probe);
    assert!(!r.on_copy_lost(at(3), old, CopyKind::Probe));
    r.on_finished(at(3), old, None);
    assert_eq!(r.len(), 1);
    assert_eq!(r.unit(new).map(|u| u.bytes), Some(20));
}

#[test]
fn a_split_inherits_round_and_waiting() {
    let mut r = arq();
    let a = r.open(at(0), at(0), 1_000);
    let b = r.split(a, 400).expect("the unit is unfinished");
    assert_eq!(r.unit(a).map(|u| u.bytes), Some(600));
    assert_eq!(r.unit(b).map(|u| u.bytes), Some(400));
    assert_eq!(r.next_waiting(), Some(a));
    r.on_copy_sent(at(0), a, CopyKind::Retransmission);
    assert_eq!(r.next_waiting(), Some(b));
}

#[test]
fn a_copy_that_carried_a_part_makes_the_unit_wait_for_the_rest() {
    let mut r = arq();
    let key = r.open(at(0), at(0), 1_000);
    r.on_copy_sent(at(0), key, CopyKind::Retransmission);
    r.on_copy_sent(at(1), key, CopyKind::Probe);
    r.on_partly_acked(key);
    assert_eq!(r.next_waiting(), None);
    r.on_partly_acked(key);
    assert_eq!(r.next_waiting(), Some(key));
    assert_eq!(r.unit(key).map(|u| u.round), Some(1));
}

#[test]
fn the_oldest_unit_is_the_one_detected_first_and_still_unfinished() {
    let mut r = arq();
    let keys: Vec<_> = (0..4).map(|i| r.open(at(i), at(0), 1)).collect();
    r.on_finished(at(9), keys[1], None);
    assert_eq!(r.oldest(), Some(keys[0]));
    r.on_finished(at(9), keys[0], None);
    assert_eq!(r.oldest(), Some(keys[2]));
    r.on_abandoned(at(9), keys[2]);
    r.on_ack_taken();
    assert_eq!(r.oldest(), Some(keys[3]));
    assert_eq!((r.totals().finished, r.totals().abandoned), (2, 1));
}

/// Notes what it is asked and wants one replica at once, to see that both traits are consulted.
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
fn the_scheme_is_told_of_every_step_and_asked_for_level_and_replica() {
    let spy = Spy::default();
    let scheme = Scheme {
        adapter: Box::new(spy.clone()),
        scheduler: Box::new(spy.clone()),
        ..Arq::scheme()
    };
    let mut r = Recovery::new(scheme, None, Timestamp::ZERO);
    assert_eq!(r.next_timeout(), None);
    let key = r.open(at(1), at(0), 1);
    assert_eq!(r.next_timeout(), Some(at(77)));
    r.on_copy_sent(at(1), key, CopyKind::Retransmission);
    assert_eq!(r.poll_replica(at(2), &SendOpportunity { off_mode: false }), None);
    assert_eq!(r.poll_replica(at(2), &SendOpportunity { off_mode: true }), Some(key));
    r.on_copy_sent(at(2), key, CopyKind::Replica);
    r.on_packet_lost(at(3), 7, at(1));
    assert!(!r.on_copy_lost(at(3), key, CopyKind::Retransmission));
    assert!(r.on_copy_lost(at(3), key, CopyKind::Replica));
    r.on_packet_acked(at(4), at(1), 1_200, true, true);
    r.on_finished(at(4), key, None);
    // A copy whose sibling finished the unit is still scored.
    r.on_copy_acked(at(5), key, CopyKind::Replica, at(2));
    let path = PathState { smoothed_rtt: Duration::from_millis(10), ..PathState::default() };
    assert!(!r.on_tick(at(49), path));
    assert!(r.on_tick(at(50), path));
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
    let totals = r.totals();
    assert_eq!((totals.replicas, totals.replicas_acked, totals.replicas_lost), (1, 1, 1));
}

#[test]
fn a_split_packet_is_finished_with_its_last_part_and_took_the_most_rounds_of_any() {
    let mut r = arq();
    let a = r.open(at(0), at(0), 1_000);
    let b = r.split(a, 400).expect("unfinished");
    let c = r.split(b, 100).expect("unfinished");
    for key in [a, b, c] {
        r.on_copy_sent(at(1), key, CopyKind::Retransmission);
    }
    assert!(r.on_copy_lost(at(50), b, CopyKind::Retransmission));
    r.on_copy_sent(at(51), b, CopyKind::Retransmission);
    r.on_finished(at(52), a, copy(1));
    r.on_finished(at(52), c, copy(1));
    r.on_ack_taken();
    assert_eq!(r.totals().finished, 0);
    r.on_finished(at(99), b, copy(51));
    r.on_ack_taken();
    let totals = r.totals();
    assert_eq!((totals.finished, totals.finished_late), (1, 1));
    assert_eq!((totals.rounds, totals.rounds_max, totals.copies), (2, 2, 2));
    // The next split packet takes its place.
    let d = r.open(at(200), at(150), 10);
    let e = r.split(d, 5).expect("unfinished");
    r.on_abandoned(at(201), d);
    r.on_finished(at(202), e, None);
    r.on_ack_taken();
    assert_eq!((r.totals().finished, r.totals().abandoned), (2, 1));
}

#[test]
fn of_several_copies_in_one_acknowledgement_the_earliest_sent_ended_recovery() {
    let mut r = arq();
    let key = r.open(at(100), at(40), 1_200);
    r.on_copy_sent(at(100), key, CopyKind::Retransmission);
    r.on_copy_sent(at(110), key, CopyKind::Replica);
    r.on_copy_sent(at(120), key, CopyKind::Replica);
    // The acknowledgement tells of the newest first.
    let replica = |ms| Some(Arrival { sent: at(ms), copy: Some(CopyKind::Replica) });
    r.on_copy_acked(at(180), key, CopyKind::Replica, at(120));
    r.on_finished(at(180), key, replica(120));
    r.on_copy_acked(at(180), key, CopyKind::Replica, at(110));
    r.on_ack_taken();
    assert_eq!(r.latencies().max(), Some(Duration::from_millis(10)));
    assert_eq!((r.totals().rounds, r.totals().copies, r.totals().rounds_max), (1, 3, 1));
    // In off-mode a replica leaves at the moment of the retransmission; what matters is which arrived.
    for (arrives, count) in [(CopyKind::Replica, 2), (CopyKind::Retransmission, 2)] {
        let key = r.open(at(200), at(140), 1_200);
        r.on_copy_sent(at(200), key, CopyKind::Retransmission);
        r.on_copy_sent(at(200), key, CopyKind::Replica);
        r.on_finished(at(260), key, replica(200));
        r.on_copy_acked(at(260), key, arrives, at(200));
        r.on_ack_taken();
        assert_eq!(r.latencies().count(), count, "{arrives:?}");
    }
    assert_eq!(r.latencies().sum(), Duration::from_millis(10), "none beyond the first");
}

#[test]
fn losses_of_copies_signal_congestion_as_the_scheme_has_it_unless_loss_is_heavy() {
    let art = Scheme { signal: LossSignal::WhollyLost, ..Arq::scheme() };
    let mut r = Recovery::new(art, None, Timestamp::ZERO);
    let replica = Some(CopyKind::Replica);
    assert!(r.signals(None, false), "an original");
    assert!(!r.signals(replica, false));
    assert!(r.signals(replica, true), "the last of its round");
    assert!(arq().signals(replica, false));
    for n in 0..8 {
        r.on_packet_acked(at(n), at(n), 1_200, false, false);
    }
    (0..5).for_each(|n| r.on_packet_lost(at(10), n, at(n)));
    assert!(r.signals(replica, false), "5 of 13");
    r.on_packet_acked(at(3_000), at(2_990), 1_200, false, false);
    assert!(!r.signals(replica, false), "long ago");
}

#[test]
fn an_interval_measures_what_happened_in_it() {
    let mut r = arq();
    let path = PathState { smoothed_rtt: Duration::from_millis(10), ..PathState::default() };
    let spy = Spy::default();
    r.set_scheme(Scheme { adapter: Box::new(spy.clone()), ..Arq::scheme() });
    (0..19).for_each(|n| r.on_packet_acked(at(n), at(n), 100, false, false));
    r.on_packet_lost(at(19), 19, at(0));
    assert!(r.on_tick(at(60), path));
    assert!(r.on_tick(at(120), path));
    // What was counted on another path is not the new one's.
    r.on_packet_lost(at(121), 20, at(60));
    r.on_new_path(at(122));
    assert!(r.on_tick(at(180), path));
    let expected = ["interval 1/19", "interval 0/0", "new path", "interval 0/0"];
    assert_eq!(*spy.0.borrow(), expected);
}

#[test]
fn what_is_given_up_while_an_acknowledgement_is_taken_is_not_counted() {
    let mut r = arq();
    let a = r.open(at(0), at(0), 1_000);
    r.split(a, 400).expect("the unit is unfinished");
    r.on_finished(at(1), a, copy(0));
    r.give_up();
    r.on_ack_taken();
    assert_eq!((r.totals().finished, r.is_empty()), (0, true));
}
