//! How evenly servers send (RFC 9002, section 7.7): gaps between the datagrams of a long download,
//! against the gaps of an even sender with the rates just before and just after. A gap between the
//! two has no error, so a new rate is none. A sender that waits for acknowledgements (a full
//! window) has errors, because it sends when they arrive.
//!
//! Every server sends through the same link, in turns. A tap beside the server notes when each
//! datagram leaves; see [`tap`](super::tap).

use std::path::PathBuf;
use std::time::Duration;

use qoe::stats::Sample;

use super::tap::{Departure, Tap};
use super::{ServerProgram, fetch, identity_dir, receive_errors, start};
use crate::Failure;
use crate::edge::link;
use crate::report::{BenchReport, PeerTarget, Samples};

/// Start of a download that does not count: slow start.
const STARTUP: Duration = Duration::from_secs(2);
/// Time before and after a gap that tells the rate: a quarter of a round trip.
const WINDOW: Duration = Duration::from_millis(10);
/// Share of an even gap below which a datagram belongs to the same train.
const TRAIN: f64 = 0.25;

/// Measure how evenly servers send
#[derive(Debug, clap::Args)]
pub(crate) struct Pacing {
    /// Rate of the link
    #[arg(long, default_value = "20mbps", value_name = "RATE")]
    rate: String,
    /// Megabytes per download [default: 24; 8 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    megabytes: Option<u32>,
    /// Rounds [default: 5; 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,
}

/// A server with its results of all rounds.
struct Contestant<'a> {
    /// Argument of the server's program.
    name: &'static str,
    congestion: &'static str,
    program: ServerProgram<'a>,
    errors: Samples,
}

impl<'a> Contestant<'a> {
    fn new(name: &'static str, congestion: &'static str, program: ServerProgram<'a>) -> Self {
        Self { name, congestion, program, errors: Samples::default() }
    }
}

impl Pacing {
    pub(crate) fn run(
        self,
        report: &mut BenchReport,
        quick: bool,
        mendcast: PathBuf,
        peers: Option<PathBuf>,
    ) -> Result<(), Failure> {
        let megabytes = self.megabytes.unwrap_or(if quick { 8 } else { 24 }) as usize;
        let rounds = self.rounds.unwrap_or(if quick { 1 } else { 5 });
        let dir = identity_dir()?;
        let edge = |congestion| {
            Contestant::new("mendcast", congestion, ServerProgram::Edge(&mendcast, congestion))
        };
        let mut contestants =
            vec![edge("cubic"), edge("bbr"), Contestant::new("quinn", "cubic", ServerProgram::Own)];
        match peers.as_deref().filter(|program| program.exists()) {
            Some(program) => {
                // The CUBIC of `quiche` does not pace.
                for (name, congestion) in [("quiche-paced", "bbr2"), ("s2n-quic", "cubic")] {
                    let program = ServerProgram::Peer(program);
                    contestants.push(Contestant::new(name, congestion, program));
                }
            }
            None => println!("skipped: quiche and s2n-quic (no program at --peers)"),
        }
        let flags = ["--rate", &self.rate, "--rtt", "40ms", "--queue", "200kB"];
        println!("link: {}", flags.join(" "));
        println!(
            "| server | congestion | Mbit/s | even gap | error p50 | error p99 | train p50 | p99 \
             | lost |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        for _ in 0..rounds {
            for contestant in &mut contestants {
                let server = start(&contestant.program, contestant.name, dir.path())?;
                let tap = Tap::start(server.address)?;
                let (_link, address) = link::start(&mendcast, tap.address, &flags)?;
                let errors = receive_errors();
                fetch("quic", address, dir.path(), megabytes)?;
                let lost = receive_errors() - errors;
                let departures = tap.end()?;
                let Some(gaps) = Gaps::of(&departures) else {
                    return Err(format!("{}: the download is too short", contestant.name).into());
                };
                println!(
                    "| {} | {} | {:.1} | {:.0} us | {:.0} us | {:.0} us | {:.0} | {:.0} | {lost} |",
                    contestant.name,
                    contestant.congestion,
                    gaps.rate / 1e6,
                    gaps.even * 1e6,
                    gaps.error[0] * 1e6,
                    gaps.error[1] * 1e6,
                    gaps.train[0],
                    gaps.train[1],
                );
                contestant.errors.push(gaps.error[1] * 1e6);
            }
        }
        let (ours, others) = contestants.split_at(2);
        for peer in others {
            let of_kind = if peer.congestion == "cubic" { &ours[0] } else { &ours[1] };
            let what = ("pacing_gap_error_p99", "us");
            let peer = (peer.name, &peer.errors);
            report.add(what, &of_kind.errors, peer, PeerTarget::RatioAtMost(1.0));
        }
        Ok(())
    }
}

