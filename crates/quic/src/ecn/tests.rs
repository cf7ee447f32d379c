use super::*;
use std::collections::VecDeque;

fn counts(ect0: u64, ect1: u64, ce: u64) -> Option<EcnCounts> {
    Some(EcnCounts { ect0, ect1, ce })
}

fn sent(n: u32) -> (EcnTally, PathEcn) {
    let mut tally = EcnTally::default();
    (0..n).for_each(|_| tally.on_sent());
    (tally, PathEcn::new(true))
}

fn is_marking(ecn: &PathEcn) -> bool {
    ecn.marks(Timestamp::ZERO, Duration::from_secs(1))
}

#[test]
fn new_ce_marks_are_reported_once() {
    let (mut tally, mut ecn) = sent(10);
    assert_eq!(ecn.on_report(3, tally.take(counts(2, 0, 1))), 1);
    assert_eq!(ecn.on_report(3, tally.take(counts(5, 0, 1))), 0);
    assert!(is_marking(&ecn));
}

#[test]
fn counts_that_do_not_add_up_switch_ecn_off() {
    let cases: [(&str, Option<EcnCounts>); 5] = [
        ("fewer than acknowledged", counts(2, 0, 0)),
        ("more than sent", counts(11, 0, 0)),
        ("remarked to ECT(1)", counts(2, 1, 0)),
        ("huge", counts(u64::MAX, 0, u64::MAX)),
        ("one short with CE", counts(1, 0, 1)),
    ];
    for (name, reported) in cases {
        let (mut tally, mut ecn) = sent(10);
        assert_eq!(ecn.on_report(3, tally.take(reported)), 0, "{name}");
        assert_eq!(ecn.take_fault(), Some(EcnFault::Miscounted), "{name}");
        assert_eq!((ecn.take_fault(), is_marking(&ecn)), (None, false), "{name}");
    }
    let (mut tally, mut ecn) = sent(10);
    ecn.on_report(3, tally.take(counts(3, 0, 0)));
    assert_eq!(ecn.on_report(1, tally.take(counts(2, 0, 2))), 0, "a count went down");
    assert_eq!(ecn.state(), Some(EcnState::Failed));
}

#[test]
fn wrong_counts_without_a_marked_packet_of_the_path_are_the_fault_of_another() {
    let (mut tally, mut ecn) = sent(10);
    ecn.on_report(0, tally.take(counts(2, 1, 0)));
    assert!(is_marking(&ecn));
    ecn.on_report(1, tally.take(counts(3, 1, 0)));
    assert!(is_marking(&ecn));
}

#[test]
fn a_path_that_erases_marks_is_noticed() {
    let (mut tally, mut ecn) = sent(100);
    (0..9).for_each(|_| assert_eq!(ecn.on_report(1, tally.take(None)), 0));
    assert!(is_marking(&ecn));
    ecn.on_report(1, tally.take(None));
    assert_eq!(ecn.take_fault(), Some(EcnFault::Bleached));
}

#[test]
fn all_of_the_first_packets_as_ce_are_a_fault_and_most_of_them_are_congestion() {
    for (ce, fault) in [(10, Some(EcnFault::AllCe)), (9, Some(EcnFault::AllCe)), (8, None)] {
        let (mut tally, mut ecn) = sent(10);
        ecn.on_report(10, tally.take(counts(10 - ce, 0, ce)));
        assert_eq!(ecn.take_fault(), fault, "{ce}");
    }
    // Later on it is congestion.
    let (mut tally, mut ecn) = sent(200);
    ecn.on_report(10, tally.take(counts(10, 0, 0)));
    assert_eq!(ecn.on_report(90, tally.take(counts(10, 0, 90))), 90);
    assert_eq!(ecn.state(), Some(EcnState::Capable));
}

/// A small generator (splitmix64).
struct Dice(u64);

impl Dice {
    fn chance(&mut self, share: f64) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 <= share
    }
}

/// When packets are lost whatever their mark, and beside that the share of the marked ones.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Independent(f64),
    /// Begins and ends with these chances per packet; everything in a burst is lost.
    Bursts(f64, f64),
    /// Of this many of a period, in milliseconds.
    Outages(u64, u64),
}

struct Flight {
    sent: u64,
    number: u64,
    marked: bool,
    lost: bool,
}

