use super::super::reward::Penalty;
use super::train::{Learner, Options, Phase};
use super::*;
use crate::random::Random;
use crate::{Arq, CopyKind, PathState, Recovery, Scheme};
use std::sync::Mutex;
use units::Timestamp;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn path(rtt: u64) -> PathState {
    PathState {
        smoothed_rtt: Duration::from_millis(rtt),
        min_rtt: Duration::from_millis(rtt),
        latest_rtt: Duration::from_millis(rtt),
        peak_rtt: Duration::from_millis(rtt),
        trough_rtt: Duration::from_millis(rtt),
        packet: 1_200,
        in_flight: 12_000,
        ..PathState::default()
    }
}

/// Returns a network that prefers 2 in the first rounds and 7 in later ones.
fn by_round() -> Arc<Network> {
    let mut network = Network::random(&[1], &mut Random::new(1)).expect("good sizes");
    let mut numbers = vec![0.0; network.numbers().count()];
    // The hidden neuron is the round number.
    numbers[6] = 1.0;
    // R = 2 has a value of 0.11, R = 7 the value of the round.
    numbers[8 + 6] = 1.0;
    numbers[8 + 10 + 1] = 0.11;
    network.numbers_mut().zip(numbers).for_each(|(place, number)| *place = number);
    Arc::new(network)
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

#[test]
fn values_are_scaled_to_about_one_and_stay_finite() {
    assert_eq!((scaled(0.0), scaled(1_000.0), scaled(-5.0)), (0.0, 1.0, 0.0));
    assert_eq!(scaled(f64::NAN), 0.0);
    assert!(scaled(f64::MAX).is_finite());
    assert_eq!(input(&[0.5; 6], u32::MAX), [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0]);
}

#[test]
fn r_is_decided_per_interval_and_round_and_starts_at_1() {
    let adapter = Box::new(adapter(by_round(), Reading::Extra));
    let mut r = Recovery::<()>::new(Scheme { adapter, ..Arq::scheme() }, None, at(0));
    let lose = |r: &mut Recovery<()>, rounds: u32| {
        let key = r.opened(at(1), at(0), 1);
        for _ in 0..rounds {
            r.copy_sent(at(1), key, CopyKind::Retransmission);
            r.copy_lost(at(1), key, CopyKind::Retransmission);
        }
        r.abandon(at(1), key);
    };
    lose(&mut r, 1);
    assert_eq!(told(&r, "r_1"), 0.0, "undecided");
    assert!(r.decided(at(50), path(10)));
    lose(&mut r, 4);
    // Round n has a value of n/20: 0.05 and 0.10 are below 0.11, and 0.15 is above.
    assert_eq!(["r_1", "r_2", "r_3"].map(|name| told(&r, name)), [2.0, 2.0, 7.0]);
    assert!((told(&r, "min_rtt") - 11_f64.ln() / 1_001_f64.ln()).abs() < 1e-6);
    assert!((told(&r, "in_flight") - told(&r, "min_rtt")).abs() < 1e-6, "10 packets");
    assert!(r.decided(at(100), path(10)));
    assert_eq!(told(&r, "r_3"), 0.0, "undecided again");
}

/// Trains under two states of the path: with the long round trip, single copies are always lost.
fn train(seed: u64, turns: u32) -> Learner {
    let options = Options {
        hidden: vec![16],
        epsilon: 0.5,
        discount: 0.0,
        rate: 3e-3,
        penalty: Penalty::Quotient(1.05),
        ..Options::default()
    };
    let learner = Arc::new(Mutex::new(Learner::new(options, seed).expect("good sizes")));
    let mut r = Recovery::<()>::new(train::scheme(learner.clone(), Reading::Extra, 1), None, at(0));
    let mut now = 0;
    for turn in 0..turns {
        let long = turn % 2 == 1;
        now += 2_000;
        assert!(r.decided(at(now), path(if long { 200 } else { 10 })));
        let key = r.opened(at(now), at(now), 1);
        r.copy_sent(at(now), key, CopyKind::Retransmission);
        let r_1 = told(&r, "r_1");
        if long && r_1 < 4.0 {
            r.copy_lost(at(now), key, CopyKind::Retransmission);
            r.abandon(at(now), key);
        } else {
            r.finish(at(now), key, None);
            r.counted();
        }
    }
    drop(r);
    Arc::into_inner(learner).expect("the connection is gone").into_inner().expect("not poisoned")
}

#[test]
fn training_finds_the_best_redundancy_of_each_state() {
    let learner = train(3, 6_000);
    assert_eq!(learner.steps(), 6_000 - 31);
    let network = Network::from_bytes(&learner.network().to_bytes("")).expect("its own file");
    let adapter = Box::new(adapter(Arc::new(network), Reading::Copies));
    let mut r = Recovery::<()>::new(Scheme { adapter, ..Arq::scheme() }, None, at(0));
    for (now, rtt, expected) in [(2_000, 10, 1.0), (4_000, 200, 4.0)] {
        assert!(r.decided(at(now), path(rtt)));
        let key = r.opened(at(now), at(now), 1);
        r.copy_sent(at(now), key, CopyKind::Retransmission);
        assert_eq!(told(&r, "r_1"), expected, "round trips of {rtt} ms");
        r.abandon(at(now), key);
    }
}

#[test]
fn a_seed_determines_the_training() {
    let bytes = |seed| train(seed, 300).network().to_bytes("");
    assert_eq!(bytes(5), bytes(5));
    assert_ne!(bytes(5), bytes(6));
}

#[test]
fn random_episodes_suffice_for_training() {
    let options = Options { hidden: vec![8], discount: 0.0, ..Options::default() };
    let options = Options { replay: 10_000, rate: 3e-3, ..options };
    let learner = Learner::new(options, 9).expect("good sizes");
    let untrained = learner.network().clone();
    let learner = Arc::new(Mutex::new(learner));
    let with = |work: &dyn Fn(&mut Learner)| work(&mut learner.lock().expect("not poisoned"));
    let mut now = 0;
    // Every second single copy arrives, and several copies always do.
    let mut episode = |turns: u32| {
        let mut r =
            Recovery::<()>::new(train::scheme(learner.clone(), Reading::Extra, 1), None, at(0));
        for turn in 0..turns {
            now += 2_000;
            assert!(r.decided(at(now), path(10)));
            let key = r.opened(at(now), at(now), 1);
            r.copy_sent(at(now), key, CopyKind::Retransmission);
            if told(&r, "r_1") == 1.0 && turn % 2 == 0 {
                r.copy_lost(at(now), key, CopyKind::Retransmission);
                r.abandon(at(now), key);
            } else {
                r.finish(at(now), key, None);
                r.counted();
            }
        }
    };
    with(&|learner| learner.set_phase(Phase::Record));
    episode(3_000);
    with(&|learner| {
        assert_eq!((learner.remembered(), learner.steps()), (3_000, 0));
        assert_eq!(learner.network(), &untrained, "nothing has been learnt yet");
        let tally = learner.take_tally();
        assert!((tally.r as f64 / 3_000.0 - 5.5).abs() < 0.2, "any R: {tally:?}");
        learner.set_phase(Phase::Judge);
    });
    let reward = |learner: &Mutex<Learner>| {
        let tally = learner.lock().expect("not poisoned").take_tally();
        assert_eq!((tally.rounds, tally.steps), (400, 0));
        tally.reward / 400.0
    };
    episode(400);
    let before = reward(&learner);
    with(&|learner| {
        learner.study(4_000);
        assert_eq!(learner.take_tally().steps, 4_000);
    });
    episode(400);
    let after = reward(&learner);
    // R = 1: 0.5 − 0.5 · 1.05 = −0.025; R = 2: 0.5.
    assert!(before < 0.4 && (after - 0.5).abs() < 1e-9, "{before} {after}");
    with(&|learner| assert_eq!(learner.remembered(), 3_000, "evaluation stores nothing"));
}

#[test]
fn a_loss_leads_to_the_next_round_and_an_arrival_to_a_first_round() {
    #[derive(Debug, Clone, Default)]
    struct Notes(Arc<Mutex<Vec<Transition>>>);
    impl Policy for Notes {
        const LEARNS: bool = true;
        fn choose(&mut self, input: &Input) -> usize {
            (input[6] * 20.0).round() as usize
        }
        fn remember(&mut self, transition: Transition) {
            self.0.lock().expect("not poisoned").push(transition);
        }
    }
    let notes = Notes::default();
    let adapter = Box::new(Decider::new(notes.clone(), Reading::Extra));
    let mut r = Recovery::<()>::new(Scheme { adapter, ..Arq::scheme() }, None, at(0));
    r.decided(at(50), path(10));
    let key = r.opened(at(51), at(50), 1);
    r.copy_sent(at(51), key, CopyKind::Retransmission);
    r.copy_lost(at(60), key, CopyKind::Retransmission);
    r.copy_sent(at(61), key, CopyKind::Retransmission);
    r.finish(at(70), key, None);
    let notes = notes.0.lock().expect("not poisoned");
    let round = |input: &Input| (input[6] * 20.0).round();
    let found: Vec<_> = notes
        .iter()
        .map(|t| (round(&t.before), t.action, t.round, t.arrived, round(&t.after)))
        .collect();
    assert_eq!(found, [(1.0, 1, 1, false, 2.0), (2.0, 2, 2, true, 1.0)]);
}
