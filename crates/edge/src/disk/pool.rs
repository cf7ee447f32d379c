//! Thread pool for blocking disk access. Results are futures that wake a tokio task or a connection
//! of an event loop.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;

use tokio::sync::oneshot;

use crate::sync::lock;

/// Threads per pool, and so the number of concurrent reads.
const THREADS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// The pool. Its threads end when it is dropped. The queue needs no limit, because each job belongs
/// to a request, and requests are limited.
#[derive(Debug)]
pub(crate) struct Pool {
    sender: Sender<Job>,
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// If a thread cannot be started.
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

    /// Runs `work`, unless the receiver is dropped first. The receiver returns an error if `work`
    /// panics.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, result) = oneshot::channel();
        let job = move || {
            if !done.is_closed() {
                // The receiver may have been dropped.
                let _ = done.send(work());
            }
        };
        // Without threads the job is dropped, and the receiver returns an error.
        let _ = self.sender.send(Box::new(job));
        result
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = lock(jobs).recv();
        let Ok(job) = job else { return };
        // Jobs are independent, so a panic, which the hook has reported, affects no other.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a pool with one thread, blocked until the sender is used or dropped.
    pub(crate) fn blocked_pool() -> (Pool, Sender<()>) {
        let pool = Pool::with_threads(1).expect("started");
        let (release, released) = channel();
        let wait = move || {
            let _ = released.recv();
        };
        pool.sender.send(Box::new(wait)).expect("a running thread");
        (pool, release)
    }

    #[test]
    fn a_panic_affects_only_its_job() {
        let pool = Pool::with_threads(1).expect("started");
        let broken = pool.run(|| -> u32 { panic!("on purpose") });
        let result = pool.run(|| 7);
        assert!(broken.blocking_recv().is_err());
        assert_eq!(result.blocking_recv(), Ok(7));
    }

    #[test]
    fn jobs_of_dropped_receivers_are_skipped() {
        let (pool, release) = blocked_pool();
        let (done, was_done) = channel();
        drop(pool.run(move || done.send(())));
        drop(release);
        assert_eq!(pool.run(|| 1).blocking_recv(), Ok(1));
        assert!(was_done.recv().is_err());
    }
}
