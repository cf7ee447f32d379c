use super::*;
use crate::recovery::arrival;
use crate::{Acked, CopyKind, LostUnit, Recovery, RecoveryEvent, SendOpportunity, UnitKey};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::HashMap;

const ON: SendOpportunity = SendOpportunity { off_mode: false };
const OFF: SendOpportunity = SendOpportunity { off_mode: true };

fn fixed_at(level: u32, occasions: Occasions) -> Recovery<()> {
    let scheme = fixed(FixedLife::new(level).expect("in range"));
    let scheduler = Box::new(ReinjectionController::new(occasions));
    let mut recovery = Recovery::<()>::new(Scheme { scheduler, ..scheme }, None, at(0));
    // No interval ends, so the round-trip time is used as T_unit.
    assert!(!recovery.decided(at(0), path()));
    recovery
}

/// Loses a unit and retransmits it at `now`.
fn retransmitted(recovery: &mut Recovery<()>, now: Timestamp) -> UnitKey {
    let key = recovery.opened(now, now - ms(60), 1_200);
    recovery.copy_sent(now, key, CopyKind::Retransmission);
    key
}

/// Sends the due replica, which must be the unit's.
fn reinject(recovery: &mut Recovery<()>, now: Timestamp, at: &SendOpportunity, key: UnitKey) {
    assert_eq!(recovery.next_replica(now, at), Some(key), "at {now:?}");
    recovery.copy_sent(now, key, CopyKind::Replica);
}

#[test]
fn two_replicas_are_followed_by_plain_retransmission_after_the_last_loss() {
    // Section VIII-C: P2 is the retransmission, P3 and P4 its replicas.
    let mut r = fixed_at(2, Occasions::default());
    let key = retransmitted(&mut r, at(100));
    assert_eq!(r.next_timeout(), Some(at(120)), "T_thres = 60 ms / 3");
    assert_eq!(r.next_replica(at(119), &ON), None);
    reinject(&mut r, at(120), &ON, key);
    assert_eq!(r.next_timeout(), Some(at(140)));
    reinject(&mut r, at(140), &ON, key);
    // "Upon a third trigger, AutoRec skips reinjection of P4."
    assert_eq!(r.next_timeout(), None);
    assert_eq!((r.next_replica(at(160), &ON), r.next_replica(at(160), &OFF)), (None, None));
    assert!(!r.copy_lost(at(190), key, CopyKind::Retransmission));
    assert!(!r.copy_lost(at(210), key, CopyKind::Replica));
    assert!(r.copy_lost(at(230), key, CopyKind::Replica), "P4 is tracked");
    assert_eq!(r.next_waiting(), Some(key));
    r.copy_sent(at(230), key, CopyKind::Retransmission);
    assert_eq!(
        (r.next_timeout(), r.next_replica(at(400), &OFF)),
        (None, None),
        "P5 has no replica"
    );
    assert!(r.copy_lost(at(500), key, CopyKind::Retransmission));
    r.copy_sent(at(500), key, CopyKind::Retransmission);
    assert_eq!(r.next_replica(at(900), &OFF), None);
    assert_eq!((r.statistics().totals.replicas, r.statistics().totals.repeated), (2, 2));
}

#[test]
fn silence_off_mode_limit_and_acknowledgement_follow_figure_11() {
    // Figure 11, K_θ = 2.
    let mut r = fixed_at(2, Occasions::default());
    let (t1, t2, t3, t5, t6) = (at(100), at(125), at(130), at(150), at(190));
    let key = retransmitted(&mut r, t1);
    reinject(&mut r, t2, &ON, key);
    assert_eq!(r.next_replica(at(129), &ON), None);
    reinject(&mut r, t3, &OFF, key);
    assert_eq!(r.next_replica(t5, &OFF), None, "the level is reached");
    r.copy_acked(t6, key, CopyKind::Replica, t2);
    r.finish(t6, key, arrival(t2, CopyKind::Replica));
    r.counted();
    assert_eq!(r.next_replica(t6, &OFF), None);
    assert_eq!(r.statistics().losses.latencies.max(), Some(t2 - t1));
}

