//! Threads that serve viewers, QUIC's event loops and TCP's runtimes, do not die or hang unnoticed.
//!
//! A loop shares its fate with thousands of viewers, and nothing can be said of the state that a
//! panic or an endless turn leaves. So either ends the process, with one line and exit code 1, and
//! the process's supervisor starts a new one: viewers are back within seconds instead of in
//! front of a port that nobody serves. A loop that hangs is reported unhealthy first, so that load
//! balancers look elsewhere.

use core::any::Any;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use super::pulse::Pulse;
use crate::Error;
use crate::logging;

/// A loop that began no turn for this long is unhealthy. An idle loop has a turn each second.
pub(crate) const UNHEALTHY: Duration = Duration::from_secs(3);
/// The process ends when a loop began no turn for this long.
const HUNG: Duration = Duration::from_secs(10);
/// How often the loops are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long the last line may take to be written: whatever reads it may hang as well.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends the process because of what the line says.
pub(crate) type End = Arc<dyn Fn(String) + Send + Sync>;

/// Ends the process at once, with a line on stderr and exit code 1. Nothing is waited for: whatever
/// one could wait for may depend on the loop that is stuck.
pub(crate) fn exit(line: String) {
    let (told, written) = channel();
    let tell = move || {
        logging::flush();
        eprintln!("mendcast: {line}");
        // Nobody may wait for it any more.
        let _ = told.send(());
    };
    if Builder::new().spawn(tell).is_ok() {
        // In vain, the process ends without a word.
        let _ = written.recv_timeout(LAST_WORDS);
    }
    std::process::exit(1);
}

/// Runs `work`, the loop with this pulse, on a thread; if it panics, that is the `end`.
///
/// # Errors
/// One line: the thread cannot be started.
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

/// The text that a panic came with.
fn message(cause: &(dyn Any + Send)) -> &str {
    let text = cause.downcast_ref::<&str>().copied();
    text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Watches the loops until all of them are over, from a thread of its own: the process's other
/// threads may wait for something that a stuck loop holds.
///
/// # Errors
/// One line: the thread cannot be started.
pub(crate) fn watch(pulses: Vec<Arc<Pulse>>, end: End) -> Result<(), Error> {
    let thread = Builder::new().name("watchdog".to_owned());
    let thread = thread.spawn(move || look(&pulses, HUNG, LOOK, &end));
    thread.map(drop).map_err(|e| Error::new(format!("cannot start a thread: {e}")))
}

/// Looks at the loops every `period`. What counts is how often a loop was seen without a new turn,
/// not the clock: a process that was stopped and continued has not hung.
fn look(pulses: &[Arc<Pulse>], hung: Duration, period: Duration, end: &End) {
    let mut seen: Vec<_> = pulses.iter().map(|pulse| (pulse.last(), Duration::ZERO)).collect();
    while pulses.iter().any(|pulse| !pulse.is_over()) {
        std::thread::sleep(period);
        for (pulse, (last, silent)) in pulses.iter().zip(&mut seen) {
            let beat = pulse.last();
            *silent =
                if beat == *last && !pulse.is_over() { *silent + period } else { Duration::ZERO };
            *last = beat;
            if *silent >= hung {
                end(format!("{} hangs: no turn for {} s", pulse.name(), silent.as_secs()));
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

    /// An end that only tells.
    fn teller() -> (End, Receiver<String>) {
        let (sender, receiver) = channel();
        (Arc::new(move |line| drop(sender.send(line))), receiver)
    }

    #[test]
    fn a_loop_that_panics_is_the_end_and_one_that_returns_is_not() {
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
    fn a_loop_without_turns_is_the_end_and_one_with_turns_is_not() {
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
        look(&pulses, Duration::from_millis(300), Duration::from_millis(10), &end);
        assert_eq!(told.recv_timeout(SOON), Ok("tcp-0 hangs: no turn for 0 s".into()));
        assert!(pulses[1].silence() >= Duration::from_millis(300));
        for (sender, running) in [(stop, turning), (release, stuck)] {
            sender.send(()).expect("received");
            running.join().expect("no panic");
        }
        // The look ends with the loops.
        look(&pulses, Duration::ZERO, Duration::ZERO, &end);
        assert!(told.try_recv().is_err());
    }

    /// Run as a process of its own by the test below.
    #[test]
    #[ignore = "ends the process"]
    fn process_with_a_loop_that_panics() {
        let pulse = Arc::new(Pulse::new("quic-0".into()));
        let running = start(pulse, Arc::new(exit), || panic!("on purpose"));
        running.expect("started").join().expect("the process ends before");
        std::thread::sleep(SOON);
    }

    /// Run as a process of its own by the test below.
    #[test]
    #[ignore = "ends the process"]
    fn process_with_a_loop_that_hangs() {
        let pulse = Arc::new(Pulse::new("quic-0".into()));
        let hang = || std::thread::sleep(SOON);
        let _running = start(pulse.clone(), Arc::new(exit), hang).expect("started");
        let end: End = Arc::new(exit);
        look(&[pulse], Duration::from_millis(100), Duration::from_millis(10), &end);
    }

    #[test]
    fn the_process_ends_with_a_line_and_exit_code_1() {
        for (name, line) in [
            ("process_with_a_loop_that_panics", "mendcast: quic-0 panicked: on purpose"),
            ("process_with_a_loop_that_hangs", "mendcast: quic-0 hangs: no turn for 0 s"),
        ] {
            let name = format!("loops::supervisor::tests::{name}");
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args([&name, "--exact", "--ignored", "--nocapture"]);
            let output = command.output().expect("run");
            let text = String::from_utf8_lossy(&output.stderr);
            // The test harness itself would say 101.
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(text.lines().any(|l| l == line), "{text}");
        }
    }
}
