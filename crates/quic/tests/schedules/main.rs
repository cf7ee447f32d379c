//! Random schedules against a connection, and those that once failed: see `drive`. Of every kind of
//! failure the shortest schedule that was found is printed, as a list of its steps and as bytes for
//! a file in `corpus`.

mod drive;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use drive::{Report, drive};

/// Schedules that are tried; `make fuzz` sets more.
const CASES: u64 = 3_000;
/// Real time after which a schedule counts as hanging: the longest take a second in a debug build.
const HANGS_AFTER: Duration = Duration::from_secs(30);
/// Runs that may be spent on making one failing schedule shorter.
const CUTS: u32 = 3_000;

/// Name of threads whose panics are recorded instead of printed.
const QUIET: &str = "schedules";

thread_local! {
    /// Where the last panic of this thread happened, and its message.
    static PANIC: RefCell<(String, String)> =
        const { RefCell::new((String::new(), String::new())) };
}

/// A schedule that failed.
struct Failure {
    name: String,
    bytes: Vec<u8>,
    message: String,
    count: u64,
}

/// The schedule of a seed: a few steps, or hundreds.
fn schedule(seed: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let most = 1 << (6 + rng.next_u64() % 6);
    let mut bytes = vec![0; 20 + (rng.next_u64() % most) as usize];
    rng.fill_bytes(&mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Carries out a schedule; where it fails and why, if it does.
fn attempt(bytes: &[u8]) -> Result<Report, (String, String)> {
    catch_unwind(AssertUnwindSafe(|| drive(bytes, false))).map_err(|_| PANIC.take())
}

/// A shorter schedule that fails in the same place.
fn shortened(mut bytes: Vec<u8>, place: &str) -> Vec<u8> {
    let mut left = CUTS;
    let mut size = bytes.len().next_power_of_two() / 2;
    while size > 0 && left > 0 {
        let mut at = 0;
        while at < bytes.len() && left > 0 {
            let mut shorter = bytes.clone();
            shorter.drain(at..(at + size).min(bytes.len()));
            left -= 1;
            match attempt(&shorter) {
                Err((other, _)) if other == place => bytes = shorter,
                _ => at += size,
            }
        }
        size /= 2;
    }
    bytes
}

/// The schedule under way, and how many were begun.
static CURRENT: Mutex<(String, Vec<u8>)> = Mutex::new((String::new(), Vec::new()));
static BEGUN: AtomicU64 = AtomicU64::new(0);

type Outcome = (Vec<Report>, BTreeMap<String, Failure>);

/// Carries out schedules one after the other: what those did that came to their end, and the
/// failures of the others by place.
fn try_each(schedules: impl Iterator<Item = (String, Vec<u8>)>) -> Outcome {
    let (mut reports, mut failures) = (Vec::new(), BTreeMap::<String, Failure>::new());
    for (name, bytes) in schedules {
        *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = (name.clone(), bytes.clone());
        BEGUN.fetch_add(1, Relaxed);
        let (place, message) = match attempt(&bytes) {
            Ok(report) => {
                reports.push(report);
                continue;
            }
            Err(failure) => failure,
        };
        let known = failures.remove(&place);
        let count = 1 + known.as_ref().map_or(0, |failure| failure.count);
        let failure = match known {
            Some(known) if known.bytes.len() <= bytes.len() => Failure { count, ..known },
            _ => Failure { name, bytes, message, count },
        };
        failures.insert(place, failure);
    }
    (reports, failures)
}

/// Runs the tests of this file one after the other, since another thread's allocations would count
/// as the server's.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same on a thread of its own, so that a schedule that hangs is noticed. Meanwhile this thread
/// allocates nothing.
fn try_all(schedules: impl Iterator<Item = (String, Vec<u8>)> + Send + 'static) -> Outcome {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        PANIC.set((place, info.to_string()));
        if std::thread::current().name() != Some(QUIET) {
            eprintln!("{info}");
        }
    }));
    let named = std::thread::Builder::new().name(QUIET.into());
    let worker = named.spawn(|| try_each(schedules)).expect("a thread");
    let (mut seen, mut since) = (0, Instant::now());
    while !worker.is_finished() {
        std::thread::sleep(Duration::from_millis(5));
        let begun = BEGUN.load(Relaxed);
        if begun != seen {
            (seen, since) = (begun, Instant::now());
        }
        if since.elapsed() > HANGS_AFTER {
            let (name, bytes) = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let again = bytes.clone();
            std::thread::spawn(move || drive(&again, true));
            std::thread::sleep(HANGS_AFTER / 3);
            panic!("{name} hangs in its last step above: {}", hex(&bytes));
        }
    }
    worker.join().expect("failures are caught")
}

/// Fails if any of these schedules does.
fn all_must_pass(schedules: impl Iterator<Item = (String, Vec<u8>)> + Send + 'static) -> u64 {
    let _alone = alone();
    let (reports, failures) = try_all(schedules);
    let kinds = failures.len();
    for (place, failure) in failures {
        tell_failure(&place, failure);
    }
    assert_eq!(kinds, 0, "kinds of failure, beside {} schedules that passed", reports.len());
    reports.len() as u64
}