#[test]
fn the_unit_with_the_oldest_transmission_is_sent_first() {
    let mut r = fixed_at(2, Occasions::default());
    let [a, b, c] = [100, 104, 108].map(|n| retransmitted(&mut r, at(n)));
    reinject(&mut r, at(110), &OFF, a);
    reinject(&mut r, at(111), &OFF, b);
    // c has the oldest transmission now, and b finishes before its turn.
    assert_eq!(r.next_timeout(), Some(at(128)));
    r.finish(at(120), b, None);
    reinject(&mut r, at(128), &ON, c);
    reinject(&mut r, at(130), &ON, a);
    reinject(&mut r, at(148), &ON, c);
    assert_eq!(r.next_timeout(), None);
}

#[test]
fn a_probe_counts_as_a_transmission() {
    let mut r = fixed_at(2, Occasions::default());
    let [a, b] = [100, 105].map(|n| retransmitted(&mut r, at(n)));
    r.copy_sent(at(115), a, CopyKind::Probe);
    assert_eq!(r.next_timeout(), Some(at(125)));
    reinject(&mut r, at(125), &ON, b);
    assert_eq!(r.next_replica(at(134), &ON), None);
    reinject(&mut r, at(135), &ON, a);
}

#[test]
fn occasions_can_be_disabled() {
    let mut calm = fixed_at(3, Occasions { off_mode: true, opportunistic: false });
    let key = retransmitted(&mut calm, at(100));
    assert_eq!((calm.next_timeout(), calm.next_replica(at(500), &ON)), (None, None));
    (0..3).for_each(|_| reinject(&mut calm, at(500), &OFF, key));
    assert_eq!(calm.next_replica(at(500), &OFF), None);

    let mut spaced = fixed_at(3, Occasions { off_mode: false, opportunistic: true });
    let key = retransmitted(&mut spaced, at(100));
    assert_eq!(spaced.next_replica(at(114), &OFF), None);
    [115, 130, 145].into_iter().for_each(|n| reinject(&mut spaced, at(n), &OFF, key));
    assert_eq!(spaced.next_replica(at(500), &OFF), None);
}

/// Ends an interval with this loss rate in percent.
fn end_interval(recovery: &mut Recovery<()>, now: Timestamp, lost: u64) {
    (lost..100).for_each(|_| recovery.packet_acked(now, now, 1_200, false, Acked::InTime));
    (0..lost).for_each(|n| recovery.packet_lost(now, n, now));
    assert!(recovery.decided(now, path()));
}

/// Returns AutoRec at 5 % loss with four replicas and a T_unit of 60 ms, after an interval that
/// ended at 1 s.
fn autorec_at_level_4() -> Recovery<()> {
    let tolerances = Tolerances { latency: ms(0), cost: 0.2, goodput: 0.2 };
    let mut r = Recovery::<()>::new(scheme(tolerances), None, at(0));
    assert_eq!(r.scheme(), "autorec");
    let known = retransmitted(&mut r, at(500));
    assert_eq!(r.next_replica(at(900), &OFF), None, "no decision before the first interval ends");
    r.finish(at(900), known, None);
    r.counted();
    end_interval(&mut r, at(1_000), 5);
    r
}

#[test]
fn a_unit_at_the_ceiling_does_not_return_when_the_level_rises() {
    let mut r = autorec_at_level_4();
    let had_two = retransmitted(&mut r, at(1_010));
    let had_one = retransmitted(&mut r, at(1_011));
    reinject(&mut r, at(1_020), &OFF, had_two);
    reinject(&mut r, at(1_021), &OFF, had_one);
    reinject(&mut r, at(1_022), &OFF, had_two);
    end_interval(&mut r, at(1_300), 10);
    reinject(&mut r, at(1_310), &OFF, had_one);
    assert_eq!(r.next_replica(at(1_311), &OFF), None, "K_θ = 2 at 10 % loss");
    end_interval(&mut r, at(1_600), 5);
    assert_eq!((r.next_replica(at(1_610), &OFF), r.next_timeout()), (None, None));
    // A retransmission in the same round does not bring it back either.
    (0..3).for_each(|_| r.partly_acked(had_two));
    assert_eq!(r.next_waiting(), Some(had_two));
    r.copy_sent(at(1_620), had_two, CopyKind::Retransmission);
    assert_eq!(r.unit(had_two).map(|unit| unit.round), Some(1));
    assert_eq!(r.next_replica(at(1_700), &OFF), None);
}

