//! Counters of the viewers, and their report to the benchmark.
//!
//! `peers/moq` compiles this file too: its viewers report in the same way, without the benchmark's
//! dependencies.

use std::io::stdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use media::flv::Kind;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use serde::{Deserialize, Serialize};

use crate::Failure;

/// Delay above which a viewer counts as late.
const LATE: Duration = Duration::from_secs(1);
/// Interval between joins.
pub(super) const JOIN_INTERVAL: Duration = Duration::from_millis(10);
/// Time for the last viewer to receive its first bytes.
const PATIENCE: Duration = Duration::from_secs(15);

/// Counters of the measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ViewMeasurement {
    /// Viewers present from start to end that received data.
    pub stayed: usize,
    /// Reason of a failure.
    pub failure: Option<String>,
    /// Viewers with a late tag.
    pub late: usize,
    /// Bytes of FLV per viewer: minimum, median, maximum.
    pub bytes: [u64; 3],
    /// Bytes of FLV of all viewers.
    pub total: u64,
    /// Delay of pictures.
    pub pictures: Delay,
    /// Delay of sound, which waits for the next picture to share its packet (`[live] merge`).
    pub sound: Delay,
    /// Mean size of a datagram in bytes.
    pub datagram: f64,
    /// This process's share of a CPU.
    pub busy: f64,
}

/// Delay of tags from publication to complete arrival.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Delay {
    /// Number of tags.
    pub tags: usize,
    /// Median, 99th percentile and maximum, in seconds.
    pub quantiles: [f64; 3],
}

impl Delay {
    /// Returns the quantiles of delays in microseconds.
    fn of(mut delays: Vec<u32>) -> Self {
        delays.sort_unstable();
        let tags = delays.len();
        if tags == 0 {
            return Self::default();
        }
        let quantile = |share| f64::from(delays[rank(tags, share)]) / 1e6;
        Self { tags, quantiles: [0.5, 0.99, 1.0].map(quantile) }
    }

    /// Returns the quantiles in milliseconds, as text.
    pub(super) fn text(&self) -> String {
        let [median, p99, maximum] = self.quantiles.map(|seconds| seconds * 1e3);
        format!("median {median:.1} ms, p99 {p99:.1} ms, maximum {maximum:.1} ms")
    }
}

/// Returns the index of a quantile among `length` sorted values.
fn rank(length: usize, share: f64) -> usize {
    ((length as f64 * share) as usize).min(length.saturating_sub(1))
}

/// Counters of one viewer.
#[derive(Default)]
pub(super) struct ViewerCounters {
    pub has_joined: bool,
    pub failure: Option<String>,
    /// Bytes of FLV.
    pub bytes: u64,
    /// Delays of pictures and sound, in microseconds.
    delays: [Vec<u32>; 2],
    /// Returns the received bytes and datagrams of UDP.
    pub udp: Option<Box<dyn Fn() -> (u64, u64) + Send>>,
}

impl ViewerCounters {
    /// Counts a tag that was published and received at these times in nanoseconds.
    pub(super) fn arrived(&mut self, kind: Kind, published: u64, now: u64) {
        let delay = (now.saturating_sub(published) / 1_000) as u32;
        self.delays[usize::from(kind == Kind::Audio)].push(delay);
    }
}

/// A viewer, shared by its task and the report.
#[derive(Default)]
pub(super) struct CountedViewer {
    tally: Mutex<ViewerCounters>,
}

