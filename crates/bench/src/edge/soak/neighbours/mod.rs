//! Hostile neighbours, one kind per file, with its rates and counters of attempts and outcomes.
//! Together they make some 1,000 connections per second, 500 of them silent, and 700 requests per
//! second; 200 healthy viewers make 7. Real attackers have their own machines. Here neighbours
//! share the server's machine at the lowest priority, so that viewers show the server's work on
//! attacks rather than contention with the attackers' processes. A rule of the soak checks that
//! neighbours kept their rates.

mod beacons;
mod cancels;
mod clients;
mod crew;
mod empty;
mod frames;
mod handshakes;
mod logs;
mod names;
mod network;
mod newcomers;
mod poison;
mod publishers;
mod silent;
mod slow;
mod tally;
mod waiting;

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crew::Crew;

pub(super) use crew::Target;
pub(super) use tally::Count;

use crate::Failure;

/// Lowest priority of an ordinary Linux thread.
const LOWEST_PRIORITY: i32 = 19;

/// The neighbours in their own thread.
pub(super) struct Neighbours {
    thread: JoinHandle<(Vec<Count>, Duration)>,
    end: oneshot::Sender<()>,
}

impl Neighbours {
    /// Starts the neighbours with names that contain `only`.
    pub(super) fn start(target: Target, only: &str) -> Result<Self, Failure> {
        let kinds: &[fn(&mut Crew)] = &[
            slow::join,
            handshakes::join,
            names::join,
            cancels::join,
            beacons::join,
            publishers::join,
            network::join,
            silent::join,
            waiting::join,
            logs::join,
            poison::join,
            empty::join,
            frames::join,
        ];
        Self::run(Crew::new(target, only)?, kinds, Some(LOWEST_PRIORITY))
    }

    /// Honest newcomers, who come the same way and have the priority of viewers.
    pub(super) fn newcomers(target: Target) -> Result<Self, Failure> {
        Self::run(Crew::new(target, "")?, &[newcomers::join], None)
    }

    fn run(
        mut crew: Crew,
        kinds: &[fn(&mut Crew)],
        niceness: Option<i32>,
    ) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel::<()>();
        let start = Instant::now();
        let guard = runtime.enter();
        kinds.iter().for_each(|join| join(&mut crew));
        drop(guard);
        if crew.is_empty() {
            return Err("no neighbour's name contains this".into());
        }
        let thread = std::thread::spawn(move || {
            // On Linux this sets the priority of the calling thread.
            let set = niceness.map(|nice| rustix::process::setpriority_process(None, nice));
            if let Some(Err(e)) = set {
                println!("      the neighbours have the priority of the viewers: {e}");
            }
            // Also ends when the sender is dropped.
            let _ = runtime.block_on(ended);
            let counts = crew.counts(start.elapsed());
            // Closes all of their connections.
            drop(runtime);
            (counts, cpu_time::ThreadTime::now().as_duration())
        });
        Ok(Self { thread, end })
    }

    /// Stops all neighbours abruptly. Returns their counters and their CPU time.
    pub(super) fn leave(self) -> Result<(Vec<Count>, Duration), Failure> {
        // Fails if the thread has already failed.
        let _ = self.end.send(());
        self.thread.join().map_err(|_| "the neighbours' thread panicked".into())
    }
}
