//! Supervision of the threads that serve viewers: QUIC event loops and TCP runtimes.
//!
//! A loop serves thousands of viewers, and its state is undefined after a panic or while it hangs.
//! Both end the process with one line and exit code 1, so that the service manager restarts it and
//! viewers return within seconds. A hanging loop is reported unhealthy first, so that load
//! balancers stop routing to it.

use core::any::Any;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use super::pulse::Pulse;
use crate::Error;
use crate::logging;

/// Time without a new turn after which a loop is unhealthy. Idle loops take one turn per second.
pub(crate) const UNHEALTHY_AFTER: Duration = Duration::from_secs(3);
/// Time without a new turn after which the process ends.
const HUNG_AFTER: Duration = Duration::from_secs(10);
/// Interval of the watchdog's checks.
const CHECK_PERIOD: Duration = Duration::from_millis(250);
/// Timeout for writing the last line: the reader of stderr may hang too.
const LAST_LINE_TIMEOUT: Duration = Duration::from_secs(1);

/// Ends the process with this line as the reason.
pub(crate) type End = Arc<dyn Fn(String) + Send + Sync>;

/// Exits at once, with a line on stderr and code 1. Does not wait for other threads, as those may
/// depend on the stuck loop.
pub(crate) fn exit(line: String) {
    let (told, written) = channel();
    let tell = move || {
        logging::flush();
        eprintln!("mendcast: {line}");
        // The receiver may have timed out.
        let _ = told.send(());
    };
    if Builder::new().spawn(tell).is_ok() {
        // After the timeout, exit without the line.
        let _ = written.recv_timeout(LAST_LINE_TIMEOUT);
    }
    std::process::exit(1);
}

/// Runs `work`, the loop behind `pulse`, on a new thread. Calls `end` if it panics.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(
    pulse: Arc<Pulse>,
    end: End,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    pulse.begin(pulse.now());
    let thread = Builder::new().name(pulse.name().to_owned());
    let supervised = move || match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => pulse.finish(),
        Err(cause) => end(format!("{} panicked: {}", pulse.name(), message(&*cause))),
    };
    let thread = thread.spawn(supervised);
    thread.map_err(|e| Error::new(format!("cannot start a thread: {e}")))
}

/// Returns the message of a panic.
fn message(cause: &(dyn Any + Send)) -> &str {
    let text = cause.downcast_ref::<&str>().copied();
    text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Watches the loops until all have ended, on its own thread: other threads may wait for a stuck
/// loop.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn watch(pulses: Vec<Arc<Pulse>>, end: End) -> Result<(), Error> {
    let thread = Builder::new().name("watchdog".to_owned());
    let thread = thread.spawn(move || check(&pulses, HUNG_AFTER, CHECK_PERIOD, &end));
    thread.map(drop).map_err(|e| Error::new(format!("cannot start a thread: {e}")))
}

/// Checks the loops every `period`. Counts checks without a new turn instead of reading the clock,
/// so that a process that was suspended does not look stuck.
fn check(pulses: &[Arc<Pulse>], hung: Duration, period: Duration, end: &End) {
    let mut seen: Vec<_> = pulses.iter().map(|pulse| (pulse.last(), Duration::ZERO)).collect();
    while pulses.iter().any(|pulse| !pulse.is_over()) {
        std::thread::sleep(period);
        for (pulse, (last, silent)) in pulses.iter().zip(&mut seen) {
            let beat = pulse.last();
            *silent =
                if beat == *last && !pulse.is_over() { *silent + period } else { Duration::ZERO };
            *last = beat;
            if *silent >= hung {
                end(format!("{} has been stuck for {} s", pulse.name(), silent.as_secs()));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::mpsc::{Receiver, Sender};

    const SOON: Duration = Duration::from_secs(10);

    /// An `End` that only records the line.
    fn teller() -> (End, Receiver<String>) {
        let (sender, receiver) = channel();
        (Arc::new(move |line| drop(sender.send(line))), receiver)
    }

    #[test]
    fn panic_of_a_loop_ends_the_process_and_return_does_not() {
        let (end, told) = teller();
        let pulse = Arc::new(Pulse::new("quic-3".into()));
        let running = start(pulse.clone(), end.clone(), || panic!("{} is too much", 1_000));
        running.expect("started").join().expect("the panic was caught");
        assert_eq!(told.recv_timeout(SOON), Ok("quic-3 panicked: 1000 is too much".into()));
        assert!(!pulse.is_over());

        let running = start(pulse.clone(), end, || ());
        running.expect("started").join().expect("no panic");
        assert!(pulse.is_over());
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn stuck_loop_ends_the_process_and_active_loop_does_not() {
        let (end, told) = teller();
        let pulses = ["quic-0", "tcp-0"].map(|name| Arc::new(Pulse::new(name.into())));
        let (stop, stopped): (Sender<()>, _) = channel();
        let (busy, stuck) = (pulses[0].clone(), pulses[1].clone());
        let turning = start(busy.clone(), end.clone(), move || {
            while stopped.recv_timeout(Duration::from_millis(1)).is_err() {
                busy.begin(busy.now());
            }
        });
        let turning = turning.expect("started");
        let (release, released): (Sender<()>, _) = channel();
        let stuck = start(stuck, end.clone(), move || assert_eq!(released.recv(), Ok(())));
        let stuck = stuck.expect("started");
        check(&pulses, Duration::from_millis(300), Duration::from_millis(10), &end);
        assert_eq!(told.recv_timeout(SOON), Ok("tcp-0 has been stuck for 0 s".into()));
        assert!(pulses[1].silence() >= Duration::from_millis(300));
        for (sender, running) in [(stop, turning), (release, stuck)] {
            sender.send(()).expect("received");
            running.join().expect("no panic");
        }
        // The check ends with the loops.
        check(&pulses, Duration::ZERO, Duration::ZERO, &end);
        assert!(told.try_recv().is_err());
    }

    /// Run as a separate process by the test below.
    #[test]
    #[ignore = "ends the process"]
    fn process_with_a_loop_that_panics() {
        let pulse = Arc::new(Pulse::new("quic-0".into()));
        let running = start(pulse, Arc::new(exit), || panic!("on purpose"));
        running.expect("started").join().expect("the process ends before");
        std::thread::sleep(SOON);
    }

    /// Run as a separate process by the test below.
    #[test]
    #[ignore = "ends the process"]
    fn process_with_a_loop_that_hangs() {
        let pulse = Arc::new(Pulse::new("quic-0".into()));
        let hang = || std::thread::sleep(SOON);
        let _running = start(pulse.clone(), Arc::new(exit), hang).expect("started");
        let end: End = Arc::new(exit);
        check(&[pulse], Duration::from_millis(100), Duration::from_millis(10), &end);
    }

    #[test]
    fn process_exits_with_a_line_and_code_1() {
        for (name, line) in [
            ("process_with_a_loop_that_panics", "mendcast: quic-0 panicked: on purpose"),
            ("process_with_a_loop_that_hangs", "mendcast: quic-0 has been stuck for 0 s"),
        ] {
            let name = format!("loops::supervisor::tests::{name}");
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args([&name, "--exact", "--ignored", "--nocapture"]);
            let output = command.output().expect("run");
            let text = String::from_utf8_lossy(&output.stderr);
            // The test harness itself would exit with 101.
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(text.lines().any(|l| l == line), "{text}");
        }
    }
}