impl CountedViewer {
    pub(super) fn tally(&self) -> MutexGuard<'_, ViewerCounters> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Raises the limit of open files, because a viewer needs a descriptor. If the limit is too low,
/// some viewers fail with an error.
pub(super) fn raise_file_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Prints `ready JOINED FAILURE` once every viewer has its first bytes or has failed, sets `counts`
/// between the next two lines of standard input, and prints the counters as JSON.
///
/// # Errors
/// Standard input is closed.
pub(super) fn report(viewers: &[Arc<CountedViewer>], counts: &AtomicBool) -> Result<(), Failure> {
    let end = Instant::now() + JOIN_INTERVAL * viewers.len() as u32 + PATIENCE;
    let settled = |viewer: &Arc<CountedViewer>| {
        let tally = viewer.tally();
        tally.has_joined || tally.failure.is_some()
    };
    while !viewers.iter().all(settled) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    let joined = viewers.iter().filter(|viewer| viewer.tally().has_joined).count();
    let failure = viewers.iter().find_map(|viewer| viewer.tally().failure.clone());
    println!("ready {joined} {}", failure.as_deref().unwrap_or("too late").replace('\n', " "));

    let line = || match stdin().read_line(&mut String::new()) {
        Ok(0) => Err("the benchmark has ended".into()),
        Ok(_) => Ok(()),
        Err(e) => Err(Failure::from(e)),
    };
    line()?;
    let (cpu, start) = (own_cpu()?, Instant::now());
    counts.store(true, Ordering::Relaxed);
    line()?;
    counts.store(false, Ordering::Relaxed);
    let cpu = own_cpu()? - cpu;
    let mut seen = summary(viewers);
    seen.busy = cpu.as_secs_f64() / start.elapsed().as_secs_f64();
    println!("{}", serde_json::to_string(&seen)?);
    Ok(())
}

/// Returns the CPU time of this process.
fn own_cpu() -> Result<Duration, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |time: nix::sys::time::TimeVal| {
        Duration::new(time.tv_sec() as u64, 0) + Duration::from_micros(time.tv_usec() as u64)
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}

fn summary(viewers: &[Arc<CountedViewer>]) -> ViewMeasurement {
    let mut seen = ViewMeasurement::default();
    let (mut bytes, mut delays) = (Vec::new(), [Vec::new(), Vec::new()]);
    let (mut received, mut datagrams) = (0, 0);
    for viewer in viewers {
        let tally = viewer.tally();
        bytes.push(tally.bytes);
        if tally.failure.is_none() && tally.bytes > 0 {
            seen.stayed += 1;
        }
        seen.failure = seen.failure.or_else(|| tally.failure.clone());
        let late = |&delay: &u32| u128::from(delay) > LATE.as_micros();
        seen.late += usize::from(tally.delays.iter().flatten().any(late));
        for (all, own) in delays.iter_mut().zip(&tally.delays) {
            all.extend_from_slice(own);
        }
        if let Some(udp) = &tally.udp {
            let (bytes, count) = udp();
            received += bytes;
            datagrams += count;
        }
    }
    bytes.sort_unstable();
    seen.total = bytes.iter().sum();
    seen.bytes = [0.0, 0.5, 1.0].map(|share| bytes.get(rank(bytes.len(), share)).map_or(0, |b| *b));
    [seen.pictures, seen.sound] = delays.map(Delay::of);
    seen.datagram = if datagrams > 0 { received as f64 / datagrams as f64 } else { 0.0 };
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_late_and_lost_viewers() {
        let viewers: Vec<Arc<CountedViewer>> = (0..10).map(|_| Arc::default()).collect();
        for (index, viewer) in viewers.iter().enumerate() {
            let mut tally = viewer.tally();
            tally.bytes = 1_000 + index as u64;
            tally.delays = [(1..=100).map(|n| n * 1_000).collect(), vec![7_000]];
        }
        viewers[3].tally().delays[0].push(1_500_000);
        viewers[4].tally().failure = Some("gone".to_owned());
        let seen = summary(&viewers);
        assert_eq!((seen.stayed, seen.late, seen.pictures.tags), (9, 1, 1_001));
        assert_eq!((seen.sound.tags, seen.sound.quantiles), (10, [0.007; 3]));
        assert_eq!((seen.bytes, seen.total), ([1_000, 1_005, 1_009], 10_045));
        let [_, p99, maximum] = seen.pictures.quantiles;
        assert_eq!(maximum, 1.5);
        assert!((0.098..=0.1).contains(&p99), "{p99}");
        assert_eq!(seen.failure.as_deref(), Some("gone"));
    }
}
