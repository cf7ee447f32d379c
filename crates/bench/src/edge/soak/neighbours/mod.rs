//! Hostile neighbours, a file for each kind: each states its rates and counts what it did and how
//! the server dealt with it. Together they make some 1,000 connections, of which 500 say nothing,
//! and 700 requests a second; 200 viewers who come and go make 7. In the world they have machines
//! of their own. Here they have the lowest priority of the machine that all share: what the server
//! does for them is to be seen in the viewers, not that the viewers' own processes wait for them.
//! That they come as often as they should is a rule of the soak.

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

/// The lowest priority that Linux has for an ordinary thread.
const NICEST: i32 = 19;

/// The neighbours, in a thread of their own.
pub(super) struct Neighbours {
    thread: JoinHandle<(Vec<Count>, Duration)>,
    end: oneshot::Sender<()>,
}

impl Neighbours {
    /// All begin whose name contains `only`.
    pub(super) fn start(target: Target, only: &str) -> Result<Self, String> {
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
        Self::run(Crew::new(target, only)?, kinds, Some(NICEST))
    }

    /// Honest newcomers, who come the same way and have the priority of viewers.
    pub(super) fn newcomers(target: Target) -> Result<Self, String> {
        Self::run(Crew::new(target, "")?, &[newcomers::join], None)
    }

    fn run(mut crew: Crew, kinds: &[fn(&mut Crew)], niceness: Option<i32>) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let (end, ended) = oneshot::channel::<()>();
        let start = Instant::now();
        let guard = runtime.enter();
        kinds.iter().for_each(|join| join(&mut crew));
        drop(guard);
        if crew.is_empty() {
            return Err("no neighbour's name contains this".to_owned());
        }
        let thread = std::thread::spawn(move || {
            // On Linux this is the priority of the calling thread.
            let set = niceness.map(|nice| rustix::process::setpriority_process(None, nice));
            if let Some(Err(e)) = set {
                println!("      the neighbours have the priority of the viewers: {e}");
            }
            // It also ends when nobody waits for it any more.
            let _ = runtime.block_on(ended);
            let counts = crew.counts(start.elapsed());
            // All that they hold is closed.
            drop(runtime);
            (counts, cpu_time::ThreadTime::now().as_duration())
        });
        Ok(Self { thread, end })
    }

    /// All leave without a word. Returns what they did, and their time on the processors.
    pub(super) fn leave(self) -> Result<(Vec<Count>, Duration), String> {
        // A thread that has failed does not listen.
        let _ = self.end.send(());
        self.thread.join().map_err(|_| "the neighbours' thread panicked".to_owned())
    }
}