#[test]
fn an_interval_without_loss_empties_the_queue() {
    let mut r = autorec_at_level_4();
    retransmitted(&mut r, at(1_010));
    assert_eq!(r.next_timeout(), Some(at(1_022)), "60 ms / 5");
    end_interval(&mut r, at(1_300), 0);
    assert_eq!((r.next_replica(at(1_400), &OFF), r.next_timeout()), (None, None));
    retransmitted(&mut r, at(1_410));
    assert_eq!(r.next_replica(at(1_500), &OFF), None);
    end_interval(&mut r, at(1_600), 5);
    assert_eq!(r.next_replica(at(1_700), &OFF), None, "removed units stay away");
}

/// An adapter at a level that the test sets.
#[derive(Debug, Clone)]
struct Dial(std::rc::Rc<std::cell::Cell<u32>>);

impl RedundancyAdapter for Dial {
    fn on_event(&mut self, _: &RecoveryEvent) {}
    fn on_interval(&mut self, _: &IntervalMetrics, _: &View<'_>) {}
    fn on_new_path(&mut self) {}
    fn level(&mut self, _: UnitKey, round: u32, _: &View<'_>) -> u32 {
        if round == 1 { self.0.get() } else { 0 }
    }
    fn ceiling(&self) -> u32 {
        self.0.get()
    }
    fn explain(&self, _: &mut dyn FnMut(&'static str, f64)) {}
}

#[derive(Clone, Debug)]
enum Step {
    Retransmit,
    Probe(usize),
    Finish(usize),
    LoseRound(usize),
    Offer(bool),
    Interval(u32),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        4 => Just(Step::Retransmit),
        1 => any::<usize>().prop_map(Step::Probe),
        3 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::LoseRound),
        6 => any::<bool>().prop_map(Step::Offer),
        1 => (0u32..5).prop_map(Step::Interval),
    ];
    prop::collection::vec((1u64..12, step), 1..200)
}

/// Reference model of the queue by linear search: which units may get more replicas, in the order
/// of their last transmission.
#[derive(Default)]
struct ReferenceQueue(Vec<(UnitKey, u32, Timestamp)>);

impl ReferenceQueue {
    fn sent(&mut self, key: UnitKey, replicas: u32, now: Timestamp, level: u32) {
        if let Some(place) = self.0.iter().position(|entry| entry.0 == key) {
            let entry = self.0.remove(place);
            let replicas = entry.1 + replicas;
            if replicas < level {
                self.0.push((key, replicas, now));
            }
        }
    }

