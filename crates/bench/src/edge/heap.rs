//! A relay in this process with a counting allocator: heap per viewer, including event loops,
//! tables and sessions.

use std::io::{BufRead as _, stdin};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use edge::Edge;
use edge::config::Config;
use stats_alloc::INSTRUMENTED_SYSTEM;

use super::media::GROUP;
use super::{quinn_relay, servers};
use crate::Failure;

/// The cached part of the stream varies within a group of pictures, so whole groups are averaged.
const AVERAGING_TIME: Duration = Duration::from_secs(2 * GROUP.as_secs());

/// Serve until killed; print the heap in use for each line read
#[derive(Debug, clap::Args)]
pub(crate) struct Heap {
    /// Server: `mendcast` or `quinn`
    name: String,
    /// Directory with `chain.pem` and `key.pem`
    dir: PathBuf,
}

impl Heap {
    pub(crate) fn run(self) -> Result<(), Failure> {
        std::thread::spawn(|| {
            for _ in stdin().lock().lines() {
                println!("{}", in_use());
            }
        });
        match self.name.as_str() {
            "mendcast" => serve(&self.dir),
            "quinn" => quinn_relay::run(&self.dir),
            other => Err(format!("no server `{other}`").into()),
        }
    }
}

fn in_use() -> f64 {
    let (end, mut sum, mut samples) = (Instant::now() + AVERAGING_TIME, 0.0, 0u32);
    while Instant::now() < end {
        let stats = INSTRUMENTED_SYSTEM.stats();
        sum += stats.bytes_allocated as f64 - stats.bytes_deallocated as f64;
        samples += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    sum / f64::from(samples)
}

fn serve(dir: &Path) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = Config::load(&servers::edge_config(dir, 1)?)?;
        let edge = Edge::open(config)?;
        if let (Some(quic), Some(rtmp)) = (edge.listeners().first(), edge.rtmp().first()) {
            println!("listening {} {rtmp}", quic.address);
        }
        edge.serve().await.map_err(Into::into)
    })
}