/// Sends a packet each 7 ms over a round-trip time of 40 ms for this many seconds. Returns when ECN
/// was given up.
fn simulate(seed: u64, loss: Loss, leak: f64, seconds: u64) -> Option<u64> {
    let (mut dice, mut ecn, mut in_burst) = (Dice(seed), PathEcn::new(true), false);
    let mut flight: VecDeque<Flight> = VecDeque::new();
    for number in 0..seconds * 1_000 / 7 {
        let ms = number * 7;
        let now = Timestamp::from_millis(ms);
        let arrived = |f: &&Flight| !f.lost && f.sent + 40 <= ms;
        let largest = flight.iter().filter(arrived).map(|f| f.number).max();
        if let Some(largest) = largest {
            let (mut unmarked, mut marked) = (false, false);
            flight.retain(|f| {
                let is_acked = !f.lost && f.sent + 40 <= ms;
                let is_lost = f.lost && f.number + 3 <= largest;
                if is_acked || is_lost {
                    let (number, lost) = (f.number, is_lost);
                    ecn.on_fate(Fate { number, marked: f.marked, original: true, lost });
                }
                marked |= is_acked && f.marked;
                unmarked |= is_acked && !f.marked;
                !is_acked && !is_lost
            });
            ecn.on_heard(unmarked && !marked, number);
            ecn.judge(now, number);
        }
        if ecn.take_fault().is_some() {
            return Some(ms);
        }
        let mark = ecn.marks_next(now, Duration::from_millis(145), true);
        ecn.on_sent(now, mark);
        let lost = match loss {
            Loss::Independent(share) => dice.chance(share),
            Loss::Bursts(begin, end) => {
                in_burst = if in_burst { !dice.chance(end) } else { dice.chance(begin) };
                in_burst
            }
            Loss::Outages(length, period) => (ms + seed * 37) % period < length,
        };
        let lost = lost || mark && dice.chance(leak);
        flight.push_back(Flight { sent: ms, number, marked: mark, lost });
    }
    None
}

/// Connections of a minute that give ECN up without a fault of the path. `MENDCAST_CASES=3000`
/// found 1 of 3,000 at 30 % independent loss and none of 15,000 elsewhere. One in 500 is tolerated
/// here.
#[test]
fn loss_that_spares_no_kind_of_packet_hardly_ever_switches_ecn_off() {
    let runs = std::env::var("MENDCAST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let kinds = [
        Loss::Independent(0.1),
        Loss::Independent(0.3),
        Loss::Bursts(0.02, 0.2),
        Loss::Bursts(0.01, 0.05),
        Loss::Outages(300, 4_000),
        Loss::Outages(1_000, 5_000),
    ];
    for loss in kinds {
        let off = (0..runs).filter(|&seed| simulate(seed, loss, 0.0, 60).is_some()).count();
        println!("{loss:?}: {off} of {runs} switched ECN off");
        assert!(500 * off as u64 <= runs, "{loss:?}: {off} of {runs}");
    }
}

#[test]
fn a_path_that_drops_marked_packets_is_always_found() {
    for (leak, limit) in [(1.0, 1_000), (0.5, 4_000), (0.2, 30_000)] {
        for base in [0.0, 0.05] {
            let found = (0..200).map(|seed| simulate(seed, Loss::Independent(base), leak, 60));
            let mut found: Vec<_> = found.map(|at| at.unwrap_or(u64::MAX)).collect();
            found.sort_unstable();
            println!("{leak} of the marked, {base} of all: {} and {} ms", found[100], found[197]);
            assert!(found[197] < limit, "{leak}, {base}: {:?}", &found[190..]);
        }
    }
}

#[test]
fn a_trial_sends_as_many_of_each_kind_in_no_fixed_order() {
    let mut trial = EcnTrial::new(1_234);
    let marks: Vec<_> = (0..200).map(|_| trial.marks_next()).collect();
    assert!(trial.is_one_by_one());
    assert!(marks.chunks(2).all(|pair| pair[0] != pair[1]));
    let first = marks.iter().step_by(2).filter(|&&mark| mark).count();
    assert!((30..70).contains(&first), "{first}");
    (0..1_000).for_each(|_| _ = trial.marks_next());
    assert!(!trial.is_one_by_one());
}
