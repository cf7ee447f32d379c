//! TCP viewers by number of server threads. One thread saturates long before the machine does if
//! the others are idle: the distribution of the work decides the number of viewers, and costs CPU
//! time itself.
//!
//! The kernel accounts for the server's part of loopback where it happens. Acknowledgements that
//! arrive while the viewers' process is in the kernel count as that process's time, with one thread
//! as with two.

use super::cost::Cost;
use super::media::RATE;
use crate::Failure;
use crate::report::{BenchReport, PeerTarget};

/// Prefix of the server's TCP thread names.
const NAME: &str = "tcp-";

/// Shares of a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    /// All TCP threads together.
    all: f64,
    /// The busiest of them.
    busiest: f64,
}

impl Load {
    fn of(threads: &[(String, f64)]) -> Result<Self, Failure> {
        let tcp = threads.iter().filter(|(name, _)| name.starts_with(NAME));
        let tcp: Vec<f64> = tcp.map(|(_, share)| *share).collect();
        let load = Self { all: tcp.iter().sum(), busiest: tcp.iter().copied().fold(0.0, f64::max) };
        match load.busiest > 0.0 {
            true => Ok(load),
            false => {
                Err(format!("no thread {NAME}N of the server used CPU time: {threads:?}").into())
            }
        }
    }

    /// Returns the busiest thread's share of all work.
    fn share(&self) -> f64 {
        self.busiest / self.all
    }

    /// Number of viewers that saturates the busiest thread, if work is proportional to their number
    /// and distributed as with `viewers`.
    fn full_at(&self, viewers: usize) -> f64 {
        viewers as f64 / self.busiest
    }
}

/// Prints the distribution of the work.
pub(super) fn tell(cost: &Cost) -> Result<(), Failure> {
    let load = Load::of(&cost.threads)?;
    let named = cost.threads.iter().filter(|(_, share)| *share >= 0.000_5);
    let named = named.map(|(name, share)| format!("{name} {:.1} %", share * 100.0));
    println!("        by thread: {}", named.collect::<Vec<_>>().join(", "));
    let full_at = load.full_at(cost.viewers);
    println!(
        "        the busiest thread has {:.0} % of TCP's work; extrapolated, it saturates at \
         {full_at:.0} viewers, {:.1} Gbit/s",
        load.share() * 100.0,
        full_at * RATE / 1e9
    );
    Ok(())
}

/// Adds the rows: two threads against one, by round.
pub(super) fn compare(report: &mut BenchReport, one: &[Cost], two: &[Cost]) -> Result<(), Failure> {
    if one.is_empty() || two.is_empty() {
        return Ok(());
    }
    let pairs = |value: &dyn Fn(&Cost) -> Result<f64, Failure>| {
        let rounds = two.iter().zip(one).map(|(two, one)| Ok((value(two)?, value(one)?)));
        rounds.collect::<Result<Vec<_>, Failure>>()
    };
    let load = |cost: &Cost| Load::of(&cost.threads);
    let peer = "1 thread";
    let rows = [
        (
            ("edge_h2_cpu_per_viewer_hour", "CPU s"),
            pairs(&|cost| Ok(cost.per_viewer_hour()))?,
            PeerTarget::RatioAtMost(1.1),
        ),
        (
            ("edge_h2_viewers_per_core", "viewers"),
            pairs(&|cost| Ok(3_600.0 / cost.per_viewer_hour()))?,
            PeerTarget::RatioAtLeast(0.9),
        ),
        (
            ("edge_h2_busiest_thread", "of TCP's work"),
            pairs(&|cost| Ok(load(cost)?.share()))?,
            PeerTarget::RatioAtMost(0.6),
        ),
        (
            ("edge_h2_viewers_until_full", "viewers, extrapolated"),
            pairs(&|cost| Ok(load(cost)?.full_at(cost.viewers)))?,
            PeerTarget::RatioAtLeast(1.5),
        ),
    ];
    for (what, rounds, target) in rows {
        report.add_pairs(what, peer, &rounds, target);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(shares: &[(&str, f64)]) -> Vec<(String, f64)> {
        shares.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect()
    }

    #[test]
    fn the_busiest_tcp_thread_limits_the_number_of_viewers() {
        let one = Load::of(&threads(&[("quic-0", 0.9), ("tcp-0", 0.4)])).expect("there is one");
        assert_eq!((one.share(), one.full_at(500)), (1.0, 1_250.0));
        let two = Load::of(&threads(&[("tcp-1", 0.25), ("mendcast", 0.2), ("tcp-0", 0.15)]));
        let two = two.expect("there are two");
        assert!((two.share() - 0.625).abs() < 1e-9, "{two:?}");
        assert_eq!(two.full_at(500), 2_000.0);
    }

    #[test]
    fn a_server_whose_threads_for_tcp_did_nothing_is_an_error() {
        for idle in [&[("quic-0", 0.9)][..], &[("tcp-0", 0.0), ("quic-0", 0.9)]] {
            assert!(Load::of(&threads(idle)).is_err());
        }
    }
}
