use super::*;
use crate::random::Random;
use crate::{Arq, PathState, Recovery, Scheme, UnitTable};
use units::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1);

/// The rule as written in the code, in integers: p_r > 1 − 1/R, p_r ≤ 1 − 2/R.
fn step_of_the_code(r: u32, (lost, known): (u32, u32)) -> u32 {
    let [r, lost, known] = [r, lost, known].map(i64::from);
    let next = if lost * r > known * (r - 1) {
        r + 1
    } else if lost * r <= known * (r - 2) {
        r - 1
    } else {
        r
    };
    next as u32
}

#[test]
fn r_moves_until_one_to_two_copies_are_expected_to_arrive() {
    // (R, lost of 10, next R)
    let table = [
        (1, 0, 1),
        (1, 1, 2),
        (1, 10, 2),
        (2, 0, 1),
        (2, 1, 2),
        (2, 5, 2),
        (2, 6, 3),
        (3, 3, 2),
        (3, 4, 3),
        (3, 6, 3),
        (3, 7, 4),
        (4, 5, 3),
        (4, 6, 4),
        (5, 6, 4),
        (5, 8, 5),
        (5, 9, 6),
        (10, 8, 9),
        (10, 9, 10),
        (10, 10, 11),
    ];
    for (r, lost, next) in table {
        assert_eq!(step(r, (lost, 10)), next, "R {r}, {lost} of 10");
    }
    assert_eq!((step(1, (0, 0)), step(3, (0, 0))), (1, 2), "p_r is 0 without history");
}

#[test]
fn the_rules_of_the_paper_and_its_code_agree() {
    for known in 1..=40 {
        for lost in 0..=known {
            for r in 1..=50 {
                let fates = (lost, known);
                let next = step(r, fates);
                assert_eq!(next, step_of_the_code(r, fates), "R {r}, {lost} of {known}");
                assert!(next >= 1);
            }
        }
    }
}

/// Returns mean, minimum and maximum of R under independent loss.
fn converged(queue: usize, loss: f64) -> (f64, u32, u32) {
    let options = Options { queue, ..Options::paper(Reading::Extra) };
    let (mut adapter, mut random) = (TestAndVerify::new(options), Random::new(11));
    let units = UnitTable::default();
    let view = View {
        path: PathState::default(),
        units: &units,
        longest_burst: 0,
        correlation: None,
        overdue_lost: 0.5,
        loss_rate: 0.05,
    };
    let mut source = Recovery::<()>::new(Arq::scheme(), None, NOW);
    let unit = source.opened(NOW, NOW, 1);
    let (mut sum, mut least, mut most) = (0, u32::MAX, 0);
    for turn in 0..21_000 {
        let r = adapter.level(unit, 1, &view);
        for _ in 0..r {
            let acked = random.fraction() >= loss;
            let kind = CopyKind::Replica;
            adapter.on_event(&RecoveryEvent::CopySettled { now: NOW, unit, kind, acked });
        }
        if turn >= 1_000 {
            sum += r;
            (least, most) = (least.min(r), most.max(r));
        }
    }
    (f64::from(sum) / 20_000.0, least, most)
}

#[test]
fn mean_r_follows_the_rule_under_independent_loss() {
    // A long queue measures p_r exactly: R stays at 2 for 0 < p_r ≤ 0.5, and at 3 for 0.6.
    assert_eq!(converged(1_000, 0.0), (1.0, 1, 1));
    assert_eq!(converged(1_000, 0.05), (2.0, 2, 2));
    assert_eq!(converged(1_000, 0.3), (2.0, 2, 2));
    assert_eq!(converged(1_000, 0.6), (3.0, 3, 3));
    // With 10 fates, p_r is 0 for 0.95^10 = 60 % of copies at 5 % loss. Those rounds have one copy
    // and the others two, so a quarter of rounds has 2.
    let (mean, least, most) = converged(10, 0.05);
    assert!((1.2..1.3).contains(&mean) && (least, most) == (1, 2), "{mean} {least} {most}");
    let (mean, ..) = converged(10, 0.3);
    assert!((1.9..2.2).contains(&mean), "{mean}");
    let (mean, _, most) = converged(10, 0.6);
    assert!((2.8..3.8).contains(&mean) && most <= 10, "{mean} {most}");
}

fn recovery(options: Options) -> Recovery<()> {
    let adapter = Box::new(TestAndVerify::new(options));
    Recovery::<()>::new(Scheme { adapter, ..Arq::scheme() }, None, NOW)
}

fn told(r: &Recovery<()>, wanted: &str) -> f64 {
    let mut found = f64::NAN;
    r.explain(&mut |name, value| {
        if name == wanted {
            found = value;
        }
    });
    found
}

/// Sends a retransmission and two replicas, reports their fates, and ends the unit.
fn one_round(r: &mut Recovery<()>, arrived: [bool; 3]) {
    use CopyKind::{Replica, Retransmission};
    let key = r.opened(NOW, NOW, 1);
    let kinds = [Retransmission, Replica, Replica];
    kinds.iter().for_each(|&kind| r.copy_sent(NOW, key, kind));
    for (kind, arrived) in kinds.into_iter().zip(arrived) {
        if arrived {
            r.copy_acked(NOW, key, kind, NOW);
            r.finish(NOW, key, None);
        } else {
            r.copy_lost(NOW, key, kind);
        }
    }
    r.counted();
    r.abandon(NOW, key);
}

