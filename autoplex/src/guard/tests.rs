//! Error rates and detection delay of the guard.

use super::*;

/// SplitMix64, seeded.
struct Rng(u64);

impl Rng {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (core::f64::consts::TAU * self.uniform()).cos()
    }

    fn poisson(&mut self, mean: f64) -> i64 {
        let (mut count, mut left) = (0, mean);
        loop {
            left -= self.exponential();
            if left < 0.0 {
                return count;
            }
            count += 1;
        }
    }
}

/// Outcomes of heterogeneous viewers: mean 100 s played, mean 0.7 freezes per 100 s concentrated on
/// few paths, median first-frame time 200 ms.
fn sums(rng: &mut Rng, sessions: usize, freezes: f64, first_frame: f64) -> Sums {
    let mut sums = [0; OUTCOMES];
    for _ in 0..sessions {
        let seconds = 10.0 + 90.0 * rng.exponential();
        let path = rng.exponential() * rng.exponential();
        let count = rng.poisson(freezes * 0.007 * seconds * path);
        let first = (200.0 * first_frame * (0.6 * rng.normal()).exp()) as i64;
        let whole = seconds as i64;
        let row = [
            1,
            count,
            (seconds * 1e3) as i64,
            500 * count,
            count * count,
            count * whole,
            whole * whole,
            1,
            first,
            first * first,
        ];
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// Runs 400 groups for six days. Returns the half-hour periods that turned a group off.
fn runs(sessions: usize, freezes: f64, first_frame: f64) -> Vec<u64> {
    let mut rng = Rng(7);
    let mut guards: Vec<Guard> = vec![Guard::default(); 400];
    let mut found = Vec::new();
    for period in 1..=288 {
        guards.retain_mut(|guard| {
            // Evenings are worse in both arms.
            let hour = 1.0 + (period % 48 > 36) as i32 as f64;
            let treated = sums(&mut rng, sessions, hour * freezes, hour * first_frame);
            guard.add("BR", &treated, &sums(&mut rng, sessions / 4, hour, hour));
            guard.evaluate(1_800_000_000 + 1_800 * period);
            let is_off = guard.off().next().is_some();
            if is_off {
                found.push(period);
            }
            !is_off
        });
    }
    found
}

#[test]
fn equal_arms_rarely_turn_a_group_off() {
    let found = runs(20, 1.0, 1.0);
    // 8 expected false positives at most (400 groups, two outcomes at 1 %), with a margin of 2.
    assert!(found.len() <= 16, "{found:?}");
}

#[test]
fn harm_is_detected_and_larger_harm_sooner() {
    let mean = |found: &[u64]| found.iter().sum::<u64>() as f64 / found.len() as f64;
    let freezes = runs(20, 2.0, 1.0);
    let slow = runs(20, 1.0, 1.3);
    let slower = runs(20, 1.0, 1.6);
    assert!(freezes.len() >= 390, "{}", freezes.len());
    assert!(slow.len() >= 390 && slower.len() == 400, "{} {}", slow.len(), slower.len());
    assert!(mean(&slower) < mean(&slow), "{} {}", mean(&slower), mean(&slow));
    assert!(mean(&slower) < 24.0, "{}", mean(&slower));
}

#[test]
fn beneficial_treatment_is_never_turned_off() {
    assert!(runs(20, 0.5, 0.7).is_empty());
}

#[test]
fn a_group_is_off_for_a_day_and_its_counts_restart() {
    let mut rng = Rng(1);
    let mut guard = Guard::default();
    let mut evaluate = |guard: &mut Guard, freezes, time| {
        let treated = sums(&mut rng, 500, freezes, 1.0);
        guard.add("BR", &treated, &sums(&mut rng, 500, 1.0, 1.0));
        guard.evaluate(time);
        guard.off().count()
    };
    let begin = 1_800_000_000;
    assert_eq!(evaluate(&mut guard, 5.0, begin), 1);
    let counts = guard.counts("BR").expect("known");
    assert_eq!((counts.off, &counts.harm[..]), (Some(begin), &[Harm::Freezes][..]));
    // Outcomes are ignored meanwhile, and the reason stays.
    assert_eq!(evaluate(&mut guard, 9.0, begin + 1_800), 1);
    assert_eq!(evaluate(&mut guard, 9.0, begin + OFF_DURATION - 1), 1);
    assert_eq!(guard.counts("BR"), Some(counts));
    guard.evaluate(begin + OFF_DURATION);
    assert_eq!(guard.off().count(), 0);
    let counts = guard.counts("BR").expect("known");
    assert_eq!((counts.off, counts.treated), (None, [0; OUTCOMES]));
    assert_eq!(evaluate(&mut guard, 1.0, begin + OFF_DURATION + 1_800), 0);
    assert_eq!(evaluate(&mut guard, 5.0, begin + OFF_DURATION + 3_600), 1);
}

#[test]
fn a_group_that_is_off_does_not_count_for_its_ancestors() {
    let mut rng = Rng(1);
    let mut guard = Guard::default();
    let equal = sums(&mut rng, 5_000, 1.0, 1.0);
    guard.add("BR/AS2", &sums(&mut rng, 5_000, 0.5, 1.0), &equal);
    let treated = sums(&mut rng, 500, 5.0, 1.0);
    guard.add("BR/AS1/SP", &treated, &sums(&mut rng, 500, 1.0, 1.0));
    guard.evaluate(1_800_000_000);
    // The country as a whole shows no harm.
    assert_eq!(guard.off().collect::<Vec<_>>(), ["BR/AS1", "BR/AS1/SP"]);
    let before = guard.counts("BR");
    guard.add("BR/AS1/SP", &equal, &equal);
    guard.add("BR/AS1/RJ", &equal, &equal);
    assert_eq!((guard.counts("BR"), guard.counts("BR/AS1/RJ")), (before.clone(), None));
    guard.add("BR/AS2", &equal, &equal);
    assert_ne!(guard.counts("BR"), before);
}

#[test]
fn too_few_sessions_or_impossible_sums_turn_no_group_off() {
    let mut rng = Rng(1);
    let mut guard = Guard::default();
    let treated = sums(&mut rng, 99, 50.0, 9.0);
    guard.add("BR", &treated, &sums(&mut rng, 10_000, 1.0, 1.0));
    guard.add("none", &[0; OUTCOMES], &[0; OUTCOMES]);
    // Impossible sums must not panic.
    (0..2).for_each(|_| guard.add("huge", &[i64::MAX; OUTCOMES], &[i64::MAX; OUTCOMES]));
    guard.evaluate(1_800_000_000);
    assert_eq!(guard.off().filter(|name| *name != "huge").count(), 0);
}

#[test]
fn the_state_survives_a_restart_and_damage_is_detected() {
    let mut rng = Rng(1);
    let mut guard = Guard::default();
    let treated = sums(&mut rng, 500, 5.0, 1.0);
    guard.add("BR/AS1/SP/São Paulo, Sul", &treated, &sums(&mut rng, 500, 1.0, 1.0));
    guard.evaluate(1_800_000_000);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("guard.csv");
    assert_eq!(Guard::read(&path).expect("missing"), Guard::default());
    guard.write(&path).expect("written");
    assert_eq!(Guard::read(&path).expect("read"), guard);
    assert!(!guard.is_due(1_800_000_000) && guard.is_due(1_800_001_800));
    let text = std::fs::read_to_string(&path).expect("there");
    std::fs::write(&path, &text[..text.len() - 30]).expect("written");
    let e = Guard::read(&path).expect_err("truncated").to_string();
    assert!(e.ends_with("guard.csv: the file is damaged"), "{e}");
}
