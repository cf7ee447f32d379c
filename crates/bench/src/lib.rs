//! Side-by-side benchmarks: our transport and its peers get the same client, cipher, datagram size
//! and windows, and alternate, so load on the machine slows all of them alike. `make bench` prints
//! the ratios and writes `bench.json`.
//!
//! There are two programs. `mendcast-bench` measures, with a counting allocator.
//! `mendcast-bench-peer` contains the peer servers. It has the product's allocator, so no
//! contestant has a better one.

#![forbid(unsafe_code)]

mod client;
mod counted;
mod edge;
mod identity;
mod loopback;
mod memory;
mod repair;
mod report;
mod simulation;
mod startup;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use report::BenchReport;

/// An error of a benchmark, printed as one line.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(about = "Benchmarks of mendcast and its peers")]
struct Arguments {
    #[command(subcommand)]
    role: Option<ProcessRole>,
    /// Use fewer bytes and rounds, for a smoke test
    #[arg(long, global = true)]
    quick: bool,
    /// File for the results
    #[arg(long, global = true, default_value = "bench.json", value_name = "FILE")]
    out: PathBuf,
    /// Server under test [default: the `mendcast` next to this program]
    #[arg(long, global = true, value_name = "FILE")]
    mendcast: Option<PathBuf>,
    /// Program with the separately built peers (peers/); omit to skip them
    #[arg(long, global = true, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Only benchmarks with this in their names
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// A single benchmark, and the processes that benchmarks start.
#[derive(Debug, Subcommand)]
enum ProcessRole {
    /// Measure the cost of a live viewer
    Edge(edge::LiveCost),
    /// Measure the cost of live viewers of several products
    Products(edge::Products),
    /// Run viewers on a lossy link for half an hour
    Soak(edge::Soak),
    /// Measure what connections without requests cost
    Idle(edge::Idle),
    /// Measure whether the cost of a viewer grows with streams and viewers
    Scale(edge::Scale),
    /// Measure how evenly servers send
    Pacing(loopback::Pacing),
    /// Run a workload whose instructions `bench/instructions` counts
    Count(counted::Counted),
    /// Viewers of the live benchmark
    #[command(hide = true)]
    Watch(edge::Watch),
    /// Server of the live benchmark with a counted heap
    #[command(hide = true)]
    Heap(edge::Heap),
    /// Client of the loopback benchmark
    #[command(hide = true)]
    Fetch(loopback::Fetch),
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let mendcast = || match &arguments.mendcast {
        Some(path) => Ok(path.clone()),
        None => {
            let own = std::env::current_exe().map_err(Failure::from);
            own.map(|own| own.with_file_name("mendcast"))
        }
    };
    match arguments.role {
        Some(ProcessRole::Count(counted)) => return counted.run(),
        Some(ProcessRole::Fetch(fetch)) => return fetch.run(),
        Some(ProcessRole::Watch(watch)) => return watch.run(),
        Some(ProcessRole::Heap(heap)) => return heap.run(),
        Some(ProcessRole::Soak(soak)) => return soak.run(mendcast()?),
        Some(ProcessRole::Idle(idle)) => return idle.run(arguments.quick, mendcast()?),
        Some(ProcessRole::Scale(scale)) => return scale.run(arguments.quick, mendcast()?),
        Some(ProcessRole::Edge(live)) => {
            let mut report = BenchReport::new();
            live.run(&mut report, arguments.quick, mendcast()?)?;
            return report.write(&arguments.out);
        }
        Some(ProcessRole::Products(products)) => {
            let mut report = BenchReport::new();
            products.run(&mut report, arguments.quick, mendcast()?)?;
            return report.write(&arguments.out);
        }
        Some(ProcessRole::Pacing(pacing)) => {
            let mut report = BenchReport::new();
            pacing.run(&mut report, arguments.quick, mendcast()?, arguments.peers)?;
            return report.write(&arguments.out);
        }
        None => {}
    }
    let scale = if arguments.quick { 8 } else { 1 };
    let rounds = if arguments.quick { 2 } else { 5 };
    let mut report = BenchReport::new();
    let wanted = |name: &str| name.contains(&arguments.only);
    if wanted("server_cpu_per_gbit") {
        memory::measure_cpu(&mut report, rounds, (512 << 20) / scale)?;
    }
    if wanted("idle_connection_heap") || wanted("shared_payload_heap") {
        memory::measure_heap(&mut report, 1_000 / scale as u16)?;
    }
    repair::measure(&mut report, &wanted, arguments.quick)?;
    startup::measure(&mut report, &wanted, arguments.quick);
    if wanted("handshake_with_cookie") {
        memory::measure_returning(&mut report, rounds, 400 / scale as usize)?;
    }
    if wanted("sim_packets_per_cpu_second") {
        simulation::measure(&mut report, rounds, (128 << 20) / scale)?;
    }
    if wanted("loopback_gbit_per_cpu_second") {
        let peers = arguments.peers.as_deref();
        loopback::measure(&mut report, rounds, 1_024 / scale as usize, &mendcast()?, peers)?;
    }
    if wanted("wake_probe_timeouts") || wanted("wake_spurious_losses") {
        edge::measure_wake(&mut report, arguments.quick, mendcast()?)?;
    }
    report.write(&arguments.out)
}

/// Entry point of `mendcast-bench`.
pub fn measure() -> ExitCode {
    end("mendcast-bench", run(Arguments::parse()))
}

/// Entry point of `mendcast-bench-peer NAME DIR`: serves with `chain.pem` and `key.pem` of the
/// directory until killed. The names are `relay` (FLV on `quinn` and `h3`), `quinn` and `floor`
/// (files, without any transport).
pub fn serve() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match (arguments.next(), arguments.next()) {
        (Some(name), Some(dir)) if name == "relay" => edge::serve_relay(Path::new(&dir)),
        (Some(name), Some(dir)) => loopback::serve(&name, Path::new(&dir)),
        _ => Err("usage: mendcast-bench-peer relay|quinn|floor DIR".into()),
    };
    end("mendcast-bench-peer", result)
}

fn end(program: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