    fn left(&mut self, key: UnitKey) {
        self.0.retain(|entry| entry.0 != key);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(20_261_121),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_queue_matches_the_reference_model(steps in steps()) {
        let level = std::rc::Rc::new(std::cell::Cell::new(3));
        let adapter = Box::new(Dial(level.clone()));
        let mut r = Recovery::<()>::new(Scheme { adapter, ..scheme(Tolerances::default()) }, None, at(0));
        let mut now = at(100);
        r.decided(now, path());
        let mut told = ReferenceQueue::default();
        let mut alive: Vec<UnitKey> = Vec::new();
        let pick = |alive: &mut Vec<UnitKey>, n: usize, out: bool| {
            if alive.is_empty() { return None }
            let place = n % alive.len();
            Some(if out { alive.swap_remove(place) } else { alive[place] })
        };
        for (wait, step) in steps {
            // T_unit is 60 ms throughout, measured or from the round-trip time.
            let threshold = ms(60) / (level.get() + 1);
            let due = told.0.first().map(|entry| entry.2 + threshold);
            prop_assert_eq!(r.next_timeout(), due);
            if let Some(due) = due {
                prop_assert!(r.next_replica(due, &ON).is_some());
                prop_assert!(r.next_replica(due - Duration::from_nanos(1), &ON).is_none());
            }
            now += ms(wait);
            match step {
                Step::Retransmit => {
                    let key = retransmitted(&mut r, now);
                    alive.push(key);
                    if level.get() > 0 { told.0.push((key, 0, now)); }
                }
                Step::Probe(n) => if let Some(key) = pick(&mut alive, n, false) {
                    r.copy_sent(now, key, CopyKind::Probe);
                    told.sent(key, 0, now, level.get());
                },
                Step::Finish(n) => if let Some(key) = pick(&mut alive, n, true) {
                    r.finish(now, key, None);
                    // Copies sent before `now` arrive.
                    r.counted();
                    told.left(key);
                },
                Step::LoseRound(n) => if let Some(key) = pick(&mut alive, n, false) {
                    while !r.copy_lost(now, key, CopyKind::Replica) {}
                    r.copy_sent(now, key, CopyKind::Retransmission);
                    told.left(key);
                },
                Step::Offer(off_mode) => {
                    let head = told.0.first().filter(|entry| off_mode || entry.2 + threshold <= now);
                    let key = head.map(|entry| entry.0);
                    prop_assert_eq!(r.next_replica(now, &SendOpportunity { off_mode }), key);
                    if let Some(key) = key {
                        r.copy_sent(now, key, CopyKind::Replica);
                        told.sent(key, 1, now, level.get());
                    }
                }
                Step::Interval(next) => {
                    now += ms(300);
                    level.set(next);
                    prop_assert!(r.decided(now, path()));
                    told.0.retain(|entry| entry.1 < next);
                }
            }
        }
    }
}

#[test]
fn memory_grows_only_with_the_table() {
    let mut queue = queue::Queue::default();
    let mut r = fixed_at(4, Occasions::default());
    for round in 0..1_000 {
        let keys: Vec<_> = (0..10).map(|_| r.opened(at(round), at(round), 1)).collect();
        keys.iter().for_each(|&key| queue.push(key, 0, at(round)));
        keys.iter().rev().step_by(2).for_each(|&key| assert!(queue.remove(key)));
        keys.iter().step_by(2).for_each(|&key| assert!(queue.remove(key)));
        assert!(!queue.remove(keys[0]) && queue.front().is_none());
        keys.iter().for_each(|&key| r.finish(at(round), key, None));
    }
    assert_eq!(queue.places(), 10);
}

#[test]
fn a_new_scheme_ignores_plans_of_the_former_one() {
    let mut r = fixed_at(4, Occasions::default());
    let old = retransmitted(&mut r, at(100));
    r.set_scheme(fixed(FixedLife::new(1).expect("in range")));
    assert_eq!(r.next_replica(at(200), &OFF), None);
    r.copy_sent(at(210), old, CopyKind::Probe);
    r.finish(at(220), old, None);
    let new = retransmitted(&mut r, at(230));
    assert_eq!(old.index(), new.index());
    reinject(&mut r, at(260), &ON, new);
    assert_eq!(r.next_timeout(), None);
}

#[test]
fn utility_adapter_and_controller_work_together() {
    let options = Options { gate: false, ..Options::default() };
    let mut r = Recovery::<()>::new(scheme_mm24(options, 7), None, at(0));
    assert_eq!(r.scheme(), "autorec-mm24");
    let mut replicas = HashMap::new();
    // Eleven intervals without change trigger the exploration of a level above 0.
    for n in 1..=14 {
        end_interval(&mut r, at(n * 400), 5);
        let key = retransmitted(&mut r, at(n * 400 + 1));
        let mut sent = 0;
        while r.next_replica(at(n * 400 + 2), &OFF) == Some(key) {
            r.copy_sent(at(n * 400 + 2), key, CopyKind::Replica);
            sent += 1;
        }
        r.finish(at(n * 400 + 60), key, None);
        r.counted();
        replicas.insert(n, sent);
    }
    assert!((1..=10).all(|n| replicas[&n] == 0), "{replicas:?}");
    assert!((1..=4).contains(&replicas[&11]), "{replicas:?}");
    assert_eq!(replicas[&12], 0, "no improvement: back to 0");
}

#[test]
fn the_scheduler_sees_the_state_of_split_units() {
    // A split creates a unit with the counts of the first.
    let mut r = fixed_at(1, Occasions::default());
    let a = r.opened(at(100), at(40), 1_000);
    let b = r.split(a, 400).expect("it waits");
    r.copy_sent(at(100), a, CopyKind::Retransmission);
    r.copy_sent(at(101), b, CopyKind::Retransmission);
    reinject(&mut r, at(130), &ON, a);
    reinject(&mut r, at(131), &ON, b);
    assert_eq!(r.next_timeout(), None);
    let counts = |unit: Option<&LostUnit>| unit.map(|unit| (unit.copies, unit.replicas));
    assert_eq!(counts(r.unit(b)), Some((2, 1)));
}
