//! Measures the server's heap: the process's growth during calls into the server. Only one schedule
//! may run in a process at a time. Allocations of the TLS library's C code are not counted.

use std::alloc::System;
use std::cell::Cell;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// Allocated bytes of the process.
fn all() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated) as isize
}

/// Resets the count.
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
