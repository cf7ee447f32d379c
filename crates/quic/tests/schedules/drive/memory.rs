//! Counts the bytes that the server holds on the heap: what the process holds more after a call into
//! the server than before. Only one schedule may be under way in a process at a time, and what the
//! TLS library's C code allocates is left out.

use std::alloc::System;
use std::cell::Cell;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// What the process holds.
fn all() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated) as isize
}

/// Begins anew.
pub fn reset() {
    HELD.set(0);
}

/// Counts what `work` allocates and frees.
pub fn counted<T>(work: impl FnOnce() -> T) -> T {
    let before = all();
    let result = work();
    HELD.set(HELD.get() + all() - before);
    result
}

/// Leaves out what `work`, as a part of something that is counted, allocates and frees.
pub fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let before = all();
    let result = work();
    HELD.set(HELD.get() - (all() - before));
    result
}

/// Bytes held.
pub fn held() -> u64 {
    u64::try_from(HELD.get()).unwrap_or(0)
}
