//! Cost of a viewer as streams and viewers grow: whether a loop, queue or table grows with their
//! number. Streams have a low rate, so that two cores serve ten thousand viewers and receive for
//! them. The viewers are those of the live benchmark, over HTTP/3 and loopback.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::identity;
use super::media::{Streams, TagSource};
use super::publisher::Publisher;
use super::servers::{self, Contestant};
use super::turn::{self, Feed};
use crate::Failure;
use crate::client::MTU;

/// Interval between pictures.
const PICTURE: Duration = Duration::from_millis(500);

/// Measure whether the cost of a viewer grows with streams and viewers
#[derive(Debug, clap::Args)]
pub(crate) struct Scale {
    /// Number of streams, of 48 kbit/s each; may be repeated [default: 10, 100 and 1000; 2 and 10
    /// with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: Vec<u32>,
    /// Viewers per stream
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    viewers: u32,
    /// Event loops of the server (`[server] cores`); may be repeated [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    loops: Vec<u16>,
    /// Seconds to measure
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

impl Scale {
    pub(crate) fn run(self, quick: bool, mendcast: PathBuf) -> Result<(), Failure> {
        println!("machine: {}", crate::report::machine());
        let defaults: &[u32] = if quick { &[2, 10] } else { &[10, 100, 1_000] };
        let counts = if self.streams.is_empty() { defaults } else { &self.streams };
        println!(
            "| loops | streams | viewers | KB per viewer | CPU | us per delivered picture \
             | delivered | delay p50 | p99 | left or late |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|");
        let loops = if self.loops.is_empty() { &[1][..] } else { &self.loops };
        for &streams in counts {
            for &loops in loops {
                println!("{}", self.measure(&mendcast, streams as usize, loops)?);
            }
        }
        Ok(())
    }

    /// Measures one number of streams and of event loops. Returns the row of the table.
    fn measure(&self, mendcast: &Path, streams: usize, loops: u16) -> Result<String, Failure> {
        let viewers = streams * self.viewers as usize;
        let dir = tempfile::tempdir()?;
        identity(dir.path())?;
        let settings = format!(
            "cores = {loops}\n[quic]\ninitial_mtu = {MTU}\nmax_mtu = {MTU}\nmax_connections = {}\n\
             [live]\nmax_streams = {streams}\n",
            // Each loop has an equal share, but not an equal number of viewers.
            2 * viewers * usize::from(loops)
        );
        // An RTMP connection that has not published yet needs a place of its own.
        let rtmp = format!("max_connections = {}\n", 2 * streams + 100);
        let config = servers::write_config(dir.path(), &rtmp, &settings)?;
        let (server, _) = servers::start_edge(mendcast, &config)?;
        let path = ("/live/bench{}.flv", streams);
        let transport = Contestant::Edge.transport();
        let watch = turn::watch(server.address, dir.path(), path, transport, viewers)?;
        let publish = |ingest: &_| {
            let streams = Streams::new(streams, || TagSource::thin(PICTURE));
            Publisher::start_many(ingest, streams).map(Feed::Thread)
        };
        let time = Duration::from_secs(self.seconds);
        let cost = turn::run(server, publish, watch, viewers, time)?;
        let delivered = cost.seen.pictures.tags as f64;
        let published = viewers as f64 * time.as_secs_f64() / PICTURE.as_secs_f64();
        let [p50, p99, _] = cost.seen.pictures.quantiles.map(|seconds| seconds * 1e3);
        let left = viewers.saturating_sub(cost.viewers) + cost.seen.late;
        Ok(format!(
            "| {loops} | {streams} | {viewers} | {:.1} | {:.1} % | {:.1} | {:.1} % | {p50:.1} ms \
             | {p99:.1} ms | {left} |",
            cost.resident / 1e3,
            cost.busy() * 100.0,
            cost.busy() * cost.wall.as_secs_f64() * 1e6 / delivered.max(1.0),
            delivered / published * 100.0,
        ))
    }
}
