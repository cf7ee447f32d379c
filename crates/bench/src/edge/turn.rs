//! One turn of a server: its start, a publisher, its viewers and their cost.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;

use super::cost::{self, Cost};
use super::publisher::{Ingest, Publisher};
use super::servers::{self, Process, RunningServer, ViewTransport};
use super::tally::ViewMeasurement;
use crate::Failure;
use crate::loopback::receive_errors;

/// Time between the start of the streams and the first viewer: three groups of pictures.
pub(super) const LEAD: Duration = Duration::from_secs(7);
/// Time between the last viewer and the measurement, to deliver the initial bursts.
pub(super) const SETTLE: Duration = Duration::from_secs(3);

/// Process of the viewers.
pub(super) struct Viewers(Process);

impl Viewers {
    /// Starts the process, which reports as in [`super::tally::report`]. Returns once all viewers
    /// have joined or failed, with the number that joined.
    pub(super) fn start(mut command: Command, count: usize) -> Result<(Self, usize), Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut viewers = Self(Process(command.spawn()?));
        let ready = viewers.line();
        let (joined, failure) =
            ready.strip_prefix("ready ").and_then(|rest| rest.split_once(' ')).unwrap_or_default();
        match joined.parse() {
            Ok(0) => Err(failure.into()),
            Ok(joined) if joined < count => {
                println!("      {joined} of {count} viewers joined: {failure}");
                Ok((viewers, joined))
            }
            Ok(joined) => Ok((viewers, joined)),
            Err(_) => Err(format!("the viewers did not start: {ready}").into()),
        }
    }

    fn line(&mut self) -> String {
        self.0.0.stdout.as_mut().map_or_else(String::new, servers::read_line)
    }

    fn tell(&mut self) -> Result<(), Failure> {
        let pipe = self.0.0.stdin.as_mut().ok_or("the viewers do not listen")?;
        writeln!(pipe).map_err(|e| format!("the viewers: {e}").into())
    }

    pub(super) fn measure(&mut self, time: Duration) -> Result<(), Failure> {
        self.tell()?;
        std::thread::sleep(time);
        self.tell()
    }

    pub(super) fn seen(&mut self) -> Result<ViewMeasurement, Failure> {
        let line = self.line();
        serde_json::from_str(&line).map_err(|e| format!("the viewers: {e}: {line}").into())
    }
}

/// Returns the command of viewers in this program. They watch `path` of `streams` streams, in which
/// `{}` is the stream's number.
pub(super) fn watch(
    address: SocketAddr,
    dir: &Path,
    (path, streams): (&str, usize),
    transport: ViewTransport,
    viewers: usize,
) -> Result<Command, Failure> {
    let value = transport.to_possible_value().ok_or("viewers cannot use this protocol")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("watch").arg(address.to_string()).arg(dir).arg(path);
    command.arg(viewers.to_string()).arg(value.get_name());
    command.arg("--streams").arg(streams.to_string());
    Ok(command)
}

/// Publisher of a turn.
pub(super) enum Feed {
    Thread(Publisher),
    /// Another process, which publishes until killed.
    Program(Process),
}

impl Feed {
    fn stop(self) -> Result<(), Failure> {
        match self {
            Self::Thread(publisher) => publisher.stop(),
            Self::Program(mut process) => match process.0.try_wait()? {
                Some(status) => Err(format!("publisher: {status}").into()),
                None => Ok(()),
            },
        }
    }
}

/// Runs a turn of a started server. `publish` starts the streams, and `watch` is the command of
/// the viewers.
pub(super) fn run(
    server: RunningServer,
    publish: impl FnOnce(&Ingest) -> Result<Feed, Failure>,
    watch: Command,
    viewers: usize,
    time: Duration,
) -> Result<Cost, Failure> {
    let pid = server.process.0.id();
    let feed = publish(&server.ingest)?;
    std::thread::sleep(LEAD);
    let before = servers::resident(pid)?;
    let (mut process, joined) = Viewers::start(watch, viewers)?;
    std::thread::sleep(SETTLE);
    let resident = servers::resident(pid)?.saturating_sub(before);
    let (threads, errors) = (servers::threads(pid)?, receive_errors());
    let (machine, start) = (servers::machine(), Instant::now());
    process.measure(time)?;
    let (after, wall) = (servers::machine(), start.elapsed());
    let threads = cost::shares(&threads, &servers::threads(pid)?, wall);
    let seen = process.seen()?;
    feed.stop()?;
    let (before, after) = machine.zip(after).ok_or("the system has no CPU statistics")?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let machine =
        (after.0 - before.0) as f64 / ((after.1 - before.1) as f64).max(1.0) * cpus as f64;
    if seen.stayed == 0 {
        return Err(seen.failure.unwrap_or_else(|| "no viewer stayed".to_owned()).into());
    }
    Ok(Cost {
        viewers: seen.stayed,
        threads,
        wall,
        machine,
        resident: resident as f64 / joined as f64,
        receive_errors: receive_errors() - errors,
        seen,
    })
}