#[test]
fn the_fates_in_the_bitmap_depend_on_reading_and_rules() {
    use Reading::{Copies, Extra};
    let (paper, code) = (Options::paper, Options::code);
    // A lost retransmission, then two replicas that arrive.
    for (options, p_r) in
        [(paper(Extra), 0.0), (paper(Copies), 1.0 / 3.0), (code(Extra), 0.5), (code(Copies), 0.5)]
    {
        let mut r = recovery(options);
        one_round(&mut r, [false, true, true]);
        assert_eq!(told(&r, "p_r"), p_r, "{options:?}");
    }
    // An arrival, after which the siblings no longer matter.
    for (options, p_r) in [(paper(Extra), 0.5), (code(Extra), 0.0)] {
        let mut r = recovery(options);
        one_round(&mut r, [true, false, true]);
        assert_eq!(told(&r, "p_r"), p_r, "{options:?}");
    }
    // A wholly lost round; the code ignores its last loss.
    for (options, fates) in [(paper(Extra), 2), (paper(Copies), 3), (code(Extra), 2)] {
        let mut adapter = TestAndVerify::new(options);
        let mut source = Recovery::<()>::new(Arq::scheme(), None, NOW);
        let unit = source.opened(NOW, NOW, 1);
        let kinds = [CopyKind::Retransmission, CopyKind::Replica, CopyKind::Replica];
        for kind in kinds {
            adapter.on_event(&RecoveryEvent::CopySent { now: NOW, unit, kind, round: 1 });
        }
        for kind in kinds {
            adapter.on_event(&RecoveryEvent::CopySettled { now: NOW, unit, kind, acked: false });
        }
        assert_eq!(adapter.bitmap.counts(), (fates, fates), "{options:?}");
    }
}

#[test]
fn probes_are_no_copies_of_a_round() {
    for options in [Options::paper(Reading::Copies), Options::code(Reading::Copies)] {
        let mut r = recovery(options);
        let key = r.opened(NOW, NOW, 1);
        r.copy_sent(NOW, key, CopyKind::Retransmission);
        r.copy_sent(NOW, key, CopyKind::Probe);
        r.copy_lost(NOW, key, CopyKind::Probe);
        assert_eq!(told(&r, "p_r"), 0.0, "{options:?}");
    }
}

/// Returns the levels of successive rounds of a unit that loses all copies.
fn levels(options: Options, rounds: u32) -> Vec<u32> {
    let mut r = Recovery::<()>::new(
        Scheme {
            adapter: Box::new(TestAndVerify::new(options)),
            ..crate::fixed::or3(Reading::Extra)
        },
        None,
        NOW,
    );
    let key = r.opened(NOW, NOW, 1);
    let mut levels = Vec::new();
    for _ in 0..rounds {
        r.copy_sent(NOW, key, CopyKind::Retransmission);
        let mut level = 0;
        while r.next_replica(NOW, &crate::SendOpportunity { off_mode: true }).is_some() {
            r.copy_sent(NOW, key, CopyKind::Replica);
            level += 1;
        }
        (0..=level).for_each(|_| {
            r.copy_lost(NOW, key, CopyKind::Replica);
        });
        levels.push(level);
    }
    levels
}

#[test]
fn each_round_has_its_own_r_and_the_code_subtracts_earlier_replicas() {
    // Paper: R_1 starts at 1 and stays, as nothing is lost yet. Later rounds step up once.
    assert_eq!(levels(Options::paper(Reading::Extra), 4), [1, 2, 2, 2]);
    assert_eq!(levels(Options::paper(Reading::Copies), 4), [0, 1, 1, 1]);
    // Code: R_1 = 1, then 3, 5, 7 step up to 4, 6, 8, minus the replicas of earlier rounds.
    assert_eq!(levels(Options::code(Reading::Extra), 4), [1, 3, 2, 2]);
    // The first loss is ignored as the last of its round: R_2 steps down to 2, R_3 = 6, R_4 = 8.
    assert_eq!(levels(Options::code(Reading::Copies), 4), [0, 1, 4, 2]);
}

#[test]
fn r_is_limited_by_the_cap_and_rounds_by_the_table() {
    let options = Options { cap: 4, ..Options::code(Reading::Extra) };
    let mut adapter = TestAndVerify::new(options);
    assert_eq!([1, 2, 3, 20, 21, u32::MAX].map(|n| adapter.redundancy(n)), [1, 3, 4, 4, 4, 4]);
    (0..10).for_each(|_| adapter.bitmap.push(true));
    let mut r = recovery(Options { cap: 4, ..Options::paper(Reading::Extra) });
    for _ in 0..20 {
        one_round(&mut r, [false; 3]);
    }
    assert_eq!((told(&r, "r_1"), told(&r, "p_r"), told(&r, "expected")), (4.0, 1.0, 0.0));
    assert_eq!(TestAndVerify::new(Options { cap: 0, ..options }).redundancy(9), 1);
}
