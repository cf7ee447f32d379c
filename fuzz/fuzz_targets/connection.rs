//! Schedules for one connection, chosen by libFuzzer for the code that they reach. A schedule that
//! fails is printed as a list of its steps, and as bytes for a file in
//! `crates/quic/tests/schedules/corpus`.

#![no_main]

#[allow(dead_code, reason = "the figures of a run are for the other front end")]
#[path = "../../crates/quic/tests/schedules/drive/mod.rs"]
mod drive;

use std::cell::RefCell;
use std::sync::Once;

use libfuzzer_sys::fuzz_target;

thread_local! {
    static SCHEDULE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A panic tells the schedule, and ends the process only then.
fn tell_panics() {
    std::panic::set_hook(Box::new(|info| {
        let schedule = SCHEDULE.take();
        eprintln!("{info}");
        let hex: String = schedule.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("schedule: {hex}\nstep by step:");
        // The same panic inside of this hook ends the process.
        drive::drive(&schedule, true);
        std::process::abort();
    }));
}

fuzz_target!(|schedule: &[u8]| {
    static HOOK: Once = Once::new();
    HOOK.call_once(tell_panics);
    SCHEDULE.with_borrow_mut(|kept| {
        kept.clear();
        kept.extend_from_slice(schedule);
    });
    // `MENDCAST_TELL` shows the steps of a schedule that hangs, too.
    let tells = std::env::var_os("MENDCAST_TELL").is_some();
    drive::drive(schedule, tells);
});