fn tell_failure(place: &str, failure: Failure) {
    let Failure { name, bytes, message, count } = failure;
    eprintln!("\n{message}\n{count} times, the shortest is {name}: {}", hex(&bytes));
    let place = place.to_owned();
    let work = move || {
        let shorter = shortened(bytes, &place);
        eprintln!("made shorter: {}", hex(&shorter));
        // A file that `MENDCAST_SCHEDULES` can name.
        let name = name.rsplit('/').next().unwrap_or_default().replace(' ', "-");
        let file = std::env::temp_dir().join(format!("{name}-shorter"));
        if std::fs::write(&file, &shorter).is_ok() {
            eprintln!("written to {}", file.display());
        }
        eprintln!("step by step:");
        drive(&shorter, true);
    };
    let named = std::thread::Builder::new().name(QUIET.into());
    let _ = named.spawn(work).expect("a thread").join();
}

/// `MENDCAST_CASES` sets how many schedules are tried, `MENDCAST_SEED` the first seed.
#[test]
fn whatever_comes_connections_keep_their_promises() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let cases: u64 = number("MENDCAST_CASES").unwrap_or(CASES);
    let first = number("MENDCAST_SEED").unwrap_or(0);
    let seeds = first..first + cases;
    let passed = all_must_pass(seeds.map(|seed| (format!("seed {seed}"), schedule(seed))));
    assert_eq!(passed, cases);
}

/// Schedules that failed once, and some that reach far: the files of `corpus`, or the file or the
/// directory that `MENDCAST_SCHEDULES` names.
#[test]
fn schedules_that_failed_once_pass() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schedules/corpus");
    let place = std::env::var("MENDCAST_SCHEDULES").unwrap_or_else(|_| corpus.into());
    let place = std::path::Path::new(&place);
    let mut files: Vec<_> = match std::fs::read_dir(place) {
        Ok(entries) => entries.map(|entry| entry.expect("an entry").path()).collect(),
        Err(_) => vec![place.to_owned()],
    };
    files.sort();
    let count = files.len() as u64;
    assert!(count > 0, "no schedules in {}", place.display());
    let read = |file: std::path::PathBuf| {
        let bytes = std::fs::read(&file).expect("a readable file");
        (file.display().to_string(), bytes)
    };
    assert_eq!(all_must_pass(files.into_iter().map(read)), count);
}

/// Prints how far random schedules get.
#[test]
#[ignore = "prints figures for people"]
fn how_far_schedules_get() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let cases: u64 = number("MENDCAST_CASES").unwrap_or(CASES);
    let _alone = alone();
    let begun = Instant::now();
    let (reports, _) = try_all((0..cases).map(|seed| (format!("seed {seed}"), schedule(seed))));
    let time = begun.elapsed();
    println!("{} schedules in {time:?}", reports.len());
    let tell = |name: &str, value: &dyn Fn(&Report) -> u64| {
        let values: Vec<u64> = reports.iter().map(value).collect();
        let some = values.iter().filter(|&&value| value > 0).count();
        let (sum, max) = (values.iter().sum::<u64>(), values.iter().max().copied().unwrap_or(0));
        println!("{name:20} in {some:6} schedules, {sum:9} in all, at most {max}");
    };
    tell("steps", &|r| r.steps.iter().map(|&n| u64::from(n)).sum());
    tell("datagrams", &|r| r.datagrams);
    tell("lost", &|r| r.counts.lost);
    tell("retransmissions", &|r| r.counts.retransmissions);
    tell("replicas", &|r| r.counts.replicas);
    tell("probes", &|r| r.counts.probes);
    tell("MTU probes", &|r| r.counts.mtu_probes);
    tell("key updates", &|r| r.counts.key_updates);
    tell("migrations", &|r| r.counts.migrations);
    tell("congestion events", &|r| r.congestion_events);
    tell("probe time-outs", &|r| r.timeouts);
    tell("closed", &|r| u64::from(r.closed.is_some()));
    tell("healed", &|r| u64::from(r.healed));
    tell("memory", &|r| r.most.memory);
    tell("span", &|r| r.most.span);
    tell("written alive", &|r| r.most.written_alive);
    tell("idle wake-ups", &|r| u64::from(r.most.idle_wakeups));
    tell("transmits", &|r| u64::from(r.most.transmits));
    tell("window", &|r| r.most.window);
    tell("memory beyond", &|r| r.most.over);
    tell("kept", &|r| r.most.kept);
    let mut reasons = BTreeMap::<&str, u32>::new();
    for reason in reports.iter().filter_map(|report| report.closed.as_deref()) {
        *reasons.entry(reason).or_default() += 1;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    reasons.iter().take(25).for_each(|(reason, count)| println!("{count:6} closed by {reason}"));
}
