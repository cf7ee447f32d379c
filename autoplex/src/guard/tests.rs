//! How often the guard is wrong, and how soon it is right.

use super::*;

/// SplitMix64: seeded, and the same everywhere.
struct Chance(u64);

impl Chance {
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

/// Sessions of viewers who differ: plays of 100 s in the mean, 0.7 freezes per 100 s of which a few paths have most, first
/// frames after 200 ms in the median.
fn sums(chance: &mut Chance, sessions: usize, freezes: f64, first_frame: f64) -> Sums {
    let mut sums = [0; OUTCOMES];
    for _ in 0..sessions {
        let seconds = 10.0 + 90.0 * chance.exponential();
        let path = chance.exponential() * chance.exponential();
        let count = chance.poisson(freezes * 0.007 * seconds * path);
        let first = (200.0 * first_frame * (0.6 * chance.normal()).exp()) as i64;
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

/// After how many periods of half an hour each of 400 groups is turned off in six days, of those that are.
fn runs(sessions: usize, freezes: f64, first_frame: f64) -> Vec<u64> {
    let mut chance = Chance(7);
    let mut guards: Vec<Guard> = vec![Guard::default(); 400];
    let mut found = Vec::new();
    for period in 1..=288 {
        guards.retain_mut(|guard| {
            // Evenings are worse for all.
            let hour = 1.0 + (period % 48 > 36) as i32 as f64;
            let treated = sums(&mut chance, sessions, hour * freezes, hour * first_frame);
            guard.count("BR", &treated, &sums(&mut chance, sessions / 4, hour, hour));
            guard.judge(1_800_000_000 + 1_800 * period);
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
fn equals_are_seldom_told_apart() {
    let found = runs(20, 1.0, 1.0);
    // Two outcomes, each with a chance of a hundredth; of 400 groups 8 at most, and twice that for luck.
    assert!(found.len() <= 16, "{found:?}");
}

#[test]
fn harm_is_found_and_the_more_the_sooner() {
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
fn what_does_good_is_never_turned_off() {
    assert!(runs(20, 0.5, 0.7).is_empty());
}

#[test]
fn a_group_is_off_for_a_day_and_begins_anew() {
    let mut chance = Chance(1);
    let mut guard = Guard::default();
    let mut judge = |guard: &mut Guard, freezes, time| {
        let treated = sums(&mut chance, 500, freezes, 1.0);
        guard.count("BR", &treated, &sums(&mut chance, 500, 1.0, 1.0));
        guard.judge(time);
        guard.off().count()
    };
    let begin = 1_800_000_000;
    assert_eq!(judge(&mut guard, 5.0, begin), 1);
    let counted = guard.counted("BR").expect("known");
    assert_eq!((counted.off, &counted.harm[..]), (Some(begin), &[Harm::Freezes][..]));
    // Nobody is treated; whatever comes meanwhile is not counted, and it stays known why.
    assert_eq!(judge(&mut guard, 9.0, begin + 1_800), 1);
    assert_eq!(judge(&mut guard, 9.0, begin + OFF - 1), 1);
    assert_eq!(guard.counted("BR"), Some(counted));
    guard.judge(begin + OFF);
    assert_eq!(guard.off().count(), 0);
    let counted = guard.counted("BR").expect("known");
    assert_eq!((counted.off, counted.treated), (None, [0; OUTCOMES]));
    assert_eq!(judge(&mut guard, 1.0, begin + OFF + 1_800), 0);
    assert_eq!(judge(&mut guard, 5.0, begin + OFF + 3_600), 1, "and is turned off again");
}

#[test]
fn a_group_that_is_off_says_nothing_of_the_wider_ones() {
    let mut chance = Chance(1);
    let mut guard = Guard::default();
    let equal = sums(&mut chance, 5_000, 1.0, 1.0);
    guard.count("BR/AS2", &sums(&mut chance, 5_000, 0.5, 1.0), &equal);
    let treated = sums(&mut chance, 500, 5.0, 1.0);
    guard.count("BR/AS1/SP", &treated, &sums(&mut chance, 500, 1.0, 1.0));
    guard.judge(1_800_000_000);
    // The country as a whole fares no worse.
    assert_eq!(guard.off().collect::<Vec<_>>(), ["BR/AS1", "BR/AS1/SP"]);
    let before = guard.counted("BR");
    guard.count("BR/AS1/SP", &equal, &equal);
    guard.count("BR/AS1/RJ", &equal, &equal);
    assert_eq!((guard.counted("BR"), guard.counted("BR/AS1/RJ")), (before.clone(), None));
    guard.count("BR/AS2", &equal, &equal);
    assert_ne!(guard.counted("BR"), before);
}

#[test]
fn nothing_is_concluded_from_little_or_from_nothing() {
    let mut chance = Chance(1);
    let mut guard = Guard::default();
    let treated = sums(&mut chance, 99, 50.0, 9.0);
    guard.count("BR", &treated, &sums(&mut chance, 10_000, 1.0, 1.0));
    guard.count("none", &[0; OUTCOMES], &[0; OUTCOMES]);
    // Nobody can have seen this; it must not end the process.
    (0..2).for_each(|_| guard.count("huge", &[i64::MAX; OUTCOMES], &[i64::MAX; OUTCOMES]));
    guard.judge(1_800_000_000);
    assert_eq!(guard.off().filter(|name| *name != "huge").count(), 0);
}

#[test]
fn what_it_knows_survives_a_restart() {
    let mut chance = Chance(1);
    let mut guard = Guard::default();
    let treated = sums(&mut chance, 500, 5.0, 1.0);
    guard.count("BR/AS1/SP/São Paulo, Sul", &treated, &sums(&mut chance, 500, 1.0, 1.0));
    guard.judge(1_800_000_000);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("guard.csv");
    assert_eq!(Guard::read(&path), Ok(Guard::default()));
    guard.write(&path).expect("written");
    assert_eq!(Guard::read(&path), Ok(guard.clone()));
    assert!(!guard.is_behind(1_800_000_000) && guard.is_behind(1_800_001_800));
    let text = std::fs::read_to_string(&path).expect("there");
    std::fs::write(&path, &text[..text.len() - 30]).expect("written");
    let e = Guard::read(&path).expect_err("cut off").to_string();
    assert!(e.ends_with("guard.csv: it is damaged"), "{e}");
}
