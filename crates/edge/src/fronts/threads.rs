//! The threads of HTTP/1.1 and HTTP/2. Each runs its own runtime, which accepts connections,
//! performs TLS and serves requests, so that viewers on TCP use all cores without slowing ingest
//! and packaging.
//!
//! All threads accept from the same socket, so the kernel hands connections to idle threads. With
//! one socket per thread (SO_REUSEPORT), a hash would assign connections even to busy threads, and
//! a second process could take the port.

use std::net::TcpListener;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use units::Timestamp;

use super::tcp;
use crate::Error;
use crate::loops::pulse::Pulse;
use crate::loops::supervisor::{self, End};
use crate::state::Shared;

/// Interval of a runtime's sign of life.
const BEAT_PERIOD: Duration = Duration::from_secs(1);

/// Starts a thread that serves these listeners until the end of the drain. Calls `end` if it panics
/// or hangs.
///
/// # Errors
/// The runtime, the thread or a listener's descriptor cannot be created.
pub(crate) fn start(
    listeners: &[&TcpListener],
    shared: &Arc<Shared>,
    pulse: &Arc<Pulse>,
    end: &End,
) -> Result<JoinHandle<()>, Error> {
    let failed = |e| Error::new(format!("cannot start {}: {e}", pulse.name()));
    let runtime = runtime(pulse).map_err(failed)?;
    let mut own = Vec::new();
    for listener in listeners {
        let _inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener.try_clone().map_err(failed)?);
        own.push(listener.map_err(failed)?);
    }
    let (shared, beats) = (shared.clone(), pulse.clone());
    let work = move || {
        runtime.block_on(async {
            let fronts = own.into_iter().map(|listener| tcp::serve(listener, shared.clone()));
            tokio::select! {
                () = until_over(fronts) => {}
                () = beat(&beats) => {}
            }
        });
    };
    supervisor::start(pulse.clone(), end.clone(), work)
}

/// Creates a runtime that measures its turns, from the end of one wait to the next.
fn runtime(pulse: &Arc<Pulse>) -> std::io::Result<Runtime> {
    let (start, seen) = (Arc::new(AtomicU64::new(pulse.now().as_nanos())), pulse.clone());
    let (started, counted) = (start.clone(), pulse.clone());
    Builder::new_current_thread()
        .enable_all()
        .on_thread_unpark(move || start.store(seen.now().as_nanos(), Ordering::Relaxed))
        .on_thread_park(move || {
            let start = Duration::from_nanos(started.load(Ordering::Relaxed));
            counted.end(Timestamp::ZERO + start, counted.now());
        })
        .build()
}

/// Runs the fronts until all have ended. Propagates panics, as the thread would otherwise accept
/// nothing.
async fn until_over<F: Future<Output = ()> + Send + 'static>(fronts: impl IntoIterator<Item = F>) {
    let mut running: JoinSet<()> = fronts.into_iter().collect();
    while let Some(over) = running.join_next().await {
        if let Err(e) = over {
            resume_unwind(e.into_panic());
        }
    }
}

/// Updates the pulse periodically to show that the runtime makes progress.
async fn beat(pulse: &Pulse) {
    loop {
        pulse.begin(pulse.now());
        tokio::time::sleep(BEAT_PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::server::Edge;

    #[test]
    fn thread_beats_until_the_drain_is_complete() {
        let mut config = Config::default();
        config.server.listen = vec![([127, 0, 0, 1], 0).into()];
        config.server.cores = 1;
        config.admin.listen = Some(([127, 0, 0, 1], 0).into());
        let edge = Edge::open(config).expect("opened");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        listener.set_nonblocking(true).expect("set");
        let pulse = Arc::new(Pulse::new("tcp-0".into()));
        let end: End = Arc::new(|line| panic!("{line}"));
        let running = start(&[&listener], edge.shared(), &pulse, &end).expect("started");
        let started = pulse.last();
        while pulse.last().since(started) < 2 * BEAT_PERIOD {
            std::thread::sleep(Duration::from_millis(10));
            assert!(pulse.silence() < 5 * BEAT_PERIOD);
        }
        let (turns, _) = pulse.turns();
        assert!(turns.iter().map(|(_, count)| count).sum::<u64>() >= 2, "{turns:?}");
        edge.shared().drain();
        running.join().expect("no panic");
        assert!(pulse.is_over());
    }

    #[test]
    fn panic_of_a_front_ends_the_process() {
        let (sender, told) = std::sync::mpsc::channel();
        let end: End = Arc::new(move |line| drop(sender.send(line)));
        let pulse = Arc::new(Pulse::new("tcp-3".into()));
        let runtime = runtime(&pulse).expect("made");
        let work = move || runtime.block_on(until_over([async { panic!("on purpose") }]));
        supervisor::start(pulse.clone(), end, work).expect("started").join().expect("caught");
        let line = told.recv_timeout(Duration::from_secs(10));
        assert_eq!(line.as_deref(), Ok("tcp-3 panicked: on purpose"));
        assert!(!pulse.is_over());
    }
}