/// Gaps of a download after its start. Times in seconds.
#[derive(Debug, PartialEq)]
struct Gaps {
    /// Bits per second.
    rate: f64,
    /// Median gap of an even sender.
    even: f64,
    /// Difference of a gap from the even one, p50 and p99.
    error: [f64; 2],
    /// Datagrams per train, p50 and p99 of trains.
    train: [f64; 2],
}

impl Gaps {
    /// Evaluates departures, in order. Returns `None` if there are too few.
    fn of(departures: &[Departure]) -> Option<Self> {
        let start = departures.first()?.at + STARTUP;
        // The window of the last gaps would contain the end of the download.
        let end = departures.last()?.at.checked_sub(WINDOW)?;
        let (mut errors, mut evens, mut trains) = (Vec::new(), Vec::new(), vec![1.0]);
        let (mut began, mut ended, mut bytes) = (None, Duration::ZERO, 0);
        // Index of the first datagram that left at a time or later.
        let index = |at| departures.partition_point(|departure| departure.at < at);
        for pair in departures.windows(2) {
            let (previous, this) = (pair[0], pair[1]);
            if previous.at < start || this.at > end {
                continue;
            }
            let gap = this.at.saturating_sub(previous.at).as_secs_f64();
            let before = index(previous.at - WINDOW)..index(previous.at);
            let after = index(this.at)..index(this.at + WINDOW);
            let mut even = [before, after].into_iter().filter_map(|range| {
                let bytes: usize = departures[range].iter().map(|departure| departure.bytes).sum();
                (bytes > 0).then(|| WINDOW.as_secs_f64() * this.bytes as f64 / bytes as f64)
            });
            let Some(first) = even.next() else { continue };
            let second = even.next().unwrap_or(first);
            let even = gap.clamp(first.min(second), first.max(second));
            errors.push((gap - even).abs());
            evens.push(even);
            match trains.last_mut() {
                Some(train) if gap < TRAIN * even => *train += 1.0,
                _ => trains.push(1.0),
            }
            (began, ended) = (began.or(Some(previous.at)), this.at);
            bytes += this.bytes;
        }
        let (errors, trains) = (Sample::new(errors)?, Sample::new(trains)?);
        Some(Self {
            rate: bytes as f64 * 8.0 / (ended - began?).as_secs_f64(),
            even: Sample::new(evens)?.quantile(0.5),
            error: [0.5, 0.99].map(|order| errors.quantile(order)),
            train: [0.5, 0.99].map(|order| trains.quantile(order)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns ten seconds of trains, a millisecond per datagram on average.
    fn trains(length: u64) -> Vec<Departure> {
        let departure = |number| Departure {
            at: Duration::from_millis(1_000_000 + number / length * length),
            bytes: 1_250,
        };
        (0..10_000).map(departure).collect()
    }

    #[test]
    fn an_even_sender_has_no_error_and_trains_show() {
        let even = Gaps::of(&trains(1)).expect("long enough");
        assert!((even.rate - 10e6).abs() < 1e3 && (even.even - 1e-3).abs() < 1e-6, "{even:?}");
        assert!(even.error[1] < 1e-6 && even.train == [1.0, 1.0], "{even:?}");
        // Nine gaps of ten are a millisecond too short, and one is nine too long.
        let lumpy = Gaps::of(&trains(10)).expect("long enough");
        assert!((lumpy.error[0] - 1e-3).abs() < 1e-6, "{lumpy:?}");
        assert!((lumpy.error[1] - 9e-3).abs() < 1e-6, "{lumpy:?}");
        assert_eq!(lumpy.train, [10.0, 10.0]);
    }

    #[test]
    fn a_slower_rate_after_a_while_is_no_error() {
        let mut departures = trains(1);
        let last = departures[departures.len() - 1].at;
        departures.extend(
            (1..=2_500)
                .map(|n| Departure { at: last + Duration::from_millis(4 * n), bytes: 1_250 }),
        );
        let gaps = Gaps::of(&departures).expect("long enough");
        assert!(gaps.error[1] < 1e-6, "{gaps:?}");
    }

    #[test]
    fn a_short_download_has_no_gaps() {
        assert_eq!(Gaps::of(&[]), None);
        assert_eq!(Gaps::of(&trains(1)[..100]), None);
    }
}
