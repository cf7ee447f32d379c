//! Counts the bytes that the server holds on the heap: an allocator that counts, on the present
//! thread, while the server is at work. What the TLS library's C code allocates is left out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a count of what is held.
pub struct Counting;

fn count(bytes: isize) {
    // A thread that ends has no counters any more, and nothing that is counted.
    let counts = COUNTS.try_with(Cell::get).unwrap_or(false);
    if counts {
        let _ = HELD.try_with(|held| held.set(held.get() + bytes));
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(place, layout) }
    }
}

/// Forgets what was counted on this thread.
pub fn reset() {
    COUNTS.set(false);
    HELD.set(0);
}

/// Counts what `work` allocates and frees.
pub fn counted<T>(work: impl FnOnce() -> T) -> T {
    switched(true, work)
}

/// Leaves out what `work` allocates and frees.
pub fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    switched(false, work)
}

fn switched<T>(on: bool, work: impl FnOnce() -> T) -> T {
    let before = COUNTS.replace(on);
    let result = work();
    COUNTS.set(before);
    result
}

/// Bytes held.
pub fn held() -> u64 {
    u64::try_from(HELD.get()).unwrap_or(0)
}
