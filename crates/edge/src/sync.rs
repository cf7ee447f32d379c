//! Locks that outlive a panic: what they protect is never left half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, whether or not another holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
