//! A few threads that do what may have to wait for the disk. What they find comes as a future does:
//! it wakes the task that polls it: tokio's, or a connection of an event loop.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;

use tokio::sync::oneshot;

use crate::sync::lock;

/// Threads of a pool: as many files as are read at the same time.
const THREADS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// The threads end with the pool. Jobs wait without a bound of their own: each belongs to a request,
/// of which there is a limited number.
#[derive(Debug)]
pub(crate) struct Pool {
    sender: Sender<Job>,
}

impl Pool {
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        Self::with_threads(THREADS)
    }

    fn with_threads(threads: usize) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..threads {
            let receiver = receiver.clone();
            Builder::new().name("files".to_owned()).spawn(move || work(&receiver))?;
        }
        Ok(Self { sender })
    }

    /// Runs `work`, unless nobody waits for it any more when its turn comes. The receiver tells of
    /// an error if `work` panicked.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, result) = oneshot::channel();
        let job = move || {
            if !done.is_closed() {
                // A reader that stopped waiting meanwhile does not want it.
                let _ = done.send(work());
            }
        };
        // Without threads the job is dropped, and the receiver tells.
        let _ = self.sender.send(Box::new(job));
        result
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = lock(jobs).recv();
        let Ok(job) = job else { return };
        // The next one has nothing to do with what panicked here; the panic has been told.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pool whose only thread does nothing until the sender is used or dropped.
    pub(crate) fn stuck() -> (Pool, Sender<()>) {
        let pool = Pool::with_threads(1).expect("started");
        let (release, released) = channel();
        let wait = move || {
            let _ = released.recv();
        };
        pool.sender.send(Box::new(wait)).expect("its thread lives");
        (pool, release)
    }

    #[test]
    fn results_come_and_a_job_that_panics_costs_only_itself() {
        let pool = Pool::with_threads(1).expect("started");
        let broken = pool.run(|| -> u32 { panic!("on purpose") });
        let result = pool.run(|| 7);
        assert!(broken.blocking_recv().is_err());
        assert_eq!(result.blocking_recv(), Ok(7));
    }

    #[test]
    fn what_nobody_waits_for_is_not_done() {
        let (pool, release) = stuck();
        let (done, was_done) = channel();
        drop(pool.run(move || done.send(())));
        drop(release);
        assert_eq!(pool.run(|| 1).blocking_recv(), Ok(1));
        assert!(was_done.recv().is_err());
    }
}
